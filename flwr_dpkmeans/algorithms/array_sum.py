"""Sums, or weighted means, of named arrays that clients' own apps answer.

Of gradients, counts, or a model's updates.

All begin with the same public arrays. In a round each client's app moves them. With
noise, what it adds is clipped as a whole; without, it is added as it is, unless a clip
is stated, and released counts say how many parts were not.
"""

from __future__ import annotations

import base64
import math
import numbers
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from flwr_dpkmeans.algorithms.budget.noise_budget import allocate
from flwr_dpkmeans.algorithms.budget.noise_kinds import ReleasePart
from flwr_dpkmeans.errors import (
    ConfigurationError,
    LocalMisuseError,
    ProtocolError,
    invalid,
)
from flwr_dpkmeans.kernels.grid import round_to_grid, toward_zero
from flwr_dpkmeans.kernels.vector_clipping import clip_vector
from flwr_dpkmeans.privacy.release import (
    Block,
    NoiseShape,
    Norm,
    PrivacyUnit,
    ReleasedSum,
    Sensitivity,
)
from flwr_dpkmeans.sums.option_rules import real, whole
from flwr_dpkmeans.sums.outcome import Result
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.public_facts import PublicFacts
from flwr_dpkmeans.sums.round import Algorithm, Array, PrivateSum, State
from flwr_dpkmeans.sums.settings import Settings
from flwr_dpkmeans.sums.task import Task

_REACH = 2.0**8
"""The clip norm in the ring, whose steps are 2^-16.

Values are rounded to 2^-24 of it, as in a float32.
"""
_MOVE = Sensitivity(
    Norm.L2,
    _REACH,
    PrivacyUnit.CLIENT,
    "S31: what one client adds is clipped to this norm",
)
_WEIGH = Sensitivity(
    Norm.L2,
    _REACH,
    PrivacyUnit.CLIENT,
    "S31: one client's weight is from 0 to 1",
    nonnegative=True,
)
DEFAULT_CLIP = 1.0
"""With noise, where no clip is stated."""
DTYPES = ("float32", "float64", "int64")
"""Types that arrays can come back as."""

_EXACT_BITS = 45
"""All parts of an exact sum, in all rounds, reach 2^45 at most.

a released sum, which may be 2^47, cannot wrap.
"""
_MOST_EXACT_BITS = 36
"""One part reaches 2^36 at most: 2^52 steps of the ring, of which float64 holds each.
"""
_EXACT_STEP = 2.0**-24
"""Of exact sums where nothing is stated: what a float32 tells apart near 1."""
_GRID_STEP = 2.0**-16
_MOST_MOVED = 2.0**46
"""No honest sum comes near it; beyond, a state's digest would overflow."""
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
_REAL_KINDS = "biuf"
"""Kinds of types, as NumPy names them, that an app may answer."""


@dataclass(frozen=True)
class _Scale:
    """How values stand in the ring: one of `unit` is `reach` there."""

    unit: float
    reach: float

    @property
    def step(self) -> float:
        """What two neighbouring values differ by."""
        return self.unit / self.reach * _GRID_STEP


@dataclass(frozen=True)
class _Part:
    """What one client adds in a round, as its app answered it."""

    moves: Array = field(repr=False)
    """(size,): all arrays, one after another, less what they were before."""
    weight: float
    """In a mean: its examples over the most; else 1."""

    @classmethod
    def of(cls, vector: Array) -> _Part:
        """Undo `ArraySumTask.contribution`."""
        moves, weight = np.split(vector, [-1])
        return cls(moves, float(weight[0]))

    @property
    def norm(self) -> float:
        """L2 norm of all arrays together."""
        largest = self.largest
        if not 0.0 < largest < math.inf:
            return largest
        return largest * float(np.linalg.norm(self.moves / largest))

    @property
    def largest(self) -> float:
        """Largest magnitude of an entry."""
        return float(np.abs(self.moves).max())


