"""A client's privacy ledger: what it is about to release, on its own disk before anything is sent.

`charge` returns only after the entry is on disk, so whatever was sent has been charged, whichever way the
process ends. A restart, a replayed message or a hostile server cannot reset it, because

* one (run, round, attempt) is charged once;
* a run is charged all that it can cost with its first release, and keeps its data set, unit, plan and delta;
* what the caller asks of the other runs' costs is asked under the file's lock, after reading what other
  processes appended.

One ledger belongs to one client. Whoever sees releases may stop a run where it has told much, so what its
releases so far cost does not bound what they told; what all of them can cost does. A data set has cost the
sum over its runs in one unit of privacy, of epsilons and of deltas: basic composition, which holds as well
where each run is chosen by what the ones before have released (Rogers, Roth, Ullman and Vadhan, "Privacy
odometers and filters", 2016). Runs in different units are never added up.

The file has one JSON object per line, each with a SHA-256 checksum over the checksum before it and the
entry, so that an edited, missing or swapped line shows. A head file beside it (``.head``) counts the lines
and repeats the last checksum, so that lines cut off the end, a deleted ledger or an older copy show too. It
is written after each line is on disk: a ledger is level with its head, or one entry ahead of it after a
crash. None of this has a key: the owner of the disk, who can rewrite or restore both files, is not kept out.

Both files are only ever appended to, only their complete lines count, and whoever reads or writes either holds the
lock of the first one, so that the two are always looked at together. Messages about them name their paths: they are for
the person at this machine. ``LEDGER.md`` beside this module has the format, what is tested and the owner's procedures.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import logging
import math
import operator
import os
import re
import shutil
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from flwr_dpkmeans.errors import BudgetError, ConfigurationError, ProtocolError, told_apart

GENESIS = hashlib.sha256(b"flwr-dpkmeans ledger, version 2").hexdigest()
"""What the first line's checksum goes on from."""
FIRST_ROUND = -9
"""Rounds that come before a run's first one, because they steer its plan, are numbered up to 0."""
# A plan's numbers may come from another machine, whose last digits differ.
_RELATIVE_SLACK = 1e-8
OLD_FORMAT = "it has the format of an older version, which charged a run that was stopped too little"
SHARES_GIVEN = 10**6
"""Added to the attempt number of an entry that says that key shares were given; it is no release and costs nothing."""
_BINARY = getattr(os, "O_BINARY", 0)
_ROOM = 2**16
"""Bytes on the disk below which no run begins; an entry and its head take about 500."""
_LOGGER = logging.getLogger(__name__)
_HEAD_LINE = re.compile(rb'\{"entries": (0|-?[1-9][0-9]*), "checksum": "([0-9a-f]{64})"\}')
_MEND = "restore it from a backup or have its owner decide."


def utc_now() -> str:
    """Return the time in UTC, in ISO format with seconds."""
    return datetime.now(UTC).isoformat(timespec="seconds")


@dataclass(frozen=True)
class LedgerEntry:
    """One release that a client is about to make; a value of the wrong type or range is a ConfigurationError.

    Examples
    --------
    >>> LedgerEntry("run-1", "ward-7", "ab12", 0, 0, "sums", epsilon=0.5, delta=1e-6, unit="record").epsilon
    0.5
    """

    run_id: str
    data_id: str
    """The client's own name for its data set."""
    plan_digest: str
    """Of the run's public plan, in lower-case hexadecimal digits."""
    round_index: int
    attempt: int
    """Within the run, from 0; see `SHARES_GIVEN`."""
    release: str
    """Name of what is released."""
    epsilon: float
    """What the whole run can cost at its delta, charged with its first release; infinite if it is not private."""
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
                raise _invalid(name, value, "a string that is not empty")
        if not (isinstance(self.plan_digest, str) and re.fullmatch("[0-9a-f]+", self.plan_digest)):
            raise _invalid("plan_digest", self.plan_digest, "a string of lower-case hexadecimal digits")
        for name, least in (("round_index", FIRST_ROUND), ("attempt", 0)):
            object.__setattr__(self, name, _whole_number(name, getattr(self, name), least))
        object.__setattr__(self, "epsilon", _number("epsilon", self.epsilon, math.inf))
        object.__setattr__(self, "delta", _number("delta", self.delta, 1.0))
        if not _is_utc(self.time):
            raise _invalid("time", self.time, "an ISO time in UTC")


