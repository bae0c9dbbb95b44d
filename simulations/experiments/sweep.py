"""Run the jobs of a sweep in worker processes.

Resumable, in spite of failing jobs, with time left.
"""

from __future__ import annotations

import math
import os
import signal
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection
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

from flwr_dpkmeans.threads import one_thread
from simulations.experiments.code_version import code_version, require_this_code
from simulations.experiments.configuration import job_key
from simulations.experiments.expansion import Sweep
from simulations.experiments.job import failed_row, log_quietly, run_job
from simulations.experiments.table import JOURNAL_FILE, Journal, only_sweep, write_table
from simulations.experiments.workers import one_thread_from_now_on

Row = dict[str, Any]
Runner = Callable[[Mapping[str, Any]], Row]

_LARGEST_CHUNK = 25
_CHUNKS_PER_WORKER = 12
_CHUNK_SECONDS = 20.0
"""A chunk's rows reach the journal together, so a kill loses no more than this time of
each worker, and one run.
"""
_IN_FLIGHT = 3
"""Chunks per worker that are handed out at a time."""


@dataclass(frozen=True)
class SweepResult:
    """What a sweep left.

    Parameters
    ----------
    table : Path
        One row per run.
    n_run, n_reused, n_failed : int
        Runs that were made now; that were finished before; rows that say why a run
        failed.
    reasons : Counter of str
        Why, and how often.
    n_others : int
        Finished runs of the folder that the sweep does not have, so that they are not
        in the table.
    """

    table: Path
    n_run: int
    n_reused: int
    n_failed: int
    reasons: Counter[str] = field(default_factory=Counter)
    n_others: int = 0


def run_sweep(
    sweep: Sweep, folder: Path, *, workers: int, run: Runner = run_job
) -> SweepResult:
    """Run what is not finished yet and write the table.

    Parameters
    ----------
    sweep : Sweep
        From `simulations.experiments.expansion.expand`.
    folder : Path
        Of journal and table. The same command with the same folder continues where it
        stopped.
    workers : int
        Processes, each with one thread; 0 runs everything in this one.
    run : callable
        Runs one configuration; it can be sent to a process.

    Returns
    -------
    SweepResult

    Raises
    ------
    ConfigurationError
        If another sweep is at work in the folder, or runs in it were made by other code
        and `sweep.common` does not say ``other_code``.
    """
    with only_sweep(folder):
        journal = Journal(folder)
        before = {
            key: row
            for key, row in journal.finished().items()
            if row.get("status") == "done"
        }
        keys = [job_key(settings) for settings in sweep.settings]
        rest = [
            settings
            for settings, key in zip(sweep.settings, keys, strict=True)
            if key not in before
        ]
        reused = [before[key] for key in keys if key in before]
        require_rows_of_this_code(
            reused, folder, take_others=bool(sweep.common["other_code"])
        )
        finished: dict[str, Row] = {}
        try:
            with _progress() as progress:
                bar = progress.add_task(sweep.name or "runs", total=len(rest))
                for rows in _finished(rest, workers, run):
                    journal.add(rows)
                    finished |= {row["job"]: row for row in rows}
                    progress.advance(bar, len(rows))
        finally:
            merged = before | finished
            rows = [
                merged[key] | labels_of(settings, sweep.name)
                for settings, key in zip(sweep.settings, keys, strict=True)
                if key in merged
            ]
            figures = sweep.common["sweep"]["figures"]
            named = {
                "experiment": sweep.name,
                "figures": figures,
                "missing": sweep.missing,
            }
            table = write_table(folder, rows, **named) if rows else folder
    reasons = Counter(str(row["reason"]) for row in rows if row["status"] != "done")
    n_others = len(before.keys() - set(keys))
    return SweepResult(
        table, len(finished), len(reused), reasons.total(), reasons, n_others
    )


def labels_of(settings: Mapping[str, Any], experiment: str | None) -> Row:
    """Columns that change no result, from the sweep that asks now."""
    return {"experiment": experiment, "variant": settings.get("variant")}


def require_rows_of_this_code(
    rows: Sequence[Row], folder: Path, *, take_others: bool
) -> None:
    """Refuse finished runs that were made by other sources than today's, or warn of
    them where they are to be taken.
    """
    other = sum(row.get("code") != code_version(row) for row in rows)
    what = f"{len(rows)} finished runs in {folder.absolute()}"
    require_this_code(other, what, f"its {JOURNAL_FILE}", take_others=take_others)