@dataclass(frozen=True, kw_only=True)
class ArraySumTask(Task):
    """Sums of arrays, each client's part clipped and hidden as a whole.

    See `flower.strategy.SecureSum`.
    """

    name = "array_sum"
    units = (PrivacyUnit.CLIENT,)
    trust = "distributed"
    door = "SecureSum"
    arrays: tuple[tuple[str, tuple[int, ...]], ...] = ()
    """Names and shapes."""
    dtypes: tuple[str, ...] = ()
    """Types that they come back as, of `DTYPES`; empty: float64."""
    start: str = ""
    """Base64 of their first values, little-endian doubles one after another.

    Empty: zeros.
    """
    clip: float | None = real(
        None,
        2.0**-100,
        2.0**100,
        "1.0",
        "L2 norm at which all that one client adds is cut off; automatic: 1.0 with"
        " noise, without noise none",
    )
    largest: float | None = real(
        None,
        2.0**-100,
        2.0**100,
        "1e6",
        "without noise and clip: largest magnitude of an entry that one client may add;"
        " automatic: so that values are rounded to 2^-24, at most 2^28",
    )
    most_examples: int = whole(
        0,
        0,
        1000,
        "examples that give a client its full weight in a mean; 0: sums",
    )
    max_iter: int | None = whole(
        None,
        1,
        1,
        "rounds; automatic: one",
        most=1000,
    )

    @property
    def max_rounds(self) -> int:
        """One unless an option says more."""
        return self.max_iter or 1

    @property
    def sizes(self) -> list[int]:
        """Numbers in each array."""
        return [math.prod(shape) for _, shape in self.arrays]

    @property
    def size(self) -> int:
        """Numbers in all arrays together."""
        return sum(self.sizes)

    @property
    def _types(self) -> tuple[str, ...]:
        """The type that each array comes back as."""
        return self.dtypes or ("float64",) * len(self.arrays)

    @property
    def norm_bound(self) -> float | None:
        """The clip that is in force; None: nothing is cut."""
        return DEFAULT_CLIP if self.clip is None else self.clip

    def check(self, settings: Settings) -> None:
        start = base64.b64decode(self.start)
        n_values = len(start) // 8
        if len(dict(self.arrays)) < len(self.arrays) or self.size < 1:
            raise ConfigurationError(
                f"arrays are {self.arrays!r}, but their names must differ, and one of"
                " them must have a value: give such arrays."
            )
        if start and len(start) != 8 * self.size:
            raise ConfigurationError(
                f"arrays are {self.arrays!r} with {n_values} values, but they have"
                f" {self.size}: give so many."
            )
        if not np.isfinite(np.frombuffer(start, "<f8")).all():
            raise ConfigurationError(
                "arrays begin with NaN or infinity, which no sum moves: give finite"
                " values."
            )
        if self.dtypes and (
            len(self.dtypes) != len(self.arrays) or not {*self.dtypes} <= {*DTYPES}
        ):
            raise ConfigurationError(
                f"dtypes are {self.dtypes!r}, but each array needs one of"
                f" {', '.join(DTYPES)}: correct them."
            )
        self.check_bounds()

    def check_bounds(self) -> None:
        """Refuse bounds on one client's part that do not go together."""
        if self.largest is not None:
            raise ConfigurationError(
                f"largest is {self.largest:g}, but with epsilon the norm 'clip' bounds"
                " what a client adds: leave largest out, or leave epsilon out for an"
                " exact sum."
            )

    # -- the rounds --------------------------------------------------------------------

    def scale(self, n_clients: int) -> _Scale:
        """How values stand in the ring, in a plan for so many clients."""
        return _Scale(self.norm_bound or DEFAULT_CLIP, _REACH)

    def build(self, public: PublicFacts) -> Algorithm:
        rounds = self.planned(public)
        steps = [
            self._step(i, blocks, public.n_clients)
            for i, blocks in enumerate(rounds, 1)
        ]
        return Algorithm(self.name, tuple(steps), lambda *_: self.beginning())

    def planned(self, public: PublicFacts) -> Sequence[tuple[Block, ...]]:
        """What each round releases."""
        parts = [
            ReleasePart(
                "updates",
                (self.size,),
                _MOVE,
                1.0,
                _REACH,
            )
        ]
        if self.most_examples:
            # The error of weights is divided by far more than it moves a mean.
            parts.append(
                ReleasePart(
                    "weights",
                    (1,),
                    _WEIGH,
                    0.125,
                    _REACH,
                )
            )
        return allocate(public, [parts] * self.max_rounds)

    def beginning(self) -> State:
        """The state before the first round."""
        return State({"moved": np.zeros(self.size)})

    def _step(
        self,
        index: int,
        blocks: tuple[Block, ...],
        n_clients: int,
    ) -> PrivateSum:
        scale = self.scale(n_clients)

        def statistic(points: Array, state: State) -> Sequence[Array]:
            if points.ndim != 1:
                # A table: whether it fits would tell the server how many rows there
                # are.
                raise ProtocolError(
                    "the plan sums an app's arrays, but this client has a table: send"
                    " it elsewhere."
                )
            return self.released_part(_Part.of(points), scale)[: len(blocks)]

        def advance(state: State, released: ReleasedSum) -> State:
            return self.moved(state, released, scale)

        return PrivateSum(
            f"arrays-{index}",
            blocks,
            statistic,
            advance,
        )

    def released_part(
        self,
        part: _Part,
        scale: _Scale,
    ) -> list[Array]:
        """One client's arrays in the ring, and its weight, each within the bound that
        its block states.
        """
        # What is not finite cannot be clipped, and a refusal would tell the server of
        # it.
        if self.why_left_out(part, scale):
            return [np.zeros(self.size), np.zeros(1)]
        weight = min(part.weight, 1.0)
        shrunk = part.moves / max(scale.unit, part.largest) * _REACH
        clipped = clip_vector(shrunk, _REACH)
        return [toward_zero(clipped * weight), toward_zero([weight * _REACH])]

    def moved(
        self,
        state: State,
        released: ReleasedSum,
        scale: _Scale,
    ) -> State:
        """The arrays after a release: a sum, or a mean, was added to them."""
        weight = 1.0
        if self.most_examples:
            # Noise may leave less than one client's weight, or none.
            weight = max(released["weights"][0] / scale.reach, self.least_weight(scale))
        added = state["moved"] + round_to_grid(released["updates"] / weight)
        return state.changed(moved=np.clip(added, -_MOST_MOVED, _MOST_MOVED))

    def least_weight(self, scale: _Scale) -> float:
        """What a mean is divided by at least: one client's full weight."""
        return 1.0

    # -- one client's part -------------------------------------------------------------

    def contribution(
        self,
        before: Mapping[str, Any],
        answer: Mapping[str, Any],
        n_examples: Any,
    ) -> Array:
        """What a client adds, and behind it its weight, from its app's answer.

        Other arrays are refused.
        """
        if {name: array.shape for name, array in answer.items()} != dict(self.arrays):
            raise LocalMisuseError(
                f"the app must answer the arrays {self.arrays!r}: correct names and"
                " shapes."
            )
        self._require_real(answer)
        with np.errstate(over="ignore", invalid="ignore"):
            # What is not finite is left out, and said.
            moves = [
                np.ravel(_as_double(answer[name]) - _as_double(before[name]))
                for name in before
            ]
        return np.concatenate([*moves, [self._weight(n_examples)]])

    def _require_real(self, answer: Mapping[str, Any]) -> None:
        """Refuse arrays of a type that has no real numbers."""
        for name, array in answer.items():
            dtype = np.asarray(array).dtype
            if dtype.kind not in _REAL_KINDS:
                raise LocalMisuseError(
                    f"the app answers {dtype} for array {name!r}: answer real numbers."
                )

    def _weight(self, n_examples: Any) -> float:
        if not self.most_examples:
            return 1.0
        if n_examples is None:
            raise LocalMisuseError(
                "the app's metrics have no 'num-examples', the weight in a mean:"
                " answer it."
            )
        if not isinstance(n_examples, numbers.Real):
            raise invalid(
                "num-examples",
                n_examples,
                "a number",
                "answer how many examples there are",
            )
        return float(n_examples) / self.most_examples

    def why_left_out(
        self,
        part: _Part,
        scale: _Scale,
    ) -> str:
        """Why a client's part cannot be added, for its owner; "" where it can."""
        n_strange = int(np.count_nonzero(~np.isfinite(part.moves)))
        if n_strange:
            return f"{n_strange} of its {part.moves.size} values are NaN or infinite"
        if not 0.0 <= part.weight < math.inf:
            n_examples = part.weight * self.most_examples
            return (
                f"num-examples is {n_examples:g}, which is no finite number of at"
                " least 0"
            )
        return ""

    def remarks(
        self,
        vector: Array,
        n_clients: int,
    ) -> tuple[str, ...]:
        """What the owner of a contribution is told of what becomes of it.

        Exact numbers, for nobody else.
        """
        part, scale = _Part.of(vector), self.scale(n_clients)
        reason = self.why_left_out(part, scale)
        if reason:
            return (
                (
                    f"this client's part is left out of the sum, as {reason}: see to"
                    " the app."
                ),
            )
        return *self._clip_remarks(part), *self._weight_remarks(part)

    def _clip_remarks(self, part: _Part) -> tuple[str, ...]:
        bound = self.norm_bound
        if bound is None or part.norm <= bound:
            return ()
        return (
            (
                f"this client's part has L2 norm {part.norm:.6g}, but the plan clips at"
                f" {bound:g}: it was scaled down to {bound / part.norm:.3g} of itself."
            ),
        )

    def _weight_remarks(self, part: _Part) -> tuple[str, ...]:
        if part.weight <= 1.0:
            return ()
        return (
            (
                f"this client has {part.weight * self.most_examples:g} examples, but"
                f" the plan weighs at most {self.most_examples}: it counts as one that"
                " has so many."
            ),
        )

    # -- the result --------------------------------------------------------------------

    def named(
        self,
        state: State,
        n_clients: int,
    ) -> dict[str, Any]:
        """The arrays, moved by the released sums so far, each of its type."""
        scale = self.scale(n_clients)
        start = (
            np.frombuffer(base64.b64decode(self.start), "<f8") if self.start else 0.0
        )
        values = start + state["moved"] * (scale.unit / scale.reach)
        parts = np.split(values, np.cumsum(self.sizes)[:-1])
        return {
            name: _typed(part.reshape(shape), dtype)
            for (name, shape), part, dtype in zip(
                self.arrays,
                parts,
                self._types,
                strict=True,
            )
        }

    def result(
        self,
        plan: Plan,
        state: State,
    ) -> Result:
        return Result(self.named(state, plan.n_clients))

    def cautions(self, plan: Plan) -> tuple[str, ...]:
        """With noise nobody may count what was clipped, so that it is said beforehand
        what may be.
        """
        stated = "" if self.clip is not None else ", the default, as no clip was stated"
        sentence = (
            f"Each client's part is scaled down to the L2 norm {self.norm_bound:g}"
            f" (clip{stated}) where it is longer, so that the result may be too small:"
            " each client's own log says whether its part was."
        )
        return sentence, self._caution_of_left_out(), *self._weight_cautions()

    def _caution_of_left_out(self) -> str:
        examples = ", or without a number of examples of at least 0,"
        return (
            f"A part that is not finite{examples if self.most_examples else ''} adds"
            " nothing: its client's own log says so."
        )

    def _weight_cautions(self) -> tuple[str, ...]:
        if not self.most_examples:
            return ()
        return (
            (
                f"A client with more than {self.most_examples} examples (most_examples)"
                " is weighed as one with so many: its own log says so."
            ),
        )


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
        if self.largest is not None and self.clip is not None:
            raise ConfigurationError(
                f"largest is {self.largest:g} and clip is {self.clip:g}, but one of"
                " them is the bound on what a client adds: leave largest out, or leave"
                " clip out for a sum without a cut."
            )

    def scale(self, n_clients: int) -> _Scale:
        """The bound, as a power of two, is as large in the ring as all clients' parts
        in all rounds allow.
        """
        n_parts = n_clients * self.max_rounds
        bits = min(_MOST_EXACT_BITS, _EXACT_BITS - (n_parts - 1).bit_length())
        reach = 2.0**bits
        bound = self.clip if self.largest is None else self.largest
        if bound is None:
            return _Scale(reach / _GRID_STEP * _EXACT_STEP, reach)
        return _Scale(_power_of_two_above(bound), reach)

    def planned(self, public: PublicFacts) -> Sequence[tuple[Block, ...]]:
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
            _WEIGH.because,
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
        """Refuse a bound with which sums of whole numbers would lose their last digit."""
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
        return super().beginning().changed(**{_CHANGED_PARTS: np.zeros(_N_COUNTS)})

    def released_part(
        self,
        part: _Part,
        scale: _Scale,
    ) -> list[Array]:
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
        part: _Part,
        scale: _Scale,
    ) -> Array:
        """A part as it stands in the ring, not yet rounded to its steps."""
        if self.clip is None:
            moves = self._unclipped(part, scale)
        else:
            moves = self._clipped(part, scale)
        return moves * min(part.weight, 1.0)

    def _lost_share(
        self,
        part: _Part,
        scale: _Scale,
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
        scale: _Scale,
    ) -> Array:
        """What is left of a part in the result: arrays of whole numbers have no other."""
        rounded = round_to_grid(exact)
        factor = scale.unit / scale.reach
        is_whole = np.repeat([dtype == "int64" for dtype in self._types], self.sizes)
        return np.where(is_whole, np.rint(rounded * factor) / factor, rounded)

    def _unclipped(
        self,
        part: _Part,
        scale: _Scale,
    ) -> Array:
        return part.moves * (scale.reach / scale.unit)

    def _clipped(
        self,
        part: _Part,
        scale: _Scale,
    ) -> Array:
        bound = self.clip or math.inf
        if part.norm <= bound:
            return self._unclipped(part, scale)
        shrunk = part.moves / part.largest * scale.reach
        return clip_vector(shrunk, bound * (scale.reach / scale.unit))

    def least_weight(self, scale: _Scale) -> float:
        """One step: without any weight nothing was added either."""
        return _GRID_STEP / scale.reach

    def moved(
        self,
        state: State,
        released: ReleasedSum,
        scale: _Scale,
    ) -> State:
        changed = state[_CHANGED_PARTS] + released[_CHANGED_PARTS]
        after = super().moved(state, released, scale)
        return after.changed(**{_CHANGED_PARTS: np.clip(changed, 0.0, _MOST_MOVED)})

    def why_left_out(
        self,
        part: _Part,
        scale: _Scale,
    ) -> str:
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
        part, scale = _Part.of(vector), self.scale(n_clients)
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

    def _steps(self, scale: _Scale) -> str:
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


def _power_of_two_above(bound: float) -> float:
    """The smallest power of two that is not below a bound, so that whole numbers stay
    whole.
    """
    mantissa, exponent = math.frexp(bound)
    return math.ldexp(1.0, exponent - 1 if mantissa == 0.5 else exponent)


def _as_double(array: Any) -> Array:
    return np.asarray(array).astype(np.float64, casting="same_kind")


def _typed(values: Array, dtype: str) -> Any:
    """Values as a type that an array comes back as.

    Whole numbers are rounded to the nearest.
    """
    rounded = np.rint(values) if dtype == "int64" else values
    return rounded.astype(dtype)
