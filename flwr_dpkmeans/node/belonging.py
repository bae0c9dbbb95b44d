"""Which data a ledger's charges are for: a file beside it knows them again.

What was charged protects the rows that it was charged for. A ledger beside other rows,
such as another party's files or another table under the old name, would count their
cost against a budget that is not theirs. So the file has a salt and digests by it: of
the columns, of how many rows there are and of what each column holds. They never leave
the node, and whoever reads them without the salt learns nothing of the rows.
"""

from __future__ import annotations

import hmac
import json
import secrets
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from flwr_dpkmeans.data.loading.row_facts import RowFacts
from flwr_dpkmeans.errors import BudgetError, listed
from flwr_dpkmeans.node.durable_files import locked, read_all, replace_file
from flwr_dpkmeans.node.ledger_entries import OWNER_SAID, LedgerEntry
from flwr_dpkmeans.node.ledger_file import FileLedger, file_errors

_BITS = 48
"""Of a number of rows."""

_MEND = (
    "put back what was there, or say by 'python -m flwr_dpkmeans node data-changed"
    " NODE.toml' that this is meant"
)


@dataclass(frozen=True)
class _KnownTable:
    """Digests of a table that was charged for."""

    data: str
    """Of its name in the ledger."""
    identity: str
    """Public key of the node that had it."""
    columns: str = ""
    rows: tuple[str, ...] = ()
    """Of the leading bits of their number, the shortest last; empty if it is unknown.

    Two numbers can so be told apart, and which one is larger, without either.
    """
    contents: tuple[str, ...] = ()


@dataclass(frozen=True)
class _File:
    """What the file has."""

    salt: str = field(default_factory=lambda: secrets.token_hex(32))
    first: str = ""
    """Checksum of the ledger's first line; empty before there is one."""
    tables: tuple[_KnownTable, ...] = ()

    def digest(self, *words: object) -> str:
        """Make what nobody without the salt can hold against a guess."""
        text = json.dumps(words).encode()
        return hmac.digest(bytes.fromhex(self.salt), text, "sha256").hex()[:16]

    def rows_digests(self, n_rows: int) -> tuple[str, ...]:
        """Digests of the leading bits of a number of rows."""
        return tuple(
            self.digest("rows", shift, n_rows >> shift) for shift in range(_BITS)
        )


def belonging_path(ledger: Path) -> Path:
    """Return the path of the file beside a ledger that says which data it is for."""
    return ledger.with_name(ledger.name + ".data")


