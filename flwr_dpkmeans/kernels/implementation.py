"""Which implementation of the kernels works here: compiled, or NumPy's.

Both make the same bits of everything, so that parties of one run may differ in it, and
none of them says which it has. ``FLWR_DPKMEANS_KERNELS=numpy`` leaves the compiled one
alone; ``compiled`` refuses to start without it.
"""

from __future__ import annotations

import ctypes
import importlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

from flwr_dpkmeans.errors import ConfigurationError
from flwr_dpkmeans.log import placed_logger

logger = placed_logger(__name__)
VARIABLE = "FLWR_DPKMEANS_KERNELS"
"""Of the environment: an `Implementation`."""
MODULE = "flwr_dpkmeans_kernels"
"""Beside the package, where it was compiled as it was installed."""
_INTERFACE = 2
"""Of the library's functions; another one is not called."""


class Implementation(Enum):
    """Who does the work on rows."""

    NUMPY = "numpy"
    COMPILED = "compiled"


@dataclass(frozen=True)
class Kernels:
    """What is there, and why."""

    library: ctypes.CDLL | None
    """None where NumPy works."""
    variant: str
    """Suffix of the library's functions that run on this processor."""
    because: str
    """A sentence for logs and the doctor."""

    @property
    def implementation(self) -> Implementation:
        """Who does the work."""
        if self.library is None:
            return Implementation.NUMPY
        return Implementation.COMPILED


_chosen: list[Kernels] = []
"""The last ones are in force."""


def kernels() -> Kernels:
    """Return the kernels in force."""
    return _chosen[-1] if _chosen else _loaded()


@contextmanager
def using(choice: Implementation | Kernels) -> Iterator[None]:
    """Choose an implementation for the process until the end of a ``with`` block.

    Compiled kernels are those that were chosen last, such as of another processor in an
    emulator, and otherwise those that are installed.

    Raises
    ------
    ConfigurationError
        If the compiled one is asked for and not there.
    """
    _chosen.append(choice if isinstance(choice, Kernels) else _kernels_of(choice))
    try:
        yield
    finally:
        _chosen.pop()


def _kernels_of(implementation: Implementation) -> Kernels:
    if implementation is Implementation.NUMPY:
        return _of_numpy("NumPy works on the rows, as was asked for.")
    compiled = [each for each in _chosen if each.library is not None]
    there = compiled[-1] if compiled else _loaded()
    _require(there)
    return there


@lru_cache(maxsize=1)
def _loaded() -> Kernels:
    """Look for the library once in a process."""
    choices = [each.value for each in Implementation]
    wanted = os.environ.get(VARIABLE, "")
    if wanted not in ("", *choices):
        raise ConfigurationError(
            f"{VARIABLE} is {wanted!r}, but it must be one of {', '.join(choices)}, or"
            " not set: unset it."
        )
    if wanted == Implementation.NUMPY.value:
        return _of_numpy(f"NumPy works on the rows, as {VARIABLE} says.")
    there = _library()
    logger.debug("%s", there.because)
    if wanted == Implementation.COMPILED.value:
        _require(there)
    return there


def look_again() -> None:
    """Forget what was found, as after an installation within a process."""
    _loaded.cache_clear()


def _require(there: Kernels) -> None:
    if there.library is None:
        raise ConfigurationError(
            f"compiled kernels were asked for, but {there.because[0].lower()}"
            f"{there.because[1:]}"
        )


def _of_numpy(because: str) -> Kernels:
    return Kernels(None, "", because)


def _library() -> Kernels:
    """Load the library, or say why NumPy works instead."""
    again = "install flwr-dpkmeans again where there is a C compiler to have them."
    try:
        path = importlib.import_module(MODULE).LIBRARY
    except ImportError:
        return _of_numpy(f"No compiled kernels are installed, so NumPy works: {again}")
    try:
        library = ctypes.CDLL(str(path))
        interface = int(library.flwr_dpkmeans_interface())
        library.flwr_dpkmeans_variant.restype = ctypes.c_char_p
        variant = library.flwr_dpkmeans_variant().decode()
    except (OSError, AttributeError) as error:
        return _of_numpy(
            f"The compiled kernels cannot be loaded ({error}), so NumPy works: {again}"
        )
    if interface != _INTERFACE:
        return _of_numpy(
            f"The compiled kernels have interface {interface}, but this version needs"
            f" {_INTERFACE}, so NumPy works: {again}"
        )
    return Kernels(library, variant, f"Compiled kernels ({variant[1:]}).")
