"""Numbers as people read them."""

from __future__ import annotations

from collections.abc import Sequence


def number_text(value: float, digits: int = 3) -> str:
    """Write a number with so many digits, or with all before the point."""
    if abs(value) < 999.5:
        return f"{value:.{digits}g}"
    n_before_point = len(f"{abs(value):.0f}")
    n_decimals = max(0, digits - n_before_point)
    return f"{value:,.{n_decimals}f}"


def number_texts(values: Sequence[float]) -> list[str]:
    """Write numbers with the fewest digits, up to six, that show which ones differ."""
    best: list[str] = []
    n_most = 0
    for digits in range(3, 7):
        texts = [number_text(value, digits) for value in values]
        n_different = len(set(texts))
        if n_different > n_most:
            best = texts
            n_most = n_different
    return best
