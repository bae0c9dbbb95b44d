"""Rows read off the trajectory of centroids.

``python -m simulations.audit.trajectory [--runs N] [--output FOLDER]``.

Sums without noise add up the same rows again and again, and between two rounds only few
rows move. So differences of rounds are single rows [1]_. Two adversaries see nothing
but what is released:

* ``told`` knows in which cluster each row lay in each round, but no row: it solves the
  linear system, in which a row is determined if no other moved exactly as it did (up to
  sums of others);
* ``finds`` knows nothing: it takes the change of a cluster that won or lost one row for
  that row if it lies where such a row must lie, and takes it off the other cluster's
  change, until everything is explained.

They are played on Lloyd's method without noise, on centroids that each client sends in
the clear with its counts, as federated k-means without secure aggregation does, and on
the private methods, with their noise and without it, which shows that the noise is what
stops them. A row counts as rebuilt if it is right in all digits of the grid.

.. [1] G. Yang, L. Luo, Q. Li, "Breaking privacy in federated clustering: perfect input
reconstruction via temporal
   correlations", 2025, arXiv 2511.07073.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.errors import ConfigurationError, DPKMeansError
from flwr_dpkmeans.kernels.assignment import nearest_centroids
from flwr_dpkmeans.kernels.grid import round_to_grid
from flwr_dpkmeans.results.writer import write_whole
from simulations.audit.attack_games import (
    ALGORITHMS,
    Game,
    Played,
    Round,
    load_pool,
    make_game,
    play,
)
from simulations.audit.attacks import encode_csv
from simulations.job import log_quietly

Array = NDArray[np.float64]

CLEAR = "centroids in the clear"
_RELATIVE: Mapping[str, bool] = MappingProxyType(
    {"sums": False, "clipped_sums": False, "relative_sums": True, "residual_sums": True}
)
"""Arrays of sums by cluster, and whether they are relative to the round's centroids."""
_STEP = 2.0**-16
_CLIENTS, _ROUNDS = 10, 7
"""Of those that send their centroids in the clear."""
_SEEDS = 8 * 10**8
_SURE = 1e-6
_EPSILON = 8.0
CSV_FILE, PICTURE_FILE = "trajectory.csv", "trajectory.png"


@dataclass(frozen=True)
class View:
    """What is released of one set of rows, round by round.

    Parameters
    ----------
    centroids : ndarray, (T, k, d)
        What rows were assigned by.
    sums, counts : ndarray, (T, k, d), (T, k)
        Of each cluster, as released.
    rows : ndarray, (n, d)
        What was summed; the adversaries do not see them.
    """

    centroids: Array = field(repr=False)
    sums: Array = field(repr=False)
    counts: Array = field(repr=False)
    rows: Array = field(repr=False)


@dataclass(frozen=True)
class Rebuilt:
    """Rows that an adversary names: all of them, and which of the true rows are among
    them, digit by digit.

    Parameters
    ----------
    named : ndarray, (m, d)
    right : ndarray of bool, (n,)
    """

    named: Array = field(repr=False)
    right: NDArray[np.bool_] = field(repr=False)


def told(view: View) -> Rebuilt:
    """Solve for the rows, knowing where each lay in each round.

    Rows with one history are one unknown, their sum; an unknown of one row is
    determined if the system's resolution is 1 there.

    Examples
    --------
    >>> rows = np.array([[-0.75], [-0.5], [-0.25], [0.5], [0.75]])
    >>> view = in_the_clear(rows, np.array([[-0.75], [0.0]]), 3)
    >>> told(view).named.ravel().tolist()
    [-0.25]
    """
    histories = np.array(
        [nearest_centroids(view.rows, centroids)[0] for centroids in view.centroids]
    )
    kinds, members = np.unique(histories, axis=1, return_counts=True)
    k = view.sums.shape[1]
    system = (
        (kinds[:, None, :] == np.arange(k)[None, :, None])
        .reshape(-1, kinds.shape[1])
        .astype(np.float64)
    )
    inverse = np.linalg.pinv(system)
    determined = (members == 1) & (np.abs(np.diag(inverse @ system) - 1.0) < _SURE)
    solved = inverse @ view.sums.reshape(len(system), -1)
    return _judged(view, round_to_grid(np.clip(solved[determined], -1.0, 1.0)))


