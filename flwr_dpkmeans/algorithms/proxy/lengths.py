"""Lengths in the state."""

from __future__ import annotations

from flwr_dpkmeans.sums.round import State


def length_of(state: State, name: str) -> float:
    """A length that an entry of the state holds, (1,)."""
    return float(state[name][0])
