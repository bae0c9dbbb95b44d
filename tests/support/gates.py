"""A site's table [gate], as tests have it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flwr_dpkmeans.deploy.gate.gate_options import GateOptions
from flwr_dpkmeans.deploy.guard.confinement import can_confine

ARRAYS = {"w": {"shape": [2, 3], "dtype": "float64"}}
GATE = {
    "app": "a" * 64,
    "clip": 1,
    "noise-share": 2.4,
    "epsilon-per-round": 0.8,
    "delta-per-round": 1e-6,
    "epsilon-total": 3.0,
    "delta-total": 1e-5,
    "rounds": 3,
}
GATE_TEXT = "\n".join(
    [
        "\n[gate]",
        *(f"{key} = {value!r}" for key, value in GATE.items()),
        "arrays.w = { shape = [2, 3], dtype = 'float64' }\n",
    ]
)


def gate_options(**values: Any) -> GateOptions:
    """The table with other values, by their names with underscores."""
    stated = {name.replace("_", "-"): value for name, value in values.items()}
    return GateOptions.of({"arrays": ARRAYS, **GATE, **stated}, Path("NODE.toml"))


def require_confinement(folder: Path) -> None:
    """Skip a test where the system lets nobody confine a process."""
    if not can_confine(folder):
        pytest.skip("this system has no unshare or no Landlock for this user")
