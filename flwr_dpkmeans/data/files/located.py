"""Files by their paths, and readers by their suffixes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from flwr_dpkmeans.data.files.guarded import ResultT
from flwr_dpkmeans.errors import LocalMisuseError


def locate_file(
    path: str | Path,
    what: str,
    error: type[LocalMisuseError],
) -> Path:
    """Return the absolute path of an existing file.

    `what` names it in the error sentence.
    """
    try:
        located = Path(path).expanduser().absolute()
    except RuntimeError:  # "~someone" without such a user stays as it was written
        located = Path(path).absolute()
    if located.is_dir():
        mend = "give the path of the file"
        if what == "table":
            mend += ", or put .parquet files into it"
        raise error(
            f"the {what} {str(located)!r} is a directory, but it must be one file:"
            f" {mend}."
        )
    if not located.is_file():
        begins = ""
        if not Path(path).is_absolute() and located.is_relative_to(Path.cwd()):
            begins = f", which begins in the working directory, {str(Path.cwd())!r}"
        raise error(
            f"the {what} {str(located)!r} does not exist, but it must be a file on this"
            f" machine: correct the path{begins}."
        )
    return located


def reader_of(
    path: str | Path,
    what: str,
    readers: Mapping[str, ResultT],
    error: type[LocalMisuseError],
) -> tuple[Path, ResultT]:
    """Return a file's absolute path, and its reader by the suffix."""
    located = locate_file(path, what, error)
    suffix = located.suffix.lower()
    if suffix not in readers:
        raise error(unknown_suffix(located, what, readers))
    return located, readers[suffix]


def unknown_suffix(
    located: Path,
    what: str,
    suffixes: Iterable[str],
) -> str:
    """Say which suffixes can be read instead."""
    *others, last = suffixes
    return (
        f"the {what} {str(located)!r} has the suffix {located.suffix!r}, but only "
        f"{', '.join(others)} and {last} can be read: convert the file to one of these."
    )
