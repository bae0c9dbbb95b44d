"""Find a file that the user named, or say where it was looked for."""

from __future__ import annotations

from pathlib import Path

from flwr_dpkmeans.errors import LocalMisuseError


def locate_file(path: str | Path, what: str, error: type[LocalMisuseError]) -> Path:
    """Return the absolute path of an existing file; `what` names it in the error sentence."""
    try:
        located = Path(path).expanduser().absolute()
    except RuntimeError:  # "~someone" without such a user stays as it was written
        located = Path(path).absolute()
    if located.is_dir():
        raise error(f"the {what} {str(located)!r} is a directory, but it must be one file: give the path of the file.")
    if not located.is_file():
        raise error(
            f"the {what} {str(located)!r} does not exist, but it must be a file on this machine: correct the path, "
            f"where a relative path is resolved from the working directory of the process, {str(Path.cwd())!r}."
        )
    return located
