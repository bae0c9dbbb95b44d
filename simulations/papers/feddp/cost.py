"""Time and memory of whole FedDP-KMeans runs, one thread.

`python -m simulations.papers.feddp cost --help`.

Every case runs in a process of its own, so that its peak memory is its own. Data are
generated, and libraries loaded, before the clock starts. Wall times suffer from other
work on the machine (see the load averages); CPU times hardly do.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import os
import resource
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track
from rich.table import Table

from flwr_dpkmeans import FederatedKMeans
from flwr_dpkmeans.algorithms.server.held_points import hold_points
from flwr_dpkmeans.algorithms.server.server_facts import bounds_from_server
from flwr_dpkmeans.errors import ConfigurationError
from flwr_dpkmeans.options import Cohort, read_config
from flwr_dpkmeans.privacy.noise import NoiseKind, noise_source
from flwr_dpkmeans.privacy.release import draw_noise, vector_length
from flwr_dpkmeans.sums.draft import draft_plan
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.threads import one_thread
from simulations.commands import encoded_tables, exit_code, wide_console, write_files
from simulations.papers.feddp.mixture_runs import (
    DELTA,
    N_CLUSTERS,
    PAPER,
    Setting,
    drawn,
)

MEMORY_LIMIT = 1.5
"""GB, of every case."""
_COLLUDING = 20
_NOISE_DRAWS = 10


@dataclass(frozen=True)
class Case:
    """One kind of run.

    Parameters
    ----------
    setting : Setting
        Whose data.
    engine : str
        Of `FederatedKMeans`.
    masking : bool
        Whether sums are masked.
    limit : float or None
        Largest median, in seconds.
    """

    setting: Setting
    engine: str = "direct"
    masking: bool = False
    limit: float | None = None


_MANY = Setting("client", 10_000, 50)
CASES = (
    Case(PAPER["record"], limit=2.5),
    Case(PAPER["client"], limit=4.0),
    Case(_MANY, limit=20.0),
    Case(PAPER["client"], masking=True, limit=25.0),
)
FLOWER_CASES = (
    Case(PAPER["record"], engine="inprocess", masking=True),
    Case(PAPER["client"], engine="inprocess", masking=True),
)


@dataclass(frozen=True)
class Measurement:
    """What one case gave.

    Parameters
    ----------
    wall, cpu : tuple of float
        Seconds of each fit.
    memory_before, memory : float
        Peak resident memory in GB before the first fit (libraries and data), and after
        the last.
    entries : int
        Noisy numbers that a client sends in all rounds.
    secure_noise, seeded_noise : float
        Median seconds in which one client draws its noise of all rounds.
    load : tuple of float
        Load average of the last minute, before and after.
    """

    wall: tuple[float, ...]
    cpu: tuple[float, ...]
    memory_before: float
    memory: float
    entries: int
    secure_noise: float
    seeded_noise: float
    load: tuple[float, float]


def measure(case: Case, repeats: int) -> Measurement:
    """Measure one case in this process, which should be fresh."""
    # Loaded before the limit, which holds for libraries that are there.
    import sklearn.cluster  # noqa: F401

    logging.disable(logging.CRITICAL)
    before = os.getloadavg()[0]
    with one_thread():
        _fit(Case(Setting(case.setting.unit, 3, 50), case.engine, case.masking), 1.0)
        drawn(case.setting, 0)
        memory_before = _peak_memory()
        # Another epsilon each time: what an earlier fit calibrated and remembers must
        # not help the next.
        timed = [
            _timed(partial(_fit, case, 1.0 + repeat / 1024.0))
            for repeat in range(repeats)
        ]
        memory = _peak_memory()
        plan = _plan(case)
        secure, seeded = (
            _noise_seconds(plan, kind) for kind in (NoiseKind.SECURE, NoiseKind.SEEDED)
        )
    wall, cpu = zip(*timed, strict=True)
    entries = sum(vector_length(planned.blocks) for planned in plan.rounds)
    load = (before, os.getloadavg()[0])
    return Measurement(wall, cpu, memory_before, memory, entries, secure, seeded, load)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the table and write it."""
    options = _parser().parse_args(arguments)
    return exit_code(lambda: _run(options))


