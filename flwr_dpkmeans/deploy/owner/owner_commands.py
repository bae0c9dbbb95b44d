"""Of ledgers, identities and schemas: what a node's owner looks at and decides."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from flwr_dpkmeans.data.columns.column import Column
from flwr_dpkmeans.data.columns.column_kind import Kind
from flwr_dpkmeans.data.columns.dates import SHOWN_AS_DAYS, iso_date
from flwr_dpkmeans.data.columns.guess import toml_text
from flwr_dpkmeans.data.columns.seen import Seen, Spread
from flwr_dpkmeans.data.files import reader as files
from flwr_dpkmeans.data.files.dialect import Dialect
from flwr_dpkmeans.data.files.open_table import OpenTable
from flwr_dpkmeans.data.loading.layout import Layout
from flwr_dpkmeans.data.loading.schema_tables import look_by_schema
from flwr_dpkmeans.data.own_table import draft, whole
from flwr_dpkmeans.data.schema import MOST_OUTSIDE, Schema
from flwr_dpkmeans.deploy.last_message import LastMessage, utc
from flwr_dpkmeans.deploy.node_options import NodeOptions
from flwr_dpkmeans.deploy.owner.ledger_report import LedgerReport, inspect_ledger
from flwr_dpkmeans.errors import ConfigurationError, listed, nearest
from flwr_dpkmeans.log import printable
from flwr_dpkmeans.node.identity import Identity
from flwr_dpkmeans.node.ledger_entries import RESULT_TAKEN, LedgerEntry
from flwr_dpkmeans.node.ledger_file import FileLedger, head_path
from flwr_dpkmeans.node.policy import DEPLOYED, ClientPolicy
from flwr_dpkmeans.privacy.release import PrivacyUnit

if TYPE_CHECKING:
    from rich.console import RenderableType

_NO_TERMINAL = 1000
_ENDS = ("bounds", "least", "median", "largest")
_LINE = re.compile(r"(?P<time>\S+) [A-Z]+ run (?P<run>\d+)[^:]*: (?P<message>.*)")
_ON_PLANS = re.compile(
    "asked for: .* under trust|allowed by |refused: |cannot answer: |the server has"
    " stopped |the result is here|the result is not written: "
)
_MENDS = {
    Kind.NUMBER: (
        "state decimal, thousands or missing under [file], or say with map what a cell"
        " means"
    ),
    Kind.DATE: "state dates under [file], such as '%d.%m.%Y', or missing",
    Kind.CATEGORY: (
        "add it to values, say with map which one it is, or list it in missing under"
        " [file]"
    ),
    Kind.FLAG: (
        "say with map whether it is true or false, or list it in missing under [file]"
    ),
    Kind.CYCLE: "say with map what it means, or list it in missing under [file]",
}
"""What the owner can do about cells that a column may not hold."""
_COLUMNS = (
    "data set",
    "unit",
    "run",
    "plan",
    "releases",
    "epsilon",
    "delta",
    "first",
    "last",
    "result",
)


def show_ledger(path: Path, *, as_list: bool) -> int:
    """Print what was spent.

    Returns 1 if the ledger is damaged, missing, or not what its head file says.
    """
    report = _reported(path)
    if report.is_acceptable and as_list:
        print(json.dumps(without_infinities(_runs(report)), indent=1))
    elif report.is_acceptable:
        _print_table(report)
    if report.problems:
        return 1
    if not as_list:
        _print_torn(report)
    return 0


def verify_ledger(path: Path) -> int:
    """Say whether a ledger is sound; 1 if it is not."""
    report = _reported(path)
    return _print_soundness(path, report)


def accept_ledger(path: Path) -> int:
    """Go on with a ledger as it stands; 1 if it can only be repaired."""
    report = inspect_ledger(path)
    if not report.is_acceptable:
        return _print_soundness(path, _reported(path))
    FileLedger(path).accept()
    report = inspect_ledger(path)
    print(
        f"the ledger {path} is accepted with {len(report.entries)} entries,"
        f" last checksum {report.head}: whatever is missing from it counts no"
        " longer."
    )
    return 0


def _reported(path: Path) -> LedgerReport:
    """Read a ledger, and print what is wrong with it."""
    report = inspect_ledger(path)
    for problem in report.problems:
        print(problem, file=sys.stderr)
    return report


def _print_soundness(path: Path, report: LedgerReport) -> int:
    if report.problems:
        return 1
    print(
        f"the ledger {path} is sound: {len(report.entries)} entries, last"
        f" checksum {report.head}."
    )
    _print_torn(report)
    return 0


def _print_torn(report: LedgerReport) -> None:
    if report.torn_bytes:
        print(
            f"its last {report.torn_bytes} bytes are an unfinished line, which was"
            " never released."
        )


def check_schema(
    path: str,
    table: str,
    layout: Layout,
) -> int:
    """Say how a table reads by a schema; 1 if something of it is to be mended."""
    agreed = Schema.load(path)
    seen, opened = look_by_schema(table, agreed, layout)
    print(printable(str(opened.reading)))
    problems = _print_doubts(opened)
    return max(problems, _tell_columns(agreed, seen))


def draft_schema(path: str, dialect: Dialect) -> int:
    """Write a skeleton of a schema beside a table's file."""
    target = schema_file(Path(path))
    opened = files.open_table(path, dialect, may_guess=True)
    skeleton, remarks = draft(whole(opened))
    skeleton += file_table(dialect)
    try:
        with target.open("x", encoding="utf-8") as file:
            file.write(skeleton)
    except FileExistsError as error:
        raise ConfigurationError(
            f"{target} exists and is left alone: move it away."
        ) from error
    print(
        printable(f"wrote {target}: fill in its bounds and values ({opened.reading})")
    )
    _print_doubts(opened)
    for sentence in remarks:
        print(printable(sentence))
    return 0