def finds(view: View) -> Rebuilt:
    """Name rows by their moves alone.

    Examples
    --------
    >>> rows = np.array([[-0.75], [-0.5], [-0.25], [0.5], [0.75]])
    >>> finds(in_the_clear(rows, np.array([[-0.75], [0.0]]), 3)).named.ravel().tolist()
    [-0.25]
    """
    named: list[Array] = []
    for before, after in pairwise(range(len(view.sums))):
        change = view.sums[after] - view.sums[before]
        won = np.rint(view.counts[after] - view.counts[before])
        named += _explained(change, won, view.centroids[before], view.centroids[after])
    alone = view.sums[np.rint(view.counts) == 1.0]
    found = np.array([*named, *alone]).reshape(-1, view.rows.shape[1])
    on_grid = (
        np.abs(found - np.rint(found / _STEP) * _STEP).max(axis=1, initial=0.0)
        < _SURE * _STEP
    )
    return _judged(
        view,
        round_to_grid(
            np.clip(found[on_grid & (np.abs(found) <= 1.0).all(axis=1)], -1.0, 1.0)
        ),
    )


def in_the_clear(rows: Array, start: Array, n_rounds: int) -> View:
    """Lloyd's method of one client that sends its means and counts.

    Means times counts are the sums.
    """
    centroids, seen = start, []
    for _ in range(n_rounds):
        labels, _ = nearest_centroids(rows, centroids)
        counts = np.bincount(labels, minlength=len(start)).astype(np.float64)
        sums = np.stack(
            [rows[labels == cluster].sum(axis=0) for cluster in range(len(start))]
        )
        means = np.where(
            counts[:, None] > 0, sums / np.maximum(counts, 1.0)[:, None], centroids
        )
        seen.append((centroids, means * counts[:, None], counts))
        centroids = round_to_grid(means)
    before, sums, counts = (np.array(one) for one in zip(*seen, strict=True))
    return View(before, sums, counts, rows)


def view_of(game: Game, played: Played, *, noisy: bool) -> View:
    """Sums and counts by cluster of a run's rounds, as clients read them, or without
    their noise.
    """
    parts = [
        _sums_of(game, one, one.released if noisy else one.exact)
        for one in played.rounds
    ]
    seen = [part for part in parts if part is not None]
    centroids, sums, counts = (np.array(one) for one in zip(*seen, strict=True))
    return View(centroids, sums, counts, played.rows)


def _sums_of(
    game: Game, one: Round, values: Array
) -> tuple[Array, Array, Array] | None:
    """Centroids, absolute sums and counts of a round.

    None for one that sums nothing by cluster.
    """
    arrays, place = {}, 0
    for block in game.plan.round_at(one.index).blocks:
        arrays[block.name] = values[place : place + block.size]
        place += block.size
    centroids = one.state.centroids
    for name in set(arrays) & set(_RELATIVE):
        counts = arrays["counts"]
        sums = arrays[name].reshape(centroids.shape)
        return (
            centroids,
            sums + counts[:, None] * centroids if _RELATIVE[name] else sums,
            counts,
        )
    return None


def _explained(change: Array, won: Array, before: Array, after: Array) -> list[Array]:
    """Rows that moved, if a move at a time explains a step.

    Those that were found until it got stuck else.
    """
    change, won, found = change.copy(), won.copy(), list[Array]()
    while len(found) < len(won) ** 2:
        for row, source, target in _moves(change, won, before, after):
            found.append(row)
            change[[source, target]] += [row, -row]
            won[[source, target]] += [1.0, -1.0]
            break
        else:
            break
    return found


def _moves(
    change: Array, won: Array, before: Array, after: Array
) -> Iterator[tuple[Array, int, int]]:
    """Clusters that won or lost one row: that row, if it was nearest to one centroid
    before and to another after.
    """
    for cluster in np.flatnonzero(np.abs(won) == 1.0):
        row = won[cluster] * change[cluster]
        if np.abs(row).max() > 1.0 + _STEP:
            continue
        source, target = (
            int(nearest_centroids(round_to_grid(row)[None, :], centroids)[0][0])
            for centroids in (before, after)
        )
        if source != target and cluster == (target if won[cluster] > 0 else source):
            yield row, source, target


def _judged(view: View, named: Array) -> Rebuilt:
    """Which rows are among those that are named."""
    named = np.unique(named, axis=0)
    known = {row.tobytes() for row in named + 0.0}
    return Rebuilt(named, np.array([row.tobytes() in known for row in view.rows + 0.0]))


@dataclass(frozen=True)
class Line:
    """What came of one method.

    Parameters
    ----------
    method : str
    noise : bool
        Whether its noise was left in.
    runs : int
    told, finds : float
        Parts of all rows that were rebuilt.
    alone : float
        Part of all rows that lay alone in a cluster in some round, which need no
        trajectory.
    told_named, finds_named : int
        Rows that were named in all runs, right or wrong.
    """

    method: str
    noise: bool
    runs: int
    told: float
    finds: float
    alone: float
    told_named: int
    finds_named: int