class Belonging:
    """Whether one node's data are those that its ledger was charged for.

    `identity` is the public key of the node, in hexadecimal; with `grows`, rows may be
    added. A file that is damaged or cannot be used is a BudgetError.
    """

    def __init__(
        self,
        ledger: FileLedger,
        data_id: str,
        identity: str = "",
        *,
        grows: bool = False,
    ) -> None:
        self._ledger = ledger
        self._path = belonging_path(ledger.path)
        self._data_id = data_id
        self._identity = identity
        self._grows = grows

    @property
    def is_known(self) -> bool:
        """Whether the file says already which data these are."""
        file = self._read()
        return file is not None and bool(self._tables(file))

    def problem(self, facts: RowFacts | None = None) -> str:
        """Say in a sentence why the ledger is not for these data; empty if it may be.

        A ledger without charges is for any, and one whose file is not there yet for
        what has its name. Without facts, names and keys are compared alone.
        """
        names = sorted({entry.data_id for entry in self._ledger.entries()})
        path, name = self._ledger.path, self._data_id
        if not names:
            return ""
        if name not in names:
            return (
                f"{path} knows nothing of {name!r}, but of"
                f" {', '.join(map(repr, names))}: give data-id={names[0]!r} if the rows"
                " are the same, correct 'ledger' if its files are another party's, or"
                f" {_MEND}."
            )
        file = self._read()
        if file is None:
            return ""
        first = self._ledger.first_checksum
        if file.first not in ("", first):
            return (
                f"{path} begins with {first[:16]}, but {self._path} is of a ledger that"
                f" begins with {file.first[:16]}: {_MEND}."
            )
        return self._difference(file, facts)

    def _difference(self, file: _File, facts: RowFacts | None) -> str:
        """Say what tells this node's data from those of its name in the file."""
        path = self._ledger.path
        of_name = [
            table
            for table in file.tables
            if table.data == file.digest("data", self._data_id)
        ]
        of_node = [table for table in of_name if table.identity == self._identity]
        if of_name and not of_node:
            owners = listed(sorted({table.identity[:16] for table in of_name}))
            return (
                f"{path} knows {self._data_id!r} of the identity {owners}, but this"
                f" node's is {self._identity[:16]}: {_MEND}."
            )
        if facts is None or not of_node:
            return ""
        differences = [self._unlike(file, table, facts) for table in of_node]
        if "" in differences:
            return ""
        return (
            f"{path} was charged for other data of the name {self._data_id!r}: now"
            f" there are {differences[-1]}; {_MEND}, or state data-grows = true if the"
            " table only gets more rows."
        )

    def _unlike(self, file: _File, table: _KnownTable, facts: RowFacts) -> str:
        """Say how a table differs from one that is known; empty if it may be it."""
        if not table.rows:
            return ""
        if table.columns != file.digest("columns", facts.columns):
            return "other columns"
        order = _compared(table.rows, file.rows_digests(facts.n_rows), facts.n_rows)
        if order < 0:
            return "fewer rows"
        if order > 0:
            return "" if self._grows else "more rows"
        now = _contents(file, facts)
        if not table.contents or not now or now == table.contents:
            return ""
        if sorted(now) == sorted(table.contents):
            swapped = [
                name
                for name, old, new in zip(
                    facts.columns, table.contents, now, strict=False
                )
                if old != new
            ]
            return f"columns with each other's values ({listed(swapped)})"
        has_old_column = any(map(str.__eq__, now, table.contents))
        if has_old_column or self._grows:
            # Cells were corrected, or a window of rows has moved on.
            return ""
        return "other values in each column"

    def note(self, facts: RowFacts | None) -> None:
        """Write down which data the next charge is for, before it is made.

        Called for data that `problem` has nothing against.
        """
        charged = {entry.data_id for entry in self._ledger.entries()}
        with file_errors(self._path), locked(self._path, exclusive=True) as descriptor:
            file = self._parse(read_all(descriptor)) or _File()
            earlier = self._tables(file)
            replaced = earlier
            if self._data_id in charged:
                # What was charged for stays, unless it has grown to this.
                replaced = tuple(
                    table
                    for table in earlier
                    if facts is not None and not self._unlike(file, table, facts)
                )
            others = [table for table in file.tables if table not in replaced]
            if facts is not None or len(replaced) == len(earlier):
                others.append(self._table(file, facts))
            changed = replace(
                file, first=self._ledger.first_checksum, tables=tuple(others)
            )
            if changed != file:
                replace_file(self._path, json.dumps(asdict(changed)).encode())

    def accept(self, facts: RowFacts | None) -> None:
        """Record in the ledger that its owner says that these data are meant, too.

        At no cost, and nothing that was charged is changed by it.
        """
        file = self._read() or _File()
        digest = file.digest("accepted", facts, self._identity)
        self._ledger.charge(owner_statement(self._data_id, digest))
        self.note(facts)

    def _tables(self, file: _File) -> tuple[_KnownTable, ...]:
        """Tables of this name that this node had."""
        data = file.digest("data", self._data_id)
        return tuple(
            table
            for table in file.tables
            if (table.data, table.identity) == (data, self._identity)
        )

    def _table(self, file: _File, facts: RowFacts | None) -> _KnownTable:
        """Make the digests of this node's data."""
        table = _KnownTable(file.digest("data", self._data_id), self._identity)
        if facts is None:
            return table
        return replace(
            table,
            columns=file.digest("columns", facts.columns),
            rows=file.rows_digests(facts.n_rows),
            contents=_contents(file, facts),
        )

    def _read(self) -> _File | None:
        """Read the file; None where there is none yet."""
        with file_errors(self._path):
            try:
                return self._parse(self._path.read_bytes())
            except FileNotFoundError:
                return None

    def _parse(self, raw: bytes) -> _File | None:
        """Read what `note` has written; a file that it was about to write is empty."""
        if not raw:
            return None
        try:
            values = json.loads(raw)
            tables = []
            for stored in values.pop("tables"):
                rows, contents = tuple(stored.pop("rows")), stored.pop("contents")
                tables.append(
                    _KnownTable(**stored, rows=rows, contents=tuple(contents))
                )
            file = _File(**values, tables=tuple(tables))
            _ = file.digest()
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise BudgetError(
                f"{self._path} cannot be read: put a copy of it back, or move it away"
                " once you know that the ledger is of these data."
            ) from error
        return file


def owner_statement(data_id: str, digest: str) -> LedgerEntry:
    """Return a line that says that the owner has looked at data, which costs nothing.

    A line of a run of its own, since other lines belong to what was asked for.
    """
    return LedgerEntry(
        run_id=f"owner/{secrets.token_hex(8)}",
        data_id=data_id,
        plan_digest=digest,
        round_index=0,
        attempt=OWNER_SAID,
        release="the owner says that these data are meant",
        epsilon=0.0,
        delta=0.0,
        unit="record",
        mu=0.0,
        own_delta=0.0,
    )


def _contents(file: _File, facts: RowFacts) -> tuple[str, ...]:
    """Digests of what columns hold, which do not say which column it is."""
    return tuple(file.digest("content", content) for content in facts.contents)


def _compared(before: tuple[str, ...], now: tuple[str, ...], n_rows: int) -> int:
    """Compare numbers of rows by the digests of their leading bits.

    Returns 1 if there are more rows now, -1 if fewer, and 0 for as many. Where the
    longest common beginning ends, the next bit of the larger number is set.
    """
    for shift in reversed(range(_BITS)):
        if before[shift] != now[shift]:
            return 1 if (n_rows >> shift) & 1 else -1
    return 0
