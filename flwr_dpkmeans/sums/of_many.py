"""A statistic that many clients of one process have together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.sums.round import Array, RoundStatistic, State

Sizes = NDArray[np.int64]
"""Numbers of rows of clients, (n_clients,), any of which may be 0."""
SumsOfEach = Callable[[Array, Sizes, State], Sequence[Array]]
"""``of_each(rows, sizes, state) -> arrays``, each with a leading axis of clients."""


@dataclass(frozen=True)
class OfMany:
    """A round's statistic, of one client or of many at once.

    For simulations of thousands of clients. A round whose statistic is any other
    function has one client asked after another, with the same results.
    """

    of_one: RoundStatistic
    """``of_one(points, state) -> arrays``, as `PrivateSum.statistic`."""
    of_each: SumsOfEach
    """The same of each client, bit by bit, from the rows of all, one client's behind
    the other's.
    """

    def __call__(self, points: Array, state: State) -> Sequence[Array]:
        """The statistic of one client."""
        return self.of_one(points, state)
