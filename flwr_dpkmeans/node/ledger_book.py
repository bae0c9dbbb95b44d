"""A ledger's entries, the rules that they obey together, and the lines they are written as."""

from __future__ import annotations

import hashlib
import json
import math
import operator
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from typing import Any

from flwr_dpkmeans.errors import ConfigurationError, ProtocolError, told_apart

GENESIS = hashlib.sha256(b"flwr-dpkmeans ledger, version 2").hexdigest()
"""What the first line's checksum goes on from."""
FIRST_ROUND = -9
"""Rounds that come before a run's first one, because they steer its plan, are numbered up to 0."""
# A plan's numbers may come from another machine, whose last digits differ.
_RELATIVE_SLACK = 1e-8
OLD_FORMAT = "it has the format of an older version, which charged a run that was stopped too little"
SHARES_GIVEN = 10**6
"""Added to the attempt number of an entry that says that key shares were given; it is no release and costs nothing."""


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
        What the whole run can cost at its delta, charged with its first release; infinite if it is not private.
    delta : float
        Delta of the run, in [0, 1].
    unit : str
        The run's unit of privacy; costs of different units are never added up.
    time : str
        Time of the entry, ISO format in UTC; now by default.

    Raises
    ------
    ConfigurationError
        If a value has the wrong type or is out of its range.

    Examples
    --------
    >>> LedgerEntry("run-1", "ward-7", "ab12", 0, 0, "sums", epsilon=0.5, delta=1e-6, unit="record").epsilon
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
    unit: str
    time: str = field(default_factory=utc_now)

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
    """What a data set's other runs have cost, all of their worst cases added up.

    Parameters
    ----------
    epsilon, delta : float
        Of the runs in one unit of privacy.
    begun : tuple of str
        When each of them, whatever its unit and the node, made its first release: times in UTC, ISO format.
    """

    epsilon: float
    delta: float
    begun: tuple[str, ...]


Admit = Callable[[Past], None]
"""Raises unless a run may be charged besides what the others have cost; called under the ledger's lock."""


class Book:
    """The entries in memory, and the rules they obey together."""

    def __init__(self) -> None:
        self.entries: list[LedgerEntry] = []
        self.head = GENESIS
        self.before_head = GENESIS
        self._attempts: set[tuple[str, int, int]] = set()
        self._runs: dict[str, LedgerEntry] = {}  # the first entry of each run, which charges all of it

    def has_attempt(self, run_id: str, round_index: int, attempt: int) -> bool:
        """Whether a release of this attempt is in the book."""
        return (run_id, round_index, attempt) in self._attempts

    def attempts(self, run_id: str) -> frozenset[tuple[int, int]]:
        """Every (round, attempt) of a run."""
        return frozenset((index, number) for run, index, number in self._attempts if run == run_id)

    def past(self, data_id: str, unit: str, excluding_run: str | None) -> Past:
        """What a data set's runs have cost together in one unit."""
        runs = [run for run in self._runs.values() if run.data_id == data_id and run.run_id != excluding_run]
        alike = [run for run in runs if run.unit == unit]
        total, total_delta = math.fsum(run.epsilon for run in alike), math.fsum(run.delta for run in alike)
        own, begun = "" if excluding_run is None else excluding_run.partition("/")[0], dict[str, str]()
        for run in runs:  # nodes of one host have a part each, named run/node, of what is one run
            begun.setdefault(run.run_id.partition("/")[0], run.time)
        begun.pop(own, None)
        return Past(total, total_delta, tuple(begun.values()))

    def conflict(self, entry: LedgerEntry) -> str | None:
        """Say why an entry cannot follow the present ones, if it cannot; data sets are not named."""
        if self.has_attempt(entry.run_id, entry.round_index, entry.attempt):
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

    def add(self, entry: LedgerEntry, head: str) -> None:
        """Add an entry whose line has the checksum `head`."""
        self.entries.append(entry)
        self.before_head, self.head = self.head, head
        self._attempts.add((entry.run_id, entry.round_index, entry.attempt))
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
            book.head = checksum
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