def schema_file(table: Path) -> Path:
    """Return where a table's schema is drafted: beside it, without its suffixes."""
    return table.with_name(table.name.split(".")[0] or table.name).with_suffix(".toml")


def file_table(dialect: Dialect) -> str:
    """Return what is stated of a file as the table ``[file]`` of a schema.

    Empty if nothing is.
    """
    lines = [
        f"{name} = {_toml_value(value)}" for name, value in dialect.stated().items()
    ]
    return "\n".join(["", "[file]", *lines, ""]) if lines else ""


def _toml_value(value: object) -> str:
    if isinstance(value, str):
        return toml_text(value)
    if isinstance(value, list):
        return f"[{', '.join(map(toml_text, value))}]"
    return json.dumps(value)


def _print_doubts(opened: OpenTable) -> int:
    """Print what the owner should know of how a table was read.

    1 if records are no rows.
    """
    for doubt in opened.reading.doubts():
        print(printable(doubt.sentence))
    return int(opened.reading.tally.n_passed_over > 0)


def _tell_columns(schema: Schema, seen: Sequence[Seen]) -> int:
    """A row for each column, and what is to be mended.

    On the owner's own terminal, which may show cells.
    """
    from rich.table import Table
    from rich.text import Text

    heads = (
        "column",
        "kind",
        "read",
        "missing",
        "unknown",
        "outside the bounds",
        *_ENDS,
    )
    table, problems = Table(*heads), list[str]()
    for column, seen_column in zip(schema.columns, seen, strict=True):
        counts = [
            _with_share(n, seen_column.n_rows)
            for n in (
                seen_column.n_missing,
                seen_column.n_unknown,
                seen_column.n_outside,
            )
        ]
        cells = [str(seen_column.n_read), *counts, *_ends(column, seen_column.spread)]
        table.add_row(Text(printable(seen_column.name)), column.kind.value, *cells)
        values = [str(value) for value in column.values] + [
            text for text, _ in column.map
        ]
        meant = [
            f"{cell!r} ({nearest(cell, values).rstrip('.')})" if values else repr(cell)
            for cell in seen_column.spellings
        ]
        if seen_column.n_unknown:
            problems.append(
                f"{seen_column.name!r} may not hold {listed(meant)}:"
                f" {_MENDS[column.kind]}"
            )
        if seen_column.looks_foreign:
            ends = column.bounds or column.limits
            problems.append(
                f"over {MOST_OUTSIDE:.0%} of {seen_column.name!r} lie outside {ends}:"
                " another unit?"
            )
        if not seen_column.n_read:
            has_commas = any(
                cell.replace(",", "").isdecimal() for cell in seen_column.spellings
            )
            commas = (
                ": state decimal = ','"
                if column.kind is Kind.NUMBER and has_commas
                else ""
            )
            problems.append(f"not one cell of {seen_column.name!r} can be read{commas}")
    _print(table)
    for problem in problems:
        print(printable(problem))
    return 1 if problems else 0


