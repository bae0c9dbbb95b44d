"""The configuration of one run: what every run has, and its task with its options."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from flwr_dpkmeans.sums.settings import Settings
from flwr_dpkmeans.sums.task import Task


@dataclass(frozen=True)
class RunConfig:
    """What is asked for: the settings that every run has, and the task.

    Options may be read by their flat names (`run.epsilon`, `run.alpha`,
    `run.n_clusters`).
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

        Runs that differ in it alone share rounds.
        """
        return replace(self, settings=replace(self.settings, random_state=None))

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_"):
            for holder in (self.settings, self.task, self.task.options):
                if name in holder.__dataclass_fields__:
                    return getattr(holder, name)
        raise AttributeError(f"this run has no option {name!r}")

    def changed(self, **values: Any) -> RunConfig:
        """The same with other values of some options, by their flat names."""
        settings = {
            name: values.pop(name)
            for name in self.settings.__dataclass_fields__
            if name in values
        }
        own = {
            name: values.pop(name)
            for name in self.task.parameter_names()
            if name in values
        }
        task = replace(self.task, **own, options=replace(self.task.options, **values))
        return RunConfig(replace(self.settings, **settings), task)
