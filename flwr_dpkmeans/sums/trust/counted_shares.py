"""How much noise each client adds where clients add it in shares."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from flwr_dpkmeans.errors import PlanError


@dataclass(frozen=True)
class Shares:
    """How many clients add noise shares, and how many may be silent or collude."""

    n_clients: int
    """Clients in the attempt's roster, M."""
    max_silent: int
    """t.

    The guarantee counts on M - max(1, t) shares, since whoever looks at the sum knows
    its own.
    """
    max_lost: int = 0
    """Where sums are recovered: how many may be missing from the sum after they drew
    their shares, or be said to be by a server that works with t others as well; they
    are not counted on either.
    """

    @property
    def n_honest(self) -> int:
        """Shares that are counted on."""
        honest = self.n_clients - max(1, self.max_silent) - self.max_lost
        if honest < 1:
            raise PlanError(
                f"max_silent is {self.max_silent}, but only {self.n_clients} clients"
                " take part and at least one must be honest: lower max_silent or start"
                " more clients."
            )
        return honest

    @property
    def factor(self) -> float:
        """Factor on the standard deviation of one share, rounded up.

        Squared, those counted on add up to at least 1.
        """
        return _share_factor(self.n_honest)

    @property
    def excess(self) -> float:
        """Standard deviation of all shares together over that of the counted ones."""
        return math.sqrt(self.n_clients / self.n_honest)


@lru_cache(maxsize=16)
def _share_factor(n_honest: int) -> float:
    factor = 1.0 / math.sqrt(n_honest)
    while n_honest * Fraction(factor) ** 2 < 1:
        factor = math.nextafter(factor, math.inf)
    return factor
