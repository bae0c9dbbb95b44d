"""One run with many canaries, each present by a coin of its own.

What the releases show of all of them together.

Canaries are laid so that they disturb each other little: FastLloyd's each move one
coordinate of one cluster, FedDP-KMeans' lie one in each bin of the weights round, and
at client level each client has rows in a direction of its own. Scores are the best
linear estimates of the coins for the planned noise.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.algorithms.one_place.not_federated import algorithm_entry
from flwr_dpkmeans.algorithms.server.held_points import HeldPoints, hold_points
from flwr_dpkmeans.errors import ConfigurationError
from flwr_dpkmeans.options import read_config
from flwr_dpkmeans.sums.build import initial_state
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.public_facts import ServerData
from flwr_dpkmeans.sums.statement import epsilon_after
from simulations.audit.audit import AuditOptions, AuditResult, resolve_method
from simulations.audit.bounds import Method
from simulations.audit.cases import SEED, Case, Neighbours, draft_audited
from simulations.audit.information import Truth, information_of
from simulations.audit.one_run import OneRunMethod, count_guesses, one_run_bound
from simulations.audit.runs import Engine
from simulations.audit.trials import Setup
from simulations.audit.views import ReadableSum, resolve_adversary, view_of
from simulations.audit.watched import Seen, run_watched

Array = NDArray[np.float64]

_GRID = 2.0**16
_GUESSED = 0.4
"""Share of the canaries that are guessed present, and absent.

About the others nothing is said.
"""
_LLOYD_CLUSTERS = 8
_LLOYD_FEATURES = 16
_BINS = 200
_CLIENTS = 48
_OF_LLOYD: Mapping[str, object] = MappingProxyType(
    {
        "n_clusters": _LLOYD_CLUSTERS,
        "n_examples": 5000,
        "max_iter": 1,
        "schedule": "constant",
        "alpha": 0.2,
    }
)
_OF_FEDDP: Mapping[str, object] = MappingProxyType({"n_clusters": 2, "n_init": 1})
_OF_CLIENTS: Mapping[str, object] = MappingProxyType(
    {
        "n_clusters": 1,
        "max_iter": 1,
        "data_radius": 1.0,
        "sums_bound": 1.0,
        "counts_bound": 1.0,
        "outer_product_bound": 1.0,
        "weights_bound": 1.0,
    }
)
"""Public values of the canaries' runs, by kind."""


@dataclass(frozen=True)
class Canaries:
    """A plan and tables, one for each canary.

    Parameters
    ----------
    plan : Plan
    server_points : HeldPoints or None
    rows : tuple of ndarray, (n_rows, n_features)
        What each canary adds: a row, or a client's table.
    per_client : bool
        Whether each is a client of its own.
    until : int
        Last round that the auditor looks at.
    """

    plan: Plan
    server_points: HeldPoints | None = field(repr=False)
    rows: tuple[Array, ...] = field(repr=False)
    per_client: bool
    until: int

    @property
    def private_points(self) -> Array | None:
        """The server's points, where it alone holds them."""
        return None if self.server_points is None else self.server_points.on_server


def run_one_run_audit(
    options: AuditOptions, advance: Callable[[int], None] = lambda _: None
) -> AuditResult:
    """Audit with one run.

    The bound is the tighter one through mu where all noise is plain Gaussian.

    Parameters
    ----------
    options : AuditOptions
        With ``method="one_run"``.
    advance : callable
        Told when the run is done.

    Returns
    -------
    AuditResult

    Raises
    ------
    ConfigurationError
        If there is no layout of canaries for this combination.
    """
    begin = time.perf_counter()
    if options.engine != "direct" or options.retries or options.until is not None:
        raise ConfigurationError(
            "method='one_run' looks at one whole direct run: leave engine, retries and"
            " until out."
        )
    canaries = lay_canaries(options)
    plan = canaries.plan
    adversary = resolve_adversary(options.adversary, plan.config.trust)
    coins = np.random.default_rng().integers(0, 2, len(canaries.rows)).astype(bool)
    parts = _parts_by_coins(canaries, coins)
    seen: list[Seen] = []
    run = run_watched(
        plan,
        parts,
        server_points=canaries.private_points,
        watch=seen.append,
    )
    claimed = run.steps[-1].epsilon
    view = view_of(seen, adversary, run.plan, run.state, run.attempts, claimed)
    if not view.sums:
        raise ConfigurationError(
            "this adversary can read no sum, so canaries have no scores: choose another"
            " method."
        )
    scores, share, bound_used = _scores(canaries, view.sums[: canaries.until])
    advance(1)
    n_guesses = int(_GUESSED * len(coins))
    case = Case("canaries", plan, canaries.server_points, (_alone(canaries, 0),))
    setup = Setup(case, case.candidates[0], adversary, Engine.DIRECT)
    method = OneRunMethod.BINOMIAL
    if resolve_method("auto", setup) is Method.GDP:
        method = OneRunMethod.GDP
    guesses = count_guesses(
        scores,
        coins,
        n_high=n_guesses,
        n_low=n_guesses,
    )
    # Rounds after the last one looked at are no part of the claim either: a prefix of a
    # run is a mechanism of its own.
    attempts = run.attempts[: canaries.until]
    return AuditResult(
        options,
        plan.config.trust,
        adversary.value,
        case.name,
        f"{len(coins)} of them",
        epsilon_after(run.plan, attempts),
        one_run_bound(guesses, plan.delta, method, options.confidence),
        share,
        bound_used,
        "estimated coins",
        time.perf_counter() - begin,
        None,
    )


