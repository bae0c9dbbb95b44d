"""Worker processes of experiments, and jobs in them.

In every command 0 is none but this process, and no number is one per core.
"""

from __future__ import annotations

import argparse
import logging
import os
import re
import warnings
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import TypeVar

from rich.console import Console
from rich.progress import track

from flwr_dpkmeans.errors import ConfigurationError, PrivacyWarning
from flwr_dpkmeans.threads import one_thread

JobT = TypeVar("JobT")
ResultT = TypeVar("ResultT")
_NUMBER = re.compile(r"\d[\d.,]*(?:e[+-]?\d+)?")


def one_thread_from_now_on() -> None:
    """Hold BLAS and OpenMP, as far as they are loaded, to one thread for the life of a
    worker process.
    """
    one_thread().__enter__()


def default_workers(workers: object) -> int:
    """Number of worker processes: as asked, 0 for none but this process.

    None: one per core.

    Examples
    --------
    >>> default_workers(0), default_workers(None) >= 1
    (0, True)
    """
    if workers is None:
        return os.cpu_count() or 1
    if isinstance(workers, bool) or not isinstance(workers, int) or workers < 0:
        raise ConfigurationError(
            f"workers is {workers!r}, but it must be an integer of at least 0: give 2,"
            " 0 for this process alone, or leave it out for one per core."
        )
    return workers


def workers_of(text: str | None) -> int:
    """The same from a command line's text.

    Examples
    --------
    >>> workers_of("3")
    3
    """
    if text is None:
        return default_workers(None)
    is_whole = text.removeprefix("-").isdecimal()
    return default_workers(int(text) if is_whole else text)


def add_workers(parser: argparse.ArgumentParser) -> None:
    """Declare ``--workers``."""

    def read(text: str) -> int:
        try:
            return workers_of(text)
        except ConfigurationError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    parser.add_argument(
        "--workers",
        type=read,
        default=workers_of(None),
        help="processes; 0: this one; default: one per core",
    )


def run_jobs(
    function: Callable[[JobT], ResultT],
    jobs: Sequence[JobT],
    *,
    workers: int,
    chunk: int,
    description: str,
) -> list[ResultT]:
    """Run jobs in worker processes of one thread each, with a progress bar on stderr.

    Neighbouring jobs should share a seed: `chunk` of them go to one worker, which draws
    their data once. Without workers all run in this process, of one thread too.
    """
    console = Console(stderr=True)
    shown = partial(track, total=len(jobs), description=description, console=console)
    of_job = partial(_with_warnings, function)
    if workers == 0:
        with one_thread():
            return _results(shown(map(of_job, jobs)), console)
    with ProcessPoolExecutor(workers, initializer=_prepare_worker) as pool:
        return _results(shown(pool.map(of_job, jobs, chunksize=chunk)), console)


def _with_warnings(
    function: Callable[[JobT], ResultT], job: JobT
) -> tuple[ResultT, list[str]]:
    """A job's result, and the texts of what estimators warned of, which would break up
    the bar.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", PrivacyWarning)
        result = function(job)
    sentences = []
    for warning in caught:
        if issubclass(warning.category, PrivacyWarning):
            sentences.append(str(warning.message))
        else:
            warnings.warn_explicit(
                warning.message, warning.category, warning.filename, warning.lineno
            )
    return result, sentences


def _results(
    finished: Iterable[tuple[ResultT, list[str]]], console: Console
) -> list[ResultT]:
    """The results; of hundreds of fits each warning is shown once, whatever its numbers
    are.
    """
    results, shown = [], set[str]()
    for result, sentences in finished:
        results.append(result)
        for sentence in sentences:
            text = _NUMBER.sub("", sentence)
            if text not in shown:
                shown.add(text)
                console.print(
                    f"PrivacyWarning: {sentence}", highlight=False, markup=False
                )
    return results


def _prepare_worker() -> None:
    """Limit BLAS and OpenMP to one thread for the life of a worker.

    The libraries must be loaded before.
    """
    import sklearn.cluster  # noqa: F401

    logging.disable(logging.CRITICAL)
    one_thread_from_now_on()
