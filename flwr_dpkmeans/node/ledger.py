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

Messages about the files name their paths: they are for the person at this machine. ``LEDGER.md`` beside this
module has the format, what is tested and the owner's procedures.
"""

from __future__ import annotations

import logging
import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from flwr_dpkmeans.errors import BudgetError, ConfigurationError
from flwr_dpkmeans.node.ledger_book import (
    FIRST_ROUND,
    GENESIS,
    OLD_FORMAT,
    SHARES_GIVEN,
    Admit,
    Book,
    LedgerEntry,
    Past,
    absorb,
    complete_lines,
    encode,
    utc_now,
)
from flwr_dpkmeans.node.ledger_disk import (
    Head,
    append,
    append_head,
    file_errors,
    head_path,
    open_locked,
    parse_head,
    read_all,
    read_both,
    read_head,
    require_writable,
)

__all__ = [
    "FIRST_ROUND",
    "SHARES_GIVEN",
    "Admit",
    "FileLedger",
    "Ledger",
    "LedgerEntry",
    "LedgerReport",
    "MemoryLedger",
    "Past",
    "inspect_ledger",
    "utc_now",
    "verify_ledger",
]

_LOGGER = logging.getLogger(__name__)
_MEND = "restore it from a backup or have its owner decide."


class Ledger(Protocol):
    """What a client needs of a ledger; `FileLedger` and `MemoryLedger` provide it."""

    def past(self, data_id: str, unit: str, *, excluding_run: str | None = None) -> Past:
        """Return what a data set's runs have cost in one unit: of all, or of all but one that is being resumed."""
        ...

    def has_attempt(self, run_id: str, round_index: int, attempt: int) -> bool:
        """Say whether a release of this attempt has been charged."""
        ...

    def attempts(self, run_id: str) -> frozenset[tuple[int, int]]:
        """Return every (round, attempt) of a run that has been charged."""
        ...

    def entries(self) -> tuple[LedgerEntry, ...]:
        """Return all entries in the order of their charges."""
        ...

    def require_usable(self) -> None:
        """Raise BudgetError if a charge would fail for the ledger's own sake; called before a run begins."""
        ...

    def charge(self, entry: LedgerEntry, admit: Admit | None = None) -> None:
        """Record a release before it is sent, or raise: ProtocolError (replay), BudgetError, or what `admit` raises."""
        ...


class MemoryLedger:
    """A ledger that lives as long as its process, for simulations.

    Examples
    --------
    >>> ledger = MemoryLedger()
    >>> ledger.charge(LedgerEntry("run-1", "ward-7", "ab12", 0, 0, "sums", epsilon=0.75, delta=1e-6, unit="record"))
    >>> ledger.charge(LedgerEntry("run-1", "ward-7", "ab12", 1, 0, "sums", epsilon=0.75, delta=1e-6, unit="record"))
    >>> ledger.past("ward-7", "record").epsilon
    0.75
    """

    def __init__(self) -> None:
        self._book = Book()
        self._guard = threading.Lock()

    def past(self, data_id: str, unit: str, *, excluding_run: str | None = None) -> Past:
        """Return what a data set's runs have cost in one unit of privacy, each in full."""
        with self._guard:
            return self._book.past(data_id, unit, excluding_run)

    def has_attempt(self, run_id: str, round_index: int, attempt: int) -> bool:
        """Say whether a release of this attempt has been charged."""
        with self._guard:
            return self._book.has_attempt(run_id, round_index, attempt)

    def attempts(self, run_id: str) -> frozenset[tuple[int, int]]:
        """Return every (round, attempt) of a run that has been charged."""
        with self._guard:
            return self._book.attempts(run_id)

    def require_usable(self) -> None:
        """Return: memory can always be written."""

    def charge(self, entry: LedgerEntry, admit: Admit | None = None) -> None:
        """Record a release; see `FileLedger.charge`."""
        with self._guard:
            self._book.refuse(entry, admit)
            self._book.add(entry, self._book.head)

    def entries(self) -> tuple[LedgerEntry, ...]:
        """Return all entries in the order of their charges."""
        with self._guard:
            return tuple(self._book.entries)


