"""What a client and a server ask of each other in one run, where one step decides."""

from __future__ import annotations

import logging
import re
from functools import lru_cache
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from flwr_dpkmeans.errors import (
    CohortError,
    DisagreementError,
    PlanError,
    ProtocolError,
    RefusalError,
)
from flwr_dpkmeans.options import parse_config
from flwr_dpkmeans.privacy.noise.noise_kind import NoiseKind
from flwr_dpkmeans.privacy.sentences import report_sentence
from flwr_dpkmeans.secagg.messages import (
    FinishReply,
    FinishRequest,
    Release,
    Stage,
    StopRequest,
    SumRequest,
)
from flwr_dpkmeans.secagg.roster import Roster
from flwr_dpkmeans.sums.build import initial_state
from flwr_dpkmeans.sums.client import Client, Guard
from flwr_dpkmeans.sums.client.contribution import Contribution
from flwr_dpkmeans.sums.draft import draft_plan
from flwr_dpkmeans.sums.local import LocalRun, run_direct
from flwr_dpkmeans.sums.outcome import Discoveries
from flwr_dpkmeans.sums.plan import FIRST_NODE_ID, Plan
from flwr_dpkmeans.sums.server import Server
from flwr_dpkmeans.sums.virtual.virtual_client import Virtual
from flwr_dpkmeans.sums.wire import (
    Failure,
    KeysReply,
    Request,
    Status,
    dump_plan,
    plan_digest,
)


@lru_cache(maxsize=8)
def plan(**values: Any) -> Plan:
    """Two rounds of three clients that go on without one."""
    given: dict[str, Any] = {
        "n_clusters": 2,
        "bounds": ((-1.0,), (1.0,)),
        "algorithm": "fastlloyd",
        "max_iter": 2,
    }
    config = parse_config(
        **given | {"n_examples": 1_000, "max_retries": 1, "min_clients": 2} | values
    )
    return draft_plan(config, run_id=7, n_clients=3, seed=0, n_features=2)


def roster(n_members: int) -> Roster:
    return Roster(0, tuple((node, bytes([node]) * 32) for node in range(n_members)))


def memory(**values: Any) -> Any:
    told = type("Told", (), {})()
    vars(told).update(
        {"plan": plan(), "clusters": initial_state(plan()), "attempts": ()} | values
    )
    return told


# -- the client ------------------------------------------------------------------------


@pytest.mark.parametrize("run_id", [None, 7, 8])
@pytest.mark.parametrize("stage", [Stage.STOP, Stage.SUM, Stage.FINISH])
def test_a_request_is_of_this_run_and_in_time_unless_it_ends_it(
    run_id: int | None, stage: Stage
) -> None:
    waits: list[float | None] = []

    class Noted(Guard):
        def require_in_time(self, wait: float | None) -> None:
            waits.append(wait)

    guard = Noted()
    guard.run_id = 7
    bodies = {
        Stage.STOP: StopRequest("why"),
        Stage.SUM: SumRequest(1, 0),
        Stage.FINISH: FinishRequest(Release(1, 0, np.zeros(1, dtype=np.uint64))),
    }
    request = Request(stage, bodies[stage], run_id=run_id, wait=5.0)
    if run_id == 8:
        with pytest.raises(ProtocolError, match="is of another run than 7"):
            Client(guard, cast(Any, None), None).handle(request)
    elif stage is Stage.STOP:
        assert Client(guard, cast(Any, None), None).handle(request)[0] is None
    else:
        with pytest.raises(ProtocolError, match="run 7 is unknown to this client"):
            Client(guard, cast(Any, None), None).handle(request)
    assert waits == ([5.0] if stage is Stage.SUM and run_id != 8 else [])


