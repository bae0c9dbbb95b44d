"""The configuration of one run: what every run has, and its task with its options."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from flwr_dpkmeans.sums.settings import Settings
from flwr_dpkmeans.sums.task import Task


@dataclass(frozen=True)
class RunConfig:
    """One run's configuration: the settings that every run has, and the task.

    Options may be read by their flat names (`config.epsilon`, `config.alpha`,
    `config.n_clusters`).
    """

    settings: Settings
    task: Task

    def __post_init__(self) -> None:
        self.task.check(self.settings)

    @property
    def algorithm(self) -> str:
        """Name of the task."""
        return self.task.name

    @cached_property
    def unseeded(self) -> RunConfig:
        """The same without the public seed, on which no round depends.

        So runs that differ in it alone share rounds.
        """
        settings = replace(self.settings, random_state=None)
        return replace(self, settings=settings)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            # Whoever copies or stores it looks for such names before there are fields.
            raise AttributeError(f"this run has no option {name!r}")
        task = self.task
        for holder in (self.settings, task, task.options):
            if name in holder.__dataclass_fields__:
                return getattr(holder, name)
        raise AttributeError(f"this run has no option {name!r}")

    def changed(self, **values: object) -> RunConfig:
        """The same with other values of some options, by their flat names."""
        settings = self.settings
        task = self.task
        of_settings = _popped(values, settings.__dataclass_fields__)
        of_task = _popped(values, task.parameter_names())
        options = replace(task.options, **values)
        return RunConfig(
            settings=settings.set_params(**of_settings),
            task=replace(task, **of_task, options=options),
        )


def _popped(values: dict[str, object], names: Iterable[str]) -> dict[str, object]:
    """Take some values out, where they are there."""
    popped = {}
    for name in names:
        if name in values:
            popped[name] = values.pop(name)
    return popped
