"""A ledger's file, and two files beside it.

The head counts its entries, and the plans file lists the plans that were looked at
today. ``policy.md`` says what ledger and head hold and withstand. Both are only ever
appended to, only their complete lines count, and whoever reads or writes either holds
the lock of the ledger. The plans file has a lock of its own and is replaced as a whole.
Messages about them name their paths: they are for the person at this machine.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import math
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from flwr_dpkmeans.errors import BudgetError, ConfigurationError
from flwr_dpkmeans.log import placed_logger
from flwr_dpkmeans.node.durable_files import (
    BINARY,
    append,
    locked,
    read_all,
    replace_file,
    sync_folder,
)
from flwr_dpkmeans.node.ledger import Admit, MemoryLedger, run_of
from flwr_dpkmeans.node.ledger_entries import (
    ADDED_LATER,
    LedgerEntry,
    PlanNote,
    is_utc,
)
from flwr_dpkmeans.privacy.provenance import utc_now

GENESIS = hashlib.sha256(b"flwr-dpkmeans ledger, version 2").hexdigest()
"""What the first line's checksum goes on from."""
OLD_FORMAT = (
    "it has the format of an older version, which charged a run that was stopped too"
    " little"
)
_ROOM = 2**16
"""Bytes on the disk below which no run begins; an entry and its head take about 500."""
_LOGGER = placed_logger("flwr_dpkmeans.node.ledger")
_HEAD_LINE = re.compile(
    rb'\{"entries": (0|-?[1-9][0-9]*), "checksum": "([0-9a-f]{64})"\}'
)
_INFINITE = {"epsilon", "mu"}
_MEND = "restore it from a backup or have its owner decide."


class FileLedger(MemoryLedger):
    """A ledger in an append-only file that survives restarts and crashes.

    The first charge makes it.

    An unfinished last line is what a crash in the middle of `charge` leaves, for which
    nothing was sent: it does not count, and the next charge cuts it off and logs so.
    Every other flaw, of the file or of the head beside it, stops every use with a
    BudgetError. Links are followed. The folder must exist (else: ConfigurationError):
    one that is missing, say because a disk is not mounted, must not start an empty
    ledger.
    """

    def __init__(self, path: str | Path) -> None:
        # A later change of folder must not start another ledger, and all links to one
        # file share its head.
        self._path = Path(os.path.realpath(path))
        if not self._path.parent.is_dir():
            raise ConfigurationError(
                f"the ledger's folder {self._path.parent} does not exist: make or"
                " mount it."
            )
        if self._path.exists() and not self._path.is_file():
            raise ConfigurationError(
                f"the ledger's path {self._path} is no file: give that of one, or of a"
                " new one."
            )
        super().__init__()
        self._chain = Chain()

    def __reduce__(self) -> tuple[type[FileLedger], tuple[Path]]:
        return FileLedger, (self._path,)

    @property
    def path(self) -> Path:
        """Where it is, links followed."""
        return self._path

    @property
    def first_checksum(self) -> str:
        """That of its first line, by which it is known again; empty without one."""
        with self._guard:
            checksums = self._look().checksums
        return checksums[1] if len(checksums) > 1 else ""

    def require_usable(self) -> None:
        """Raise BudgetError if a charge could not be written.

        Files, or folder without them, or a full disk.
        """
        with self._guard, file_errors(self._path):
            self._look()
            for target in (self._path, head_path(self._path)):
                _require_writable(target)
            if shutil.disk_usage(self._path.parent).free < _ROOM:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def charge(
        self,
        entry: LedgerEntry,
        admit: Admit | None = None,
    ) -> None:
        """Record a release on disk; send it only after this has returned.

        See `MemoryLedger.charge`.
        """
        with (
            self._guard,
            file_errors(self._path),
            locked(self._path, exclusive=True) as descriptor,
        ):
            raw = read_all(descriptor)
            complete = complete_lines(raw)
            head = self._catch_up(complete, read_head(self._path))
            self._chain._refuse(entry, admit)
            n_entries = len(self._chain.checksums) - 1
            if head is None or head[0] < n_entries:
                # Of a first charge, or left undone by a crash.
                self._write_head(descriptor)
            line = encode(entry, self._chain.checksums[-1])
            if len(complete) < len(raw):
                _LOGGER.warning(
                    "The ledger %s: dropped an unfinished last line, never released.",
                    self._path,
                )
            append(
                descriptor,
                raw,
                complete,
                line,
            )
            self._take(complete + line)
            append_head(self._path, self._chain.checksums)

    def note_plan(
        self,
        data_id: str,
        run_id: str,
        plan: str,
        most: int,
    ) -> int:
        """Note a plan on disk, for the processes of later messages.

        See `MemoryLedger.note_plan`.
        """
        path = plans_path(self._path)
        note = PlanNote(utc_now(), data_id, run_of(run_id), plan)
        with self._guard, file_errors(self._path):
            # Nothing is written beside a ledger that is damaged.
            self._look()
            with locked(path, exclusive=True) as descriptor:
                notes = _parse_notes(read_all(descriptor))
                today, n_others = self._noted(notes, note, most)
                lines = "".join(f"{json.dumps(vars(other))}\n" for other in today)
                replace_file(path, lines.encode())
        return n_others

    def accept(self) -> None:
        """Take the file as it stands, and write its head anew.

        For its owner, after looking at it.

        Releases that are missing from it no longer count. A damaged line, or no right
        to write, is a BudgetError.
        """
        with (
            self._guard,
            file_errors(self._path),
            locked(self._path, exclusive=True) as descriptor,
        ):
            self._chain = Chain()
            self._take(complete_lines(read_all(descriptor)))
            self._write_head(descriptor)

    def _write_head(self, descriptor: int) -> None:
        """Make the head level with the lines, which go onto the disk first."""
        os.fsync(descriptor)
        append_head(self._path, self._chain.checksums)

    def _look(self) -> Chain:
        with file_errors(self._path):
            raw, head_file = read_both(self._path)
        self._catch_up(complete_lines(raw), head_file)
        return self._chain

    def _catch_up(
        self,
        complete: bytes,
        head_file: bytes,
    ) -> tuple[int, str] | None:
        """Read what was appended since the last look.

        What was read before must still be there. Return the head.
        """
        if not complete.startswith(self._chain.lines):
            raise BudgetError(
                f"the ledger {self._path} was cut or altered while in use: {_MEND}"
            )
        self._take(complete)
        problem = mismatch(self._path, self._chain.checksums, head_file)
        if problem is not None:
            raise BudgetError(problem)
        return parse_head(head_file)

    def _take(self, complete: bytes) -> None:
        """Read the lines that have not been read.

        After a flaw all of them must be read again.
        """
        for flaw in self._chain.read(complete):
            self._chain = Chain()
            raise BudgetError(damage(self._path, *flaw))


