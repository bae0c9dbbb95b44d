"""What functions are called with and return, without putting anything in their place.

Python's profiler says of each call whose code it is: tests watch those that they name.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any


@dataclass
class Call:
    """One call that has returned, or raised: then the result is `None`."""

    arguments: dict[str, Any]
    result: Any


@contextmanager
def calls_of(
    function: Callable[..., Any], note: Callable[[Call], object] | None = None
) -> Iterator[list[Call]]:
    """Collect calls of a function in this thread, or have each noted as it returns."""
    code = getattr(function, "__wrapped__", function).__code__
    calls: list[Call] = []
    note = calls.append if note is None else note
    started: list[dict[str, Any]] = []
    before = sys.getprofile()

    def profile(frame: FrameType, event: str, result: Any) -> None:
        if before is not None:
            before(frame, event, result)
        if frame.f_code is not code:
            return
        if event == "call":
            started.append(dict(frame.f_locals))
        elif event == "return":
            note(Call(started.pop(), result))

    sys.setprofile(profile)
    try:
        yield calls
    finally:
        sys.setprofile(before)
