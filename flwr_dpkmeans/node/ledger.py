"""A client's privacy ledger: what it is about to release, on its own disk before
anything is sent.

`charge` returns only after the entry is on disk, so whatever was sent has been charged,
whichever way the process ends. One (run, round, attempt) is charged once, and a run all
that it can cost with its first release. What other runs cost is added up in one unit of
privacy: basic composition, which holds as well where each run is chosen by what the
ones before have released (Rogers, Roth, Ullman and Vadhan, "Privacy odometers and
filters", 2016).

``LEDGER.md`` beside this module says what the two files hold and withstand. Both are
only ever appended to, only their complete lines count, and whoever reads or writes
either holds the lock of the first one. Messages about them name their paths: they are
for the person at this machine.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import math
import numbers
import os
import re
import shutil
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from flwr_dpkmeans.errors import (
    BudgetError,
    ConfigurationError,
    ProtocolError,
    invalid,
    told_apart,
)
from flwr_dpkmeans.log import placed_logger
from flwr_dpkmeans.privacy.report import utc_now

GENESIS = hashlib.sha256(b"flwr-dpkmeans ledger, version 2").hexdigest()
"""What the first line's checksum goes on from."""
FIRST_ROUND = -9
"""Rounds that come before a run's first one, because they steer its plan, are numbered
up to 0.
"""
# A plan's numbers may come from another machine, whose last digits differ.
_RELATIVE_SLACK = 1e-8
OLD_FORMAT = (
    "it has the format of an older version, which charged a run that was stopped too"
    " little"
)
SHARES_GIVEN = 10**6
"""Added to the attempt number of an entry that says that key shares were given.

It is no release and costs nothing.
"""
RESULT_TAKEN = 2 * SHARES_GIVEN
"""The attempt number of an entry that says that the run's result has come, in its last
round; it costs nothing.
"""
_BINARY = getattr(os, "O_BINARY", 0)
_ROOM = 2**16
"""Bytes on the disk below which no run begins; an entry and its head take about 500."""
_LOGGER = placed_logger(__name__)
_HEAD_LINE = re.compile(
    rb'\{"entries": (0|-?[1-9][0-9]*), "checksum": "([0-9a-f]{64})"\}'
)
_CALL = "correct the call that charges the ledger"
_MEND = "restore it from a backup or have its owner decide."


@dataclass(frozen=True)
class LedgerEntry:
    """One release that a client is about to make.

    a value of the wrong type or range is a ConfigurationError.
    """

    run_id: str
    data_id: str
    plan_digest: str
    """Of the run's public plan, in lower-case hexadecimal digits."""
    round_index: int
    attempt: int
    """Within the run, from 0; see `SHARES_GIVEN` and `RESULT_TAKEN`."""
    release: str
    epsilon: float
    """What the whole run can cost at its delta, charged with its first release.

    Infinite if it is not private.
    """
    delta: float
    unit: str
    """The run's unit of privacy; costs of different units are never added up."""
    time: str = field(default_factory=utc_now)
    """ISO format in UTC."""

    @property
    def is_release(self) -> bool:
        """Whether something was released, and not only noted."""
        return self.attempt < SHARES_GIVEN

    def __post_init__(self) -> None:
        for name in ("run_id", "data_id", "release", "unit"):
            value = getattr(self, name)
            if not (isinstance(value, str) and value):
                raise invalid(name, value, "a string that is not empty", _CALL)
        if not (
            isinstance(self.plan_digest, str)
            and re.fullmatch("[0-9a-f]+", self.plan_digest)
        ):
            raise invalid(
                "plan_digest",
                self.plan_digest,
                "a string of lower-case hexadecimal digits",
                _CALL,
            )
        for name, kind, read, least, most, bound in _NUMBERS:
            value = getattr(self, name)
            if (
                isinstance(value, bool)
                or not isinstance(value, kind)
                or not least <= value <= most
            ):  # as NaN is not
                raise invalid(name, value, bound, _CALL)
            object.__setattr__(self, name, read(value))
        try:
            is_utc = datetime.fromisoformat(self.time).utcoffset() == timedelta(0)
        except (TypeError, ValueError):
            is_utc = False
        if not is_utc:
            raise invalid("time", self.time, "an ISO time in UTC", _CALL)