@dataclass(frozen=True)
class Past:
    """What a data set's other runs have cost in one unit of privacy, all of their worst cases added up."""

    epsilon: float = 0.0
    delta: float = 0.0
    begun: tuple[str, ...] = ()
    """When each of them, whatever its unit and the node, made its first release: times in UTC, ISO format."""


Admit = Callable[[Past], None]
"""Raises unless a run may be charged besides what the others have cost; called under the ledger's lock."""


class Book:
    """The entries in memory, and the rules they obey together."""

    def __init__(self) -> None:
        self.entries: list[LedgerEntry] = []
        self.checksums = [GENESIS]  # before the first line, and after each
        self.attempts: dict[str, set[tuple[int, int]]] = {}  # of each run, every (round, attempt)
        self._runs: dict[str, LedgerEntry] = {}  # the first entry of each run, which charges all of it

    @property
    def head(self) -> str:
        """The last checksum."""
        return self.checksums[-1]

    def past(self, data_id: str, unit: str, excluding_run: str | None) -> Past:
        """What a data set's runs have cost together in one unit."""
        own, begun = "" if excluding_run is None else excluding_run.partition("/")[0], dict[str, str]()
        epsilons, deltas = list[float](), list[float]()
        for run in self._runs.values():
            if run.data_id != data_id or run.run_id == excluding_run:
                continue
            # Nodes of one host have a part each, named run/node, of what is one run.
            begun.setdefault(run.run_id.partition("/")[0], run.time)
            if run.unit == unit:
                epsilons.append(run.epsilon)
                deltas.append(run.delta)
        begun.pop(own, None)
        return Past(math.fsum(epsilons), math.fsum(deltas), tuple(begun.values()))

    def conflict(self, entry: LedgerEntry) -> str | None:
        """Say why an entry cannot follow the present ones, if it cannot; data sets are not named."""
        if (entry.round_index, entry.attempt) in self.attempts.get(entry.run_id, ()):
            return f"run {entry.run_id!a} already has round {entry.round_index}, attempt {entry.attempt}"
        run = self._runs.get(entry.run_id)
        if run is None:
            return None
        for name in ("data_id", "plan_digest", "delta", "unit"):
            if getattr(run, name) != getattr(entry, name):
                return f"run {entry.run_id!a} began with another {name}"
        # The first release paid for whatever may follow; what was known by then may not decide the price any more.
        if entry.epsilon > run.epsilon * (1.0 + _RELATIVE_SLACK):
            cost, charged = told_apart(entry.epsilon, run.epsilon)
            return f"run {entry.run_id!a} was charged epsilon {charged} at its first release and can now cost {cost}"
        return None

    def refuse(self, entry: LedgerEntry, admit: Admit | None) -> None:
        """Raise unless the entry may be charged."""
        conflict = self.conflict(entry)
        if conflict is not None:
            raise ProtocolError(
                f"{conflict}, but a release must fit its run: ask for a new attempt or start a new run."
            )
        if admit is not None:
            admit(self.past(entry.data_id, entry.unit, entry.run_id))

    def add(self, entry: LedgerEntry, checksum: str = "") -> None:
        """Add an entry whose line has this checksum; in memory there are no lines."""
        self.entries.append(entry)
        self.checksums.append(checksum)
        self.attempts.setdefault(entry.run_id, set()).add((entry.round_index, entry.attempt))
        self._runs.setdefault(entry.run_id, entry)


_FIELDS = tuple(item.name for item in fields(LedgerEntry))


class OldFormatError(ValueError):
    """A line that an older version wrote."""


def encode(entry: LedgerEntry, previous: str) -> tuple[bytes, str]:
    """Return an entry's line and its checksum; JSON has no infinity, so that is spelt as a string."""
    body: dict[str, Any] = {name: getattr(entry, name) for name in _FIELDS}
    if math.isinf(entry.epsilon):
        body["epsilon"] = "inf"
    text = json.dumps(body)
    checksum = hashlib.sha256(f"{previous}\n{text}".encode()).hexdigest()
    return f'{text[:-1]}, "checksum": "{checksum}"}}\n'.encode(), checksum


