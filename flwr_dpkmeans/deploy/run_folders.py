"""What runs' folders say: the reading side of `flwr_dpkmeans.flower.progress`."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from flwr_dpkmeans.flower.run_progress import (
    LOG_FILE,
    PROGRESS_FILE,
    Outcome,
    RunProgress,
)
from flwr_dpkmeans.node.durable_files import lock

MOST_RUNS = 100
"""Newest ones, in which a party's last answer is looked for."""
_DIED = (
    "its program ended without a word after {}: what its clients were charged stays"
    " charged."
)


def read_progress(folder: Path) -> RunProgress:
    """Read what a run's folder says of it, and that its program was killed.

    Or that the file is none.
    """
    file = folder / PROGRESS_FILE
    try:
        progress = RunProgress.model_validate_json(file.read_bytes())
        if progress.outcome is Outcome.RUNNING:
            with (folder / LOG_FILE).open("rb") as log_file:
                is_dead = lock(log_file.fileno(), wait=False)
            # Once more, since it may have ended between the two looks.
            progress = RunProgress.model_validate_json(file.read_bytes())
            if is_dead and progress.outcome is Outcome.RUNNING:
                return progress.model_copy(
                    update={
                        "outcome": Outcome.DIED,
                        "sentence": _DIED.format(progress.updated),
                    }
                )
    except (OSError, ValidationError) as error:
        ending = {
            "outcome": Outcome.UNREADABLE,
            "sentence": f"{file} cannot be read ({type(error).__name__}).",
        }
        return RunProgress(
            run=folder.name.removeprefix("run-"),
            started="",
            updated="",
            **ending,
        )
    return progress


def runs_below(folder: Path) -> list[Path]:
    """Folders of all runs in a folder or one below it, the newest first."""
    files = [
        *folder.glob(f"run-*/{PROGRESS_FILE}"),
        *folder.glob(f"*/run-*/{PROGRESS_FILE}"),
    ]
    return [
        path.parent
        for path in sorted(files, key=lambda path: path.stat().st_mtime, reverse=True)
    ]