_NUMBERS: tuple[
    tuple[str, type[Any], Callable[[Any], float], float, float, str], ...
] = (
    (
        "round_index",
        numbers.Integral,
        int,
        FIRST_ROUND,
        math.inf,
        f"a whole number of at least {FIRST_ROUND}",
    ),
    ("attempt", numbers.Integral, int, 0, math.inf, "a whole number of at least 0"),
    ("epsilon", numbers.Real, float, 0, math.inf, "a number between 0 and inf"),
    ("delta", numbers.Real, float, 0, 1, "a number between 0 and 1"),
)


@dataclass(frozen=True)
class Past:
    """What a data set's other runs have cost in one unit of privacy, all of their worst
    cases added up.
    """

    epsilon: float = 0.0
    delta: float = 0.0
    begun: tuple[str, ...] = ()
    """When each node of each of them, whatever its unit, made its first release.

    Times in UTC, ISO format.
    """


def _run_of(run_id: str) -> str:
    """The run of a part of it: nodes of one host have a part each, named run/node, of
    what is one run.
    """
    return run_id.partition("/")[0]


def total_delta(runs: Sequence[LedgerEntry], own: str = "") -> float:
    """Deltas of runs, by the first entry of each, added up.

    A row that two nodes give to one run counts twice under the same noise, as a person
    with two rows (row C12): a later part of a run costs exp(epsilon of the parts before
    it) times its delta. One of the run `own` comes first.
    """
    deltas, before = list[float](), dict[str, float]()
    for run in runs:
        name = _run_of(run.run_id)
        spent = before.setdefault(name, run.epsilon if name == own else 0.0)
        deltas.append(min(1.0, run.delta * math.exp(min(spent, 700.0))))
        before[name] += run.epsilon
    return math.fsum(deltas)


@dataclass(frozen=True)
class PlanNote:
    """That a plan was held against what other runs have cost, which told its server
    something of it.
    """

    time: str
    """ISO format in UTC."""
    data_id: str
    run_id: str
    plan: str = ""
    """Its digest: the plans of a run that released nothing tell as much as plans of as
    many runs.
    """

    @property
    def key(self) -> tuple[str, str]:
        """What is counted once: nodes of one host that share a ledger look at one plan."""
        return self.run_id, self.plan


Admit = Callable[[Past], None]
"""Raises unless a run may be charged besides what the others have cost.

Called under the ledger's lock.
"""


