"""Columns that one party may have in another unit than all others.

Seen by the middle and the spread of its values beside the others'. Whoever calls this
holds the rows of all parties, as a notebook does. What it says is
exact knowledge of them: it is a warning for this caller's eyes, and never goes into a
report, a model or a message.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.data.doubts.conversions import TYPICAL_WAYS, Conversion
from flwr_dpkmeans.errors import column_names, listed

Array = NDArray[np.float64]


_LEVELS = (0.1, 0.25, 0.5, 0.75, 0.9)


_MIDDLE = 2


_FEWEST_ROWS = 10
"""Of a party whose quantiles are looked at."""


_MOST_ROWS = 2_000
"""Of each party that are looked at, evenly spread over its table."""


_FAR = 2.75
"""How many spreads the medians are apart at least.

Pounds beside kilograms of adults are 3 to 4 (of logarithms).
"""


_NEAR = 0.3
"""How many spreads medians are apart at most, once a unit is converted.

Hospitals differ by that much.
"""


_ALIKE = 0.5
"""The same of the other quantiles: a conversion explains the middle and the spread, or
it explains nothing.
"""


_SAMPLING = 1.5
"""Of a small table, more by this over the root of its rows.

A median is known to 1.25 of a spread over it.
"""


_UNLIKE = 1.5
"""How many spreads parties are apart that differ by what they are.

Beside such ones a small factor proves nothing.
"""


_LARGE_FACTOR = 5.0
"""From which on parties that differ in other columns, too, are hardly so far apart by
what they are.
"""


_OTHER_SHAPE = 0.3
"""Largest distance of distribution functions that a conversion may explain, of tables
that are alike otherwise.
"""


_SAME_SHAPE = 0.1
"""Largest distance that is left then, and in all other columns one and a half times as
much.
"""


_MOST_PARTIES = 100
"""The largest ones, which are compared."""


_HUGE_FACTOR = 15.0
"""From which on a conversion may leave twice as much of a difference."""


_BEYOND = 10.0
"""How many times the range of all others' middle a party lies beyond it, where no unit
explains that.
"""


_SPREAD_OF_RANGE = 2.563
"""Standard deviations of a normal between its tenth and its ninetieth part of 100."""


@dataclass(frozen=True)
class OtherUnit:
    """A party's column that looks converted, or far beyond all others'."""

    party: int
    column: int
    reference: int
    """The party that it is compared with."""
    medians: tuple[float, float]
    """Of the reference and of the party."""
    conversion: Conversion | None
    """From the reference's unit to the party's.

    None where no typical one explains the difference.
    """


def other_units(parts: Sequence[Array]) -> list[OtherUnit]:
    """Find the columns that look as if one party had them in another unit.

    Of parties' tables, (n_i, d).

    A conversion must explain the middle *and* the spread. Parties that hold other
    ranges of a column, as after a split by its value, have other middles, but not
    logarithms of one spread; and they lie between each other. Parties that are of
    another kind differ in several columns. Where a column's spread is wide, as of clear
    clusters, tables that are alike in all other columns must have one shape after a
    conversion and not before it.
    """
    lengths = [len(part) for part in parts]
    by_length = sorted(range(len(parts)), key=lambda party: -lengths[party])
    largest = sorted(by_length[:_MOST_PARTIES])
    parties = [party for party in largest if lengths[party] >= _FEWEST_ROWS]
    if len(parties) < 2:
        return []
    samples = [_sample(parts[party]) for party in parties]
    n_rows = np.array([lengths[party] for party in parties])
    quantiles = np.stack([np.quantile(sample, _LEVELS, axis=0) for sample in samples])
    by_column = np.moveaxis(quantiles, 2, 0)
    columns = [_compared(of_column, n_rows) for of_column in by_column]
    n_unlike = np.sum([column.unlike for column in columns], axis=0)
    slips = []
    for number, column in enumerate(columns):
        reference = column.reference
        for index, party in enumerate(parties):
            conversion = column.explained(index, n_unlike[index])
            if conversion is None and not column.unlike_beside(index):
                of_column = by_column[number]
                differences = _steps(of_column[reference], of_column[index])
                if differences.max() > _ALIKE:
                    conversion = _of_one_shape(
                        samples[reference],
                        samples[index],
                        number,
                    )
            if conversion is None and not column.beyond[index]:
                continue
            other = column.beside(index)
            slip = OtherUnit(
                party,
                number,
                reference=parties[other],
                medians=(column.medians[other], column.medians[index]),
                conversion=conversion,
            )
            slips.append(slip)
    return slips


@dataclass(frozen=True)
class _Compared:
    """One column of all parties beside the party in the middle."""

    reference: int
    medians: list[float] = field(repr=False)
    conversions: dict[int, Conversion] = field(repr=False)
    """By party, the typical one that explains a difference."""
    unlike: NDArray[np.bool_] = field(repr=False)
    """(n_parties,): whose values differ, and none explains it."""
    beyond: NDArray[np.bool_] = field(repr=False)
    """(n_parties,): whose values lie far beyond all others'."""

    def explained(
        self,
        index: int,
        n_unlike: int,
    ) -> Conversion | None:
        """The conversion of a party, unless parties differ by what they are.

        Here, or this one in other columns.
        """
        conversion = self.conversions.get(index)
        if conversion is None or self.unlike.any():
            return None
        if n_unlike and conversion.size < _LARGE_FACTOR:
            return None
        return conversion

    def unlike_beside(self, index: int) -> bool:
        """Whether other parties' values differ without an explanation."""
        return bool(np.delete(self.unlike, index).any())

    def beside(self, index: int) -> int:
        """Return the party that one is compared with.

        The middle one, which itself is compared with the nearest.
        """
        if index != self.reference:
            return self.reference
        distances = {
            other: abs(median - self.medians[index])
            for other, median in enumerate(self.medians)
            if other != index
        }
        return min(distances, key=distances.__getitem__)


