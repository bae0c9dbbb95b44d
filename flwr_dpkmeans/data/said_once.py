"""Sentences that a process says once."""

from __future__ import annotations

from functools import lru_cache

from flwr_dpkmeans.log import placed_logger

_logger = placed_logger("flwr_dpkmeans.data")


@lru_cache(maxsize=64)
def say_once(level: int, sentence: str) -> None:
    """Say once in a process what costs columns or rows.

    A client loads its table again for every message.
    """
    _logger.log(level, "%s", sentence)
