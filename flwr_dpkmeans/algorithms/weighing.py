"""How a statistic that takes weights becomes what a round has.

A row's vector has a norm of at most B. Rows of one unit, such as a person, have weights
that add up to at most 1: so the unit adds a vector of norm at most B, in every norm,
and all sensitivities of single rows hold for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from flwr_dpkmeans.privacy.release import PrivacyUnit
from flwr_dpkmeans.sums.round import (
    Array,
    Labels,
    RowWeights,
    State,
    WeightedStatistic,
)


class Weighable(Protocol):
    """``statistic(points, state, weights=None) -> arrays``."""

    def __call__(
        self,
        points: Array,
        state: State,
        weights: RowWeights | None = None,
        /,
    ) -> Sequence[Array]:
        """One client's arrays; without weights each is 1."""


class WeighableOfLabels(Protocol):
    """``labelled(points, state, labels, weights=None) -> arrays``."""

    def __call__(
        self,
        points: Array,
        state: State,
        labels: Labels,
        weights: RowWeights | None = None,
        /,
    ) -> Sequence[Array]:
        """One client's arrays; without weights each is 1."""


def weighing(
    unit: PrivacyUnit,
    statistic: Weighable,
    labelled: WeighableOfLabels | None = None,
) -> WeightedStatistic | None:
    """Make the weighted statistic of a round of the same that it has without weights.

    None where clients are protected, each of which is one unit with all its rows.
    """
    if unit is PrivacyUnit.CLIENT:
        return None

    def weighted(
        points: Array,
        state: State,
        labels: Labels | None,
        weights: RowWeights,
    ) -> Sequence[Array]:
        if labelled is None or labels is None:
            return statistic(points, state, weights)
        return labelled(points, state, labels, weights)

    return weighted
