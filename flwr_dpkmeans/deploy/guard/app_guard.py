"""Lets a machine run approved apps only.

Whoever may start runs chooses the app (FAB) that a SuperNode is sent. Flower unpacks it
into a folder that the app's own unchecked version names, uses what lies there already,
and imports it with all rights of the node. Here the bytes that came are hashed first.
If their SHA-256 is on the node's list, these same bytes are unpacked into a new private
folder and loaded from there; else nothing of them is parsed, written or run, and an
alert has the hash.
"""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import sys
import tempfile
import time
import zipfile
from dataclasses import dataclass
from pathlib import Path

from .approved_fab import require_plain
from .flower_seams import private
from .private_folder import require_private
from .refusal import GuardError


@dataclass(frozen=True)
class Guard:
    """What a node allows, and where apps and alerts go."""

    allowed: frozenset[str]
    """SHA-256 of whole FABs, 64 lower-case hexadecimal digits each."""
    folder: Path
    """Private folder in which every message's app is unpacked anew."""
    alerts: Path
    """File that gets a line for each refused app."""
    gate: Path | None = None
    """File of the node's gate, which one of the allowed apps runs behind."""
    most_alert_bytes: int = 1_000_000
    """After which that file gets none: a server can send refused apps for ever, and a
    full disk would stop the ledger.
    """

    def unpack(self, content: bytes) -> Path:
        """Write an approved app (a whole FAB) into a new folder.

        Or refuse it with a GuardError.

        The folder did not exist before, so that nobody can have put anything in it.
        Refused is an app whose hash is not on the list, or that could lead elsewhere,
        and a node whose own folder could.
        """
        # What is hashed is what is unpacked, whatever the caller still holds.
        content = bytes(content)
        digest = hashlib.sha256(content).hexdigest()
        if digest not in self.allowed:
            raise self._refusal(
                digest, "only approved apps run here, and this is none of them"
            )
        try:
            require_plain(content)
            require_private(self.folder)
        except GuardError as error:
            raise self._refusal(digest, str(error)) from error
        self._remove_what_was_left()
        prefix = f"{os.getpid()}-{digest}-"
        target = Path(tempfile.mkdtemp(prefix=prefix, dir=self.folder))
        try:
            with zipfile.ZipFile(io.BytesIO(content)) as archive:
                archive.extractall(target)
        except OSError as error:
            shutil.rmtree(target, ignore_errors=True)
            raise GuardError(
                f"{target} cannot be written ({error.strerror}): make room on its disk."
            ) from error
        return target

    def _remove_what_was_left(self) -> None:
        """Remove the apps of processes that were killed and could not tidy up."""
        for app in self.folder.iterdir():
            if not _is_alive(app.name.partition("-")[0]):
                shutil.rmtree(app, ignore_errors=True)

    def _refusal(
        self,
        digest: str,
        reason: str,
    ) -> GuardError:
        """Tell the node's operator.

        In a file (Flower drops what some programs print) and on the error stream.
        """
        when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        run_id = private.run_of_process()
        run = "no run" if run_id is None else f"run {run_id}"
        line = (
            f"{when} ALERT app refused: SHA-256 {digest}, {run}; {reason}; nothing"
            " of it was unpacked or run.\n"
        )
        sys.stderr.write(line)
        sys.stderr.flush()
        try:
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
            with os.fdopen(os.open(self.alerts, flags, 0o600), "a") as file:
                if file.tell() < self.most_alert_bytes:
                    file.write(line)
        except OSError as error:
            sys.stderr.write(
                f"the alert could not be written into {self.alerts}"
                f" ({error.strerror}).\n"
            )
        return GuardError(
            f"{reason} (SHA-256 {digest}): ask who operates this machine to review it."
        )


def _is_alive(process: str) -> bool:
    try:
        os.kill(int(process), 0)
    except (ProcessLookupError, ValueError, OverflowError):
        return False
    except PermissionError:  # it has become another user's
        return True
    return True
