"""Worker processes of experiments: in every command 0 is none but this process, and
nothing said one per core.
"""

from __future__ import annotations

import argparse
import os

from flwr_dpkmeans.errors import ConfigurationError
from flwr_dpkmeans.threads import one_thread


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
            f"workers is {workers!r}, but it must be an integer of at least 0: give 2, 0"
            " for this process alone, or leave it out for one per core."
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