def _compared(quantiles: Array, n_rows: NDArray[np.int64]) -> _Compared:
    """Compare the quantiles, (n_parties, 5), of one column."""
    n_parties = len(quantiles)
    reference = _middle_party(quantiles[:, _MIDDLE], n_rows)
    conversions = {}
    unlike = np.zeros(n_parties, dtype=bool)
    for index in range(n_parties):
        fewest_rows = min(n_rows[index], n_rows[reference])
        slack = _SAMPLING / float(np.sqrt(fewest_rows))
        conversion = _conversion(quantiles[reference], quantiles[index], slack)
        if conversion is not None:
            conversions[index] = conversion
            continue
        distance = _apart(quantiles[reference], quantiles[index])
        unlike[index] = distance > _UNLIKE + slack
    beyond = [_is_beyond(quantiles, index) for index in range(n_parties)]
    return _Compared(
        reference,
        medians=quantiles[:, _MIDDLE].tolist(),
        conversions=conversions,
        unlike=unlike,
        beyond=np.array(beyond),
    )


def sentences_about(
    slips: Sequence[OtherUnit],
    parties: Sequence[str],
    names: Sequence[str] = (),
) -> list[str]:
    """Say of each column which parties' values look converted.

    `parties` are what sentences call them by.
    """
    alike: dict[tuple[int, Conversion | None], list[OtherUnit]] = {}
    for slip in slips:
        alike.setdefault((slip.column, slip.conversion), []).append(slip)
    return [_sentence(group, parties, names) for group in alike.values()]


def _sentence(
    slips: Sequence[OtherUnit],
    parties: Sequence[str],
    names: Sequence[str],
) -> str:
    first = slips[0]
    word = "party" if len(slips) == 1 else "parties"
    names_of_parties = listed(parties[slip.party] for slip in slips)
    reason = (
        f"over {_BEYOND:g} times the range that others' values have is between them"
    )
    if first.conversion is not None:
        reason = f"they differ {first.conversion.step}, as {first.conversion.units} do"
    column = column_names([first.column], names)
    others_median, median = first.medians
    return (
        f"the median of {column} is {median:.3g}"
        f" at {word} {names_of_parties}, but {others_median:.3g} at party"
        f" {parties[first.reference]}, and {reason}: look at the units there (exact"
        " rows say so, and nothing of it is released)."
    )


def _sample(part: Array) -> Array:
    """Some of a table's rows, (n, d), each column in ascending order."""
    step = math.ceil(len(part) / _MOST_ROWS)
    return np.sort(part[::step], axis=0)