def _require_writable(target: Path) -> None:
    """Raise unless a file can be opened to append, or made."""
    try:
        descriptor = os.open(target, os.O_RDWR | os.O_APPEND | BINARY)
        os.close(descriptor)
    except FileNotFoundError:
        if not os.access(target.parent, os.W_OK):
            reason = os.strerror(errno.EACCES)
            raise PermissionError(errno.EACCES, reason) from None


class Chain(MemoryLedger):
    """The entries of a ledger's file, each bound to those before it by a checksum."""

    def __init__(self) -> None:
        super().__init__()
        self.checksums = [GENESIS]
        """Before the first line, and after each."""
        self.lines = b""
        """Those that were read."""

    def read(self, lines: bytes) -> Iterator[tuple[int, str]]:
        """Take in what was added to the lines.

        Yield (line number, reason) of each flaw and go on after it.
        """
        added = lines[len(self.lines) :]
        self.lines = lines
        first = len(self._entries) + 1
        for number, line in enumerate(added.split(b"\n")[:-1], start=first):
            flaw = self._take(line)
            if flaw is not None:
                yield number, flaw
            if flaw == OLD_FORMAT:
                # So is every other line.
                return

    def _take(self, line: bytes) -> str | None:
        """Add the entry of a line, or say why it cannot follow."""
        try:
            body = json.loads(line)
            checksum = str(body.pop("checksum"))
            names = set(LedgerEntry.__dataclass_fields__)
            if set(body) == names - {"unit", *ADDED_LATER}:
                return OLD_FORMAT
            for name in _INFINITE & set(body):
                body[name] = float(body[name])
            entry = LedgerEntry(**body)
        except (
            ValueError,
            TypeError,
            KeyError,
            AttributeError,
            OverflowError,
            RecursionError,
        ):
            return "it is not an entry"
        # Encoding once more and comparing bytes covers the checksum and every other way
        # to spell an entry.
        if encode(entry, self.checksums[-1]) == line + b"\n":
            flaw = self._conflict(entry)
        else:
            flaw = "its checksum does not fit the line and the one before it"
        if flaw is None:
            self._add(entry)
            self.checksums.append(checksum)
        else:
            # As the next line sees it.
            self.checksums[-1] = checksum
        return flaw


def encode(entry: LedgerEntry, previous: str) -> bytes:
    """Return an entry's line; its checksum goes on from the previous one.

    JSON has no infinity: that is a string. Lines of an older version have no mu.
    """
    values = {}
    for name, value in vars(entry).items():
        if value == math.inf:
            value = "inf"
        if value is not None:
            values[name] = value
    text = json.dumps(values)
    checksum = hashlib.sha256(f"{previous}\n{text}".encode()).hexdigest()
    return f'{text[:-1]}, "checksum": "{checksum}"}}\n'.encode()


