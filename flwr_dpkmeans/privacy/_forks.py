"""Forks whose generator below OpenDP would repeat that of their parent or of an earlier process.

OpenSSL seeds its generator again when it finds itself in a process with another number. A fork can have the number that
its generator was last used under: in a PID namespace of its own, or after its grandparent's number became free.
"""

from __future__ import annotations

import os


class ForkWatch:
    """Remembers the numbers of the processes that this one was forked from.

    Attributes
    ----------
    repeats : bool
        Whether this process, or one that it was forked from, has the number of one before it.
    """

    def __init__(self) -> None:
        self.repeats = False
        self._numbers: frozenset[int] = frozenset()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(before=self._before, after_in_child=self._in_child)

    def _before(self) -> None:
        self._numbers |= {os.getpid()}

    def _in_child(self) -> None:
        self.repeats = self.repeats or os.getpid() in self._numbers


FORKS = ForkWatch()
"""Of this process: what the kernel does to all of it cannot be an object's own."""
