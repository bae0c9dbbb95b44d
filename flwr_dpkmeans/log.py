"""Log lines that say where in a run they belong, as text or as JSON, and hold nothing
private.

Every logger of the package is made by `placed_logger`: its records carry ``run``,
``round``, ``attempt`` and, on a client, ``node``. What is being worked on is set once,
by `placed` and `now_at`, and not passed to every call.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any, TextIO

from flwr_dpkmeans.errors import ConfigurationError, invalid, member

PACKAGE = "flwr_dpkmeans"
LONGEST_LINE = 4000
"""Characters of one message; longer ones come from another party's text."""


class LogFormat(StrEnum):
    """How a line is written."""

    TEXT = "text"
    JSON = "json"


@dataclass(frozen=True)
class LogOptions:
    """What the operator of one machine wants to read."""

    format: LogFormat = LogFormat.TEXT
    verbose: bool = False
    """Also sizes, timings, bytes and phases. Neither data nor keys nor masks, ever."""
    file: Path | None = None
    """Where lines are written as well, by a node that says so itself."""

    @classmethod
    def of(
        cls,
        config: Mapping[str, Any],
        *,
        may_write: bool = False,
    ) -> LogOptions:
        """Read the options as a configuration spells them.

        Anything else is a `ConfigurationError`.

        Only a node's own configuration may say which file is written: a run's is
        whatever somebody sends.
        """
        verbose, file = (
            config.get("verbose", False),
            config.get("log-file") if may_write else None,
        )
        if not isinstance(verbose, bool):
            raise invalid(
                "verbose",
                verbose,
                "true or false",
                "correct it",
            )
        where = Path(str(file)).expanduser().absolute() if file else None
        return cls(
            member("log-format", config.get("log-format") or LogFormat.TEXT, LogFormat),
            verbose,
            where,
        )


@dataclass(frozen=True)
class Place:
    """Where in a run a line belongs; None where that is not known or does not apply."""

    run: int | None = None
    node: int | None = None
    round: int | None = None
    attempt: int | None = None


_PLACES = tuple(field.name for field in fields(Place))
# A context variable and no argument, since lines come from every room, also from those
# that know no run.
_place: ContextVar[Place] = ContextVar("flwr_dpkmeans_place", default=Place())  # noqa: B039
_names: ContextVar[Mapping[str, str]] = ContextVar(
    "flwr_dpkmeans_names", default=MappingProxyType({})
)
# Not the number in a file's name. Flower draws 64 bits, so that numbers of rounds and
# rows are shorter.
_NODE_ID = re.compile(r"(?<![\w/.-])[0-9]{12,20}(?![\w/-])")
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


def now_at(round_index: int, attempt: int) -> None:
    """Say which aggregation the lines up to the end of the `placed` block are about."""
    place = _place.get()
    _place.set(
        Place(
            place.run,
            place.node,
            round_index,
            attempt,
        )
    )


def name_nodes(names: Mapping[int, str]) -> None:
    """Say what nodes are called from now on in this process's lines.

    a name of two nodes, or no plain one, is none.
    """
    known = Counter(names.values())
    plain = {
        str(node): name
        for node, name in names.items()
        if known[name] == 1 and _PLAIN_NAME.fullmatch(name)
    }
    _names.set(MappingProxyType(plain))


def named(text: str) -> str:
    """Return text with nodes' names in the place of their numbers, where they have
    names.
    """
    names = _names.get()
    text = (
        _NODE_ID.sub(lambda found: names.get(found[0], found[0]), text)
        if names
        else text
    )
    return _TWICE.sub(r"node \1", text)


def placed_logger(name: str) -> logging.Logger:
    """A logger (a dotted name below the package's) whose filter puts the place on each
    record, for any handler.
    """
    logger = logging.getLogger(name)
    logger.addFilter(_write_place)
    return logger


def _write_place(record: logging.LogRecord) -> bool:
    place = _place.get()
    for name in _PLACES:
        if not hasattr(record, name):
            setattr(record, name, getattr(place, name))
    return True


def event(name: str, **details: Any) -> dict[str, Any]:
    """Make the ``extra`` of a logging call.

    a name to search for and public numbers, shown in JSON lines.
    """
    return {"event": name, "details": details}


def printable(text: object, longest: int = LONGEST_LINE) -> str:
    r"""Return text, perhaps another party's, for one line of a log.

    Bounded, and without control characters.

    Examples
    --------
    >>> printable("fine\n2026 INFO all good\x1b[2J")
    'fine?2026 INFO all good?[2J'
    """
    whole = str(text)
    kept = "".join(
        [character if character.isprintable() else "?" for character in whole[:longest]]
    )
    return kept if len(whole) <= longest else kept + "..."