def _with_share(n: int, n_rows: int) -> str:
    """A number of cells, and which part of all it is."""
    return f"{n} ({n / n_rows:.1%})" if n else "0"


def _ends(column: Column, spread: Spread | None) -> list[str]:
    """A column's bounds, and beside them what its values are.

    The least, the middle and the largest.
    """
    if column.kind in (Kind.CATEGORY, Kind.FLAG):
        return [""] * len(_ENDS)
    values = [*column.limits]
    values += [] if spread is None else [spread.low, spread.median, spread.high]
    is_date = column.kind is Kind.DATE
    if is_date and column.limits[1] - column.limits[0] >= SHOWN_AS_DAYS:
        # A cell's own day, not the nearest midnight: else the year's last evening is in
        # the next one.
        values = list(map(math.floor, values))
    low, high, *others = (
        iso_date(value, *column.limits) if is_date else f"{value:.6g}"
        for value in values
    )
    return [f"{low} to {high}", *(others or ["", "", ""])]


def new_identity(path: Path) -> int:
    """Make a key file, and print its public key, alone in its line."""
    identity = Identity.generate()
    identity.save(path)
    print(identity.public_key.hex())
    return 0


Line = dict[str, Any]
"""Values of a table's line, or of a report, by name."""


def show_identity(path: Path) -> int:
    """Print a public key, alone in its line; the private key stays in the file."""
    print(Identity.load(path).public_key.hex())
    return 0


def owner_sees(options: NodeOptions) -> Line:
    """What a node was asked, allowed, gave and refused, and what is left.

    From policy, ledger, log and alerts.
    """
    policy, report = (
        ClientPolicy.from_toml(options.policy, base=DEPLOYED),
        inspect_ledger(options.ledger),
    )
    runs, name, alerts = (
        list(_runs(report)),
        options.data_name,
        options.home / "alerts.log",
    )
    place, left = options.ledger.resolve(), []
    # Without a folder, or with a head that is left, something is gone.
    is_new = place.parent.is_dir() and not (place.exists() or head_path(place).exists())
    charged = [run["unit"] for run in runs if run["data set"] == name]
    problems = [] if is_new else list(report.problems)
    message = LastMessage.of(options.home)
    last = {
        "received": utc(message.received),
        "answered": utc(message.answered),
        "problem": message.problem,
    }
    for unit in dict.fromkeys(
        (*(policy.allowed_units or [unit.value for unit in PrivacyUnit]), *charged)
    ):
        past = report.ledger.past(name, unit)
        most = policy.total
        spent, delta = past.spent(most)
        rest = most.left(past.cost)
        # Lines that are gone had costs, too.
        left.append(
            {
                "data set": name,
                "unit": unit,
                "spent": spent,
                "delta": delta,
                "left": None if problems else rest,
            }
        )
    return {
        "name": options.name,
        "pinned": dict(policy.pinned_peers or ()),
        "epsilon": left,
        "given": runs,
        "asked": list(_logged(options.log_file)),
        "last": last,
        "alerts": (
            alerts.read_text(errors="replace").splitlines() if alerts.exists() else []
        ),
        "problems": problems,
    }


