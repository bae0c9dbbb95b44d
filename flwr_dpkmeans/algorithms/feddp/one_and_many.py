"""Statistics of one client, and of many at once, that differ in nothing else."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from flwr_dpkmeans.kernels.block_sums import in_blocks
from flwr_dpkmeans.sums.of_many import OfMany, Sizes, SumsOfEach
from flwr_dpkmeans.sums.public_facts import PublicFacts
from flwr_dpkmeans.sums.round import Array, RoundStatistic, State

FromSums = Callable[[Sequence[Array]], Sequence[Array]]
"""What is made of clients' sums, such as clipped ones: each has an axis of clients."""


def of_one_and_many(
    public: PublicFacts,
    sums_of_each: SumsOfEach,
    from_sums: FromSums,
) -> RoundStatistic:
    """Make a round's statistic of one client, in blocks of rows, and of many.

    Parameters
    ----------
    public : PublicFacts
        Of the run.
    sums_of_each : callable
        ``sums_of_each(rows, sizes, state) -> arrays``, exact on the grid, so that
        neither blocks nor other clients' rows show in them.
    from_sums : callable
        ``from_sums(arrays) -> arrays``.
    """

    @in_blocks
    def sums_of_one(
        points: Array,
        state: State,
    ) -> Sequence[Array]:
        one_client = np.array([len(points)])
        return sums_of_each(
            points,
            one_client,
            state,
        )

    def of_one(
        points: Array,
        state: State,
    ) -> Sequence[Array]:
        sums = sums_of_one(points, state)
        arrays = from_sums(sums)
        return [of_client for (of_client,) in arrays]

    def of_each(
        rows: Array,
        sizes: Sizes,
        state: State,
    ) -> Sequence[Array]:
        sums = sums_of_each(
            rows,
            sizes,
            state,
        )
        return from_sums(sums)

    statistic = OfMany(of_one, of_each)
    return unless_moved(public, statistic)


def unless_moved(
    public: PublicFacts,
    statistic: OfMany,
) -> RoundStatistic:
    """A round's statistic, of many only where none of Lemma 17 is to be found.

    That moves rows off the grid, where the last digits of sums depend on their order.
    """
    if getattr(public.options, "reduce_diameter", False):
        return statistic.of_one
    return statistic
