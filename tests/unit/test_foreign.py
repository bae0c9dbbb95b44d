"""An algorithm and a trust model of somebody else's: registered here, run through every engine, told in the report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from flwr_dpkmeans import algorithms
from flwr_dpkmeans.algorithms.lloyd_family import Public
from flwr_dpkmeans.algorithms.noise_budget import ReleasePart, allocate
from flwr_dpkmeans.errors import ConfigurationError, PlanError, ProtocolError
from flwr_dpkmeans.estimator import FederatedKMeans
from flwr_dpkmeans.kmeans.assignment import nearest_centroids
from flwr_dpkmeans.kmeans.update import round_to_grid
from flwr_dpkmeans.privacy.noise import NoiseSource
from flwr_dpkmeans.privacy.release import Block, NoiseShape, Norm, PrivacyUnit, ReleasedSum, Sensitivity
from flwr_dpkmeans.secagg.ring import AggregateVector
from flwr_dpkmeans.sums import trust
from flwr_dpkmeans.sums.draft import build_algorithm, draft_plan
from flwr_dpkmeans.sums.neighbours import check_sensitivity
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.plausible import require_plausible
from flwr_dpkmeans.sums.round import Algorithm, ClusterState, PrivateSum
from flwr_dpkmeans.sums.trust import Broadcast, Shares, TrustModel, as_released, with_noise
from flwr_dpkmeans.sums.verify import verify_plan

Array = NDArray[np.float64]
BALLOT = "one row casts one ballot"
PULL = "one row pulls its cluster by at most 1 along each axis"


# -- an algorithm in one file -------------------------------------------------------------------------------------


def build_votes(public: Public) -> Algorithm:
    """Rows vote for the nearest centroid and pull it by the signs of their differences."""
    k, d = public.config.n_clusters, public.n_features
    ballots = Sensitivity(Norm.L2, 1.0, PrivacyUnit.RECORD, BALLOT, nonnegative=True)
    pulls = Sensitivity(Norm.L2, float(d), PrivacyUnit.RECORD, PULL)
    parts = [ReleasePart("ballots", (k,), ballots, 1.0, 1.0), ReleasePart("pulls", (k, d), pulls, 2.0, 1.0)]

    def statistic(points: Array, state: ClusterState) -> Sequence[Array]:
        labels, _ = nearest_centroids(points, state.centroids)
        cast, pulled = np.zeros(k), np.zeros((k, d))
        np.add.at(cast, labels, 1.0)
        np.add.at(pulled, labels, np.sign(points - state.centroids[labels]))
        return [cast, pulled]

    def advance(state: ClusterState, released: ReleasedSum) -> ClusterState:
        steps = released["pulls"] / np.maximum(released["ballots"], 1.0)[:, None]
        moved = round_to_grid(np.clip(state.centroids + 0.1 * np.clip(steps, -1.0, 1.0), -1.0, 1.0))
        return ClusterState(moved, released["ballots"], (*state.movements, 0.1))

    def start(seed: int, server_points: Array | None = None, /) -> ClusterState:
        return ClusterState(round_to_grid(np.random.default_rng(seed).uniform(-0.5, 0.5, (k, d))), np.zeros(k))

    rounds = tuple(
        PrivateSum(f"vote-{i}", blocks, statistic, advance) for i, blocks in enumerate(allocate(public, [parts] * 2), 1)
    )
    return Algorithm("votes", rounds, start)


def build_twins(public: Public) -> Algorithm:
    """The same with one name for two arrays."""
    votes = build_votes(public)
    twins = tuple(replace(block, name="ballots") for block in votes.rounds[0].blocks)
    return replace(votes, rounds=(replace(votes.rounds[0], blocks=twins),))


def build_mute(public: Public) -> Algorithm:
    """The same without a word on why its bounds hold."""
    votes = build_votes(public)
    mute = tuple(replace(block, sensitivity=replace(block.sensitivity, because="")) for block in votes.rounds[0].blocks)
    return replace(votes, rounds=tuple(replace(one, blocks=mute) for one in votes.rounds))


class Notary(TrustModel):
    """Somebody adds the noise and publishes the sum."""

    name = "notary"
    blinded = False
    server_reads = True
    shared_noise = False
    proofs = "the notary's page, section 3,"

    def guarantee(self, shares: Shares) -> str:
        return f"A notary adds the noise for {shares.n_clients} clients."

    def broadcast(
        self, aggregate: AggregateVector, blocks: Sequence[Block], fraction_bits: int, source: NoiseSource
    ) -> Broadcast:
        values = with_noise(aggregate, blocks, fraction_bits, source)
        return Broadcast(values, as_released(values, blocks, fraction_bits))


class MuteNotary(Notary):
    name = "mute"
    proofs = ""


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    own = {
        name: algorithms.AlgorithmEntry(
            build,
            NoiseShape.GAUSSIAN,
            tuple(PrivacyUnit),
            counts,
            "votes of rows",
            trust="notary",
            options=frozenset({"client_sampling_rate", "examples_per_client"}),
        )
        for name, build, counts in (
            ("votes", build_votes, False),
            ("mute", build_mute, True),
            ("twins", build_twins, False),
        )
    }
    models = {model.name: model for model in (Notary(), MuteNotary())}
    monkeypatch.setattr(algorithms, "ALGORITHMS", MappingProxyType({**algorithms.ALGORITHMS, **own}))
    monkeypatch.setattr(trust, "TRUST_MODELS", MappingProxyType({**trust.TRUST_MODELS, **models}))


def parts() -> list[Array]:
    generator = np.random.default_rng(5)
    middles = np.repeat([[-0.6, 0.4], [0.5, -0.5]], 150, axis=0)
    return [np.clip(middles + generator.normal(0.0, 0.1, middles.shape), -1.0, 1.0) for _ in range(3)]


def estimator(**values: Any) -> FederatedKMeans:
    settings: dict[str, Any] = {"algorithm": "votes", "epsilon": 5.0, "bounds": (-1.0, 1.0)}
    return FederatedKMeans(2, **settings | values)


def plan_of(**values: Any) -> Plan:
    settings: dict[str, Any] = {"n_clusters": 2, "algorithm": "votes", "epsilon": 5.0, "bounds": ((-1.0,), (1.0,))}
    config = algorithms.parse_run(**settings | {"n_examples": 900} | values)
    return draft_plan(config, run_id=1, n_clients=3, seed=7, n_features=2)


# -- runs ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["direct", "inprocess"])
@pytest.mark.parametrize("model", ["notary", "oblivious", "distributed"])
def test_a_foreign_algorithm_and_trust_model_run_to_the_report(engine: str, model: str) -> None:
    found = estimator(engine=engine, trust=model, evaluation="private").fit(parts())
    report = found.privacy_
    assert report.is_private
    assert report.epsilon <= 5.0
    lines = {line.array: line.theorem for line in report.releases if line.round_name != "evaluation"}
    own = "[M1, M3, M4]." if model == "distributed" else "[M1, M3]."
    assert (
        lines["ballots"] == f"{BALLOT}; Gaussian mechanism, (1/multiplier)-GDP (Dong, Roth, Su 2022, Theorem 1) {own}"
    )
    assert lines["pulls"].startswith(f"{PULL}; ")
    if model == "notary":
        assert report.guarantee.startswith("A notary adds the noise for 3 clients. Proofs: the notary's page, section")
    assert found.predict(parts()[0]).shape == (300,)
    assert report.to_dict()["trust"] == model
    assert "ballots" in str(report)


@pytest.mark.parametrize("engine", ["direct", "inprocess"])
@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"algorithm": "mute"}, "the sensitivity of 'ballots' is 1, but nothing says why it is no larger: give"),
        ({"algorithm": "twins"}, "round 'vote-1' releases two arrays of one name, but only the last of them could"),
        # Not even for a private count.
        (
            {"algorithm": "mute", "n_examples": "private"},
            "the sensitivity of 'ballots' is 1, but nothing says why it is no larger: give",
        ),
        ({"trust": "mute"}, "the trust model 'mute' does not say what it guarantees and where that is proved: give"),
    ],
)
def test_what_cannot_say_why_it_is_private_is_refused_before_anything_is_sent(
    engine: str, values: dict[str, Any], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[object] = []
    monkeypatch.setattr("flwr_dpkmeans.node.guard.NodeGuard.charge", lambda *args: sent.append(args))
    with pytest.raises(PlanError, match=sentence):
        estimator(engine=engine, **values).fit(parts())
    assert not sent


def test_what_follows_from_a_count_is_not_sampled() -> None:
    sentence = "client_sampling_rate is 0.5, but 'mute' makes a private count that its rounds follow from"
    with pytest.raises(ConfigurationError, match=sentence):
        plan_of(algorithm="mute", unit="client", client_sampling_rate=0.5, n_examples=None)


def test_a_client_takes_no_reason_from_the_server_but_its_own() -> None:
    plan = plan_of()
    verify_plan(plan)
    first = plan.rounds[0]
    for other in ({"because": "S2: one row lies in at most one cluster"}, {"nonnegative": False}, {"because": ""}):
        block = replace(first.blocks[0], sensitivity=replace(first.blocks[0].sensitivity, **other))
        with pytest.raises(ProtocolError, match="has other sensitivities"):
            verify_plan(replace(plan, rounds=(replace(first, blocks=(block, *first.blocks[1:])), *plan.rounds[1:])))


def test_the_foreign_bounds_hold_and_the_server_knows_what_is_not_negative() -> None:
    plan = plan_of()
    step = build_algorithm(plan).rounds[0]
    state = step_state(plan)
    assert check_sensitivity(step.blocks, lambda rows: step.statistic(rows, state), 2)["ballots"] == 1.0
    words = np.zeros(step.length, dtype=np.int64)
    words[0] = -(10**9)
    with pytest.raises(ProtocolError, match="1 of 2 entries of 'ballots'"):
        require_plausible(plan, 1, as_released(words.view(np.uint64), step.blocks, 16), n_clients=3)


def step_state(plan: Plan) -> ClusterState:
    return build_algorithm(plan).initial_state(plan.seed, None)