class MemoryLedger:
    """A client's ledger in memory: what was charged, and the rules that the entries
    obey together.

    It lives as long as its process, for simulations; a `FileLedger` outlives it.
    """

    def __init__(self) -> None:
        self._guard = threading.RLock()
        self._entries: list[LedgerEntry] = []
        self._attempts: dict[
            str, set[tuple[int, int]]
        ] = {}  # of each run, every (round, attempt)
        self._runs: dict[
            str, LedgerEntry
        ] = {}  # the first entry of each run, which charges all of it
        self._plans: list[PlanNote] = []

    def _look(self) -> MemoryLedger:
        """What has been charged until now; called under the guard."""
        return self

    def past(
        self, data_id: str, unit: str, *, excluding_run: str | None = None
    ) -> Past:
        """Return what a data set's runs have cost in one unit.

        Of all, or of all but one that is being resumed.
        """
        begun, charged, own = (
            list[str](),
            list[LedgerEntry](),
            _run_of(excluding_run or ""),
        )
        with self._guard:
            for run in self._look()._runs.values():
                if run.data_id != data_id or run.run_id == excluding_run:
                    continue
                # Each node of a run: who gives out the numbers of nodes could ask one
                # again under the next.
                begun.append(run.time)
                if run.unit == unit:
                    charged.append(run)
        return Past(
            math.fsum([run.epsilon for run in charged]),
            total_delta(charged, own),
            tuple(begun),
        )

    def attempts(self, run_id: str) -> frozenset[tuple[int, int]]:
        """Return every (round, attempt) of a run that has been charged."""
        with self._guard:
            return frozenset(self._look()._attempts.get(run_id, ()))

    def entries(self) -> tuple[LedgerEntry, ...]:
        """Return all entries in the order of their charges."""
        with self._guard:
            return tuple(self._look()._entries)

    def require_usable(self) -> None:
        """Raise BudgetError if a charge would fail for the ledger's own sake.

        Called before a run begins.
        """

    def note_plan(self, data_id: str, run_id: str, plan: str, most: int) -> int:
        """Note that a plan is held against what a data set's runs have cost, and return
        of how many others it was.

        They are plans of the last 24 hours whose runs released nothing. With `most` of
        them nothing is added any more.
        """
        with self._guard:
            note = PlanNote(utc_now(), data_id, _run_of(run_id), plan)
            self._plans, n_others = self._noted(self._plans, note, most)
            return n_others

    def _noted(
        self, notes: Sequence[PlanNote], note: PlanNote, most: int
    ) -> tuple[list[PlanNote], int]:
        """Return today's notes with a new one, and the number of the others."""
        earliest = datetime.now(UTC) - timedelta(days=1)
        charged = set(map(_run_of, self._look()._runs))
        today = [
            other
            for other in notes
            if datetime.fromisoformat(other.time) >= earliest
            and other.run_id not in charged
        ]
        others = {other.key for other in today if other.data_id == note.data_id}
        others.discard(note.key)
        if len(others) < most:
            today = [other for other in today if other.key != note.key]
            today.append(note)
        return today, len(others)

    def charge(self, entry: LedgerEntry, admit: Admit | None = None) -> None:
        """Record a release before it is sent.

        The first entry of a run charges all that the run can cost; later ones add lines
        only. ``admit(past)`` raises unless the run may be charged besides what the
        others on its data set have cost; it is called under the lock, so that nobody
        else charges between its decision and this entry. An attempt that is in the
        ledger already, or an entry that does not fit its run, is a ProtocolError; a
        file that is damaged or cannot be written, a BudgetError.
        """
        with self._guard:
            self._refuse(entry, admit)
            self._add(entry)

    def _refuse(self, entry: LedgerEntry, admit: Admit | None) -> None:
        conflict = self._conflict(entry)
        if conflict is not None:
            raise ProtocolError(
                f"{conflict}, but a release must fit its run: ask for a new attempt or"
                " a new run."
            )
        if admit is not None:
            admit(self.past(entry.data_id, entry.unit, excluding_run=entry.run_id))

    def _conflict(self, entry: LedgerEntry) -> str | None:
        """Say why an entry cannot follow the present ones, if it cannot.

        Data sets are not named.
        """
        run = self._runs.get(entry.run_id)
        if run is None:
            return None
        if (entry.round_index, entry.attempt) in self._attempts[entry.run_id]:
            return (
                f"run {entry.run_id!a} already has round {entry.round_index}, attempt"
                f" {entry.attempt}"
            )
        for name in ("data_id", "plan_digest", "delta", "unit"):
            if getattr(run, name) != getattr(entry, name):
                return f"run {entry.run_id!a} began with another {name}"
        # The first release paid for whatever may follow; what was known by then may not
        # decide the price any more.
        if entry.epsilon > run.epsilon * (1.0 + _RELATIVE_SLACK):
            cost, charged = told_apart(entry.epsilon, run.epsilon)
            return (
                f"run {entry.run_id!a} was charged epsilon {charged} at its first"
                f" release and can now cost {cost}"
            )
        return None

    def _add(self, entry: LedgerEntry) -> None:
        """Add an entry that is in no conflict with the others."""
        self._entries.append(entry)
        self._attempts.setdefault(entry.run_id, set()).add(
            (entry.round_index, entry.attempt)
        )
        self._runs.setdefault(entry.run_id, entry)