def _parts_by_coins(canaries: Canaries, coins: NDArray[np.bool_]) -> list[Array]:
    """Each client's rows, if the canaries with a coin are there."""
    nothing = np.zeros((0, canaries.rows[0].shape[1]))
    n_clients = canaries.plan.n_clients
    if canaries.per_client:
        # The last client is no canary, as it may work with the adversary.
        parts = [nothing] * n_clients
        for client in np.flatnonzero(coins):
            parts[client] = canaries.rows[client]
        return parts
    present = [canaries.rows[index] for index in np.flatnonzero(coins)]
    others = [nothing] * (n_clients - 1)
    return [np.concatenate([nothing, *present]), *others]


def lay_canaries(options: AuditOptions) -> Canaries:
    """Draft the plan of a combination, with its canaries."""
    algorithm = options.algorithm
    common: dict[str, object] = {
        "bounds": ((-1.0,), (1.0,)),
        "epsilon": 1.0,
        "delta": 1e-5,
        "random_state": SEED,
        "algorithm": algorithm,
        "trust": options.trust,
        "unit": options.unit,
    }
    if options.unit == "client":
        if algorithm not in ("sphere_packing", "server_lloyd", "server_kmeans++"):
            raise ConfigurationError(
                f"there are no canaries for {algorithm!r} at client level: choose"
                " 'sphere_packing'."
            )
        config = {**common, **_OF_CLIENTS, **options.values}
        points = _around_origin(_CLIENTS, 1)
        plan, server_points = _drafted(config, _CLIENTS, _CLIENTS + 1, points)
        tables = tuple(np.eye(_CLIENTS)[:, None, :])
        return Canaries(plan, server_points, tables, True, plan.last_round)
    if algorithm in ("fastlloyd", "glloyd"):
        config = {**common, **_OF_LLOYD, **options.values}
        plan, server_points = _drafted(config, _LLOYD_FEATURES, 3, None)
        start = np.asarray(initial_state(plan).centroids)
        rows = _around(start, plan.rounds[0].radius)
        return Canaries(plan, server_points, tuple(rows), False, 1)
    if algorithm == "feddp_kmeans":
        config = {**common, **_OF_FEDDP, **options.values}
        points = _around_origin(2, _BINS // 2)
        plan, server_points = _drafted(config, 2, 3, points)
        return Canaries(plan, server_points, tuple(points[:, None, :]), False, 2)
    raise ConfigurationError(
        f"there are no canaries for {algorithm!r}: choose 'fastlloyd' or"
        " 'feddp_kmeans', or 'sphere_packing' at client level."
    )


def _drafted(
    values: dict[str, object],
    n_features: int,
    n_clients: int,
    points: Array | None,
) -> tuple[Plan, HeldPoints | None]:
    """A plan with its server points, if the algorithm takes some."""
    entry = algorithm_entry(str(values["algorithm"]))
    needs_server_data = entry.server_data is ServerData.NEEDED
    config = read_config(has_server_data=needs_server_data, **values)
    if config.trust == "distributed" and config.max_silent is None:
        config = config.changed(max_silent=1)
    server_points = None
    if needs_server_data and points is not None:
        server_points = hold_points(config, points)
    plan = draft_audited(config, n_clients, n_features, server_points)
    return plan, server_points


def _around(start: Array, radius: float | None) -> list[Array]:
    """For each cluster and coordinate a row at the radius of the start.

    On the side where the box has room.
    """
    rows = []
    reach = 0.5
    if radius is not None:
        reach = np.floor(radius * _GRID) / _GRID
    for centre in start:
        for column in range(len(centre)):
            row = centre.copy()
            row[column] += -reach if centre[column] > 0.0 else reach
            if np.abs(row).max() <= 1.0:
                rows.append(row[None, :])
    return rows


def _around_origin(n_features: int, n_pairs: int) -> Array:
    """Points on the grid whose mean is the origin."""
    generator = np.random.default_rng(SEED)
    drawn = generator.uniform(0.05, 0.7, (n_pairs, n_features))
    half = np.rint(drawn * _GRID) / _GRID
    return np.concatenate([half, -half])


def _alone(canaries: Canaries, index: int) -> Neighbours:
    """One canary against nothing."""
    rows = canaries.rows[index]
    nothing = np.zeros((0, rows.shape[1]))
    others = [nothing] * (canaries.plan.n_clients - 1)
    return Neighbours(f"canary {index}", (nothing, *others), (rows, *others))


def _scores(
    canaries: Canaries, sums: tuple[ReadableSum, ...]
) -> tuple[Array, float, float]:
    """Best linear estimates of the coins.

    And the largest information, and share of a bound, of one canary.
    """
    attempts = [(total.round_index, total.attempt) for total in sums]
    signals = []
    shares = []
    bounds_used = []
    for index in range(len(canaries.rows)):
        truth = Truth(_alone(canaries, index))
        # A canary's part is the same whichever client sends it, so all stand at the
        # first one's place.
        parts = [
            truth.part(total.plan, total.round_index, total.state, (0,))
            for total in sums
        ]
        signals.append(np.concatenate([part.delta / part.scales for part in parts]))
        shown = information_of(parts, sums[0].plan, attempts)
        shares.append(shown.share)
        bounds_used.append(shown.bound_used)
    # The planned scales are the same for all canaries.
    scales = np.concatenate([part.scales for part in parts])
    values = np.concatenate([total.values for total in sums])
    residuals = values.view(np.int64).astype(np.float64) / scales
    matrix = np.array(signals)
    centred = residuals - 0.5 * matrix.sum(axis=0)
    covariance = 0.25 * matrix.T @ matrix + np.eye(matrix.shape[1])
    estimates = matrix @ np.linalg.solve(covariance, centred)
    return estimates, float(np.max(shares)), float(np.max(bounds_used))
