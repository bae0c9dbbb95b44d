"""Asks somebody else's app, in a process of its own that can tell nobody else."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING

from flwr_dpkmeans.deploy import guard

if TYPE_CHECKING:
    from flwr.app import Context, Message

_PROGRAM = Path(guard.__file__).with_name("gated_program.py")
_MOST_MARGIN = 5.0
"""Seconds before an answer leaves in which an app is ended, and its files removed.

Else the answer of an app that takes too long would leave later than others, which tells
of rows; of short times it is a quarter.
"""
_KILL_SECONDS = 0.5
"""Within which the program ends an app."""
MOST_STATE = 2**24
"""Bytes that an app remembers of a run at most."""
_MOST_OUTPUT = 2**20
"""Bytes of what an app prints that its owner can read."""


@dataclass(frozen=True)
class AppAnswer:
    """What came of an app, and what it remembers; None where it gave nothing."""

    numbers: bytes | None = field(repr=False)
    state: bytes | None = field(repr=False)
    output: str = field(repr=False)
    """What it printed, for its owner's eyes."""


@dataclass(frozen=True)
class AppProcess:
    """An app that was approved and unpacked, and how it is run."""

    folder: Path
    app: tuple[str, str, str]
    """Id, version and hash, as the run states them."""
    seconds: float
    """How long each answer takes; the app has a quarter less, and at most 5 s less."""
    confined: bool
    """Whether the system keeps it from networks, other processes and files."""

    def ask(
        self,
        message: Message,
        context: Context,
        state: bytes,
        metrics: tuple[str, ...],
        n_bytes: int,
    ) -> AppAnswer:
        """Return what the app answers to a message: `n_bytes` bytes, or None.

        After `seconds`, however fast it is: the time of an answer would tell of rows.
        """
        leaves = time.monotonic() + self.seconds
        ends = leaves - min(_MOST_MARGIN, 0.25 * self.seconds)
        with ExitStack() as files:
            # Without a name, so that nothing can stand in their place.
            request = files.enter_context(tempfile.TemporaryFile())
            answer = files.enter_context(tempfile.TemporaryFile())
            remembered = files.enter_context(tempfile.TemporaryFile())
            output = files.enter_context(tempfile.TemporaryFile())
            question = {
                "message": message,
                "context": context,
                "state": state,
                "metrics": metrics,
                "folder": self.folder,
                "app": self.app,
            }
            pickle.dump(question, request)
            request.seek(0)
            with tempfile.TemporaryDirectory(
                prefix=f"{os.getpid()}-",
                dir=self.folder.parent,
                ignore_cleanup_errors=True,
            ) as work:
                has_answered = self._run(
                    [request, answer, remembered],
                    output,
                    work,
                    ends,
                )
            time.sleep(max(0.0, leaves - time.monotonic()))
            numbers = _content(answer, n_bytes)
            if not has_answered:
                numbers = None
            if numbers is not None and len(numbers) < n_bytes:
                numbers = None
            printed = os.pread(output.fileno(), _MOST_OUTPUT, 0)
            return AppAnswer(
                numbers,
                _content(remembered, MOST_STATE) or None,
                printed.decode(errors="replace"),
            )

    def _run(
        self,
        files: list[IO[bytes]],
        output: IO[bytes],
        work: str,
        ends: float,
    ) -> bool:
        """Let the program run in a folder until then; whether the app answered.

        It ends the app itself, unless this machine is too slow for that.
        """
        numbers = [file.fileno() for file in files]
        how = "confined" if self.confined else "free"
        command = [
            sys.executable,
            "-I",
            "-B",
            str(_PROGRAM),
            *map(str, numbers),
            str(ends),
            how,
        ]
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=numbers,
            cwd=work,
            env=_environment(work),
            start_new_session=True,
        )
        try:
            patience = ends + _KILL_SECONDS - time.monotonic()
            return process.wait(max(0.0, patience)) == 0
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return False


def _environment(work: str) -> dict[str, str]:
    """The own variables without those of Flower's programs and of Python."""
    environment = {}
    for name, value in os.environ.items():
        if not name.startswith(("FLWR", "FLOWER", "PYTHON")):
            environment[name] = value
    return environment | {
        "HOME": work,
        "TMPDIR": work,
        "FLWR_TELEMETRY_ENABLED": "0",
    }


def _content(file: IO[bytes], most: int) -> bytes | None:
    """A file's content; None if it is longer than it may be."""
    content = os.pread(file.fileno(), most + 1, 0)
    return content if len(content) <= most else None
