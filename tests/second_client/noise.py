"""A client's share of the noise, exact and from the system's entropy."""

from __future__ import annotations

import hashlib
import math
import secrets
from fractions import Fraction
from types import SimpleNamespace

import numpy as np

from second_client.algorithm import GRID, n_sure


def own_noise(
    plan: SimpleNamespace, index: int, attempt: int, node: int, n_members: int
) -> np.ndarray:
    """A client's share, in grid steps."""
    text = str((plan.seed, "client", node, index, attempt))
    seed = hashlib.sha256(text.encode()).digest()[:8]
    generator = np.random.default_rng(int.from_bytes(seed, "little"))
    factor = share_factor(n_sure(plan, n_members))
    noise: list[int] = []
    for block in plan.rounds[index - 1].blocks:
        deviation = block.noise_multiplier * block.entry_bound * factor * GRID
        size = math.prod(block.shape)
        if plan.settings.noise == "seeded":
            noise += np.rint(generator.normal(0, deviation, size)).astype(int).tolist()
        else:
            noise += [discrete_gaussian(math.ceil(deviation)) for _ in range(size)]
    return np.array(noise)


def share_factor(n_sure: int) -> float:
    """The least double whose square, times the sure clients, is 1 at least."""
    factor = math.nextafter(1 / math.sqrt(n_sure), 0)
    while n_sure * Fraction(factor) ** 2 < 1:
        factor = math.nextafter(factor, 2)
    return factor


def discrete_gaussian(deviation: float) -> int:
    """An integer k within 91 deviations, P(k) as exp(-k^2 / (2 deviation^2))."""
    reach = math.ceil(91 * deviation)
    while True:
        value = secrets.randbelow(2 * reach + 1) - reach
        if survives(value**2 / (2 * Fraction(deviation) ** 2)):
            return value


def survives(exponent: Fraction) -> bool:
    """True with probability exp(-exponent), exactly."""
    if exponent > 1:
        return survives(Fraction(1)) and survives(exponent - 1)
    n_drawn = 1
    while secrets.randbelow(exponent.denominator * n_drawn) < exponent.numerator:
        n_drawn += 1
    return n_drawn % 2 == 1
