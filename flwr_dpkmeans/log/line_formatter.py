"""One line for each record, as text or as JSON."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime

from flwr_dpkmeans.log.log_options import LogFormat
from flwr_dpkmeans.log.plain_lines import printable, where_raised
from flwr_dpkmeans.log.run_place import PLACE_NAMES, named, write_place

_IDS = ("run", "node")
"""Parts of a place that are text in JSON."""


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
        write_place(record)
        message = named(printable(record.getMessage()))
        if record.exc_info:
            _, error, _ = record.exc_info
            if error is not None:
                where = where_raised(error, verbose=True)
                message += f" ({printable(where)})"
        moment = datetime.fromtimestamp(record.created, UTC)
        time = moment.isoformat(timespec="milliseconds")
        if self._format is LogFormat.JSON:
            return _as_json(record, message, time)
        place = _place_of(record)
        is_of_client = "node" in place
        names_round_itself = record.levelno == logging.INFO and not is_of_client
        if place and not names_round_itself:
            words = [f"{name} {named(str(value))}" for name, value in place.items()]
            message = f"{' '.join(words)}: {message}"
        if self._timed:
            return f"{time} {record.levelname} {message}"
        return message


def _place_of(record: logging.LogRecord) -> dict[str, int]:
    """Return the parts of a record's place that it has."""
    place = {}
    for name in PLACE_NAMES:
        value = getattr(record, name)
        if value is not None:
            place[name] = value
    return place


def _as_json(record: logging.LogRecord, message: str, time: str) -> str:
    """Make one JSON object; ASCII only, so that no reader of lines is misled."""
    line: dict[str, object] = {
        "time": time,
        "level": record.levelname,
        "logger": record.name,
    }
    for name, value in _place_of(record).items():
        line[name] = value
        if name in _IDS:
            # They have 64 bits, which few readers of JSON can count to.
            line[name] = str(value)
    if hasattr(record, "event"):
        line["event"] = record.event
        line |= getattr(record, "details", {})
    line["message"] = message
    return json.dumps(line, default=printable)
