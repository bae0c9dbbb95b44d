"""Worst-case neighbouring inputs: tiny tables, on which one unit does what it can.

It moves every release as far as its bound allows. A `Case` is a plan with several pairs
of neighbours, of which an audit takes the pair that shows the most. What is public (k,
d, the declared number of rows, clip bounds) may be chosen, since the guarantee holds
for every choice.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.algorithms.lookup import clusterings
from flwr_dpkmeans.algorithms.one_place.not_federated import algorithm_entry
from flwr_dpkmeans.algorithms.server.held_points import HeldPoints, hold_points
from flwr_dpkmeans.errors import ConfigurationError, nearest
from flwr_dpkmeans.kernels.grid import round_to_grid
from flwr_dpkmeans.options import own_options, read_config
from flwr_dpkmeans.privacy.release import PrivacyUnit
from flwr_dpkmeans.sums.build import initial_state
from flwr_dpkmeans.sums.config import RunConfig
from flwr_dpkmeans.sums.draft import draft_plan
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.public_facts import CLIP_BOUNDS, ServerData
from flwr_dpkmeans.sums.settings import Dropout

Array = NDArray[np.float64]

TARGET_CLIENT = 0
"""The client that has, or is, the target."""
SEED = 7
"""Of the public start: drawn once, like the plan.

Keys, masks and noise are fresh in each run.
"""
MARGINS = (0.0, 0.01, 0.03, 0.1)
"""How far inside a radius a row is put.

A start that moves would leave a row on the radius behind.
"""


@dataclass(frozen=True)
class Neighbours:
    """Two inputs that differ in one unit.

    Parameters
    ----------
    name : str
        Where the target is.
    absent, present : tuple of ndarray, (n_i, n_features)
        One table for each client, on the grid in [-1, 1]^d; only that of
        `TARGET_CLIENT` differs.
    """

    name: str
    absent: tuple[Array, ...] = field(repr=False)
    present: tuple[Array, ...] = field(repr=False)


@dataclass(frozen=True)
class Case:
    """A plan and candidates for its worst neighbours.

    Parameters
    ----------
    name : str
        Of the layout.
    plan : Plan
        Drafted once.
    server_points : HeldPoints or None
        The server's own points, if it has any.
    candidates : tuple of Neighbours
        At least one.
    """

    name: str
    plan: Plan
    server_points: HeldPoints | None = field(repr=False)
    candidates: tuple[Neighbours, ...] = field(repr=False)

    @property
    def private_points(self) -> Array | None:
        """The server's points, where it alone holds them."""
        return None if self.server_points is None else self.server_points.on_server


@dataclass(frozen=True)
class Layout:
    """How tables are laid out.

    Parameters
    ----------
    n_clusters, n_features : int
    anchors : int
        Rows on the first start centroid, which keep it where it is, times those the
        algorithm asks for.
    others : int
        Rows of each other client.
    """

    n_clusters: int
    n_features: int
    anchors: int
    others: int


LAYOUTS: Mapping[str, Layout] = MappingProxyType(
    {
        "edge": Layout(1, 1, 1, 1),
        "far": Layout(2, 1, 1, 1),
        "empty": Layout(3, 2, 0, 0),
    }
)
"""``edge``: at a bound of the one cluster.

``far``: in a cluster of its own, far from all rows; ``empty``: the only row there is.
"""

_COMMON: Mapping[str, Any] = MappingProxyType(
    {
        "bounds": ((-1.0,), (1.0,)),
        "epsilon": 1.0,
        "delta": 1e-5,
    }
)
_LLOYD: Mapping[str, Any] = MappingProxyType({"n_examples": 1000, "max_iter": 2})
DEFAULTS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "fastlloyd": MappingProxyType(dict(_LLOYD) | {"schedule": "constant"}),
        "glloyd": _LLOYD,
        "sulloyd": _LLOYD,
        "lloyd": _LLOYD,
        "proxy_lloyd": MappingProxyType(
            {
                "n_examples": 400,
                "max_iter": 1,
                "n_init": 1,
            }
        ),
        "feddp_kmeans": MappingProxyType({"max_iter": 1, "n_init": 1}),
        "server_kmeans++": MappingProxyType({"max_iter": 2}),
        "server_lloyd": MappingProxyType({"max_iter": 2, "n_init": 1}),
        "sphere_packing": MappingProxyType({"max_iter": 2}),
        "feddp_choose_k": MappingProxyType({"choose_n_clusters": True, "n_init": 1}),
    }
)
"""Public values of each algorithm's cases.

Few rounds, so that thousands of runs take minutes.
"""
_ANCHORS = {"fastlloyd": 1000, "proxy_lloyd": 1}
_N_CLIENTS = {"distributed": 4}
_RECOVERING = 6
"""Fewest clients of whom sums can be recovered."""


