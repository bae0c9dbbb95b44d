"""What is said of a centre's error where rows are pulled back to a ball."""

from __future__ import annotations

import numpy as np
import pytest

from flwr_dpkmeans.kmeans.centre_errors.cut_rows import pulled_rows
from flwr_dpkmeans.kmeans.centre_errors.intervals import WIDEST


def test_nothing_is_cut_where_no_row_is_beyond_the_ball() -> None:
    offsets = np.array([[0.5, 0.0], [0.0, 0.2]])
    assert not pulled_rows(offsets, np.array([10.0, 20.0]), 0.0).any()


def test_small_clusters_and_the_axes_that_lead_out_of_the_ball_miss_most() -> None:
    offsets = np.array([[0.5, 0.0], [0.5, 0.0]])
    cut = pulled_rows(offsets, np.array([300.0, 100.0]), 0.01)
    assert cut[1] == pytest.approx(3.0 * cut[0])
    assert (cut[:, 0] > cut[:, 1]).all()
    assert (cut > 0.0).all()


@pytest.mark.parametrize("counts", [[0.0, 0.0], [-5.0, 1e9]])
def test_noisy_counts_of_any_sign_give_no_more_than_the_box(
    counts: list[float],
) -> None:
    cut = pulled_rows(np.zeros((2, 3)), np.array(counts), 1.0)
    assert np.isfinite(cut).all()
    assert cut.max() <= WIDEST
