"""Rows read off the trajectory of centroids.

``python -m simulations.audit.trajectory [--runs N] [--output FOLDER]``.

Sums without noise add up the same rows again and again, and between two rounds only few
rows move. So differences of rounds are single rows [1]_. Two adversaries see nothing
but what is released:

* ``informed`` knows in which cluster each row lay in each round, but no row: it solves
  the linear system, in which a row is determined if no other moved exactly as it did
  (up to sums of others);
* ``uninformed`` knows nothing: it takes the change of a cluster that won or lost one
  row for that row if it lies where such a row must lie, and takes it off the other
  cluster's change, until everything is explained.

They are played on Lloyd's method without noise, on centroids that each client sends in
the clear with its counts, as federated k-means without secure aggregation does, and on
the private methods, with their noise and without it, which shows that the noise is what
stops them. A row counts as rebuilt if it is right in all digits of the grid.

.. [1] G. Yang, L. Luo, Q. Li, "Breaking privacy in federated clustering: perfect input
   reconstruction via temporal correlations", 2025, arXiv 2511.07073.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.errors import ConfigurationError, DPKMeansError
from flwr_dpkmeans.kernels.assignment import nearest_centroids
from flwr_dpkmeans.kernels.grid import round_to_grid
from flwr_dpkmeans.results.whole_files import write_whole
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
from simulations.experiments.job import log_quietly

Array = NDArray[np.float64]

CLEAR = "centroids in the clear"
_RELATIVE: Mapping[str, bool] = MappingProxyType(
    {
        "sums": False,
        "clipped_sums": False,
        "relative_sums": True,
        "residual_sums": True,
    }
)
"""Arrays of sums by cluster, and whether they are relative to the round's centroids."""
_STEP = 2.0**-16
_CLIENTS = 10
_ROUNDS = 7
"""Of those that send their centroids in the clear."""
_SEEDS = 8 * 10**8
_SURE = 1e-6
_EPSILON = 8.0
CSV_FILE = "trajectory.csv"
PICTURE_FILE = "trajectory.png"
ClusterSums = tuple[Array, Array, Array]
"""A round's centroids (k, d), sums (k, d) and counts (k,)."""


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
    """Rows that an adversary names, and which true rows are among them in all digits.

    Parameters
    ----------
    named : ndarray, (m, d)
    right : ndarray of bool, (n,)
    """

    named: Array = field(repr=False)
    right: NDArray[np.bool_] = field(repr=False)


def informed(view: View) -> Rebuilt:
    """Solve for the rows, knowing where each lay in each round.

    Rows with one history are one unknown, their sum; an unknown of one row is
    determined if the system's resolution is 1 there.

    Examples
    --------
    >>> rows = np.array([[-0.75], [-0.5], [-0.25], [0.5], [0.75]])
    >>> view = in_the_clear(rows, np.array([[-0.75], [0.0]]), 3)
    >>> informed(view).named.ravel().tolist()
    [-0.25]
    """
    histories = np.array(
        [nearest_centroids(view.rows, centroids)[0] for centroids in view.centroids]
    )
    kinds, members = np.unique(
        histories,
        axis=1,
        return_counts=True,
    )
    clusters = np.arange(view.sums.shape[1])
    is_member = kinds[:, None, :] == clusters[None, :, None]
    system = is_member.reshape(-1, kinds.shape[1]).astype(np.float64)
    inverse = np.linalg.pinv(system)
    resolution = np.diag(inverse @ system)
    determined = (members == 1) & (np.abs(resolution - 1.0) < _SURE)
    solved = inverse @ view.sums.reshape(len(system), -1)
    named = np.clip(solved[determined], -1.0, 1.0)
    return _judged(view, round_to_grid(named))


def uninformed(view: View) -> Rebuilt:
    """Name rows by their moves alone.

    Examples
    --------
    >>> rows = np.array([[-0.75], [-0.5], [-0.25], [0.5], [0.75]])
    >>> view = in_the_clear(rows, np.array([[-0.75], [0.0]]), 3)
    >>> uninformed(view).named.ravel().tolist()
    [-0.25]
    """
    named: list[Array] = []
    for before, after in pairwise(range(len(view.sums))):
        change = view.sums[after] - view.sums[before]
        won = np.rint(view.counts[after] - view.counts[before])
        named += _explained(change, won, view.centroids[before], view.centroids[after])
    alone = view.sums[np.rint(view.counts) == 1.0]
    candidates = np.array([*named, *alone]).reshape(-1, view.rows.shape[1])
    off_grid = np.abs(candidates - np.rint(candidates / _STEP) * _STEP)
    is_on_grid = off_grid.max(axis=1, initial=0.0) < _SURE * _STEP
    is_inside = (np.abs(candidates) <= 1.0).all(axis=1)
    plausible = candidates[is_on_grid & is_inside]
    return _judged(view, round_to_grid(np.clip(plausible, -1.0, 1.0)))


