"""Other parties' texts and exceptions as one line with nothing private in it."""

from __future__ import annotations

import traceback
from pathlib import Path

LONGEST_LINE = 4000
"""Characters of one message; longer ones come from another party's text."""


def printable(text: object, longest: int = LONGEST_LINE) -> str:
    r"""Return text, perhaps another party's, for one line of a log.

    Bounded, and without control characters.

    Examples
    --------
    >>> printable("fine\n2026 INFO all good\x1b[2J")
    'fine?2026 INFO all good?[2J'
    """
    whole = str(text)
    characters = []
    for character in whole[:longest]:
        characters.append(character if character.isprintable() else "?")
    if len(whole) > longest:
        characters.append("...")
    return "".join(characters)


def where_raised(error: BaseException, *, verbose: bool = False) -> str:
    """Say in one line what kind of exception was raised and where.

    Not its text, which may quote rows of a table. Its causes follow.

    Parameters
    ----------
    error : BaseException
        What was raised.
    verbose : bool
        Whether every call on the way is named, not only the last one.
    """
    descriptions = []
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        calls = _calls_of(cause)
        shown = calls if verbose else calls[-1:]
        where = " > ".join(shown) if shown else "an unknown place"
        descriptions.append(f"{type(cause).__name__} at {where}")
        cause = _cause_of(cause)
    return ", after ".join(descriptions)


def _calls_of(error: BaseException) -> list[str]:
    """Name the calls on the way: no source lines, no locals, only where to look."""
    frames = traceback.extract_tb(error.__traceback__)
    return [
        f"{Path(frame.filename).name}:{frame.lineno} in {frame.name}"
        for frame in frames
    ]


def _cause_of(error: BaseException) -> BaseException | None:
    if error.__cause__ is not None:
        return error.__cause__
    if error.__suppress_context__:
        return None
    return error.__context__
