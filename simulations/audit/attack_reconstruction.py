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
from simulations.audit.attack_games import (
    Game,
    Played,
    Round,
    contribution,
    play,
)

Array = NDArray[np.float64]

ESTIMATES = ("box guess", "rows guess", "box attack", "rows attack")
_POINTS = 300
_SEEDS = 9 * 10**8


@dataclass(frozen=True)
class Reconstruction:
    """Mean distances of estimates to the true row, in the box [-1, 1]^d.

    Margins are half the width of 95% intervals.

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
    distances = []
    for number in range(runs):
        generator = np.random.default_rng(number)
        index = int(generator.integers(len(game.pool.rows)))
        target = game.pool.rows[index]
        played = play(game, _SEEDS + number, target)
        estimates = _estimates(game, played, target, generator)
        distances.append(
            [float(np.linalg.norm(estimates[name] - target)) for name in ESTIMATES]
        )
    errors = np.array(distances)
    by_guess = errors[:, :2]
    by_attack = errors[:, 2:]
    return Reconstruction(
        *_summary(errors, ESTIMATES), *_summary(by_guess - by_attack, ESTIMATES[2:])
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
    game: Game,
    played: Played,
    target: Array,
    candidates: Array,
) -> Array:
    """How well each candidate explains what is left of the releases.

    The true row serves to find what is left.
    """
    likelihoods = np.zeros(len(candidates))
    for release in played.rounds:
        remainder = _remainder(game, release, target) / release.scales
        for index, candidate in enumerate(candidates):
            added = contribution(game.plan, release, candidate) / release.scales
            likelihoods[index] += added @ (remainder - 0.5 * added)
    return likelihoods


def _remainder(
    game: Game,
    release: Round,
    target: Array,
) -> Array:
    """What a release leaves of the target: its sum less that of all other rows."""
    others = release.exact - contribution(game.plan, release, target)
    return release.released - others


def _estimates(
    game: Game,
    played: Played,
    target: Array,
    generator: np.random.Generator,
) -> dict[str, Array]:
    """All four estimates of a row."""
    n_columns = len(target)
    evenly = round_to_grid(generator.uniform(-1.0, 1.0, (_POINTS, n_columns)))
    others = played.rows[:-1]
    estimates = {"box guess": np.zeros(n_columns), "rows guess": others.mean(axis=0)}
    for name, candidates in (("box attack", evenly), ("rows attack", others)):
        if np.isinf(game.mu):
            estimates[name] = _read_off(game, played, target)
            continue
        likelihoods = log_likelihoods(game, played, target, candidates)
        estimates[name] = posterior_mean(likelihoods, candidates)
    return estimates


def _read_off(
    game: Game,
    played: Played,
    target: Array,
) -> Array:
    """Read the row off the first round's absolute sums, which have no noise.

    What is left of them, over all clusters, is the row.
    """
    remainder = _remainder(game, played.rounds[0], target)
    n_clusters = game.pool.n_clusters
    n_columns = len(target)
    sums = remainder[: n_clusters * n_columns].reshape(n_clusters, n_columns)
    return np.asarray(sums.sum(axis=0))


def _summary(
    values: Array, names: tuple[str, ...]
) -> tuple[dict[str, float], dict[str, float]]:
    """Means and half widths of their intervals, by name."""
    means = values.mean(axis=0).tolist()
    margins = 1.96 * values.std(axis=0, ddof=1) / np.sqrt(len(values))
    mean_by_name = dict(zip(names, means, strict=True))
    margin_by_name = dict(zip(names, margins.tolist(), strict=True))
    return mean_by_name, margin_by_name
