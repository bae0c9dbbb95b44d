"""Prepare the FastLloyd paper's data sets from the files as they come.

``python -m simulations.sources.paper_sets RAW``.

`RAW` is the folder with the downloaded files, ``--data-dir`` the one that experiments
read (``data`` by default). For each set it says whether it is there, prepared now, or
where its file is to be had; nothing is downloaded. Files and rows are told by their
SHA-256, beside the known one where there is one. The exit code is 1 if a file is not
what it should be, which the line of its set says.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.errors import DataError
from flwr_dpkmeans.results.whole_files import write_whole

Array = NDArray[np.float64]

_NO_ROWS = ("%", "@", "|", "#")
"""Beginnings of lines of .arff files and of adult.test that are no rows."""


def known_sets() -> dict[str, Mapping[str, Any]]:
    """What `simulations/sources/paper_sets.toml` says of each set, by name."""
    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text())


def prepare(
    name: str,
    raw: Path,
    folder: Path,
    known: Mapping[str, Mapping[str, Any]] | None = None,
) -> str:
    """Make a set's .npz file from its raw files, if they are there.

    Parameters
    ----------
    name : str
        One of `known_sets`.
    raw, folder : Path
        Of the files as they come, and of the prepared ones.

    Returns
    -------
    str
        What was done, or what is missing, in a line.

    Raises
    ------
    DataError
        If a file has another SHA-256 than the known one, cannot be read, or has other
        rows than the paper's.
    """
    described = (known_sets() if known is None else known)[name]
    target = folder / f"{name}.npz"
    paths = [raw / file for file in described["files"]]
    if not all(path.is_file() for path in paths):
        if target.is_file():
            return f"there; {_about_rows(_prepared(target), described)}"
        files = " and ".join(described["files"])
        return f"missing: put {files} into {raw} ({described['where']})"
    for path, published in zip(paths, described["sha256"], strict=True):
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        if published and digest != published:
            raise DataError(
                f"{path} has SHA-256 {digest}, but {published} is known: get it from"
                f" {described['where']}."
            )
    rows = np.concatenate([read_rows(path, described.get("columns")) for path in paths])
    expected = (
        described.get("drawn_from", described["shape"][0]),
        described["shape"][1],
    )
    if rows.shape != expected:
        raise DataError(
            f"{name} has rows of shape {rows.shape}, but the paper's have {expected}:"
            " give its own file."
        )
    if "drawn_from" in described:
        generator = np.random.default_rng(0)
        n_chosen = described["shape"][0]
        chosen = generator.choice(len(rows), n_chosen, replace=False)
        rows = rows[np.sort(chosen)]
    buffer = io.BytesIO()
    np.savez(buffer, X=rows)
    write_whole(target, buffer.getvalue())
    files = ", ".join(
        f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()}"
        f" ({'as known' if expected else 'unknown before'})"
        for path, expected in zip(paths, described["sha256"], strict=True)
    )
    return f"prepared from {files}; {_about_rows(rows, described)}"


def read_rows(path: Path, columns: Sequence[int] | None) -> Array:
    """Read chosen columns of a text file of numbers, or all images of an IDX file.

    Parameters
    ----------
    path : Path
        Values are separated by commas or spaces; lines of comments and headers are left
        out.
    columns : sequence of int or None
        None: an IDX file of images, packed by gzip or not.

    Returns
    -------
    ndarray, (n, d)

    Raises
    ------
    DataError
        If it cannot be read; values are not shown.
    """
    try:
        if columns is None:
            return _read_images(path)
        lines = path.read_text(encoding="latin-1").splitlines()
        cells = [
            line.replace(",", " ").split()
            for line in lines
            if line.strip() and not line.startswith(_NO_ROWS)
        ]
        return np.array(
            [[float(row[column]) for column in columns] for row in cells],
            dtype=np.float64,
        )
    except (OSError, ValueError, IndexError, EOFError) as error:
        raise DataError(
            f"{path} cannot be read ({type(error).__name__}), but each line must have a"
            " number in the columns"
            f" {'of an image' if columns is None else list(columns)}: download it"
            " again."
        ) from error


def rows_hash(rows: Array) -> str:
    """SHA-256 of rows as they are in memory, row by row.

    Examples
    --------
    >>> rows_hash(np.zeros((1, 1)))[:8]
    'af5570f5'
    """
    return hashlib.sha256(np.ascontiguousarray(rows, dtype="<f8").tobytes()).hexdigest()


def _read_images(path: Path) -> Array:
    """An IDX file: a magic number of four bytes, three sizes, then bytes."""
    content = path.read_bytes()
    content = gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content
    if content[:4] != b"\x00\x00\x08\x03":
        raise ValueError("no images")
    count, height, width = np.frombuffer(content, ">u4", 3, 4)
    return (
        np.frombuffer(content, np.uint8, offset=16)
        .reshape(int(count), int(height * width))
        .astype(np.float64)
    )


def _prepared(path: Path) -> Array:
    """Rows of a prepared file."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            return np.asarray(archive["X"], dtype=np.float64)
    except (OSError, ValueError, KeyError) as error:
        raise DataError(
            f"{path} cannot be read ({type(error).__name__}): prepare it again."
        ) from error


def _about_rows(rows: Array, described: Mapping[str, Any]) -> str:
    """Shape and hash of rows."""
    digest = rows_hash(rows)
    expected = described["rows"]
    if expected and digest != expected:
        raise DataError(
            f"the rows have SHA-256 {digest}, but {expected} is known: prepare them"
            " again."
        )
    return (
        f"{rows.shape[0]:,} x {rows.shape[1]}, rows {digest}"
        f" ({'as known' if expected else 'unknown before'})"
    )


def main(
    arguments: Sequence[str] | None = None,
    known: Mapping[str, Mapping[str, Any]] | None = None,
) -> int:
    """Prepare what can be, and say what is missing."""
    parser = argparse.ArgumentParser(
        prog="python -m simulations.sources.paper_sets",
        description=__doc__.split("\n")[0],
    )
    parser.add_argument(
        "raw", type=Path, metavar="RAW", help="folder with the files as they come"
    )
    parser.add_argument(
        "--data-dir",
        type=Path,
        default=Path("data"),
        help="folder of the prepared files",
    )
    options = parser.parse_args(arguments)
    wrong = False
    for name in known_sets() if known is None else known:
        try:
            print(f"{name}: {prepare(name, options.raw, options.data_dir, known)}")
        except DataError as error:
            wrong = True
            print(f"{name}: {error}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
