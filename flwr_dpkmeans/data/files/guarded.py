"""Steps of reading whose failures are one sentence."""

from __future__ import annotations

import lzma
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from flwr_dpkmeans.errors import DataError, DPKMeansError

ResultT = TypeVar("ResultT")


UNREADABLE = (
    OSError,
    ValueError,
    EOFError,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
)
"""What readers raise for a file of another format."""


def in_one_sentence(located: Path, step: Callable[[], ResultT]) -> ResultT:
    """Return the outcome of a step of reading; what fails becomes a `DataError`."""
    try:
        return step()
    except (DPKMeansError, ImportError):
        raise
    except (
        Exception
    ) as error:  # of any library; for a file of another format, it may be any
        problem = (
            f"the table {str(located)!r} cannot be read as {located.suffix.lower()}"
            f" ({type(error).__name__}), but its content must match its suffix (or, in"
            " a folder, be .parquet): check that it is complete, readable by this user"
            " and holds no pickled objects."
        )
    # Outside of the handler: the chained error could carry the bytes of a cell.
    raise DataError(problem)
