"""What a run over several parties found: `Federated`."""

from __future__ import annotations

from collections.abc import Iterator, KeysView, Mapping
from dataclasses import dataclass, replace

from flwr_dpkmeans.algorithms.kmeans_task import KMeansTask
from flwr_dpkmeans.algorithms.measure.evaluation_result import EvaluationResult
from flwr_dpkmeans.algorithms.statistics.one_round import OneRoundTask
from flwr_dpkmeans.privacy.report import PrivacyReport
from flwr_dpkmeans.results.values import OF_CENTRES, Values
from flwr_dpkmeans.sums.outcome import Result
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.round import Array, State
from flwr_dpkmeans.sums.statement import (
    Step,
)


@dataclass(frozen=True)
class Federated:
    """What a task found; its arrays by name as ``result["mean"]``."""

    plan: Plan
    """The final one."""
    state: State
    """The last one, in the box [-1, 1]^d."""
    privacy: PrivacyReport
    columns: tuple[str, ...] = ()
    """Names of the columns, where the tables have some."""
    steps: tuple[Step, ...] = ()
    """One for each aggregation."""
    evaluation: EvaluationResult | None = None
    """Metrics of a clustering, if the run had an evaluation."""
    labels: tuple[object, ...] = ()
    """Of the columns of frames, also where these are no names."""
    classes: tuple[object, ...] = ()
    """Names of classes, in the order of what was released of them.

    Empty where they are numbers from 0 on.
    """

    @property
    def result(self) -> Result:
        """What the task makes of the last state."""
        return self.plan.task.result(self.plan, self.state)

    @property
    def errors(self) -> Mapping[str, Array]:
        """Of some arrays, how far noise may have moved each entry.

        Half of a 95% interval, in the entry's unit.
        """
        return self.result.errors

    @property
    def values(self) -> Values:
        """All numbers with the names of columns and classes, and with their errors.

        To be printed or as a frame.
        """
        plan = self.plan
        task = plan.task
        result = self.result
        title = (
            f"{task.name} of {plan.n_clients} parties, epsilon"
            f" {self.privacy.epsilon:.4g}"
        )
        names = {"column": list(self.columns), "class": list(map(str, self.classes))}
        if isinstance(task, OneRoundTask):
            names |= task.axis_names(self.columns, plan.n_features or 0)
        # Errors that are arrays, too, stand beside what they are errors of.
        error_ids = set(map(id, result.errors.values()))
        arrays = {}
        for name, array in result.arrays.items():
            if id(array) not in error_ids:
                arrays[name] = array
        values = Values.of(
            title,
            arrays,
            result.errors,
            result.axes,
            names,
        )
        note = OF_CENTRES if isinstance(task, KMeansTask) else values.note
        return replace(values, note=note)

    def __str__(self) -> str:
        return str(self.values)

    def _repr_html_(self) -> str:
        return self.values._repr_html_()

    def __getitem__(self, name: str) -> Array:
        return self.result[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.result)

    def keys(self) -> KeysView[str]:
        """Names of the arrays."""
        return self.result.keys()

    def __repr__(self) -> str:
        arrays = self.result.arrays
        shapes = [f"{name!r} {array.shape}" for name, array in arrays.items()]
        return (
            f"{type(self).__name__}({', '.join(shapes)}; {self.plan.task.name}, epsilon"
            f" {self.privacy.epsilon:.4g})"
        )
