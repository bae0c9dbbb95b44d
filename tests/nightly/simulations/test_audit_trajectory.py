"""Rows read off trajectories: moves solved by hand, none of a private method, and the
noise is what stops it.
"""

from __future__ import annotations

import csv
import doctest
from pathlib import Path

import numpy as np
import pytest

from simulations.audit import trajectory
from simulations.audit.attack_games import load_pool, make_game, play
from simulations.audit.trajectory import (
    View,
    attack,
    clear_views,
    in_the_clear,
    informed,
    uninformed,
    view_of,
)


def view_by(labels: list[list[int]], rows: np.ndarray, centroids: np.ndarray) -> View:
    """Sums and counts of given clusters: what each round released."""
    k = centroids.shape[1]
    sums = [
        [rows[np.array(own) == cluster].sum(axis=0) for cluster in range(k)]
        for own in labels
    ]
    counts = [[own.count(cluster) for cluster in range(k)] for own in labels]
    return View(centroids, np.array(sums), np.array(counts, dtype=float), rows)


def test_examples() -> None:
    assert doctest.testmod(trajectory).failed == 0


def test_two_moves_in_one_step_that_share_a_cluster() -> None:
    # 0.125 goes from the first cluster to the second, and 0.5 from there to the third:
    # the second's count stays.
    rows = np.array([[-0.75], [-0.5], [0.125], [0.25], [0.5], [0.75], [0.875]])
    labels = [[0, 0, 0, 1, 1, 2, 2], [0, 0, 1, 1, 2, 2, 2]]
    centroids = np.array([[[-0.25], [0.5], [1.0]], [[-0.75], [0.125], [0.625]]])
    found = uninformed(view_by(labels, rows, centroids))
    assert found.named.ravel().tolist() == [0.125, 0.5]
    assert found.right.tolist() == [False, False, True, False, True, False, False]


def test_a_sum_of_rows_is_not_taken_for_a_row() -> None:
    # Won two and lost one: the change of 0.25 + 0.375 - 1 = -0.375 lies with the third
    # centroid, whence no row came.
    rows = np.array([[0.25], [0.375], [1.0], [-0.75], [-0.5], [0.9375]])
    centroids = np.array([[[0.9], [0.3], [-0.5]], [[0.3], [0.9], [-0.5]]])
    labels = [[1, 1, 0, 2, 2, 0], [0, 0, 1, 2, 2, 0]]
    view = view_by(labels, rows, centroids)
    assert uninformed(view).named.tolist() == [[1.0]]


def test_it_works_without_noise_and_fails_with_it() -> None:
    pool = trajectory.replace(load_pool("blobs"), n_clusters=8)
    plain = make_game("lloyd", 8.0, pool, with_targets=False)
    played = [play(plain, seed, None) for seed in range(2)]
    exact = attack(
        "lloyd",
        [view_of(plain, one, noisy=True) for one in played],
        noise=False,
        runs=2,
    )
    assert exact.informed >= exact.uninformed > exact.alone
    clear = attack(
        "clear",
        [view for one in played for view in clear_views(one)],
        noise=False,
        runs=2,
    )
    assert clear.uninformed > exact.uninformed
    # Even at an epsilon that protects next to nobody not a digit more than chance is
    # right.
    for algorithm in ("fastlloyd", "glloyd", "proxy_lloyd", "feddp_kmeans"):
        game = make_game(algorithm, 8.0, pool, with_targets=False)
        runs = [play(game, seed, None) for seed in range(2)]
        views = [view_of(game, one, noisy=True) for one in runs]
        assert not any(
            adversary(view).right.any()
            for view in views
            for adversary in (informed, uninformed)
        )
        # It is the noise that stops them.
        if algorithm == "glloyd":
            bare = [view_of(game, one, noisy=False) for one in runs]
            assert any(uninformed(view).right.any() for view in bare)


def test_counts_and_means_of_one_client_are_its_sums() -> None:
    rows = np.random.default_rng(0).integers(-(2**16), 2**16, (30, 2)) / 2.0**16
    view = in_the_clear(rows, rows[:3], 4)
    assert view.sums.sum(axis=1) == pytest.approx(np.tile(rows.sum(axis=0), (4, 1)))
    assert view.counts.sum(axis=1).tolist() == [30.0] * 4


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--runs", "1", "--methods", "fastlloyd", "lloyd"]
    assert trajectory.main([*words, "--output", str(tmp_path)]) == 0
    assert "centroids in the clear" in capsys.readouterr().out
    with (tmp_path / trajectory.CSV_FILE).open() as file:
        lines = list(csv.DictReader(file))
    assert [(line["method"], line["noise"]) for line in lines[2:]] == [
        ("fastlloyd", "False"),
        ("fastlloyd", "True"),
    ]
    assert (tmp_path / trajectory.PICTURE_FILE).read_bytes().startswith(b"\x89PNG")
    assert trajectory.main(["--runs", "0"]) == 2
    assert "runs is 0, but at least 1 is needed" in capsys.readouterr().err