@pytest.mark.parametrize(("n_announced", "asked"), [(3, (2, 3)), (0, (2, 2))])
def test_shares_of_noise_are_for_those_that_shared_keys(
    n_announced: int, asked: tuple[int, int]
) -> None:
    """Those that are asked now may be fewer."""

    def shares_of(*numbers: int) -> None:
        raise ProtocolError(f"shares of {numbers}")

    odd = SimpleNamespace(round_at=plan().round_at, shares_of=shares_of)
    party = SimpleNamespace(
        announced=roster(n_announced) if n_announced else None, cohort=roster(2)
    )
    with pytest.raises(ProtocolError, match=re.escape(f"shares of {asked}")):
        Client(Guard(), cast(Any, None), None)._contribute(
            memory(plan=odd, party=party), SumRequest(1, 0), None
        )


@pytest.mark.parametrize(
    ("rate", "factor"), [(1.0, 1), (2.0**-60, 0), (1.0 - 2.0**-53, 1)]
)
def test_who_does_not_take_part_sends_zeros(rate: float, factor: int) -> None:
    """At rates of which a coin cannot, or hardly ever, say anything else."""
    guard, statistic = (
        Guard(),
        SimpleNamespace(compute=lambda *_: [np.full((2, 2), 0.5), np.ones(2)]),
    )
    guard.stream = 0
    odd: Any = SimpleNamespace(
        settings=SimpleNamespace(client_sampling_rate=rate, noise=NoiseKind.SECURE),
        rates={1: rate},
        fraction_bits=4,
    )
    made = Client(guard, cast(Any, statistic), None)
    contribution = Contribution(memory(plan=odd), SumRequest(1, 0))
    flat = made._flat_statistic(memory(plan=odd), plan().round_at(1), (1, 0))
    vector = contribution.on_grid(flat, guard.stream)
    assert vector.values.tolist() == [8 * factor] * 4 + [16 * factor] * 2
    for rubbish in ([], [np.ones(5)]):
        statistic.compute = lambda *_, rubbish=rubbish: rubbish
        with pytest.raises(ProtocolError, match="the 6 entries of the plan's round 1"):
            made._flat_statistic(memory(plan=odd), plan().round_at(1), (1, 0))


def test_a_result_that_is_mostly_noise_is_warned_of() -> None:
    """By whoever may see it, and by the server only once the run is over."""
    faint = report_sentence(
        "faint", n=2, n_clusters=2, groups="clusters", listed="0, 1"
    )
    state = initial_state(plan(trust="central")).changed(counts=np.zeros(2))
    guard = Guard()
    guard.node_id = 3
    given = {
        "discoveries": Discoveries(),
        "n_recognised": 0,
        "agreed_digest": bytes(32),
        "started": "",
        "cohort": (),
    }
    for clusters, warns in ((state, True), (None, False)):
        report = Client(guard, cast(Any, None), None)._report_and_log(
            memory(clusters=clusters, attempts=((1, 0), (2, 0)), **given)
        )
        assert (faint in report.warnings) is warns
    run = made(trust="central")
    run.clusters, run.attempts = state, ((1, 0), (2, 0))
    for due, warns in ((Stage.SUM, False), (Stage.FINISH, True), (None, True)):
        run.due = due
        assert (faint in run.report.warnings) is warns


# -- the server ------------------------------------------------------------------------


def made(**values: Any) -> Server:
    return Server(plan(**values), node_ids=(2, 3, 4))


def keys(made: Server, *nodes: int, **values: Any) -> list[Any]:
    """Answers to the plan."""
    given = {"plan_digest": made.digest, "n_features": 2} | values
    replies = {
        node: KeysReply(public_key=bytes([node]) * 32, **given) for node in nodes
    }
    return [
        (node, lambda stage, to, reply=reply: reply) for node, reply in replies.items()
    ]