def without_infinities(rows: Iterable[Mapping[str, object]]) -> list[dict[str, object]]:
    """Rows as JSON has them, which knows no infinity.

    That is a string, as in the ledger's file.
    """
    return [
        {key: str(value) if value == math.inf else value for key, value in row.items()}
        for row in rows
    ]


def _logged(path: Path | None) -> Iterator[dict[str, str]]:
    """What a node's log, as text or as JSON, says of plans: its time, run and words."""
    for line in (
        path.read_text(errors="replace").splitlines() if path and path.exists() else ()
    ):
        words = match.groupdict() if (match := _LINE.match(line)) else {}
        if line.startswith("{"):
            with contextlib.suppress(ValueError):
                # A full disk, or a kill, cuts a line off.
                words = json.loads(line)
        if {"time", "run", "message"} <= words.keys() and _ON_PLANS.match(
            str(words["message"])
        ):
            yield {key: str(words[key]) for key in ("time", "run", "message")}


def _print_table(report: LedgerReport) -> None:
    """Print one row per run, and a total per data set and unit of privacy.

    Those of different units never add up.
    """
    from rich.table import Table
    from rich.text import Text

    table = Table()
    for column in _COLUMNS:
        number = column in ("releases", "epsilon", "delta")
        justify: Literal["left", "right"] = "right" if number else "left"
        table.add_column(
            column,
            justify=justify,
            no_wrap=number,
            overflow="fold",
        )
    for (name, unit), group in itertools.groupby(
        _runs(report), lambda run: (run["data set"], run["unit"])
    ):
        runs = list(group)
        epsilon, delta = report.ledger.past(name, unit).total
        totals = {
            "data set": "total",
            "unit": unit,
            "run": f"{len(runs)} runs",
            "releases": sum(run["releases"] for run in runs),
            "epsilon": epsilon,
            "delta": delta,
        }
        for row, style in (*((run, None) for run in runs), (totals, "bold")):
            # A run's name is the server's choice: neither markup nor control characters
            # reach the terminal.
            cells = [
                Text(printable(_cell(column, row.get(column, ""))))
                for column in _COLUMNS
            ]
            table.add_row(*cells, style=style, end_section=row is totals)
    _print(table)


def _print(table: RenderableType) -> None:
    """Nothing is cut off: a terminal's narrow columns fold.

    And a file or pipe has no width.
    """
    from rich.console import Console

    Console(width=None if sys.stdout.isatty() else _NO_TERMINAL).print(table)


def _runs(report: LedgerReport) -> Iterator[Line]:
    """What each run was charged for, by data set and unit.

    In the order of their first charge.
    """
    groups: dict[tuple[str, str], dict[str, list[LedgerEntry]]] = {}
    for entry in report.entries:
        groups.setdefault((entry.data_id, entry.unit), {}).setdefault(
            entry.run_id, []
        ).append(entry)
    for (data_id, unit), runs in groups.items():
        for run_id, entries in runs.items():
            first, last = entries[0], entries[-1]
            # Other entries only note that key shares were given, or that the result has
            # come.
            n_releases = sum(entry.is_release for entry in entries)
            row = (
                data_id,
                unit,
                run_id,
                first.plan_digest,
                n_releases,
                first.epsilon,
                first.delta,
                first.time,
                last.time,
                "yes" if last.attempt == RESULT_TAKEN else "no",
            )
            yield dict(zip(_COLUMNS, row, strict=True))


def _cell(column: str, value: object) -> str:
    """As the table has it: of a run's name not the node, whose own ledger this is."""
    if column == "plan":
        return str(value)[:12]
    if column == "run":
        return str(value).split("/")[0]
    formats = {"releases": "d", "epsilon": ".6g", "delta": ".3g"}
    if column == "releases" and isinstance(value, float):
        value = int(value)
    return format(value, formats.get(column, ""))
