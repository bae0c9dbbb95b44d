"""The rows of a simulation's virtual nodes.

Parts of one table, or drawn from a mixture of Gaussians.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import numpy as np
from numpy.typing import ArrayLike, NDArray

from flwr_dpkmeans.errors import (
    ConfigurationError,
    DataError,
    member,
    require_positive,
    require_whole,
)

MIXTURE = "mixture"


class Partition(StrEnum):
    """How rows are assigned to parts."""

    IID = "iid"
    """At random; the sizes differ by at most one."""
    SHARDS = "contiguous"
    """Runs of neighbouring rows in the order of the file.

    The sizes differ by at most one.
    """
    BY_VALUE = "by_value"
    """Runs of rows in the order of a column; the sizes differ by at most one."""
    DIRICHLET = "dirichlet"
    """Each value of a column (a label) is spread by its own draw from a Dirichlet
    distribution.
    """
    FIXED_SIZES = "fixed_sizes"
    """At random, in the given sizes; the other rows are in no part."""
    ONE_PER_VALUE = "one_client_per_value"
    """All rows with one value of a column, such as a state.

    The parts follow the order of the values.
    """


COLUMN_KINDS = frozenset(
    {Partition.BY_VALUE, Partition.DIRICHLET, Partition.ONE_PER_VALUE}
)


def parse_sizes(text: object) -> tuple[int, ...]:
    """Read the sizes of the parts: integers of at least 0 with commas between them."""
    parts = [part.strip() for part in str(text).split(",")]
    if not all(part.isascii() and part.isdigit() for part in parts):
        raise ConfigurationError(
            f"the sizes of the parts are {text!r}, but they must be integers of at"
            " least 0 with commas between them: give one per client, such as"
            " '100,50,7'."
        )
    return tuple(int(part) for part in parts)


def partition_indices(
    n_rows: int,
    n_parts: int,
    part: int,
    *,
    seed: int,
    kind: Partition | str = Partition.IID,
    column_values: ArrayLike | None = None,
    alpha: float = 0.5,
    sizes: Sequence[int] | None = None,
) -> NDArray[np.int64]:
    """Return the rows of one part, from 0 on, in ascending order.

    The parts 0 to n_parts - 1 of the same call are disjoint and cover all rows (for
    ``fixed_sizes``, as many as the sizes add up to); more parts than rows leave some
    empty. They follow from the arguments alone, so that every process finds the same
    split by itself; the seed is no secret.

    `column_values` (n_rows,) is the column of those kinds that look at one, `sizes` has
    the rows of each part for ``fixed_sizes``. `alpha` is the concentration of
    ``dirichlet``, above 0: large values make the parts alike, small values give each
    part few of the labels (T.-M. H. Hsu, H. Qi, M. Brown, "Measuring the effects of
    non-identical data distribution for federated visual classification", 2019, section
    3).
    """
    require_whole("n_rows", n_rows, 0)
    require_whole("n_parts", n_parts, 1)
    require_whole(
        "part",
        part,
        0,
        most=n_parts - 1,
    )
    require_whole("seed", seed, 0)
    chosen = member("the partition kind", kind, Partition)
    rng = np.random.default_rng(seed)
    if chosen is Partition.SHARDS:
        return _run(np.arange(n_rows, dtype=np.int64), n_parts, part)
    if chosen is Partition.IID:
        return _run(_shuffled(n_rows, rng), n_parts, part)
    if chosen is Partition.FIXED_SIZES:
        cuts = np.cumsum([0, *_checked_sizes(sizes, n_rows, n_parts)])
        return np.sort(_shuffled(n_rows, rng)[cuts[part] : cuts[part + 1]]).astype(
            np.int64
        )
    column = _to_column(column_values, n_rows, chosen)
    if chosen is Partition.BY_VALUE:
        return _run(np.argsort(column, kind="stable"), n_parts, part)
    if chosen is Partition.ONE_PER_VALUE:
        values = np.unique(column)
        if len(values) != n_parts:
            raise DataError(
                f"column_values has {len(values)} distinct values, but there are"
                f" {n_parts} parts and each needs one value: make it {len(values)}"
                " parts, or choose another column."
            )
        return np.flatnonzero(column == values[part]).astype(np.int64)
    return _dirichlet(
        column,
        n_parts,
        part,
        require_positive("alpha", alpha),
        rng,
    )


def _shuffled(n_rows: int, rng: np.random.Generator) -> NDArray[np.integer]:
    """What ``rng.permutation(n_rows)`` is, in half of the memory."""
    order: NDArray[np.integer] = np.arange(
        n_rows, dtype=np.int32 if n_rows < 2**31 else np.int64
    )
    rng.shuffle(order)
    return order


def _run(
    order: NDArray[np.integer],
    n_parts: int,
    part: int,
) -> NDArray[np.int64]:
    """Cut an order of the rows into runs whose lengths differ by at most one."""
    size, n_longer = divmod(len(order), n_parts)
    start = part * size + min(part, n_longer)
    return np.sort(order[start : start + size + (part < n_longer)]).astype(np.int64)


def _dirichlet(
    labels: NDArray[np.generic],
    n_parts: int,
    part: int,
    alpha: float,
    rng: np.random.Generator,
) -> NDArray[np.int64]:
    """Cut the rows of each label, in random order.

    By shares from a Dirichlet distribution.
    """
    chosen = [np.empty(0, dtype=np.int64)]
    for label in np.unique(labels):
        rows = rng.permutation(np.flatnonzero(labels == label))
        shares = rng.dirichlet(np.full(n_parts, alpha))
        # The last cut is set, not computed: rounding must not lose a row.
        cuts = [
            0,
            *np.floor(np.cumsum(shares)[:-1] * len(rows))
            .astype(np.int64)
            .clip(max=len(rows)),
            len(rows),
        ]
        chosen.append(rows[cuts[part] : cuts[part + 1]])
    return np.sort(np.concatenate(chosen)).astype(np.int64)


def _checked_sizes(
    sizes: Sequence[int] | None,
    n_rows: int,
    n_parts: int,
) -> Sequence[int]:
    if sizes is None:
        raise ConfigurationError(
            "sizes is None, but the partition kind 'fixed_sizes' needs one size per"
            f" part: give for example {(n_rows // n_parts,) * min(n_parts, 3)}, or"
            " choose 'iid'."
        )
    if len(sizes) != n_parts:
        raise ConfigurationError(
            f"sizes has {len(sizes)} numbers, but there are {n_parts} parts: give one"
            " size for each part."
        )
    for index, size in enumerate(sizes):
        require_whole(f"sizes[{index}]", size, 0)
    if (total := sum(map(int, sizes))) > n_rows:
        raise DataError(
            f"the sizes add up to {total}, but there are {n_rows} rows: give smaller"
            " sizes or more rows."
        )
    return sizes


def _to_column(
    column_values: ArrayLike | None,
    n_rows: int,
    kind: Partition,
) -> NDArray[np.generic]:
    if column_values is None:
        raise DataError(
            f"column_values is None, but the partition kind {kind.value!r} needs one"
            " value per row: give the column, or choose 'iid'."
        )
    column: NDArray[np.generic] = np.asarray(column_values)
    if column.shape != (n_rows,):
        raise DataError(
            f"column_values has the shape {column.shape}, but it must be ({n_rows},):"
            " give one value for each row."
        )
    if column.dtype.kind == "f" and np.isnan(column).any():
        raise DataError(
            f"column_values has {int(np.isnan(column).sum())} missing values, but every"
            " row must have one: fill in these values or remove the rows."
        )
    return column
