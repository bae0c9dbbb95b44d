"""How `FederatedKMeans` runs a federation in one process: through Flower's messages, or without them.

``inprocess`` uses the same strategy, ClientApp, secure-aggregation mod and records as a deployment. ``direct`` runs
the same rounds, noise and masks without messages, for thousands of virtual clients.
"""

from __future__ import annotations

import secrets
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
from flwr.app import Context
from numpy.typing import ArrayLike, NDArray

from flwr_dpkmeans import baselines
from flwr_dpkmeans.algorithms.feddp_steps import COST_CURVE
from flwr_dpkmeans.algorithms.measure import EvaluationResult, read_evaluation
from flwr_dpkmeans.algorithms.server_points import hold_points, in_box, is_private, plan_bounds, resolve_bounds
from flwr_dpkmeans.data.bounds import Bounds
from flwr_dpkmeans.data.tables import frame_columns, validate_columns, validate_labels
from flwr_dpkmeans.errors import ConfigurationError, DataError, PrivacyWarning, nearest
from flwr_dpkmeans.flower.client_app import client_app
from flwr_dpkmeans.flower.inprocess import InProcessGrid, Node
from flwr_dpkmeans.flower.kmeans_client import KMeansClient
from flwr_dpkmeans.flower.mod import SecureAggregation
from flwr_dpkmeans.flower.strategy import PrivateKMeans
from flwr_dpkmeans.kmeans.update import round_to_grid
from flwr_dpkmeans.log import placed_logger
from flwr_dpkmeans.node.ledger import MemoryLedger
from flwr_dpkmeans.node.node_settings import NodeSettings
from flwr_dpkmeans.node.policy import ClientPolicy
from flwr_dpkmeans.options import PrivateBounds, parse_run
from flwr_dpkmeans.privacy.report import SIMULATED, PrivacyReport, Provenance, utc_now
from flwr_dpkmeans.sums.draft import draft_plan, resolve_delta
from flwr_dpkmeans.sums.local import run_direct
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.round import Labels
from flwr_dpkmeans.sums.settings import Box, Dropout
from flwr_dpkmeans.sums.settings import Evaluation as EvaluationKind
from flwr_dpkmeans.sums.state import State
from flwr_dpkmeans.sums.statement import Step, build_report
from flwr_dpkmeans.sums.task import Result, Run, Task, task_class

logger = placed_logger("flwr_dpkmeans.estimator")

Array = NDArray[np.float64]

RUN_ID = 1
"""Of every run without messages."""


@dataclass(frozen=True)
class FittedFederation:
    """What a clustering found."""

    scaled: Array
    """Centroids (k, d) in the box [-1, 1]^d of `bounds`; without post-processing some may lie outside."""
    bounds: Box
    """The box that data were scaled by."""
    counts: Array
    """Noisy counts (k,) of the last release."""
    movements: tuple[float, ...]
    """Largest step of a centroid in each Lloyd round, in scaled units."""
    privacy: PrivacyReport
    steps: tuple[Step, ...]
    """One for each aggregation."""
    cost_curve: Array | None = None
    """Cost over the number of clusters (largest k,), if the run chose it, in squared scaled units."""
    evaluation: EvaluationResult | None = None

    @property
    def centers(self) -> Array:
        """Centroids in the caller's units."""
        return Bounds(*self.bounds).unscale(self.scaled)


@dataclass(frozen=True)
class Federated:
    """What a task found.

    Parameters
    ----------
    plan : Plan
        The final one.
    state : State
        The last one, in the box [-1, 1]^d.
    privacy : PrivacyReport
        Cost, guarantee, every release.
    columns : tuple of str
        Names of the columns, where the tables have some.
    steps : tuple of Step
        One for each aggregation.
    evaluation : EvaluationResult or None
        Metrics of a clustering, if the run had an evaluation.
    """

    plan: Plan = field(repr=False)
    state: State = field(repr=False)
    privacy: PrivacyReport = field(repr=False)
    columns: tuple[str, ...] = ()
    steps: tuple[Step, ...] = field(default=(), repr=False)
    evaluation: EvaluationResult | None = field(default=None, repr=False)

    @property
    def result(self) -> Result:
        """What the task makes of the last state."""
        return self.plan.task.result(self.plan, self.state)

    def __getitem__(self, name: str) -> Array:
        return self.result[name]


