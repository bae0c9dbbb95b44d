"""The rows of a simulation's virtual nodes.

Parts of one table, or drawn from a mixture of Gaussians.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from flwr_dpkmeans.data.points import Bounds
from flwr_dpkmeans.errors import (
    ConfigurationError,
    DataError,
    member,
    require_positive,
    require_whole,
)

MIXTURE = "mixture"
MIXTURE_BOUNDS = Bounds((-2.7,), (3.7,))
"""Public bounds of the mixture: its means lie in [0, 1], and 3.2 is 4.5 deviations of
sqrt(0.5).
"""
# Rows to which means are added at once: the copy of the means stays small beside the
# points.
_ROWS_AT_ONCE = 65_536


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
    """Cut the rows of each label, in random order, by shares from a Dirichlet
    distribution.
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


@dataclass(frozen=True)
class MixtureClients:
    """Ten Gaussians in 100 dimensions, their means uniform in the unit cube (Scott,
    Lampert, Saulpic 2025, G.1).

    Each client has `rows_per_client` rows and a generator of its own, spawned from the
    seed, so that it can be drawn without the others. A number below 0 is a
    ConfigurationError.
    """

    seed: int = 0
    rows_per_client: int = 50

    n_components: ClassVar[int] = 10
    n_features: ClassVar[int] = 100
    variance: ClassVar[float] = 0.5

    def __post_init__(self) -> None:
        require_whole("the seed of the mixture", self.seed, 0)
        require_whole(
            "the number of rows of each of the mixture's clients",
            self.rows_per_client,
            0,
        )

    def means(self) -> NDArray[np.float64]:
        """Means of the components, (10, 100)."""
        rng = np.random.default_rng(self.seed)
        return rng.random((self.n_components, self.n_features))

    def server_points(self) -> NDArray[np.float64]:
        """The server's points, (300, 100): 20 of each component, 100 uniform ones."""
        rng = np.random.default_rng(self.seed)
        means = rng.random((self.n_components, self.n_features))
        labels = np.repeat(np.arange(self.n_components), 20)
        drawn = points_around(
            means,
            labels,
            self.variance,
            rng,
        )
        uniform = rng.random((100, self.n_features))
        return np.concatenate([drawn, uniform])

    def client_points(self, client: int) -> NDArray[np.float64]:
        """The rows of one client, (rows_per_client, 100), by its index."""
        require_whole("the number of the mixture's client", client, 0)
        seeds = np.random.SeedSequence(self.seed, spawn_key=(client,))
        rng = np.random.default_rng(seeds)
        labels = rng.integers(self.n_components, size=self.rows_per_client)
        return points_around(
            self.means(),
            labels,
            self.variance,
            rng,
        )


def points_around(
    means: NDArray[np.float64],
    labels: NDArray[np.int64],
    variance: float,
    rng: np.random.Generator,
) -> NDArray[np.float64]:
    """Draw a Gaussian point around the mean of each label, in one large array."""
    points = rng.standard_normal((len(labels), means.shape[1]))
    points *= math.sqrt(variance)
    for start in range(0, len(labels), _ROWS_AT_ONCE):
        rows = slice(start, start + _ROWS_AT_ONCE)
        points[rows] += means[labels[rows]]
    return points
