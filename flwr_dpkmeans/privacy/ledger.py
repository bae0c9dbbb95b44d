"""A client's privacy ledger: what it is about to release, on its own disk before anything is sent.

`charge` returns only after the entry is on disk, so whatever was sent has been charged, whichever way the
process ends. A restart, a replayed message or a hostile server cannot reset it, because

* one (run, round, attempt) is charged once;
* a run keeps its data set, plan and delta, and its cumulative epsilon never falls;
* a budget given to `charge` is checked under the file's lock, after reading what other processes appended.

One ledger belongs to one client. An entry holds the epsilon of its run so far, so a run costs the largest
epsilon of its entries, and a data set has cost the sum over its runs: basic composition (Dwork and Roth,
"The Algorithmic Foundations of Differential Privacy", 2014, Theorem 3.16), for the deltas alike.

The file has one JSON object per line, each with a SHA-256 checksum over the checksum before it and the
entry, so that an edited, missing or swapped line shows. The chain has no key and ends nowhere: against the
owner of the disk, who can cut lines off the end or rewrite it all, only a copy of the last checksum kept
elsewhere helps. Messages about the file name its path: they are for the person at this machine.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import math
import operator
import os
import re
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

from flwr_dpkmeans.errors import BudgetError, ConfigurationError, ProtocolError

_LOGGER = logging.getLogger(__name__)
_GENESIS = hashlib.sha256(b"flwr-dpkmeans ledger, version 1").hexdigest()
# Accounting ends in floating point: runs that fill a budget exactly must not fail by a rounding error.
_RELATIVE_SLACK = 1e-9
FIRST_ROUND = -9
"""Rounds that come before a run's first one, because they steer its plan, are numbered up to 0."""
_MEND = "restore it from a backup or have its owner decide."


def utc_now() -> str:
    """Return the time in UTC, in ISO format with seconds.

    Returns
    -------
    str
        For example "2025-01-31T12:00:00+00:00".

    Examples
    --------
    >>> utc_now().endswith("+00:00")
    True
    """
    return datetime.now(UTC).isoformat(timespec="seconds")


@dataclass(frozen=True)
class LedgerEntry:
    """One release that a client is about to make.

    Parameters
    ----------
    run_id : str
        The run.
    data_id : str
        The client's own name for its data set.
    plan_digest : str
        Digest of the run's public plan, in lower-case hexadecimal digits.
    round_index, attempt : int
        Round and attempt within the run, from 0.
    release : str
        Name of what is released.
    epsilon : float
        Cost of the run so far, including this release, at the run's delta; infinite if it is not private.
    delta : float
        Delta of the run, in [0, 1].
    time : str
        Time of the entry, ISO format in UTC; now by default.

    Raises
    ------
    ConfigurationError
        If a value has the wrong type or is out of its range.

    Examples
    --------
    >>> LedgerEntry("run-1", "ward-7", "ab12", 0, 0, "sums", epsilon=0.5, delta=1e-6).epsilon
    0.5
    """

    run_id: str
    data_id: str
    plan_digest: str
    round_index: int
    attempt: int
    release: str
    epsilon: float
    delta: float
    time: str = field(default_factory=utc_now)

    def __post_init__(self) -> None:
        for name in ("run_id", "data_id", "release"):
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


class Ledger(Protocol):
    """What a client needs of a ledger; `FileLedger` and `MemoryLedger` provide it."""

    def spent(self, data_id: str, *, excluding_run: str | None = None) -> float:
        """Return the epsilon spent on a data set, by all runs or by all but one that is being resumed."""
        ...

    def has_attempt(self, run_id: str, round_index: int, attempt: int) -> bool:
        """Say whether a release of this attempt has been charged."""
        ...

    def attempts(self, run_id: str) -> frozenset[tuple[int, int]]:
        """Return every (round, attempt) of a run that has been charged."""
        ...

    def charge(self, entry: LedgerEntry, max_total: float = math.inf) -> None:
        """Record a release before it is sent, or raise ProtocolError (replay) or BudgetError."""
        ...


