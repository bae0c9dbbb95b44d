"""Forks that could repeat the noise of the process that they come from."""

from __future__ import annotations

import os


class ForkWatch:
    """The numbers of the processes that this one was forked from."""

    def __init__(self) -> None:
        self.repeats = False
        """Whether this process, or one that it was forked from, has the number of one
        before it.
        """
        self._numbers: frozenset[int] = frozenset()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(before=self._before, after_in_child=self._in_child)

    def _before(self) -> None:
        self._numbers |= {os.getpid()}

    def _in_child(self) -> None:
        if os.getpid() in self._numbers:
            self.repeats = True


FORKS = ForkWatch()
"""Of this process: what the kernel does to all of it cannot be an object's own."""
