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
from dataclasses import dataclass
from typing import cast

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.algorithms.budget.noise_budget import allocate
from flwr_dpkmeans.algorithms.budget.noise_kinds import ReleasePart
from flwr_dpkmeans.algorithms.statistics.array_parts import (
    LEAST_HEIGHT,
    METRICS_SENSITIVITY,
    MOST_MOVED,
    REACH,
    WEIGHT_SENSITIVITY,
    ArrayPart,
    ArrayScale,
)
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

_MOVE = Sensitivity(
    Norm.L2,
    REACH,
    PrivacyUnit.CLIENT,
    "S31: what one client adds is clipped to this norm",
)
_METRICS = "metrics"
"""Array of a release and of a state."""
DEFAULT_CLIP = 1.0
"""With noise, where no clip is stated."""
DTYPES = ("float32", "float64", "int64")
"""Types that arrays can come back as."""
TypedArray = NDArray[np.generic]
"""An array of an app, of its own type."""
_REAL_KINDS = "biuf"
"""Kinds of types, as NumPy names them, that an app may answer."""


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
    metrics: tuple[tuple[str, float, float], ...] = ()
    """Names of metrics whose means are released, each with its least and most."""
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
        """Refuse names that are there twice, and a start that does not fit."""
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
        for name, low, high in self.metrics:
            half = high / 2.0 - low / 2.0
            if not LEAST_HEIGHT <= half < math.inf:
                raise ConfigurationError(
                    f"metric {name!r} has the bounds {low!r} and {high!r}, but both"
                    f" must be finite, the first {2 * LEAST_HEIGHT:.2g} below the"
                    " second: give such bounds."
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

    def scale(self, n_clients: int) -> ArrayScale:
        """How values stand in the ring, in a plan for so many clients."""
        return ArrayScale(self.norm_bound or DEFAULT_CLIP, REACH)

    def build(self, public: PublicFacts) -> Algorithm:
        """One private sum for each of the planned rounds."""
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
                REACH,
            )
        ]
        if self.most_examples:
            # The error of weights is divided by far more than it moves a mean.
            parts.append(
                ReleasePart(
                    "weights",
                    (1,),
                    WEIGHT_SENSITIVITY,
                    0.125,
                    REACH,
                )
            )
        if self.metrics:
            parts.append(
                ReleasePart(
                    _METRICS,
                    (len(self.metrics),),
                    METRICS_SENSITIVITY,
                    0.25,
                    REACH,
                )
            )
        return allocate(public, [parts] * self.max_rounds)

    def beginning(self) -> State:
        """The state before the first round."""
        arrays = {"moved": np.zeros(self.size)}
        if self.metrics:
            arrays[_METRICS] = np.zeros(len(self.metrics))
        return State(arrays)

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
            size = self.size + 1
            part = ArrayPart.of(points[:size])
            arrays = self.released_part(part, scale)
            if not self.metrics:
                return arrays[: len(blocks)]
            metrics = self._released_metrics(
                points[size:],
                part,
                scale,
            )
            return [*arrays[: len(blocks) - 1], metrics]

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
        part: ArrayPart,
        scale: ArrayScale,
    ) -> list[Array]:
        """One client's arrays in the ring, and its weight.

        Each within the bound that its block states.
        """
        # What is not finite cannot be clipped, and a refusal would tell the server of
        # it.
        if self.why_left_out(part, scale):
            return [np.zeros(self.size), np.zeros(1)]
        weight = min(part.weight, 1.0)
        shrunk = part.moves / max(scale.unit, part.largest) * REACH
        clipped = clip_vector(shrunk, REACH)
        return [toward_zero(clipped * weight), toward_zero([weight * REACH])]

    def _released_metrics(
        self,
        values: Array,
        part: ArrayPart,
        scale: ArrayScale,
    ) -> Array:
        """One client's metrics in the ring: 0 for the least, together at most `REACH`.

        What is not finite counts as the least.
        """
        if self.why_left_out(part, scale):
            return np.zeros(len(self.metrics))
        lows = np.array([low for _, low, _ in self.metrics])
        highs = np.array([high for _, _, high in self.metrics])
        finite = np.where(np.isfinite(values), values, lows)
        heights = np.clip(finite, lows, highs) / 2.0 - lows / 2.0
        shares = np.clip(heights / (highs / 2.0 - lows / 2.0), 0.0, 1.0)
        each = REACH / math.sqrt(len(self.metrics))
        return toward_zero(shares * (min(part.weight, 1.0) * each))

    def moved(
        self,
        state: State,
        released: ReleasedSum,
        scale: ArrayScale,
    ) -> State:
        """The arrays after a release: a sum, or a mean, was added to them."""
        weight = 1.0
        if self.most_examples:
            # Noise may leave less than one client's weight, or none.
            weight = max(released["weights"][0] / scale.reach, self.least_weight(scale))
        added = state["moved"] + round_to_grid(released["updates"] / weight)
        after = state.changed(moved=np.clip(added, -MOST_MOVED, MOST_MOVED))
        if not self.metrics:
            return after
        means = round_to_grid(released[_METRICS] / weight)
        return after.changed(metrics=np.clip(means, -MOST_MOVED, MOST_MOVED))

    def means_of_metrics(self, state: State, n_weights: int) -> dict[str, float]:
        """The last round's metrics, averaged over so many weights, within bounds."""
        factor = math.sqrt(len(self.metrics)) / (REACH * n_weights)
        means = {}
        values = state[_METRICS] * factor
        for (name, low, high), share in zip(
            self.metrics,
            np.clip(values, 0.0, 1.0).tolist(),
            strict=True,
        ):
            means[name] = (1.0 - share) * low + share * high
        return means

    def metric_values(self, stated: Mapping[str, object]) -> Array:
        """An app's metrics in the order of the plan; NaN where there is no number."""
        values = [stated.get(name, math.nan) for name, _, _ in self.metrics]
        numbers_only = [
            float(value) if isinstance(value, int | float) else math.nan
            for value in values
        ]
        return np.array(numbers_only)

    def least_weight(self, scale: ArrayScale) -> float:
        """What a mean is divided by at least: one client's full weight."""
        return 1.0

    # -- one client's part -------------------------------------------------------------

    def contribution(
        self,
        before: Mapping[str, TypedArray],
        answer: Mapping[str, TypedArray],
        n_examples: object,
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

    def _require_real(self, answer: Mapping[str, TypedArray]) -> None:
        """Refuse arrays of a type that has no real numbers."""
        for name, array in answer.items():
            dtype = np.asarray(array).dtype
            if dtype.kind not in _REAL_KINDS:
                raise LocalMisuseError(
                    f"the app answers {dtype} for array {name!r}: answer real numbers."
                )

    def _weight(self, n_examples: object) -> float:
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
        part: ArrayPart,
        scale: ArrayScale,
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
        part, scale = ArrayPart.of(vector), self.scale(n_clients)
        reason = self.why_left_out(part, scale)
        if reason:
            return (
                (
                    f"this client's part is left out of the sum, as {reason}: see to"
                    " the app."
                ),
            )
        return *self._clip_remarks(part), *self._weight_remarks(part)

    def _clip_remarks(self, part: ArrayPart) -> tuple[str, ...]:
        bound = self.norm_bound
        if bound is None or part.norm <= bound:
            return ()
        return (
            (
                f"this client's part has L2 norm {part.norm:.6g}, but the plan clips at"
                f" {bound:g}: it was scaled down to {bound / part.norm:.3g} of itself."
            ),
        )

    def _weight_remarks(self, part: ArrayPart) -> tuple[str, ...]:
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
    ) -> dict[str, TypedArray]:
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
        """The arrays by name."""
        arrays = self.named(state, plan.n_clients)
        return Result(cast("Mapping[str, Array]", arrays))

    def cautions(self, plan: Plan) -> tuple[str, ...]:
        """With noise nobody may count what was clipped.

        So that it is said beforehand what may be.
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


def _as_double(array: object) -> Array:
    return np.asarray(array).astype(np.float64, casting="same_kind")


def _typed(values: Array, dtype: str) -> TypedArray:
    """Values as a type that an array comes back as.

    Whole numbers are rounded to the nearest.
    """
    rounded = np.rint(values) if dtype == "int64" else values
    return rounded.astype(dtype)
