"""Tasks whose rounds are not what they say, in the place of honest ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace

import numpy as np
import pytest
from numpy.typing import NDArray

from flwr_dpkmeans.sums.public_facts import PublicFacts
from flwr_dpkmeans.sums.round import Algorithm, PrivateSum, State
from flwr_dpkmeans.sums.task import TASKS, Task

Array = NDArray[np.float64]
Change = Callable[[int, PrivateSum], PrivateSum]
"""``change(index, round)``: the wrong round for an honest one, counted from 1."""
Builder = Callable[[PublicFacts], Algorithm]
Build = Callable[[Builder, PublicFacts], Algorithm]


def _plant(patch: pytest.MonkeyPatch, name: str, build: Build) -> None:
    """Let ``build(honest, public)`` make the rounds of the task of a name."""
    kind = TASKS[name]

    class Wrong(kind):  # type: ignore[valid-type, misc]
        def build(self, public: PublicFacts) -> Algorithm:
            return build(super().build, public)

        def __reduce__(self) -> object:
            values = {item.name: getattr(self, item.name) for item in fields(self)}
            return _planted, (name, values)

    patch.setitem(TASKS, name, Wrong)


def _planted(name: str, values: dict[str, object]) -> Task:
    """The task of a name as it is planted here, for one that travels as a pickle."""
    return TASKS[name](**values)


def plant_rounds(patch: pytest.MonkeyPatch, name: str, change: Change) -> None:
    """Let the task of a name build other rounds."""

    def build(honest: Builder, public: PublicFacts) -> Algorithm:
        algorithm = honest(public)
        rounds = [
            change(index, step) for index, step in enumerate(algorithm.rounds, start=1)
        ]
        return replace(algorithm, rounds=tuple(rounds))

    _plant(patch, name, build)


def plant_facts(
    patch: pytest.MonkeyPatch, name: str, other: Callable[[PublicFacts], PublicFacts]
) -> None:
    """Let clients compute by other public facts than the plan's.

    Blocks and what follows from a release stay as they are.
    """

    def build(honest: Builder, public: PublicFacts) -> Algorithm:
        planned, computed = honest(public), honest(other(public))
        rounds = [
            replace(step, statistic=another.statistic, of_each=None)
            for step, another in zip(planned.rounds, computed.rounds, strict=True)
        ]
        return replace(planned, rounds=tuple(rounds))

    _plant(patch, name, build)


ChangeArray = Callable[[str, Array, Array, State], Array]
"""``change(name, array, rows, state)``: the wrong array for an honest one."""


def plant_arrays(patch: pytest.MonkeyPatch, name: str, change: ChangeArray) -> None:
    """Let clients add other arrays."""

    def with_change(_: int, step: PrivateSum) -> PrivateSum:
        def statistic(rows: Array, state: State) -> Sequence[Array]:
            arrays = step.statistic(rows, state)
            return [
                change(block.name, array, rows, state)
                for block, array in zip(step.blocks, arrays, strict=True)
            ]

        return replace(step, statistic=statistic, of_each=None)

    plant_rounds(patch, name, with_change)
