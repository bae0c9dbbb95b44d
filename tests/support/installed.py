"""Which modules Python has, for the time of a test."""

from __future__ import annotations

import sys
from typing import Any, cast

import pytest


def install(patch: pytest.MonkeyPatch, **modules: Any) -> None:
    """Let modules be imported by these names, with ``__`` for each dot.

    `None` stands for a module that is not installed.
    """
    for name, module in modules.items():
        dotted = name.replace("__", ".")
        patch.setitem(sys.modules, dotted, cast(Any, module))


def forget(patch: pytest.MonkeyPatch, name: str) -> None:
    """Let a module be imported, if it is at all, as if for the first time."""
    patch.delitem(sys.modules, name, raising=False)
