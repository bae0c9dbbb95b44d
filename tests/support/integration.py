"""Small cases by the definition: integrals of continuous noise, sums over every outcome
of discrete noise.

The divergence at epsilon of two distributions is ``integral (p - exp(epsilon) q)_+``;
delta is the largest one over all neighbours, in both directions. Nothing here knows a
theorem about privacy, composition or discretisation.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

Array = NDArray[np.float64]
NODES, WEIGHTS = np.polynomial.legendre.leggauss(40)
REACH = 12.0
"""Standard deviations to either side, beyond which there is less than 1e-32."""


def divergence(p: Array, q: Array, epsilon: float) -> float:
    """Of two tables of probabilities of the same outcomes."""
    return float(np.maximum(p - math.exp(epsilon) * q, 0.0).sum())


# -- continuous noise ------------------------------------------------------------------


def pieces(low: float, high: float, n_pieces: int) -> tuple[Array, Array]:
    """Points and weights of an integral, by Gauss's rule on equal pieces."""
    edges = np.linspace(low, high, n_pieces + 1)
    half, middle = 0.5 * np.diff(edges), 0.5 * (edges[1:] + edges[:-1])
    return (middle[:, None] + half[:, None] * NODES).ravel(), (
        half[:, None] * WEIGHTS
    ).ravel()


def normal(x: Array, at: float = 0.0) -> Array:
    """Density of N(at, 1)."""
    return np.asarray(np.exp(-0.5 * (x - at) ** 2) / math.sqrt(2.0 * math.pi))


def integrated_gaussian_delta(epsilon: float, mu: float) -> float:
    """One Gaussian release: the integral from where the densities' ratio is
    exp(epsilon).
    """
    crossing = epsilon / mu + 0.5 * mu
    x, weights = pieces(crossing, max(crossing, mu) + REACH, 60)
    return float(weights @ (normal(x, mu) - math.exp(epsilon) * normal(x)))


def laplace_losses(epsilon: float) -> tuple[Array, Array]:
    """Losses and weights of continuous Laplace noise of pure epsilon.

    Two atoms, and a density between.
    """
    x, weights = pieces(0.0, 1.0, 2)
    losses = np.concatenate([[epsilon, -epsilon], epsilon * (1.0 - 2.0 * x)])
    masses = np.concatenate(
        [
            [0.5, 0.5 * math.exp(-epsilon)],
            weights * 0.5 * epsilon * np.exp(-epsilon * x),
        ]
    )
    return losses, masses


def discrete_laplace_losses(scale: float, shift: Sequence[int]) -> tuple[Array, Array]:
    """Losses and probabilities of discrete Laplace noise on entries of which each is
    moved by so many grid steps.
    """
    losses, masses = np.zeros(1), np.ones(1)
    for steps in shift:
        if steps == 0:
            continue
        k = np.arange(-math.ceil(60 * scale), math.ceil(60 * scale) + abs(steps) + 1)
        p = np.exp(-np.abs(k) / scale) * math.tanh(0.5 / scale)
        more = (np.abs(k - steps) - np.abs(k)) / scale
        # Only between the two centres is the loss anything else than one of two values.
        values, places = np.unique(
            np.round(more * scale).astype(np.int64), return_inverse=True
        )
        collected = np.bincount(places, p)
        losses = np.add.outer(losses, values / scale).ravel()
        masses = np.multiply.outer(masses, collected).ravel()
    return losses, masses


def beside_gaussian(
    epsilon: float, mu: float, parts: Sequence[tuple[Array, Array]]
) -> float:
    """A Gaussian release (mu of 0: none) beside others whose losses are given.

    The Gaussian is integrated last.
    """
    losses, masses = np.zeros(1), np.ones(1)
    for more, weights in parts:
        losses = np.add.outer(losses, more).ravel()
        masses = np.multiply.outer(masses, weights).ravel()
    left = epsilon - losses
    if mu == 0.0:
        return float(masses @ np.maximum(-np.expm1(left), 0.0))
    crossing = left / mu + 0.5 * mu
    return float(masses @ (ndtr(mu - crossing) - np.exp(left) * ndtr(-crossing)))


def plane_delta(epsilon: float, mu: float, laplace: float) -> float:
    """A Gaussian and a Laplace release by nothing but their joint densities on the
    plane.
    """
    x, wx = pieces(-REACH, mu + REACH, 40)
    # In units of the Laplace sensitivity; its density has kinks at 0 and 1.
    y, wy = (
        np.concatenate(parts)
        for parts in zip(
            *(
                pieces(a, b, n)
                for a, b, n in (
                    (-40 / laplace, 0, 40),
                    (0, 1, 8),
                    (1, 1 + 40 / laplace, 40),
                )
            ),
            strict=True,
        )
    )
    present = np.multiply.outer(normal(x, mu), np.exp(-laplace * np.abs(y)))
    absent = np.multiply.outer(normal(x), np.exp(-laplace * np.abs(y - 1)))
    parts = np.maximum(present - math.exp(epsilon) * absent, 0.0) * 0.5 * laplace
    return float(wx @ parts @ wy)