def test_keys_of_enough_clients_begin_the_first_round(
    caplog: pytest.LogCaptureFixture,
) -> None:
    run = made()
    assert (run.nodes, run.due) == ((2, 3, 4), Stage.KEYS)
    with pytest.raises(ProtocolError, match="no keys have been agreed on yet"):
        _ = run.session
    with pytest.raises(CohortError, match="1 of 3 clients answered the plan"):
        run.take(keys(run, 3))
    assert "nodes [2, 4] did not answer the plan and are left out" in caplog.text
    with pytest.raises(ProtocolError, match="node 2 agreed to another plan"):
        run.take(keys(run, 2, 3, plan_digest=b"0" * 32))
    with pytest.raises(RefusalError, match="different numbers of features"):
        run.take([*keys(run, 2), *keys(run, 3, n_features=3)])
    caplog.clear()
    with caplog.at_level(logging.INFO, "flwr_dpkmeans"):
        run.take(
            [*keys(run, 2, 3, 4), *keys(run, 3, plan_digest=b"0" * 32), *keys(run, 9)]
        )
    assert "did not answer" not in caplog.text
    assert "columns are matched by position" in caplog.text
    assert "node 9 was not asked" in caplog.text
    assert (run.nodes, run.due) == ((2, 3, 4), Stage.SUM)
    requests = dict(run.requests())
    assert run.attempts == ((1, 0),)
    assert {(one.stage, one.run_id, one.plan) for one in requests.values()} == {
        (Stage.SUM, 7, None)
    }
    list(run.requests())
    assert run.attempts == ((1, 0), (1, 0))
    caplog.clear()
    with pytest.raises(CohortError, match="0 clients are left, but at least 2"):
        run.take([(2, lambda *_: Failure(Status.FAILED, "OddError", "so"))])
    kinds = [
        vars(line)["details"]["kind"]
        for line in caplog.records
        if vars(line).get("event") == "refused"
    ]
    assert kinds == ["OddError"]
    few = made()
    few.take(keys(few, 2, 4))
    assert few.nodes == (2, 4)


