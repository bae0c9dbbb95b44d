"""Attacks on what is released.

``python -m simulations.audit.attacks [algorithm=...] [epsilon=...] [output=FOLDER]``.

Membership inference on released centroids and sums in FastLloyd's threat model (clients
read them, the server does not), by six attacks on three targets, each beside the bound
that the guarantee implies; and the reconstruction of a row by somebody who knows all
others. Non-private Lloyd shows that the attacks work at all.

key=value (commas separate several values of the first two)
  algorithm        fastlloyd,glloyd,proxy_lloyd,feddp_kmeans,lloyd
  epsilon          0.5,2,8: total of a run (lloyd has none)
  data             blobs (400 rows in the plane), or iris, wine, breast_cancer, digits
  trials           4000: games with and without each target; a true positive rate at
                   0.001 needs 3,700 or more
  shadows          500: further ones that attacks are made from
  reconstructions  150: runs in which a row is estimated; 0 for none
  noise            seeded (the same table each time), or secure
  workers          processes; 0 is this one, and no number is one per core
  output           outputs/attacks: attacks.csv, attacks.json, reconstruction.csv,
                   attacks.png; scores/ keeps those of finished algorithms, so that
                   the same command continues one that was stopped
  other_code       false; true: scores that other sources of this project left there
                   are taken, else they are refused

Exit code 0; 1 if an attack lies above its bound, beyond a confidence interval that
holds for the whole table; 2 for a mistake of the caller, in one sentence; 130 if
stopped.
"""

from __future__ import annotations

import csv
import io
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from flwr_dpkmeans.errors import ConfigurationError, nearest
from flwr_dpkmeans.results.whole_files import write_whole
from simulations.audit.attack_games import ALGORITHMS, DATA
from simulations.audit.attack_picture import draw_curves
from simulations.audit.attack_reconstruction import reconstruct
from simulations.audit.attack_runs import RATES, Cell, Row, flat_row, game_of, run_cells
from simulations.commands import RESUMES, exit_code, wide_console
from simulations.experiments.job import log_quietly
from simulations.experiments.workers import workers_of

CSV_FILE, JSON_FILE, RECONSTRUCTION_FILE, PICTURE_FILE = (
    "attacks.csv",
    "attacks.json",
    "reconstruction.csv",
    "attacks.png",
)
_KEYS = (
    *("algorithm", "epsilon", "data", "trials", "shadows", "reconstructions", "noise"),
    *("workers", "output", "other_code"),
)
_SHOWN_TARGET = "canary"
_PANELS = 7


@dataclass(frozen=True)
class Request:
    """What the command line asks for, in its words."""

    algorithms: tuple[str, ...] = ALGORITHMS
    epsilons: tuple[float, ...] = (0.5, 2.0, 8.0)
    data: str = DATA[0]
    trials: int = 4000
    shadows: int = 500
    reconstructions: int = 150
    noise: str = "seeded"
    workers: int = 1
    output: Path = Path("outputs/attacks")
    other_code: bool = False

    @property
    def cells(self) -> tuple[Cell, ...]:
        """Every algorithm at every epsilon, the non-private one once."""
        return tuple(
            Cell(algorithm, epsilon, self.data, self.noise)
            for algorithm in self.algorithms
            for epsilon in (
                self.epsilons if algorithm != "lloyd" else self.epsilons[:1]
            )
        )


def parse_request(arguments: Sequence[str]) -> Request:
    """Read ``key=value`` arguments.

    Parameters
    ----------
    arguments : sequence of str

    Returns
    -------
    Request

    Raises
    ------
    ConfigurationError
        With the nearest valid name, or the bound of a number.

    Examples
    --------
    >>> request = parse_request(["algorithm=fastlloyd,lloyd", "epsilon=1,4"])
    >>> request.cells[-1].algorithm
    'lloyd'
    """
    texts: dict[str, str] = {}
    for argument in arguments:
        key, separator, value = argument.partition("=")
        if key not in _KEYS or not separator or not value:
            raise ConfigurationError(
                f"{argument!r} is not understood, as key=value is:"
                f" {nearest(key, _KEYS)}"
            )
        texts[key] = value
    algorithms = tuple(texts.get("algorithm", ",".join(ALGORITHMS)).split(","))
    for algorithm in algorithms:
        _require_choice("algorithm", algorithm, ALGORITHMS)
    _require_choice("data", texts.get("data", DATA[0]), DATA)
    _require_choice("noise", texts.get("noise", "seeded"), ("seeded", "secure"))
    other_code = texts.get("other_code", "false")
    _require_choice("other_code", other_code, ("false", "true"))
    epsilons = tuple(
        _number("epsilon", text, 0.0)
        for text in texts.get("epsilon", "0.5,2,8").split(",")
    )
    return Request(
        algorithms,
        epsilons,
        texts.get("data", DATA[0]),
        _whole("trials", texts.get("trials", "4000"), 20),
        _whole("shadows", texts.get("shadows", "500"), 20),
        _whole("reconstructions", texts.get("reconstructions", "150"), 0),
        texts.get("noise", "seeded"),
        workers_of(texts.get("workers")),
        Path(texts.get("output", "outputs/attacks")),
        other_code == "true",
    )


