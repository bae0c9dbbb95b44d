"""The games that attacks are measured in.

Which rows, which target, and one run of the real code.

A game draws a fresh half of a pool of rows, adds the target or does not, and clusters
the rows over two clients by `simulations.audit.watched.run_watched`. Everything is
public but the rows and the noise: the plan, N (the same with and without the target)
and the start. What is watched is what a client reads in FastLloyd's threat model: all
released sums, and so all centroids. Drawing the other rows afresh in both worlds leaves
the guarantee as it is (a mixture over them is no easier to tell apart), and gives
attacks on non-private Lloyd something to be unsure about.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.algorithms.one_place.not_federated import algorithm_entry
from flwr_dpkmeans.algorithms.server.held_points import HeldPoints, hold_points
from flwr_dpkmeans.data.bundled import BUNDLED, load_bundled
from flwr_dpkmeans.errors import ConfigurationError, nearest
from flwr_dpkmeans.kernels.grid import round_to_grid
from flwr_dpkmeans.options import read_config
from flwr_dpkmeans.privacy.accounting import Totals, add_up
from flwr_dpkmeans.sums.build import build_algorithm
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.public_facts import ServerData
from flwr_dpkmeans.sums.round import State
from simulations.audit.cases import SEED, draft_audited
from simulations.audit.watched import Seen, run_watched

Array = NDArray[np.float64]

ALGORITHMS = ("fastlloyd", "glloyd", "proxy_lloyd", "feddp_kmeans", "lloyd")
BLOBS = "blobs"
DATA = (BLOBS, *sorted(BUNDLED))
TARGETS = ("typical", "outlier", "canary")
_GRID = 2.0**16
_SERVER_ROWS = 10
"""For each cluster.

Held back from the pool, and the server's own where an algorithm needs some.
"""
_CANDIDATES = 100
_PILOTS = 8
_NEARLY = 0.02
_OPTIONS: Mapping[str, Mapping[str, int]] = MappingProxyType(
    {
        "proxy_lloyd": MappingProxyType({"n_init": 2}),
        "feddp_kmeans": MappingProxyType({"n_init": 2, "max_iter": 2}),
    }
)
"""Fewer restarts than by default, for speed.

