"""Planting a bug for a while.

And the pattern of all tests: a detector is content without it, and not with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from flwr_dpkmeans.sums import build as building
from flwr_dpkmeans.sums import draft as planning
from flwr_dpkmeans.sums import price as pricing
from flwr_dpkmeans.sums.wire import load_plan

Bug = Callable[[pytest.MonkeyPatch], None]


@contextmanager
def planted(bug: Bug, *, in_plans: bool = True) -> Iterator[None]:
    """Patch for a while.

    Nothing that was computed from the patched code is remembered afterwards.

    `in_plans` is false for bugs in what comes after planning, where to plan anew would
    take long.
    """
    if in_plans:
        forget_plans()
    try:
        with pytest.MonkeyPatch.context() as patch:
            bug(patch)
            yield
    finally:
        if in_plans:
            forget_plans()


def forget_plans() -> None:
    """Empty the caches of what is computed from plans."""
    drafting = (
        building._built,
        planning._planned,
        building.build_algorithm,
        building._started,
    )
    for cached in (*drafting, load_plan, pricing._sampled_multiplier, pricing.price):
        cached.cache_clear()


def require_caught(
    bug: Bug, detect: Callable[[], object], match: str, *, in_plans: bool = True
) -> None:
    """Run a detector without a bug and with it; `match` is what it must say then."""
    detect()
    with planted(bug, in_plans=in_plans), pytest.raises(AssertionError, match=match):
        detect()


def require_missed(bug: Bug, detect: Callable[[], object]) -> None:
    """A detector that cannot see a bug: said openly, so that nobody counts on it."""
    with planted(bug):
        detect()
