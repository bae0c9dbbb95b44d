"""The checks that lower and upper bounds must pass, wherever they come from."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from flwr_dpkmeans.errors import ConfigurationError


def to_floats(value: object, side: str) -> tuple[float, ...]:
    """Turn a number or a flat sequence of numbers into floats; `side` is "lower" or "upper"."""
    cells = value.tolist() if isinstance(value, np.ndarray | np.generic) else value
    flat = list(cells) if isinstance(cells, Sequence) and not isinstance(cells, str | bytes) else [cells]
    return tuple(_to_float(cell, side) for cell in flat)


def _to_float(cell: object, side: str) -> float:
    """Turn one number into a float; text and truth values are no numbers here."""
    plain = cell.item() if isinstance(cell, np.generic) else cell
    if isinstance(plain, bool) or not isinstance(plain, int | float):
        shown = repr(plain)
        shown = f"a {type(plain).__name__}" if "\n" in shown else shown  # a table's text
        raise ConfigurationError(
            f"the {side} bounds hold {shown}, but they must be one number or a flat sequence of numbers: "
            "give for example 0.0 or (0.0, 10.0)."
        )
    try:
        return float(plain)
    except OverflowError:  # an integer beyond the floating-point range
        return math.inf if plain > 0 else -math.inf


def broadcast(lower: tuple[float, ...], upper: tuple[float, ...]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Repeat a single number on one side to the length of the other side."""
    n_ranges = max(len(lower), len(upper))
    return (lower * n_ranges if len(lower) == 1 else lower), (upper * n_ranges if len(upper) == 1 else upper)


def check_ranges(lower: Sequence[float], upper: Sequence[float], names: Sequence[str] | None = None) -> None:
    """Refuse lengths that differ, and the first range that is not finite, reversed or empty."""
    if len(lower) != len(upper):
        raise ConfigurationError(
            f"the bounds have {len(lower)} lower and {len(upper)} upper values, but each feature needs one of both: "
            "give two sequences of the same length."
        )
    if not lower:
        raise ConfigurationError("the bounds have 0 ranges, but at least 1 is needed: give a pair such as (0, 100).")
    for index, (low, high) in enumerate(zip(lower, upper, strict=True)):
        problem = _problem(low, high)
        if problem:
            who = f"feature {index}" if names is None else f"feature {names[index]!r}"
            who = "every feature" if names is None and len(lower) == 1 else who
            raise ConfigurationError(f"{who} has lower bound {low} and upper bound {high}, but {problem}.")


def _problem(low: float, high: float) -> str:
    """Say what is wrong with one range and how to mend it; empty if nothing is."""
    if not (math.isfinite(low) and math.isfinite(high)):
        return "both must be finite: give the public range of the feature"
    if low == high:
        return "the lower one must be smaller: widen the range around a constant value, or leave the feature out"
    if low > high:
        return "the lower one must be smaller: exchange the two"
    if not math.isfinite(high - low):
        return "their distance must be a finite number: give a narrower range"
    return ""
