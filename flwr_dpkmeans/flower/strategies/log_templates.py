"""Lines of the log that are rendered from a template."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from flwr_dpkmeans.log import placed_logger
from flwr_dpkmeans.results.page import CONSOLE, rendered

logger = placed_logger("flwr_dpkmeans.server")


def say(template: str, details: Mapping[str, Any] | None = None, **known: Any) -> None:
    """Write a template's lines into the log, all with the same details."""
    if logger.isEnabledFor(logging.INFO):
        for line in rendered(template, CONSOLE, **known).splitlines():
            logger.info("%s", line, extra=details)
