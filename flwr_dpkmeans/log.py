"""Log lines that say where in a run they belong, and have nothing private in them.

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
    def of(cls, config: Mapping[str, Any], *, may_write: bool = False) -> LogOptions:
        """Read the options as a configuration spells them.

        Anything else is a `ConfigurationError`.

        Parameters
        ----------
        config : mapping
            A node's own configuration, or a run's.
        may_write : bool
            Whether it may say which file is written: only a node's own may, as a run's
            is whatever somebody sends.
        """
        verbose = config.get("verbose", False)
        if not isinstance(verbose, bool):
            raise invalid("verbose", verbose, "true or false", "correct it")
        log_format = LogFormat.TEXT
        if config.get("log-format"):
            log_format = member("log-format", config["log-format"], LogFormat)
        file = None
        if may_write and config.get("log-file"):
            file = Path(str(config["log-file"])).expanduser().absolute()
        return cls(log_format, verbose, file)


@dataclass(frozen=True)
class Place:
    """Where in a run a line belongs; None where that is not known or does not apply."""

    run: int | None = None
    node: int | None = None
    round: int | None = None
    attempt: int | None = None


_PLACE_NAMES = tuple(field.name for field in fields(Place))
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


def now_at(round_index: int, attempt: int) -> None:
    """Say which aggregation the lines up to the end of the `placed` block are about."""
    place = _place.get()
    _place.set(Place(place.run, place.node, round_index, attempt))


def name_nodes(names: Mapping[int, str]) -> None:
    """Say what nodes are called from now on in this process's lines.

    A name of two nodes, or one that is not plain, is none.
    """
    n_nodes = Counter(names.values())
    plain = {}
    for node, name in names.items():
        if n_nodes[name] == 1 and _PLAIN_NAME.fullmatch(name):
            plain[str(node)] = name
    _names.set(MappingProxyType(plain))


def named(text: str) -> str:
    """Return text with nodes' names in the place of their numbers, if they have any."""
    names = _names.get()
    if names:
        text = _NODE_ID.sub(lambda match: names.get(match[0], match[0]), text)
    return _TWICE.sub(r"node \1", text)


def placed_logger(name: str) -> logging.Logger:
    """Return a logger whose filter puts the place on each record, for any handler.

    Its dotted name is below the package's.
    """
    logger = logging.getLogger(name)
    logger.addFilter(_write_place)
    return logger


def _write_place(record: logging.LogRecord) -> bool:
    place = _place.get()
    for name in _PLACE_NAMES:
        if not hasattr(record, name):
            setattr(record, name, getattr(place, name))
    return True


def event(name: str, **details: Any) -> dict[str, Any]:
    """Make the ``extra`` of a logging call.

    A name to search for and public numbers, shown in JSON lines.
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


class LineFormatter(logging.Formatter):
    """One line for each record, without control characters.

    Text lines begin with the time only if `timed`. As text, lines of a client and
    everything that is not INFO begin with their place; INFO lines of the server name
    their round themselves. Exceptions are written by kind and place, see
    `where_raised`.
    """

    def __init__(
        self, log_format: LogFormat = LogFormat.TEXT, *, timed: bool = False
    ) -> None:
        super().__init__()
        self._format = log_format
        self._timed = timed

    def format(self, record: logging.LogRecord) -> str:
        """Write one record as a line."""
        _write_place(record)
        message = named(printable(record.getMessage()))
        if record.exc_info and record.exc_info[1] is not None:
            where = where_raised(record.exc_info[1], verbose=True)
            message += f" ({printable(where)})"
        moment = datetime.fromtimestamp(record.created, UTC)
        time = moment.isoformat(timespec="milliseconds")
        if self._format is LogFormat.JSON:
            return _as_json(record, message, time)
        place = _place_of(record)
        if "node" in place or (place and record.levelno != logging.INFO):
            words = [f"{name} {named(str(value))}" for name, value in place.items()]
            message = f"{' '.join(words)}: {message}"
        if self._timed:
            return f"{time} {record.levelname} {message}"
        return message


def _place_of(record: logging.LogRecord) -> dict[str, int]:
    """Return the parts of a record's place that it has."""
    place = {}
    for name in _PLACE_NAMES:
        value = getattr(record, name)
        if value is not None:
            place[name] = value
    return place


def _as_json(record: logging.LogRecord, message: str, time: str) -> str:
    """Make one JSON object; ASCII only, so that no reader of lines is misled."""
    line: dict[str, Any] = {
        "time": time,
        "level": record.levelname,
        "logger": record.name,
    }
    for name, value in _place_of(record).items():
        # Ids have 64 bits, which few readers of JSON can count to, so they are text.
        line[name] = str(value) if name in ("run", "node") else value
    if hasattr(record, "event"):
        line["event"] = record.event
        line |= getattr(record, "details", {})
    line["message"] = message
    return json.dumps(line, default=printable)


def show_logs(options: LogOptions | None = None, stream: TextIO | None = None) -> None:
    """Show the package's lines on a stream and, if that is wished, in a file.

    For processes of one app. Where the process has set up logging itself, its own
    handlers show the lines. A second call replaces the first. A file that cannot be
    written is a ConfigurationError.
    """
    chosen = LogOptions() if options is None else options
    root = logging.getLogger(PACKAGE)
    for handler in list(root.handlers):
        if isinstance(handler.formatter, LineFormatter):
            root.removeHandler(handler)
            handler.close()
    root.setLevel(logging.DEBUG if chosen.verbose else logging.INFO)
    if not logging.root.handlers and not root.handlers:
        console = logging.StreamHandler(sys.stdout if stream is None else stream)
        console.setFormatter(LineFormatter(chosen.format))
        root.addHandler(console)
        root.propagate = False
    if chosen.file is not None:
        root.addHandler(file_handler(chosen.file, chosen.format))


class OtherLogger(logging.Handler):
    """Passes the package's lines on to another logger.

    As long as the program has set up no logging.
    """

    def __init__(self, name: str) -> None:
        super().__init__(logging.INFO)
        self._logger = logging.getLogger(name)
        self._formatter = LineFormatter()

    def emit(self, record: logging.LogRecord) -> None:
        """Pass one line on."""
        if logging.root.handlers:
            # They show it themselves.
            return
        text = self._formatter.format(record)
        line = {"name": self._logger.name, "msg": text, "args": None, "exc_info": None}
        self._logger.handle(logging.makeLogRecord(vars(record) | line))


def show_by(name: str) -> None:
    """Let another logger show the package's lines if nothing else does.

    Such as in somebody's own Flower app.
    """
    root = logging.getLogger(PACKAGE)
    if root.handlers or logging.root.handlers:
        return
    if root.level == logging.NOTSET:
        root.setLevel(logging.INFO)
    root.addHandler(OtherLogger(name))


def file_handler(path: Path, log_format: LogFormat) -> logging.Handler:
    """Make a handler that appends to a file which only this user may read.

    Its lines say what a data set has spent.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.close(descriptor)
        handler = logging.FileHandler(path, encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(
            f"the log file {str(path)!r} cannot be written ({error.strerror}): correct"
            " the node's 'log-file', or make its folder."
        ) from error
    handler.setFormatter(LineFormatter(log_format, timed=True))
    return handler
