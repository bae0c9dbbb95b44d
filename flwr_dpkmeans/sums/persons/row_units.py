"""What each row of a party counts by: its person's share, and a weight of its own."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.errors import PlanError
from flwr_dpkmeans.privacy.release import PrivacyUnit
from flwr_dpkmeans.sums.persons.counted_persons import Counted, Persons
from flwr_dpkmeans.sums.settings import MOST_ROWS_OF_A_PERSON, Settings

Weights = NDArray[np.float64]
"""(n_rows,), at least 0, in the units that their maximum has."""
_STEPS = 2.0**16
"""Steps of a weight of 1."""


@dataclass(frozen=True, eq=False)
class RowUnits:
    """What one party knows of its rows besides what is clustered.

    Examples
    --------
    >>> units = RowUnits(weights=np.array([0.0, 5.0, 20.0, 30.0]))
    >>> settings = Settings(bounds=((-1.0,), (1.0,)), max_weight=20.0)
    >>> units.counted(settings, 4).weights.tolist()
    [0.0, 0.25, 1.0, 1.0]
    """

    persons: Persons | None = None
    """Whose rows these are; None: nobody knows."""
    weights: Weights | None = field(default=None, repr=False)
    """Of each row; None: it has none. May also be `Rows`."""

    @classmethod
    def of(
        cls,
        digests: NDArray[np.float64] | None,
        weights: Weights | None,
        salt: int,
    ) -> RowUnits:
        """From what a table says of its rows; see `Persons`."""
        persons = None if digests is None else Persons(digests, salt)
        return cls(persons, weights)

    def counted(
        self,
        settings: Settings,
        n_rows: int,
        *,
        can_weigh: bool = True,
    ) -> Counted:
        """Which of so many rows count, and by how much.

        Weights are multiples of 2^-16 in [0, 1], and those of a person's rows add up to
        at most 1 [C16]: a row's is its own over the public maximum, at most 1, times
        its share of its person's [C18]. Where a sum cannot weigh rows, one of each
        person counts.
        """
        most = most_rows_of_a_person(settings) if can_weigh else 1
        if settings.unit is PrivacyUnit.PERSON:
            shared = _require_persons(self.persons).counted(most)
        else:
            shared = Counted(np.arange(n_rows), np.ones(n_rows))
        if settings.max_weight is None:
            return shared
        weights = _require_weights(self.weights)[shared.rows]
        # What is no number counts as nothing: whether there is one may not show.
        stated = np.fmin(np.fmax(weights, 0.0), settings.max_weight)
        products = stated / settings.max_weight * shared.weights
        return Counted(shared.rows, np.floor(products * _STEPS) / _STEPS)


def most_rows_of_a_person(settings: Settings) -> int:
    """How many rows of a person are looked at, at most, where rows can be weighed."""
    return settings.rows_per_person or MOST_ROWS_OF_A_PERSON


def _require_persons(persons: Persons | None) -> Persons:
    """Refuse a table of which nobody knows whose rows these are."""
    if persons is None:
        raise PlanError(
            "the plan protects one person, but nothing says which rows are one's: name"
            " their column, or give their ids, or choose unit='record'."
        )
    return persons


def _require_weights(weights: Weights | None) -> Weights:
    """Refuse a table of which nobody knows what rows weigh."""
    if weights is None:
        raise PlanError(
            "the plan weighs rows, but nothing says what these weigh: give"
            " sample_weight, or leave max_weight out."
        )
    return np.asarray(weights)