def _finished(
    settings: Sequence[Mapping[str, Any]], workers: int, run: Runner
) -> Iterator[list[Row]]:
    """Rows of runs as they finish, in chunks."""
    if workers == 0:
        for setting in settings:
            with one_thread():
                rows = _run_chunk([setting], run)
            yield rows
        return
    # Runs on the same data follow each other, so that a worker loads them once.
    ordered = sorted(settings, key=lambda run: repr((run["data"], run["n_clients"])))
    size = max(1, min(_LARGEST_CHUNK, len(ordered) // (workers * _CHUNKS_PER_WORKER)))
    waiting: deque[Sequence[Mapping[str, Any]]] = deque(
        ordered[start : start + size] for start in range(0, len(ordered), size)
    )
    while waiting:
        suspects: list[Sequence[Mapping[str, Any]]] = []
        yield from _in_pool(waiting, suspects, workers, run)
        # One of these ended its process.
        for chunk in suspects:
            yield from _apart(chunk, run)


def _in_pool(
    waiting: deque[Sequence[Mapping[str, Any]]],
    suspects: list[Sequence[Mapping[str, Any]]],
    workers: int,
    run: Runner,
) -> Iterator[list[Row]]:
    """Rows until nothing waits or a worker process dies.

    What was under way then is suspect.
    """
    with _pool(workers) as pool:
        under_way: dict[Future[list[Row]], Sequence[Mapping[str, Any]]] = {}
        while waiting or under_way:
            try:
                while waiting and len(under_way) < _IN_FLIGHT * workers:
                    chunk = waiting[0]
                    under_way[pool.submit(_run_chunk, chunk, run, _CHUNK_SECONDS)] = (
                        waiting.popleft()
                    )
                done, _ = wait(under_way, return_when=FIRST_COMPLETED)
                for future in done:
                    rows = future.result()
                    chunk = under_way.pop(future)
                    rest = chunk[len(rows) :]
                    if rest:
                        waiting.appendleft(rest)
                    yield rows
            except BrokenProcessPool:
                for future, chunk in under_way.items():
                    if future.done() and future.exception() is None:
                        yield future.result()
                    else:
                        suspects.append(chunk)
                return


def _apart(chunk: Sequence[Mapping[str, Any]], run: Runner) -> Iterator[list[Row]]:
    """Runs in a process of their own.

    If it dies, each half in one, until a single run gets a row that says so.
    """
    try:
        with _pool(1) as pool:
            rows = pool.submit(_run_chunk, chunk, run).result()
    except BrokenProcessPool:
        if len(chunk) > 1:
            middle = len(chunk) // 2
            yield from _apart(chunk[:middle], run)
            yield from _apart(chunk[middle:], run)
            return
        reason = "the process of this run ended abruptly, perhaps for lack of memory"
        rows = [_of_this_code(failed_row(chunk[0], reason))]
    yield rows


def _run_chunk(
    chunk: Sequence[Mapping[str, Any]], run: Runner, seconds: float = math.inf
) -> list[Row]:
    """Run configurations one after the other until the time is up; at least one."""
    rows: list[Row] = []
    end = time.monotonic() + seconds
    for settings in chunk:
        rows.append(_of_this_code(run(settings)))
        if time.monotonic() > end:
            break
    return rows


def _of_this_code(row: Row) -> Row:
    """A row with the version of what made it."""
    return row | {"code": code_version(row)}


@contextmanager
def _pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Worker processes that share nothing with this one, so no random stream either,
    and that end with it.
    """
    context = get_context("spawn")
    watched, worker_end = context.Pipe(duplex=False)
    pool = ProcessPoolExecutor(
        workers, mp_context=context, initializer=_prepare_worker, initargs=(watched,)
    )
    try:
        yield pool
    except BaseException:
        # Whatever is under way is run again next time, so nobody has to wait for it.
        worker_end.close()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
        worker_end.close()
        watched.close()


def _prepare_worker(watched: Connection) -> None:
    """Limit BLAS and OpenMP to one thread for the life of a worker.

    The libraries must be loaded before.
    """
    import sklearn.cluster  # noqa: F401

    # Ctrl-C reaches all processes of a terminal; the sweep's own ends the workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_sweep, args=(watched,), daemon=True).start()
    log_quietly()
    one_thread_from_now_on()


def _end_with_sweep(watched: Connection) -> None:
    """End this process when the sweep's is stopped or killed, which closes the other
    end of the pipe.
    """
    with suppress(EOFError, OSError):
        watched.recv_bytes()
    os._exit(1)


def _progress() -> Progress:
    """A bar with time left, on stderr."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        # Chunks may take minutes: over the default of 30 s there would be no speed to
        # tell a time left from.
        speed_estimate_period=3600.0,
    )