def decode(line: bytes) -> tuple[LedgerEntry, str]:
    """Return the entry and checksum that a line states, or raise one of the errors that `absorb` expects."""
    body = json.loads(line)
    checksum = body.pop("checksum")
    if {*body} == {*_FIELDS} - {"unit"}:
        raise OldFormatError
    return LedgerEntry(**{**body, "epsilon": float(body["epsilon"])}), str(checksum)


def absorb(book: Book, lines: bytes) -> Iterator[tuple[int, str]]:
    """Add complete lines to a book; yield (line number, reason) of each flaw and go on after it."""
    skipped = 0
    for line in lines.split(b"\n")[:-1]:
        number = len(book.entries) + skipped + 1
        reason: str | None
        try:
            entry, checksum = decode(line)
        except OldFormatError:
            yield number, OLD_FORMAT
            return  # so is every other line
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
            reason = "it is not an entry"
        else:
            # Encoding once more and comparing bytes covers the checksum and every other way to spell an entry.
            if encode(entry, book.head)[0] == line + b"\n":
                reason = book.conflict(entry)
            else:
                reason = "its checksum does not fit the line and the one before it"
            if reason is None:
                book.add(entry, checksum)
                continue
            book.checksums[-1] = checksum  # as the next line sees it
        skipped += 1
        yield number, reason


def complete_lines(raw: bytes) -> bytes:
    """Return the complete lines, each with its line end: drop a torn last one, end one that lacks only its end."""
    start = raw.rfind(b"\n") + 1
    try:
        json.loads(raw[start:])  # no proper beginning of a JSON object is JSON itself
    except (ValueError, RecursionError):
        return raw[:start]
    return raw + b"\n"


@dataclass(frozen=True)
class Head:
    """How many entries a ledger has, and the checksum of the last one: a line of the head file."""

    entries: int
    checksum: str

    def line(self) -> bytes:
        """The line that `parse_head` reads."""
        return f'{{"entries": {self.entries}, "checksum": "{self.checksum}"}}\n'.encode()


def head_path(path: Path) -> Path:
    """Path of the head file of a ledger."""
    return path.with_name(path.name + ".head")


def read_both(path: Path) -> tuple[bytes, bytes]:
    """Read ledger and head file under a shared lock; a ledger without entries may have neither."""
    head = b""
    for _ in range(2):
        try:
            with _locked(path, exclusive=False) as descriptor:
                return read_all(descriptor), read_head(path)
        except FileNotFoundError:
            if not path.parent.is_dir():  # a disk that is gone is not an empty ledger
                raise
            head = read_head(path)
            if not head:
                break
            # A first charge makes the ledger before its head: if it began just now, the second look finds both.
    return b"", head


def read_head(path: Path) -> bytes:
    """Read the head file of a ledger; empty if there is none."""
    try:
        return head_path(path).read_bytes()
    except FileNotFoundError:
        return b""


def parse_head(raw: bytes) -> Head | None:
    """Return what the last complete line of a head file says, None without one; ValueError if it is damaged."""
    complete = raw.rsplit(b"\n", 2)[:-1]
    if not complete:
        return None
    found = _HEAD_LINE.fullmatch(complete[-1])
    if found is None:
        raise ValueError("the line is not a head as it is written")
    return Head(int(found[1]), found[2].decode())


def append_head(path: Path, head: Head) -> None:
    """Put a new head in force: on the disk, after what a crash may have left unfinished has been cut off."""
    place = head_path(path)
    descriptor = os.open(place, os.O_RDWR | os.O_APPEND | os.O_CREAT | _BINARY, 0o600)
    try:
        raw = read_all(descriptor)
        size = raw.rfind(b"\n") + 1
        if size < len(raw):
            os.ftruncate(descriptor, size)
        append(descriptor, head.line(), undo_size=size)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    if not size:
        _sync_folder(place.parent)


