"""Reconstruction: somebody who knows all rows but one estimates it from the released
sums.

Less the sums of the known rows, each release is what the unknown row added, plus noise.
The estimate is the posterior mean, which no other estimate beats in mean squared error
for a row drawn from the prior: over points spread evenly in the box (only bounds are
known), or over the other rows (the adversary also knows what rows look like). Beside
them stand the guesses without any release, by the same priors: the middle of the box,
and the mean of the other rows. Without noise a single round gives the row away, and it
is read off.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.kernels.grid import round_to_grid
from simulations.audit.attack_games import Game, Played, contribution, play

Array = NDArray[np.float64]

ESTIMATES = ("box guess", "rows guess", "box attack", "rows attack")
_POINTS = 300
_SEEDS = 9 * 10**8


@dataclass(frozen=True)
class Reconstruction:
    """Mean distances of estimates to the true row, in the box [-1, 1]^d, and half the
    width of 95% intervals.

    Parameters
    ----------
    errors, margins : mapping of str to float
        By names of `ESTIMATES`.
    gains, gain_margins : mapping of str to float
        By how much each attack is nearer than the guess with the same prior, run by
        run.
    """

    errors: Mapping[str, float]
    margins: Mapping[str, float]
    gains: Mapping[str, float]
    gain_margins: Mapping[str, float]


def reconstruct(game: Game, runs: int) -> Reconstruction:
    """Estimate a row of the pool in each of some runs.

    Parameters
    ----------
    game : Game
    runs : int
        At least 2.

    Returns
    -------
    Reconstruction
    """
    found = []
    for number in range(runs):
        generator = np.random.default_rng(number)
        place = int(generator.integers(len(game.pool.rows)))
        target = game.pool.rows[place]
        played = play(game, _SEEDS + number, target)
        estimates = _estimates(game, played, target, generator)
        found.append(
            [float(np.linalg.norm(estimates[name] - target)) for name in ESTIMATES]
        )
    errors = np.array(found)
    gains = errors[:, :2] - errors[:, 2:]
    return Reconstruction(
        *_summary(errors, ESTIMATES),
        *_summary(gains, tuple(name for name in ESTIMATES if name.endswith("attack"))),
    )


def posterior_mean(log_likelihoods: Array, candidates: Array) -> Array:
    """Mean of candidates, (n, d), weighted by their likelihoods.

    Examples
    --------
    >>> posterior_mean(np.log([1.0, 3.0]), np.array([[0.0], [1.0]])).tolist()
    [0.75]
    """
    weights = np.exp(log_likelihoods - log_likelihoods.max())
    return np.asarray(weights @ candidates / weights.sum())


def log_likelihoods(
    game: Game, played: Played, target: Array, candidates: Array
) -> Array:
    """How well each candidate explains what is left of the releases.

    The true row serves to find what is left.
    """
    found = np.zeros(len(candidates))
    for one in played.rounds:
        left = (
            one.released - (one.exact - contribution(game.plan, one, target))
        ) / one.scales
        for place, candidate in enumerate(candidates):
            own = contribution(game.plan, one, candidate) / one.scales
            found[place] += own @ (left - 0.5 * own)
    return found


def _estimates(
    game: Game, played: Played, target: Array, generator: np.random.Generator
) -> dict[str, Array]:
    """All four estimates of a row."""
    d = len(target)
    evenly = round_to_grid(generator.uniform(-1.0, 1.0, (_POINTS, d)))
    others = played.rows[:-1]
    estimates = {"box guess": np.zeros(d), "rows guess": others.mean(axis=0)}
    for name, candidates in (("box attack", evenly), ("rows attack", others)):
        if np.isinf(game.mu):
            estimates[name] = _read_off(game, played, target)
        else:
            estimates[name] = posterior_mean(
                log_likelihoods(game, played, target, candidates), candidates
            )
    return estimates


def _read_off(game: Game, played: Played, target: Array) -> Array:
    """Without noise, what is left of the absolute sums of any round, over all clusters,
    is the row.
    """
    one = played.rounds[0]
    left = one.released - (one.exact - contribution(game.plan, one, target))
    k, d = game.pool.n_clusters, len(target)
    return np.asarray(left[: k * d].reshape(k, d).sum(axis=0))


def _summary(
    values: Array, names: tuple[str, ...]
) -> tuple[dict[str, float], dict[str, float]]:
    """Means and half widths of their intervals, by name."""
    margins = 1.96 * values.std(axis=0, ddof=1) / np.sqrt(len(values))
    return (
        {
            name: float(value)
            for name, value in zip(names, values.mean(axis=0), strict=True)
        },
        {name: float(value) for name, value in zip(names, margins, strict=True)},
    )
