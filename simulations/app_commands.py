"""Commands beside a run: a table is labelled by a model, and the keys of `flwr run` are listed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.data.readers import RawTable, header_of, table_blocks
from flwr_dpkmeans.errors import DataError
from flwr_dpkmeans.flower.server_app import run_keys
from flwr_dpkmeans.results.model import Model
from flwr_dpkmeans.results.writer import write_whole
from simulations.command_lines import parse

_HEAD = (
    "# Generated: python -m flwr_dpkmeans options --toml. 'auto' is what the run finds out or decides itself.",
    "# An option of another algorithm, or without effect on the run, is refused unless it is the default.",
)


def predict(arguments: Sequence[str]) -> int:
    """Write label, distance and margin of each row of a table: whole or not at all."""
    given = parse("predict", arguments)
    model, output = Model.load(given.model), Path(given.output)
    if output.resolve() in {Path(path).resolve() for path in (given.model, given.table)}:
        raise DataError(f"the labels would replace {str(output)!r}, which is read: choose another output file.")
    # A model that has names finds them in the first row of a .csv file; else that is guessed.
    _require_no_blank_rows(Path(given.table))
    blocks, seen = table_blocks(given.table, bool(model.feature_names) or None), np.zeros(2, dtype=np.int64)
    pieces = _pieces(model, blocks, seen)
    # The first one is made before anything is written: its columns are those of all.
    place = write_whole(output, chain([next(pieces)], pieces))
    print(
        f"{place}: {seen[0]} rows in their order; distance, and margin to the next centre, are in the fitted space, "
        "where each column's bounds are -1 and 1."
    )
    if seen[1]:
        print(f"{seen[1]} rows have no label: one of their cells is missing, or is nothing that its column may hold.")
    return 0


def _require_no_blank_rows(path: Path) -> None:
    """Refuse blank lines between those of one column: no reader sees them, and labels would stand a line too early."""
    if path.suffix.lower() == ".csv" and path.is_file():
        with path.open(encoding="utf-8-sig", errors="replace", newline="") as lines:
            was_blank, one_column = False, len(header_of(lines)[0]) == 1
            for line in lines if one_column else ():
                if line.strip() and was_blank:
                    raise DataError(
                        f"{path} has blank lines between its rows of one column: write NA there, or delete them."
                    )
                was_blank = was_blank or not line.strip()


def _pieces(model: Model, blocks: Iterator[RawTable], seen: NDArray[np.int64]) -> Iterator[bytes]:
    """The output; `seen` counts rows, and those without a label."""
    head = "label,distance,margin\n"
    for block in blocks:
        found = model.assign(block)
        seen += len(found), found["label"].isna().sum()
        yield (head + found.to_csv(index=False, header=False)).encode()
        head = ""
    if 0 < seen[0] == seen[1]:
        raise DataError("no row of the table has a finite number in each column of the model: look at its columns.")


def options(arguments: Sequence[str]) -> int:
    """Print every option of `flwr run` with its default: as a list, or as an app's ``pyproject.toml`` has it."""
    if parse("options", arguments).toml:
        print(config_toml(), end="")
    else:
        for key in run_keys():
            print(f"{key.name} = {json.dumps(key.default)}: {key.about}")
    return 0


def config_toml() -> str:
    """The block ``[tool.flwr.app.config]`` of an app's ``pyproject.toml``."""
    lines, table = ["[tool.flwr.app.config]", *_HEAD], ""
    for key in sorted(run_keys(), key=lambda one: "." in one.name):
        group, _, name = key.name.rpartition(".")
        if group != table:
            table = group
            lines.append(f"[tool.flwr.app.config.{table}]")
        lines.append(f"{name} = {json.dumps(key.default)}" + (f"  # {key.about}" if key.about else ""))
    return "\n".join(lines) + "\n"