def _run(options: argparse.Namespace) -> None:
    """Everything between the command line and the exit code."""
    if options.repeats < 1:
        raise ConfigurationError(
            f"repeats is {options.repeats}, but at least 1 is needed: give one such"
            " as 5."
        )
    cases = _cases(options)
    # A fresh interpreter each time: a forked one would count its parent's memory.
    fresh = multiprocessing.get_context("spawn")
    rows = []
    for case in track(cases, description="cases", console=Console(stderr=True)):
        with ProcessPoolExecutor(1, mp_context=fresh) as pool:
            rows.append(
                _row(case, pool.submit(measure, case, options.repeats).result())
            )
    wide_console().print(_table(rows))
    named = {
        "delta": DELTA,
        "repeats": options.repeats,
        "cores": os.cpu_count(),
        "python": sys.version.split()[0],
    }
    write_files(Path(options.output), encoded_tables("feddp_cost", named, rows))


def _cases(options: argparse.Namespace) -> list[Case]:
    """The cases asked for; smaller federations have no limits."""
    cases = [*CASES, *(FLOWER_CASES if options.flower else ())]
    if options.unit:
        cases = [case for case in cases if case.setting.unit == options.unit]
    if not (options.clients or options.rows):
        return cases
    changed = [
        Setting(s.unit, options.clients or s.n_clients, options.rows or s.rows)
        for s in (c.setting for c in cases)
    ]
    smaller = [
        Case(setting, case.engine, case.masking)
        for setting, case in zip(changed, cases, strict=True)
    ]
    return list(dict.fromkeys(smaller))


def _fit(case: Case, epsilon: float) -> None:
    """Run one whole FedDP-KMeans with T = 0."""
    mixture = drawn(case.setting, 0)
    model = FederatedKMeans(
        N_CLUSTERS,
        algorithm="feddp_kmeans",
        unit=case.setting.unit,
        epsilon=epsilon,
        delta=DELTA,
        noise="seeded",
        random_state=0,
        server_data=mixture.server_points,
        engine=case.engine,
        cohort=Cohort(
            masking=case.masking,
            max_silent=(
                min(_COLLUDING, case.setting.n_clients - 2) if case.masking else None
            ),
        ),
    )
    model.fit(mixture.clients)


def _timed(function: Callable[[], None]) -> tuple[float, float]:
    """Seconds by the wall's clock and of this process."""
    wall, cpu = time.perf_counter(), time.process_time()
    function()
    return time.perf_counter() - wall, time.process_time() - cpu


def _peak_memory() -> float:
    """Peak resident memory of this process in GB; macOS counts bytes, Linux KiB."""
    unit = 1.0 if sys.platform == "darwin" else 1024.0
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9


def _plan(case: Case) -> Plan:
    """The plan that a fit of a case makes."""
    setting, points = case.setting, drawn(case.setting, 0).server_points
    values: dict[str, Any] = {
        "n_clusters": N_CLUSTERS,
        "bounds": bounds_from_server(points),
        "epsilon": 1.0,
    }
    values |= {
        "algorithm": "feddp_kmeans",
        "unit": setting.unit,
        "delta": DELTA,
        "n_clients": setting.n_clients,
    }
    # Virtual clients do not fall silent.
    values |= {"dropout": "retry"}
    values |= {
        "n_features": points.shape[1],
        "max_silent": min(_COLLUDING, setting.n_clients - 2),
    }
    if setting.unit == "record":
        values["n_examples"] = setting.n_clients * setting.rows
    config = read_config(**values)
    server_points = hold_points(config, points)
    return draft_plan(
        config,
        run_id=1,
        n_clients=setting.n_clients,
        seed=0,
        n_features=points.shape[1],
        server=server_points.facts,
        public_points=server_points.public,
    )


