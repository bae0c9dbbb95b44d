"""Any registered task over several parties' tables in one process: `federate`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from numpy.typing import ArrayLike

from flwr_dpkmeans.algorithms.server_points import (
    is_private,
)
from flwr_dpkmeans.data import points as data_points
from flwr_dpkmeans.data.classes import named_classes
from flwr_dpkmeans.data.schema import schema_of
from flwr_dpkmeans.errors import (
    ConfigurationError,
    DataError,
    InputWarning,
    warn,
)
from flwr_dpkmeans.estimators.party_tables import Tables
from flwr_dpkmeans.estimators.run_engines import ENGINES
from flwr_dpkmeans.options import PrivateBounds
from flwr_dpkmeans.results.federated import Federated
from flwr_dpkmeans.sums.task import TASKS, Task


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
    """Compute a private statistic over several parties' tables, all of them simulated
    in this process.

    Parameters
    ----------
    task : str or Task
        A registered name such as ``"moments"``, ``"histograms"`` or ``"naive_bayes"``,
        or a task with its options.
    parts : sequence of array-like, (n_i, n_features)
        One table for each party, at least two; data frames' columns are put in the
        first one's order.
    bounds : pair
        Public bounds of the columns; values outside are clipped.
    labels : sequence of array-like of int or str, (n_i,), optional
        Classes from 0 on, for a task that looks at labels; or their names, all of which
        occur: they are public then.
    engine : str
        ``"inprocess"``: Flower's messages in this process; ``"direct"``: the same
        rounds without messages.
    n_examples : int or "private", optional
        Public number of rows; None: the total of the parts, listed in the report as
        declared public; or "private".
    **options
        Settings of a run by their flat names, such as ``epsilon``, ``trust`` or
        ``noise``, and options of a task that is given by its name.

    Raises
    ------
    ConfigurationError, DataError, PlanError, BudgetError
        One sentence, before anything is computed.

    Examples
    --------
    >>> import numpy as np
    >>> tables = [np.full((300, 1), value) for value in (2.0, 4.0)]
    >>> found = federate("moments", tables, bounds=(0, 10), epsilon=8.0, noise="seeded", random_state=1)
    >>> found["mean"].round(), found.privacy.epsilon <= 8.0
    (array([3.]), True)
    """
    tables = Tables.of(parts, "parts", schema=schema_of(bounds))
    return federate_tables(
        task,
        tables,
        bounds,
        labels,
        engine=engine,
        n_examples=n_examples,
        **options,
    )


def federate_tables(
    task: str | Task,
    tables: Tables,
    bounds: Any,
    labels: Any = None,
    *,
    class_names: Sequence[Any] | None = None,
    engine: str = "inprocess",
    n_examples: int | str | None = None,
    **options: Any,
) -> Federated:
    """Compute a private statistic over tables that are read, see `federate`.

    `class_names` are public, in the order of the classes; None: labels are numbers from
    0 on, or texts.
    """
    play, schema = ENGINES.find(engine), schema_of(bounds)
    standard = schema is not None and bool(schema.standard_columns)
    if (
        bounds is None
        or isinstance(bounds, PrivateBounds)
        or is_private(bounds)
        or standard
    ):
        what = (
            "no bounds were given"
            if bounds is None
            else "bounds, or the schema's scale, are private"
        )
        raise ConfigurationError(
            f"{what}, but this task does not find them by itself: give a public (lower,"
            " upper) pair, such as (0, 100), or a bounds file."
        )
    rows = tables.n_examples if n_examples is None else n_examples
    run, _ = tables.run(
        {**_options_of(task), **options, "bounds": schema or bounds, "n_examples": rows}
    )
    n_classes = run.task.n_classes(run.settings)
    if (labels is None) != (n_classes == 0):
        told = "none were given" if labels is None else "labels were given"
        wants = "looks at labels" if n_classes else "looks at no labels"
        raise DataError(
            f"this task {wants}, but {told}: pass one array for each party only where"
            " it does."
        )
    own = "classes" in run.task.options.get_params()
    option = "classes (n_classes of FederatedNaiveBayes)" if own else "n_classes"
    doubts = [data_points.doubtful_pairs(bounds), *tables.doubts()]
    warn([sentence for sentence in doubts if sentence], InputWarning)
    names = (
        named_classes(labels, n_classes) if class_names is None else list(class_names)
    )
    coded = (
        None
        if labels is None
        else tables.labels(
            labels,
            n_classes,
            option,
            names,
        )
    )
    found = play(
        run,
        tables.parts,
        None,
        coded,
    )
    local = tables.local_cautions(
        run,
        found.plan.delta,
        found.plan.bounds,
        found.plan.n_features or 0,
    )
    warn(found.privacy.warnings + local)
    return replace(found, labels=tables.columns, classes=tuple(names))


def _options_of(task: str | Task) -> dict[str, Any]:
    if isinstance(task, str):
        TASKS.find(task)
        return {"algorithm": task}
    if not isinstance(task, Task):
        raise ConfigurationError(
            f"task is {task!r}, but it must be a registered name or a Task: give"
            " 'moments'."
        )
    own = {name: getattr(task, name) for name in task.parameter_names()}
    return {"algorithm": task.name, **own, **task.options.get_params()}