def encode(entry: LedgerEntry, previous: str) -> bytes:
    """Return an entry's line; its checksum goes on from the previous one.

    JSON has no infinity: that is a string.
    """
    text = json.dumps(
        vars(entry) | ({"epsilon": "inf"} if math.isinf(entry.epsilon) else {})
    )
    checksum = hashlib.sha256(f"{previous}\n{text}".encode()).hexdigest()
    return f'{text[:-1]}, "checksum": "{checksum}"}}\n'.encode()


class Chain(MemoryLedger):
    """The entries of a ledger's file, with the checksum before the first line and after
    each.
    """

    def __init__(self) -> None:
        super().__init__()
        self.checksums = [GENESIS]
        self.lines = b""  # that were read

    def read(self, lines: bytes) -> Iterator[tuple[int, str]]:
        """Take in what was added to the lines.

        Yield (line number, reason) of each flaw and go on after it.
        """
        added, self.lines = lines[len(self.lines) :], lines
        for number, line in enumerate(
            added.split(b"\n")[:-1], start=len(self._entries) + 1
        ):
            flaw = self._take(line)
            if flaw is not None:
                yield number, flaw
            if flaw == OLD_FORMAT:
                return  # so is every other line

    def _take(self, line: bytes) -> str | None:
        """Add the entry of a line, or say why it cannot follow."""
        try:
            body = json.loads(line)
            checksum = str(body.pop("checksum"))
            if {*body} == {*LedgerEntry.__dataclass_fields__} - {"unit"}:
                return OLD_FORMAT
            entry = LedgerEntry(**{**body, "epsilon": float(body["epsilon"])})
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
            self.checksums[-1] = checksum  # as the next line sees it
        return flaw


def complete_lines(raw: bytes) -> bytes:
    """Return the complete lines, each with its line end.

    Drop a torn last one, end one that lacks only its end.
    """
    start = raw.rfind(b"\n") + 1
    try:
        json.loads(raw[start:])  # no proper beginning of a JSON object is JSON itself
    except (ValueError, RecursionError):
        return raw[:start]
    return raw + b"\n"


def head_path(path: Path) -> Path:
    """Path of the head file of a ledger."""
    return path.with_name(path.name + ".head")


def plans_path(path: Path) -> Path:
    """Path of the file beside a ledger that says of which runs a plan was looked at
    today.
    """
    return path.with_name(path.name + ".plans")


def _parse_notes(raw: bytes) -> list[PlanNote]:
    """The notes of a file.

    a line that is none is left out, as a crash may have torn it.
    """
    notes = []
    for line in raw.splitlines():
        with contextlib.suppress(ValueError, TypeError, RecursionError):
            note = PlanNote(**json.loads(line))
            datetime.fromisoformat(note.time)
            notes.append(note)
    return notes


def read_both(path: Path) -> tuple[bytes, bytes]:
    """Read ledger and head file under a shared lock.

    a ledger without entries may have neither.
    """
    head = b""
    for _ in range(2):
        try:
            with locked(path, exclusive=False) as descriptor:
                return read_all(descriptor), read_head(path)
        except FileNotFoundError:
            if not path.parent.is_dir():  # a disk that is gone is not an empty ledger
                raise
            head = read_head(path)
            if not head:
                break
            # A first charge makes the ledger before its head: if it began just now, the
            # second look finds both.
    return b"", head


def read_head(path: Path) -> bytes:
    """Read the head file of a ledger; empty if there is none."""
    try:
        return head_path(path).read_bytes()
    except FileNotFoundError:
        return b""