def where_raised(error: BaseException, *, verbose: bool = False) -> str:
    """Say in one line what kind of exception was raised and where, but not its text,
    which may quote rows of a table.

    Its causes are told as well; `verbose` tells every call on the way, not only the
    last one.
    """
    told = []
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        # Neither source lines nor locals: only where to look.
        frames = traceback.extract_tb(cause.__traceback__)
        calls = [
            f"{Path(frame.filename).name}:{frame.lineno} in {frame.name}"
            for frame in frames
        ]
        shown = calls if verbose else calls[-1:]
        told.append(
            f"{type(cause).__name__} at"
            f" {' > '.join(shown) if shown else 'an unknown place'}"
        )
        cause = cause.__cause__ or (
            None if cause.__suppress_context__ else cause.__context__
        )
    return ", after ".join(told)


class LineFormatter(logging.Formatter):
    """One line for each record, without control characters.

    Text lines begin with the time only if `timed`.

    As text, lines of a client and everything that is not INFO begin with their place;
    INFO lines of the server name their round themselves. Exceptions are written by kind
    and place, see `where_raised`.
    """

    def __init__(
        self,
        log_format: LogFormat = LogFormat.TEXT,
        *,
        timed: bool = False,
    ) -> None:
        super().__init__()
        self._format, self._timed = log_format, timed

    def format(self, record: logging.LogRecord) -> str:
        _write_place(record)
        message = named(printable(record.getMessage()))
        if record.exc_info and record.exc_info[1] is not None:
            message += f" ({printable(where_raised(record.exc_info[1], verbose=True))})"
        time = datetime.fromtimestamp(record.created, UTC).isoformat(
            timespec="milliseconds"
        )
        if self._format is LogFormat.JSON:
            return _as_json(record, message, time)
        given = {
            name: getattr(record, name)
            for name in _PLACES
            if getattr(record, name) is not None
        }
        if given and ("node" in given or record.levelno != logging.INFO):
            place = " ".join(
                f"{name} {named(str(value))}" for name, value in given.items()
            )
            message = f"{place}: {message}"
        return f"{time} {record.levelname} {message}" if self._timed else message


def _as_json(
    record: logging.LogRecord,
    message: str,
    time: str,
) -> str:
    """One JSON object; ASCII only, so that no reader of lines is misled."""
    line = {"time": time, "level": record.levelname, "logger": record.name}
    for name in _PLACES:
        value = getattr(record, name)
        if value is not None:
            # Ids have 64 bits, which few readers of JSON can count to, so they are
            # text.
            line[name] = str(value) if name in ("run", "node") else value
    if hasattr(record, "event"):
        line |= {"event": record.event} | getattr(record, "details", {})
    return json.dumps(line | {"message": message}, default=printable)


def show_logs(options: LogOptions | None = None, stream: TextIO | None = None) -> None:
    """Show the package's lines on standard output (or `stream`) and, if asked for, in a
    file; for processes of one app.

    Where the process has set up logging itself, its own handlers show the lines. A
    second call replaces the first. A file that cannot be written is a
    ConfigurationError.
    """
    chosen = options or LogOptions()
    root = logging.getLogger(PACKAGE)
    for handler in [
        handler
        for handler in root.handlers
        if isinstance(handler.formatter, LineFormatter)
    ]:
        root.removeHandler(handler)
        handler.close()
    root.setLevel(logging.DEBUG if chosen.verbose else logging.INFO)
    if not logging.root.handlers and not root.handlers:
        shown = logging.StreamHandler(stream or sys.stdout)
        shown.setFormatter(LineFormatter(chosen.format))
        root.addHandler(shown)
        root.propagate = False
    if chosen.file is not None:
        root.addHandler(file_handler(chosen.file, chosen.format))


class OtherLogger(logging.Handler):
    """Passes the package's lines on to another package's logger, as long as the program
    has set up no logging.
    """

    def __init__(self, name: str) -> None:
        super().__init__(logging.INFO)
        self._logger = logging.getLogger(name)
        self._formatter = LineFormatter()

    def emit(self, record: logging.LogRecord) -> None:
        """Pass one line on."""
        if logging.root.handlers:  # they show it themselves
            return
        text = self._formatter.format(record)
        line = {"name": self._logger.name, "msg": text, "args": None, "exc_info": None}
        self._logger.handle(logging.makeLogRecord(vars(record) | line))


def show_by(name: str) -> None:
    """Let another logger show the package's lines if nothing else does, such as in
    somebody's own Flower app.
    """
    root = logging.getLogger(PACKAGE)
    if root.handlers or logging.root.handlers:
        return
    if root.level == logging.NOTSET:
        root.setLevel(logging.INFO)
    root.addHandler(OtherLogger(name))


def file_handler(path: Path, log_format: LogFormat) -> logging.Handler:
    """A handler that appends to a file which only this user may read.

    It tells what a data set has spent.
    """
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600))
        handler = logging.FileHandler(path, encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(
            f"the log file {str(path)!r} cannot be written ({error.strerror}): correct"
            " the node's 'log-file', or make its folder."
        ) from error
    handler.setFormatter(LineFormatter(log_format, timed=True))
    return handler
