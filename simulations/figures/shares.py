"""Tables of Pareto-optimal settings as Markdown and CSV."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from simulations.figures.kinds import SharesSpec
from simulations.figures.looks import readable
from simulations.figures.numbers import Numbers


def shares_files(
    spec: SharesSpec, shares: Numbers, rounds: Numbers, notes: Sequence[str]
) -> dict[str, bytes]:
    """Write the tables of budget shares and of numbers of Lloyd rounds.

    Returns
    -------
    dict of bytes
        By file name: NAME.md with both, NAME_shares.csv and NAME_rounds.csv.
    """
    parts = [
        f"# {spec.title}" if spec.title else "",
        (
            "Mean shares of the budget of the steps of FedDP-KMeans' start, over its"
            " Pareto-optimal settings."
        ),
        _markdown(spec, shares.cells),
        (
            "Fraction of the Pareto-optimal settings by number of Lloyd rounds after"
            " the start."
        ),
        _markdown(spec, rounds.cells),
        " ".join(notes) if spec.footer else "",
    ]
    return {
        f"{spec.name}.md": (
            ("\n\n".join(part for part in parts if part) + "\n").encode()
        ),
        f"{spec.name}_shares.csv": encoded(shares.cells),
        f"{spec.name}_rounds.csv": encoded(rounds.cells),
    }


def encoded(cells: pd.DataFrame) -> bytes:
    """Write numbers as CSV, nulls as nothing."""
    return bytes(cells.to_csv(index=False, lineterminator="\n").encode())


def _markdown(spec: SharesSpec, cells: pd.DataFrame) -> str:
    """A table with two decimals."""
    columns = [column for column in cells.columns if column != "panel"]
    lines = [f"| data | {' | '.join(columns)} |", f"|---|{'---:|' * len(columns)}"]
    for row in cells.to_dict("records"):
        line = [
            str(row[column]) if column == "settings" else f"{row[column]:.2f}"
            for column in columns
        ]
        lines.append(
            f"| {readable(spec.panel, row['panel']) or 'all'} | {' | '.join(line)} |"
        )
    return "\n".join(lines)