def _noise_seconds(plan: Plan, kind: NoiseKind) -> float:
    """Median seconds in which a client draws its shares of the noise of all rounds."""
    source = noise_source(kind, 0 if kind is NoiseKind.SEEDED else None)

    def draw() -> None:
        for planned in plan.rounds:
            draw_noise(
                planned.blocks, source, plan.fraction_bits, share=plan.shares.factor
            )

    draw()
    return statistics.median(_timed(draw)[0] for _ in range(_NOISE_DRAWS))


def _row(case: Case, measured: Measurement) -> dict[str, Any]:
    """One case as a line of the table."""
    return {
        "unit": case.setting.unit,
        "n_clients": case.setting.n_clients,
        "rows_per_client": case.setting.rows,
        "engine": case.engine,
        "masks": int(case.masking),
        "repeats": len(measured.wall),
        "median_seconds": statistics.median(measured.wall),
        "least_seconds": min(measured.wall),
        "most_seconds": max(measured.wall),
        "median_cpu_seconds": statistics.median(measured.cpu),
        "limit_seconds": case.limit,
        "peak_gb": measured.memory,
        "gb_before_fit": measured.memory_before,
        "limit_gb": MEMORY_LIMIT,
        "noise_entries_per_client": measured.entries,
        "secure_noise_ms_per_client": 1e3 * measured.secure_noise,
        "seeded_noise_ms_per_client": 1e3 * measured.seeded_noise,
        "load_before": measured.load[0],
        "load_after": measured.load[1],
    }


def _table(rows: Sequence[dict[str, Any]]) -> Table:
    """Print each case beside its limits."""
    table = Table(
        title=(
            f"Whole runs of FedDP-KMeans (T = 0, d = 100, k = {N_CLUSTERS}), one"
            f" thread, seeded noise; {os.cpu_count()} cores. Noise: one client, all"
            " rounds"
        )
    )
    for column in ("unit", "clients x rows", "engine", "masks"):
        table.add_column(column)
    for column in ("median s", "spread s", "CPU s", "limit s", "peak GB", "limit GB"):
        table.add_column(column, justify="right")
    for column in ("secure noise ms", "seeded ms", "load"):
        table.add_column(column, justify="right")
    for row in rows:
        limit = row["limit_seconds"]
        over = limit is not None and row["median_seconds"] > limit
        heavy = row["peak_gb"] > row["limit_gb"]
        cells = [
            f"{row['median_seconds']:.2f}" + (" OVER" if over else ""),
            f"{row['least_seconds']:.2f}-{row['most_seconds']:.2f}",
            f"{row['median_cpu_seconds']:.2f}",
            "-" if limit is None else f"{limit:g}",
            f"{row['peak_gb']:.2f}" + (" OVER" if heavy else ""),
            f"{row['limit_gb']:g}",
            f"{row['secure_noise_ms_per_client']:.2f}",
            f"{row['seeded_noise_ms_per_client']:.2f}",
            f"{row['load_before']:.1f}-{row['load_after']:.1f}",
        ]
        sizes = f"{row['n_clients']} x {row['rows_per_client']}"
        table.add_row(
            row["unit"], sizes, row["engine"], "yes" if row["masks"] else "no", *cells
        )
    return table


def _parser() -> argparse.ArgumentParser:
    """Command-line options."""
    parser = argparse.ArgumentParser(
        prog="python -m simulations.papers.feddp cost", description=__doc__
    )
    parser.add_argument(
        "--repeats", type=int, default=5, help="timed fits of each case"
    )
    parser.add_argument(
        "--unit", default="", choices=("record", "client"), help="only these cases"
    )
    parser.add_argument(
        "--flower",
        action="store_true",
        help="also through Flower's messages, which always mask",
    )
    parser.add_argument(
        "--clients",
        type=int,
        default=0,
        help="of every case, instead of its own number",
    )
    parser.add_argument(
        "--rows",
        type=int,
        default=0,
        help="of each client, instead of the case's own number",
    )
    parser.add_argument(
        "--output", default="outputs/feddp_cost", help="folder for the tables"
    )
    return parser
