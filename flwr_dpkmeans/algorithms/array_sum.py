"""Sums, or weighted means, of named arrays that clients' own apps answer: of gradients, counts, or a model's updates.

All begin with the same public arrays. In a round each client's app moves them, and what it adds is clipped as a whole.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from flwr_dpkmeans.algorithms.noise_budget import ReleasePart, allocate
from flwr_dpkmeans.errors import ConfigurationError, LocalMisuseError, ProtocolError
from flwr_dpkmeans.kmeans.lloyd import clip_vector, round_to_grid, toward_zero
from flwr_dpkmeans.privacy.release import Block, NoiseShape, Norm, PrivacyUnit, ReleasedSum, Sensitivity
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.round import Algorithm, Array, PrivateSum, State
from flwr_dpkmeans.sums.settings import Settings, real, whole
from flwr_dpkmeans.sums.task import Known, Result, Task

_REACH = 2.0**8
"""The clip norm in the ring, whose steps are 2^-16: values are rounded to 2^-24 of it, as in a float32."""
_MOVE = Sensitivity(Norm.L2, _REACH, PrivacyUnit.CLIENT, "S31: what one client adds is clipped to this norm")
_WEIGH = Sensitivity(Norm.L2, _REACH, PrivacyUnit.CLIENT, "S31: one client's weight is from 0 to 1", nonnegative=True)


@dataclass(frozen=True, kw_only=True)
class ArraySum(Task):
    """Sums of arrays, each client's part clipped and hidden as a whole; see `flower.strategy.SecureSum`."""

    name = "array_sum"
    units = (PrivacyUnit.CLIENT,)
    trust = "distributed"
    arrays: tuple[tuple[str, tuple[int, ...]], ...] = ()
    """Names and shapes."""
    start: str = ""
    """Base64 of their first values, little-endian doubles one after another; empty: zeros."""
    clip: float = real(1.0, 2.0**-100, 2.0**100, "1.0", "L2 norm at which all that one client adds is cut off")
    most_examples: int = whole(0, 0, 1000, "examples that give a client its full weight in a mean; 0: sums")
    max_iter: int | None = whole(None, 1, 1, "rounds; automatic: one", most=1000)

    @property
    def max_rounds(self) -> int:
        """One unless an option says more."""
        return self.max_iter or 1

    @property
    def size(self) -> int:
        """Numbers in all arrays together."""
        return sum([math.prod(shape) for _, shape in self.arrays])

    def check(self, settings: Settings) -> None:
        sizes = [math.prod(shape) for _, shape in self.arrays]
        n_bytes = len(start := base64.b64decode(self.start))
        if len(dict(self.arrays)) < len(sizes) or min(sizes, default=0) < 1 or n_bytes not in (0, 8 * sum(sizes)):
            raise ConfigurationError(
                f"arrays are {self.arrays!r} with {n_bytes // 8} values, but names must differ, and each array needs "
                "values: give such arrays."
            )
        if not np.isfinite(np.frombuffer(start, "<f8")).all():
            raise ConfigurationError("arrays begin with NaN or infinity, which no sum moves: give finite values.")

    def build(self, known: Known) -> Algorithm:
        parts = [ReleasePart("updates", (self.size,), _MOVE, 1.0, _REACH)]
        if self.most_examples:  # The error of weights is divided by far more than it moves a mean.
            parts.append(ReleasePart("weights", (1,), _WEIGH, 0.125, _REACH))
        exact = self.noise is NoiseShape.NONE
        blocks = [Block(one.name, one.shape, one.sensitivity, self.noise, 0.0, _REACH) for one in parts if exact]
        rounds = [tuple(blocks)] * self.max_rounds if exact else allocate(known, [parts] * self.max_rounds)

        def statistic(points: Array, state: State) -> Sequence[Array]:
            if points.ndim != 1:  # A table: whether it fits would tell the server how many rows there are.
                raise ProtocolError(f"the plan computes {self.name!r}, but this client has a table: send it elsewhere.")
            # What is not finite cannot be clipped, and a refusal would tell the server of it.
            update, weight = np.split(points if np.isfinite(points).all() else np.zeros_like(points), [-1])
            update = clip_vector(update / max(self.clip, np.abs(update).max()) * _REACH, _REACH)
            return [toward_zero(update * weight), toward_zero(weight * _REACH)][: len(parts)]

        def advance(state: State, released: ReleasedSum) -> State:
            weight = 1.0
            if self.most_examples:  # Noise may leave less than one client's weight, or none.
                weight = max(released["weights"][0] / _REACH, 2.0**-24 if exact else 1.0)
            return state.changed(moved=state["moved"] + round_to_grid(released["updates"] / weight))

        steps = [PrivateSum(f"arrays-{i}", own, statistic, advance) for i, own in enumerate(rounds, 1)]
        return Algorithm(self.name, tuple(steps), lambda *_: State({"moved": np.zeros(self.size)}))

    def named(self, state: State) -> dict[str, Array]:
        """The arrays, moved by the released sums so far."""
        start = np.frombuffer(base64.b64decode(self.start), "<f8") if self.start else 0.0
        ends = np.cumsum([math.prod(shape) for _, shape in self.arrays])[:-1]
        parts = np.split(start + state["moved"] * (self.clip / _REACH), ends)
        return {name: part.reshape(shape) for (name, shape), part in zip(self.arrays, parts, strict=True)}

    def contribution(self, state: State, answer: Mapping[str, Array], n_examples: Any) -> Array:
        """What a client adds, and behind it its weight, from its app's answer; other arrays are refused."""
        before = self.named(state)
        if {name: array.shape for name, array in answer.items()} != dict(self.arrays):
            raise LocalMisuseError(f"the app must answer the arrays {self.arrays!r}: correct names and shapes.")
        if self.most_examples and n_examples is None:
            raise LocalMisuseError("the app's metrics have no 'num-examples', the weight in a mean: answer it.")
        moves = [np.ravel(answer[name] - before[name]) for name in before]
        weight = min(max(float(n_examples) / self.most_examples, 0.0), 1.0) if self.most_examples else 1.0
        return np.concatenate([*moves, [weight]])

    def result(self, plan: Plan, state: State) -> Result:
        return Result(self.named(state))


@dataclass(frozen=True, kw_only=True)
class ExactArraySum(ArraySum):
    """The same without noise: not private."""

    name = "exact_array_sum"
    noise = NoiseShape.NONE
