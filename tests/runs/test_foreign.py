"""An algorithm and a trust model of somebody else's.

Registered here, run through every engine, told in the report.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from support.flat import flat_estimator
from support.watching import watch

from flwr_dpkmeans import FederatedKMeans
from flwr_dpkmeans.algorithms.budget.noise_budget import allocate
from flwr_dpkmeans.algorithms.budget.noise_kinds import ReleasePart
from flwr_dpkmeans.algorithms.kmeans_task import KMeansTask
from flwr_dpkmeans.algorithms.states.cluster_states import cluster_state
from flwr_dpkmeans.algorithms.statistics.moments_task import MomentsTask
from flwr_dpkmeans.errors import ConfigurationError, PlanError, ProtocolError
from flwr_dpkmeans.estimators.federate import federate
from flwr_dpkmeans.kernels.assignment import nearest_centroids
from flwr_dpkmeans.kernels.grid import round_to_grid
from flwr_dpkmeans.node.guard import NodeGuard
from flwr_dpkmeans.options import read_config
from flwr_dpkmeans.privacy.noise import NoiseSource
from flwr_dpkmeans.privacy.release import (
    Block,
    Norm,
    PrivacyUnit,
    ReleasedSum,
    Sensitivity,
    as_released,
    vector_length,
)
from flwr_dpkmeans.secagg.ring import AggregateVector
from flwr_dpkmeans.sums.build import build_algorithm
from flwr_dpkmeans.sums.checks.neighbours import check_sensitivity
from flwr_dpkmeans.sums.checks.plausible import require_plausible
from flwr_dpkmeans.sums.checks.verify import verify_plan
from flwr_dpkmeans.sums.draft import draft_plan
from flwr_dpkmeans.sums.local import run_direct
from flwr_dpkmeans.sums.option_rules import Options, real, whole
from flwr_dpkmeans.sums.outcome import Result
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.public_facts import PublicFacts
from flwr_dpkmeans.sums.registry import Registry
from flwr_dpkmeans.sums.round import Algorithm, PrivateSum, State
from flwr_dpkmeans.sums.statement import build_report
from flwr_dpkmeans.sums.task import TASKS, Task, register, require_free_names
from flwr_dpkmeans.sums.trust import (
    TRUST_MODELS,
    Broadcast,
    Shares,
    TrustModel,
    register_trust,
)
from flwr_dpkmeans.sums.wire import dump_plan, load_plan


@dataclass(frozen=True)
class _FixedOptions(Options):
    max_iter: int = whole(3, 1, 3, "rounds")


Array = NDArray[np.float64]
BALLOT = "one row casts one ballot"
PULL = "one row pulls its cluster by at most 1 along each axis"


# -- an algorithm in one file ----------------------------------------------------------


@dataclass(frozen=True)
class VotesOptions(Options):
    pull: float = real(0.1, 0.0, 1.0, "0.1", "length of a step")


@dataclass(frozen=True, kw_only=True)
class Votes(KMeansTask):
    """Rows vote for the nearest centroid, and pull it by signs of differences."""

    name = "votes"
    units = tuple(PrivacyUnit)
    trust = "notary"
    options: VotesOptions = VotesOptions()

    def build(self, public: PublicFacts) -> Algorithm:
        k, d, pull = self.n_clusters, public.n_features, self.options.pull
        ballots = Sensitivity(
            Norm.L2, 1.0, PrivacyUnit.RECORD, BALLOT, nonnegative=True
        )
        pulls = Sensitivity(Norm.L2, float(d), PrivacyUnit.RECORD, PULL)
        parts = [
            ReleasePart("ballots", (k,), ballots, 1.0, 1.0),
            ReleasePart("pulls", (k, d), pulls, 2.0, 1.0),
        ]

        def statistic(points: Array, state: State) -> Sequence[Array]:
            labels, _ = nearest_centroids(points, state.centroids)
            cast, pulled = np.zeros(k), np.zeros((k, d))
            np.add.at(cast, labels, 1.0)
            np.add.at(pulled, labels, np.sign(points - state.centroids[labels]))
            return [cast, pulled]

        def advance(state: State, released: ReleasedSum) -> State:
            steps = released["pulls"] / np.maximum(released["ballots"], 1.0)[:, None]
            moved = round_to_grid(
                np.clip(state.centroids + pull * np.clip(steps, -1.0, 1.0), -1.0, 1.0)
            )
            return cluster_state(moved, released["ballots"], (*state.movements, pull))

        def start(seed: int, server_points: Array | None = None, /) -> State:
            return cluster_state(
                round_to_grid(np.random.default_rng(seed).uniform(-0.5, 0.5, (k, d))),
                np.zeros(k),
            )

        rounds = tuple(
            PrivateSum(f"vote-{i}", blocks, statistic, advance)
            for i, blocks in enumerate(allocate(public, [parts] * 2), 1)
        )
        return Algorithm(self.name, rounds, start)


@dataclass(frozen=True, kw_only=True)
class Twins(Votes):
    """The same with one name for two arrays."""

    name = "twins"

    def build(self, public: PublicFacts) -> Algorithm:
        votes = super().build(public)
        twins = tuple(
            replace(block, name="ballots") for block in votes.rounds[0].blocks
        )
        return replace(votes, rounds=(replace(votes.rounds[0], blocks=twins),))


@dataclass(frozen=True, kw_only=True)
class Mute(Votes):
    """The same without a word on why its bounds hold."""

    name = "mute"
    needs_n_examples = True

    def build(self, public: PublicFacts) -> Algorithm:
        votes = super().build(public)
        mute = tuple(
            replace(block, sensitivity=replace(block.sensitivity, because=""))
            for block in votes.rounds[0].blocks
        )
        return replace(
            votes, rounds=tuple(replace(one, blocks=mute) for one in votes.rounds)
        )


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
        self,
        aggregate: AggregateVector,
        blocks: Sequence[Block],
        fraction_bits: int,
        source: NoiseSource,
    ) -> Broadcast:
        values = aggregate.values + self.draw(blocks, source, fraction_bits)
        return Broadcast(values, as_released(values, blocks, fraction_bits))


class MuteNotary(Notary):
    name = "mute"
    proofs = ""


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    tasks, models = (Votes, Mute, Twins), (Notary(), MuteNotary())
    for task in tasks:
        register(task)
    for model in models:
        register_trust(model)
    yield
    for task in tasks:
        TASKS.pop(task.name)
    for model in models:
        TRUST_MODELS.pop(model.name)


def parts() -> list[Array]:
    generator = np.random.default_rng(5)
    middles = np.repeat([[-0.6, 0.4], [0.5, -0.5]], 150, axis=0)
    return [
        np.clip(middles + generator.normal(0.0, 0.1, middles.shape), -1.0, 1.0)
        for _ in range(3)
    ]


def estimator(**values: Any) -> FederatedKMeans:
    settings: dict[str, Any] = {
        "algorithm": "votes",
        "epsilon": 5.0,
        "bounds": (-1.0, 1.0),
    }
    return flat_estimator(2, **settings | values)


def plan_of(**values: Any) -> Plan:
    settings: dict[str, Any] = {
        "n_clusters": 2,
        "algorithm": "votes",
        "epsilon": 5.0,
        "bounds": ((-1.0,), (1.0,)),
    }
    given = settings | {"n_examples": 900} | values
    config = read_config(
        **{
            name: value
            for name, value in given.items()
            if name != "n_clusters" or value is not None
        }
    )
    return draft_plan(config, run_id=1, n_clients=3, seed=7, n_features=2)


# -- before anybody pays ---------------------------------------------------------------


def _wrong_advance(self: Votes, public: PublicFacts) -> Algorithm:
    """As a quotient of two sums is, where the second may be 0."""
    votes = Votes.build(self, public)

    def advance(state: State, released: ReleasedSum) -> State:
        return replace(state, movements=(1.0 / int(released["ballots"][0]),))

    return replace(
        votes, rounds=tuple(replace(one, advance=advance) for one in votes.rounds)
    )


def _raising(*_: Any) -> Any:
    raise KeyError("means")


FAULTS: dict[str, tuple[str, Any, str]] = {
    "advance": (
        "build",
        _wrong_advance,
        "'advance' where releases are zeros .ZeroDivisionError: ",
    ),
    "result": (
        "result",
        _raising,
        "'result' where releases are zeros .KeyError: 'means'",
    ),
    "no-result": (
        "result",
        lambda *_: {},
        "'result' where releases are zeros .it returns {}, which is no Result",
    ),
    "doubts": (
        "doubts",
        _raising,
        "'doubts' where releases are zeros .KeyError: 'means'",
    ),
    "text": (
        "doubts",
        lambda *_: "few rows",
        "'doubts' where .* returns 'few rows', which is no tuple of sentences",
    ),
    "cautions": (
        "cautions",
        _raising,
        "'cautions' where releases are zeros .KeyError: 'means'",
    ),
}


@pytest.mark.parametrize("counted", [False, True])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_task_that_would_fail_after_a_release_is_refused_before_one(
    fault: str, counted: bool
) -> None:
    method, function, sentence = FAULTS[fault]
    members = {
        method: function,
        "name": f"faulty-{fault}",
        "needs_n_examples": True,
        "__module__": __name__,
    }
    task = dataclass(frozen=True, kw_only=True)(type("Faulty", (Votes,), members))
    TASKS.add(task.name, task)
    try:
        with pytest.raises(PlanError, match=sentence):
            plan_of(algorithm=task.name, n_examples=None if counted else 900)
    finally:
        TASKS.pop(task.name)


@dataclass(frozen=True, kw_only=True)
class Relay(Votes):
    """Seven rounds, each of which needs what the one before it made."""

    name = "relay"

    def build(self, public: PublicFacts) -> Algorithm:
        votes = super().build(public)
        blocks = tuple(
            replace(block, noise_multiplier=2.0 * block.noise_multiplier)
            for block in votes.rounds[0].blocks
        )

        def passing_on(index: int) -> Callable[[State, ReleasedSum], State]:
            def advance(state: State, _: ReleasedSum) -> State:
                before = state[f"made-{index - 1}"] if index else np.zeros(1)
                return state.changed(**{f"made-{index}": before})

            return advance

        rounds = [
            replace(votes.rounds[0], name=f"vote-{i}", blocks=blocks, advance=advance)
            for i, advance in enumerate(map(passing_on, range(7)), start=1)
        ]
        return replace(votes, rounds=tuple(rounds))


def test_a_task_whose_rounds_need_each_other_is_not_refused() -> None:
    TASKS.add(Relay.name, Relay)
    try:
        assert plan_of(algorithm=Relay.name, n_examples=900).last_round == 7
    finally:
        TASKS.pop(Relay.name)


# -- runs ------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["direct", "inprocess"])
@pytest.mark.parametrize("model", ["notary", "oblivious", "distributed"])
def test_a_foreign_algorithm_and_trust_model_run_to_the_report(
    engine: str, model: str
) -> None:
    found = estimator(engine=engine, trust=model, evaluation="private").fit(parts())
    report = found.privacy_
    assert report.is_private
    assert report.epsilon <= 5.0
    lines = {
        line.array: line.theorem
        for line in report.releases
        if line.round_name != "evaluation"
    }
    own = "[M1, M3, M4]." if model == "distributed" else "[M1, M3]."
    assert (
        lines["ballots"]
        == f"{BALLOT}; Gaussian mechanism, (1/multiplier)-GDP (Dong, Roth, Su 2022,"
        f" Theorem 1) {own}"
    )
    assert lines["pulls"].startswith(f"{PULL}; ")
    if model == "notary":
        assert report.guarantee.startswith(
            "A notary adds the noise for 3 clients. Proofs: the notary's page, section"
        )
    assert found.predict(parts()[0]).shape == (300,)
    assert report.to_dict()["trust"] == model
    assert "ballots" in report.details()


@pytest.mark.parametrize("engine", ["direct", "inprocess"])
@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"algorithm": "mute"}, "the sensitivity of 'ballots' is 1, but nothing says"),
        ({"algorithm": "twins"}, "round 'vote-1' releases two arrays of one name,"),
        # Not even for a private count.
        ({"algorithm": "mute", "n_examples": "private"}, "why it is no larger: give"),
        ({"trust": "mute"}, "the trust model 'mute' does not say what it guarantees"),
    ],
)
def test_what_cannot_say_why_it_is_private_is_refused_before_anything_is_sent(
    engine: str, values: dict[str, Any], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch(NodeGuard.charge, begin=lambda _: pytest.fail("something was charged"))
    with pytest.raises(PlanError, match=sentence):
        estimator(engine=engine, **values).fit(parts())


def test_what_follows_from_a_count_is_not_sampled() -> None:
    sentence = (
        "client_sampling_rate is 0.5, but 'mute' makes a private count that its rounds"
        " follow from"
    )
    with pytest.raises(ConfigurationError, match=sentence):
        plan_of(
            algorithm="mute", unit="client", client_sampling_rate=0.5, n_examples=None
        )


def test_a_client_takes_no_reason_from_the_server_but_its_own() -> None:
    plan = plan_of()
    verify_plan(plan)
    first = plan.rounds[0]
    for other in (
        {"because": "S2: one row lies in at most one cluster"},
        {"nonnegative": False},
        {"because": ""},
    ):
        block = replace(
            first.blocks[0], sensitivity=replace(first.blocks[0].sensitivity, **other)
        )
        with pytest.raises(ProtocolError, match="has other sensitivities"):
            verify_plan(
                replace(
                    plan,
                    rounds=(
                        replace(first, blocks=(block, *first.blocks[1:])),
                        *plan.rounds[1:],
                    ),
                )
            )


def test_the_foreign_bounds_hold_and_the_server_knows_what_is_not_negative() -> None:
    plan = plan_of()
    step = build_algorithm(plan).rounds[0]
    state = step_state(plan)
    assert (
        check_sensitivity(step.blocks, lambda rows: step.statistic(rows, state), 2)[
            "ballots"
        ]
        == 1.0
    )
    words = np.zeros(vector_length(step.blocks), dtype=np.int64)
    words[0] = -(10**9)
    with pytest.raises(ProtocolError, match="1 of 2 entries of 'ballots'"):
        require_plausible(
            plan, 1, as_released(words.view(np.uint64), step.blocks, 16), n_clients=3
        )


def step_state(plan: Plan) -> State:
    return build_algorithm(plan).initial_state(plan.seed, None)


# -- a statistic that is no clustering -------------------------------------------------


@dataclass(frozen=True)
class HistogramOptions(Options):
    n_bins: int = whole(4, 1, 4, "bins of the first column", most=1_000)


@dataclass(frozen=True, kw_only=True)
class Histogram(Task):
    """Rows by the first column."""

    name = "histogram"
    options: HistogramOptions = HistogramOptions()

    def build(self, public: PublicFacts) -> Algorithm:
        n = self.options.n_bins
        one = Sensitivity(
            Norm.L2, 1.0, PrivacyUnit.RECORD, "one row is in one bin", nonnegative=True
        )
        (blocks,) = allocate(public, [[ReleasePart("rows", (n,), one, 1.0, 1.0)]])

        def statistic(points: Array, state: State) -> Sequence[Array]:
            bins = np.minimum((points[:, 0] + 1.0) / 2.0 * n, n - 1).astype(int)
            return [np.bincount(bins, minlength=n).astype(float)]

        def advance(state: State, released: ReleasedSum) -> State:
            return state.changed(histogram=released["rows"])

        def start(seed: int, server_points: Array | None = None, /) -> State:
            return State({})

        return Algorithm(
            self.name, (PrivateSum("histogram", blocks, statistic, advance),), start
        )


@pytest.mark.parametrize("model", ["oblivious", "central", "distributed"])
@pytest.mark.parametrize("masking", [True, False])
def test_a_statistic_without_clusters_runs_to_the_report(
    model: str, masking: bool
) -> None:
    register(Histogram)
    try:
        config = read_config(
            algorithm="histogram",
            n_bins=2,
            bounds=((-1,), (1,)),
            epsilon=5.0,
            trust=model,
            masking=masking,
        )
        plan = draft_plan(config, run_id=1, n_clients=3, seed=7, n_features=2)
        verify_plan(load_plan(dump_plan(plan)))
        found = run_direct(plan, [round_to_grid(part) for part in parts()])
        assert plan.task.result(found.plan, found.state)["histogram"] == pytest.approx(
            [450.0, 450.0], abs=10.0
        )
        report = build_report(found.plan, found.attempts)
        assert report.is_private is masking
        assert report.epsilon == pytest.approx(5.0, rel=1e-3)
        assert "one row is in one bin" in report.releases[0].theorem
        assert report.algorithm == "histogram"
    finally:
        TASKS.pop("histogram")


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"private_bounds": True}, "bounds are 'private', or rows are to be counted,"),
        ({"evaluation": "private"}, "evaluation is 'private', but 'histogram' has"),
        ({"n_clusters": 3}, "n_clusters is 3, but the algorithm is 'histogram',"),
    ],
)
def test_what_only_a_clustering_has_is_refused(
    values: dict[str, Any], sentence: str
) -> None:
    register(Histogram)
    try:
        with pytest.raises(ConfigurationError, match=sentence):
            plan_of(
                **{"algorithm": "histogram", "trust": "central", "n_clusters": None}
                | values
            )
    finally:
        TASKS.pop("histogram")


# -- its option ------------------------------------------------------------------------


def test_the_foreign_option_is_taken_at_every_door_and_refused_of_others() -> None:
    assert plan_of(pull=0.2).config.pull == 0.2
    assert plan_of().config.pull == 0.1
    with pytest.raises(ConfigurationError, match=r"pull is 2\.0, .* strictly between"):
        plan_of(pull=2.0)
    with pytest.raises(ConfigurationError, match=r"pull is 0\.2, but the algorithm"):
        plan_of(pull=0.2, algorithm="glloyd", trust="central")
    plan = plan_of(pull=0.2)
    assert load_plan(dump_plan(plan)) == plan


def test_a_plan_with_a_task_that_nobody_has_here_is_refused_by_name() -> None:
    blob = dump_plan(plan_of())
    TASKS.pop("votes")
    try:
        load_plan.cache_clear()
        with pytest.raises(ProtocolError, match="which is not known here: install its"):
            load_plan(blob)
    finally:
        register(Votes)


class FakePoint:
    """What an installed package offers."""

    def __init__(self, name: str, item: object) -> None:
        self.name, self.value, self._item = name, f"package:{name}", item

    def load(self) -> object:
        if isinstance(self._item, Exception):
            raise self._item
        return self._item


@dataclass(frozen=True)
class _HuberOptions(Options):
    epsilon: float = real(50.0, 0.0, 1e3, "50", "width of a loss")


@dataclass(frozen=True, kw_only=True)
class _Huber(MomentsTask):
    name = "huber"
    options: _HuberOptions = _HuberOptions()


def test_a_package_that_cannot_be_used_costs_nobody_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """All packages after a broken one were not known."""
    broken = FakePoint("broken", ImportError("no module named 'x'"))
    points = [
        broken,
        FakePoint("other", Votes),
        FakePoint("huber", _Huber),
        FakePoint("moments", _Huber),
    ]
    points.append(FakePoint("votes", Votes))
    registry: Registry[type[Task]] = Registry(
        "flwr_dpkmeans.tasks", "algorithm", require_free_names, lambda group: points
    )
    assert registry.find("votes") is Votes
    for name, why in (
        (
            "broken",
            (
                r"what is installed as 'package:broken' cannot be used \(ImportError:"
                r" no module named 'x'\)\."
            ),
        ),
        ("other", "the task 'votes' is offered as 'other': give both one name"),
        (
            "huber",
            (
                "'huber' has an option 'epsilon', which is a setting of every run:"
                " rename it"
            ),
        ),
        ("moments", "the task 'huber' is offered as 'moments'"),
    ):
        with pytest.raises(
            ConfigurationError, match=rf"^algorithm is '{name}', but .*{why}"
        ):
            registry.find(name)
    assert list(registry) == ["votes"]
    assert len(caplog.records) == 4


def test_an_option_with_a_name_of_a_setting_is_refused_at_once() -> None:
    """It was the epsilon that was spent, 50 instead of 1."""
    with pytest.raises(ConfigurationError, match="'huber' has an option 'epsilon'"):
        register(_Huber)
    assert "huber" not in TASKS


@dataclass(frozen=True, kw_only=True)
class _Spread(Task):
    """The mean, and then the mean distance from it, which the result is."""

    name = "spread"

    def build(self, public: PublicFacts) -> Algorithm:
        one = Sensitivity(Norm.L2, 1.0, PrivacyUnit.RECORD, "one row")
        parts = [[ReleasePart(name, (1,), one, 1.0, 1.0)] for name in ("mean", "away")]

        def summed(points: Array, state: State) -> Sequence[Array]:
            return [points[:, :1].sum(axis=0)]

        def distances(points: Array, state: State) -> Sequence[Array]:
            return [np.minimum(np.abs(points[:, :1] - state["mean"]), 1.0).sum(axis=0)]

        def learnt(name: str) -> Callable[[State, ReleasedSum], State]:
            mean = lambda released: round_to_grid(  # noqa: E731
                np.clip(released[name] / public.n_units, -1.0, 1.0)
            )
            return lambda state, released: state.changed(**{name: mean(released)})

        first, second = allocate(public, parts)
        rounds = (
            PrivateSum("mean", first, summed, learnt("mean")),
            PrivateSum("away", second, distances, learnt("away"), reads=("mean",)),
        )
        return Algorithm(self.name, rounds, lambda *_: State({}))

    def result(self, plan: Plan, state: State) -> Result:
        return Result({"away": state["away"]})


@pytest.mark.parametrize("array", [np.ones((2, 3)), np.array(1.0), np.ones(2)])
@pytest.mark.parametrize("name", ["counts", "rows"])
def test_a_state_may_have_arrays_of_any_shape_under_the_names_of_counts(
    name: str, array: NDArray[np.float64]
) -> None:
    """The report took them for clusters' sizes, and no party had a result."""
    report = build_report(plan_of(), (), state=State({name: array}))
    assert report.warnings == build_report(plan_of(), ()).warnings