Two Lloyd rounds, so that there is a trajectory.
"""


@dataclass(frozen=True)
class Pool:
    """Rows that games draw from.

    Parameters
    ----------
    rows, server_rows : ndarray, (n, d), (m, d)
        In the box [-1, 1]^d, on the grid.
    n_clusters : int
    """

    rows: Array = field(repr=False)
    server_rows: Array = field(repr=False)
    n_clusters: int


@dataclass(frozen=True)
class Game:
    """One algorithm at one epsilon, with its targets.

    Parameters
    ----------
    algorithm : str
    epsilon : float
        Of the plan; 0.0 for an algorithm without noise.
    delta : float
        Of the plan.
    mu : float
        GDP parameter of all releases together; infinite without noise.
    plan : Plan
    pool : Pool
        Without the targets.
    targets : mapping of str to ndarray, (d,)
    """

    algorithm: str
    epsilon: float
    delta: float
    mu: float
    plan: Plan = field(repr=False)
    pool: Pool = field(repr=False)
    targets: Mapping[str, Array] = field(repr=False)


@dataclass(frozen=True)
class Round:
    """One release as it is read, and the exact sum, which knows all rows.

    Parameters
    ----------
    state : State
        What the statistic was taken at.
    index : int
        Of the round, from 1.
    released, exact, scales : ndarray, (length,)
        The noisy sum, the exact one (target included), and the noise's standard
        deviation.
    """

    state: State
    index: int
    released: Array = field(repr=False)
    exact: Array = field(repr=False)
    scales: Array = field(repr=False)


@dataclass(frozen=True)
class Played:
    """A run: its releases and centroids.

    Parameters
    ----------
    rounds : tuple of Round
    iterates : ndarray, (n, k, d)
        Centroids of all states that have some, the last ones included.
    rows : ndarray, (n_rows, d)
        What was clustered.
    """

    rounds: tuple[Round, ...] = field(repr=False)
    iterates: Array = field(repr=False)
    rows: Array = field(repr=False)


def load_pool(name: str) -> Pool:
    """Load or draw rows.

    Parameters
    ----------
    name : str
        ``"blobs"`` (400 rows of four Gaussians in the square) or the name of a bundled
        data set.

    Returns
    -------
    Pool

    Raises
    ------
    ConfigurationError
        If there are no such data.

    Examples
    --------
    >>> load_pool("iris").rows.shape, load_pool("iris").server_rows.shape
    ((120, 4), (30, 4))
    """
    generator = np.random.default_rng(SEED)
    if name == BLOBS:
        centres = np.array([(-0.6, -0.6), (0.6, -0.5), (0.1, 0.6), (-0.6, 0.4)])
        points = np.concatenate(
            [generator.normal(centre, 0.12, (110, 2)) for centre in centres]
        )
        scaled = np.clip(points, -1.0, 1.0)
        n_clusters = len(centres)
    elif name in BUNDLED:
        scaled = BUNDLED[name].bounds.scale(load_bundled(name).points)
        n_clusters = BUNDLED[name].n_clusters
    else:
        raise ConfigurationError(
            f"data is {name!r}, but only some sets are attacked here:"
            f" {nearest(name, DATA)}"
        )
    mixed = round_to_grid(scaled)[generator.permutation(len(scaled))]
    n_server_rows = _SERVER_ROWS * n_clusters
    return Pool(mixed[n_server_rows:], mixed[:n_server_rows], n_clusters)


def make_game(
    algorithm: str,
    epsilon: float,
    pool: Pool,
    *,
    noise: str = "seeded",
    with_targets: bool = True,
) -> Game:
    """Draft the plan and choose the targets.

    Parameters
    ----------
    algorithm : str
        One of `ALGORITHMS`.
    epsilon : float
        Total of a run.
    pool : Pool
        What rows are drawn from; half of them in each game.
    noise : str
        ``"seeded"`` (runs can be repeated, and protect nobody) or ``"secure"``.
    with_targets : bool
        Whether targets are looked for, which takes a few runs.

    Returns
    -------
    Game

    Raises
    ------
    ConfigurationError, PlanError
        If the algorithm is not attacked here, or no sound plan follows.
    """
    if algorithm not in ALGORITHMS:
        raise ConfigurationError(
            f"algorithm is {algorithm!r}: {nearest(algorithm, ALGORITHMS)}"
        )
    needs_server_data = algorithm_entry(algorithm).server_data is ServerData.NEEDED
    config = read_config(
        has_server_data=needs_server_data,
        algorithm=algorithm,
        n_clusters=pool.n_clusters,
        bounds=((-1.0,), (1.0,)),
        n_examples=len(pool.rows) // 2,
        epsilon=epsilon,
        noise=noise,
        trust="oblivious",
        masking=False,
        random_state=SEED,
        **_OPTIONS.get(algorithm, {}),
    )
    points: HeldPoints | None = None
    if needs_server_data:
        points = hold_points(config, pool.server_rows)
    plan = draft_audited(config, 2, pool.rows.shape[1], points)
    totals = add_up(plan.events())
    draft = Game(
        algorithm=algorithm,
        epsilon=0.0 if totals.exact else plan.epsilon,
        delta=plan.delta,
        mu=_require_gaussian(totals),
        plan=plan,
        pool=pool,
        targets={},
    )
    return _with_targets(draft) if with_targets else draft


def play(
    game: Game,
    seed: int,
    target: Array | None,
) -> Played:
    """Draw rows, cluster them with or without a target, and keep what was released.

    Parameters
    ----------
    game : Game
    seed : int
        Of the rows, and of the noise if the plan says so.
    target : ndarray, (d,), or None
        None: absent.

    Returns
    -------
    Played
    """
    generator = np.random.default_rng(_hashed("rows", seed))
    n_others = (game.plan.n_examples or 1) - 1
    chosen = generator.permutation(len(game.pool.rows))[:n_others]
    rows = game.pool.rows[chosen]
    if target is not None:
        rows = np.concatenate([rows, target[None, :]])
    plan = replace(game.plan, seed=_hashed("noise", seed))
    seen: list[Seen] = []
    run = run_watched(plan, [rows[0::2], rows[1::2]], watch=seen.append)
    rounds = tuple(_round_of(aggregation, plan) for aggregation in seen)
    states = [*(release.state for release in rounds), run.state]
    iterates = [state.centroids for state in states if state.centroids.any()]
    return Played(rounds, np.array(iterates), rows)


def contribution(
    plan: Plan,
    release: Round,
    row: Array,
) -> Array:
    """What a row adds to a release, by the real statistic at the release's state."""
    step = build_algorithm(plan).rounds[release.index - 1]
    arrays = step.arrays_of(row[None, :], release.state)
    return np.concatenate([np.ravel(array) for array in arrays])


