"""What the suite of four minutes leaves to ``pytest -m nightly``.

Files below ``tests/nightly``, tests that are marked, and of long lists of cases all but
a few that stand for them.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[1] / "nightly"
DESELECTED = "not nightly"
"""The expression of ``-m`` in pyproject.toml."""
OUT_OF_TIME = "no time is left for this file"


def spread(n_cases: int, keep: int) -> frozenset[int]:
    """Indices of ``keep`` of so many cases, evenly from the first to the last."""
    if keep >= n_cases:
        return frozenset(range(n_cases))
    if keep == 1:
        return frozenset({0})
    return frozenset(index * (n_cases - 1) // (keep - 1) for index in range(keep))


def mark_all_but_samples(items: Sequence[pytest.Item]) -> None:
    """Mark cases as nightly that are not in the sample of their test.

    ``@pytest.mark.sample(5)`` on a parametrized test, or for all tests of a module,
    keeps five cases of each in the fast suite.
    """
    cases_of: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("sample") is not None:
            cases_of[item.nodeid.partition("[")[0]].append(item)
    for cases in cases_of.values():
        mark = cases[0].get_closest_marker("sample")
        assert mark is not None
        fast = spread(len(cases), *mark.args)
        for index, case in enumerate(cases):
            if index not in fast:
                case.add_marker(pytest.mark.nightly)


def is_named(arguments: Sequence[str]) -> bool:
    """Whether a command line names a file or folder of nightly tests.

    Who names one wants it to run.
    """
    paths = [Path(argument.partition("::")[0]).resolve() for argument in arguments]
    return any(path == FOLDER or FOLDER in path.parents for path in paths)


def skip_after(deadline: float | None) -> None:
    """Skip a test that would begin after an instant of the wall clock."""
    if deadline is not None and time.time() > deadline:
        pytest.skip(OUT_OF_TIME)
