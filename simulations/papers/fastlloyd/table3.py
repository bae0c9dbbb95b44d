"""FastLloyd's Table 3, time and bytes of an iteration with two clients.

`python -m simulations.papers.fastlloyd table3 --help`.

In process (strategy, ClientApps, mod, masks, secure noise and Flower's messages, no
transport) and, with --superlink, over a real SuperLink and two SuperNodes on loopback,
in a table of its own: there an iteration waits for polls. Rows are scaled by their own
range, as in the paper, which takes bounds from private data: right for a table of
times, wrong for anything else.
"""

from __future__ import annotations

import argparse
import logging
import os
import platform
import signal
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from flwr_dpkmeans.data.tables import load_table
from flwr_dpkmeans.errors import ConfigurationError, nearest
from flwr_dpkmeans.threads import one_thread
from simulations.commands import encoded_tables, exit_code, write_files
from simulations.papers.fastlloyd.round_cost import (
    Array,
    Problem,
    measure_rounds,
    vector_bytes,
)
from simulations.papers.fastlloyd.shared_seed import measure_masks
from simulations.papers.fastlloyd.superlink_cost import measure_over_superlink
from simulations.papers.fastlloyd.table3_text import (
    IN_PROCESS,
    SHARED_SEED,
    SUPERLINK,
    Column,
    page,
)
from simulations.sources.synthetic import draw_balanced_clusters

NAME = "table3"


@dataclass(frozen=True)
class Case:
    """One row of the paper's table.

    Parameters
    ----------
    name : str
        Of the set: TimeSynth is drawn, the others are files.
    n_rows, n_clusters, n_features : int
        N, k and d.
    paper_ms, paper_ms_half_width : float
        Milliseconds of an iteration as printed: mean and 95% confidence.
    paper_bytes : int
        As printed.
    moh_ms, moh_bytes : float, optional
        MohLloyd's (Mohassel, Rosulek, Trieu 2020), as the paper prints them; no noise
        is in it.
    file : str
        In the folder of data sets; empty for drawn points.
    """

    name: str
    n_rows: int
    n_clusters: int
    n_features: int
    paper_ms: float
    paper_ms_half_width: float
    paper_bytes: int
    file: str = ""
    moh_ms: float | None = None
    moh_bytes: float | None = None

    @property
    def label(self) -> str:
        """What --only calls it."""
        if self.file:
            return self.name
        thousands = self.n_rows // 1000
        return f"{self.name}-{thousands}K-{self.n_clusters}-{self.n_features}"


CASES = (
    Case("TimeSynth", 10_000, 2, 2, 3.03, 0.02, 192, moh_ms=10_500, moh_bytes=2.557e8),
    Case("TimeSynth", 10_000, 2, 5, 3.24, 0.01, 384),
    Case("TimeSynth", 10_000, 5, 2, 4.32, 0.02, 480, moh_ms=34_050, moh_bytes=9.746e8),
    Case("TimeSynth", 10_000, 5, 5, 4.95, 0.04, 960),
    Case(
        "TimeSynth", 100_000, 2, 2, 12.57, 0.02, 192, moh_ms=105_120, moh_bytes=2.467e9
    ),
    Case("TimeSynth", 100_000, 2, 5, 13.17, 0.03, 384),
    Case(
        "TimeSynth", 100_000, 5, 2, 22.05, 0.03, 480, moh_ms=347_250, moh_bytes=9.535e9
    ),
    Case("TimeSynth", 100_000, 5, 5, 22.56, 0.02, 960),
    Case("lsun", 400, 3, 2, 2.6, 0.04, 288, "lsun.npz", moh_ms=1_481),
    Case("s1", 5_000, 15, 2, 5.81, 0.08, 1440, "s1.npz", moh_ms=49_087),
)
"""FastLloyd, Table 3."""


def load_problem(
    case: Case, folder: Path | None, n_clients: int = 2, seed: int = 0
) -> Problem:
    """Draw or load a case's rows and put them into [-1, 1]^d, by their own range.

    Parameters
    ----------
    case : Case
        Which.
    folder : Path or None
        Where files are.
    n_clients : int
        Clients that share the rows.
    seed : int
        Of drawn points and of the order of rows.

    Returns
    -------
    Problem

    Raises
    ------
    DataError, ConfigurationError
        If the file cannot be used or is another table than the paper's.
    """
    rng = np.random.default_rng(seed)
    points: Array
    if case.file:
        points = load_table((folder or Path()) / case.file).points
        if points.shape != (case.n_rows, case.n_features):
            raise ConfigurationError(
                f"{case.file} has {points.shape[0]} rows of {points.shape[1]}, but the"
                f" paper's has {case.n_rows} of {case.n_features}: give the folder of"
                " the original set by --data-dir."
            )
        points = points[rng.permutation(len(points))]
    else:
        points = draw_balanced_clusters(
            rng,
            n_points=case.n_rows,
            n_clusters=case.n_clusters,
            n_features=case.n_features,
        ).points
    low, high = points.min(axis=0), points.max(axis=0)
    return Problem(
        2.0 * (points - low) / (high - low) - 1.0, case.n_clusters, n_clients
    )


