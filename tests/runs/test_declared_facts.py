"""What is declared of the rows is held against what the run released, and only then
warned to be wrong.
"""

from __future__ import annotations

import functools
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from support.flat import flat_estimator
from test_contract import FITS, SERVER_DATA, Case

from flwr_dpkmeans import DPKMeans
from flwr_dpkmeans.algorithms.lookup import clusterings
from flwr_dpkmeans.options import own_options
from flwr_dpkmeans.sums.statement import LOCAL

BY_RECORD = [case for case in FITS if case[2] == "record"]
"""Every algorithm under every trust model that it supports."""
OF_ALL_ROWS = [case for case in BY_RECORD if case[0] != "feddp_choose_k"]
"""The one left out counts rows alone that are clear by its margin.

Fewer of them say nothing.
"""
COUNT_ROWS = ("feddp_kmeans", "server_kmeans++", "server_lloyd", "sphere_packing")
BY_CLIENT = [case for case in FITS if case[2] == "client" and case[0] in COUNT_ROWS]
"""Algorithms with rounds whose counts are of clients' rows."""
N_ROWS = 6_000
N_CLIENTS = 100


@functools.cache
def tables(n_rows: int = N_ROWS, n_clients: int = 3) -> list[NDArray[np.float64]]:
    """Three clusters, in tables of equal length."""
    generator = np.random.default_rng(5)
    centres = np.array([[-0.5, -0.5, 0.0], [1.2, 0.0, 0.5], [0.0, 1.3, 1.2]])
    rows = centres[generator.integers(0, 3, n_rows)] + generator.normal(
        0.0, 0.15, (n_rows, 3)
    )
    return np.array_split(rows, n_clients)


def against(case: Case, parts: list[NDArray[np.float64]], **declared: Any) -> str:
    """What the report of a run of one case says against it, but for exact rows."""
    algorithm, trust, unit, kind = case
    chooses = algorithm == "feddp_choose_k"
    settings: dict[str, Any] = {
        "n_clusters": "auto" if chooses else 3,
        "max_clusters": 4 if chooses else 20,
        "algorithm": algorithm,
        "trust": trust,
        "unit": unit,
        "noise_kind": kind,
        "epsilon": 3.0,
        "bounds": (-1.0, 2.0),
        "server_data": parts[0][:40] if algorithm in SERVER_DATA else None,
        "engine": "direct",
        "noise": "seeded",
        "random_state": 1,
    }
    options = own_options(settings, algorithm, clusterings()) | declared
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        km = flat_estimator(**options).fit(parts)
    return " ".join(
        sentence for sentence in km.privacy_.warnings if not sentence.startswith(LOCAL)
    )


@pytest.mark.sample(5)
@pytest.mark.parametrize("case", BY_RECORD, ids="-".join)
def test_a_true_number_of_rows_is_never_doubted(case: Case) -> None:
    assert "n_examples is declared" not in against(case, tables())


@pytest.mark.sample(5)
@pytest.mark.parametrize("case", OF_ALL_ROWS, ids="-".join)
def test_too_large_a_number_of_rows_is_told_from_the_counts(case: Case) -> None:
    warned = against(case, tables(), n_examples=10 * N_ROWS)
    assert (
        "n_examples is declared as 60,000, but the counts that the run released add up"
        " to about" in warned
    )
    assert "The guarantee holds" in warned


