"""A grid over which nothing may be sent."""

from __future__ import annotations

import pytest

from flwr_dpkmeans.flower.in_process_grid import InProcessGrid


def forbid_messages(patch: pytest.MonkeyPatch) -> None:
    """Fail if a message is pushed: without one, no client computes or charges."""

    def push(grid: InProcessGrid, messages: object) -> list[str]:
        pytest.fail("a message was sent")

    patch.setattr(InProcessGrid, "push_messages", push)
