"""Probabilities of discrete Gaussian and Laplace variables to 40 digits, with the
standard library's decimals only.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable
from decimal import Decimal
from functools import lru_cache

# The series of erf at 7 standard deviations loses some 20 digits, and 140 are carried.
_CONTEXT = decimal.Context(prec=140)
_SUMMED_UP_TO = 300
"""Largest scale whose sums are written out.

Above, sums are integrals but for a part of 1/(24 scale^2).
"""


def probability_below(family: str, scale: float, cut: int) -> float:
    """P(X < cut) for the discrete Gaussian or Laplace variable of this parameter."""
    with decimal.localcontext(_CONTEXT):
        upper = upper_tail(family, scale)
        return float(1 - upper(cut) if cut > 0 else upper(1 - cut))


def upper_tail(family: str, scale: float) -> Callable[[int], Decimal]:
    """P(X >= cut) as a function of cut >= 1."""
    if family == "laplace":
        return lambda cut: _laplace_tail(scale, cut)
    return lambda cut: (
        _gaussian_tails(scale)[cut]
        if scale <= _SUMMED_UP_TO
        else _normal_tail(scale, cut)
    )


def _laplace_tail(scale: float, cut: int) -> Decimal:
    """The sum of (1 - r) / (1 + r) r^k over k >= cut is r^cut / (1 + r), with r =
    exp(-1/scale).
    """
    with decimal.localcontext(_CONTEXT):
        s = Decimal(scale)
        return (-Decimal(cut) / s).exp() / (1 + (-1 / s).exp())


@lru_cache(maxsize=16)
def _gaussian_tails(scale: float) -> dict[int, Decimal]:
    """P(X >= cut) for cuts up to 16 scales, beyond which lies less than 1e-56."""
    with decimal.localcontext(_CONTEXT):
        twice, reach = 2 * Decimal(scale) ** 2, int(16 * scale) + 2
        weights = [(-(Decimal(k) ** 2) / twice).exp() for k in range(reach)]
        total = 2 * sum(weights) - weights[0]
        tails, tail = {}, Decimal(0)
        for cut in range(reach - 1, 0, -1):
            tail += weights[cut]
            tails[cut] = tail / total
        return tails


def _normal_tail(scale: float, cut: int) -> Decimal:
    """P(N(0, scale^2) > cut - 1/2), by the Taylor series of the error function."""
    with decimal.localcontext(_CONTEXT):
        x = (Decimal(cut) - Decimal("0.5")) / Decimal(scale)
        term, total, n = x, x, 0
        while abs(term) > Decimal(10) ** -60:
            n += 1
            term *= -x * x / (2 * n)
            total += term / (2 * n + 1)
        return Decimal("0.5") - total / (2 * _pi()).sqrt()


@lru_cache(maxsize=1)
def _pi() -> Decimal:
    """Machin's formula."""

    def arctan_of_inverse(x: int) -> Decimal:
        power = total = Decimal(1) / x
        n = 1
        while abs(power) > Decimal(10) ** -135:
            power /= -x * x
            n += 2
            total += power / n
        return total

    with decimal.localcontext(_CONTEXT):
        return 4 * (4 * arctan_of_inverse(5) - arctan_of_inverse(239))
