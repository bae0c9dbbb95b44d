"""The delta of a run that names none, by hand."""

from __future__ import annotations

import math

import pytest

from flwr_dpkmeans.errors import ConfigurationError
from flwr_dpkmeans.options import parse_config
from flwr_dpkmeans.sums import draft
from flwr_dpkmeans.sums.price import resolve_delta


@pytest.mark.parametrize(
    ("n_clients", "delta"),
    [
        (1, 1e-6),
        (2, 1e-6),
        (3, 1e-6),
        (1000, 1e-6),
        (200_000, 1 / (200_000 * math.log(200_000))),
    ],
)
def test_many_clients_lower_the_delta_of_one(n_clients: int, delta: float) -> None:
    """At client level 1/(M ln M), which is below 1e-6 from some 90,000 clients on."""
    config = parse_config(
        n_clusters=2, bounds=((-1.0,), (1.0,)), algorithm="feddp_kmeans",
        trust="central", unit="client",
    )  # fmt: skip
    assert resolve_delta(config, n_clients) == delta
    assert 1 / (200_000 * math.log(200_000)) < 1e-6


@pytest.mark.parametrize("n_examples", [3, 500, 10**6])
def test_declared_rows_give_the_delta_of_one(n_examples: int) -> None:
    config = parse_config(
        n_clusters=2,
        bounds=((-1.0,), (1.0,)),
        algorithm="fastlloyd",
        n_examples=n_examples,
    )
    assert resolve_delta(config, 5) == 1 / (n_examples * math.log(n_examples))
    for n_rows in (1, 2):
        with pytest.raises(
            ConfigurationError,
            match=rf"n_examples is {n_rows}, but 1/\(N ln N\) needs at least 3",
        ):
            resolve_delta(config.changed(n_examples=n_rows, n_clusters=1), 5)


@pytest.mark.parametrize(("n_clients", "most"), [(3, 1), (4, 2), (10, 8)])
def test_two_clients_must_be_heard(n_clients: int, most: int) -> None:
    config = parse_config(
        n_clusters=2, bounds=((-1.0,), (1.0,)), n_examples=1_000, max_silent=most
    )
    assert draft.resolve_max_silent(config, n_clients) == most
    config = parse_config(
        n_clusters=2, bounds=((-1.0,), (1.0,)), n_examples=1_000, max_silent=most + 1
    )
    with pytest.raises(
        ConfigurationError,
        match=f"with {n_clients} clients at most {most} may be silent or collude",
    ):
        draft.resolve_max_silent(config, n_clients)
