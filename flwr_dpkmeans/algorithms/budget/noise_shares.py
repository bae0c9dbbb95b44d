"""Parts of a budget."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from flwr_dpkmeans.algorithms.budget.noise_kinds import NoiseFamily


def shared(
    shares: Sequence[float],
    total: float,
    kind: NoiseFamily,
) -> tuple[float, ...]:
    """Scale shares so that they add up to `total`.

    Or their squares, under joint Gaussian accounting.
    """
    factor = (
        total / sum(shares)
        if kind is NoiseFamily.PAPER
        else math.sqrt(total) / math.hypot(*shares)
    )
    return tuple(share * factor for share in shares)


def root_at_least(square: int) -> float:
    """The square root, rounded up.

    A corner of the box must not exceed the bound even in the last digit.
    """
    root = math.sqrt(square)
    return root if Fraction(root) ** 2 >= square else math.nextafter(root, math.inf)
