"""Tasks whose rounds are not what they say, in the place of honest ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from flwr_dpkmeans.sums.public_facts import PublicFacts
from flwr_dpkmeans.sums.round import Algorithm, PrivateSum
from flwr_dpkmeans.sums.task import TASKS

Change = Callable[[int, PrivateSum], PrivateSum]
"""``change(index, round)``: the wrong round for an honest one, counted from 1."""


def plant_rounds(patch: pytest.MonkeyPatch, name: str, change: Change) -> None:
    """Let the task of a name build other rounds."""
    kind = TASKS[name]

    class Wrong(kind):  # type: ignore[valid-type, misc]
        def build(self, public: PublicFacts) -> Algorithm:
            algorithm: Algorithm = super().build(public)
            rounds = [
                change(index, step)
                for index, step in enumerate(algorithm.rounds, start=1)
            ]
            return replace(algorithm, rounds=tuple(rounds))

    patch.setitem(TASKS, name, Wrong)
