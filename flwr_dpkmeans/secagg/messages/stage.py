"""Phases of the protocol."""

from __future__ import annotations

from enum import Enum


class Stage(Enum):
    """Phase of the protocol that a message belongs to."""

    KEYS = "keys"
    SHARE = "share"
    SUM = "sum"
    UNMASK = "unmask"
    FINISH = "finish"
    STOP = "stop"
