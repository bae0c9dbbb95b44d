"""What the commands of experiments share: exit codes, consoles and files of results."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from flwr_dpkmeans.errors import ConfigurationError, DPKMeansError
from flwr_dpkmeans.results.whole_files import write_whole


def encoded_tables(
    name: str, options: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]
) -> dict[str, bytes]:
    """Encode rows as NAME.csv, and rows with the options they were made with as
    NAME.json.
    """
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    plain = json.dumps(
        {"options": dict(options), "rows": list(rows)}, indent=1, allow_nan=False
    )
    return {
        f"{name}.csv": text.getvalue().encode(),
        f"{name}.json": plain.encode() + b"\n",
    }


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write files that are all encoded already, each whole or not at all, and say where
    they are.
    """
    for path in [
        write_whole(folder / name, content) for name, content in files.items()
    ]:
        print(path, file=sys.stderr)


def wide_console() -> Console:
    """Print tables without folding them where the output is no terminal."""
    return Console(width=None if sys.stdout.isatty() else 160)


def require_seeds(seeds: int) -> None:
    """Refuse a benchmark over nothing."""
    if seeds < 1:
        raise ConfigurationError(
            f"seeds is {seeds}, but at least 1 is needed for a mean: give one such"
            " as 5."
        )


RESUMES = "stopped; the same command continues"


def exit_code(run: Callable[[], int | None], stopped: str = "") -> int:
    """Run a command; a mistake of the caller is one sentence on stderr and exit code 2.

    With a sentence for it, so is Ctrl-C, whose code is 130.
    """
    try:
        return run() or 0
    except DPKMeansError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        if not stopped:
            raise
        print(stopped, file=sys.stderr)
        return 130