def parse_head(raw: bytes) -> tuple[int, str] | None:
    """Number of entries and last checksum, as the last complete line of a head file
    says; None without one.

    A damaged line is a ValueError.
    """
    complete = raw.rsplit(b"\n", 2)[:-1]
    if not complete:
        return None
    found = _HEAD_LINE.fullmatch(complete[-1])
    if found is None:
        raise ValueError("the line is not a head as it is written")
    return int(found[1]), found[2].decode()


def append_head(path: Path, checksums: Sequence[str]) -> None:
    """Put a new head in force, for lines that have these checksums."""
    head = f'{{"entries": {len(checksums) - 1}, "checksum": "{checksums[-1]}"}}\n'
    place = head_path(path)
    descriptor = os.open(place, os.O_RDWR | os.O_APPEND | os.O_CREAT | _BINARY, 0o600)
    try:
        raw = read_all(descriptor)
        complete = raw[: raw.rfind(b"\n") + 1]
        append(descriptor, raw, complete, head.encode())
    finally:
        os.close(descriptor)
    if not complete:
        sync_folder(place.parent)


def read_all(descriptor: int) -> bytes:
    """Read a whole file."""
    os.lseek(descriptor, 0, os.SEEK_SET)
    chunks = []
    while chunk := os.read(descriptor, 1 << 24):
        chunks.append(chunk)
    return b"".join(chunks)


def append(descriptor: int, raw: bytes, complete: bytes, line: bytes) -> None:
    """Put a line onto the disk, all of it or as good as nothing, after the complete
    lines of what the file has.
    """
    undo_size = min(len(raw), len(complete))
    if undo_size < len(raw):  # a crash left an unfinished line
        os.ftruncate(descriptor, undo_size)
    rest = memoryview(complete[len(raw) :] + line)
    try:
        while rest:
            rest = rest[os.write(descriptor, rest) :]
    except OSError:
        with contextlib.suppress(
            OSError
        ):  # if this fails as well, a torn line stays, which readers drop
            os.ftruncate(descriptor, undo_size)
        raise
    os.fsync(descriptor)


@contextlib.contextmanager
def locked(path: Path, *, exclusive: bool) -> Iterator[int]:
    """Open a file, to append if the lock is exclusive, and wait for the lock.

    The path must still lead to it then.
    """
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT if exclusive else os.O_RDONLY
    while True:
        descriptor = os.open(path, flags | _BINARY, 0o600)
        try:
            lock(descriptor, exclusive=exclusive)
            if os.path.samestat(os.fstat(descriptor), os.stat(path)):
                yield descriptor
                return
        finally:
            os.close(descriptor)  # this unlocks it too