def in_the_clear(
    rows: Array,
    start: Array,
    n_rounds: int,
) -> View:
    """Lloyd's method of one client that sends its means and counts.

    Means times counts are the sums.
    """
    centroids = start
    rounds: list[ClusterSums] = []
    for _ in range(n_rounds):
        labels, _ = nearest_centroids(rows, centroids)
        counts = np.bincount(labels, minlength=len(start)).astype(np.float64)
        members = [rows[labels == cluster] for cluster in range(len(start))]
        sums = np.stack([points.sum(axis=0) for points in members])
        sizes = counts[:, None]
        means = np.where(sizes > 0, sums / np.maximum(sizes, 1.0), centroids)
        rounds.append((centroids, means * sizes, counts))
        centroids = round_to_grid(means)
    return _stack_rounds(rounds, rows)


def view_of(
    game: Game,
    played: Played,
    *,
    noisy: bool,
) -> View:
    """Sums and counts by cluster of a run's rounds.

    As clients read them, or without their noise.
    """
    rounds = []
    for release in played.rounds:
        values = release.released if noisy else release.exact
        by_cluster = _sums_of(game, release, values)
        if by_cluster is not None:
            rounds.append(by_cluster)
    return _stack_rounds(rounds, played.rows)


def _stack_rounds(rounds: Sequence[ClusterSums], rows: Array) -> View:
    """A view of some rounds."""
    centroids, sums, counts = zip(*rounds, strict=True)
    return View(np.array(centroids), np.array(sums), np.array(counts), rows)


def _sums_of(
    game: Game,
    release: Round,
    values: Array,
) -> ClusterSums | None:
    """Centroids, absolute sums and counts of a round.

    None for a round that sums nothing by cluster.
    """
    arrays = {}
    start = 0
    for block in game.plan.round_at(release.index).blocks:
        end = start + block.size
        arrays[block.name] = values[start:end]
        start = end
    centroids = release.state.centroids
    for name in set(arrays) & set(_RELATIVE):
        counts = arrays["counts"]
        sums = arrays[name].reshape(centroids.shape)
        if _RELATIVE[name]:
            sums = sums + counts[:, None] * centroids
        return centroids, sums, counts
    return None


def _explained(
    change: Array,
    won: Array,
    before: Array,
    after: Array,
) -> list[Array]:
    """Rows that moved, if a move at a time explains a step.

    Where none explains the rest, those until then.
    """
    change = change.copy()
    won = won.copy()
    rows: list[Array] = []
    while len(rows) < len(won) ** 2:
        move = next(_moves(change, won, before, after), None)
        if move is None:
            break
        row, source, target = move
        rows.append(row)
        change[[source, target]] += [row, -row]
        won[[source, target]] += [1.0, -1.0]
    return rows


def _moves(
    change: Array,
    won: Array,
    before: Array,
    after: Array,
) -> Iterator[tuple[Array, int, int]]:
    """Clusters that won or lost one row, with that row.

    Only if it was nearest to one centroid before and to another after.
    """
    for cluster in np.flatnonzero(np.abs(won) == 1.0):
        row = won[cluster] * change[cluster]
        if np.abs(row).max() > 1.0 + _STEP:
            continue
        source = _nearest(row, before)
        target = _nearest(row, after)
        expected = target if won[cluster] > 0 else source
        if source != target and cluster == expected:
            yield row, source, target


def _nearest(row: Array, centroids: Array) -> int:
    """The cluster of a row, rounded to the grid."""
    labels, _ = nearest_centroids(round_to_grid(row)[None, :], centroids)
    return int(labels[0])


def _judged(view: View, named: Array) -> Rebuilt:
    """Which rows are among those that are named."""
    named = np.unique(named, axis=0)
    # Adding 0 makes -0.0 and 0.0 the same bytes.
    named_bytes = {row.tobytes() for row in named + 0.0}
    right = [row.tobytes() in named_bytes for row in view.rows + 0.0]
    return Rebuilt(named, np.array(right))


@dataclass(frozen=True)
class Line:
    """What came of one method.

    Parameters
    ----------
    method : str
    noise : bool
        Whether its noise was left in.
    runs : int
    informed, uninformed : float
        Parts of all rows that were rebuilt.
    alone : float
        Part of all rows that lay alone in a cluster in some round, which need no
        trajectory.
    informed_named, uninformed_named : int
        Rows that were named in all runs, right or wrong.
    """

    method: str
    noise: bool
    runs: int
    informed: float
    uninformed: float
    alone: float
    informed_named: int
    uninformed_named: int


