"""An adversary who sees each release of Gaussian rounds before deciding whether there
is another one.

The loss of what was released so far is a random walk: with a signal of mu a round adds
N(mu^2/2, mu^2) under the data set that the row is in. What is claimed when the walk
ends is (epsilon charged by then, delta); the largest delta for which any way to stop
respects that is found by going backwards from the end, on a grid of losses.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.signal import fftconvolve

Array = NDArray[np.float64]
STEP, LEAST, MOST = 2.0**-10, -24.0, 24.0
LOSSES = np.arange(LEAST, MOST, STEP)


def _excess(losses: Array) -> Array:
    """What an outcome adds to delta, by how much its loss exceeds the epsilon that is
    claimed.
    """
    return np.maximum(0.0, -np.expm1(-losses))


def _released(values: Array, mu: float) -> Array:
    """Mean of a value after one more release.

    Beyond the grid it is that of the grid's ends.
    """
    width = math.ceil((10.0 * mu + mu**2) / STEP)
    steps = np.arange(-width, width + 1) * STEP
    weights = np.exp(-0.5 * ((steps - mu**2 / 2.0) / mu) ** 2)
    padded = np.pad(values, width, mode="edge")
    means: Array = fftconvolve(padded, weights[::-1] / weights.sum(), mode="valid")
    return np.maximum(means, 0.0)


def _charged(values: Array, epsilon: float) -> Array:
    """Value where a run ends and has been charged epsilon.

    On the private side between two points of the grid.
    """
    return np.interp(LOSSES - epsilon, LOSSES, values)


def true_delta(
    mus: Sequence[float], charges: Sequence[float], n_runs: int = 1
) -> float:
    """Delta against whoever may stop each of some runs after any release, and start the
    next one or not.

    Parameters
    ----------
    mus : sequence of float
        Signal of each release of a run.
    charges : sequence of float
        Epsilon that the ledger has charged for the run, by the time that it has
        released so much.
    n_runs : int
    """
    values = _excess(LOSSES)
    for _ in range(n_runs):
        ended = _charged(values, charges[-1])
        for mu, charge in zip(mus[:0:-1], charges[-2::-1], strict=True):
            ended = np.maximum(_charged(values, charge), _released(ended, mu))
        values = np.maximum(values, _released(ended, mus[0]))
    return float(np.interp(0.0, LOSSES, values))


# -- sequences of runs that are chosen as one goes on ----------------------------------


@dataclass(frozen=True)
class Gaussian:
    """A run of Gaussian noise, whatever rounds it has."""

    mu: float

    def before(self, values: Array) -> Array:
        """Mean of a value after it, by the loss before it."""
        return _released(values, self.mu)


@dataclass(frozen=True)
class Response:
    """Randomized response: the worst run that is so private with a delta of 0."""

    epsilon: float

    def before(self, values: Array) -> Array:
        yes = 1.0 / (1.0 + math.exp(-self.epsilon))
        told = np.interp(LOSSES + self.epsilon, LOSSES, values)
        denied = np.interp(LOSSES - self.epsilon, LOSSES, values)
        return yes * told + (1.0 - yes) * denied


@dataclass(frozen=True)
class Failure:
    """A run that tells everything, or nothing."""

    probability: float

    def before(self, values: Array) -> Array:
        return self.probability + (1.0 - self.probability) * values


Run = Gaussian | Response | Failure
Filter = Callable[[tuple[Run, ...], Run], bool]
"""Whether a run may follow on others."""


def composed_delta(runs: Sequence[Run], epsilon: float) -> float:
    """Delta, at an epsilon, of runs that were fixed before the first of them."""
    values = _excess(LOSSES - epsilon)
    for run in runs:
        values = run.before(values)
    return float(np.interp(0.0, LOSSES, values))


def adaptive_delta(menu: Sequence[Run], allows: Filter, epsilon: float) -> float:
    """Delta, at an epsilon, against whoever chooses each run by all losses before it.

    From a menu, among those that a filter allows, and ends when it pleases.
    """
    computed: dict[tuple[int, ...], Array] = {}

    def after(counts: tuple[int, ...]) -> Array:
        if counts in computed:
            return computed[counts]
        history: list[Run] = []
        for run, count in zip(menu, counts, strict=True):
            history += [run] * count
        values = _excess(LOSSES - epsilon)
        for index, run in enumerate(menu):
            if allows(tuple(history), run):
                more = (*counts[:index], counts[index] + 1, *counts[index + 1 :])
                values = np.maximum(values, run.before(after(more)))
        computed[counts] = values
        return values

    whole = after((0,) * len(menu))
    return float(np.interp(0.0, LOSSES, whole))