def sync_folder(folder: Path) -> None:
    """Make names as durable as what is in the files.

    Windows can neither do this nor needs it.
    """
    if sys.platform == "win32":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def lock(descriptor: int, *, exclusive: bool = True, wait: bool = True) -> bool:
    """Take the file's lock, which ends with the descriptor or the process.

    Without waiting, False if another has it.
    """
    if sys.platform == "win32":
        import msvcrt

        while True:
            # Windows locks forbid reading what they cover, so the locked byte lies
            # beyond every entry.
            os.lseek(descriptor, 1 << 30, os.SEEK_SET)
            with contextlib.suppress(OSError):  # it gives up after ten seconds
                msvcrt.locking(
                    descriptor, msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK, 1
                )
                return True
            if not wait:
                return False
    else:
        import fcntl

        try:
            kind = fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH
            fcntl.flock(descriptor, kind if wait else kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


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


class FileLedger(MemoryLedger):
    """A ledger in an append-only file that survives restarts and crashes.

    The first charge makes it.

    An unfinished last line is what a crash in the middle of `charge` leaves, for which
    nothing was sent: it does not count, and the next charge cuts it off and logs so.
    Any other flaw, of the file or of the head beside it, stops every use with a
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

    def require_usable(self) -> None:
        """Raise BudgetError if a charge could not be written.

        Files, or folder without them, or a full disk.
        """
        with self._guard, file_errors(self._path):
            self._look()
            for place in (self._path, head_path(self._path)):
                try:
                    os.close(os.open(place, os.O_RDWR | os.O_APPEND | _BINARY))
                except FileNotFoundError:
                    if not os.access(place.parent, os.W_OK):
                        raise PermissionError(
                            errno.EACCES, os.strerror(errno.EACCES)
                        ) from None
            if shutil.disk_usage(self._path.parent).free < _ROOM:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def charge(self, entry: LedgerEntry, admit: Admit | None = None) -> None:
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
            if (
                head is None or head[0] < len(self._chain.checksums) - 1
            ):  # of a first charge, or left undone by a crash
                self._write_head(descriptor)
            line = encode(entry, self._chain.checksums[-1])
            if len(complete) < len(raw):
                _LOGGER.warning(
                    "The ledger %s: dropped an unfinished last line, never released.",
                    self._path,
                )
            append(descriptor, raw, complete, line)
            self._take(complete + line)
            append_head(self._path, self._chain.checksums)

    def note_plan(self, data_id: str, run_id: str, plan: str, most: int) -> int:
        """Note a plan on disk, for the processes of later messages.

        See `MemoryLedger.note_plan`.
        """
        self._look()  # nothing is written beside a ledger that is damaged
        with (
            self._guard,
            file_errors(self._path),
            locked(plans_path(self._path), exclusive=True) as descriptor,
        ):
            notes = _parse_notes(read_all(descriptor))
            note = PlanNote(utc_now(), data_id, _run_of(run_id), plan)
            today, n_others = self._noted(notes, note, most)
            lines = "".join(f"{json.dumps(vars(other))}\n" for other in today)
            os.ftruncate(descriptor, 0)
            append(descriptor, b"", b"", lines.encode())
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

    def _catch_up(self, complete: bytes, head_file: bytes) -> tuple[int, str] | None:
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


def unfinished(ledger: MemoryLedger, data_id: str) -> LedgerEntry | None:
    """Return the last release of a data set's run without a result, unless one that
    began later has had its own.
    """
    entries = [entry for entry in ledger.entries() if entry.data_id == data_id]
    begun, done = (
        {entry.run_id: -place for place, entry in enumerate(reversed(entries))},
        set[str](),
    )
    for place, entry in enumerate(reversed(entries)):
        if any(begun[run] > -place for run in done):
            return None
        if entry.attempt == RESULT_TAKEN:
            done.add(entry.run_id)
        elif entry.is_release and entry.run_id not in done:
            return entry
    return None


def damage(path: Path, line: int, reason: str) -> str:
    """Say of a flawed line what is to be done."""
    if reason == OLD_FORMAT:
        return (
            f"the ledger {path} cannot be used at line {line} ({OLD_FORMAT}): move it"
            " and its head file away, and charge what its runs can have cost to a new"
            " one."
        )
    return f"the ledger {path} is damaged at line {line} ({reason}): {_MEND}"


def mismatch(path: Path, checksums: Sequence[str], head_file: bytes) -> str | None:
    """Say what no crash explains between a ledger and its head file, if there is
    something.
    """
    n_entries, place = len(checksums) - 1, head_path(path)
    what = f"has {n_entries} entries, but "
    try:
        head = parse_head(head_file)
    except ValueError:
        what += f"{place}, which counts them, is damaged"
    else:
        n_counted, checksum = (0, GENESIS) if head is None else head
        if head is None and n_entries:
            what += f"{place}, which counts them, is missing"
        elif n_entries < n_counted:
            what += (
                f"had {n_counted} (they were cut off, or an older copy was put back)"
            )
        elif n_entries > n_counted + 1:
            what += f"{place} counts {n_counted} (an older copy of it was put back)"
        elif checksum != checksums[n_counted]:
            what = f"is not the one that {place} was written for, but another one"
        else:
            return None
    return (
        f"the ledger {path} {what}: restore both files from one backup, or have its"
        f" owner look at it and run 'python -m flwr_dpkmeans ledger accept {path}'."
    )