def fit_inprocess(
    config: Run, parts: Sequence[Array], server_points: Array | None, labels: Sequence[Labels] | None = None
) -> FittedFederation:
    """Cluster through Flower's messages; parameters as in `play_inprocess`."""
    return _clustering(play_inprocess(config, parts, server_points, labels))


def fit_direct(
    config: Run, parts: Sequence[Array], server_points: Array | None, labels: Sequence[Labels] | None = None
) -> FittedFederation:
    """Cluster without messages; parameters as in `play_inprocess`."""
    return _clustering(play_directly(config, parts, server_points, labels))


def _clustering(found: Federated) -> FittedFederation:
    """What was found, as a clustering has it."""
    state = found.state
    return FittedFederation(
        state.centroids,
        found.plan.bounds,
        state.counts,
        state.movements,
        found.privacy,
        tuple(step for step in found.steps if not Plan.discovers(step.round_index)),
        state.extras.get(COST_CURVE),
        found.evaluation,
    )


def play_inprocess(
    config: Run, parts: Sequence[Array], server_points: Array | None, labels: Sequence[Labels] | None = None
) -> Federated:
    """Run any task through Flower's messages, every client behind the secure-aggregation mod.

    `parts` has one table (n_i, d) for each client, `server_points` (n_server, d) are the server's own, both in the
    caller's units; `labels` (n_i,) are for a task or an evaluation that looks at them. The result is that of one of the
    clients: under ``oblivious`` the server has none.
    """
    clients = [
        KMeansClient(part, feature_names=config.feature_names, labels=None if labels is None else labels[i])
        for i, part in enumerate(parts)
    ]
    grid = InProcessGrid([_node(client) for client in clients], run_id=secrets.randbits(62))
    strategy = PrivateKMeans.from_config(
        config,
        server_points=server_points,
        on_step=lambda step: logger.debug("%s", step),
        # The result says it, and Python's warnings show it once, not once for each fit in a loop.
        on_warning=lambda sentence: logger.debug("%s", sentence),
    )
    with grid.running():
        steps = strategy.start(grid).steps
    first = clients[0]
    if first.state_ is None or first.privacy_ is None:
        raise ConfigurationError("the run ended without a result: look at the log of flwr_dpkmeans.")
    return Federated(strategy.run.plan, first.state_, first.privacy_, config.feature_names, steps, first.evaluation_)


def play_directly(
    config: Run, parts: Sequence[Array], server_points: Array | None, labels: Sequence[Labels] | None = None
) -> Federated:
    """Run any task without messages; parameters as in `play_inprocess`."""
    if config.dropout not in (None, Dropout.undisturbed()):
        raise ConfigurationError(
            "dropout is 'recover', but engine='direct' has no messages that could be lost: leave dropout out, or use "
            "engine='inprocess'."
        )
    config = config.changed(dropout=Dropout.undisturbed())
    held = None if server_points is None else hold_points(config, server_points)
    started, seed = utc_now(), config.random_state if config.random_state is not None else secrets.randbits(62)
    plan = draft_plan(
        config,
        run_id=RUN_ID,
        n_clients=len(parts),
        seed=seed,
        n_features=parts[0].shape[1],
        server=None if held is None else held.facts,
        public_points=None if held is None else held.public,
    )
    found = run_direct(
        plan,
        parts,
        scale=_in_box,
        server_points=None if held is None else held.kept,
        labels=labels,
        on_step=lambda step: logger.debug("%s", step),
    )
    counts = found.state.arrays.get("counts")
    report = build_report(found.plan, found.attempts, SIMULATED, counts=counts, unclear=found.found.unclear)
    report = replace(report, provenance=_provenance(started))
    evaluation = read_evaluation(found.plan, found.state) if "centroids" in found.state.arrays else None
    return Federated(found.plan, found.state, report, config.feature_names, tuple(found.steps), evaluation)


