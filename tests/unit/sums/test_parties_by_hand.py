"""What a client and a server ask of each other in one run, where one step decides."""

from __future__ import annotations

import logging
import re
from dataclasses import replace
from functools import lru_cache
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from flwr_dpkmeans.algorithms.server_points import hold_points
from flwr_dpkmeans.errors import (
    CohortError,
    DisagreementError,
    IdentityError,
    PlanError,
    ProtocolError,
    RefusalError,
    VersionError,
)
from flwr_dpkmeans.options import parse_config
from flwr_dpkmeans.privacy.sentences import report_sentence
from flwr_dpkmeans.secagg.messages import (
    FinishReply,
    FinishRequest,
    Release,
    Stage,
    SumReply,
    SumRequest,
)
from flwr_dpkmeans.secagg.ring import MaskedVector
from flwr_dpkmeans.secagg.roster import Roster
from flwr_dpkmeans.sums import client
from flwr_dpkmeans.sums.build import initial_state
from flwr_dpkmeans.sums.client import Client, Guard
from flwr_dpkmeans.sums.draft import draft_plan
from flwr_dpkmeans.sums.local import LocalRun, Virtual, run_direct
from flwr_dpkmeans.sums.outcome import Discoveries
from flwr_dpkmeans.sums.plan import FIRST_NODE_ID, Plan
from flwr_dpkmeans.sums.round import unpack_state
from flwr_dpkmeans.sums.server import Server, _common_columns
from flwr_dpkmeans.sums.wire import (
    Failure,
    KeysReply,
    Request,
    Status,
    dump_plan,
    installed_versions,
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


@pytest.mark.parametrize(
    ("attempt", "n_members", "sentence"),
    [
        (1, None, None),
        (1, 3, None),
        (
            2,
            None,
            "attempt 2 was asked for, but the plan that was agreed on has 1 retries",
        ),
        (0, 4, "the roster has 4 clients, but the plan that was agreed on has 3"),
    ],
)
def test_no_more_is_asked_for_than_was_priced(
    attempt: int, n_members: int | None, sentence: str | None
) -> None:
    request = SumRequest(1, attempt, None if n_members is None else roster(n_members))
    if sentence is None:
        client._require_planned(plan(), request)
    else:
        with pytest.raises(ProtocolError, match=sentence):
            client._require_planned(plan(), request)


@pytest.mark.parametrize(
    ("released", "asked", "fits"),
    [(1, 2, True), (1, 1, False), (1, 3, False), (2, 3, True)],
)
def test_rounds_follow_each_other(released: int, asked: int, fits: bool) -> None:
    if fits:
        client._require_following(memory(), released, asked)
    else:
        with pytest.raises(
            ProtocolError, match=f"round {released + 1} follows \\(3: the end\\)"
        ):
            client._require_following(memory(), released, asked)


@pytest.mark.parametrize(
    ("blob", "repeated", "sentence"),
    [
        (b"", False, "is missing"),
        (b"x", True, "came a second time for one round"),
        (b"", True, None),
    ],
)
def test_a_servers_state_comes_once_for_each_round(
    blob: bytes, repeated: bool, sentence: str | None
) -> None:
    told = memory()
    if sentence is None:
        assert client._with_server_state(told, 1, blob, is_repeated=repeated) is told
    else:
        with pytest.raises(ProtocolError, match=sentence):
            client._with_server_state(told, 1, blob, is_repeated=repeated)


@pytest.mark.parametrize("more", [-1, 1])
def test_a_release_of_another_length_is_not_read(more: int) -> None:
    length = plan().round_at(1).length + more
    with pytest.raises(
        ProtocolError, match=f"has {length} entries, but the plan has {length - more}"
    ):
        client._readable(memory(), Release(1, 0, np.zeros(length, dtype=np.uint64)))


@pytest.mark.parametrize(
    ("pins", "has_identity", "announced", "known", "found"),
    [
        (None, True, None, 2, 2),
        ({}, False, None, 0, 0),
        ({}, True, object(), 2, 2),
        ({}, True, object(), 0, "since this run began"),
        ({}, True, None, 0, "came without the run's roster"),
    ],
)
def test_the_first_roster_is_held_against_the_pins(
    pins: Any, has_identity: bool, announced: Any, known: int, found: Any
) -> None:
    guard = SimpleNamespace(pinned=pins, identity=object() if has_identity else None)
    told = memory(n_recognised=known, protocol=SimpleNamespace(announced=announced))
    asked = Client(cast(Any, guard), cast(Any, None), None)._recognised
    if isinstance(found, int):
        assert asked(told, SumRequest(1, 0)) == found
    else:
        with pytest.raises((ProtocolError, IdentityError), match=found):
            asked(told, SumRequest(1, 0))


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
    request = Request(stage, SimpleNamespace(sentence="why"), run_id=run_id, wait=5.0)
    if run_id == 8:
        with pytest.raises(ProtocolError, match="is of another run than 7"):
            Client(guard, cast(Any, None), None).handle(request)
    elif stage is Stage.STOP:
        assert Client(guard, cast(Any, None), None).handle(request)[0] is None
    else:
        with pytest.raises(ProtocolError, match="run 7 is unknown to this client"):
            Client(guard, cast(Any, None), None).handle(request)
    assert waits == ([5.0] if stage is Stage.SUM and run_id != 8 else [])


def test_without_a_next_plan_the_last_one_must_be_whole() -> None:
    with_next = Client(Guard(), cast(Any, None), None)._with_next_plan
    told = memory()
    for released in (None, 1, -1):
        assert with_next(told, None, released) is told
    with pytest.raises(
        ProtocolError, match="the last preliminary sum was released, but no final plan"
    ):
        with_next(told, None, 0)
    private = SimpleNamespace(
        settings=SimpleNamespace(private_bounds=True), n_features=None
    )
    with pytest.raises(ProtocolError, match="the plan has no histograms yet"):
        with_next(memory(plan=private), None, None)
    private.n_features = 2
    assert with_next(memory(plan=private), None, None).plan is private


@pytest.mark.parametrize(("n_announced", "asked"), [(3, (2, 3)), (0, (2, 2))])
def test_shares_of_noise_are_for_those_that_shared_keys(
    n_announced: int, asked: tuple[int, int]
) -> None:
    """Those that are asked now may be fewer.

    As if they had been all, each would draw too little.
    """

    def shares_of(*numbers: int) -> None:
        raise ProtocolError(f"shares of {numbers}")

    odd = SimpleNamespace(round_at=plan().round_at, shares_of=shares_of)
    party = SimpleNamespace(
        announced=roster(n_announced) if n_announced else None, cohort=roster(2)
    )
    with pytest.raises(ProtocolError, match=re.escape(f"shares of {asked}")):
        Client(Guard(), cast(Any, None), None)._contribute(
            memory(plan=odd, protocol=party), SumRequest(1, 0), None
        )


@pytest.mark.parametrize(
    ("rate", "coin", "factor"), [(1.0, 0, 1), (0.999, 0, 0), (0.001, 1, 1)]
)
def test_who_does_not_take_part_sends_zeros(
    rate: float, coin: int, factor: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "takes_part", lambda *_: coin)
    guard, statistic = (
        Guard(),
        SimpleNamespace(compute=lambda *_: [np.full((2, 2), 0.5), np.ones(2)]),
    )
    guard.stream = 0
    assert Client(guard, cast(Any, None), None).unmasked_vector.size == 0
    odd: Any = SimpleNamespace(
        settings=SimpleNamespace(client_sampling_rate=rate), fraction_bits=4
    )
    made = Client(guard, cast(Any, statistic), None)
    vector = made._vector(memory(plan=odd), plan().round_at(1), (1, 0))
    assert vector.values.tolist() == [8 * factor] * 4 + [16 * factor] * 2
    for rubbish in ([], [np.ones(5)]):
        statistic.compute = lambda *_, rubbish=rubbish: rubbish
        with pytest.raises(
            ProtocolError, match="did not return the 6 entries of the plan's round 1"
        ):
            made._vector(memory(plan=odd), plan().round_at(1), (1, 0))


@pytest.mark.parametrize(
    ("pins", "identity", "asks"), [({}, 1, True), (None, 1, False), ({}, None, False)]
)
def test_neighbours_that_are_pinned_must_have_signed_the_survivors(
    pins: Any, identity: Any, asks: bool
) -> None:
    asked: list[Any] = []
    told = memory(
        protocol=SimpleNamespace(require_confirmed=lambda *said: asked.append(said)),
        identities=((3, b"i"),),
    )
    guard = SimpleNamespace(pinned=pins, identity=identity)
    Client(cast(Any, guard), cast(Any, None), None)._require_confirmed(told, {3: b"c"})
    assert asked == ([({3: b"i"}, {3: b"c"})] if asks else [])


@pytest.mark.parametrize(
    ("release", "step"),
    [(Release(1, 0, np.zeros(6, dtype=np.uint64)), "confirmed"), (None, "in")],
)
def test_a_release_is_taken_in_once_its_survivors_are_confirmed(
    release: Release | None, step: str
) -> None:
    class Noted(Client):
        def _require_confirmed(self, *_: Any) -> None:
            raise ProtocolError("confirmed")

    def admit(*_: Any) -> None:
        raise ProtocolError("in")

    told = memory(
        n_recognised=0,
        cohort=("3",),
        protocol=SimpleNamespace(round_index=1, admit=admit),
    )
    with pytest.raises(ProtocolError, match=step):
        Noted(Guard(), cast(Any, None), None)._sum(
            told, Request(Stage.SUM, SumRequest(2, 0, release=release))
        )


@pytest.mark.parametrize(
    "known", [{"rounds": True}, {"box": ((-1.0, -1.0), (1.0, 1.0))}]
)
def test_a_plan_that_knows_what_it_is_to_find_is_refused(known: dict[str, Any]) -> None:
    counting = plan(n_examples=None, delta=1e-6)
    assert counting.preliminary
    odd = replace(
        counting, **known | ({"rounds": plan().rounds} if "rounds" in known else {})
    )
    guard = Guard()
    guard.run_id, guard.node_id = 7, 3
    with pytest.raises(ProtocolError, match="the key phase carries no plan"):
        Client(guard, cast(Any, None), None).handle(
            Request(Stage.KEYS, versions=installed_versions())
        )
    with pytest.raises(
        ProtocolError,
        match="the plan fixes what its preliminary sums are still to find",
    ):
        Client(guard, cast(Any, None), None).handle(
            Request(Stage.KEYS, plan=dump_plan(odd), versions=installed_versions())
        )


@pytest.mark.parametrize("index", [0, 1])
def test_a_run_ends_after_its_last_round(index: int) -> None:
    """Or before, where its task may stop early, which this one does not."""
    last = Request(
        Stage.FINISH, FinishRequest(Release(index, 0, np.zeros(6, dtype=np.uint64)))
    )
    told = memory(protocol=SimpleNamespace(finish=lambda _: None))
    with pytest.raises(
        ProtocolError,
        match=f"the run was finished after round {index}, but the plan has 2",
    ):
        Client(Guard(), cast(Any, None), None)._finish(told, last)


@pytest.mark.parametrize(
    ("is_final", "server_advances"), [(False, False), (False, True), (True, True)]
)
def test_a_client_begins_by_itself_where_the_plan_is_final_and_its_own(
    is_final: bool, server_advances: bool
) -> None:
    odd: Any = type(
        "Odd", (), {"is_final": is_final, "server_advances": server_advances}
    )()
    assert client._initial_clusters(odd) is None
    assert client._initial_clusters(plan()).digest == initial_state(plan()).digest  # type: ignore[union-attr]


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
        report = Client(guard, cast(Any, None), None)._report(
            memory(clusters=clusters, attempts=((1, 0), (2, 0)), **given)
        )
        assert (faint in report.warnings) is warns
    run = made(trust="central")
    run.clusters, run.attempts = state, ((1, 0), (2, 0))
    for due, warns in ((Stage.SUM, False), (Stage.FINISH, True), (None, True)):
        run.due = due
        assert (faint in run.report.warnings) is warns


@pytest.mark.parametrize(
    ("released", "attempts", "begun"),
    [(None, (), False), (None, ((1, 0),), True), (0, (), True), (0, ((0, 0),), True)],
)
def test_a_run_has_begun_with_its_first_release(
    released: int | None, attempts: Any, begun: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a run that has begun no plan may change but for what was found."""

    def require_next(*_: Any, **known: Any) -> None:
        raise ProtocolError(str(known))

    monkeypatch.setattr(client, "require_next", require_next)
    with pytest.raises(
        ProtocolError, match=re.escape(str({"begun": begun, "released": released}))
    ):
        Client(Guard(), cast(Any, None), None)._with_next_plan(
            memory(attempts=attempts, discoveries=None), dump_plan(plan()), released
        )


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


@pytest.mark.parametrize(
    ("n_asked", "heard", "min_cohort", "stops"),
    [
        (3, (2, 3, 4), 2, False),
        (3, (2, 3), 2, False),
        (3, (2,), 2, True),
        (3, (2, 3), 3, True),
        (3, (2,), 1, True),
    ],
)
def test_a_run_stops_where_too_few_were_heard_for_a_sum(
    n_asked: int, heard: Any, min_cohort: int, stops: bool
) -> None:
    state: Any = SimpleNamespace(
        plan=SimpleNamespace(min_cohort=min_cohort), attempts=()
    )
    asked = range(2, 2 + n_asked)
    for attempts, words in (
        ((), "nobody has charged anything"),
        (((1, 0),), "what those that answered charged stays"),
    ):
        state.attempts = attempts
        if stops:
            with pytest.raises(
                CohortError,
                match=f"{len(heard)} of {n_asked} nodes answered within 5 s .*{words}",
            ):
                Server.require_answers(state, asked, heard, 5.0, "round-timeout")
        else:
            Server.require_answers(state, asked, heard, 5.0, "round-timeout")


@pytest.mark.parametrize(
    ("columns", "allowed", "common"),
    [
        ({2: "a", 3: "a"}, False, "a"),
        ({2: "", 3: ""}, False, ""),
        ({2: "a", 3: ""}, True, "a"),
        ({2: "a", 3: ""}, False, r"tables of nodes \[3\] have no column names"),
        ({2: "a", 3: "b", 4: "a"}, False, r"\(nodes \[3\]; nodes \[2, 4\]\)"),
        (dict.fromkeys(range(21), "") | {30: "a"}, False, r"nodes \[0, .*, 19\] have"),
        (
            dict.fromkeys(range(21), "b") | {30: "a"},
            True,
            r"\(nodes \[30\]; nodes \[0, .*, 19\]\)",
        ),
        ({node: str(node) for node in range(21)}, True, r"; nodes \[\d+\]\): use"),
    ],
)
def test_all_tables_have_the_columns_of_one_digest(
    columns: dict[int, str], allowed: bool, common: str
) -> None:
    if len(common) < 2:
        assert _common_columns(columns, allow_unnamed=allowed) == common
    else:
        with pytest.raises(RefusalError, match=common) as caught:
            _common_columns(columns, allow_unnamed=allowed)
        assert str(caught.value).count("nodes [") <= 20


def test_keys_of_enough_clients_begin_the_first_round(
    caplog: pytest.LogCaptureFixture,
) -> None:
    run = made()
    assert (run.nodes, run.due) == ((2, 3, 4), Stage.KEYS)
    with pytest.raises(ProtocolError, match="no keys have been agreed on yet"):
        _ = run.session
    with pytest.raises(
        CohortError,
        match=r"1 of 3 clients answered the plan, but at least 2 are needed",
    ):
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
    assert run._is_repeated
    caplog.clear()
    with pytest.raises(
        CohortError, match="0 clients are left, but at least 2 are needed"
    ):
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


def vectors(index: int, attempt: int, value: int, *nodes: int) -> list[Any]:
    """Answers to a request for sums, without masks and tags."""
    values = np.full(plan().round_at(index).length, value, dtype=np.int64).view(
        np.uint64
    )
    reply = SumReply(index, attempt, MaskedVector(values), b"")
    return [(node, lambda *_: reply) for node in nodes]


def test_a_sum_is_asked_for_again_without_the_silent_and_only_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    run = made(trust="central", masking=False)
    run.take(keys(run, 2, 3, 4))
    assert [node for node, _ in run.requests()] == [2, 3, 4]
    assert run.take(vectors(1, 0, 5 << 16, 2, 4)) is None
    assert (run.due, run.nodes, run.confirmed) == (Stage.SUM, (2, 4), ())
    assert (
        "nodes [3] did not answer: attempt 1 without them, with the 2 that did"
        in caplog.text
    )
    requests = dict(run.requests())
    assert sorted(requests) == [2, 4]
    assert requests[2].body.attempt_id == (1, 1)
    step = run.take(vectors(1, 1, 5 << 16, 2, 4))
    assert step is not None
    assert (step.round_index, step.attempt, step.n_clients) == (1, 1, 2)
    request = dict(run.requests())[4]
    assert request.body.attempt_id == (2, 1)
    assert request.body.release.attempt_id == (1, 1)
    with pytest.raises(CohortError):  # this run had one retry
        run.take(vectors(2, 1, 0, 2))
    run = made(trust="central", masking=False)
    run.take(keys(run, 2, 3, 4))
    list(run.requests())
    run.take(vectors(1, 0, 0, 2, 3, 4))
    assert [request.body.release is None for _, request in run.requests()] == [
        False
    ] * 3
    run.take(vectors(2, 0, 0, 2, 3))
    assert [request.body.release is None for _, request in run.requests()] == [True] * 2


def test_a_sum_that_no_rows_have_stops_the_run() -> None:
    """Three clients of a thousand rows do not have a million in each cluster."""
    run = made(trust="central", masking=False)
    run.take(keys(run, 2, 3, 4))
    list(run.requests())
    with pytest.raises(
        ProtocolError, match=r"in round 1 lie outside .*; nothing was sent on"
    ):
        run.take(vectors(1, 0, 10**6 << 16, 2, 3, 4))


@pytest.mark.parametrize("agrees_besides", [True, False])
@pytest.mark.parametrize(
    "answer",
    [Failure(Status.REFUSED, "ProtocolError", "so"), VersionError("speaks another")],
)
def test_who_refuses_the_plan_stops_the_run_unless_it_agreed_besides(
    answer: Any, agrees_besides: bool
) -> None:
    run = made()
    answers = [*keys(run, 2, 3), (4, lambda *_: answer)]
    if agrees_besides:
        run.take([*answers, *keys(run, 4)])
        assert run.due is Stage.SUM
    else:
        with pytest.raises(
            (RefusalError, VersionError),
            match=r"refused \(ProtocolError\): so|speaks another",
        ):
            run.take(answers)


@pytest.mark.parametrize("has_result", [True, False])
def test_the_end_is_confirmed_by_tags(
    has_result: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """One sort of answers after the other: a refusal, none that can be read, and equal
    tags.
    """
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
    with pytest.raises(
        DisagreementError, match=r"node\(s\) \[3\] differs from the others' in round 3"
    ):
        run.take(
            [
                (node, lambda _, to: FinishReply(bytes([to == 3]) * 32))
                for node in (2, 3, 4)
            ]
        )


@pytest.mark.parametrize(
    ("values", "n_features", "columns", "announced", "final"),
    [
        ({}, 2, "", False, True),
        ({}, None, "", True, True),
        ({}, 2, "ab" * 32, True, True),
        ({"n_examples": None, "delta": 1e-6}, None, "", False, False),
        (
            {"n_examples": None, "delta": 1e-6, "private_bounds": True},
            None,
            "",
            True,
            False,
        ),
    ],
)
def test_what_tables_have_in_common_joins_the_plan(
    values: Any, n_features: int | None, columns: str, announced: bool, final: bool
) -> None:
    """And is sent with the first request, unless a count is still to come and nothing
    else depends on the width.
    """
    first = plan(**values)
    first = (
        first
        if n_features
        else draft_plan(first.config, run_id=7, n_clients=3, seed=0, n_features=None)
    )
    run = Server(first, node_ids=(2, 3, 4))
    run.take(keys(run, 2, 3, 4, columns=columns))
    assert (run.plan.n_features, run.plan.columns_digest, run.plan.is_final) == (
        2,
        columns,
        final,
    )
    sent = {request.plan for _, request in run.requests()}
    assert sent == ({dump_plan(run.plan)} if announced else {None})
    assert run._plan_in_force == (
        plan_digest(dump_plan(run.plan)) if announced else run.digest
    )


def test_the_servers_report_counts_who_signed() -> None:
    run = made()
    assert any(
        line.startswith("No client signed its key.") for line in run.report.assumptions
    )
    run._credentials = {2: cast(Any, None), 4: cast(Any, None)}
    assert any(
        report_sentence("signed", n=2, n_clients=3) == line
        for line in run.report.assumptions
    )


# -- both in one process ---------------------------------------------------------------


@pytest.mark.parametrize("trust", ["oblivious", "central", "distributed"])
@pytest.mark.parametrize("counts", [False, True])
@pytest.mark.parametrize("dropout", ["retry", "recover"])
def test_a_run_of_six_clients(trust: str, counts: bool, dropout: str) -> None:
    """Two steps, perhaps after a count.

    The server's result is there where it may read sums, and is the clients'.
    """
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
    assert plan_digest(run._plan_blob) == run.digest
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
    assert kept.unmasked_vector.size == 0
    kept.play()
    assert (len(scaled), sorted(kept.scaled)) == (3, [0, 1, 2])
    anew = LocalRun(plan(), tuple(parts), scale=scale).play()
    assert (len(scaled), anew.scaled) == (9, {})


@pytest.mark.parametrize(
    ("is_final", "preliminary", "n_features", "n_parts", "sentence"),
    [
        (
            True,
            (5,),
            2,
            3,
            "the plan waits for the tables' width, or knows what it is still to find",
        ),
        (False, (), 2, 3, "the plan waits"),
        (False, (5,), None, 3, "the plan waits"),
        (True, (), None, 3, "the plan waits"),
        (True, (), 2, 2, "the plan is for 3 clients, but there are 2"),
        (False, (5,), 2, 4, "the plan is for 3 clients, but there are 4"),
    ],
)
def test_a_local_run_takes_a_plan_for_its_tables(
    is_final: bool,
    preliminary: Any,
    n_features: int | None,
    n_parts: int,
    sentence: str,
) -> None:
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
        parts=[table * 2.0, table], labels=[None, np.array([7, 8])]
    )
    run.plan = SimpleNamespace(run_id=7, settings=SimpleNamespace(n_beside=n_beside))
    one = Virtual(run, FIRST_NODE_ID + 1)
    points, beside = one._table()
    assert points.tolist() == table[:, :n_points].tolist()
    assert beside.tolist() == table[:, n_points:].tolist()
    assert one._labels.tolist() == [7, 8]  # type: ignore[union-attr]


def test_a_server_that_goes_on_alone_sends_what_is_read_of_its_state_and_no_release() -> (
    None
):
    given = {
        "n_clusters": 2,
        "bounds": ((-1.0,), (1.0,)),
        "algorithm": "feddp_kmeans",
        "trust": "central",
    }
    config = parse_config(**given, max_iter=1, epsilon=50.0, delta=1e-6)
    points = (
        np.rint(np.random.default_rng(3).uniform(-(2.0**10), 2.0**10, (4, 40, 3)))
        / 2.0**10
    )
    held = hold_points(config, points[3])
    alone = draft_plan(
        config,
        run_id=7,
        n_clients=3,
        seed=0,
        n_features=3,
        server=held.facts,
        public_points=held.public,
    )
    sent: list[tuple[list[str], Any]] = []

    class Noted(LocalRun):
        def ask(self, node: int, request: Request) -> Any:
            if node == FIRST_NODE_ID and (body := request.body) is not None:
                sent.append(
                    (
                        sorted(unpack_state(body.state).extras),
                        body.release and body.release.values.size,
                    )
                )
            return super().ask(node, request)

    run = Noted(alone, list(points[:3]), server_points=held.kept).play()
    reads = [
        [],
        ["projected_points", "projection"],
        ["projected_centers", "projection"],
        [],
        ["centre_deviation"],
    ]
    assert sent == list(zip(reads, (None, 0, 0, 0, 0), strict=True))
    assert np.array_equal(run.first.clusters.centroids, run.clusters.centroids)  # type: ignore[union-attr]
