"""Where in a run a line belongs, which is set once and not passed to every call."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields, replace
from types import MappingProxyType


@dataclass(frozen=True)
class Place:
    """Where in a run a line belongs; None where that is not known or does not apply."""

    run: int | None = None
    node: int | None = None
    round: int | None = None
    attempt: int | None = None


PLACE_NAMES = tuple(field.name for field in fields(Place))
_NOWHERE = Place()
# A context variable and no argument, since lines come from every room, also from those
# that know no run.
_place: ContextVar[Place] = ContextVar("flwr_dpkmeans_place", default=_NOWHERE)
_names: ContextVar[Mapping[str, str]] = ContextVar(
    "flwr_dpkmeans_names", default=MappingProxyType({})
)
_NODE_ID = re.compile(r"(?<![\w/.-])[0-9]{12,20}(?![\w/-])")
"""Not the number in a file's name.

Flower draws 64 bits, so that numbers of rounds and rows are shorter.
"""
_PLAIN_NAME = re.compile(r"[\w-]{1,60}")
_TWICE = re.compile(r"node ([\w-]+) \(\1\)")
"""A sentence that has the name beside the number already."""


@contextmanager
def placed(place: Place) -> Iterator[None]:
    """Give all lines inside the block this place."""
    token = _place.set(place)
    try:
        yield
    finally:
        _place.reset(token)


def set_log_place(round_index: int, attempt: int) -> None:
    """Say which aggregation the lines up to the end of the `placed` block are about."""
    before = _place.get()
    place = replace(before, round=round_index, attempt=attempt)
    _place.set(place)


def name_nodes(names: Mapping[int, str]) -> None:
    """Say what nodes are called from now on in this process's lines.

    A name of two nodes, or one that is not plain, is none.
    """
    n_nodes = Counter(names.values())
    plain = {}
    for node, name in names.items():
        is_plain = _PLAIN_NAME.fullmatch(name) is not None
        if is_plain and n_nodes[name] == 1:
            plain[str(node)] = name
    _names.set(MappingProxyType(plain))


def named(text: str) -> str:
    """Return text with nodes' names in the place of their numbers, if they have any."""
    names = _names.get()

    def name_of(match: re.Match[str]) -> str:
        number = match[0]
        return names.get(number, number)

    if names:
        text = _NODE_ID.sub(name_of, text)
    return _TWICE.sub(r"node \1", text)


def placed_logger(name: str) -> logging.Logger:
    """Return a logger whose filter puts the place on each record, for any handler.

    Its dotted name is below the package's.
    """
    logger = logging.getLogger(name)
    logger.addFilter(write_place)
    return logger


def write_place(record: logging.LogRecord) -> bool:
    """Put the place on a record, where it has none: a filter that passes all."""
    place = _place.get()
    for name in PLACE_NAMES:
        if not hasattr(record, name):
            setattr(record, name, getattr(place, name))
    return True


def event(name: str, **details: object) -> dict[str, object]:
    """Make the ``extra`` of a logging call.

    A name to search for and public numbers, shown in JSON lines.
    """
    return {"event": name, "details": details}
