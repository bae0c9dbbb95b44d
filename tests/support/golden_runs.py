"""Seeded runs of every algorithm, trust model, unit, kind of noise and engine, as
digests.

Renew them with ``PYTHONPATH=.:tests:tests/runs python tests/support/golden_runs.py``. A
digest may change only where a change of results is meant; the commit that renews the
file says why.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
from test_contract import FITS, Case, estimator, mixture

FILE = Path(__file__).with_name("golden.json")
ENGINES = ("direct", "inprocess")
Run = tuple[Case, str, str]
EXTRAS: dict[str, dict[str, Any]] = {
    "plain": {},
    "counted": {"n_examples": "private"},
    "bounded": {"bounds": "private", "bounds_domain": (-4.0, 4.0), "epsilon": 20.0},
    "evaluated": {"evaluation": "private", "n_classes": 3},
}
COUNTED = [
    ("proxy_lloyd", "distributed", "record", "gaussian"),
    ("fastlloyd", "oblivious", "record", "gaussian"),
]
COUNTED += [
    ("glloyd", "central", "record", "gaussian"),
    ("sulloyd", "oblivious", "record", "gaussian"),
]
RUNS: list[Run] = [(case, engine, "plain") for case in FITS for engine in ENGINES]
RUNS += [
    (case, engine, extra)
    for case in COUNTED
    for engine in ENGINES
    for extra in EXTRAS
    if extra != "plain"
]


def name_of(run: Run) -> str:
    """One line of the file."""
    return " ".join(("-".join(run[0]), run[1], run[2]))


def rounded(value: Any) -> Any:
    """Twelve digits of every number: another machine's last ones may differ."""
    if isinstance(value, float):
        return float(f"{value:.12g}")
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    return (
        [rounded(item) for item in value] if isinstance(value, list | tuple) else value
    )


def digest_of(run: Run) -> str:
    """SHA-256 of centroids and counts on the grid, and of the report; some digits."""
    case, engine, extra = run
    km = estimator(case, engine=engine, **EXTRAS[extra])
    km.fit(
        list(mixture().clients),
        list(mixture().labels) if extra == "evaluated" else None,
    )
    found = np.concatenate([km.cluster_centers_.ravel(), km.cluster_counts_.ravel()])
    told = {
        name: value
        for name, value in km.privacy_.to_dict().items()
        if name != "provenance"
    }
    report = json.dumps(rounded(told), sort_keys=True).encode()
    values = np.rint(found * 2.0**20).astype("<i8").tobytes()
    return (
        f"{hashlib.sha256(values).hexdigest()[:16]}"
        f" {hashlib.sha256(report).hexdigest()[:16]}"
    )


if __name__ == "__main__":
    FILE.write_text(
        json.dumps({name_of(run): digest_of(run) for run in RUNS}, indent=0) + "\n"
    )
