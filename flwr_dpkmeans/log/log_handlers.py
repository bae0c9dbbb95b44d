"""Where the package's lines are shown."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from typing import TextIO

from flwr_dpkmeans.errors import ConfigurationError
from flwr_dpkmeans.log.line_formatter import LineFormatter
from flwr_dpkmeans.log.log_options import LogFormat, LogOptions

PACKAGE = "flwr_dpkmeans"
_APPENDING = os.O_WRONLY | os.O_APPEND | os.O_CREAT
_OWNER_ONLY = 0o600
"""Permissions of a file: its owner reads and writes it."""


def show_logs(options: LogOptions | None = None, stream: TextIO | None = None) -> None:
    """Show the package's lines on a stream and, if that is wished, in a file.

    For processes of one app. Where the process has set up logging itself, its own
    handlers show the lines. A second call replaces the first. A file that cannot be
    written is a ConfigurationError.
    """
    if options is None:
        options = LogOptions()
    if stream is None:
        stream = sys.stdout
    root = logging.getLogger(PACKAGE)
    for handler in list(root.handlers):
        if isinstance(handler.formatter, LineFormatter):
            root.removeHandler(handler)
            handler.close()
    level = logging.DEBUG if options.verbose else logging.INFO
    root.setLevel(level)
    if not logging.root.handlers and not root.handlers:
        console = logging.StreamHandler(stream)
        console.setFormatter(LineFormatter(options.format))
        root.addHandler(console)
        root.propagate = False
    if options.file is not None:
        handler = file_handler(options.file, options.format)
        root.addHandler(handler)


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
        line = dict(vars(record))
        line["name"] = self._logger.name
        line["msg"] = self._formatter.format(record)
        line["args"] = None
        line["exc_info"] = None
        passed_on = logging.makeLogRecord(line)
        self._logger.handle(passed_on)


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
        descriptor = os.open(path, _APPENDING, _OWNER_ONLY)
        os.close(descriptor)
        handler = logging.FileHandler(path, encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(
            f"the log file {str(path)!r} cannot be written ({error.strerror}): correct"
            " the node's 'log-file', or make its folder."
        ) from error
    handler.setFormatter(LineFormatter(log_format, timed=True))
    return handler
