"""Partitions: disjoint, complete, balanced and the same in every process."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flwr_dpkmeans.data.simulated.partition import (
    Partition,
    parse_sizes,
    partition_indices,
)
from flwr_dpkmeans.errors import ConfigurationError, DataError

# Kinds which fit any number of parts and rows.
KINDS = st.sampled_from(
    [Partition.IID, Partition.SHARDS, Partition.BY_VALUE, Partition.DIRICHLET]
)
BALANCED = [Partition.IID, Partition.SHARDS, Partition.BY_VALUE]


def split(n_rows: int, n_parts: int, **options: Any) -> list[np.ndarray]:
    return [
        partition_indices(n_rows, n_parts, part, **options) for part in range(n_parts)
    ]


@given(
    kind=KINDS,
    labels=st.lists(st.integers(0, 3), max_size=60),
    n_parts=st.integers(1, 80),
    seed=st.integers(0, 2**63),
    alpha=st.sampled_from([1e-3, 0.5, 100.0]),
)
def test_parts_are_disjoint_and_cover_all_rows(
    kind: Partition, labels: list[int], n_parts: int, seed: int, alpha: float
) -> None:
    n_rows = len(labels)
    parts = split(
        n_rows, n_parts, seed=seed, kind=kind, column_values=labels, alpha=alpha
    )
    assert sorted(np.concatenate(parts).tolist()) == list(range(n_rows))
    assert all(part.dtype == np.int64 and (np.diff(part) > 0).all() for part in parts)
    if kind in BALANCED:
        sizes = [len(part) for part in parts]
        assert max(sizes) - min(sizes) <= 1


def test_iid_depends_on_the_seed_and_mixes_rows() -> None:
    first = partition_indices(100, 4, 0, seed=1)
    assert first.tolist() == partition_indices(100, 4, 0, seed=1, kind="iid").tolist()
    assert first.tolist() != partition_indices(100, 4, 0, seed=2).tolist()
    assert first.tolist() != list(range(25))


def test_contiguous_follows_the_file() -> None:
    assert [part.tolist() for part in split(7, 3, seed=5, kind="contiguous")] == [
        [0, 1, 2],
        [3, 4],
        [5, 6],
    ]


def test_by_value_gives_each_part_a_range_of_values() -> None:
    values = np.array([5.0, 1.0, 4.0, 2.0, 3.0, 0.0])
    parts = split(6, 3, seed=0, kind="by_value", column_values=values)
    assert [sorted(values[part].tolist()) for part in parts] == [
        [0.0, 1.0],
        [2.0, 3.0],
        [4.0, 5.0],
    ]


def test_dirichlet_is_even_for_large_and_uneven_for_small_alpha() -> None:
    labels = np.repeat([0, 1], 5000)
    even = split(10000, 5, seed=3, kind="dirichlet", column_values=labels, alpha=1e6)
    assert all(
        abs(int((labels[part] == label).sum()) - 1000) < 50
        for part in even
        for label in (0, 1)
    )
    uneven = split(10000, 5, seed=3, kind="dirichlet", column_values=labels, alpha=0.01)
    assert max(int((labels[part] == 0).sum()) for part in uneven) > 4000


def test_dirichlet_accepts_text_labels() -> None:
    labels = ["a", "b", "a", "b"]
    parts = split(4, 2, seed=0, kind="dirichlet", column_values=labels)
    assert sorted(np.concatenate(parts).tolist()) == [0, 1, 2, 3]


def test_more_parts_than_rows() -> None:
    assert [len(part) for part in split(2, 4, seed=0)] == [1, 1, 0, 0]
    assert partition_indices(0, 3, 2, seed=0).tolist() == []


@pytest.mark.parametrize("kind", ["iid", "dirichlet"])
def test_other_process_finds_the_same_part(kind: str) -> None:
    options = (
        f"30, 4, 2, seed=11, kind={kind!r}, column_values=[i % 3 for i in range(30)]"
    )
    code = (
        "from flwr_dpkmeans.data.simulated.partition import partition_indices as p;"
        f" print(p({options}).tolist())"
    )
    other = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    here = partition_indices(
        30, 4, 2, seed=11, kind=kind, column_values=[i % 3 for i in range(30)]
    )
    assert other.stdout.strip() == str(here.tolist())


@pytest.mark.parametrize(
    ("numbers", "seed", "message"),
    [
        ((-1, 2, 0), 0,
         "n_rows is -1, but it must be an integer of at least 0: give for"
         " example 0."),
        ((5, 0, 0), 0, "n_parts is 0, but it must be an integer of at least 1: give for"
         " example 1."),
        ((5, 2, 2), 0,
         "part is 2, but it must be an integer from 0 to 1: give for example 0."),
        ((5, 2, -1), 0,
         "part is -1, but it must be an integer from 0 to 1: give for example 0."),
        ((5, 2, 0), -3,
         "seed is -3, but it must be an integer of at least 0: give for example 0."),
        ((5, 2.0, 0), 0,
         "n_parts is 2.0, but it must be an integer of at least 1: give for"
         " example 1."),
        ((5, True, 0), 0,
         "n_parts is True, but it must be an integer of at least 1: give for"
         " example 1."),
    ],
)  # fmt: skip
def test_numbers_out_of_range(
    numbers: tuple[Any, Any, Any], seed: int, message: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        partition_indices(*numbers, seed=seed)
    assert str(caught.value) == message


def test_unknown_kind() -> None:
    with pytest.raises(ConfigurationError) as caught:
        partition_indices(5, 2, 0, seed=0, kind="by-value")
    assert (
        str(caught.value)
        == "the partition kind is 'by-value', which is not known: did you mean"
        " 'by_value'?"
    )


@pytest.mark.parametrize("kind", ["by_value", "dirichlet", "one_client_per_value"])
@pytest.mark.parametrize(
    ("values", "message"),
    [
        (None, "needs one value per row: give the column, or choose 'iid'."),
        ([1, 2], "column_values has the shape (2,), but it must be (3,)"),
        ([1.0, np.nan, 2.0], "column_values has 1 missing values, but every row"),
    ],
)  # fmt: skip
def test_column_values(kind: str, values: Any, message: str) -> None:
    with pytest.raises(DataError) as caught:
        partition_indices(3, 2, 0, seed=0, kind=kind, column_values=values)
    assert message in str(caught.value)


@pytest.mark.parametrize("alpha", [0.0, -1.0, float("nan"), float("inf")])
def test_alpha(alpha: float) -> None:
    with pytest.raises(ConfigurationError, match=r"(greater than 0|a finite number)"):
        partition_indices(
            3, 2, 0, seed=0, kind="dirichlet", column_values=[0, 1, 2], alpha=alpha
        )


@given(
    sizes=st.lists(st.integers(0, 20), min_size=1, max_size=6),
    n_unused=st.integers(0, 10),
    seed=st.integers(0, 99),
)
def test_fixed_sizes_are_kept_and_parts_are_disjoint(
    sizes: list[int], n_unused: int, seed: int
) -> None:
    n_rows = sum(sizes) + n_unused
    parts = split(n_rows, len(sizes), seed=seed, kind="fixed_sizes", sizes=sizes)
    assert [len(part) for part in parts] == sizes
    rows = np.concatenate(parts)
    assert len(set(rows.tolist())) == sum(sizes)
    assert set(rows.tolist()) <= set(range(n_rows))
    assert all(part.dtype == np.int64 and (np.diff(part) > 0).all() for part in parts)


def test_fixed_sizes_may_take_all_rows() -> None:
    parts = split(5, 2, seed=1, kind="fixed_sizes", sizes=(2, 3))
    assert [len(part) for part in parts] == [2, 3]
    assert sorted(np.concatenate(parts).tolist()) == [0, 1, 2, 3, 4]


def test_fixed_sizes_draw_rows_at_random() -> None:
    parts = split(200, 3, seed=4, kind=Partition.FIXED_SIZES, sizes=(100, 50, 7))
    assert parts[0].tolist() != list(range(100))
    again = split(
        200, 3, seed=5, kind=Partition.FIXED_SIZES, sizes=np.array([100, 50, 7])
    )
    assert [len(part) for part in again] == [100, 50, 7]
    assert parts[2].tolist() != again[2].tolist()


@pytest.mark.parametrize(
    ("sizes", "error", "message"),
    [
        (None, ConfigurationError, "sizes is None, but the partition kind"),
        ((3,), ConfigurationError, "sizes has 1 numbers, but there are 2 parts"),
        ((3, -1), ConfigurationError, "sizes[1] is -1, but it must be an integer"),
        ((3, 2.5), ConfigurationError, "sizes[1] is 2.5, but it must be an integer"),
        ((3, 3), DataError, "but there are 5 rows: give smaller sizes or more rows."),
    ],
)  # fmt: skip
def test_sizes_that_do_not_fit(
    sizes: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error) as caught:
        partition_indices(5, 2, 0, seed=0, kind="fixed_sizes", sizes=sizes)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "values",
    [
        ["WY", "AL", "WY", "NY", "AL", "WY"],
        [56, 1, 56, 36, 1, 56],
        [9.5, 0, 9.5, 3, 0, 9.5],
    ],
)
def test_one_client_per_value(values: list[Any]) -> None:
    parts = split(6, 3, seed=0, kind="one_client_per_value", column_values=values)
    by_value = {
        value: [i for i, other in enumerate(values) if other == value]
        for value in sorted(set(values))
    }
    assert [part.tolist() for part in parts] == list(by_value.values())
    assert all(part.dtype == np.int64 for part in parts)


@pytest.mark.parametrize("n_parts", [2, 4])
def test_one_client_per_value_names_both_numbers(n_parts: int) -> None:
    with pytest.raises(DataError) as caught:
        partition_indices(
            4, n_parts, 0, seed=0, kind="one_client_per_value",
            column_values=["a", "b", "c", "a"],
        )  # fmt: skip
    assert (
        str(caught.value)
        == f"column_values has 3 distinct values, but there are {n_parts} parts and"
        " each needs one value: make it 3 parts, or choose another column."
    )


def test_sizes_are_read_from_text() -> None:
    assert parse_sizes("100, 50,7") == (100, 50, 7)
    assert parse_sizes(3) == (3,)
    with pytest.raises(ConfigurationError, match="the sizes of the parts are '1,-2'"):
        parse_sizes("1,-2")


def test_alpha_is_one_half_unless_it_is_given() -> None:
    labels = np.arange(1000) % 7
    given, usual = (
        split(1000, 3, seed=3, kind="dirichlet", column_values=labels, **alpha)
        for alpha in ({"alpha": 0.5}, {})
    )
    assert [part.tolist() for part in usual] == [part.tolist() for part in given]


def test_a_dirichlet_share_of_less_than_a_row_is_none() -> None:
    """So small a concentration gives all rows of a label to one part."""
    given: dict[str, Any] = {
        "kind": "dirichlet",
        "column_values": [5] * 9,
        "alpha": 1e-4,
    }
    sizes = {
        tuple(len(partition_indices(9, 2, part, seed=seed, **given)) for part in (0, 1))
        for seed in range(9)
    }
    assert sizes == {(0, 9), (9, 0)}