@pytest.mark.sample(5)
@pytest.mark.parametrize("case", OF_ALL_ROWS, ids="-".join)
def test_too_small_a_number_of_rows_is_told_from_the_counts(case: Case) -> None:
    # From twice as many on, whoever reads the sums refuses them.
    warned = against(case, tables(), n_examples=N_ROWS * 3 // 5)
    assert (
        "n_examples is declared as 3,600, but the counts that the run released add up"
        " to about" in warned
    )


def test_a_delta_that_is_too_large_for_the_rows_is_named() -> None:
    case = ("proxy_lloyd", "oblivious", "record", "gaussian")
    for delta, is_large in ((1e-6, False), (1.0 / (0.7 * N_ROWS), True)):
        warned = against(case, tables(), n_examples=N_ROWS * 3 // 5, delta=delta)
        assert ("which is not below 1/N for so many" in warned) == is_large


@pytest.mark.sample(3)
@pytest.mark.parametrize("case", BY_CLIENT, ids="-".join)
@pytest.mark.parametrize(
    ("declared", "is_doubted"), [(200, False), (2000, True), (60, True)]
)
def test_rows_of_a_client_are_held_against_the_counts(
    case: Case, declared: int, is_doubted: bool
) -> None:
    parts = tables(200 * N_CLIENTS, N_CLIENTS)
    warned = against(
        case, parts, examples_per_client=declared, epsilon=100.0, max_iter=2
    )
    sentence = (
        f"examples_per_client is {declared:,}, but by the counts that the run released"
        " a client has about"
    )
    # Where a sum of rows or the server's points set the clip bound, rows that are too
    # many are cut off before.
    hides = declared < 200 and (case[0] in SERVER_DATA or case[3] == "paper")
    assert (sentence in warned) == (is_doubted and not hides)


def test_whoever_holds_all_rows_hears_of_fewer_than_declared() -> None:
    rows = np.concatenate(tables())[:50]
    for declared, is_told in ((50, False), (500, True)):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            DPKMeans(2, epsilon=0.1, bounds=(-1.0, 2.0), n_examples=declared).fit(rows)
        warned = [str(one.message) for one in caught]
        assert (
            any("fewer rows" in one and one.startswith(LOCAL) for one in warned)
            == is_told
        )


def bounds_doubts(rows: NDArray[np.float64], bounds: Any, n_clusters: int = 3) -> str:
    """What is said against bounds by a run over one table."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = DPKMeans(
            n_clusters, epsilon=5.0, bounds=bounds, noise="seeded", random_state=0
        ).fit(rows)
    return " ".join(
        sentence for sentence in model.privacy_.warnings if "eleased centre" in sentence
    )


def test_bounds_that_cut_a_cluster_are_named() -> None:
    generator = np.random.default_rng(0)
    rows = generator.normal(
        [[20.0, 60.0], [50.0, 90.0], [80.0, 70.0]], 5.0, (20_000, 3, 2)
    ).reshape(-1, 2)
    sound = {"age": (0.0, 110.0), "kg": (30.0, 180.0)}
    narrow = sound | {"age": (0.0, 60.0)}
    frame = pd.DataFrame(rows, columns=["age", "kg"])
    assert bounds_doubts(frame, sound) == ""
    warned = bounds_doubts(frame, narrow)
    assert "'age'" in warned
    assert "kg" not in warned
    assert "are clipped" in warned
    # All ages are below a stated range, at an end that only the upper one has.
    above = bounds_doubts(frame, sound | {"age": (100.0, 200.0)})
    assert "lies at a bound of column 'age'" in above


def test_bounds_that_are_far_wider_than_all_centres_are_named() -> None:
    generator = np.random.default_rng(0)
    rows = generator.normal(
        [[20.0, 60.0], [50.0, 90.0], [80.0, 70.0]], 5.0, (20_000, 3, 2)
    ).reshape(-1, 2)
    assert "wider" in bounds_doubts(rows, (-3000.0, 3000.0))
    assert bounds_doubts(rows, (-200.0, 200.0)) == ""


@pytest.mark.sample(3)
@pytest.mark.parametrize("n_features", [1, 2, 8, 64])
def test_one_blob_of_ordinary_width_has_sound_bounds(n_features: int) -> None:
    rows = np.random.default_rng(1).normal(0.0, 1.0, (20_000, n_features))
    assert bounds_doubts(rows, (-5.0, 5.0), 4) == ""


@pytest.mark.parametrize("n_clusters", [5, 10, 20])
def test_rows_that_are_spread_up_to_their_bounds_have_sound_ones(
    n_clusters: int,
) -> None:
    """Of twenty centres the outermost lies within a fortieth of the bound."""
    generator = np.random.default_rng(3)
    spread = generator.uniform(-2.0, 2.0, (20_000, 1))
    skewed = np.minimum(generator.exponential(0.4, (20_000, 1)) - 2.0, 2.0)
    for rows in (spread, skewed):
        assert bounds_doubts(rows, (-2.0, 2.0), n_clusters) == ""


def test_values_that_cannot_lie_beyond_their_bounds_are_sound() -> None:
    """Shares, flags and amounts often lie at 0, at 1 or at all."""
    generator = np.random.default_rng(2)
    flags = generator.integers(0, 2, (20_000, 3)).astype(float)
    assert bounds_doubts(flags, (0.0, 1.0), 4) == ""
    amounts = np.where(flags > 0.5, 0.0, generator.uniform(20.0, 100.0, flags.shape))
    assert bounds_doubts(amounts, (0.0, 100.0), 4) == ""
