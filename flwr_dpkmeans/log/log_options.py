"""What the operator of one machine wants to read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from flwr_dpkmeans.errors import invalid, member


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
    def of(cls, config: Mapping[str, object], *, may_write: bool = False) -> LogOptions:
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