def _middle_party(medians: Array, n_rows: NDArray[np.int64]) -> int:
    """The party at which half of all rows are reached, by ascending medians.

    One of those that most rows are like.
    """
    order = np.argsort(medians, kind="stable")
    reached = np.cumsum(n_rows[order])
    return int(order[np.searchsorted(reached, reached[-1] / 2.0)])


def _conversion(
    reference: Array,
    other: Array,
    slack: float,
) -> Conversion | None:
    """The typical conversion that brings quantiles together which are far apart.

    None if none does.
    """
    if _apart(reference, other) < _FAR + slack:
        return None
    best = None
    least = np.inf
    for conversion in TYPICAL_WAYS:
        in_logarithms = not conversion.offset
        undone = conversion.undone(other)
        steps = _steps(reference, undone, in_logarithms=in_logarithms)
        room = 2.0 if conversion.size >= _HUGE_FACTOR else 1.0
        is_near = steps[_MIDDLE] <= room * _NEAR + slack
        farthest = float(steps.max())
        if is_near and farthest <= min(room * _ALIKE + slack, least):
            best = conversion
            least = farthest
    return best


def _of_one_shape(
    reference: Array,
    other: Array,
    column: int,
) -> Conversion | None:
    """The conversion without which one column has another shape.

    All other columns, of some, have the same shape; else None.
    """
    n_columns = reference.shape[1]
    # 5% of equal shapes are farther apart.
    n_inverse = 1.0 / len(reference) + 1.0 / len(other)
    slack = 1.36 * float(np.sqrt(n_inverse))
    before = _distance(reference[:, column], other[:, column])
    if n_columns < 2 or before < _OTHER_SHAPE + slack:
        return None
    for conversion in TYPICAL_WAYS:
        undone = conversion.undone(other[:, column])
        after = _distance(reference[:, column], undone)
        if after > _SAME_SHAPE + slack or after * 3.0 > before:
            continue
        most = max(
            _distance(reference[:, number], other[:, number])
            for number in range(n_columns)
            if number != column
        )
        return conversion if most <= 1.5 * _SAME_SHAPE + slack else None
    return None


def _distance(first: Array, second: Array) -> float:
    """Largest distance of two distribution functions, of values in ascending order."""
    values = np.concatenate([first, second])
    counts_of_first = np.searchsorted(first, values, side="right")
    counts_of_second = np.searchsorted(second, values, side="right")
    shares_of_first = counts_of_first / len(first)
    shares_of_second = counts_of_second / len(second)
    distances = np.abs(shares_of_first - shares_of_second)
    return float(distances.max())


def _apart(reference: Array, other: Array) -> float:
    """How many spreads the medians are apart.

    Of logarithms, where there are some, which a factor leaves alone.
    """
    in_logarithms = bool(min(reference[0], other[0]) > 0.0)
    steps = _steps(reference, other, in_logarithms=in_logarithms)
    return float(steps[_MIDDLE])


def _steps(
    reference: Array,
    other: Array,
    *,
    in_logarithms: bool = False,
) -> Array:
    """How many spreads quantiles are apart, (5,), of the larger spread.

    Infinite where they have none.
    """
    if in_logarithms:
        if min(reference[0], other[0]) <= 0.0:
            return np.full(len(reference), np.inf)
        reference = np.log(reference)
        other = np.log(other)
    width = reference[-1] - reference[0]
    width_of_other = other[-1] - other[0]
    if min(width, width_of_other) <= 0.0:
        return np.where(reference == other, 0.0, np.inf)
    spread = max(width, width_of_other) / _SPREAD_OF_RANGE
    differences = np.abs(other - reference)
    return np.asarray(differences / spread)


def _is_beyond(quantiles: Array, party: int) -> bool:
    """Whether a party's middle lies far beyond what all others' have in common."""
    others = np.delete(quantiles, party, axis=0)
    low = others.min()
    high = others.max()
    gap_above = quantiles[party, 0] - high
    gap_below = low - quantiles[party, -1]
    gap = max(gap_above, gap_below)
    return bool(high > low and gap > _BEYOND * (high - low))