def require_writable(path: Path) -> None:
    """Raise OSError if ledger or head cannot be written, or made, or the disk has no room for them."""
    for place in (path, head_path(path)):
        try:
            os.close(os.open(place, os.O_RDWR | os.O_APPEND | _BINARY))
        except FileNotFoundError:
            if not os.access(path.parent, os.W_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES)) from None
    if shutil.disk_usage(path.parent).free < _ROOM:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def read_all(descriptor: int) -> bytes:
    """Read a whole file."""
    os.lseek(descriptor, 0, os.SEEK_SET)
    chunks = []
    while chunk := os.read(descriptor, 1 << 24):
        chunks.append(chunk)
    return b"".join(chunks)


def append(descriptor: int, data: bytes, undo_size: int) -> None:
    """Write all of the data at the end, or as good as nothing."""
    rest = memoryview(data)
    try:
        while rest:
            rest = rest[os.write(descriptor, rest) :]
    except OSError:
        with contextlib.suppress(OSError):  # if this fails as well, a torn line stays, which readers drop
            os.ftruncate(descriptor, undo_size)
        raise


@contextlib.contextmanager
def _locked(path: Path, *, exclusive: bool) -> Iterator[int]:
    """Open a file, to append if the lock is exclusive, and wait for the lock; the path must still lead to it then."""
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT if exclusive else os.O_RDONLY
    while True:
        descriptor = os.open(path, flags | _BINARY, 0o600)
        try:
            _lock(descriptor, exclusive)
            if os.path.samestat(os.fstat(descriptor), os.stat(path)):
                yield descriptor
                return
        finally:
            os.close(descriptor)  # this unlocks it too


def _sync_folder(folder: Path) -> None:
    """Make names as durable as what is in the files; Windows can neither do this nor needs it."""
    if sys.platform == "win32":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _lock(descriptor: int, exclusive: bool) -> None:
    """Wait for the file's lock, which ends with the descriptor or the process."""
    if sys.platform == "win32":
        import msvcrt

        while True:
            # Windows locks forbid reading what they cover, so the locked byte lies beyond every entry.
            os.lseek(descriptor, 1 << 30, os.SEEK_SET)
            with contextlib.suppress(OSError):  # it gives up after ten seconds
                msvcrt.locking(descriptor, msvcrt.LK_LOCK, 1)
                return
    else:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH)


@contextlib.contextmanager
def file_errors(path: Path) -> Iterator[None]:
    """Turn a failing disk into a refusal: without a ledger nothing may be released."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        raise BudgetError(
            f"the ledger {path} cannot be used ({reason}), and without it nothing may be released: make the file "
            "readable and writable."
        ) from error


class Ledger(ABC):
    """A client's ledger, as the node asks it: `FileLedger`, or `MemoryLedger` for simulations."""

    def __init__(self) -> None:
        self._book = Book()
        self._guard = threading.Lock()

    @abstractmethod
    def _current(self) -> Book:
        """The book with all that has been charged until now; called under the guard."""

    def past(self, data_id: str, unit: str, *, excluding_run: str | None = None) -> Past:
        """Return what a data set's runs have cost in one unit: of all, or of all but one that is being resumed."""
        with self._guard:
            return self._current().past(data_id, unit, excluding_run)

    def has_attempt(self, run_id: str, round_index: int, attempt: int) -> bool:
        """Say whether a release of this attempt has been charged."""
        return (round_index, attempt) in self.attempts(run_id)

    def attempts(self, run_id: str) -> frozenset[tuple[int, int]]:
        """Return every (round, attempt) of a run that has been charged."""
        with self._guard:
            return frozenset(self._current().attempts.get(run_id, ()))

    def entries(self) -> tuple[LedgerEntry, ...]:
        """Return all entries in the order of their charges."""
        with self._guard:
            return tuple(self._current().entries)

    @abstractmethod
    def require_usable(self) -> None:
        """Raise BudgetError if a charge would fail for the ledger's own sake; called before a run begins."""

    @abstractmethod
    def charge(self, entry: LedgerEntry, admit: Admit | None = None) -> None:
        """Record a release before it is sent.

        The first entry of a run charges all that the run can cost; later ones add lines only. ``admit(past)`` raises
        unless the run may be charged besides what the others on its data set have cost; it is called under the lock, so
        that nobody else charges between its decision and this entry. An attempt that is in the ledger already, or an
        entry that does not fit its run, is a ProtocolError; a file that is damaged or cannot be written, a BudgetError.
        """


