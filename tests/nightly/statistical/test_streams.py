"""No two processes, forks, threads or workers draw from one stream, and no seed repeats
what is secret.

`entropy_probe` draws everything secret there is. Its planted generator lives in the
process's own memory, as that of a careless library would, so the checks are seen to
find it. Ray's workers: tests/nightly/e2e/test_ray_engine.py.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

PROBE = Path(__file__).with_name("entropy_probe.py")
Draws = dict[str, dict[str, str]]


@pytest.fixture(scope="module")
def draws() -> Draws:
    """Who drew what, in a process whose hashes are seeded too."""
    if not hasattr(os, "fork"):
        pytest.skip("this system does not fork")
    environment = {**os.environ, "PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1"}
    found = subprocess.run(
        [sys.executable, str(PROBE)],
        env=environment,
        stdout=subprocess.PIPE,
        check=True,
    )
    decoded: Draws = json.loads(found.stdout)
    return decoded


def repeated(draws: Draws) -> set[str]:
    """Kinds of secrets of which two drew the same."""
    kinds = next(iter(draws.values()))
    return {
        kind
        for kind in kinds
        if len({own[kind] for own in draws.values()}) < len(draws)
    }


def test_forks_share_no_stream_with_their_parents_or_each_other(draws: Draws) -> None:
    """Six forks and four draws of their parent."""
    own = {
        name: found for name, found in draws.items() if name.startswith(("fork", "own"))
    }
    assert Counter(name.split()[0] for name in own) == {"fork": 6, "own": 4}
    assert repeated(own) == {"planted"}


def test_threads_share_no_stream_with_each_other_or_with_any_process(
    draws: Draws,
) -> None:
    """NumPy's and Python's generators, which all have a lock, would pass this."""
    assert Counter(name.split()[0] for name in draws) == {
        "fork": 6,
        "own": 4,
        "thread": 4,
        "spawned": 1,
    }
    assert repeated(draws) == {"planted"}


def test_equal_seeds_repeat_nothing_secret(draws: Draws) -> None:
    """Two processes with every seed equal."""
    assert repeated({name: draws[name] for name in ("own", "spawned")}) == {"planted"}