@pytest.mark.parametrize("trust", ["oblivious", "central", "distributed"])
def test_a_result_is_asked_of_the_last_state_only(trust: str) -> None:
    """Asked after each round, it died with its budget spent."""
    register(_Spread)
    try:
        parts = [np.full((300, 1), value) for value in (-0.5, 0.5)]
        found = federate(
            "spread",
            parts,
            bounds=(-1, 1),
            epsilon=20.0,
            trust=trust,
            noise="seeded",
            random_state=1,
        )
        assert found["away"][0] == pytest.approx(0.5, abs=0.05)
    finally:
        TASKS.pop("spread")


def test_installed_packages_are_asked_when_a_name_is_not_known() -> None:
    asked: list[str] = []

    def points(group: str) -> list[FakePoint]:
        asked.append(group)
        return [FakePoint("elsewhere", Votes)]

    registry: Registry[type[Task]] = Registry("flwr_dpkmeans.tasks", installed=points)
    registry.add("votes", Votes)
    assert registry["votes"] is Votes
    assert asked == []
    assert registry["elsewhere"] is Votes
    assert "nowhere" not in registry
    assert list(registry) == ["votes", "elsewhere"]
    assert asked == ["flwr_dpkmeans.tasks"]


def test_a_name_is_registered_once() -> None:
    with pytest.raises(ConfigurationError, match="'votes' is registered already"):
        register(
            dataclass(frozen=True, kw_only=True)(
                type("Again", (Votes,), {"name": "votes"})
            )
        )


@dataclass(frozen=True, kw_only=True)
class _Fixed(KMeansTask):
    """A task whose number of rounds is never left to the run."""

    name = "fixed"
    options: _FixedOptions = _FixedOptions()

    def build(self, public: PublicFacts) -> Algorithm:
        raise NotImplementedError


def test_a_number_of_rounds_that_is_never_none_disturbs_no_other_method() -> None:
    bounds = ((-1,), (1,))
    common: dict[str, Any] = {"n_clusters": 2, "bounds": bounds, "n_examples": 100}
    register(_Fixed)
    try:
        assert read_config(**common, max_iter=None).max_iter is None
        fixed = read_config(**common, max_iter=None, algorithm="fixed")
        assert fixed.max_iter == 3
    finally:
        TASKS.pop("fixed")


def test_a_trust_model_that_does_not_say_who_reads_is_refused_at_once() -> None:
    class Vague(TrustModel):
        name = "vague"
        blinded = False
        server_reads = True

        def guarantee(self, shares: Shares) -> str:
            return "none"

    with pytest.raises(ConfigurationError, match="model Vague has no 'shared_noise'"):
        register_trust(Vague())
    assert "vague" not in TRUST_MODELS
