"""What the operating system says and does, replaced for the time of a test.

Each function takes what is called in the place of the system's own.
"""

from __future__ import annotations

import itertools
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


def replace_call(
    patch: pytest.MonkeyPatch, name: str, call: Any, *, of: Any = os
) -> None:
    """Let ``call`` be a function of the system, by default of `os`: one that fails."""
    patch.setattr(of, name, call)


def replace_entropy(patch: pytest.MonkeyPatch, draw: Callable[[int], bytes]) -> None:
    """Let ``draw(n_bytes)`` give the system's random bytes."""
    replace_call(patch, "urandom", draw)
    replace_call(patch, "_urandom", draw, of=random)  # what `secrets` draws from


def counting_bytes() -> Callable[[int], bytes]:
    """Random bytes that are the same in each run that asks as often."""
    numbers = itertools.count(1)

    def draw(n_bytes: int) -> bytes:
        return (next(numbers) % 256**n_bytes).to_bytes(n_bytes, "little")

    return draw


def replace_user(patch: pytest.MonkeyPatch, user_id: Callable[[], int]) -> None:
    """Let the process belong to another user."""
    replace_call(patch, "geteuid", user_id)


def replace_rights(patch: pytest.MonkeyPatch, may: Callable[..., bool]) -> None:
    """Let ``may(path, mode)`` say what this user may do with a path."""
    replace_call(patch, "access", may)


def replace_room(patch: pytest.MonkeyPatch, usage: Callable[[Path], Any]) -> None:
    """Let ``usage(path)`` say how full a disk is."""
    replace_call(patch, "disk_usage", usage, of=shutil)


def replace_time(patch: pytest.MonkeyPatch, now: Callable[[], float]) -> None:
    """Let the system's clock show another time."""
    replace_call(patch, "time", now, of=time)


def replace_sleep(patch: pytest.MonkeyPatch, sleep: Callable[[float], object]) -> None:
    """Let ``sleep(seconds)`` stand for every wait."""
    replace_call(patch, "sleep", sleep, of=time)


def replace_clock(
    patch: pytest.MonkeyPatch, now: Callable[[], float], sleep: Callable[[float], None]
) -> None:
    """Let waiting take no time but that of a clock that the test moves."""
    replace_call(patch, "monotonic", now, of=time)
    replace_sleep(patch, sleep)


def replace_start(patch: pytest.MonkeyPatch, start: Callable[..., Any]) -> None:
    """Let ``start(command, **options)`` start programs."""
    replace_call(patch, "Popen", start, of=subprocess)


def install_flower(patch: pytest.MonkeyPatch, folder: Path, version: str) -> None:
    """Let another version of Flower be what Python sees first, by its name alone."""
    site = folder / f"site-{version}"
    about = site / f"flwr-{version}.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Name: flwr\nVersion: {version}\n")
    patch.syspath_prepend(site)


def replace_sync(patch: pytest.MonkeyPatch, sync: Callable[[int], None]) -> None:
    """Let ``sync(descriptor)`` bring a file onto the disk, or fail to."""
    replace_call(patch, "fsync", sync)


def replace_process_id(patch: pytest.MonkeyPatch, number: Callable[[], int]) -> None:
    """Let the process have another number."""
    replace_call(patch, "getpid", number)


def type_command(patch: pytest.MonkeyPatch, words: list[str]) -> None:
    """Let the program have been started with other words."""
    replace_call(patch, "argv", words, of=sys)
