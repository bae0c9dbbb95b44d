"""One contract for every algorithm under every trust model."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from support.cases import OF_PARTIES
from support.protocol_federation import (
    Federation,
    Words,
    count_readable,
    grid_parts,
    make_federation,
    plain_lloyd,
    received_vectors,
    small_config,
    start_of,
    without_identities,
)
from support.wrong_trust import plant_noise

from flwr_dpkmeans.algorithms.lookup import clusterings
from flwr_dpkmeans.errors import ConfigurationError, PlanError
from flwr_dpkmeans.privacy.release import NoiseShape, vector_length
from flwr_dpkmeans.sums.draft import draft_plan
from flwr_dpkmeans.sums.trust import trust_model

SIZES = (120, 80, 0, 60, 40)
LLOYD_FAMILY = ("fastlloyd", "glloyd", "sulloyd", "lloyd")
LAPLACE = [
    name for name, entry in clusterings().items() if entry.noise is NoiseShape.LAPLACE
]
COMBINATIONS = list(itertools.product(LLOYD_FAMILY, OF_PARTIES))
UNSUPPORTED = [(algorithm, "distributed") for algorithm in LAPLACE]
SUPPORTED = [pair for pair in COMBINATIONS if pair not in UNSUPPORTED]


def planted(n_clients: int, scale: float) -> Any:
    """Noise that is the same in total whoever adds it."""
    counters = {"server": 0, "clients": 0}

    def draw(
        blocks: Any, source: Any, fraction_bits: int, *, share: float = 1.0
    ) -> Words:
        # Only the trust model with shared noise draws with a share, even if that is 1.
        who = "clients" if share != 1.0 else "server"
        position = counters[who]
        counters[who] += 1
        size = vector_length(blocks)
        if who == "clients" and position % n_clients:
            return np.zeros(size, dtype=np.uint64)
        index = position // n_clients if who == "clients" else position
        noise = (
            np.random.default_rng(index).normal(0.0, scale, size) * 2.0**fraction_bits
        )
        return np.rint(noise).astype(np.int64).view(np.uint64)

    return draw


def run(
    monkeypatch: pytest.MonkeyPatch, algorithm: str, trust: str, scale: float,
    **values: Any,
) -> Federation:  # fmt: skip
    plant_noise(monkeypatch, planted(len(SIZES), scale))
    federation = make_federation(grid_parts(SIZES))
    federation.start(
        small_config(
            **({"algorithm": algorithm, "trust": trust, "epsilon": 3.0} | values)
        )
    )
    return federation


def results(federation: Federation) -> Iterator[tuple[Any, Any]]:
    for client in federation.clients.values():
        assert client.cluster_centers_ is not None
        yield client.cluster_centers_, client.counts_


@pytest.mark.parametrize("algorithm", LLOYD_FAMILY)
def test_the_same_noise_gives_the_same_centroids_under_every_trust_model(
    monkeypatch: pytest.MonkeyPatch, algorithm: str
) -> None:
    found = {}
    for name, trust in SUPPORTED:
        if name == algorithm:
            federation = run(monkeypatch, algorithm, trust, 3.0)
            centroids, counts = next(results(federation))
            for other, other_counts in results(federation):
                assert np.array_equal(centroids, other)
                assert np.array_equal(counts, other_counts)
            found[trust] = centroids
    assert len(found) >= 2
    first, *others = found.values()
    assert all(np.array_equal(first, other) for other in others)
    # The noise did something, and other noise does something else.
    exact = next(results(run(monkeypatch, algorithm, "oblivious", 0.0)))[0]
    more = next(results(run(monkeypatch, algorithm, "oblivious", 3.5)))[0]
    assert not np.array_equal(first, exact)
    assert not np.array_equal(first, more)


# FastLloyd without noise is Lloyd's algorithm if its radius drops and clips nothing.
WIDE = {"fastlloyd": {"alpha": 50.0, "schedule": "constant"}}


@pytest.mark.parametrize(("algorithm", "trust"), SUPPORTED)
def test_no_noise_is_plain_lloyd(
    monkeypatch: pytest.MonkeyPatch, algorithm: str, trust: str
) -> None:
    federation = run(
        monkeypatch, algorithm, trust, 0.0, max_iter=5, **WIDE.get(algorithm, {})
    )
    centroids, counts = plain_lloyd(start_of(federation.plan), [grid_parts(SIZES)] * 5)
    for own_centroids, own_counts in results(federation):
        assert np.array_equal(own_centroids, centroids)
        assert np.array_equal(own_counts, counts)


@pytest.mark.parametrize("trust", OF_PARTIES)
def test_lloyd_needs_no_patch_to_be_plain(trust: str) -> None:
    """The plan itself has no noise, and says that nobody is protected."""
    parts = grid_parts((90, 110), n_features=4, seed=5)
    federation = make_federation(parts)
    result = federation.start(
        n_clusters=5, n_features=4, algorithm="lloyd", trust=trust, n_examples=None,
        max_iter=7, random_state=2,
    )  # fmt: skip
    centroids, counts = plain_lloyd(start_of(federation.plan), [parts] * 7)
    for own_centroids, own_counts in results(federation):
        assert np.array_equal(own_centroids, centroids)
        assert np.array_equal(own_counts, counts)
    assert not result.privacy.is_private
    assert result.privacy.epsilon == float("inf")
    assert result.privacy.warnings


@pytest.mark.parametrize(("algorithm", "trust"), SUPPORTED)
def test_the_server_has_centroids_only_where_it_may(algorithm: str, trust: str) -> None:
    federation = make_federation(grid_parts(SIZES))
    result = federation.start(algorithm=algorithm, trust=trust, epsilon=3.0)
    assert trust_model(trust).server_reads is (trust != "oblivious")
    if trust == "oblivious":
        assert len(result.arrays) == 0
        assert all(step.movement is None for step in result.steps)
        assert not any(
            "movement" in metrics for metrics in result.train_metrics_clientapp.values()
        )
    else:
        client = federation.clients[2]
        assert np.array_equal(
            result.arrays["centroids"].numpy(), client.cluster_centers_
        )
        assert np.array_equal(result.arrays["counts"].numpy(), client.counts_)
        assert tuple(step.movement for step in result.steps) == client.state_.movements
    for client in federation.clients.values():
        assert client.privacy_ is not None
        assert without_identities(client.privacy_) == without_identities(result.privacy)
    assert result.privacy.trust == trust
    if result.privacy.is_private:
        assert result.privacy.guarantee.startswith(
            trust_model(trust).guarantee(federation.plan.shares)
        )
    else:
        assert "not private" in result.privacy.guarantee


@pytest.mark.parametrize(("algorithm", "trust"), SUPPORTED)
def test_the_number_of_messages_is_fixed(algorithm: str, trust: str) -> None:
    """T + 2 round trips, and one more for a private count."""
    for n_examples in (300, None):
        federation = make_federation(grid_parts(SIZES))
        federation.start(
            algorithm=algorithm, trust=trust, epsilon=3.0, n_examples=n_examples
        )
        plan = federation.plan
        n_counts = int(n_examples is None and clusterings()[algorithm].needs_n_examples)
        assert (plan.count is not None) == bool(n_counts)
        assert len(federation.grid.received) == (plan.last_round + 2 + n_counts) * len(
            SIZES
        )


@pytest.mark.parametrize(("algorithm", "trust"), UNSUPPORTED)
def test_unsupported_combinations_are_refused_with_the_nearest_supported_one(
    algorithm: str, trust: str
) -> None:
    federation = make_federation(grid_parts(SIZES))
    with pytest.raises(PlanError) as caught:
        federation.start(algorithm=algorithm, trust=trust)
    text = str(caught.value)
    assert f"'{trust}'" in text
    for suggestion in ("'oblivious'", "'central'", "'glloyd'"):
        assert suggestion in text
    assert federation.grid.received == []
    assert federation.charges() == 0
    # What the sentence proposes works.
    for other_algorithm, other_trust in (
        (algorithm, "oblivious"),
        (algorithm, "central"),
        ("glloyd", trust),
    ):
        draft_plan(
            small_config(algorithm=other_algorithm, trust=other_trust), run_id=1,
            n_clients=2, seed=1, n_features=2,
        )  # fmt: skip


@pytest.mark.parametrize(
    "name", ["oblivous", "centralized", "distribute", "OBLIVIOUS", ""]
)
def test_unknown_trust_models_are_refused_with_the_nearest_name(name: str) -> None:
    federation = make_federation(grid_parts(SIZES))
    with pytest.raises(ConfigurationError, match=r"did you mean '\w+'\?|choose one of"):
        federation.start(trust=name)
    assert federation.grid.received == []


def test_client_level_privacy_is_refused_where_it_is_not_supported() -> None:
    for algorithm in LLOYD_FAMILY:
        federation = make_federation(grid_parts(SIZES))
        with pytest.raises(ConfigurationError, match="choose unit='record'"):
            federation.start(algorithm=algorithm, unit="client")


def test_every_trust_model_masks() -> None:
    """No model lets the server see one client's statistic."""
    for algorithm, trust in SUPPORTED:
        federation = make_federation(grid_parts((60, 80, 70)))
        federation.start(algorithm=algorithm, trust=trust, epsilon=3.0, n_examples=None)
        vectors = received_vectors(federation.grid.received)
        assert len(vectors) >= 2
        for by_node in vectors.values():
            for size in (1, 2):
                for nodes in itertools.combinations(by_node, size):
                    total = np.sum(
                        [by_node[node] for node in nodes], axis=0, dtype=np.uint64
                    )
                    assert count_readable(total) == 0, (algorithm, trust, nodes)
