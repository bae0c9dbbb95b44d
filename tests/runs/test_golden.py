"""For equal seeds, centroids, counts and reports stay, in every engine."""

from __future__ import annotations

import json

import pytest
from support.golden_runs import FILE, RUNS, Run, digest_of, name_of

GOLDEN: dict[str, str] = json.loads(FILE.read_text())


def test_the_file_speaks_of_every_run_and_of_no_other() -> None:
    assert set(GOLDEN) == {name_of(run) for run in RUNS}


@pytest.mark.parametrize("run", RUNS, ids=name_of)
def test_nothing_moved(run: Run) -> None:
    assert digest_of(run) == GOLDEN[name_of(run)]
