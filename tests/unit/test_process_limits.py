"""What the operating system lets a node's processes do, as `check` looks at it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from flwr_dpkmeans.deploy.guard.process_limits import (
    require_limits,
    require_programs_run,
)
from flwr_dpkmeans.errors import ConfigurationError

PROGRAM = """
from flwr_dpkmeans.deploy.guard import process_limits as limits
from flwr_dpkmeans.errors import ConfigurationError
try:
    limits.require_temporary_folder()
    print(limits.require_limits())
except ConfigurationError as error:
    print(error)
"""


def said_below(limit: str, variables: Mapping[str, str] | None = None) -> str:
    """What a process says that a shell has started below a limit."""
    command = f'ulimit {limit} && exec "$0" -c "$1"'
    environment = os.environ | dict(variables or {})
    done = subprocess.run(
        ["/bin/sh", "-c", command, sys.executable, PROGRAM],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    return done.stdout


@pytest.mark.parametrize(
    ("limit", "sentence"),
    [
        ("-n 200", "may open 200 files at once, but 512 are needed: raise it"),
        ("-f 1000", "files may have 512000 bytes, but 67108864 are needed"),
    ],
)
def test_a_limit_that_a_run_would_meet_is_refused(limit: str, sentence: str) -> None:
    assert sentence in said_below(limit)


def test_usual_limits_will_do() -> None:
    assert "600 files may be open" in said_below("-n 600")
    assert "any number of files" in require_limits(lambda _: -1)


def test_a_temporary_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    missing = tmp_path / "scratch"
    said = said_below("-n 600", {"TMPDIR": str(missing)})
    assert said.startswith(f"TMPDIR is {missing}, where no file can be made")
    missing.mkdir()
    assert "may be open" in said_below("-n 600", {"TMPDIR": str(missing)})


@pytest.mark.skipif(not hasattr(os, "ST_NOEXEC"), reason="no such flag here")
def test_a_disk_that_runs_no_programs_is_refused(tmp_path: Path) -> None:
    home = tmp_path / "home"
    require_programs_run(home)
    with pytest.raises(ConfigurationError, match="home runs no programs"):
        require_programs_run(home, lambda _: os.ST_NOEXEC | os.ST_NOSUID)
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    for _, place, _, options, *_ in mounts:
        if "noexec" in options.split(",") and os.access(place, os.R_OK):
            with pytest.raises(ConfigurationError, match="runs no programs"):
                require_programs_run(Path(place) / "home")
