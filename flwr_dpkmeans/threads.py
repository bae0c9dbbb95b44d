"""One thread for the numerics of every engine, node and worker, decided here.

The matrix products are of small blocks: threads would wait for each other longer than
they compute (measured: fifteen times the processor time on a busy machine, a tenth less
wall time on an idle one), and last digits of decompositions depend on their number,
which clients must agree on.
"""

from __future__ import annotations

import sys
from contextlib import ContextDecorator
from threading import Lock, local
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from threadpoolctl import LibController


_Limit = tuple["LibController", int]
_CALLS_FOR_ALL_THREADS = (
    "goto_set_num_threads",
    "scipy_goto_set_num_threads",
    "scipy_goto_set_num_threads64_",
)
"""What OpenBLAS' call that holds in every thread is named in one build or another."""


class _Libraries(ContextDecorator):
    """The thread pools of this process, limited to one thread while somebody entered.

    BLAS has one limit for the process: whoever enters first sets it and whoever leaves
    last puts it back. OpenMP has one for each thread, which each thread sets and puts
    back by itself.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._entered = local()
        """Of each thread, what its entries have to put back, the innermost last."""
        self._n_inside = 0
        self._n_modules = 0
        self._libraries: list[LibController] = []
        self._of_process: dict[str, _Limit] = {}
        """By a library's path, what the last to leave puts back."""

    def __enter__(self) -> None:
        of_thread: list[_Limit] = []
        stack = vars(self._entered).setdefault("stack", [])
        with self._lock:
            self._n_inside += 1
            has_new_modules = self._look_up()
            # Inside an entry of its own, this thread has nothing to set.
            if not stack or has_new_modules:
                of_thread = self._limit_all()
        stack.append(of_thread)

    def _limit_all(self) -> list[_Limit]:
        """Limit every library to one thread, and return what this thread puts back."""
        of_thread: list[_Limit] = []
        for library in self._libraries:
            n_threads = library.get_num_threads()
            if n_threads in (None, 0, 1):
                continue
            limit = (library, n_threads)
            if library.user_api == "openmp":
                of_thread.append(limit)
            else:
                self._of_process.setdefault(library.filepath, limit)
            set_threads(library, 1)
        return of_thread

    def _look_up(self) -> bool:
        """Look for libraries, which takes milliseconds, only after imports.

        These may have loaded some.
        """
        if len(sys.modules) == self._n_modules:
            return False
        from threadpoolctl import ThreadpoolController

        self._libraries = ThreadpoolController().lib_controllers
        self._n_modules = len(sys.modules)
        return True

    def __exit__(self, *_: object) -> None:
        to_put_back: list[_Limit] = self._entered.stack.pop()
        with self._lock:
            self._n_inside -= 1
            if self._n_inside == 0:
                to_put_back += self._of_process.values()
                self._of_process.clear()
            for library, n_threads in to_put_back:
                set_threads(library, n_threads)


def set_threads(library: LibController, n_threads: int) -> None:
    """Set a library's limit.

    OpenBLAS since 0.3.31 ignores the usual call in threads other than the main one.
    """
    library.set_num_threads(n_threads)
    if library.get_num_threads() == n_threads:
        return
    for name in _CALLS_FOR_ALL_THREADS:
        if hasattr(library.dynlib, name):
            getattr(library.dynlib, name)(n_threads)


_LIBRARIES = _Libraries()


def one_thread() -> _Libraries:
    """Hold BLAS and OpenMP to one thread.

    As a context or a decorator, nested and from several threads at once.
    """
    return _LIBRARIES