def choose_cases(names: Sequence[str], folder: Path | None) -> list[Case]:
    """Find the cases asked for; without names all whose data are there.

    Parameters
    ----------
    names : sequence of str
        Labels, such as "TimeSynth-10K-2-2" or "s1".
    folder : Path or None
        Where files are.

    Returns
    -------
    list of Case

    Raises
    ------
    ConfigurationError
        If a name is unknown.

    Examples
    --------
    >>> len(choose_cases([], None))
    8
    >>> choose_cases(["TimeSynth-100K-5-2"], None)[0].paper_ms
    22.05
    """
    labels = {case.label: case for case in CASES}
    for name in names:
        if name not in labels:
            raise ConfigurationError(
                f"there is no row {name!r} in the table: {nearest(name, labels)}"
            )
    if names:
        return [labels[name] for name in names]
    return [
        case
        for case in CASES
        if not case.file or (folder is not None and (folder / case.file).is_file())
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the tables and write them."""
    options = _parser().parse_args(arguments)
    return exit_code(lambda: _run(options))


def _run(options: argparse.Namespace) -> None:
    """Everything between the command line and the exit code."""
    folder = Path(options.data_dir) if options.data_dir else None
    cases = choose_cases(options.only, folder)
    over_superlink = (
        None
        if options.superlink is None
        else _for_superlink(options.superlink, cases, folder)
    )
    logging.disable(logging.CRITICAL)
    progress = Console(stderr=True)
    if options.shared_seed:
        progress.print(f"WARNING: {SHARED_SEED}")
    with one_thread():
        rows = [
            _in_process(case, options, folder)
            for case in track(cases, "in process", console=progress)
        ]
    tables: list[tuple[str, Sequence[Column], list[dict[str, Any]]]] = [
        ("in_process", IN_PROCESS, rows)
    ]
    if over_superlink is not None:
        # The SuperLink and its nodes end with their blocks, which a plain SIGTERM would
        # jump over.
        signal.signal(signal.SIGTERM, _leave)
        over = track(over_superlink, "over a SuperLink", console=progress)
        tables.append(
            (
                "superlink",
                SUPERLINK,
                [_over_superlink(case, options, folder) for case in over],
            )
        )
    machine = (
        f"{platform.machine()}, {os.cpu_count()} cores, Python"
        f" {platform.python_version()}"
    )
    named = {
        key: value
        for key, value in vars(options).items()
        if key not in ("output", "data_dir")
    }
    named |= {"machine": machine}
    files: dict[str, bytes] = {}
    for part, columns, measured in tables:
        _print(columns, measured)
        files |= encoded_tables(f"{NAME}_{part}", named, measured)
    files[f"{NAME}.md"] = page(
        [(columns, measured) for _, columns, measured in tables], named
    ).encode()
    write_files(Path(options.output), files)


def _for_superlink(
    names: Sequence[str], cases: Sequence[Case], folder: Path | None
) -> list[Case]:
    """The cases to run over a SuperLink: by name, or those with the shortest and the
    longest vectors.
    """
    if names:
        return choose_cases(names, folder)
    ordered = sorted(cases, key=lambda case: (case.paper_bytes, case.n_rows))
    return list(dict.fromkeys((ordered[0], ordered[-1])))


def _in_process(
    case: Case, options: argparse.Namespace, folder: Path | None
) -> dict[str, Any]:
    """One row of the first table."""
    problem = load_problem(case, folder, options.clients)
    before = os.getloadavg()[0]
    settings = {
        "epsilon": options.epsilon,
        "noise": options.noise,
        "n_iterations": options.iterations,
    }
    measured = measure_rounds(problem, **settings, repeats=options.repeats)
    masks = (
        measure_masks(problem, **settings, repeats=options.repeats)
        if options.shared_seed
        else {}
    )
    bare: dict[str, float | None] = {
        f"{name}_cpu_ms": estimate.mean for name, estimate in masks.items()
    }
    bare |= {
        f"{name}_cpu_ms_half_width": _finite(estimate.half_width)
        for name, estimate in masks.items()
    }
    return (
        _common(case, options)
        | bare
        | {
            "iterations": measured.n_iterations,
            "repeats": options.repeats,
            "ms": measured.iteration.mean,
            "ms_half_width": _finite(measured.iteration.half_width),
            "cpu_ms": measured.iteration_cpu.mean,
            "setup_ms": measured.setup.mean,
            "setup_ms_half_width": _finite(measured.setup.half_width),
            "bytes": measured.sizes.vectors,
            "message_bytes": measured.sizes.messages,
            "setup_bytes": measured.sizes.rest,
            "ms_ratio": measured.iteration.mean / case.paper_ms,
            "bytes_ratio": measured.sizes.vectors / case.paper_bytes,
            "load_before": before,
            "load_after": os.getloadavg()[0],
        }
    )


def _over_superlink(
    case: Case, options: argparse.Namespace, folder: Path | None
) -> dict[str, Any]:
    """One row of the second table."""
    problem = load_problem(case, folder, options.clients)
    before = os.getloadavg()[0]
    measured = measure_over_superlink(
        problem, n_rounds=options.rounds, epsilon=options.epsilon
    )
    return _common(case, options) | {
        "iterations": options.rounds,
        "seconds": measured.trip,
        "least_seconds": min(measured.trips),
        "most_seconds": max(measured.trips),
        "start_seconds": measured.start,
        "keys_seconds": measured.keys,
        "end_seconds": measured.end,
        "bytes": vector_bytes(case.n_clusters, case.n_features, options.clients),
        "wire_bytes": measured.bytes_up + measured.bytes_down,
        "wire_bytes_up": measured.bytes_up,
        "wire_bytes_down": measured.bytes_down,
        "other_wire_bytes": measured.other_bytes,
        "ms_ratio": 1e3 * measured.trip / case.paper_ms,
        "load_before": before,
        "load_after": os.getloadavg()[0],
    }


def _common(case: Case, options: argparse.Namespace) -> dict[str, Any]:
    """What both tables begin with."""
    fields = {key: value for key, value in asdict(case).items() if key != "file"}
    return fields | {"n_clients": options.clients}


def _finite(half_width: float) -> float | None:
    """A half width, if there is one: a single run has none."""
    return half_width if np.isfinite(half_width) else None


def _print(columns: Sequence[Column], rows: Sequence[dict[str, Any]]) -> None:
    """Print one table."""
    table = Table(title=columns[0].title)
    for column in columns:
        table.add_column(
            column.header, justify="left" if column is columns[0] else "right"
        )
    for row in rows:
        table.add_row(*(column.cell(row) for column in columns))
    Console(width=None if sys.stdout.isatty() else 180).print(table)


def _leave(number: int, frame: FrameType | None) -> None:
    """End as if by exit, so that blocks are left in order."""
    del frame
    raise SystemExit(128 + number)


def _parser() -> argparse.ArgumentParser:
    """Command-line options."""
    parser = argparse.ArgumentParser(
        prog="python -m simulations.papers.fastlloyd table3", description=__doc__
    )
    parser.add_argument(
        "--data-dir",
        default="",
        help="folder with lsun.npz and s1.npz, which are left out without it",
    )
    parser.add_argument(
        "--only",
        nargs="+",
        default=[],
        metavar="ROW",
        help="such as TimeSynth-10K-2-2 or s1",
    )
    parser.add_argument(
        "--repeats",
        type=int,
        default=100,
        help="timed runs of each row (default: 100, as the paper)",
    )
    parser.add_argument(
        "--iterations",
        type=int,
        default=7,
        help="of each run in process, at least 3 (default: 7)",
    )
    parser.add_argument(
        "--clients",
        type=int,
        default=2,
        help="the paper has 2, and its numbers are for 2",
    )
    parser.add_argument("--epsilon", type=float, default=1.0, help="total of a run")
    parser.add_argument(
        "--shared-seed",
        action="store_true",
        help=(
            "also the paper's masks, from one seed that every client knows (NOT"
            " PRIVATE: any client can unmask any other), beside pairwise ones, both"
            " without Flower's messages"
        ),
    )
    parser.add_argument(
        "--noise", default="secure", choices=("secure", "seeded"), help="in process"
    )
    parser.add_argument(
        "--superlink",
        nargs="*",
        metavar="ROW",
        help=(
            "also over a SuperLink, about a minute for each row; without rows the two"
            " with least and most bytes"
        ),
    )
    parser.add_argument(
        "--rounds", type=int, default=3, help="iterations of a run over a SuperLink"
    )
    parser.add_argument(
        "--output", default=f"outputs/{NAME}", help="folder for the tables"
    )
    return parser
