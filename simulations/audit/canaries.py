"""One run with many canaries, each present by a coin of its own.

What the releases show of all of them together.

Canaries are laid so that they disturb each other little: FastLloyd's each move one
coordinate of one cluster, FedDP-KMeans' lie one in each bin of the weights round, and
at client level each client has rows in a direction of its own. Scores are the best
linear estimates of the coins for the planned noise.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.algorithms import ServerData, algorithm_entry
from flwr_dpkmeans.algorithms.server_points import HeldPoints, hold_points
from flwr_dpkmeans.errors import ConfigurationError
from flwr_dpkmeans.options import read_config
from flwr_dpkmeans.sums.build import initial_state
from flwr_dpkmeans.sums.draft import draft_plan
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.statement import epsilon_after
from simulations.audit.audit import AuditOptions, AuditResult, resolve_method
from simulations.audit.bounds import Method
from simulations.audit.cases import SEED, Case, Neighbours
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
_FASTLLOYD = (8, 16)
_BINS = 200
_CLIENTS = 48


@dataclass(frozen=True)
class Canaries:
    """A plan and tables, one for each canary.

    Parameters
    ----------
    plan : Plan
    held : HeldPoints or None
    rows : tuple of ndarray, (n_rows, n_features)
        What each canary adds: a row, or a client's table.
    per_client : bool
        Whether each is a client of its own.
    until : int
        Last round that the auditor looks at.
    """

    plan: Plan
    held: HeldPoints | None = field(repr=False)
    rows: tuple[Array, ...] = field(repr=False)
    per_client: bool
    until: int

    @property
    def kept(self) -> Array | None:
        """The server's points, where it alone holds them."""
        return None if self.held is None else self.held.kept


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
    plan, adversary = (
        canaries.plan,
        resolve_adversary(options.adversary, canaries.plan.config.trust),
    )
    coins = np.random.default_rng().integers(0, 2, len(canaries.rows)).astype(bool)
    nothing = np.zeros((0, canaries.rows[0].shape[1]))
    if canaries.per_client:
        # The last client is no canary, as it may work with the adversary.
        parts = [
            *(
                rows if coin else nothing
                for rows, coin in zip(canaries.rows, coins, strict=True)
            ),
            nothing,
        ]
    else:
        present = [
            rows for rows, coin in zip(canaries.rows, coins, strict=True) if coin
        ]
        parts = [np.concatenate([nothing, *present]), *[nothing] * (plan.n_clients - 1)]
    seen: list[Seen] = []
    found = run_watched(plan, parts, server_points=canaries.kept, watch=seen.append)
    view = view_of(
        seen,
        adversary,
        found.plan,
        found.state,
        found.attempts,
        found.steps[-1].epsilon,
    )
    if not view.sums:
        raise ConfigurationError(
            "this adversary can read no sum, so canaries have no scores: choose another"
            " method."
        )
    scores, shares = _scores(canaries, view.sums[: canaries.until])
    advance(1)
    n = int(_GUESSED * len(coins))
    case = Case("canaries", plan, canaries.held, (_alone(canaries, 0),))
    plain = (
        resolve_method(
            "auto", Setup(case, case.candidates[0], adversary, Engine.DIRECT)
        )
        is Method.GDP
    )
    method = OneRunMethod.GDP if plain else OneRunMethod.BINOMIAL
    guesses = count_guesses(scores, coins, n_high=n, n_low=n)
    # Rounds after the last one looked at are no part of the claim either: a prefix of a
    # run is a mechanism of its own.
    attempts = found.attempts[: canaries.until]
    return AuditResult(
        options,
        plan.config.trust,
        adversary.value,
        case.name,
        f"{len(coins)} of them",
        epsilon_after(found.plan, attempts),
        one_run_bound(guesses, plan.delta, method, options.confidence),
        *shares,
        "estimated coins",
        time.perf_counter() - begin,
        None,
    )


