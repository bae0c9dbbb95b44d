"""A grid over which nothing may be sent."""

from __future__ import annotations

import pytest

from flwr_dpkmeans.flower.in_process_grid import InProcessGrid
from support.watching import watch


def forbid_messages() -> None:
    """Fail if a message is pushed: without one, no client computes or charges."""
    watch(
        InProcessGrid.push_messages, begin=lambda _: pytest.fail("a message was sent")
    )