class _Book:
    """The entries in memory, and the rules they obey together."""

    def __init__(self) -> None:
        self.entries: list[LedgerEntry] = []
        self.head = _GENESIS
        self._attempts: set[tuple[str, int, int]] = set()
        self._runs: dict[str, LedgerEntry] = {}  # the costliest entry of each run

    def has_attempt(self, run_id: str, round_index: int, attempt: int) -> bool:
        return (run_id, round_index, attempt) in self._attempts

    def attempts(self, run_id: str) -> frozenset[tuple[int, int]]:
        return frozenset((index, number) for run, index, number in self._attempts if run == run_id)

    def spent(self, data_id: str, excluding_run: str | None) -> float:
        runs = self._runs.values()
        return math.fsum(run.epsilon for run in runs if run.data_id == data_id and run.run_id != excluding_run)

    def conflict(self, entry: LedgerEntry) -> str | None:
        """Say why an entry cannot follow the present ones, if it cannot; data sets are not named."""
        if self.has_attempt(entry.run_id, entry.round_index, entry.attempt):
            return f"run {entry.run_id!a} already has round {entry.round_index}, attempt {entry.attempt}"
        run = self._runs.get(entry.run_id)
        if run is None:
            return None
        for name in ("data_id", "plan_digest", "delta"):
            if getattr(run, name) != getattr(entry, name):
                return f"run {entry.run_id!a} began with another {name}"
        # A client that lost its state and counts from zero again would otherwise release for nothing.
        if entry.epsilon < run.epsilon * (1.0 - _RELATIVE_SLACK):
            return (
                f"run {entry.run_id!a} has reached epsilon {run.epsilon:.6g}, which cannot fall to {entry.epsilon:.6g}"
            )
        return None

    def refuse(self, entry: LedgerEntry, max_total: float) -> None:
        """Raise unless the entry may be charged."""
        conflict = self.conflict(entry)
        if conflict is not None:
            raise ProtocolError(
                f"{conflict}, but a release must add to its run: ask for a new attempt or start a new run."
            )
        limit = _number("max_total", max_total, math.inf)
        total = self.spent(entry.data_id, entry.run_id) + entry.epsilon
        if not total <= limit * (1.0 + _RELATIVE_SLACK):
            raise BudgetError(
                f"run {entry.run_id!a} would reach epsilon {entry.epsilon:.6g}, but it does not fit into what is left "
                f"of this data set's total of {limit:.6g}: plan a smaller epsilon or have its owner raise the total."
            )

    def add(self, entry: LedgerEntry, head: str) -> None:
        self.entries.append(entry)
        self.head = head
        self._attempts.add((entry.run_id, entry.round_index, entry.attempt))
        run = self._runs.get(entry.run_id)
        if run is None or entry.epsilon > run.epsilon:
            self._runs[entry.run_id] = entry


class MemoryLedger:
    """A ledger that lives as long as its process, for simulations.

    Examples
    --------
    >>> ledger = MemoryLedger()
    >>> ledger.charge(LedgerEntry("run-1", "ward-7", "ab12", 0, 0, "sums", epsilon=0.5, delta=1e-6))
    >>> ledger.charge(LedgerEntry("run-1", "ward-7", "ab12", 1, 0, "sums", epsilon=0.75, delta=1e-6))
    >>> ledger.spent("ward-7")
    0.75
    """

    def __init__(self) -> None:
        self._book = _Book()
        self._guard = threading.Lock()

    def spent(self, data_id: str, *, excluding_run: str | None = None) -> float:
        """Return the epsilon spent on a data set: the sum over runs of each run's largest epsilon."""
        with self._guard:
            return self._book.spent(data_id, excluding_run)

    def has_attempt(self, run_id: str, round_index: int, attempt: int) -> bool:
        """Say whether a release of this attempt has been charged."""
        with self._guard:
            return self._book.has_attempt(run_id, round_index, attempt)

    def attempts(self, run_id: str) -> frozenset[tuple[int, int]]:
        """Return every (round, attempt) of a run that has been charged."""
        with self._guard:
            return self._book.attempts(run_id)

    def charge(self, entry: LedgerEntry, max_total: float = math.inf) -> None:
        """Record a release; see `FileLedger.charge`."""
        with self._guard:
            self._book.refuse(entry, max_total)
            self._book.add(entry, self._book.head)

    def entries(self) -> tuple[LedgerEntry, ...]:
        """Return all entries in the order of their charges."""
        with self._guard:
            return tuple(self._book.entries)


