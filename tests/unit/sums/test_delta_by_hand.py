"""The delta of a run that names none, by hand."""

from __future__ import annotations

import math

import pytest

from flwr_dpkmeans.options import parse_config
from flwr_dpkmeans.sums.draft import resolve_delta


@pytest.mark.parametrize(
    ("n_clients", "delta"), [(2, 1e-6), (3, 1e-6), (1000, 1e-6), (200_000, 1 / (200_000 * math.log(200_000)))]
)
def test_many_clients_lower_the_delta_of_one(n_clients: int, delta: float) -> None:
    """At client level 1/(M ln M), which is below 1e-6 from some 90,000 clients on."""
    config = parse_config(
        n_clusters=2, bounds=((-1.0,), (1.0,)), algorithm="feddp_kmeans", trust="central", unit="client"
    )
    assert resolve_delta(config, n_clients) == delta
    assert 1 / (200_000 * math.log(200_000)) < 1e-6


@pytest.mark.parametrize("n_examples", [3, 500, 10**6])
def test_declared_rows_give_the_delta_of_one(n_examples: int) -> None:
    config = parse_config(n_clusters=2, bounds=((-1.0,), (1.0,)), algorithm="fastlloyd", n_examples=n_examples)
    assert resolve_delta(config, 5) == 1 / (n_examples * math.log(n_examples))