class MemoryLedger(Ledger):
    """A ledger that lives as long as its process, for simulations."""

    def _current(self) -> Book:
        return self._book

    def require_usable(self) -> None:
        """Return: memory can always be written."""

    def charge(self, entry: LedgerEntry, admit: Admit | None = None) -> None:
        """Record a release; see `Ledger.charge`."""
        with self._guard:
            self._book.refuse(entry, admit)
            self._book.add(entry)


class FileLedger(Ledger):
    """A ledger in an append-only file that survives restarts and crashes; the first charge makes it.

    A last line without its end is what a crash in the middle of `charge` leaves. That charge never returned,
    so nothing was sent for it: it does not count, and the next charge cuts it off and logs so. A last line
    that lacks only its line end is complete, and counts. Any other flaw, of the file or of the head beside
    it, stops every use with a BudgetError. Links are followed. The folder must exist (else: ConfigurationError):
    one that is missing, say because a disk is not mounted, must not start an empty ledger.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     entry = LedgerEntry("run-1", "ward-7", "ab12", 0, 0, "sums", 0.5, 1e-6, "record")
    ...     FileLedger(folder + "/ledger").charge(entry)
    ...     FileLedger(folder + "/ledger").has_attempt("run-1", 0, 0)
    True
    """

    def __init__(self, path: str | Path) -> None:
        super().__init__()
        # A later change of folder must not start another ledger, and all links to one file share its head.
        self._path = Path(os.path.realpath(path))
        if not self._path.parent.is_dir():
            raise ConfigurationError(f"the ledger's folder {self._path.parent} does not exist: make or mount it.")
        if self._path.is_dir():
            raise ConfigurationError(f"the ledger's path {self._path} is a folder: give the path of a file in it.")
        self._read = b""

    def __reduce__(self) -> tuple[type[FileLedger], tuple[Path]]:
        return FileLedger, (self._path,)

    def require_usable(self) -> None:
        """Look whether a charge could be written, without writing anything; see `Ledger.require_usable`."""
        with self._guard, file_errors(self._path):
            self._current()
            require_writable(self._path)

    def charge(self, entry: LedgerEntry, admit: Admit | None = None) -> None:
        """Record a release on disk; send it only after this has returned. See `Ledger.charge`."""
        with self._guard, file_errors(self._path), _locked(self._path, exclusive=True) as descriptor:
            raw = read_all(descriptor)
            complete = complete_lines(raw)
            head = self._catch_up(complete, read_head(self._path))
            self._book.refuse(entry, admit)
            if head is None or head.entries < len(self._book.entries):
                self._write_head(descriptor)  # of a first charge, or what a crash left undone
            line, checksum = encode(entry, self._book.head)
            if len(complete) < len(raw):
                _LOGGER.warning("The ledger %s: dropped an unfinished last line, never released.", self._path)
                os.ftruncate(descriptor, len(complete))
            append(descriptor, complete[len(raw) :] + line, undo_size=min(len(raw), len(complete)))
            os.fsync(descriptor)
            append_head(self._path, Head(len(self._book.entries) + 1, checksum))
            self._book.add(entry, checksum)
            self._read = complete + line

    def accept(self) -> LedgerReport:
        """Take the file as it stands, and write its head anew: for its owner, after looking at it.

        Releases that are missing from it no longer count. A damaged line, or a file that cannot be written, is a
        BudgetError.
        """
        with self._guard, file_errors(self._path), _locked(self._path, exclusive=True) as descriptor:
            self._book, self._read = Book(), b""
            self._absorb(complete_lines(read_all(descriptor)))
            self._write_head(descriptor)
        return inspect_ledger(self._path)

    def _write_head(self, descriptor: int) -> None:
        """Make the head level with the lines, which go onto the disk first."""
        os.fsync(descriptor)
        append_head(self._path, Head(len(self._book.entries), self._book.head))

    def _current(self) -> Book:
        with file_errors(self._path):
            raw, head_file = read_both(self._path)
        self._catch_up(complete_lines(raw), head_file)
        return self._book

    def _catch_up(self, complete: bytes, head_file: bytes) -> Head | None:
        """Read what was appended since the last look; what was read before must still be there. Return the head."""
        if not complete.startswith(self._read):
            raise BudgetError(f"the ledger {self._path} was cut or altered while in use: {_MEND}")
        self._absorb(complete)
        mismatch = _mismatch(self._path, self._book, head_file)
        if mismatch is not None:
            raise BudgetError(mismatch)
        return parse_head(head_file)

    def _absorb(self, complete: bytes) -> None:
        for problem in absorb(self._book, complete[len(self._read) :]):
            self._book, self._read = Book(), b""
            raise BudgetError(_damage(self._path, problem))
        self._read = complete


