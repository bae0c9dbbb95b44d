"""A check for whoever writes a round: whether its statistic keeps its bound.

It looks for a counterexample by brute force and proves nothing: `Sensitivity.because`
says what does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.errors import PlanError
from flwr_dpkmeans.privacy.release import Block, Norm, PrivacyUnit
from flwr_dpkmeans.sums.round import Array, RowWeights

_STEPS = 2**16
_SIZES = (0, 1, 4, 40)
"""Rows of the tables."""
_MANY = 4000
"""Rows of one more where a client is protected, to see whether it is clipped at all."""
_UNIT_SIZES = (1, 2, 7, 32)
"""Rows of a unit where rows have weights."""


@dataclass(frozen=True)
class _WeightedPair:
    """Two tables with weights that differ by one unit of several rows."""

    with_unit: tuple[Array, RowWeights] = field(repr=False)
    without: tuple[Array, RowWeights] = field(repr=False)


def check_sensitivity(
    blocks: Sequence[Block],
    statistic: Callable[[Array], Sequence[Array]],
    n_features: int,
    *,
    n_tables: int = 5,
    seed: int = 0,
    weighted: Callable[[Array, RowWeights], Sequence[Array]] | None = None,
) -> dict[str, float]:
    """Hold a statistic against its declared sensitivities, in exact arithmetic.

    On random neighbouring tables, which differ by one unit: a client's table, a row or,
    where rows have weights, several rows whose weights add up to at most 1.

    Parameters
    ----------
    blocks : sequence of Block
        What the statistic returns, with sensitivities.
    statistic : callable
        ``statistic(points) -> arrays`` of one client, one for each block; a round's own
        with its state in place.
    n_features : int
        Width of the tables, whose rows lie in [-1, 1]^d on the grid.
    n_tables : int
        How many of each size and shape.
    seed : int
        Of the tables.
    weighted : callable, optional
        ``weighted(points, weights) -> arrays``, the same of rows with weights.

    Returns
    -------
    dict of str to float
        The largest change that was seen, over the bound, by name of the array; at most
        1.

    Raises
    ------
    PlanError
        If one unit moves an array beyond its bound or an entry beyond
        `Block.entry_bound`, an array is off the grid or of another shape, or one that
        is declared nonnegative has an entry below 0.

    Examples
    --------
    >>> from flwr_dpkmeans.privacy.release import NoiseShape, Sensitivity
    >>> one_row = Sensitivity(
    ...     Norm.L2, 1.0, PrivacyUnit.RECORD, "one row is one row", nonnegative=True
    ... )
    >>> rows = Block("rows", (1,), one_row, NoiseShape.GAUSSIAN, 9.0, 1.0)
    >>> def statistic(points):
    ...     return [np.array([float(len(points))])]
    >>> check_sensitivity([rows], statistic, n_features=2)
    {'rows': 1.0}
    """
    generator = np.random.default_rng(seed)
    largest = {block.name: 0.0 for block in blocks}
    unit = blocks[0].sensitivity.unit

    def compare(before: Sequence[Array], after: Sequence[Array]) -> None:
        steps_before = _in_steps(blocks, before)
        steps_after = _in_steps(blocks, after)
        for block, old, new in zip(
            blocks,
            steps_before,
            steps_after,
            strict=True,
        ):
            share = share_of_bound(block, (new - old).ravel())
            largest[block.name] = max(largest[block.name], share)

    for table, neighbour in _neighbours(
        unit,
        n_features,
        n_tables,
        generator,
    ):
        compare(statistic(table), statistic(neighbour))
    if weighted is None:
        return largest
    for pair in _weighted_units(n_features, n_tables, generator):
        compare(weighted(*pair.with_unit), weighted(*pair.without))
    return largest


def _neighbours(
    unit: PrivacyUnit,
    n_features: int,
    n_tables: int,
    generator: np.random.Generator,
) -> Iterator[tuple[Array, Array]]:
    """Make pairs of tables that differ by one unit.

    With and without one row or, where a client is protected, all rows.
    """
    by_client = unit is PrivacyUnit.CLIENT
    sizes = (*_SIZES, _MANY) if by_client else _SIZES
    for size in sizes * n_tables:
        for table in _tables(size, n_features, generator):
            if by_client:
                yield table, table[:0]
                continue
            for row in _rows_beside(table, n_features, generator):
                yield table, np.vstack([table, row])


def _weighted_units(
    n_features: int,
    n_tables: int,
    generator: np.random.Generator,
) -> Iterator[_WeightedPair]:
    """Draw units of several rows beside other rows."""
    n_others = _SIZES[-1]
    for size in _UNIT_SIZES * n_tables:
        others = _tables(n_others, n_features, generator)[0]
        steps = generator.integers(0, _STEPS + 1, n_others)
        without = (others, steps / _STEPS)
        units = _tables(size, n_features, generator)
        units.append(others[:size])
        # Of equal rows, all roundings go in one direction.
        units += [np.repeat(unit[:1], size, axis=0) for unit in units]
        for unit in units:
            rows = np.vstack([others, unit])
            for of_unit in _unit_weights(len(unit), generator):
                weights = np.concatenate([without[1], of_unit])
                yield _WeightedPair((rows, weights), without)


def _unit_weights(
    size: int,
    generator: np.random.Generator,
) -> list[RowWeights]:
    """Weights of a unit's rows: equal, any, and nearly all of it in one."""
    equal = np.full(size, _STEPS // size)
    cuts = generator.integers(0, _STEPS + 1, size - 1)
    edges = np.concatenate([[0], np.sort(cuts), [_STEPS]])
    shares = edges[1:] - edges[:-1]
    nearly_all = np.ones(size)
    nearly_all[0] = _STEPS - size + 1
    return [steps / _STEPS for steps in (equal, shares, nearly_all)]


def _rows_beside(
    table: Array,
    n_features: int,
    generator: np.random.Generator,
) -> list[Array]:
    """Draw rows that join a table.

    One like the others, some in corners, some close to the middle.
    """
    rows = list(table[:1])
    for _ in range(2):
        for small_table in _tables(1, n_features, generator):
            rows.extend(small_table)
    return rows


def _tables(
    size: int,
    n_features: int,
    generator: np.random.Generator,
) -> list[Array]:
    """Rows anywhere, in corners, close to the middle, and all alike."""
    shape = (size, n_features)
    uniform = generator.uniform(-1.0, 1.0, shape)
    anywhere = np.rint(uniform * _STEPS) / _STEPS
    corners = generator.choice([-1.0, 1.0], shape)
    middle = generator.integers(-2, 3, shape) / _STEPS
    alike = np.repeat(corners[:1], size, axis=0)
    return [anywhere, corners, middle, alike]


def _in_steps(
    blocks: Sequence[Block],
    arrays: Sequence[Array],
) -> list[NDArray[np.int64]]:
    """Count arrays in steps of the grid.

    One off the grid, of another shape, or below 0 where it must not be, is a
    `PlanError`.
    """
    in_steps = []
    for block, array in zip(blocks, arrays, strict=True):
        scaled = array * _STEPS
        steps = np.rint(scaled)
        if array.shape != block.shape or not np.array_equal(steps, scaled):
            raise PlanError(
                f"{block.name!r} has shape {array.shape}, or entries between multiples"
                f" of 2^-16, but it is declared with shape {block.shape} and noise on"
                " that grid: round it toward zero."
            )
        if block.sensitivity.nonnegative and bool(np.any(steps < 0.0)):
            raise PlanError(
                f"{block.name!r} has an entry below 0, but it is declared nonnegative:"
                " leave that out."
            )
        in_steps.append(steps.astype(np.int64))
    return in_steps


def share_of_bound(block: Block, change: NDArray[np.int64]) -> float:
    """Norm of a change over the bound, or an error if it is more, however little.

    The comparison is exact: integers and fractions, no roots.
    """
    moved = [abs(int(step)) for step in change[change != 0]]
    bound = Fraction(block.sensitivity.bound) * _STEPS
    if block.sensitivity.norm is Norm.L1:
        total = sum(moved)
        is_within = total <= bound
        norm = float(total)
    else:
        squares = sum(step**2 for step in moved)
        is_within = squares <= bound**2
        norm = math.sqrt(squares)
    largest_entry = max(moved, default=0)
    # A client's sum that is rounded to the grid may add a step.
    most = block.entry_bound * _STEPS + 1.0
    if not is_within or largest_entry > most:
        raise PlanError(
            f"{block.name!r} moves by {norm / _STEPS:.9g} between two neighbouring"
            f" tables, but its sensitivity is declared as {block.sensitivity.bound:.9g}"
            f" and {block.entry_bound:g} for one entry: clip the statistic or declare"
            " the bound that holds."
        )
    return min(1.0, norm / float(bound))
