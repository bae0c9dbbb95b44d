"""Log lines that say where in a run they belong, and have nothing private in them.

Every logger of the package is made by `placed_logger`: its records carry ``run``,
``round``, ``attempt`` and, on a client, ``node``. What is being worked on is set once,
by `placed` and `set_log_place`, and not passed to every call.
"""

from __future__ import annotations

from flwr_dpkmeans.log.line_formatter import LineFormatter
from flwr_dpkmeans.log.log_handlers import (
    PACKAGE,
    OtherLogger,
    file_handler,
    show_by,
    show_logs,
)
from flwr_dpkmeans.log.log_options import LogFormat, LogOptions
from flwr_dpkmeans.log.plain_lines import LONGEST_LINE, printable, where_raised
from flwr_dpkmeans.log.run_place import (
    Place,
    event,
    name_nodes,
    named,
    placed,
    placed_logger,
    set_log_place,
)

__all__ = [
    "LONGEST_LINE",
    "PACKAGE",
    "LineFormatter",
    "LogFormat",
    "LogOptions",
    "OtherLogger",
    "Place",
    "event",
    "file_handler",
    "name_nodes",
    "named",
    "placed",
    "placed_logger",
    "printable",
    "set_log_place",
    "show_by",
    "show_logs",
    "where_raised",
]
