"""A registered task over several parties' tables in one process: `federate`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from numpy.typing import ArrayLike

from flwr_dpkmeans.algorithms.discovery.discovering_task import DiscoveringTask
from flwr_dpkmeans.algorithms.server.resolved_bounds import is_private
from flwr_dpkmeans.data.bounds.stated_bounds import doubtful_pairs
from flwr_dpkmeans.data.classes import named_classes
from flwr_dpkmeans.data.schema import Schema
from flwr_dpkmeans.data.schema_source import schema_of
from flwr_dpkmeans.errors import (
    ConfigurationError,
    DataError,
    InputWarning,
    warn,
)
from flwr_dpkmeans.estimators.budgets.fit_budget import Budget, charge_fit
from flwr_dpkmeans.estimators.fitted_persons import stated_persons, taken_apart, unit_of
from flwr_dpkmeans.estimators.inputs import PartyLabels
from flwr_dpkmeans.estimators.party_tables import Tables
from flwr_dpkmeans.estimators.run_engines import ENGINES, played
from flwr_dpkmeans.options import PrivateBounds
from flwr_dpkmeans.options.flat import flat_options
from flwr_dpkmeans.privacy.release import PrivacyUnit
from flwr_dpkmeans.results.federated import Federated
from flwr_dpkmeans.sums.task import TASKS, Task


def federate(
    task: str | Task,
    parts: Sequence[ArrayLike],
    *,
    bounds: object,
    labels: Sequence[ArrayLike] | None = None,
    persons: object = None,
    sample_weight: object = None,
    engine: str = "inprocess",
    budget: Budget | None = None,
    **options: Any,
) -> Federated:
    """Compute a private statistic over several parties' tables.

    All of them simulated in this process.

    Parameters
    ----------
    task : str or Task
        A registered name such as ``"moments"``, ``"histograms"`` or ``"naive_bayes"``,
        or a task with its options.
    parts : sequence of array-like, (n_i, n_features)
        One table for each party, at least two; data frames' columns are put in the
        first one's order.
    bounds : pair, "private" or PrivateBounds
        Public bounds of the columns; values outside are clipped. Quantiles and
        principal components can find them privately, with a part of the budget.
    labels : sequence of array-like of int or str, (n_i,), optional
        Classes from 0 on, for a task that looks at labels; or their names, all of which
        occur: they are public then.
    persons : str or sequence of array-like, (n_i,), optional
        Whose row each is, as in `FederatedKMeans.fit`: then persons are protected.
    sample_weight : sequence of array-like, (n_i,), optional
        What each row weighs, up to ``max_weight``, as in `FederatedKMeans.fit`.
    engine : str
        ``"inprocess"``: Flower's messages in this process; ``"direct"``: the same
        rounds without messages.
    budget : Budget, optional
        What the statistic is charged to, besides budgets that are contexts.
    **options
        Settings of a run by their flat names, such as ``epsilon``, ``trust``, ``noise``
        or ``max_weight``, and options of a task that is given by its name.
        ``n_examples`` is the public number of rows, or "private"; None: the total of
        the parts, listed in the report as declared public.

    Raises
    ------
    ConfigurationError, DataError, PlanError, BudgetError
        One sentence, before anything is computed.

    Examples
    --------
    >>> import numpy as np
    >>> tables = [np.full((300, 1), value) for value in (2.0, 4.0)]
    >>> options = {"epsilon": 8.0, "noise": "seeded", "random_state": 1}
    >>> result = federate("moments", tables, bounds=(0, 10), **options)
    >>> result["mean"].round(), result.privacy.epsilon <= 8.0
    (array([3.]), True)
    """
    schema = schema_of(bounds)
    unit = options.get("unit", PrivacyUnit.RECORD.value)
    persons = stated_persons(persons, schema, unit)
    without, ids = taken_apart(parts, persons, "parts", schema=schema)
    tables = Tables.of(without, "parts", schema=schema).with_persons(ids)
    tables = tables.with_weights(sample_weight, options.get("max_weight"))
    return federate_tables(
        task,
        tables,
        bounds,
        labels,
        engine=engine,
        budget=budget,
        **options,
    )


def federate_tables(
    task: str | Task,
    tables: Tables,
    bounds: object,
    labels: PartyLabels | None = None,
    *,
    class_names: Sequence[object] | None = None,
    engine: str = "inprocess",
    n_examples: int | str | None = None,
    budget: Budget | None = None,
    **options: object,
) -> Federated:
    """Compute a private statistic over tables that are read, see `federate`.

    `class_names` are public, in the order of the classes; None: labels are numbers from
    0 on, or texts.
    """
    ENGINES.find(engine)
    schema = schema_of(bounds)
    run_options = _options_of(task) | options
    name = str(run_options["algorithm"])
    is_discovering = issubclass(TASKS[name], DiscoveringTask)
    _require_public_bounds(bounds, schema, is_discovering=is_discovering)
    run_options["bounds"] = bounds if schema is None else schema
    if isinstance(bounds, PrivateBounds):
        run_options |= flat_options({"bounds": bounds})
    unit = run_options.get("unit", PrivacyUnit.RECORD.value)
    run_options["unit"] = unit_of(unit, tables.persons)
    run_options["max_weight"] = tables.max_weight
    run_options["n_examples"] = tables.n_examples if n_examples is None else n_examples
    config, _ = tables.run(run_options)
    n_classes = config.task.n_classes(config.settings)
    _require_labels(n_classes, has_labels=labels is not None)
    stated = bounds.domain if isinstance(bounds, PrivateBounds) else bounds
    doubts = [doubtful_pairs(stated), *tables.doubts()]
    warn([sentence for sentence in doubts if sentence], InputWarning)
    names: list[object] = []
    if class_names is not None:
        names = list(class_names)
    else:
        names = named_classes(labels, n_classes)
    codes = None
    if labels is not None:
        has_classes = "classes" in config.task.options.get_params()
        option = "n_classes"
        if has_classes:
            option = "classes (n_classes of FederatedNaiveBayes)"
        codes = tables.labels(
            labels,
            n_classes,
            option,
            names,
        )
    charge_fit(
        budget,
        config,
        tables.parts,
        None,
        engine,
    )
    result = played(
        engine,
        config,
        tables,
        None,
        codes,
    )
    cautions = tables.local_cautions(
        config,
        result.plan.delta,
        result.plan.bounds,
        result.plan.n_features or 0,
    )
    warn(result.privacy.warnings + cautions)
    return replace(result, labels=tables.columns, classes=tuple(names))


def _require_public_bounds(
    bounds: object, schema: Schema | None, *, is_discovering: bool
) -> None:
    """Refuse bounds that are to be found privately, unless the task finds some."""
    has_private_scale = schema is not None and bool(schema.standard_columns)
    if bounds is None:
        what = "no bounds were given"
    elif has_private_scale:
        what = "the schema's scale is private"
    elif is_discovering:
        return
    elif isinstance(bounds, PrivateBounds) or is_private(bounds):
        what = "bounds are private"
    else:
        return
    raise ConfigurationError(
        f"{what}, but this task does not find them by itself: give a public (lower,"
        " upper) pair, such as (0, 100), or a bounds file."
    )


def _require_labels(n_classes: int, *, has_labels: bool) -> None:
    """Refuse labels that a task does not look at, and the lack of those it does."""
    if has_labels == (n_classes > 0):
        return
    wants = "looks at labels" if n_classes else "looks at no labels"
    what = "labels were given" if has_labels else "none were given"
    raise DataError(
        f"this task {wants}, but {what}: pass one array for each party only where"
        " it does."
    )


def _options_of(task: str | Task) -> dict[str, object]:
    if isinstance(task, str):
        TASKS.find(task)
        return {"algorithm": task}
    if not isinstance(task, Task):
        raise ConfigurationError(
            f"task is {task!r}, but it must be a registered name or a Task: give"
            " 'moments'."
        )
    parameters = {name: getattr(task, name) for name in task.parameter_names()}
    options = task.options.get_params()
    return {"algorithm": task.name, **parameters, **options}