def _require_choice(key: str, name: str, choices: Sequence[str]) -> None:
    """Refuse a name that is no choice."""
    if name not in choices:
        raise ConfigurationError(
            f"{key} is {name!r}, which is no choice here: {nearest(name, choices)}"
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the attacks that the command line asks for.

    Parameters
    ----------
    arguments : sequence of str, optional
        Without the program's name; None: the process's own.

    Returns
    -------
    int
        See the module's docstring.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    if set(words) & {"-h", "--help"}:
        print(__doc__)
        return 0
    log_quietly()
    # Set for the workers: matrices are tiny, and more threads than cores slow
    # everything down.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    return exit_code(lambda: _run(parse_request(words)), RESUMES)


def _run(request: Request) -> int:
    """All games, tables and the picture."""
    for cell in request.cells:
        game_of(cell)
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, TimeRemainingColumn(), console=console) as progress:
        games = progress.add_task("games", total=None)
        rows = run_cells(
            request.cells,
            request.trials,
            request.shadows,
            request.workers,
            request.output / "scores",
            lambda done, total: progress.update(games, completed=done, total=total),
            other_code=request.other_code,
        )
        rebuilt = []
        if request.reconstructions:
            task = progress.add_task("reconstruction", total=len(request.cells))
            for cell in request.cells:
                rebuilt.append(_rebuilt(cell, max(2, request.reconstructions)))
                progress.advance(task)
    lines = [flat_row(row) for row in rows]
    written = [
        write_whole(request.output / CSV_FILE, encode_csv(lines)),
        write_whole(
            request.output / JSON_FILE,
            encode_json({"attacks": lines, "reconstruction": rebuilt}),
        ),
        write_whole(
            request.output / PICTURE_FILE,
            draw_curves(rows, _SHOWN_TARGET, _panels(request.cells)),
        ),
    ]
    if rebuilt:
        written.append(
            write_whole(request.output / RECONSTRUCTION_FILE, encode_csv(rebuilt))
        )
    wide_console().print(summary_table(rows))
    above = [row for row in rows if row.is_above]
    for row in above:
        print(
            f"above its bound: {row.attack} on {row.target}, {row.cell}",
            file=sys.stderr,
        )
    for path in written:
        print(path)
    return 1 if above else 0


def summary_table(rows: Sequence[Row]) -> Table:
    """The strongest attack on each target, beside its bound."""
    table = Table(
        title=(
            "strongest attack on each target (by area under the curve), and what the"
            " guarantee allows"
        )
    )
    for name in (
        "algorithm",
        "epsilon",
        "target",
        "attack",
        "AUC (bound)",
        *(f"TPR at {rate:g}" for rate in RATES),
    ):
        table.add_column(name, no_wrap=True)
    best: dict[tuple[Cell, str, bool], Row] = {}
    for row in rows:
        key = (row.cell, row.target, row.attack == "exact")
        if key not in best or row.auc.value > best[key].auc.value:
            best[key] = row
    for row in best.values():
        cells = [
            row.cell.algorithm,
            f"{row.cell.epsilon:g}" if row.auc.bound < 1.0 else "-",
            row.target,
            row.attack,
        ]
        cells += [
            f"{measured.value:.3f} ({measured.bound:.3f})"
            for measured in (row.auc, *row.rates.values())
        ]
        table.add_row(*cells)
    return table


def encode_csv(lines: Sequence[Mapping[str, Any]]) -> bytes:
    """Lines as CSV, the columns of the first."""
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(lines[0]))
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue().encode()


def encode_json(content: Mapping[str, Any]) -> bytes:
    """Content as JSON."""
    return (json.dumps(content, indent=1, allow_nan=False) + "\n").encode()


def _rebuilt(cell: Cell, runs: int) -> dict[str, Any]:
    """One line of the table of reconstructions."""
    rebuilt = reconstruct(game_of(cell), runs)
    line: dict[str, Any] = {
        "data": cell.data,
        "algorithm": cell.algorithm,
        "epsilon": cell.epsilon if cell.algorithm != "lloyd" else None,
        "runs": runs,
    }
    for name, value in rebuilt.errors.items():
        line |= {
            name.replace(" ", "_"): value,
            f"{name.replace(' ', '_')}_margin": rebuilt.margins[name],
        }
    for name, value in rebuilt.gains.items():
        line |= {
            f"{name.split()[0]}_gain": value,
            f"{name.split()[0]}_gain_margin": rebuilt.gain_margins[name],
        }
    return line


def _panels(cells: Sequence[Cell]) -> list[Cell]:
    """The first algorithm at all epsilons, then the others at the middle one.

    All cells if they are few.
    """
    if len(cells) < _PANELS:
        return list(cells)
    first = [cell for cell in cells if cell.algorithm == cells[0].algorithm]
    others_named = dict.fromkeys(
        cell.algorithm for cell in cells if cell.algorithm != cells[0].algorithm
    )
    # The yardstick stands beside the private one.
    names = sorted(others_named, key=lambda name: name != "lloyd")
    others = []
    for name in names:
        of_algorithm = [cell for cell in cells if cell.algorithm == name]
        others.append(of_algorithm[len(of_algorithm) // 2])
    return (first + others)[:_PANELS]


def _number(name: str, text: str, above: float) -> float:
    """A number above a bound."""
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not above < value < float("inf"):
        raise ConfigurationError(
            f"{name} is {text!r}, but it must be a number above {above:g}: give such"
            " as 2."
        )
    return value


def _whole(name: str, text: str, least: int) -> int:
    """A whole number from a bound on."""
    if not text.isdecimal() or int(text) < least:
        raise ConfigurationError(
            f"{name} is {text!r}, but it must be a whole number of at least {least}:"
            " give more."
        )
    return int(text)


if __name__ == "__main__":
    raise SystemExit(main())