def attack(method: str, views: Sequence[View], *, noise: bool, runs: int) -> Line:
    """Play both adversaries on all views of a method."""
    found: dict[str, tuple[float, int]] = {}
    adversaries: dict[str, Callable[[View], Rebuilt]] = {"told": told, "finds": finds}
    n_rows = sum(len(view.rows) for view in views)
    for name, adversary in adversaries.items():
        rebuilt = [adversary(view) for view in views]
        found[name] = (
            sum(int(one.right.sum()) for one in rebuilt) / n_rows,
            sum(len(one.named) for one in rebuilt),
        )
    (part_told, n_told), (part_found, n_found) = found["told"], found["finds"]
    return Line(
        method,
        noise,
        runs,
        part_told,
        part_found,
        sum(map(_n_alone, views)) / n_rows,
        n_told,
        n_found,
    )


def _n_alone(view: View) -> int:
    """Rows that were the only one of their cluster in some round."""
    found: set[int] = set()
    for centroids in view.centroids:
        labels, _ = nearest_centroids(view.rows, centroids)
        found |= {int(row) for row in np.flatnonzero(np.bincount(labels)[labels] == 1)}
    return len(found)


def clear_views(game: Game, played: Played) -> list[View]:
    """What ten clients would send in the clear of a run's rows, from the run's start."""
    return [
        in_the_clear(played.rows[part::_CLIENTS], played.iterates[0], _ROUNDS)
        for part in range(_CLIENTS)
    ]


def all_lines(
    epsilon: float, runs: int, data: str, n_clusters: int
) -> tuple[list[Line], list[View]]:
    """Every method, and the views of one run in the clear for the picture."""
    pool, lines, shown = replace(load_pool(data), n_clusters=n_clusters), [], []
    for algorithm in ("lloyd", *(name for name in ALGORITHMS if name != "lloyd")):
        game = make_game(algorithm, epsilon, pool, with_targets=False)
        played = [play(game, _SEEDS + number, None) for number in range(runs)]
        if algorithm == "lloyd":
            clear = [clear_views(game, one) for one in played]
            lines.append(
                attack(
                    CLEAR,
                    [view for views in clear for view in views],
                    noise=False,
                    runs=runs,
                )
            )
            shown = clear[0]
        for noisy in (False,) if algorithm == "lloyd" else (False, True):
            views = [view_of(game, one, noisy=noisy) for one in played]
            lines.append(attack(algorithm, views, noise=noisy, runs=runs))
    return lines, shown


def main(arguments: Sequence[str] | None = None) -> int:
    """Play, print and draw.

    1 if a private method gave a row away, 2 for a mistake of the caller, in one
    sentence.
    """
    parser = argparse.ArgumentParser(
        prog="python -m simulations.audit.trajectory",
        description=__doc__.split("\n")[0],
    )
    parser.add_argument("--runs", type=int, default=20, help="runs of each method")
    parser.add_argument(
        "--epsilon",
        type=float,
        default=_EPSILON,
        help="of the private methods; large on purpose",
    )
    parser.add_argument("--data", default="blobs", help="blobs, or a bundled set")
    parser.add_argument(
        "--clusters", type=int, default=8, help="the more, the more rows move alone"
    )
    parser.add_argument("--output", type=Path, default=Path("outputs/attacks"))
    options = parser.parse_args(arguments)
    log_quietly()
    try:
        if options.runs < 1:
            raise ConfigurationError(
                f"runs is {options.runs}, but at least 1 is needed: give such as 20."
            )
        lines, shown = all_lines(
            options.epsilon, options.runs, options.data, options.clusters
        )
        from simulations.audit.trajectory_picture import draw

        written = [
            write_whole(
                options.output / CSV_FILE, encode_csv([vars(line) for line in lines])
            ),
            write_whole(options.output / PICTURE_FILE, draw(lines, shown)),
        ]
    except DPKMeansError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 2
    for line in lines:
        how = "with noise" if line.noise else "without noise"
        shares = (
            f"told {line.told:6.1%} of the rows, finds {line.finds:6.1%}, alone"
            f" {line.alone:6.1%}"
        )
        print(f"{line.method:24} {how:14} {shares}")
    for path in written:
        print(path)
    return 1 if any(line.noise and (line.told or line.finds) for line in lines) else 0


if __name__ == "__main__":
    raise SystemExit(main())