@pytest.mark.parametrize("has_result", [True, False])
def test_the_end_is_confirmed_by_tags(
    has_result: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """A refusal, an answer that cannot be read, and equal tags."""
    run = made(trust="central")
    assert run.clusters is not None
    run.take(keys(run, 2, 3, 4))
    run.due, run.clusters = Stage.FINISH, run.clusters if has_result else None

    def unread(*_: Any) -> None:
        raise ProtocolError("rubbish")

    refused = Failure(Status.FAILED, "DataError", "no room")
    nobody = [(2, lambda *_: refused), (3, unread)]
    if has_result:
        run.take(nobody)
        assert (run.confirmed, run.due) == ((), None)
        run.due = Stage.FINISH
    else:
        with pytest.raises(CohortError, match="none of the 3 clients confirmed"):
            run.take(nobody)
    assert "nodes [2, 3, 4] did not confirm that they have the result" in caplog.text
    run.take([*nobody, *[(node, lambda *_: FinishReply(b"t" * 32)) for node in (4, 2)]])
    assert (run.confirmed, run.due) == ((2, 4), None)
    assert list(run.requests()) == []
    run.due = Stage.FINISH
    caplog.clear()
    run.take([(node, lambda *_: FinishReply(b"t" * 32)) for node in (2, 3, 4)])
    assert (run.confirmed, caplog.text) == ((2, 3, 4), "")
    run.due = Stage.FINISH
    with pytest.raises(DisagreementError, match=r"node\(s\) \[3\] differs from"):
        run.take(
            [
                (node, lambda _, to: FinishReply(bytes([to == 3]) * 32))
                for node in (2, 3, 4)
            ]
        )


# -- both in one process ---------------------------------------------------------------


@pytest.mark.parametrize("trust", ["oblivious", "central", "distributed"])
@pytest.mark.parametrize("counts", [False, True])
@pytest.mark.parametrize("dropout", ["retry", "recover"])
def test_a_run_of_six_clients(trust: str, counts: bool, dropout: str) -> None:
    """Two steps, perhaps after a count."""
    given = {
        "n_clusters": 2,
        "bounds": ((-1.0,), (1.0,)),
        "algorithm": "fastlloyd",
        "max_iter": 2,
        "epsilon": 50.0,
    }
    given |= {"trust": trust, "dropout": dropout, "delta": 1e-6} | (
        {} if counts else {"n_examples": 240}
    )
    six = draft_plan(parse_config(**given), run_id=7, n_clients=6, seed=0, n_features=2)
    run = run_direct(six, [np.full((40, 2), (node - 3) / 4.0) for node in range(6)])
    indices = [0, 1, 2] if counts else [1, 2]
    assert [step.round_index for step in run.steps] == indices
    assert run.attempts == tuple((index, 0) for index in indices)
    assert run.confirmed == (2, 3, 4, 5, 6, 7)
    assert (run.clusters is None) is (trust == "oblivious")
    moved = () if run.clusters is None else run.clusters.movements
    assert [step.movement for step in run.steps][-2:] == list(moved or (None, None))
    assert run.state.digest == run.first.clusters.digest  # type: ignore[union-attr]
    assert run.first is run.memories[FIRST_NODE_ID]
    assert run.digest == plan_digest(dump_plan(six))
    # The noise is of a few rows; without one of the tables there would be 200.
    assert 220 <= run.plan.n_examples <= 260  # type: ignore[operator]
    assert run.first.plan == run.plan
    # By its own reading of the sum a client holds the plan that came against what was
    # found.
    assert run.first.discoveries.n_examples == (run.plan.n_examples if counts else None)


def test_a_local_run_keeps_no_tables_that_are_made_anew() -> None:
    parts = [np.zeros((2, 2))] * 3
    scaled: list[int] = []

    def scale(_: Plan, points: Any) -> Any:
        scaled.append(len(points))
        return points

    kept = LocalRun(plan(), parts, scale=scale)
    kept.play()
    assert (len(scaled), sorted(kept.scaled)) == (3, [0, 1, 2])
    anew = LocalRun(plan(), tuple(parts), scale=scale).play()
    assert (len(scaled), anew.scaled) == (9, {})


def test_what_is_masked_is_shown_to_who_watches_and_stays_nowhere() -> None:
    parts = [np.zeros((2, 2))] * 3
    run = LocalRun(plan(), parts)
    vectors: list[Any] = []
    run.watch_vector = vectors.append
    run.play()
    assert len(vectors) == 3 * plan().last_round
    assert all(len(vector) == plan().round_at(1).length for vector in vectors)
    client = Client(Guard(), cast(Any, None), None)
    assert not [
        value for value in vars(client).values() if isinstance(value, np.ndarray)
    ]


@pytest.mark.parametrize(
    ("is_final", "preliminary", "n_features", "n_parts", "sentence"),
    [
        (True, (5,), 2, 3, "the plan waits for the tables' width, or knows what"),
        (False, (), 2, 3, "the plan waits"),
        (False, (5,), None, 3, "the plan waits"),
        (True, (), None, 3, "the plan waits"),
        (True, (), 2, 2, "the plan is for 3 clients, but there are 2"),
        (False, (5,), 2, 4, "the plan is for 3 clients, but there are 4"),
    ],
)  # fmt: skip
def test_a_local_run_takes_a_plan_for_its_tables(
    is_final: bool, preliminary: Any, n_features: int | None, n_parts: int,
    sentence: str,
) -> None:  # fmt: skip
    odd: Any = SimpleNamespace(
        is_final=is_final, preliminary=preliminary, n_features=n_features, n_clients=3
    )
    with pytest.raises(PlanError, match=sentence):
        LocalRun(odd, [np.zeros((1, 2))] * n_parts)


@pytest.mark.parametrize(("n_beside", "n_points"), [(0, 5), (1, 4), (3, 2)])
def test_the_columns_of_a_profile_stand_behind_the_points(
    n_beside: int, n_points: int
) -> None:
    table = np.arange(10.0).reshape(2, 5)
    run: Any = SimpleNamespace(
        parts=[table * 2.0, table],
        labels=[None, np.array([7, 8])],
        persons=None,
        weights=None,
    )
    run.plan = SimpleNamespace(run_id=7, settings=SimpleNamespace(n_beside=n_beside))
    one = Virtual(run, FIRST_NODE_ID + 1)
    points, beside = one.split_table()
    assert points.tolist() == table[:, :n_points].tolist()
    assert beside.tolist() == table[:, n_points:].tolist()
    assert one._labels.tolist() == [7, 8]  # type: ignore[union-attr]
