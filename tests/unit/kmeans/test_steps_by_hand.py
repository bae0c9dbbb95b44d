"""Small steps of k-means, with numbers worked out here."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest

from flwr_dpkmeans.kernels import blocks, label_sums
from flwr_dpkmeans.kmeans import public_points
from flwr_dpkmeans.kmeans.proxies import tessellation
from flwr_dpkmeans.kmeans.public_points import usable_weights
from flwr_dpkmeans.kmeans.ranges import _with_tails, as_integers

NO_GENERATOR = cast(Any, None)


@pytest.mark.parametrize("values_each", [1, 3, 1000])
def test_a_block_is_as_long_as_its_bytes_allow(values_each: int) -> None:
    """A number has 8 bytes."""
    length = blocks.block_length(values_each)
    assert (
        length * values_each * 8 <= blocks.BLOCK_BYTES < (length + 1) * values_each * 8
    )


def test_a_few_wide_rows_are_added_without_a_table_of_all_sums(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(label_sums, "_WIDE", 4)
    monkeypatch.setattr(label_sums, "sum_by_label", None)
    sums = np.zeros((3, 4))
    label_sums.add_by_label(
        sums, np.arange(8.0).reshape(2, 4), np.array([2, 2], dtype=np.int32)
    )
    assert sums.tolist() == [[0.0] * 4, [0.0] * 4, [4.0, 6.0, 8.0, 10.0]]


def test_many_narrow_rows_are_added_by_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(label_sums, "_WIDE", 4)
    monkeypatch.setattr(
        label_sums,
        "sum_by_label",
        lambda points, labels, n_rows: np.full((n_rows, 3), 7.0),
    )
    sums = np.ones((2, 3))
    label_sums.add_by_label(sums, np.zeros((6, 3)), np.zeros(6, dtype=np.int32))
    assert sums.tolist() == [[8.0] * 3] * 2


def test_a_proxy_without_a_sample_stays_where_it_is() -> None:
    """Of three equal samples two proxies are made.

    One of them gets no sample, and is not moved to the middle.
    """
    with np.errstate(all="raise"):
        proxies = tessellation(np.full((3, 2), 0.5), 2, np.random.default_rng(0))
    assert proxies.tolist() == [[0.5, 0.5], [0.5, 0.5]]


def test_two_spheres_fit_where_their_centres_have_room() -> None:
    """On a line, centres lie in [-0.6, 0.6] for radius 0.4, and must be 0.8 apart."""
    found = [
        public_points._packed(
            2, 1, 0.4, np.random.default_rng(seed), public_points.PackingMethod.BISECT
        )
        for seed in range(10)
    ]
    gaps = [abs(packed[0, 0] - packed[1, 0]) for packed in found if packed is not None]
    assert gaps
    assert min(gaps) >= 0.8
    # In [-0.45, 0.45] no two are 1.1 apart: that is known without drawing any.
    assert (
        public_points._packed(
            2, 1, 0.55, NO_GENERATOR, public_points.PackingMethod.BISECT
        )
        is None
    )


def test_weights_that_are_too_few_are_filled_up_faintly() -> None:
    """Four weights with the mean 3: the largest remains, the others get the same small
    part of the mean.
    """
    filled = usable_weights([12.0, 0.0, -5.0, 0.0], 2)
    assert filled[0] == 12.0
    assert len(set(filled[1:])) == 1
    assert 0.0 < filled[1] < 1e-3
    assert usable_weights([0.0, -1.0], 1).tolist() == [1.0, 1.0]
    assert usable_weights([], 1).tolist() == []


def test_released_counts_become_grid_steps_of_which_sums_cannot_overflow() -> None:
    assert as_integers(np.array([0.0, 2.0, -0.5])).tolist() == [0, 2 * 2**16, -(2**15)]
    assert as_integers(np.array([1e300, -np.inf])).tolist() == [2**46, -(2**46)]


def test_a_range_reaches_to_the_last_bin_of_two_that_stand_out_together_only() -> None:
    """Bin 2 was found.

    Bins 5 and 6, and 0 and 1, have 0.8 of the threshold each: two together exceed
    sqrt(2) of it.
    """
    after = as_integers(np.array([0.0, 0.0, 9.0, 0.0, 0.0, 0.8, 0.8, 0.0, 0.0, 0.0]))
    assert _with_tails(after, (2, 2), 1.0) == (2, 6)
    before = as_integers(np.array([0.8, 0.8, 9.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]))
    assert _with_tails(before, (2, 2), 1.0) == (0, 2)
    far, between = (
        as_integers(np.array([0.0, 0.0, 9.0, 0.0, 9.0, 0.0, 2.0, 0.0, 2.0, 0.0])),
        (2, 4),
    )
    assert _with_tails(far, between, 1.0) == (2, 8)
    assert _with_tails(as_integers(np.zeros(10)), between, 1.0) == (2, 4)


def test_sums_of_rows_without_columns_have_none() -> None:
    assert label_sums.sum_by_label(
        np.zeros((3, 0)), np.array([0, 1, 1], dtype=np.int32), 2
    ).shape == (2, 0)