def _provenance(started: str) -> Provenance:
    """Where the result of a run without messages comes from; no plan had to be agreed on in it."""
    return Provenance.of(RUN_ID, "all parties", b"", started=started)


def _in_box(plan: Plan, points: Array) -> Array:
    """One client's points in the plan's box, on the grid."""
    return in_box(plan_bounds(plan, points.shape[1]), points, plan.fraction_bits)


def fit_in_one_place(
    config: Run, parts: Sequence[Array], server_points: Array | None, labels: Sequence[Labels] | None = None
) -> FittedFederation:
    """Run a baseline that needs all rows together; parameters as in `play_inprocess`."""
    del server_points, labels
    if config.evaluation is not EvaluationKind.NONE:
        raise ConfigurationError(
            f"evaluation is {config.evaluation.value!r}, but {config.algorithm!r} runs on all rows in one place, "
            "without rounds: leave evaluation out and measure the result there."
        )
    if config.private_bounds:
        raise ConfigurationError(
            f"bounds are 'private', but {config.algorithm!r} runs on all rows in one place and needs declared ones: "
            "give bounds, or choose 'proxy_lloyd'."
        )
    bounds = Bounds(*config.bounds).for_features(parts[0].shape[1])
    scaled = [round_to_grid(bounds.scale(part)) for part in parts]
    started = utc_now()
    found = baselines.run(config, scaled, resolve_delta(config, len(parts)))
    privacy = replace(found.privacy, provenance=_provenance(started))
    return FittedFederation(found.centroids, (bounds.lower, bounds.upper), found.counts, (), privacy, ())


def _node(client: KMeansClient) -> Node:
    """A virtual node that holds one client's rows and keeps its ledger in memory."""
    # All parties are the caller's own here, so only the plan's own limits apply.
    settings = NodeSettings(ClientPolicy(max_delta=0.5), MemoryLedger(), "default", simulated=True)

    def own_settings(_: Context) -> NodeSettings:
        return settings

    def own_client(_: Context) -> KMeansClient:
        return client

    return Node(client_app(own_client, mod=SecureAggregation(own_settings)))


_ENGINES = {"inprocess": play_inprocess, "direct": play_directly}


