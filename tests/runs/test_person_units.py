"""No person moves any statistic of any algorithm beyond its bound, and bugs are found.

By brute force: one person's rows are taken out, doubled and shuffled among those of
others, in every round of every registered algorithm, and of what comes before it. Rows
have weights of their own or none.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from test_weighted_rows import GROUPS, Weighed, rounds_of, some_table

from flwr_dpkmeans.data.loading.person_ids import person_digests
from flwr_dpkmeans.errors import PlanError
from flwr_dpkmeans.privacy.release import NoiseShape
from flwr_dpkmeans.sums.checks.neighbours import share_of_bound
from flwr_dpkmeans.sums.persons.counted_persons import Counted, Persons
from flwr_dpkmeans.sums.persons.row_units import RowUnits
from flwr_dpkmeans.sums.settings import Settings

STEPS = 2.0**16
ALL = 2**16
SIZES = (1, 2, 7, 60)
"""Rows of the persons that come and go."""
Points = NDArray[np.float64]
Ids = NDArray[np.str_]
Counting = Callable[[Persons, int], Counted]


def as_ever(persons: Persons, most: int) -> Counted:
    return persons.counted(most)


def with_weights(persons: Persons, most: int) -> Counted:
    """Weights of rows that may be anything, up to a maximum of 3.

    They follow from who the person is and which of its rows this is.
    """
    who = persons.digests[:, 0]
    number = pd.Series(who).groupby(who).cumcount().to_numpy()
    anything = np.array([3.0, 3.1, 0.0, 3.0, 1e300, np.inf, 0.5, np.nan, 1e-9, -1.0])
    weights = anything[(who + number).astype(np.int64) % len(anything)]
    return weighed_by(RowUnits(persons, weights), most)


def weighed_by(units: RowUnits, most: int) -> Counted:
    settings = Settings(
        bounds=((-1.0,), (1.0,)),
        unit="person",  # type: ignore[arg-type]
        rows_per_person=most,
        max_weight=3.0,
    )
    return units.counted(settings, 0)


def over_a_smaller_maximum(persons: Persons, most: int) -> Counted:
    """The bug that weights are over another number than their maximum."""
    rows, weights = weighed_by(RowUnits(persons, np.full(len(persons), 3.0)), most)
    return Counted(rows, weights * 1.5)


def row_by_row(persons: Persons, most: int) -> Counted:
    """The bug that each row counts as a record."""
    rows, weights = persons.counted(ALL)
    return Counted(rows, np.ones_like(weights))


def by_the_first_table(persons: Persons, most: int) -> Counted:
    """The bug that weights are those of other rows: an average person's."""
    rows, weights = persons.counted(ALL)
    share = np.floor(STEPS * persons.n_persons / max(1, len(rows))) / STEPS
    return Counted(rows, np.full_like(weights, share))


def rounded_up(persons: Persons, most: int) -> Counted:
    """The bug that equal shares are rounded up, so that they add up to more than 1."""
    rows, weights = persons.counted(most)
    is_shared = (weights > 0.0) & (weights < 1.0)
    return Counted(rows, weights + is_shared / STEPS)


def with_person(table: Points, person: Points, n_times: int) -> tuple[Points, Ids]:
    """Rows of others, three of each, and a person's, in no order."""
    rows = np.vstack([table, *[person] * n_times])
    others = [f"other {number // 3}" for number in range(len(table))]
    ids = np.array(others + ["person"] * (len(person) * n_times))
    order = np.random.default_rng(5).permutation(len(rows))
    return rows[order], ids[order]


def largest_share(weighed: Weighed, most: int, counting: Counting) -> float:
    """By how much of its bound a person moves an array at most."""

    def arrays(rows: Points, ids: Ids) -> Sequence[Points]:
        persons = Persons(person_digests(ids.tolist(), b"key"))
        counted = counting(persons, most)
        return weighed.arrays(rows[counted.rows], counted.weights)

    table, _ = some_table(weighed, 40)
    shares = [0.0]
    for size, n_times in itertools.product(SIZES, (1, 2)):
        anywhere, _ = some_table(weighed, max(size, 4), seed=size)
        alike = np.repeat(anywhere[:1], size, axis=0)
        for person in (anywhere[:size], alike):
            rows, ids = with_person(table, person, n_times)
            is_other = ids != "person"
            without = arrays(rows[is_other], ids[is_other])
            after = arrays(rows, ids)
            for block, one, other in zip(weighed.blocks, without, after, strict=True):
                if block.noise is not NoiseShape.NONE:
                    steps = np.rint((other - one) * STEPS).astype(np.int64)
                    shares.append(share_of_bound(block, steps.ravel()))
    return max(shares)


@pytest.mark.sample(5)
@pytest.mark.parametrize("most", [1, 3, ALL])
@pytest.mark.parametrize("group", GROUPS)
def test_no_person_moves_any_round_beyond_its_bound(group: str, most: int) -> None:
    shares = [largest_share(weighed, most, as_ever) for weighed in rounds_of(group)]
    assert max(shares) <= 1.0


@pytest.mark.sample(5)
@pytest.mark.parametrize("most", [1, ALL])
@pytest.mark.parametrize("group", GROUPS)
def test_no_weight_of_a_row_moves_any_round_beyond_its_bound(
    group: str, most: int
) -> None:
    shares = [largest_share(one, most, with_weights) for one in rounds_of(group)]
    assert 0.0 < max(shares) <= 1.0


@pytest.mark.parametrize(
    "wrong", [row_by_row, by_the_first_table, rounded_up, over_a_smaller_maximum]
)
def test_persons_that_weigh_too_much_are_found(wrong: Counting) -> None:
    (moments,) = rounds_of("moments")
    with pytest.raises(PlanError, match="moves by"):
        largest_share(moments, ALL, wrong)
