"""Sums of arrays of any size of values, exactly."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from flwr_dpkmeans.algorithms.statistics.array_parts import (
    GRID_STEP,
    MOST_MOVED,
    WEIGHT_SENSITIVITY,
    ArrayPart,
    ArrayScale,
)
from flwr_dpkmeans.algorithms.statistics.array_sum import ArraySumTask
from flwr_dpkmeans.errors import ConfigurationError
from flwr_dpkmeans.kernels.grid import round_to_grid
from flwr_dpkmeans.kernels.vector_clipping import clip_vector
from flwr_dpkmeans.privacy.release import (
    Block,
    NoiseShape,
    Norm,
    PrivacyUnit,
    ReleasedSum,
    Sensitivity,
)
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.public_facts import PublicFacts
from flwr_dpkmeans.sums.round import Array, State

_EXACT_BITS = 45
"""All parts of an exact sum, in all rounds, reach 2^45 at most.

a released sum, which may be 2^47, cannot wrap.
"""
_MOST_EXACT_BITS = 36
"""One part reaches 2^36 at most: 2^52 steps of the ring, of which float64 holds each.
"""
_EXACT_STEP = 2.0**-24
"""Of exact sums where nothing is stated: what a float32 tells apart near 1."""
_CLIPPED, _CAPPED, _LEFT_OUT, _ROUNDED = range(4)
"""Entries of the array `_CHANGED_PARTS`."""
_N_COUNTS = 4
_CHANGED_PARTS = "changed_parts"
_COUNTED = Sensitivity(
    Norm.L2,
    math.sqrt(3.0),
    PrivacyUnit.CLIENT,
    "S31: one client's part is clipped, capped, rounded, or all of it, or is left out",
    nonnegative=True,
)
_MOST_LOST = 2.0**-10
"""A part that loses more of its length to rounding is counted."""
_MOST_EXACT_WHOLE = 2.0**52
"""First values and sums of whole numbers reach it at most, so that a double holds both
together to the last digit.
"""


@dataclass(frozen=True, kw_only=True)
class ExactArraySumTask(ArraySumTask):
    """The same without noise: not private.

    Nothing is clipped unless a clip is stated. Values are rounded to the nearest step
    of the ring, and whole numbers stay whole. How many parts were clipped, capped, left
    out or lost to rounding is summed beside them.
    """

    name = "exact_array_sum"
    noise: ClassVar[NoiseShape] = NoiseShape.NONE

    @property
    def label(self) -> str:
        """What sentences for people begin with."""
        return "A sum without epsilon"

    @property
    def norm_bound(self) -> float | None:
        """The clip, where one is stated."""
        return self.clip

    def check_bounds(self) -> None:
        """Refuse a largest entry beside a clip norm, and metrics, which need noise."""
        if self.metrics:
            raise ConfigurationError(
                f"metrics are {self.metrics!r}, but they are released with noise only:"
                " give epsilon, or leave them out."
            )
        if self.largest is not None and self.clip is not None:
            raise ConfigurationError(
                f"largest is {self.largest:g} and clip is {self.clip:g}, but one of"
                " them is the bound on what a client adds: leave largest out, or leave"
                " clip out for a sum without a cut."
            )

    def scale(self, n_clients: int) -> ArrayScale:
        """The bound, as a power of two, as large as the ring allows.

        All clients' parts in all rounds must fit.
        """
        n_parts = n_clients * self.max_rounds
        bits = min(_MOST_EXACT_BITS, _EXACT_BITS - (n_parts - 1).bit_length())
        reach = 2.0**bits
        bound = self.clip if self.largest is None else self.largest
        if bound is None:
            return ArrayScale(reach / GRID_STEP * _EXACT_STEP, reach)
        return ArrayScale(power_of_two_above(bound), reach)

    def planned(self, public: PublicFacts) -> Sequence[tuple[Block, ...]]:
        """What each round releases; parts that are changed are counted."""
        self._require_whole_sums(public.n_clients)
        reach = self.scale(public.n_clients).reach
        because = "S31: no entry that one client adds is larger"
        moves = Sensitivity(
            Norm.L2,
            reach * math.sqrt(self.size),
            PrivacyUnit.CLIENT,
            because,
        )
        weighs = Sensitivity(
            Norm.L2,
            reach,
            PrivacyUnit.CLIENT,
            WEIGHT_SENSITIVITY.because,
            nonnegative=True,
        )
        shapes = {
            "updates": ((self.size,), moves, reach),
            "weights": ((1,), weighs, reach),
        }
        shapes[_CHANGED_PARTS] = ((_N_COUNTS,), _COUNTED, 1.0)
        if not self.most_examples:
            del shapes["weights"]
        blocks = [
            Block(
                name,
                shape,
                sensitivity,
                NoiseShape.NONE,
                0.0,
                most,
            )
            for name, (shape, sensitivity, most) in shapes.items()
        ]
        return [tuple(blocks)] * self.max_rounds

    def _require_whole_sums(self, n_clients: int) -> None:
        """Refuse a bound with which sums of integers would lose their last digit."""
        n_parts = n_clients * self.max_rounds
        most = _MOST_EXACT_WHOLE / n_parts
        unit = self.scale(n_clients).unit
        if "int64" in self.dtypes and unit > most:
            name = "clip" if self.largest is None else "largest"
            bound = self.clip if self.largest is None else self.largest
            raise ConfigurationError(
                f"{name} is {bound:g}, but parts of {n_clients} clients in"
                f" {self.max_rounds} rounds that are whole numbers add up to the last"
                f" digit only up to {most:g} each: lower it, or begin with floats."
            )

    def beginning(self) -> State:
        """Without any changed part."""
        return super().beginning().changed(**{_CHANGED_PARTS: np.zeros(_N_COUNTS)})

    def released_part(
        self,
        part: ArrayPart,
        scale: ArrayScale,
    ) -> list[Array]:
        """A client's part, and whether it was changed or left out."""
        changed = np.zeros(_N_COUNTS)
        if self.why_left_out(part, scale):
            changed[_LEFT_OUT] = 1.0
            nothing = [np.zeros(self.size), np.zeros(1)]
            return [*nothing[: 1 + bool(self.most_examples)], changed]
        changed[_CLIPPED] = bool(self._clip_remarks(part))
        changed[_CAPPED] = part.weight > 1.0
        changed[_ROUNDED] = self._lost_share(part, scale) > _MOST_LOST
        rounded = [round_to_grid(self._weighted(part, scale))]
        if self.most_examples:
            weight = min(part.weight, 1.0)
            rounded.append(round_to_grid([weight * scale.reach]))
        return [*rounded, changed]

    def _weighted(
        self,
        part: ArrayPart,
        scale: ArrayScale,
    ) -> Array:
        """A part as it stands in the ring, not yet rounded to its steps."""
        if self.clip is None:
            moves = self._unclipped(part, scale)
        else:
            moves = self._clipped(part, scale)
        return moves * min(part.weight, 1.0)

    def _lost_share(
        self,
        part: ArrayPart,
        scale: ArrayScale,
    ) -> float:
        """The share of a part's length that rounding takes, 1 where nothing is left."""
        exact = self._weighted(part, scale)
        largest = float(np.abs(exact).max())
        if largest == 0.0:
            # Some are so small that not even a double holds them here.
            return float(part.largest > 0.0 and part.weight > 0.0)
        missing = (self._rounded(exact, scale) - exact) / largest
        return float(np.linalg.norm(missing) / np.linalg.norm(exact / largest))

    def _rounded(
        self,
        exact: Array,
        scale: ArrayScale,
    ) -> Array:
        """What is left of a part in the result: arrays of integers have no other."""
        rounded = round_to_grid(exact)
        factor = scale.unit / scale.reach
        is_whole = np.repeat([dtype == "int64" for dtype in self._types], self.sizes)
        return np.where(is_whole, np.rint(rounded * factor) / factor, rounded)

    def _unclipped(
        self,
        part: ArrayPart,
        scale: ArrayScale,
    ) -> Array:
        return part.moves * (scale.reach / scale.unit)

    def _clipped(
        self,
        part: ArrayPart,
        scale: ArrayScale,
    ) -> Array:
        bound = self.clip or math.inf
        if part.norm <= bound:
            return self._unclipped(part, scale)
        shrunk = part.moves / part.largest * scale.reach
        return clip_vector(shrunk, bound * (scale.reach / scale.unit))

    def least_weight(self, scale: ArrayScale) -> float:
        """One step: without any weight nothing was added either."""
        return GRID_STEP / scale.reach

    def moved(
        self,
        state: State,
        released: ReleasedSum,
        scale: ArrayScale,
    ) -> State:
        """The state after the round, with the changed parts added."""
        changed = state[_CHANGED_PARTS] + released[_CHANGED_PARTS]
        after = super().moved(state, released, scale)
        return after.changed(**{_CHANGED_PARTS: np.clip(changed, 0.0, MOST_MOVED)})

    def why_left_out(
        self,
        part: ArrayPart,
        scale: ArrayScale,
    ) -> str:
        """Say why a part is left out, also where an entry is too large."""
        reason = super().why_left_out(part, scale)
        if reason or self.clip is not None:
            return reason
        most = self.largest or scale.unit
        if part.largest > most:
            return (
                f"its largest value is {part.largest:.6g}, but the plan has room up to"
                f" {most:.6g}"
            )
        return ""

    def cautions(self, plan: Plan) -> tuple[str, ...]:
        """Nothing beforehand: released counts say what happened."""
        return ()

    def remarks(
        self,
        vector: Array,
        n_clients: int,
    ) -> tuple[str, ...]:
        """Say to a client what was changed of its own part."""
        part, scale = ArrayPart.of(vector), self.scale(n_clients)
        remarks = super().remarks(vector, n_clients)
        if self.why_left_out(part, scale):
            return remarks
        lost = self._lost_share(part, scale)
        if lost <= _MOST_LOST:
            return remarks
        sentence = (
            f"this client's part has values up to {part.largest:.3g}, weight"
            f" {min(part.weight, 1.0):.3g}, but values are rounded to"
            f" {self._steps(scale)}: that took {lost:.2g} of its length."
        )
        return *remarks, sentence

    def doubts(
        self,
        plan: Plan,
        state: State,
        names: Sequence[str],
    ) -> tuple[str, ...]:
        """How many parts are not in the sum as they were answered, and what to do."""
        counts = map(round, state[_CHANGED_PARTS].tolist())
        n_clipped, n_capped, n_left_out, n_rounded = counts
        n_parts = plan.n_clients * self.max_rounds
        scale = self.scale(plan.n_clients)
        most = self.largest or scale.unit
        parts = f"of {n_parts} parts that clients added"
        sentences = {
            f"{n_clipped} {parts} were longer than clip={self.clip or 0.0:g} and were"
            " scaled down to it, so that the result is not that of the answers: leave"
            " clip out, or raise it.": n_clipped,
            f"{n_capped} of {n_parts} parts came from more than"
            f" most_examples={self.most_examples} examples and were weighed as if from"
            " so many: raise most_examples.": n_capped,
            f"{n_left_out} {parts} were left out, as they were not finite, had a value"
            f" above {most:g} or no number of examples of at least 0: the clients' own"
            " logs say which; state largest= where values are larger.": n_left_out,
            f"{n_rounded} {parts} lost more than a thousandth of their length, or all"
            f" of it, as values are rounded to {self._steps(scale)}:"
            f" {self._finer_steps}.": n_rounded,
        }
        return tuple([sentence for sentence, n in sentences.items() if n > 0])

    def _steps(self, scale: ArrayScale) -> str:
        whole = ", in arrays of whole numbers to those"
        return f"{scale.step:.3g}{whole if 'int64' in self.dtypes else ''}"

    @property
    def _finer_steps(self) -> str:
        bound = "state largest=" if self.clip is None else "lower clip"
        examples = ", and lower most_examples towards what clients have"
        floats = ", or begin with floats" if "int64" in self.dtypes else ""
        return (
            f"{bound} no higher than the largest values need"
            f"{examples if self.most_examples else floats}"
        )


def power_of_two_above(bound: float) -> float:
    """The smallest power of two that is not below a bound.

    So that whole numbers stay whole.
    """
    mantissa, exponent = math.frexp(bound)
    return math.ldexp(1.0, exponent - 1 if mantissa == 0.5 else exponent)