def build_cases(
    algorithm: str,
    trust: str | None,
    unit: str,
    case: str,
    values: Mapping[str, Any],
) -> tuple[Case, ...]:
    """Draft the plans of the layouts that are asked for, with their neighbours.

    Parameters
    ----------
    algorithm, unit : str
        Of the run.
    trust : str or None
        None: the algorithm's own.
    case : str
        A name of `LAYOUTS`, or ``auto`` for all of them.
    values : mapping
        Further fields of `RunConfig`, and ``n_clients``; they replace the defaults.

    Returns
    -------
    tuple of Case

    Raises
    ------
    ConfigurationError, PlanError
        If there is no such layout, or no sound plan.

    Examples
    --------
    >>> cases = build_cases("glloyd", "central", "record", "auto", {})
    >>> [(case.name, case.plan.n_features, case.plan.epsilon <= 1.0) for case in cases]
    [('edge', 1, True), ('far', 1, True), ('empty', 2, True)]
    """
    if case != "auto" and case not in LAYOUTS:
        raise ConfigurationError(
            f"case is {case!r}, which is not known: {nearest(case, ('auto', *LAYOUTS))}"
        )
    names = tuple(LAYOUTS) if case == "auto" else (case,)
    return tuple(_build(name, algorithm, trust, unit, values) for name in names)


def _build(
    name: str,
    algorithm: str,
    trust: str | None,
    unit: str,
    values: Mapping[str, Any],
) -> Case:
    """One layout with its plan."""
    layout = LAYOUTS[name]
    entry = algorithm_entry(algorithm)
    needs_server_data = entry.server_data is ServerData.NEEDED
    fields = dict(values)
    n_features = int(fields.pop("n_features", None) or layout.n_features)
    n_clients: int | None = fields.pop("n_clients", None)
    defaults = {
        "n_clusters": layout.n_clusters,
        **_COMMON,
        **DEFAULTS.get(algorithm, {}),
        "random_state": SEED,
    }
    if unit == "client":
        defaults |= _client_bounds(algorithm, layout.n_clusters)
    defaults |= {
        "algorithm": algorithm,
        "trust": trust,
        "unit": unit,
    }
    config = read_config(has_server_data=needs_server_data, **(defaults | fields))
    if n_clients is None and config.dropout is Dropout.RECOVER:
        n_clients = _RECOVERING
    if n_clients is None:
        n_clients = _N_CLIENTS.get(config.trust, 2)
    if config.trust == "distributed" and config.max_silent is None and n_clients > 2:
        # The shares of one colluding client are not counted on, so that the claim is
        # tight against the server too.
        defaults |= {"max_silent": 1}
        config = read_config(has_server_data=needs_server_data, **(defaults | fields))
    server_points = None
    if needs_server_data:
        server_points = hold_points(
            config, _server_points(config.n_clusters, n_features)
        )
    plan = draft_audited(config, n_clients, n_features, server_points)
    anchors = layout.anchors * _ANCHORS.get(algorithm, 2)
    pairs = _neighbours(plan, config, server_points, n_features, anchors, layout.others)
    candidates = tuple(_profiled(pair, config) for pair in pairs)
    return Case(name, plan, server_points, candidates)


def draft_audited(
    config: RunConfig,
    n_clients: int,
    n_features: int,
    server_points: HeldPoints | None,
) -> Plan:
    """Draft the plan of an audited run, with the public seed of all audits."""
    return draft_plan(
        config,
        run_id=1,
        n_clients=n_clients,
        seed=SEED,
        n_features=n_features,
        server=None if server_points is None else server_points.facts,
        public_points=None if server_points is None else server_points.public,
    )


