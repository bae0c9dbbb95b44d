"""What audits leave: a table on the screen, rows as JSON and CSV, and the verdict."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from flwr_dpkmeans.results.whole_files import write_whole
from simulations.audit.audit import AuditResult
from simulations.audit.one_run import OneRunBound
from simulations.audit.options import differences

COLUMNS = (
    "algorithm",
    "unit",
    "trust",
    "adversary",
    "values",
    "claimed epsilon",
    "delta",
    "lower bound",
    "ratio",
    "information",
    "method",
    "runs",
    "distinguisher",
    "seconds",
)
ABOVE = "ABOVE THE CLAIM"


def family_confidence(confidence: float, n_audits: int) -> float:
    """Confidence of each of several bounds such that all hold together (Bonferroni).

    Examples
    --------
    >>> round(family_confidence(0.95, 50), 6)
    0.999
    """
    return 1.0 - (1.0 - confidence) / n_audits


def is_above(result: AuditResult, n_audits: int) -> bool:
    """Whether a claim is refuted, also after looking at so many."""
    return result.exceeds(family_confidence(result.options.confidence, n_audits))


def why_above(result: AuditResult) -> str:
    """What refutes a claim, in a sentence."""
    of = f"{result.options.algorithm}, {result.options.unit} level, {result.trust}"
    if not result.shows_more:
        return (
            f"{of}: epsilon is at least {result.bound.epsilon:.4g}, but"
            f" {result.claimed:.4g} is claimed."
        )
    row = row_of(result)
    return (
        f"{of}: a target ({row['worst target'] or result.target}) moves releases by"
        f" {row['worst bound used']:.6g} of a sensitivity and shows"
        f" {row['worst information']:.6g} of what is claimed, but neither may be"
        " above 1."
    )


def row_of(result: AuditResult, n_audits: int = 1) -> dict[str, Any]:
    """One audit as plain values."""
    options, bound = result.options, result.bound
    further = dict(options.values)
    if options.until is not None:
        further["until"] = options.until
    if options.engine != "direct":
        further |= {"engine": options.engine} | (
            {"retries": options.retries} if options.retries else {}
        )
    return {
        "algorithm": options.algorithm,
        "unit": options.unit,
        "trust": result.trust,
        "adversary": result.adversary,
        "values": differences(further),
        "claimed epsilon": result.claimed,
        "delta": bound.delta,
        "lower bound": bound.epsilon,
        "ratio": result.ratio,
        "information": result.information,
        "method": (
            f"one_run, {bound.method.value}"
            if isinstance(bound, OneRunBound)
            else bound.method.value
        ),
        "runs": (
            1 if isinstance(bound, OneRunBound) else bound.n_absent + bound.n_present
        ),
        "distinguisher": result.distinguisher,
        "seconds": result.seconds,
        "confidence": bound.confidence,
        "bound used": result.bound_used,
        "worst information": max(result.information, result.worst.information),
        "worst bound used": max(result.bound_used, result.worst.bound_used),
        "worst target": result.worst.target,
        "case": result.case,
        "target": result.target,
        "false positives": (
            None if isinstance(bound, OneRunBound) else bound.false_positives
        ),
        "true positives": (
            None if isinstance(bound, OneRunBound) else bound.true_positives
        ),
        "training runs": 0 if isinstance(bound, OneRunBound) else 2 * options.training,
        "above the claim": is_above(result, n_audits),
    }


def table_of(results: Sequence[AuditResult], title: str) -> Table:
    """The rows for a terminal; claims that are refuted stand out."""
    table = Table(title=title)
    for column in COLUMNS:
        table.add_column(
            column,
            justify=(
                "left"
                if column in ("algorithm", "values", "distinguisher")
                else "right"
            ),
        )
    for result in results:
        row, above = row_of(result), is_above(result, len(results))
        cells = [_cell(column, row[column]) for column in COLUMNS]
        if above:
            cells[COLUMNS.index("lower bound")] += f" {ABOVE}"
        table.add_row(*cells, style="bold red" if above else None)
    return table


def line_of(result: AuditResult) -> str:
    """One audit in a line, for a log."""
    row = row_of(result)
    return " ".join(_cell(column, row[column]) for column in COLUMNS)


def write_results(
    results: Sequence[AuditResult],
    folder: Path,
    name: str,
    picture: bytes,
    n_audits: int,
) -> list[Path]:
    """Write NAME.json, NAME.csv and NAME.png, each whole or not at all.

    `n_audits` share the confidence in the end.
    """
    rows = [row_of(result, n_audits) for result in results]
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    plain = json.dumps(rows, indent=1, allow_nan=False)
    return [
        write_whole(folder / f"{name}.json", plain.encode() + b"\n"),
        write_whole(folder / f"{name}.csv", text.getvalue().encode()),
        write_whole(folder / f"{name}.png", picture),
    ]


def _cell(column: str, value: Any) -> str:
    """One value for the screen."""
    if column == "seconds":
        return f"{value:.0f}"
    return f"{value:.3g}" if isinstance(value, float) else str(value)