def _round_of(seen: Seen, plan: Plan) -> Round:
    """Read one aggregation.

    The released words as a client reads them, the exact ones as nobody does.
    """
    if not isinstance(seen.state, State):
        raise ConfigurationError(
            "a preliminary round was run, but games declare everything public:"
            " declare it."
        )
    blocks = plan.round_at(seen.round_index).blocks
    # Without noise a grid step stands for "exactly".
    scales = np.concatenate(
        [np.full(block.size, block.noise_scale or 1.0 / _GRID) for block in blocks]
    )
    released = seen.released.view(np.int64) / _GRID
    exact = seen.aggregate.values.view(np.int64) / _GRID
    return Round(seen.state, seen.round_index, released, exact, scales)


def _with_targets(game: Game) -> Game:
    """Choose a typical row, an outlier and a canary; take the rows out of the pool."""
    from sklearn.cluster import KMeans

    pool = game.pool
    model = KMeans(
        pool.n_clusters,
        n_init=5,
        random_state=0,
    ).fit(pool.rows)
    distances = model.transform(pool.rows).min(axis=1)
    order = np.argsort(distances)
    typical = int(order[len(order) // 2])
    outlier = int(order[-1])
    rest = replace(pool, rows=np.delete(pool.rows, [typical, outlier], axis=0))
    without_targets = replace(game, pool=rest)
    targets = {
        "typical": pool.rows[typical],
        "outlier": pool.rows[outlier],
        "canary": _canary(without_targets),
    }
    return replace(without_targets, targets=MappingProxyType(targets))


def _canary(game: Game) -> Array:
    """A point of the box that releases show best, in the mean of `information`.

    Of such points the loneliest.
    """
    rows = game.pool.rows
    half = (_CANDIDATES // 2, rows.shape[1])
    generator = np.random.default_rng(SEED)
    inside = generator.uniform(-1.0, 1.0, half)
    corners = np.unique(np.sign(generator.uniform(-1.0, 1.0, half)), axis=0)
    candidates = round_to_grid(np.concatenate([inside, corners, rows[:20]]))
    pilots = [play(game, -1 - number, None) for number in range(_PILOTS)]
    means = []
    for candidate in candidates:
        by_pilot = [information(game.plan, pilot, candidate) for pilot in pilots]
        means.append(np.mean(by_pilot))
    shown = np.array(means)
    best = candidates[shown >= (1.0 - _NEARLY) * shown.max()]
    loneliness = np.linalg.norm(best[:, None, :] - rows, axis=2).min(axis=1)
    return np.asarray(best[int(np.argmax(loneliness))])


def information(
    plan: Plan,
    played: Played,
    row: Array,
) -> float:
    """Squared GDP parameter of what a run's releases show of a row."""
    ratios = [
        contribution(plan, release, row) / release.scales for release in played.rounds
    ]
    return float(sum(ratio @ ratio for ratio in ratios))


def _require_gaussian(totals: Totals) -> float:
    """The GDP parameter of a plan's releases, which must be Gaussian or exact."""
    if totals.pure_epsilons or totals.sampled:
        raise ConfigurationError(
            "the plan has noise other than plain Gaussian: choose an algorithm"
            " without it."
        )
    return np.inf if totals.exact else totals.mu


def _hashed(purpose: str, seed: int) -> int:
    """A seed for one purpose."""
    digest = hashlib.sha256(repr((purpose, seed)).encode()).digest()
    return int.from_bytes(digest[:7], "little")
