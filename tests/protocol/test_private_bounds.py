"""Private bounds over the wire: from the run configuration to the result, and a server
that announces another box.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from flwr.app import Message
from numpy.typing import NDArray
from support.flat import flat_estimator
from support.messages import (
    ServerRun,
    Stage,
    copied,
    dump_plan,
    load_plan,
    request_content,
)
from support.protocol_federation import (
    Federation,
    make_federation,
    small_config,
    without_identities,
)
from test_hostile_server import (
    VICTIM,
    Hostile,
    changed,
    fields_of,
    release_of,
    with_release,
)

from flwr_dpkmeans import FederatedKMeans
from flwr_dpkmeans.errors import (
    ConfigurationError,
    DPKMeansError,
    PlanError,
    ProtocolError,
    RefusalError,
)
from flwr_dpkmeans.flower.kmeans_client import STATISTIC, KMeansClient
from flwr_dpkmeans.flower.run_config import strategy_from_run_config
from flwr_dpkmeans.node.policy import ClientPolicy
from flwr_dpkmeans.sums.draft import draft_plan, redraft_plan
from flwr_dpkmeans.sums.plan import Plan

DOMAIN = ((-(2.0**40),), (2.0**40,))
SIZES = (500, 700, 400, 600)


def parts_in_raw_units(seed: int = 0) -> list[NDArray[np.float64]]:
    """Three clusters of income-like and share-like columns."""
    generator = np.random.default_rng(seed)
    centres = np.array([[10_000.0, 0.2], [40_000.0, 0.5], [80_000.0, 0.8]])
    return [
        centres[generator.integers(3, size=size)]
        + generator.normal(0.0, (2000.0, 0.03), (size, 2))
        for size in SIZES
    ]


def private_config(**values: Any) -> Any:
    defaults = {
        "bounds": DOMAIN, "private_bounds": True, "n_examples": None,
        "n_features": None, "epsilon": 5.0,
    }  # fmt: skip
    return small_config(**(defaults | values))


def require_found(bounds: Any, parts: list[NDArray[np.float64]]) -> None:
    # Noise that is taken for a tail widens a range, which happens now and then.
    points = np.concatenate(parts)
    for feature in (0, 1):
        low, high = points[:, feature].min(), points[:, feature].max()
        width = high - low
        assert low - 16.0 * width < bounds[0][feature] < low + 0.1 * width
        assert high - 0.1 * width < bounds[1][feature] < high + 16.0 * width


# -- end to end ------------------------------------------------------------------------


@pytest.mark.sample(4)
@pytest.mark.parametrize("algorithm", ["fastlloyd", "glloyd", "proxy_lloyd"])
@pytest.mark.parametrize("trust", ["oblivious", "central", "distributed"])
def test_nothing_needs_to_be_declared(trust: str, algorithm: str) -> None:
    parts = parts_in_raw_units()
    values: dict[str, Any] = {"algorithm": algorithm, "trust": trust, "random_state": 3}
    km = flat_estimator(
        3, epsilon=5.0, bounds="private", n_examples=None, **values
    ).fit(parts)
    report = km.privacy_
    require_found(km.bounds_, parts)
    assert report.is_private
    assert 0.99 * 5.0 < report.epsilon <= 5.0
    assert report.n_examples_source == "private count"
    assert report.n_examples is not None
    assert abs(report.n_examples - sum(SIZES)) < 100
    assert [line.array for line in report.releases[:3]] == [
        "count",
        "magnitudes",
        "ranges",
    ]
    assert [step["round"] for step in km.history_] == list(
        range(1, len(km.history_) + 1)
    )
    lower, upper = np.array(km.bounds_)
    assert np.all((lower <= km.cluster_centers_) & (km.cluster_centers_ <= upper))


@pytest.mark.sample(3)
@pytest.mark.parametrize("trust", ["oblivious", "distributed"])
@pytest.mark.parametrize("masking", [True, False])
def test_direct_and_flower_engines_find_the_same(trust: str, masking: bool) -> None:
    values: dict[str, Any] = {
        "epsilon": 5.0, "bounds": "private", "trust": trust, "noise": "seeded",
        "random_state": 3,
    }  # fmt: skip
    parts = parts_in_raw_units()
    flower = flat_estimator(3, **values).fit(parts)
    direct = flat_estimator(3, engine="direct", masking=masking, **values).fit(parts)
    assert flower.bounds_ == direct.bounds_
    assert np.array_equal(flower.cluster_centers_, direct.cluster_centers_)
    assert flower.privacy_.releases == direct.privacy_.releases


def test_a_declared_number_of_rows_is_not_counted() -> None:
    km = FederatedKMeans(3, epsilon=5.0, bounds="private", n_examples=2200).fit(
        parts_in_raw_units()
    )
    assert [line.array for line in km.privacy_.releases[:2]] == ["magnitudes", "ranges"]
    assert km.privacy_.n_examples_source == "declared public"


def test_a_private_number_of_rows_goes_with_declared_bounds() -> None:
    parts = parts_in_raw_units()
    km = FederatedKMeans(
        3, bounds=((0, 0), (1e5, 1)), n_examples="private", engine="direct"
    ).fit(parts)
    assert [line.array for line in km.privacy_.releases[:1]] == ["count"]
    with pytest.raises(ConfigurationError, match="n_examples is 'secret', but it must"):
        FederatedKMeans(3, bounds=(0, 1), n_examples="secret").fit(parts)


def test_run_config_spelling(caplog: pytest.LogCaptureFixture) -> None:
    parts = parts_in_raw_units()
    federation = make_federation(parts)
    strategy = strategy_from_run_config(
        {
            "n-clusters": 3, "algorithm": "fastlloyd", "bounds": "private",
            "bounds-share": 0.04, "epsilon": 5.0, "num-clients": 4, "data": "t.csv",
        }
    )  # fmt: skip
    assert strategy.config.private_bounds
    assert strategy.config.bounds == DOMAIN
    assert (strategy.config.bounds_share, strategy.config.n_features) == (0.04, None)
    with (
        federation.grid.running(),
        caplog.at_level(logging.INFO, logger="flwr_dpkmeans.server"),
    ):
        result = strategy.start(federation.grid)
    assert result.confirmed == (2, 3, 4, 5)
    assert "private count: about" in caplog.text
    assert len(federation.grid.received) == 4 * (strategy.run.plan.last_round + 2 + 2)
    for node, client in federation.clients.items():
        require_found(client.bounds_, parts)
        assert client.privacy_ is not None
        # Clients read the counts, and may warn of small ones; the server cannot.
        theirs = replace(client.privacy_, warnings=result.privacy.warnings)
        assert without_identities(theirs) == without_identities(result.privacy)
        assert set(result.privacy.warnings) <= set(client.privacy_.warnings)
        assert federation.attempts_in_ledger(node)[:3] == [(-1, 0), (0, 0), (1, 0)]


def test_run_config_with_a_domain() -> None:
    values = {
        "n-clusters": 3, "algorithm": "fastlloyd", "num-clients": 4, "data": "t.csv",
    }  # fmt: skip
    strategy = strategy_from_run_config(
        values | {"bounds": "private", "bounds-domain": "0,200000"}
    )
    assert (strategy.config.bounds, strategy.config.private_bounds) == (
        ((0.0,), (200_000.0,)),
        True,
    )
    with pytest.raises(ConfigurationError, match="bounds_domain is '0,9', but bounds"):
        strategy_from_run_config(values | {"bounds": "0,1", "bounds-domain": "0,9"})


def test_where_nothing_stands_out_the_run_ends_or_keeps_a_domain_and_says_so() -> None:
    parts = [np.full((3, 2), 7.0), np.full((2, 2), 7.0)]
    options: dict[str, Any] = {
        "epsilon": 0.1, "n_examples": 5, "noise": "seeded", "random_state": 1,
    }  # fmt: skip
    with pytest.raises(PlanError, match=r"1 \(counted from 0\) beyond the noise"):
        flat_estimator(1, bounds="private", **options).fit(parts)
    counted = options | {"epsilon": 4.0, "n_examples": None}
    with pytest.raises(PlanError, match=r"about [\d.]+ are needed within .*;"):
        flat_estimator(1, bounds="private", **counted).fit(parts)
    km = flat_estimator(1, bounds="private", bounds_domain=(0.0, 50.0), **options).fit(
        parts
    )
    assert km.bounds_ == ((0.0, 0.0), (50.0, 50.0))
    assert any(
        "Private bounds found no values of columns 0, 1" in sentence
        for sentence in km.privacy_.warnings
    )


@pytest.mark.parametrize("lost", [-1, 0, 1])
def test_a_dropout_in_a_preliminary_round_is_retried_and_charged(lost: int) -> None:
    federation = make_federation(parts_in_raw_units())

    def on_reply(reply: Any) -> list[Any]:
        header = json.loads(str(reply.content.config_records["dpkmeans"]["header"]))
        return (
            []
            if reply.metadata.src_node_id == 4 and header.get("round") == lost
            else [reply]
        )

    federation.faults.on_reply = on_reply
    result = federation.start(private_config(max_retries=1))
    assert result.confirmed == (2, 3, 5)
    expected = [(-1, 0), (0, 0), (1, 0)]
    expected.insert(expected.index((lost, 0)) + 1, (lost, 1))
    after = [(index, int(index > lost or attempt)) for index, attempt in expected]
    assert federation.attempts_in_ledger(2)[:4] == after
    assert result.privacy is not None
    assert 5.0 < result.privacy.epsilon <= result.privacy.epsilon_worst_case


# -- policies --------------------------------------------------------------------------


def test_a_policy_holds_for_the_domain() -> None:
    parts = parts_in_raw_units()
    policy = ClientPolicy(allowed_bounds=((-1e6, 1e6),))
    with pytest.raises(RefusalError, match="this client allows only"):
        make_federation(parts, policy=policy).start(private_config())
    make_federation(parts, policy=policy).start(
        private_config(bounds=((-1e6,), (1e6,)))
    )


@pytest.mark.parametrize("algorithm", ["k_fed", "max_cover", "optimal"])
def test_baselines_in_one_place_need_declared_bounds(algorithm: str) -> None:
    with pytest.raises(ConfigurationError, match="bounds are 'private'"):
        FederatedKMeans(3, algorithm=algorithm, bounds="private").fit(
            parts_in_raw_units()
        )


def test_server_data_and_private_bounds_exclude_each_other() -> None:
    km = FederatedKMeans(
        2, algorithm="feddp_kmeans", bounds="private", server_data=np.eye(2) * 1e4
    )
    with pytest.raises(ConfigurationError, match="bounds follow from the server's own"):
        km.fit(parts_in_raw_units())


# -- a hostile server ------------------------------------------------------------------


@contextmanager
def hostile(**values: Any) -> Iterator[Hostile]:
    parts = parts_in_raw_units()
    federation: Federation = make_federation(parts)
    grid = federation.grid
    run = ServerRun(
        private_config(**values),
        run_id=grid.run.run_id,
        seed=11,
        node_ids=grid.get_node_ids(),
    )
    with grid.running():
        server = Hostile(federation, run, parts)
        server.agree()
        yield server


def go_on(server: Hostile, from_round: int) -> None:
    for index in range(from_round, server.run.plan.last_round + 1):
        server.complete(server.request(index))
    assert server.finish() == (2, 3, 4, 5)
    assert {client.bounds_ for client in server.federation.clients.values()} == {
        server.run.plan.box
    }
    require_found(server.run.plan.box, server.parts)


def moved(plan: Plan, side: int, factor: float) -> Plan:
    """A plan that follows from its configuration, with another box."""
    assert plan.box is not None
    sides = [list(values) for values in plan.box]
    sides[side][0] *= factor
    box = (tuple(sides[0]), tuple(sides[1]))
    return redraft_plan(
        plan, n_features=plan.n_features, n_examples=plan.n_examples, box=box
    )


UNRELEASED_BOX = "another box than the private histograms released"
OTHER_BOXES: dict[str, tuple[Callable[[Plan], Plan], str]] = {
    "wider": (lambda p: moved(p, 1, 2.0), UNRELEASED_BOX),
    "narrower": (lambda p: moved(p, 1, 0.9), UNRELEASED_BOX),
    "last digit": (lambda p: moved(p, 1, 1.0 + 2.0**-50), UNRELEASED_BOX),
    "whole domain": (
        lambda p: redraft_plan(
            p,
            n_features=2,
            n_examples=p.n_examples,
            box=((DOMAIN[0][0],) * 2, (DOMAIN[1][0],) * 2),
        ),
        UNRELEASED_BOX,
    ),
    "beyond the domain": (
        lambda p: replace(p, box=((-(2.0**41),) * 2, (2.0**41,) * 2)),
        "another box",
    ),
    "none": (lambda p: replace(p, box=None), "another box"),
    "other N": (
        lambda p: redraft_plan(
            p, n_features=2, n_examples=(p.n_examples or 0) + 1, box=p.box
        ),
        "the private count released",
    ),
    "declared bounds": (
        lambda p: replace(
            p, config=p.config.changed(private_bounds=False, bounds=((0.0,), (1.0,)))
        ),
        "had fixed",
    ),
    "other domain": (
        lambda p: replace(p, config=p.config.changed(bounds=((-1e6,), (1e6,)))),
        "had fixed",
    ),
    "no preliminary rounds": (lambda p: replace(p, preliminary=()), "nor counted"),
    "preliminary again": (lambda p: replace(p, rounds=(), box=None), UNRELEASED_BOX),
}


@pytest.mark.sample(4)
@pytest.mark.parametrize("kind", OTHER_BOXES)
def test_another_box_than_the_released_one_is_refused(kind: str) -> None:
    change, word = OTHER_BOXES[kind]
    with hostile() as server:
        for index in (-1, 0):
            server.complete(server.request(index))
        requests = server.request(1)
        final = load_plan(bytes(fields_of(requests[VICTIM])["plan"]))
        server.require_refused(
            changed(requests[VICTIM], plan=dump_plan(change(final))), word
        )
        server.require_refused(
            changed(requests[VICTIM], plan=None), "no final plan came"
        )
        server.complete(requests)
        go_on(server, 2)


def test_a_final_plan_before_the_ranges_is_refused() -> None:
    with hostile() as server:
        first = server.request(-1)
        wider = load_plan(bytes(fields_of(first[VICTIM])["plan"]))
        box = ((0.0, 0.0), (1.0, 1.0))
        final = dump_plan(redraft_plan(wider, n_features=2, n_examples=300, box=box))
        server.require_refused(
            changed(first[VICTIM], plan=final),
            "which had fixed it or is still to find it",
        )
        server.require_refused(changed(first[VICTIM], plan=None), "no histograms")
        other = replace(wider, config=wider.config.changed(bounds_share=0.01))
        server.require_refused(
            changed(first[VICTIM], plan=dump_plan(other)),
            "another config than the one in force",
        )
        wide = redraft_plan(replace(wider, n_features=None), n_features=3)
        server.require_refused(
            changed(first[VICTIM], plan=dump_plan(wide)), "2 features"
        )
        server.complete(first)
        second = server.request(0)
        server.require_refused(
            changed(second[VICTIM], plan=final),
            "which had fixed it or is still to find it",
        )
        server.require_refused(
            changed(second[VICTIM], plan=dump_plan(wider)),
            "the one in force says the same",
        )
        server.complete(second)
        go_on(server, 1)


@pytest.mark.parametrize(
    "parameters", [[], [np.zeros(0), np.zeros(0)]], ids=["none", "empty"]
)
def test_ranges_are_not_counted_before_the_coarse_ones_are_there(
    parameters: list[NDArray[np.float64]],
) -> None:
    plan = draft_plan(
        private_config(n_features=2), run_id=1, n_clients=2, seed=0, n_features=2
    )
    client = KMeansClient(parts_in_raw_units()[0])
    config: dict[str, Any] = {"task": STATISTIC, "plan": dump_plan(plan)}
    client.fit(parameters, config | {"round": -1})
    with pytest.raises(ProtocolError, match=r"^ranges were asked for before"):
        client.fit(parameters, config | {"round": 0})


def test_a_plan_that_knows_the_box_before_the_release_is_refused() -> None:
    parts = parts_in_raw_units()
    federation = make_federation(parts)
    grid = federation.grid
    run = ServerRun(
        private_config(n_features=2),
        run_id=grid.run.run_id,
        seed=1,
        node_ids=grid.get_node_ids(),
    )
    with grid.running():
        server = Hostile(federation, run, parts)
        known = redraft_plan(
            run.plan, n_features=2, n_examples=300, box=((0.0, 0.0), (1.0, 1.0))
        )
        server.require_refused(
            request_content(Stage.KEYS, plan=dump_plan(known)), "still to find"
        )
        half = replace(run.plan, box=((0.0, 0.0), (1.0, 1.0)))
        server.require_refused(
            request_content(Stage.KEYS, plan=dump_plan(half)), "still to find"
        )
        server.agree()
        for index in (-1, 0):
            server.complete(server.request(index))
        go_on(server, 1)


@pytest.mark.parametrize("index", [0, 1])
def test_another_release_for_one_client_is_found_out(index: int) -> None:
    """A client that is sent another histogram finds another range."""
    with hostile() as server:
        for before in range(-1, index):
            server.complete(server.request(before))
        requests = server.request(index)
        words = release_of(requests[VICTIM]).copy()
        if index == 0:
            # Values from 1 to 2 in the first column; at the ends of the domain the
            # client itself would refuse them.
            words[[len(words) // 2 - 40]] += np.uint64(2**30)
        else:
            words += np.arange(len(words), dtype=np.uint64) * np.uint64(2**30)
        requests[VICTIM] = with_release(requests[VICTIM], words)
        messages = [
            Message(copied(content), node, "train")
            for node, content in requests.items()
        ]
        if index == 0:
            with pytest.raises(
                DPKMeansError, match=f"node\\(s\\) \\[{VICTIM}\\] differs"
            ):
                server.run.take_sums(server.exchange(messages))
        else:
            assert server.run.take_sums(server.exchange(messages)) is None
            assert server.run.session.roster.node_ids == (2, 4, 5)
