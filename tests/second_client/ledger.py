"""A file of everything that was answered, to survive the client's memory."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

NOTHING = (1, -1)
"""Before the first attempt of the first round."""


class Ledger:
    """One line of JSON for each vector that left."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.path.touch()

    def entries(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.path.read_text().splitlines()]

    def pairs(self, run: int) -> set[tuple[int, int]]:
        """Rounds and attempts of a run."""
        entries = [entry for entry in self.entries() if entry["run"] == run]
        return {(entry["round"], entry["attempt"]) for entry in entries}

    def newest(self, run: int) -> tuple[int, int]:
        """The last pair, which tells all: later pairs are greater."""
        return max(self.pairs(run), default=NOTHING)

    def charge(self, **entry: Any) -> None:
        """Write an entry to the disk."""
        with self.path.open("a") as file:
            file.write(json.dumps(entry) + "\n")
            file.flush()
            os.fsync(file.fileno())