class FileLedger:
    """A ledger in an append-only file that survives restarts and crashes.

    A last line without its end is what a crash in the middle of `charge` leaves. That charge never returned,
    so nothing was sent for it: it does not count, and the next charge cuts it off and logs so. A last line
    that lacks only its line end is complete, and counts. Any other flaw stops every use with a BudgetError.

    Parameters
    ----------
    path : str or Path
        The file; made by the first charge. Its folder must exist: a folder that is missing, say because a
        disk is not mounted, must not start an empty ledger.

    Raises
    ------
    ConfigurationError
        If the folder does not exist or the path is a folder.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     FileLedger(folder + "/ledger").charge(LedgerEntry("run-1", "ward-7", "ab12", 0, 0, "sums", 0.5, 1e-6))
    ...     FileLedger(folder + "/ledger").has_attempt("run-1", 0, 0)
    True
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path).absolute()  # a later change of folder must not start another ledger
        if not self._path.parent.is_dir():
            raise ConfigurationError(f"the ledger's folder {self._path.parent} does not exist: make or mount it.")
        if self._path.is_dir():
            raise ConfigurationError(f"the ledger's path {self._path} is a folder: give the path of a file in it.")
        self._guard = threading.Lock()
        self._book = _Book()
        self._seen = b""

    def __reduce__(self) -> tuple[type[FileLedger], tuple[Path]]:
        return FileLedger, (self._path,)

    def spent(self, data_id: str, *, excluding_run: str | None = None) -> float:
        """Return the epsilon spent on a data set: the sum over runs of each run's largest epsilon."""
        with self._guard:
            return self._refreshed().spent(data_id, excluding_run)

    def has_attempt(self, run_id: str, round_index: int, attempt: int) -> bool:
        """Say whether a release of this attempt has been charged."""
        with self._guard:
            return self._refreshed().has_attempt(run_id, round_index, attempt)

    def attempts(self, run_id: str) -> frozenset[tuple[int, int]]:
        """Return every (round, attempt) of a run that has been charged."""
        return self._refreshed().attempts(run_id)

    def entries(self) -> tuple[LedgerEntry, ...]:
        """Return all entries in the order of their charges."""
        with self._guard:
            return tuple(self._refreshed().entries)

    def charge(self, entry: LedgerEntry, max_total: float = math.inf) -> None:
        """Record a release on disk; send it only after this has returned.

        Parameters
        ----------
        entry : LedgerEntry
            The release.
        max_total : float
            Largest epsilon that may be spent on the entry's data set in total, this entry included.

        Raises
        ------
        ProtocolError
            If this attempt is in the ledger already, or the entry does not fit the run's earlier ones.
        BudgetError
            If the total would be exceeded, or the file is damaged or cannot be written.
        """
        with self._guard, _file_errors(self._path), _open_locked(self._path) as descriptor:
            raw = _read_all(descriptor)
            complete = _complete_lines(raw)
            self._catch_up(complete)
            self._book.refuse(entry, max_total)
            if len(complete) < len(raw):
                _LOGGER.warning("The ledger %s: dropped an unfinished last line, never released.", self._path)
                os.ftruncate(descriptor, len(complete))
            line, head = _encode(entry, self._book.head)
            _append(descriptor, complete[len(raw) :] + line, undo_size=min(len(raw), len(complete)))
            os.fsync(descriptor)
            if not raw:
                _sync_folder(self._path.parent)
            self._book.add(entry, head)
            self._seen = complete + line

    def _refreshed(self) -> _Book:
        with _file_errors(self._path):
            self._catch_up(_complete_lines(_read_file(self._path)))
        return self._book

    def _catch_up(self, complete: bytes) -> None:
        """Read what was appended since the last look; what was read before must still be there."""
        if not complete.startswith(self._seen):
            raise BudgetError(f"the ledger {self._path} was cut or altered while in use: {_MEND}")
        for problem in _absorb(self._book, complete[len(self._seen) :]):
            self._book, self._seen = _Book(), b""
            raise BudgetError(_damage(self._path, problem))
        self._seen = complete


@dataclass(frozen=True)
class LedgerReport:
    """What `inspect_ledger` found: sound entries, a sentence per problem, last checksum, size of a torn tail."""

    entries: tuple[LedgerEntry, ...]
    problems: tuple[str, ...]
    head: str
    torn_bytes: int


def inspect_ledger(path: str | Path) -> LedgerReport:
    """Read a whole ledger file, past its flaws, without changing it.

    Parameters
    ----------
    path : str or Path
        The file.

    Returns
    -------
    LedgerReport
        Entries and problems. An unfinished last line is no problem: it was never released.

    Examples
    --------
    >>> inspect_ledger("no-such-ledger").problems
    ('the ledger no-such-ledger does not exist: correct its path.',)
    """
    if not Path(path).exists():
        return LedgerReport((), (f"the ledger {path} does not exist: correct its path.",), _GENESIS, 0)
    try:
        with _file_errors(Path(path)):
            raw = _read_file(Path(path))
    except BudgetError as error:
        return LedgerReport((), (str(error),), _GENESIS, 0)
    complete = _complete_lines(raw)
    book = _Book()
    problems = tuple(_damage(Path(path), problem) for problem in _absorb(book, complete))
    return LedgerReport(tuple(book.entries), problems, book.head, max(0, len(raw) - len(complete)))


