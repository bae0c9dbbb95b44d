"""A program in the place of Flower's command, for processes that are started."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

LISTS = """
import json, os, sys
from pathlib import Path
here = Path(__file__).parent
call = {"words": sys.argv[1:], "home": os.environ.get("FLWR_HOME")}
with (here / "calls").open("a") as calls:
    print(json.dumps(call), file=calls)
if sys.argv[1] == "list":
    print((here / "list.json").read_text())
else:
    print("Successfully started run 1234")
"""


def write_flower(folder: Path, program: str) -> Path:
    """Write a program as the module that Python runs for Flower below a folder.

    Python takes it where the folder is on its path, or is the working directory.
    """
    command = folder / "flwr" / "cli"
    command.mkdir(parents=True, exist_ok=True)
    for package in (command, command.parent):
        (package / "__init__.py").touch()
    (command / "app.py").write_text(program)
    return command


class FlowerCommand:
    """Starts every run, and lists what a test says; remembers how it was called.

    Parameters
    ----------
    folder : Path
        That from which commands are typed.
    """

    def __init__(self, folder: Path) -> None:
        self._command = write_flower(folder, LISTS)
        self.list([{"status": "finished:completed", "status-details": "N/A"}])

    def list(self, runs: Sequence[Mapping[str, str]]) -> None:
        """Let these be the runs that Flower lists."""
        self.answer(json.dumps({"success": True, "runs": list(runs)}))

    def answer(self, text: str) -> None:
        """Let this be what ``flwr list`` prints."""
        (self._command / "list.json").write_text(text)

    @property
    def started(self) -> list[tuple[str, list[str]]]:
        """FLWR_HOME and the words of each call of ``flwr run``."""
        calls = self._command / "calls"
        lines = calls.read_text().splitlines() if calls.exists() else []
        read = [json.loads(line) for line in lines]
        return [
            (call["home"], call["words"][1:])
            for call in read
            if call["words"][0] == "run"
        ]