# -- Poisson samples -------------------------------------------------------------------


def sampled_delta(epsilon: Array, mu: float, rate: float, *, removing: bool) -> Array:
    """One release over a sample: where the ratio of the densities crosses exp(epsilon),
    at any real epsilons.
    """
    grown = (np.expm1(epsilon if removing else -epsilon)) / rate + 1.0
    with np.errstate(divide="ignore", invalid="ignore"):
        crossing = (np.log(np.maximum(grown, 0.0)) + 0.5 * mu * mu) / mu
    factor = np.exp(epsilon)
    if removing:
        mixed = (1.0 - rate) * ndtr(-crossing) + rate * ndtr(mu - crossing)
        return np.asarray(mixed - factor * ndtr(-crossing))
    mixed = (1.0 - rate) * ndtr(crossing) + rate * ndtr(crossing - mu)
    return np.asarray(ndtr(crossing) - factor * mixed)


def sampled_losses(
    mu: float, rate: float, *, removing: bool, n_pieces: int
) -> tuple[Array, Array]:
    """Losses of one release over a sample, and weights of an integral over them."""
    x, weights = pieces(-9.0, mu + 9.0, n_pieces)
    ratio = np.logaddexp(math.log1p(-rate), math.log(rate) + mu * x - 0.5 * mu * mu)
    if removing:
        return ratio, weights * ((1.0 - rate) * normal(x) + rate * normal(x, mu))
    return -ratio, weights * normal(x)


def sampled_deltas(epsilon: float, releases: Sequence[tuple[float, float]]) -> float:
    """Up to three releases (mu, rate) over samples of their own.

    Nested integrals, the larger of both directions.

    Where a rate is small, the inner integral bends sharply at a loss of log(1 - rate):
    1e-7 is right for two releases, 1e-4 for three, whose points would be too many
    otherwise.
    """
    found = []
    n_pieces = 400 if len(releases) < 3 else 36
    for removing in (False, True):
        losses, masses = np.zeros(1), np.ones(1)
        for mu, rate in releases[:-1]:
            more, weights = sampled_losses(
                mu, rate, removing=removing, n_pieces=n_pieces
            )
            losses = np.add.outer(losses, more).ravel()
            masses = np.multiply.outer(masses, weights).ravel()
        found.append(
            float(
                masses
                @ sampled_delta(epsilon - losses, *releases[-1], removing=removing)
            )
        )
    return max(found)


# -- discrete Gaussian noise -----------------------------------------------------------


@lru_cache(maxsize=64)
def discrete_gaussian(std: float, reach: int) -> Array:
    """Probabilities on [-reach, reach]."""
    k = np.arange(-reach, reach + 1)
    weights = np.exp(-0.5 * (k / std) ** 2)
    table: Array = weights / weights.sum()
    table.flags.writeable = False
    return table


def shared_gaussian(std: float, shares: int) -> Array:
    """Probabilities of the sum of so many discrete Gaussians, each of variance
    parameter ``std^2 / shares``.
    """
    share = std / math.sqrt(shares)
    one = discrete_gaussian(share, math.ceil(11 * share))
    total = one
    for _ in range(shares - 1):
        total = np.convolve(total, one)
    return total


def shifts(n_entries: int, sensitivity: float, order: int) -> Iterator[tuple[int, ...]]:
    """Whole vectors whose norm is at most the sensitivity, up to signs and order, none
    of which dominates another.
    """
    most = math.floor(sensitivity + 1e-9)
    kept = [
        vector
        for vector in itertools.combinations_with_replacement(
            range(most, -1, -1), n_entries
        )
        if 0 < sum(v**order for v in vector) <= sensitivity**order + 1e-9
    ]
    for vector in kept:
        if not any(
            other != vector and all(a >= b for a, b in zip(other, vector, strict=True))
            for other in kept
        ):
            yield vector


def discrete_gaussian_delta(
    epsilon: float, table: Array, shift: Sequence[int]
) -> float:
    """Independent noise of these probabilities on each entry, moved by a whole vector.

    The sum over every outcome.
    """
    present, absent = np.ones(1), np.ones(1)
    for steps in shift:
        if steps == 0:
            continue
        room = np.zeros(abs(steps))
        present = np.multiply.outer(present, np.concatenate([table, room])).ravel()
        absent = np.multiply.outer(absent, np.concatenate([room, table])).ravel()
        # Outcomes that hardly occur are left out.
        seen = present > 1e-22
        present, absent = present[seen], absent[seen]
    return divergence(present, absent, epsilon)