def lay_canaries(options: AuditOptions) -> Canaries:
    """Draft the plan of a combination, with its canaries."""
    algorithm, unit = options.algorithm, options.unit
    common: dict[str, object] = {
        "bounds": ((-1.0,), (1.0,)),
        "epsilon": 1.0,
        "delta": 1e-5,
        "random_state": SEED,
    }
    common |= {"algorithm": algorithm, "trust": options.trust, "unit": unit}
    given = dict(options.values)
    if unit == "client":
        n_features = _CLIENTS
        wanted: dict[str, object] = {
            "n_clusters": 1,
            "max_iter": 1,
            "data_radius": 1.0,
            "sums_bound": 1.0,
            "counts_bound": 1.0,
        }
        wanted |= {"outer_product_bound": 1.0, "weights_bound": 1.0}
        if algorithm not in ("sphere_packing", "server_lloyd", "server_kmeans++"):
            raise ConfigurationError(
                f"there are no canaries for {algorithm!r} at client level: choose"
                " 'sphere_packing'."
            )
        rows: tuple[Array, ...] = tuple(np.eye(n_features)[:, None, :])
        plan, held = _drafted(
            common | wanted | given,
            n_features,
            _CLIENTS + 1,
            _around_origin(n_features, 1),
        )
        return Canaries(plan, held, rows, True, plan.last_round)
    if algorithm in ("fastlloyd", "glloyd"):
        k, d = _FASTLLOYD
        wanted = {
            "n_clusters": k,
            "n_examples": 5000,
            "max_iter": 1,
            "schedule": "constant",
            "alpha": 0.2,
        }
        plan, held = _drafted(common | wanted | given, d, 3, None)
        start = np.asarray(initial_state(plan).centroids)
        return Canaries(
            plan, held, tuple(_around(start, plan.rounds[0].radius)), False, 1
        )
    if algorithm == "feddp_kmeans":
        points = _around_origin(2, _BINS // 2)
        plan, held = _drafted(
            common | {"n_clusters": 2, "n_init": 1} | given, 2, 3, points
        )
        return Canaries(plan, held, tuple(points[:, None, :]), False, 2)
    raise ConfigurationError(
        f"there are no canaries for {algorithm!r}: choose 'fastlloyd' or"
        " 'feddp_kmeans', or 'sphere_packing' at client level."
    )


def _drafted(
    values: dict[str, object], n_features: int, n_clients: int, points: Array | None
) -> tuple[Plan, HeldPoints | None]:
    """A plan with its server points, if the algorithm takes some."""
    needed = algorithm_entry(str(values["algorithm"])).server_data is ServerData.NEEDED
    config = read_config(has_server_data=needed, **values)
    if config.trust == "distributed":
        config = config.changed(
            max_silent=1 if config.max_silent is None else config.max_silent
        )
    held = hold_points(config, points) if needed and points is not None else None
    plan = draft_plan(
        config,
        run_id=1,
        n_clients=n_clients,
        seed=SEED,
        n_features=n_features,
        server=None if held is None else held.facts,
        public_points=None if held is None else held.public,
    )
    return plan, held


def _around(start: Array, radius: float | None) -> list[Array]:
    """For each cluster and coordinate a row at the radius of the start, on the side
    where the box has room.
    """
    rows = []
    reach = 0.5 if radius is None else np.floor(radius * _GRID) / _GRID
    for centre in start:
        for column in range(len(centre)):
            row = centre.copy()
            row[column] += -reach if centre[column] > 0.0 else reach
            if np.abs(row).max() <= 1.0:
                rows.append(row[None, :])
    return rows


def _around_origin(n_features: int, n_pairs: int) -> Array:
    """Points on the grid whose mean is the origin."""
    half = (
        np.rint(
            np.random.default_rng(SEED).uniform(0.05, 0.7, (n_pairs, n_features))
            * _GRID
        )
        / _GRID
    )
    return np.concatenate([half, -half])


def _alone(canaries: Canaries, index: int) -> Neighbours:
    """One canary against nothing."""
    rows = canaries.rows[index]
    nothing = np.zeros((0, rows.shape[1]))
    others = [nothing] * (canaries.plan.n_clients - 1)
    return Neighbours(f"canary {index}", (nothing, *others), (rows, *others))


def _scores(
    canaries: Canaries, sums: tuple[ReadableSum, ...]
) -> tuple[Array, tuple[float, float]]:
    """Best linear estimates of the coins, and the largest information and share of a
    bound of one canary.
    """
    signals, shares, parts_of = [], [], []
    for index in range(len(canaries.rows)):
        truth = Truth(_alone(canaries, index))
        # A canary's part is the same whichever client sends it, so all stand at the
        # first one's place.
        parts = [truth.part(one.plan, one.round_index, one.state, (0,)) for one in sums]
        parts_of.append(parts)
        signals.append(np.concatenate([part.delta / part.scales for part in parts]))
        attempts = [(one.round_index, one.attempt) for one in sums]
        found = information_of(parts, sums[0].plan, attempts)
        shares.append((found.share, found.bound_used))
    pairs = zip(sums, parts_of[0], strict=True)
    residuals = [
        one.values.view(np.int64).astype(np.float64) / part.scales
        for one, part in pairs
    ]
    matrix = np.array(signals)
    centred = np.concatenate(residuals) - 0.5 * matrix.sum(axis=0)
    covariance = 0.25 * matrix.T @ matrix + np.eye(matrix.shape[1])
    largest = np.max(np.array(shares), axis=0)
    return matrix @ np.linalg.solve(covariance, centred), (
        float(largest[0]),
        float(largest[1]),
    )
