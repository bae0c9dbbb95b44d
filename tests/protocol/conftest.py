"""Fixtures of the protocol tests."""

from __future__ import annotations

from support.protocol_federation import truth

__all__ = ["truth"]