def federate(
    task: str | Task,
    parts: Sequence[ArrayLike],
    *,
    bounds: Any,
    labels: Sequence[ArrayLike] | None = None,
    engine: str = "inprocess",
    n_examples: int | str | None = None,
    **options: Any,
) -> Federated:
    """Compute a private statistic over several parties' tables, all of them simulated in this process.

    Parameters
    ----------
    task : str or Task
        A registered name such as ``"moments"``, ``"histograms"``, ``"radii"`` or ``"naive_bayes"``, or a task with its
        options.
    parts : sequence of array-like, (n_i, n_features)
        One table for each party, at least two; data frames' columns are put in the first one's order.
    bounds : pair
        Public bounds of the columns; values outside are clipped.
    labels : sequence of array-like of int, (n_i,), optional
        Classes from 0 on, for a task that looks at labels.
    engine : str
        ``"inprocess"``: Flower's messages in this process; ``"direct"``: the same rounds without messages.
    n_examples : int or "private", optional
        Public number of rows; None: the total of the parts, listed in the report as declared public; "private": not
        public.
    **options
        Settings of a run by their flat names, such as ``epsilon``, ``trust`` or ``noise``, and options of a task that
        is given by its name.

    Returns
    -------
    Federated

    Raises
    ------
    ConfigurationError, DataError, PlanError, BudgetError
        One sentence, before anything is computed.

    Examples
    --------
    >>> tables = [np.full((300, 1), value) for value in (2.0, 4.0)]
    >>> found = federate("moments", tables, bounds=(0, 10), epsilon=8.0, noise="seeded", random_state=1)
    >>> found["mean"].round(), found.privacy.epsilon <= 8.0
    (array([3.]), True)
    """
    if engine not in _ENGINES:
        raise ConfigurationError(f"engine is {engine!r}, which is not known: {nearest(engine, _ENGINES)}")
    tables, names = _tables(parts)
    if bounds is None or isinstance(bounds, PrivateBounds) or is_private(bounds):
        what = "no bounds were given" if bounds is None else "bounds are 'private'"
        raise ConfigurationError(
            f"{what}, but this task does not find them by itself: give a public (lower, upper) pair, such as "
            "(0, 100), or a bounds file."
        )
    box, order, _ = resolve_bounds(bounds, None, None, names=names)
    if order != names:
        raise DataError("the bounds file names columns, but the tables have no names: give data frames.")
    values: dict[str, Any] = {**_options_of(task), **options, "bounds": (box.lower, box.upper), "feature_names": names}
    values |= {"n_features": tables[0].shape[1], "n_clients": len(tables)}
    values["n_examples"] = sum(map(len, tables)) if n_examples is None else n_examples
    values["n_examples"] = None if n_examples == "private" else values["n_examples"]
    run = parse_run(**values)
    classes = _classes(labels, tables, run.task.n_classes(run.settings))
    found = _ENGINES[engine](run, tables, None, classes)
    for sentence in found.privacy.warnings:
        warnings.warn(sentence, PrivacyWarning, stacklevel=2)
    return found


def _options_of(task: str | Task) -> dict[str, Any]:
    """A task's name and options by their flat names."""
    if isinstance(task, str):
        task_class(task)
        return {"algorithm": task}
    if not isinstance(task, Task):
        raise ConfigurationError(f"task is {task!r}, but it must be a registered name or a Task: give 'moments'.")
    own = {name: getattr(task, name) for name in task.own_fields()}
    own |= {one.name: getattr(task.options, one.name) for one in fields(task.options)}
    return {"algorithm": task.name, **own}


def _tables(parts: Sequence[ArrayLike]) -> tuple[list[Array], tuple[str, ...]]:
    """The parties' tables with the first one's columns in its order."""
    if getattr(parts, "ndim", 0) == 2 or not isinstance(parts, Iterable) or isinstance(parts, str | bytes | Mapping):
        raise DataError("one table was given, but there is one for each party: pass a list such as [X_a, X_b].")
    listed = list(parts)
    if len(listed) < 2:
        raise DataError(f"there are {len(listed)} tables, but masks need at least 2 parties: pass one for each.")
    names = frame_columns(listed[0])
    if any(bool(frame_columns(one)) != bool(names) for one in listed):
        raise DataError("some tables have column names and others have none: give data frames only, or arrays only.")
    tables = [validate_columns(one, names) for one in listed]
    if len({table.shape[1] for table in tables}) > 1:
        raise DataError("the parties' tables differ in their number of columns, but all need the same ones.")
    return tables, names


def _classes(
    labels: Sequence[ArrayLike] | None, tables: Sequence[Array], n_classes: int
) -> list[NDArray[np.int64]] | None:
    """The parties' labels, which a task that looks at none must not be given."""
    if (labels is None) != (n_classes == 0):
        told = "none were given" if labels is None else "labels were given"
        wants = "looks at labels" if n_classes else "looks at no labels"
        raise DataError(f"this task {wants}, but {told}: pass one array for each party only where it does.")
    if labels is None:
        return None
    listed = list(labels)
    if len(listed) != len(tables):
        raise DataError(f"there are labels for {len(listed)} parties, but {len(tables)} tables: pass one for each.")
    return [validate_labels(own, len(table), n_classes) for own, table in zip(listed, tables, strict=True)]
