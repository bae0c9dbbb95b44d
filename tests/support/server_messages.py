"""What a server sends, and what comes back, replaced for the time of a test."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from flwr_dpkmeans.flower import strategy


def replace_exchange(patch: pytest.MonkeyPatch, exchange: Callable[..., Any]) -> None:
    """Let ``exchange(grid, messages, timeout, ...)`` bring the answers."""
    patch.setattr(strategy, "exchange", exchange)


def replace_messages(
    patch: pytest.MonkeyPatch, message_of: Callable[[int, Any], Any]
) -> None:
    """Let ``message_of(node_id, request)`` be what a node is sent."""
    patch.setattr(strategy, "message_of", message_of)
