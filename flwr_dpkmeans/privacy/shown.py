"""Noisy numbers as people read them; files keep them as they were released."""

from __future__ import annotations

import math

NOT_TOLD = "not told from noise"
_UPPER = 2.0
"""Standard deviations above an estimate that hardly any exact value exceeds."""
_MOST_DECIMALS = 12


def share_text(share: float, deviation: float, *, is_noise: bool | None = None) -> str:
    """Write a noisy share in per cent, never below 0 or above 1.

    One that may be 0 is written as what it hardly exceeds.

    Parameters
    ----------
    share, deviation : float
        The share, and the standard deviation of its noise.
    is_noise : bool, optional
        Whether it may be 0; by default if it is within two of its standard deviations.

    Examples
    --------
    >>> share_text(0.00955, 0.0105), share_text(0.25, 0.0125)
    ('under 3%', '25.0% ± 1.2%')
    >>> share_text(-0.01, 0.004), share_text(0.2, 0.6)
    ('under 0.8%', 'not told from noise')
    """
    inside = min(1.0, max(0.0, share))
    if is_noise is None:
        is_noise = share < _UPPER * deviation
    if not is_noise:
        if deviation == 0.0:
            return f"{inside:.1%}"
        return f"{inside:.1%} ± {deviation:.1%}"
    upper = inside + _UPPER * deviation
    if upper >= 1.0:
        return NOT_TOLD
    digits = f"{upper:.0%}" if upper >= 0.095 else f"{100.0 * upper:.1g}%"
    return f"under {digits}"


def error_text(error: float) -> str:
    """Write two digits of an error, or all before the point.

    Examples
    --------
    >>> error_text(0.0351), error_text(0.9), error_text(5.96), error_text(1122.5)
    ('0.035', '0.90', '6.0', '1,122')
    """
    return f"{error:,.{_decimals(error)}f}"


def rounded_text(value: float, error: float) -> str:
    """Write a number with the digits that its error says are of use.

    Further ones are noise, and fewer would hide what is known.

    Examples
    --------
    >>> rounded_text(39.0166, 0.0351), rounded_text(-0.000206, 0.54)
    ('39.017', '0.00')
    >>> rounded_text(1045.4, 1406.0)
    '1,045'
    """
    return f"{value:z,.{_decimals(error)}f}"


def _decimals(error: float) -> int:
    """Count the digits behind the point of two significant ones."""
    if error <= 0.0:
        return 0
    first = math.floor(math.log10(error))
    rounds_up = round(error, 1 - first) >= 10.0 ** (first + 1)
    return min(_MOST_DECIMALS, max(0, 1 - first - rounds_up))


def size_text(count: float) -> str:
    """Write a noisy count, of which a negative one is none.

    Examples
    --------
    >>> size_text(1998.3), size_text(-42.0)
    ('1,998', '0')
    """
    return f"{max(0.0, count):,.0f}"
