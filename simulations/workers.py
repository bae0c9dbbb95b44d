"""Worker processes of experiments."""

from __future__ import annotations

from flwr_dpkmeans.threads import one_thread


def one_thread_from_now_on() -> None:
    """Hold BLAS and OpenMP, as far as they are loaded, to one thread for the life of a worker process."""
    one_thread().__enter__()
