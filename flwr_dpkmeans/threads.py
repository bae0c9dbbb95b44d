"""One thread for the numerics: the one place that decides, for every engine, node and
worker.

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


_ANYWHERE = (
    "goto_set_num_threads",
    "scipy_goto_set_num_threads",
    "scipy_goto_set_num_threads64_",
)
"""What OpenBLAS' call that holds in every thread is named in one build or another."""


class _Libraries(ContextDecorator):
    """The thread pools of this process, held to one thread by whoever has entered.

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
        self._known: list[LibController] = []
        self._before: dict[str, tuple[LibController, int]] = {}

    def __enter__(self) -> None:
        own: list[tuple[LibController, int]] = []
        stack = vars(self._entered).setdefault("stack", [])
        with self._lock:
            self._n_inside += 1
            # Looked up again, which takes milliseconds, only after imports, which may
            # load some.
            is_known = len(sys.modules) == self._n_modules
            if not is_known:
                from threadpoolctl import ThreadpoolController

                self._known = ThreadpoolController().lib_controllers
                self._n_modules = len(sys.modules)
            # Inside an entry of its own, this thread has nothing to set.
            for library in () if stack and is_known else self._known:
                n_threads = library.get_num_threads() or 1
                if n_threads == 1:
                    continue
                if library.user_api == "openmp":
                    own.append((library, n_threads))
                else:
                    self._before.setdefault(library.filepath, (library, n_threads))
                _set(library, 1)
        stack.append(own)

    def __exit__(self, *_: object) -> None:
        own = self._entered.stack.pop()
        with self._lock:
            self._n_inside -= 1
            ended = [] if self._n_inside else [*self._before.values()]
            if not self._n_inside:
                self._before.clear()
            for library, n_threads in own + ended:
                _set(library, n_threads)


def _set(library: LibController, n_threads: int) -> None:
    """Set a library's limit.

    OpenBLAS since 0.3.31 ignores the usual call in threads other than the main one.
    """
    library.set_num_threads(n_threads)
    for name in _ANYWHERE if library.get_num_threads() != n_threads else ():
        if hasattr(library.dynlib, name):
            getattr(library.dynlib, name)(n_threads)


_LIBRARIES = _Libraries()


def one_thread() -> _Libraries:
    """Hold BLAS and OpenMP to one thread.

    As a context or a decorator, nested and from several threads at once.
    """
    return _LIBRARIES
