"""What functions are called with and return, without putting anything in their place.

Python's profiler says of each call whose code it is: tests watch those that they name.
"""

from __future__ import annotations

import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any


@dataclass
class Call:
    """A call; its result is `None` before it has returned, and if it has raised."""

    arguments: dict[str, Any]
    result: Any = None


Note = Callable[[Call], object]
Notes = tuple[Note | None, Note | None]
_notes: defaultdict[CodeType, list[Notes]] = defaultdict(list)
_open = threading.local()


def watch(
    function: Callable[..., Any], note: Note | None = None, begin: Note | None = None
) -> None:
    """Have each call of a function noted as it begins or ends, until the test does."""
    _notes[_code_of(function)].append((begin, note))
    sys.setprofile(_profile)
    threading.setprofile(_profile)


def stop_watching() -> None:
    """Watch nothing any more."""
    if _notes:
        _notes.clear()
        sys.setprofile(None)
        threading.setprofile(None)


@contextmanager
def calls_of(*functions: Callable[..., Any]) -> Iterator[list[Call]]:
    """Collect calls of functions, in the order in which they begin."""
    calls: list[Call] = []
    for function in functions:
        watch(function, begin=calls.append)
    yield calls
    for function in functions:
        _notes[_code_of(function)].pop()


def _code_of(function: Any) -> CodeType:
    """The code of a function, of a method, or of what a cache remembers."""
    code = getattr(function, "__wrapped__", function).__code__
    assert isinstance(code, CodeType)
    return code


def _profile(frame: FrameType, event: str, result: Any) -> None:
    if frame.f_code not in _notes or event not in ("call", "return"):
        return
    if not hasattr(_open, "calls"):
        _open.calls = []
    if event == "call":
        call = Call(dict(frame.f_locals))
        _open.calls.append(call)
    else:
        call = _open.calls.pop()
        call.result = result
    for notes in [*_notes[frame.f_code]]:
        note = notes[event == "return"]
        if note is not None:
            note(call)
