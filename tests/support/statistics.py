"""What clients compute, watched or changed for the time of a test."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from flwr_dpkmeans.flower.client.wrapped import Wrapped
from flwr_dpkmeans.sums.client import transitions

Compute = Callable[[Wrapped, Any, int], Any]


def plant_statistic(
    patch: pytest.MonkeyPatch, around: Callable[[Compute], Compute]
) -> None:
    """Ask clients for statistics by ``around(honest)(app, memory, round_index)``."""
    patch.setattr(Wrapped, "compute", around(Wrapped.compute))


def plant_encoding(patch: pytest.MonkeyPatch, encode: Callable[..., Any]) -> None:
    """Let ``encode(arrays, bits)`` put a client's statistic onto the grid."""
    patch.setattr(transitions, "encode", encode)


def plant_coin(
    patch: pytest.MonkeyPatch, coin: Callable[[Any, int, int, int], bool]
) -> None:
    """Let ``coin(plan, node_id, round_index, attempt)`` say who takes part."""
    patch.setattr(transitions, "takes_part", coin)