@dataclass(frozen=True)
class LedgerReport:
    """What `inspect_ledger` found: a sentence per problem, sound entries, last checksum, size of a torn tail.

    With `is_acceptable` every line is sound, so that only the head file can be a problem.
    """

    problems: tuple[str, ...]
    entries: tuple[LedgerEntry, ...] = ()
    head: str = GENESIS
    torn_bytes: int = 0
    is_acceptable: bool = False


def inspect_ledger(path: str | Path) -> LedgerReport:
    """Read a whole ledger and its head past their flaws, without changing them; an unfinished last line is none."""
    given, place = Path(path), Path(os.path.realpath(path))
    if not (place.exists() or head_path(place).exists()):
        return LedgerReport((f"the ledger {path} does not exist: correct its path.",))
    try:
        with file_errors(given):
            raw, head_file = read_both(place)
    except BudgetError as error:
        return LedgerReport((str(error),))
    complete, book = complete_lines(raw), Book()
    damages = [_damage(given, problem) for problem in absorb(book, complete)]
    mismatch = None if damages else _mismatch(given, book, head_file)
    problems = damages if mismatch is None else [mismatch]
    torn_bytes = max(0, len(raw) - len(complete))
    return LedgerReport(tuple(problems), tuple(book.entries), book.head, torn_bytes, is_acceptable=not damages)


def _damage(path: Path, problem: tuple[int, str]) -> str:
    if problem[1] == OLD_FORMAT:
        return (
            f"the ledger {path} cannot be used at line {problem[0]} ({OLD_FORMAT}): move it and its head file away, "
            "and charge what its runs can have cost to a new one."
        )
    return f"the ledger {path} is damaged at line {problem[0]} ({problem[1]}): {_MEND}"


def _mismatch(path: Path, book: Book, head_file: bytes) -> str | None:
    """Say what no crash explains between a ledger and its head file, if there is something."""
    n_entries, place = len(book.entries), head_path(path)
    try:
        head = parse_head(head_file)
    except ValueError:
        what = f"has {n_entries} entries, but {place}, which counts them, is damaged"
    else:
        if head is None and not n_entries:
            return None
        if head is None:
            what = f"has {n_entries} entries, but {place}, which counts them, is missing"
        elif n_entries < head.entries:
            what = f"has {n_entries} entries, but had {head.entries} (they were cut off, or an older copy was put back)"
        elif n_entries > head.entries + 1:
            what = f"has {n_entries} entries, but {place} counts {head.entries} (an older copy of it was put back)"
        elif head.checksum != book.checksums[head.entries]:
            what = f"is not the one that {place} was written for, but another one"
        else:
            return None
    return (
        f"the ledger {path} {what}: restore both files from one backup, or have its owner look at it and run 'python "
        f"-m flwr_dpkmeans ledger accept {path}'."
    )


def _number(name: str, value: object, highest: float) -> float:
    """Check a number between 0 and `highest`; NaN is none."""
    number = float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else math.nan
    if not 0 <= number <= highest:
        raise _invalid(name, value, f"a number between 0 and {highest:g}")
    return number


def _whole_number(name: str, value: Any, least: int) -> int:
    """Check a whole number of at least `least`; NumPy's are welcome."""
    try:
        number = least - 1 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = least - 1
    if number < least:
        raise _invalid(name, value, f"a whole number of at least {least}")
    return number


def _is_utc(value: object) -> bool:
    try:
        return isinstance(value, str) and datetime.fromisoformat(value).utcoffset() == timedelta(0)
    except ValueError:
        return False


def _invalid(name: str, value: object, bound: str) -> ConfigurationError:
    """Say that a value of an entry is not valid."""
    return ConfigurationError(f"{name} is {value!r}, but it must be {bound}: correct the call that charges the ledger.")