def attack(
    method: str,
    views: Sequence[View],
    *,
    noise: bool,
    runs: int,
) -> Line:
    """Play both adversaries on all views of a method."""
    n_rows = sum(len(view.rows) for view in views)
    by_informed = [informed(view) for view in views]
    by_uninformed = [uninformed(view) for view in views]
    return Line(
        method=method,
        noise=noise,
        runs=runs,
        informed=_n_right(by_informed) / n_rows,
        uninformed=_n_right(by_uninformed) / n_rows,
        alone=sum(map(_n_alone, views)) / n_rows,
        informed_named=sum(len(rebuilt.named) for rebuilt in by_informed),
        uninformed_named=sum(len(rebuilt.named) for rebuilt in by_uninformed),
    )


def _n_right(answers: Sequence[Rebuilt]) -> int:
    """How many rows were rebuilt in all digits."""
    return sum(int(rebuilt.right.sum()) for rebuilt in answers)


def _n_alone(view: View) -> int:
    """How many rows were the only one of their cluster in some round."""
    was_alone = np.zeros(len(view.rows), dtype=bool)
    for centroids in view.centroids:
        labels, _ = nearest_centroids(view.rows, centroids)
        was_alone |= np.bincount(labels)[labels] == 1
    return int(was_alone.sum())


def clear_views(played: Played) -> list[View]:
    """What ten clients would send in the clear of a run's rows, from its start."""
    return [
        in_the_clear(played.rows[part::_CLIENTS], played.iterates[0], _ROUNDS)
        for part in range(_CLIENTS)
    ]


def all_lines(
    epsilon: float,
    runs: int,
    data: str,
    n_clusters: int,
    algorithms: Sequence[str] = ALGORITHMS,
) -> tuple[list[Line], list[View]]:
    """Some methods, and the views of one run in the clear for the picture."""
    pool = replace(load_pool(data), n_clusters=n_clusters)
    without_noise = make_game("lloyd", epsilon, pool, with_targets=False)
    games = [play(without_noise, _SEEDS + number, None) for number in range(runs)]
    in_clear = [clear_views(played) for played in games]
    every_view = [view for views in in_clear for view in views]
    lines = [
        attack(
            CLEAR,
            every_view,
            noise=False,
            runs=runs,
        ),
        _attack_releases(without_noise, games, noisy=False),
    ]
    for algorithm in algorithms:
        if algorithm == "lloyd":
            continue
        game = make_game(algorithm, epsilon, pool, with_targets=False)
        games = [play(game, _SEEDS + number, None) for number in range(runs)]
        lines.append(_attack_releases(game, games, noisy=False))
        lines.append(_attack_releases(game, games, noisy=True))
    return lines, in_clear[0]


def _attack_releases(
    game: Game,
    games: Sequence[Played],
    *,
    noisy: bool,
) -> Line:
    """Play both adversaries on the releases of some runs of one game."""
    views = [view_of(game, played, noisy=noisy) for played in games]
    return attack(
        game.algorithm,
        views,
        noise=noisy,
        runs=len(games),
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Play, print and draw.

    1 if a private method gave a row away, 2 for a mistake of the caller, in one
    sentence.
    """
    parser = argparse.ArgumentParser(
        prog="python -m simulations.audit.trajectory",
        description=__doc__.split("\n")[0],
    )
    parser.add_argument(
        "--runs",
        type=int,
        default=20,
        help="runs of each method",
    )
    parser.add_argument(
        "--epsilon",
        type=float,
        default=_EPSILON,
        help="of the private methods; large on purpose",
    )
    parser.add_argument(
        "--data",
        default="blobs",
        help="blobs, or a bundled set",
    )
    parser.add_argument(
        "--clusters",
        type=int,
        default=8,
        help="the more, the more rows move alone",
    )
    parser.add_argument(
        "--methods",
        nargs="+",
        choices=ALGORITHMS,
        default=ALGORITHMS,
        metavar="METHOD",
        help="whose releases are attacked",
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("outputs/attacks"),
    )
    options = parser.parse_args(arguments)
    log_quietly()
    try:
        if options.runs < 1:
            raise ConfigurationError(
                f"runs is {options.runs}, but at least 1 is needed: give such as 20."
            )
        lines, shown = all_lines(
            options.epsilon,
            options.runs,
            options.data,
            options.clusters,
            options.methods,
        )
        from simulations.audit.trajectory_picture import draw

        table = encode_csv([vars(line) for line in lines])
        written = [
            write_whole(options.output / CSV_FILE, table),
            write_whole(options.output / PICTURE_FILE, draw(lines, shown)),
        ]
    except DPKMeansError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 2
    for line in lines:
        how = "with noise" if line.noise else "without noise"
        shares = (
            f"informed {line.informed:6.1%} of the rows, uninformed"
            f" {line.uninformed:6.1%}, alone {line.alone:6.1%}"
        )
        print(f"{line.method:24} {how:14} {shares}")
    for path in written:
        print(path)
    gave_away = any(line.noise and (line.informed or line.uninformed) for line in lines)
    return 1 if gave_away else 0


if __name__ == "__main__":
    raise SystemExit(main())