def verify_ledger(path: str | Path) -> list[str]:
    """List what is wrong with a ledger file.

    Parameters
    ----------
    path : str or Path
        The file.

    Returns
    -------
    list of str
        One sentence per problem; empty if the ledger is sound.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     FileLedger(folder + "/ledger").charge(LedgerEntry("run-1", "ward-7", "ab12", 0, 0, "sums", 0.5, 1e-6))
    ...     verify_ledger(folder + "/ledger")
    []
    """
    return list(inspect_ledger(path).problems)


def _encode(entry: LedgerEntry, previous: str) -> tuple[bytes, str]:
    """Return an entry's line and its checksum; JSON has no infinity, so that is spelt as a string."""
    body: dict[str, Any] = {item.name: getattr(entry, item.name) for item in fields(entry)}
    if math.isinf(entry.epsilon):
        body["epsilon"] = "inf"
    checksum = hashlib.sha256(f"{previous}\n{json.dumps(body)}".encode()).hexdigest()
    return json.dumps({**body, "checksum": checksum}).encode() + b"\n", checksum


def _decode(line: bytes) -> tuple[LedgerEntry, str]:
    """Return the entry and checksum that a line states, or raise one of the errors that `_absorb` expects."""
    body = json.loads(line)
    checksum = body.pop("checksum")
    return LedgerEntry(**{**body, "epsilon": float(body["epsilon"])}), str(checksum)


def _absorb(book: _Book, lines: bytes) -> Iterator[tuple[int, str]]:
    """Add complete lines to a book; yield (line number, reason) of each flaw and go on after it."""
    skipped = 0
    for line in lines.split(b"\n")[:-1]:
        number = len(book.entries) + skipped + 1
        reason: str | None
        try:
            entry, checksum = _decode(line)
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
            reason = "it is not an entry"
        else:
            # Encoding once more and comparing bytes covers the checksum and every other way to spell an entry.
            if _encode(entry, book.head)[0] == line + b"\n":
                reason = book.conflict(entry)
            else:
                reason = "its checksum does not fit the line and the one before it"
            if reason is None:
                book.add(entry, checksum)
                continue
            book.head = checksum
        skipped += 1
        yield number, reason


def _complete_lines(raw: bytes) -> bytes:
    """Return the complete lines, each with its line end: drop a torn last one, end one that lacks only its end."""
    start = raw.rfind(b"\n") + 1
    try:
        json.loads(raw[start:])  # no proper beginning of a JSON object is JSON itself
    except (ValueError, RecursionError):
        return raw[:start]
    return raw + b"\n"


def _damage(path: Path, problem: tuple[int, str]) -> str:
    return f"the ledger {path} is damaged at line {problem[0]} ({problem[1]}): {_MEND}"


def _read_file(path: Path) -> bytes:
    """Read the file under a shared lock; a ledger without entries has no file yet."""
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
    except FileNotFoundError:
        return b""
    try:
        _lock(descriptor, exclusive=False)
        return _read_all(descriptor)
    finally:
        os.close(descriptor)  # this unlocks it too


@contextlib.contextmanager
def _open_locked(path: Path) -> Iterator[int]:
    """Open the file for appending under an exclusive lock, and make it if need be."""
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_BINARY", 0)
    while True:
        descriptor = os.open(path, flags, 0o600)
        try:
            _lock(descriptor, exclusive=True)
            if os.path.samestat(os.fstat(descriptor), os.stat(path)):  # nobody replaced it meanwhile
                yield descriptor
                return
        finally:
            os.close(descriptor)


def _read_all(descriptor: int) -> bytes:
    os.lseek(descriptor, 0, os.SEEK_SET)
    chunks = []
    while chunk := os.read(descriptor, 1 << 24):
        chunks.append(chunk)
    return b"".join(chunks)


def _append(descriptor: int, data: bytes, undo_size: int) -> None:
    """Write all of the data at the end, or as good as nothing."""
    rest = memoryview(data)
    try:
        while rest:
            rest = rest[os.write(descriptor, rest) :]
    except OSError:
        with contextlib.suppress(OSError):  # if this fails as well, a torn line stays, which readers drop
            os.ftruncate(descriptor, undo_size)
        raise


def _sync_folder(folder: Path) -> None:
    """Make the file's name as durable as its content; Windows can neither do this nor needs it."""
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
def _file_errors(path: Path) -> Iterator[None]:
    """Turn a failing disk into a refusal: without a ledger nothing may be released."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        raise BudgetError(
            f"the ledger {path} cannot be used ({reason}), and without it nothing may be released: make the file "
            "readable and writable."
        ) from error


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