def complete_lines(raw: bytes) -> bytes:
    """Return the complete lines, each with its line end.

    Drop a torn last one, end one that lacks only its end.
    """
    start = raw.rfind(b"\n") + 1
    try:
        # No proper beginning of a JSON object is JSON itself.
        json.loads(raw[start:])
    except (ValueError, RecursionError):
        return raw[:start]
    return raw + b"\n"


@contextlib.contextmanager
def file_errors(path: Path) -> Iterator[None]:
    """Turn a failing disk into a refusal: without a ledger nothing may be released."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        raise BudgetError(
            f"the ledger {path} cannot be used ({reason}), and without it nothing may"
            " be released: make the file readable and writable."
        ) from error


def read_both(path: Path) -> tuple[bytes, bytes]:
    """Read ledger and head file under a shared lock.

    A ledger without entries may have neither.
    """
    head = b""
    for _ in range(2):
        try:
            with locked(path, exclusive=False) as descriptor:
                return read_all(descriptor), read_head(path)
        except FileNotFoundError:
            if not path.parent.is_dir():
                # A disk that is gone is not an empty ledger.
                raise
            head = read_head(path)
            if not head:
                break
            # A first charge makes the ledger before its head: if it began just now, the
            # second look finds both.
    return b"", head


def head_path(path: Path) -> Path:
    """Return the path of the head file of a ledger."""
    return path.with_name(path.name + ".head")


def read_head(path: Path) -> bytes:
    """Read the head file of a ledger; empty if there is none."""
    try:
        return head_path(path).read_bytes()
    except FileNotFoundError:
        return b""


def parse_head(raw: bytes) -> tuple[int, str] | None:
    """Read the number of entries and the last checksum from a head file.

    They stand in its last complete line; None without one. A damaged line is a
    ValueError.
    """
    complete = raw.rsplit(b"\n", 2)[:-1]
    if not complete:
        return None
    match = _HEAD_LINE.fullmatch(complete[-1])
    if match is None:
        raise ValueError("the line is not a head as it is written")
    return int(match[1]), match[2].decode()


def append_head(path: Path, checksums: Sequence[str]) -> None:
    """Put a new head in force, for lines that have these checksums."""
    head = f'{{"entries": {len(checksums) - 1}, "checksum": "{checksums[-1]}"}}\n'
    target = head_path(path)
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | BINARY
    descriptor = os.open(target, flags, 0o600)
    try:
        raw = read_all(descriptor)
        complete = raw[: raw.rfind(b"\n") + 1]
        append(
            descriptor,
            raw,
            complete,
            head.encode(),
        )
    finally:
        os.close(descriptor)
    if not complete:
        sync_folder(target.parent)


def plans_path(path: Path) -> Path:
    """Return the path of the file beside a ledger that lists plans looked at today."""
    return path.with_name(path.name + ".plans")


def _parse_notes(raw: bytes) -> list[PlanNote]:
    """Read the notes of a file, without lines that are none."""
    notes = []
    for line in raw.splitlines():
        with contextlib.suppress(ValueError, TypeError, RecursionError):
            note = PlanNote(**json.loads(line))
            if is_utc(note.time):
                notes.append(note)
    return notes


def damage(
    path: Path,
    line: int,
    reason: str,
) -> str:
    """Say of a flawed line what is to be done."""
    if reason == OLD_FORMAT:
        return (
            f"the ledger {path} cannot be used at line {line} ({OLD_FORMAT}): move it"
            " and its head file away, and charge what its runs can have cost to a new"
            " one."
        )
    return f"the ledger {path} is damaged at line {line} ({reason}): {_MEND}"


def mismatch(
    path: Path,
    checksums: Sequence[str],
    head_file: bytes,
) -> str | None:
    """Say what no crash explains between a ledger and its head file, or None."""
    n_entries = len(checksums) - 1
    counter = head_path(path)
    what = f"has {n_entries} entries, but "
    try:
        head = parse_head(head_file)
    except ValueError:
        what += f"{counter}, which counts them, is damaged"
    else:
        n_counted = 0 if head is None else head[0]
        checksum = GENESIS if head is None else head[1]
        if head is None and n_entries:
            what += f"{counter}, which counts them, is missing"
        elif n_entries < n_counted:
            what += (
                f"had {n_counted} (they were cut off, or an older copy was put back)"
            )
        elif n_entries > n_counted + 1:
            what += f"{counter} counts {n_counted} (an older copy of it was put back)"
        elif checksum != checksums[n_counted]:
            what = f"is not the one that {counter} was written for, but another one"
        else:
            return None
    return (
        f"the ledger {path} {what}: restore both files from one backup, or have its"
        f" owner look at it and run 'python -m flwr_dpkmeans ledger accept {path}'."
    )
