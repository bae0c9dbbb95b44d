"""Private statistics say their values with names, and with errors that hold."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pandas as pd
import pytest

from flwr_dpkmeans import DPNaiveBayes, FederatedNaiveBayes, federate

BOUNDS = {"age": (0, 100), "kg": (30, 150)}
N_RUNS = 120


def adults(n: int = 400) -> tuple[pd.DataFrame, Any, Any]:
    """Ages and weights of two classes, and whether they smoke."""
    generator = np.random.default_rng(0)
    is_ill = generator.integers(0, 2, n).astype(bool)
    age = generator.normal(np.where(is_ill, 62.0, 40.0), 9.0)
    frame = pd.DataFrame(
        {"age": age.clip(0, 100), "kg": generator.normal(75, 10, n).clip(30, 150)}
    )
    return frame, np.where(is_ill, "ill", "well"), generator.integers(0, 2, n)


def parties(frame: pd.DataFrame) -> list[pd.DataFrame]:
    return [frame[:150], frame[150:]]


def statistic(task: str, seed: int = 0, **options: Any) -> Any:
    """A run over two parties."""
    frame, labels, _ = adults()
    run: dict[str, Any] = {
        "bounds": BOUNDS,
        "epsilon": 2.0,
        "noise": "seeded",
        "random_state": seed,
    }
    beside = {"labels": [labels[:150], labels[150:]]} if task == "naive_bayes" else {}
    return federate(task, parties(frame), engine="direct", **run | beside | options)


def test_moments_print_columns_and_errors() -> None:
    found = statistic("moments")
    assert re.search(r"^mean +age +5\d\.\d+ \+- \d", str(found), re.MULTILINE)
    assert re.search(r"^rows +\d+\.\d \+- \d\.\d$", str(found), re.MULTILINE)
    assert str(found).startswith("moments of 2 parties, epsilon 2\n")
    assert "age" in found._repr_html_()
    frame = found.values.frame()
    assert frame.columns.tolist() == ["array", "of", "value", "error"]
    assert frame["of"].tolist() == ["age", "kg", "age", "kg", ""]


def test_histograms_print_the_edges_of_bins() -> None:
    text = str(statistic("histograms", bins=4))
    assert re.search(r"^counts +age, 25 to 50 +\d+\.\d \+- \d\.\d$", text, re.MULTILINE)
    assert re.search(r"^counts +kg, 120 to 150 ", text, re.MULTILINE)
    assert "edges" not in text


def test_a_clustering_prints_columns_and_errors_once() -> None:
    found = statistic("proxy_lloyd", n_clusters=2, epsilon=20.0)
    text = str(found)
    line = r"^centroids +cluster 1, kg +\d+\.\d+ \+- \d\.\d+$"
    assert re.search(line, text, re.MULTILINE)
    assert re.search(r"^counts +cluster 0 +\d+\.\d+ \+- \d\.\d+$", text, re.MULTILINE)
    assert "cluster_centers_error" not in text
    np.testing.assert_array_equal(
        found.errors["centroids"], found["cluster_centers_error"]
    )


def test_naive_bayes_prints_the_names_of_classes() -> None:
    frame, labels, smokes = adults()
    found = statistic("naive_bayes", classes=2)
    parts, classes = parties(frame), [labels[:150], labels[150:]]
    model = FederatedNaiveBayes(bounds=BOUNDS, epsilon=2.0, engine="direct").fit(
        parts, classes
    )
    for text in (str(found), str(model.values_)):
        assert re.search(r"^theta +ill, age +\d\d\.?\d? \+- \d", text, re.MULTILINE)
    table = frame.assign(smokes=smokes)
    bounds = ((0, 30, 0), (100, 150, 1))
    alone = DPNaiveBayes(bounds=bounds, categories=[0, 0, 2], epsilon=2.0).fit(
        table, labels
    )
    assert re.search(
        r"^chances +well, smokes = 1 +0\.\d+ \+- \d", str(alone.values_), re.MULTILINE
    )
    assert alone.chances_error_.shape == alone.chances_.shape


def test_a_long_statistic_says_how_much_is_left_out() -> None:
    found = statistic("histograms", bins=100)
    assert "... and 140 more: see frame()" in str(found)
    assert len(found.values.frame()) == 200


def exact_moments() -> dict[str, Any]:
    frame, *_ = adults()
    return {
        "mean": frame.mean().to_numpy(),
        "deviation": frame.std(ddof=0).to_numpy(),
        "rows": [len(frame)],
    }


def exact_counts() -> dict[str, Any]:
    frame, *_ = adults()
    edges = [np.linspace(*BOUNDS[name], 9) for name in frame]
    return {
        "counts": [
            np.histogram(frame[name], bins)[0]
            for name, bins in zip(frame, edges, strict=True)
        ]
    }


def exact_classes() -> dict[str, Any]:
    frame, labels, _ = adults()
    groups = frame.groupby(labels)
    sizes = groups.size().to_numpy()
    return {
        "class_prior": (sizes + 1.0) / (sizes.sum() + 2.0),
        "theta": groups.mean().to_numpy(),
        "var": groups.var(ddof=0).to_numpy(),
    }


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("task", "options", "exact"),
    [
        ("moments", {}, exact_moments()),
        ("histograms", {"bins": 8}, exact_counts()),
        ("naive_bayes", {"classes": 2}, exact_classes()),
    ],
)
def test_what_rows_have_lies_within_the_errors(
    task: str, options: dict[str, Any], exact: dict[str, Any]
) -> None:
    """In 95% of the runs."""
    hits: dict[str, list[Any]] = {name: [] for name in exact}
    for seed in range(N_RUNS):
        found = statistic(task, seed, **options)
        for name, values in exact.items():
            hits[name].append(np.abs(found[name] - values) <= found.errors[name])
    shares = {name: float(np.mean(inside)) for name, inside in hits.items()}
    assert min(shares.values()) > 0.92, shares
    sums = [share for name, share in shares.items() if name not in ("var", "deviation")]
    assert max(sums) < 0.985, shares


def test_where_noise_hides_a_class_nothing_is_known_but_the_bounds() -> None:
    frame, labels, _ = adults(40)
    model = DPNaiveBayes(bounds=BOUNDS, epsilon=0.01).fit(frame, labels)
    assert model.theta_error_.tolist() == [[100.0, 120.0]] * 2
    assert np.isfinite(model.var_error_).all()
