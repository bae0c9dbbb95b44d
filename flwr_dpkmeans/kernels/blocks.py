"""Blocks of rows that fit the processor's caches."""

from __future__ import annotations

from collections.abc import Iterator

from flwr_dpkmeans.resources import limits

Rows = slice
"""Some neighbouring rows of a table."""
_BYTES_PER_VALUE = 8


def block_length(values_each: int) -> int:
    """Number of items that fit into a block, at least 1.

    Each item has `values_each` numbers, such as d features and k scores.
    """
    bytes_each = _BYTES_PER_VALUE * max(1, values_each)
    return max(1, limits().block_bytes // bytes_each)


def row_blocks(
    n_rows: int,
    values_each: int,
    least: int = 1,
) -> Iterator[Rows]:
    """Cut rows into blocks, of `least` rows or more; no rows are one empty block."""
    step = max(least, block_length(values_each))
    last = max(1, n_rows)
    for start in range(0, last, step):
        end = min(n_rows, start + step)
        yield Rows(start, end)