def _profiled(pair: Neighbours, config: RunConfig) -> Neighbours:
    """The pair with what stands beside the points for a profile.

    The corner that moves each of its arrays farthest.
    """
    widths = config.profile_widths
    beside = [np.ones(sum(widths[:2]))]
    for width in widths[2:]:
        beside.append(np.where(np.arange(width) == 0, 1.0, -1.0))
    beside.append(np.ones(len(config.gap_columns)))
    corner = np.concatenate(beside)

    def with_corner(tables: Sequence[Array]) -> tuple[Array, ...]:
        return tuple(
            np.hstack([rows, np.tile(corner, (len(rows), 1))]) for rows in tables
        )

    return Neighbours(pair.name, with_corner(pair.absent), with_corner(pair.present))


def _client_bounds(algorithm: str, n_clusters: int) -> dict[str, Any]:
    """Clip bounds that one client reaches in every array at once.

    It would exceed them if it were not clipped.
    """
    root = float(np.sqrt(n_clusters))
    tight = dict.fromkeys(CLIP_BOUNDS, 0.5)
    for name in ("means_bound", "sums_bound"):
        tight[name] = 0.25 * root
    for name in ("indicators_bound", "counts_bound"):
        tight[name] = 0.5 * root
    return own_options(tight, algorithm, clusterings())


def _server_points(n_clusters: int, n_features: int) -> Array:
    """A few points around the origin, which is their mean."""
    generator = np.random.default_rng(SEED)
    half = round_to_grid(generator.uniform(0.1, 0.7, (2 * n_clusters, n_features)))
    return np.concatenate([half, -half])


def _start(
    plan: Plan,
    config: RunConfig,
    server_points: HeldPoints | None,
    n_features: int,
) -> Array:
    """The public start, where there is one already; else the middle of the box."""
    if not plan.is_final:
        return np.zeros((config.n_clusters, n_features))
    points = None if server_points is None else server_points.on_server
    return np.asarray(initial_state(plan, points).centroids)


def _neighbours(
    plan: Plan,
    config: RunConfig,
    server_points: HeldPoints | None,
    n_features: int,
    anchors: int,
    others: int,
) -> Iterator[Neighbours]:
    """Pairs for every candidate of a target."""
    start = _start(plan, config, server_points, n_features)
    if config.client_sampling_rate < 1.0:
        # Whether the other clients take part is unknown to everybody, so there they
        # have nothing to add.
        others = 0
    table = np.repeat(start[:1], others, axis=0)
    background = [table.copy() for _ in range(plan.n_clients - 1)]
    if config.unit is PrivacyUnit.CLIENT:
        for name, rows in _target_tables(start, config, n_features):
            empty = np.zeros((0, n_features))
            yield Neighbours(name, (empty, *background), (rows, *background))
        return
    without = np.repeat(start[:1], anchors, axis=0)
    for name, row in _target_rows(start, plan, n_features):
        with_row = np.concatenate([without, row[None, :]])
        yield Neighbours(name, (without, *background), (with_row, *background))


def _target_rows(
    start: Array,
    plan: Plan,
    n_features: int,
) -> Iterator[tuple[str, Array]]:
    """Rows at corners, and at and inside the radius of the first start centroid."""
    corner = np.ones(n_features)
    yield "corner", corner
    yield "opposite corner", -corner
    radii = {planned.radius for planned in plan.rounds if planned.radius is not None}
    signs = {"+": 1.0, "-": -1.0}
    for radius, margin in itertools.product(sorted(radii), MARGINS):
        share = 1.0 - margin
        offset = np.floor(radius * share * 2.0**16) / 2.0**16
        for mark, sign in signs.items():
            row = start[0].copy()
            row[0] += sign * offset
            if abs(row[0]) <= 1.0:
                yield f"{share:g} of radius {radius:.3g}{mark}", row


def _target_tables(
    start: Array,
    config: RunConfig,
    n_features: int,
) -> Iterator[tuple[str, Array]]:
    """Tables of a client: one row, as many as declared, rows in several clusters."""
    corner = np.ones((1, n_features))
    yield "one row in a corner", corner
    many = np.repeat(corner, config.examples_per_client, axis=0)
    yield "declared number of rows in a corner", many
    if config.n_clusters > 1:
        near_starts = round_to_grid(np.clip(start * 2.0, -1.0, 1.0))
        yield "a row near each start centroid", near_starts
        yield "rows in opposite corners", np.concatenate([corner, -corner])
