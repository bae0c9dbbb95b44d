"""What a text's first lines look like: a title above the header, cells between spaces.

Only for sentences to whoever holds the file. Nothing is read in another way for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from flwr_dpkmeans.data.files.reading import NAMES_OF_SEPARATORS
from flwr_dpkmeans.data.files.text.header_guess import is_word
from flwr_dpkmeans.data.files.text.headers import (
    ROWS_LOOKED_AT,
    SEPARATORS,
    Beginning,
    first_records,
)

_MOSTLY = 0.9


def hint_of(text: bytes, beginning: Beginning) -> str:
    """Say what may be wrong with the line that was taken for a header.

    Empty if nothing is.

    Parameters
    ----------
    text : bytes
        The first lines, in UTF-8 with line feeds.
    beginning : Beginning
        What they were taken for, where rows may be looked at.
    """
    dialect = beginning.dialect
    if dialect.skip_lines or _states_separator(text):
        return ""
    if not dialect.header and len(beginning.first) > 1:
        return ""
    for separator in SEPARATORS:
        hint = _title_hint(text, separator, dialect.comment)
        if hint:
            return hint
    return _space_hint(text, dialect.comment) if len(beginning.first) == 1 else ""


def _states_separator(text: bytes) -> bool:
    return text[:5].lower().lstrip(b'"').startswith(b"sep=")


def _title_hint(
    text: bytes,
    separator: str,
    comment: str | None,
) -> str:
    """Ask for skipped lines where names stand below a short line.

    One that is shorter than all others.
    """
    records = first_records(
        text,
        0,
        separator,
        ROWS_LOOKED_AT,
        comment,
    )
    widths = [len(cells) for cells, _ in records]
    width = _usual_width(widths)
    if width < 2 or widths[0] in (width, width + 1):
        return ""
    index = widths.index(width)
    names = records[index][0]
    # Below a header that lacks one name, as R writes it, rows begin.
    lacks_one = widths[0] > 1 and widths[0] == width - 1
    if lacks_one or not all(map(is_word, names)):
        return ""
    n_lines = text.count(b"\n", 0, records[index - 1][1])
    cells = NAMES_OF_SEPARATORS[separator]
    return (
        f"its first line was taken for the header, but {width} cells between {cells}"
        f" begin below line {n_lines}: if a title stands above the names, state"
        f" skip_lines = {n_lines}"
    )


def _space_hint(text: bytes, comment: str | None) -> str:
    """Ask for spaces as separators where they cut header and rows alike."""
    records = first_records(
        text,
        0,
        " ",
        ROWS_LOOKED_AT,
        comment,
    )
    widths = [len(cells) for cells, _ in records]
    width = _usual_width(widths)
    if width < 2 or widths[0] not in (width, width - 1) or widths[0] < 2:
        return ""
    return (
        "it has one column: if its cells stand between spaces, state separator ="
        f' "space" (there are {width})'
    )


def _usual_width(widths: Sequence[int]) -> int:
    """Return how many cells nearly all records below the first have, or 0."""
    below = Counter(widths[1:])
    if not below:
        return 0
    ((width, n_records),) = below.most_common(1)
    # Some lines may stand between a title and the names.
    is_regular = n_records >= _MOSTLY * (below.total() - 1)
    return width if is_regular else 0