class FileLedger:
    """A ledger in an append-only file that survives restarts and crashes.

    A last line without its end is what a crash in the middle of `charge` leaves. That charge never returned,
    so nothing was sent for it: it does not count, and the next charge cuts it off and logs so. A last line
    that lacks only its line end is complete, and counts. Any other flaw, of the file or of the head beside
    it, stops every use with a BudgetError.

    Parameters
    ----------
    path : str or Path
        The file; made by the first charge. Links are followed. Its folder must exist: a folder that is
        missing, say because a disk is not mounted, must not start an empty ledger.

    Raises
    ------
    ConfigurationError
        If the folder does not exist or the path is a folder.

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
        # A later change of folder must not start another ledger, and all links to one file share its head.
        self._path = Path(os.path.realpath(path))
        if not self._path.parent.is_dir():
            raise ConfigurationError(f"the ledger's folder {self._path.parent} does not exist: make or mount it.")
        if self._path.is_dir():
            raise ConfigurationError(f"the ledger's path {self._path} is a folder: give the path of a file in it.")
        self._guard = threading.Lock()
        self._book = Book()
        self._seen = b""

    def __reduce__(self) -> tuple[type[FileLedger], tuple[Path]]:
        return FileLedger, (self._path,)

    def past(self, data_id: str, unit: str, *, excluding_run: str | None = None) -> Past:
        """Return what a data set's runs have cost in one unit of privacy, each in full."""
        with self._guard:
            return self._refreshed().past(data_id, unit, excluding_run)

    def has_attempt(self, run_id: str, round_index: int, attempt: int) -> bool:
        """Say whether a release of this attempt has been charged."""
        with self._guard:
            return self._refreshed().has_attempt(run_id, round_index, attempt)

    def attempts(self, run_id: str) -> frozenset[tuple[int, int]]:
        """Return every (round, attempt) of a run that has been charged."""
        with self._guard:
            return self._refreshed().attempts(run_id)

    def entries(self) -> tuple[LedgerEntry, ...]:
        """Return all entries in the order of their charges."""
        with self._guard:
            return tuple(self._refreshed().entries)

    def require_usable(self) -> None:
        """Look whether a charge could be written, without writing anything.

        Raises
        ------
        BudgetError
            If a file is damaged or cannot be written, or the disk is full.
        """
        with self._guard, file_errors(self._path):
            self._refreshed()
            require_writable(self._path)

    def charge(self, entry: LedgerEntry, admit: Admit | None = None) -> None:
        """Record a release on disk; send it only after this has returned.

        Parameters
        ----------
        entry : LedgerEntry
            The release. The first one of a run charges all that the run can cost; later ones add lines only.
        admit : callable, optional
            ``admit(past)`` raises unless the run may be charged besides what the others on its data set have cost. It
            is called under the lock, so that nobody else charges between its decision and this entry.

        Raises
        ------
        ProtocolError
            If this attempt is in the ledger already, or the entry does not fit the run's earlier ones.
        BudgetError
            If a file is damaged or cannot be written.
        """
        with self._guard, file_errors(self._path), open_locked(self._path) as descriptor:
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
            self._seen = complete + line

    def accept(self) -> LedgerReport:
        """Take the file as it stands, and write its head anew: for its owner, after looking at it.

        Returns
        -------
        LedgerReport
            What was accepted. Releases that are missing from it no longer count.

        Raises
        ------
        BudgetError
            If a line is damaged, or a file cannot be written.
        """
        with self._guard, file_errors(self._path), open_locked(self._path) as descriptor:
            raw = read_all(descriptor)
            complete, book = complete_lines(raw), Book()
            for problem in absorb(book, complete):
                raise BudgetError(_damage(self._path, problem))
            self._book, self._seen = book, complete
            self._write_head(descriptor)
        return LedgerReport(tuple(book.entries), (), book.head, max(0, len(raw) - len(complete)), True)

    def _write_head(self, descriptor: int) -> None:
        """Make the head level with the lines, which go onto the disk first."""
        os.fsync(descriptor)
        append_head(self._path, Head(len(self._book.entries), self._book.head))

    def _refreshed(self) -> Book:
        with file_errors(self._path):
            raw, head_file = read_both(self._path)
        self._catch_up(complete_lines(raw), head_file)
        return self._book

    def _catch_up(self, complete: bytes, head_file: bytes) -> Head | None:
        """Read what was appended since the last look; what was read before must still be there. Return the head."""
        if not complete.startswith(self._seen):
            raise BudgetError(f"the ledger {self._path} was cut or altered while in use: {_MEND}")
        for problem in absorb(self._book, complete[len(self._seen) :]):
            self._book, self._seen = Book(), b""
            raise BudgetError(_damage(self._path, problem))
        self._seen = complete
        mismatch = _mismatch(self._path, self._book, head_file)
        if mismatch is not None:
            raise BudgetError(mismatch)
        return parse_head(head_file)


@dataclass(frozen=True)
class LedgerReport:
    """What `inspect_ledger` found: sound entries, a sentence per problem, last checksum, size of a torn tail.

    With `is_acceptable` every line is sound, so that only the head file can be a problem.
    """

    entries: tuple[LedgerEntry, ...]
    problems: tuple[str, ...]
    head: str
    torn_bytes: int
    is_acceptable: bool = False


def inspect_ledger(path: str | Path) -> LedgerReport:
    """Read a whole ledger and its head, past their flaws, without changing them.

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
    given, place = Path(path), Path(os.path.realpath(path))
    if not (place.exists() or head_path(place).exists()):
        return LedgerReport((), (f"the ledger {path} does not exist: correct its path.",), GENESIS, 0)
    try:
        with file_errors(given):
            raw, head_file = read_both(place)
    except BudgetError as error:
        return LedgerReport((), (str(error),), GENESIS, 0)
    complete, book = complete_lines(raw), Book()
    problems = [_damage(given, problem) for problem in absorb(book, complete)]
    is_acceptable = not problems
    mismatch = _mismatch(given, book, head_file) if is_acceptable else None
    problems += [mismatch] if mismatch is not None else []
    torn_bytes = max(0, len(raw) - len(complete))
    return LedgerReport(tuple(book.entries), tuple(problems), book.head, torn_bytes, is_acceptable)


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
    ...     entry = LedgerEntry("run-1", "ward-7", "ab12", 0, 0, "sums", 0.5, 1e-6, "record")
    ...     FileLedger(folder + "/ledger").charge(entry)
    ...     verify_ledger(folder + "/ledger")
    []
    """
    return list(inspect_ledger(path).problems)


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
        elif head.checksum != (book.head if n_entries == head.entries else book.before_head):
            what = f"is not the one that {place} was written for, but another one"
        else:
            return None
    return (
        f"the ledger {path} {what}: restore both files from one backup, or have its owner look at it and run 'python "
        f"-m flwr_dpkmeans ledger accept {path}'."
    )
