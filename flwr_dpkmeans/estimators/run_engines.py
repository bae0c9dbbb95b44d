"""How a run's messages travel: through Flower's, or without any.

``inprocess`` uses the same strategy, ClientApp, secure-aggregation mod and records as a
deployment. ``direct`` runs the same rounds, noise and masks without messages, for
thousands of virtual clients.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import replace

from flwr_dpkmeans.algorithms.first_plan import first_plan
from flwr_dpkmeans.algorithms.measure.evaluation_result import read_evaluation
from flwr_dpkmeans.algorithms.server.box_units import in_box, plan_bounds
from flwr_dpkmeans.errors import (
    ConfigurationError,
)
from flwr_dpkmeans.estimators.party_tables import Tables
from flwr_dpkmeans.log import placed_logger
from flwr_dpkmeans.privacy.provenance import Provenance, utc_now
from flwr_dpkmeans.privacy.report import PrivacyReport
from flwr_dpkmeans.privacy.sentences import report_sentence
from flwr_dpkmeans.results.federated import Federated
from flwr_dpkmeans.sums.config import RunConfig
from flwr_dpkmeans.sums.local import run_direct
from flwr_dpkmeans.sums.persons.counted_persons import Persons
from flwr_dpkmeans.sums.persons.row_units import Weights
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.registry import Registry
from flwr_dpkmeans.sums.round import Array, Labels, State
from flwr_dpkmeans.sums.settings import Box, Dropout
from flwr_dpkmeans.sums.statement import (
    Step,
    build_report,
)
from flwr_dpkmeans.threads import one_thread

logger = placed_logger("flwr_dpkmeans.estimator")

InOnePlace = tuple[State, Box, PrivacyReport]
"""Centroids and counts in the scaled box, the box, and what releasing them costs."""


def play_directly(
    config: RunConfig,
    parts: Sequence[Array],
    server_points: Array | None,
    labels: Sequence[Labels] | None = None,
    on_step: Callable[[Step], None] = logger.debug,
    *,
    persons: Sequence[Persons] | None = None,
    weights: Sequence[Weights] | None = None,
) -> Federated:
    """Run any task without messages; parameters as in `play_inprocess`."""
    if config.dropout not in (None, Dropout.undisturbed()):
        raise ConfigurationError(
            "dropout is 'recover', but engine='direct' has no messages that could be"
            " lost: leave dropout out, or use engine='inprocess'."
        )
    config = config.changed(dropout=Dropout.undisturbed())
    started = utc_now()
    width = parts[0].shape[1]
    plan, points_of_server = first_plan(
        config,
        server_points,
        run_id=secrets.randbits(62),
        n_clients=len(parts),
        n_features=width - config.settings.n_beside,
    )
    with one_thread():
        run = run_direct(
            plan,
            parts,
            scale=_in_box,
            server_points=points_of_server,
            labels=labels,
            persons=persons,
            weights=weights,
            on_step=on_step,
        )
    report = build_report(
        run.plan,
        run.attempts,
        report_sentence("simulated"),
        state=run.state,
        unclear=run.first.discoveries.unclear,
    )
    provenance = Provenance.of(
        plan.run_id,
        "all parties",
        run.digest,
        started=started,
    )
    evaluation = None
    if "centroids" in run.state.arrays:
        evaluation = read_evaluation(run.plan, run.state)
    return Federated(
        run.plan,
        run.state,
        replace(report, provenance=provenance),
        config.feature_names,
        tuple(run.steps),
        evaluation,
    )


def _in_box(plan: Plan, points: Array) -> Array:
    """Rows in the units of the data as the plan's sums take them."""
    bounds = plan_bounds(plan, points.shape[1])
    return in_box(bounds, points, plan.fraction_bits)


def fit_in_one_place(
    config: RunConfig,
    parts: Sequence[Array],
    *,
    persons: Sequence[Persons] | None = None,
) -> InOnePlace:
    """Run a baseline that needs all rows, (n_i, d) for each party, together.

    Where persons are protected, one row of each counts.
    """
    if persons is not None:
        pairs = zip(parts, persons, strict=True)
        parts = [part[of_part.counted(1).rows] for part, of_part in pairs]
    if config.settings.profile_widths:
        raise ConfigurationError(
            f"the schema asks for a profile, but {config.algorithm!r} has none: leave"
            " it out."
        )
    try:
        # An app's bundle has no baselines: nodes never run them.
        from flwr_dpkmeans.baselines import fit
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"{config.algorithm!r} is for comparison only and no part of the package"
            " alone: run it in a copy of the project, or choose 'proxy_lloyd'."
        ) from error
    started = utc_now()
    width = parts[0].shape[1]
    n_features = width - config.settings.n_beside
    points = [part[:, :n_features] for part in parts]
    state, box, privacy = fit(config, points)
    no_plan = b""
    provenance = Provenance.of(
        secrets.randbits(62),
        "all parties",
        no_plan,
        started=started,
    )
    return state, box, replace(privacy, provenance=provenance)


ENGINES: Registry[Callable[..., Federated]] = Registry(
    "flwr_dpkmeans.engines", "engine"
)
"""How a run's messages travel, by name."""
# Flower is imported when this one is asked for.
ENGINES.offer("inprocess", "flwr_dpkmeans.flower.engines:play_inprocess")
ENGINES.add("direct", play_directly)


def played(
    engine: str,
    config: RunConfig,
    tables: Tables,
    server_points: Array | None,
    labels: Sequence[Labels] | None = None,
    on_step: Callable[[Step], None] | None = None,
) -> Federated:
    """Play a run over tables by one of the engines."""
    options: dict[str, object] = {}
    persons = tables.persons_of(config.settings)
    if persons is not None:
        options["persons"] = persons
    if config.settings.max_weight is not None:
        options["weights"] = tables.weights
    if on_step is not None:
        options["on_step"] = on_step
    play = ENGINES[engine]
    return play(config, tables.parts, server_points, labels, **options)
