"""Clients that disappear or answer late, twice or nonsense.

The survivors finish, or a sentence says why not.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from flwr.app import (
    Array,
    ArrayRecord,
    ConfigRecord,
    Error,
    Message,
    MetricRecord,
    RecordDict,
)
from support.messages import (
    RECORD,
    VECTOR_LAYOUT,
    VECTOR_RECORD,
    copied,
    stage_and_round,
    version_fields,
)
from support.protocol_federation import (
    Federation,
    Truth,
    count_readable,
    grid_parts,
    make_federation,
    plain_lloyd,
    received_vectors,
    signed,
    start_of,
    without_identities,
)

from flwr_dpkmeans.errors import (
    CohortError,
    DisagreementError,
    DPKMeansError,
    RefusalError,
)
from flwr_dpkmeans.secagg.messages import packed_parts
from flwr_dpkmeans.sums.draft import worst_case
from flwr_dpkmeans.sums.statement import epsilon_after

SIZES = (120, 80, 60, 40)
VICTIM = 4
N_ROUNDS = 4


def reply_round(message: Message) -> int:
    """Round of a sum reply; -1 for every other message."""
    return next((key[0] for key in received_vectors([message])), -1)


class Dead:
    """Nodes that are silent from one phase (and round) on."""

    def __init__(
        self, nodes: Sequence[int], stage: str, round_index: int = -1, *,
        answers_lost: bool = False,
    ) -> None:  # fmt: skip
        self._nodes, self._when, self._answers_lost = (
            tuple(nodes),
            (stage, round_index),
            answers_lost,
        )
        self._dead = False
        self._mute: set[int] = set()

    def install(self, federation: Federation) -> None:
        federation.faults.on_request = self._on_request
        federation.faults.on_reply = self._on_reply

    def _on_request(self, message: Message) -> bool:
        node = message.metadata.dst_node_id
        if node not in self._nodes or node in self._mute:
            return node not in self._mute
        if stage_and_round(message) == self._when:
            self._mute.add(node)
            return self._answers_lost
        return True

    def _on_reply(self, reply: Message) -> list[Message]:
        return [] if reply.metadata.src_node_id in self._mute else [reply]


def lloyd_run(federation: Federation, **values: Any) -> Any:
    return federation.start(
        **({"algorithm": "lloyd", "max_iter": N_ROUNDS, "n_examples": None} | values)
    )


def expected(
    federation: Federation, parts: Sequence[Any], gone: Sequence[int], from_round: int
) -> Any:
    """Plain Lloyd with everybody before a round and the survivors from it on."""
    survivors = [part for node, part in enumerate(parts, start=2) if node not in gone]
    n_rounds = federation.plan.last_round
    rounds = [
        survivors if index >= from_round else parts for index in range(1, n_rounds + 1)
    ]
    return plain_lloyd(start_of(federation.plan), rounds)


def require_result(
    federation: Federation, parts: Sequence[Any], gone: Sequence[int], from_round: int
) -> None:
    centroids, counts = expected(federation, parts, gone, from_round)
    for node, client in federation.clients.items():
        if node not in gone:
            assert np.array_equal(client.cluster_centers_, centroids), node
            assert np.array_equal(client.counts_, counts), node
        else:
            assert client.cluster_centers_ is None


POSITIONS = [("keys", -1), ("sum", 1), ("sum", 2), ("sum", N_ROUNDS), ("finish", -1)]


@pytest.mark.sample(15)
@pytest.mark.parametrize("trust", ["oblivious", "central", "distributed"])
@pytest.mark.parametrize(
    "answers_lost", [False, True], ids=["request-lost", "reply-lost"]
)
@pytest.mark.parametrize(("stage", "round_index"), POSITIONS)
def test_a_client_killed_anywhere_leaves_a_correct_result(
    stage: str, round_index: int, answers_lost: bool, trust: str
) -> None:
    parts = grid_parts(SIZES)
    federation = make_federation(parts)
    Dead([VICTIM], stage, round_index, answers_lost=answers_lost).install(federation)
    result = lloyd_run(federation, trust=trust)
    from_round = {"keys": 1, "finish": N_ROUNDS + 1}.get(stage, round_index)
    gone = [VICTIM] if not (stage == "finish" and answers_lost) else []
    require_result(federation, parts, gone, from_round)
    survivors = {2, 3, 5}
    assert set(result.confirmed) == survivors
    plain = [(index, 0) for index in range(1, N_ROUNDS + 1)]
    if stage == "sum":
        retried = [
            (index, int(index >= round_index)) for index in range(1, N_ROUNDS + 1)
        ]
        plain = sorted({*retried, (round_index, 0)})
    for node in survivors:
        assert federation.attempts_in_ledger(node) == plain
        report = federation.clients[node].privacy_
        assert report is not None
        assert without_identities(report) == without_identities(result.privacy)
    assert result.privacy.n_attempts == len(plain)
    lines = [(line.round_index, line.attempt) for line in result.privacy.releases]
    assert sorted(set(lines)) == plain
    victim = [
        entry
        for entry in plain
        if stage == "finish" or (stage == "sum" and entry[0] < round_index)
    ]
    if answers_lost and stage == "sum":
        victim.append((round_index, 0))
    assert federation.attempts_in_ledger(VICTIM) == victim


@pytest.mark.parametrize("n_examples", [300, None])
@pytest.mark.parametrize("algorithm", ["fastlloyd", "glloyd"])
def test_a_retry_of_the_costliest_round_costs_the_announced_worst_case(
    algorithm: str, n_examples: int | None
) -> None:
    federation = make_federation(grid_parts(SIZES))
    Dead([VICTIM], "sum", 2).install(federation)
    result = federation.start(algorithm=algorithm, n_examples=n_examples, epsilon=2.0)
    plan, report = federation.plan, result.privacy
    assert plan.epsilon <= 2.0 < report.epsilon
    assert (
        plan.epsilon_worst_case
        <= worst_case(plan)
        == report.epsilon
        == report.epsilon_worst_case
    )
    assert n_examples is None or report.epsilon == plan.epsilon_worst_case
    for node in (2, 3, 5):
        assert {entry.epsilon for entry in federation.ledgers[node].entries()} == {
            report.epsilon
        }


def test_a_retry_of_a_cheaper_round_is_reported_as_the_worst_case_too() -> None:
    """Who fell silent may depend on what was released, and so may in which round."""
    federation = make_federation(grid_parts(SIZES))
    Dead([VICTIM], "sum", 0).install(federation)
    result = federation.start(n_examples=None, epsilon=2.0)
    plan = federation.plan
    assert (
        plan.epsilon
        < epsilon_after(plan, federation.attempts_in_ledger(2))
        < result.privacy.epsilon
    )
    assert result.privacy.epsilon == worst_case(plan)
    assert federation.attempts_in_ledger(2)[:3] == [(0, 0), (0, 1), (1, 1)]


def test_a_laplace_retry_stays_below_the_announced_worst_case() -> None:
    federation = make_federation(grid_parts(SIZES))
    Dead([VICTIM], "sum", 2).install(federation)
    result = federation.start(algorithm="sulloyd", epsilon=2.0)
    assert 2.0 < result.privacy.epsilon <= federation.plan.epsilon_worst_case


def test_two_retries_if_the_plan_has_two() -> None:
    parts = grid_parts((*SIZES, 30, 20))
    federation = make_federation(parts)
    first, second = Dead([4], "sum", 2), Dead([6, 7], "sum", 3)

    def on_request(message: Message) -> bool:
        return first._on_request(message) and second._on_request(message)

    federation.faults.on_request = on_request
    result = lloyd_run(federation, max_retries=2)
    everybody = dict(enumerate(parts, start=2))
    rounds = [
        [part for node, part in everybody.items() if node not in gone]
        for gone in ((), (4,), (4, 6, 7), (4, 6, 7))
    ]
    centroids, _ = plain_lloyd(start_of(federation.plan), rounds)
    assert np.array_equal(federation.clients[2].cluster_centers_, centroids)
    assert federation.attempts_in_ledger(2) == [
        (1, 0), (2, 0), (2, 1), (3, 1), (3, 2), (4, 2),
    ]  # fmt: skip
    assert result.privacy.n_attempts == 6


# -- runs that have to stop ------------------------------------------------------------


def require_sentence(error: BaseException, *parts: str) -> None:
    """One line, a mend at its end, and the given words."""
    text = str(error)
    assert "\n" not in text
    assert text.endswith(".")
    assert ":" in text
    for part in parts:
        assert part in text, text


@pytest.mark.parametrize("max_retries", [0, 1])
def test_retries_used_up(max_retries: int) -> None:
    federation = make_federation(grid_parts((*SIZES, 30)))
    deaths = [Dead([VICTIM], "sum", 1), Dead([5], "sum", 2)]
    federation.faults.on_request = lambda message: all(
        death._on_request(message) for death in deaths
    )
    with pytest.raises(CohortError) as caught:
        lloyd_run(federation, max_retries=max_retries)
    require_sentence(
        caught.value, f"{max_retries} retries are used up", "raise max-retries"
    )


@pytest.mark.parametrize(
    ("stage", "round_index"), [("keys", -1), ("sum", 1), ("sum", 3)]
)
def test_fewer_than_min_clients(stage: str, round_index: int) -> None:
    federation = make_federation(grid_parts(SIZES))
    Dead([VICTIM], stage, round_index).install(federation)
    with pytest.raises(CohortError) as caught:
        lloyd_run(federation, min_clients=4)
    require_sentence(caught.value, "at least 4 are needed", "[4]")
    assert federation.charges() == {"keys": 0, "sum": 3 + 4 * (round_index - 1)}[stage]


@pytest.mark.parametrize(
    ("stage", "round_index"), [("keys", -1), ("sum", 1), ("sum", 2)]
)
def test_everybody_disappears(stage: str, round_index: int) -> None:
    federation = make_federation(grid_parts(SIZES))
    Dead([2, 3, 4, 5], stage, round_index).install(federation)
    with pytest.raises(CohortError) as caught:
        lloyd_run(federation)
    require_sentence(caught.value, "at least 2 are needed")


def test_nobody_confirms_the_result() -> None:
    """Under ``oblivious`` the run then has no result that anybody knows of."""
    federation = make_federation(grid_parts(SIZES))
    Dead([2, 3, 4, 5], "finish").install(federation)
    with pytest.raises(CohortError) as caught:
        lloyd_run(federation)
    require_sentence(caught.value, "none of the 4 clients confirmed")
    federation = make_federation(grid_parts(SIZES))
    Dead([2, 3, 4, 5], "finish").install(federation)
    result = lloyd_run(federation, trust="central")
    assert result.confirmed == ()
    assert "centroids" in result.arrays


def test_more_dropouts_than_the_silent_clients_that_were_planned_for() -> None:
    """With t = 2 of 4, two shares are counted on."""
    federation = make_federation(grid_parts(SIZES))
    Dead([VICTIM], "sum", 2).install(federation)
    with pytest.raises(CohortError) as caught:
        federation.start(trust="distributed", max_silent=2)
    require_sentence(caught.value, "at least 4 are needed")


# -- key authors -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "answers_lost", [False, True], ids=["request-lost", "reply-lost"]
)
@pytest.mark.parametrize("round_index", [1, 2])
@pytest.mark.parametrize("n_lost", [1, 2])
def test_dropped_key_authors_reveal_nothing(
    truth: Truth, n_lost: int, round_index: int, answers_lost: bool
) -> None:
    parts = grid_parts((*SIZES, 30))
    federation = make_federation(parts)
    lost: list[int] = []
    inner: list[Dead] = []

    def dead(message: Message) -> Dead | None:
        if not inner and stage_and_round(message)[0] == "sum":
            assert federation.strategy is not None
            authors = federation.strategy.run.session.roster.authors(0)
            assert len(authors) == 2
            lost.extend(authors[:n_lost])
            inner.append(Dead(lost, "sum", round_index, answers_lost=answers_lost))
        return inner[0] if inner else None

    def on_request(message: Message) -> bool:
        death = dead(message)
        return death is None or death._on_request(message)

    federation.faults.on_request = on_request
    federation.faults.on_reply = lambda reply: (
        inner[0]._on_reply(reply) if inner else [reply]
    )
    lloyd_run(federation)
    assert len(lost) == n_lost
    require_result(federation, parts, lost, round_index)
    require_nothing_readable(federation)
    # New authors were named: the survivors' boxes of the second attempt are there.
    assert federation.strategy is not None
    assert not set(lost) & set(federation.strategy.run.session.roster.authors(0))


def combinations(federation: Federation) -> dict[str, Any]:
    """All subset sums within an attempt, and their differences within a round."""
    by_round = received_vectors(federation.grid.received)
    sums: dict[int, dict[str, Any]] = {}
    for (index, attempt), vectors in by_round.items():
        for size in range(1, len(vectors) + 1):
            for nodes in itertools.combinations(sorted(vectors), size):
                total = np.sum(
                    [vectors[node] for node in nodes], axis=0, dtype=np.uint64
                )
                sums.setdefault(index, {})[f"{index}/{attempt} {nodes}"] = total
    found = {name: total for group in sums.values() for name, total in group.items()}
    for group in sums.values():
        for (one, a), (other, b) in itertools.combinations(group.items(), 2):
            found[f"{one} - {other}"] = a - b
            found[f"{one} + {other}"] = a + b
    return found


def require_nothing_readable(federation: Federation) -> None:
    """No sum or difference of what the server holds is as small as a statistic."""
    found = combinations(federation)
    assert len(found) > 100
    for name, words in found.items():
        assert count_readable(words) <= 1, f"{name} is readable"


# -- late replies ----------------------------------------------------------------------


def run_with_late_reply(trust: str) -> tuple[Federation, list[Any]]:
    """The victim's reply of attempt 0 arrives with the replies of attempt 1."""
    parts = grid_parts(SIZES)
    federation = make_federation(parts)
    held: list[Message] = []

    def on_reply(reply: Message) -> list[Message]:
        if reply.metadata.src_node_id == VICTIM and reply_round(reply) == 2:
            held.append(reply)
            return []
        if (
            held
            and reply_round(reply) == 2
            and next(iter(received_vectors([reply])))[1] == 1
        ):
            federation.faults.extra = held[:1]
        return [reply]

    federation.faults.on_reply = on_reply
    lloyd_run(federation, trust=trust)
    assert len(held) == 1
    assert any(message is held[0] for message in federation.grid.received)
    return federation, parts


@pytest.mark.parametrize("trust", ["oblivious", "central", "distributed"])
def test_a_late_reply_is_ignored(trust: str) -> None:
    federation, parts = run_with_late_reply(trust)
    require_result(federation, parts, [VICTIM], 2)
    assert federation.attempts_in_ledger(VICTIM) == [(1, 0), (2, 0)]


def test_a_late_reply_reveals_nothing_under_oblivious(truth: Truth) -> None:
    federation, _ = run_with_late_reply("oblivious")
    vectors = received_vectors(federation.grid.received)
    assert sorted(vectors[2, 0]) == [2, 3, 4, 5]
    assert sorted(vectors[2, 1]) == [2, 3, 5]
    require_nothing_readable(federation)


def test_the_checker_of_late_replies_fires() -> None:
    """Under ``central`` the two sums' difference is the victim's statistic."""
    federation, parts = run_with_late_reply("central")
    with pytest.raises(AssertionError, match="readable"):
        require_nothing_readable(federation)
    vectors = received_vectors(federation.grid.received)
    attempts = [
        np.sum(list(vectors[2, attempt].values()), axis=0, dtype=np.uint64)
        for attempt in (0, 1)
    ]
    assert (
        signed(attempts[0] - attempts[1])[-3:].sum() == len(parts[VICTIM - 2]) * 2**16
    )


def test_streams_are_fresh_after_a_retry() -> None:
    """The same statistic (no release in between) is sent under other masks."""
    federation, _ = run_with_late_reply("oblivious")
    vectors = received_vectors(federation.grid.received)
    for node in (2, 3, 5):
        assert not np.any(vectors[2, 0][node] == vectors[2, 1][node])


# -- repeated and forged replies -------------------------------------------------------


def from_node(
    message: Message, node: int, content: RecordDict | None = None
) -> Message:
    """A message that claims another sender."""
    forged = Message(
        copied(message.content if content is None else content), reply_to=message
    )
    forged.metadata.__dict__.update(
        _src_node_id=node, _message_id="forged", _dst_node_id=1
    )
    return forged


@pytest.mark.parametrize("trust", ["oblivious", "central", "distributed"])
def test_duplicated_replies_are_ignored(trust: str) -> None:
    parts = grid_parts(SIZES)
    federation = make_federation(parts)
    federation.faults.on_reply = lambda reply: [reply, reply]
    lloyd_run(federation, trust=trust)
    require_result(federation, parts, [], 1)


@pytest.mark.parametrize("trust", ["oblivious", "central", "distributed"])
def test_replayed_and_forged_replies_are_ignored(trust: str) -> None:
    parts = grid_parts(SIZES)
    federation = make_federation(parts)
    seen: list[Message] = []

    def on_reply(reply: Message) -> list[Message]:
        seen.append(reply)
        if len(seen) % 4 == 0:
            # Everything that was ever sent once more, from its sender, from others and
            # from a stranger.
            federation.faults.extra = [
                *seen,
                *(from_node(m, 5) for m in seen),
                *(from_node(m, 99) for m in seen),
            ]
        return [reply]

    federation.faults.on_reply = on_reply
    result = lloyd_run(federation, trust=trust)
    require_result(federation, parts, [], 1)
    assert result.privacy.n_attempts == N_ROUNDS
    assert result.confirmed == (2, 3, 4, 5)


def test_a_poisoned_vector_stops_the_run_or_agrees_everywhere() -> None:
    """A vector of wrong words (NaN bytes) cannot be told from a masked one."""
    federation = make_federation(grid_parts(SIZES))

    def on_reply(reply: Message) -> list[Message]:
        if reply.metadata.src_node_id == VICTIM and reply_round(reply) == 2:
            words = np.full(9, np.nan).view(np.uint64)
            return [with_vector(reply, words.tobytes(), "uint64", (9,))]
        return [reply]

    federation.faults.on_reply = on_reply
    lloyd_run(federation)
    centroids = [client.cluster_centers_ for client in federation.clients.values()]
    assert all(np.array_equal(centroids[0], other) for other in centroids)
    assert np.isfinite(centroids[0]).all()


# -- malformed replies -----------------------------------------------------------------


def with_record(message: Message, **fields: Any) -> Message:
    """The same reply with other fields in its record; None removes one."""
    content = copied(message.content)
    record = dict(content.config_records[RECORD]) | fields
    content.config_records[RECORD] = ConfigRecord(
        {k: v for k, v in record.items() if v is not None}
    )
    return from_node(message, message.metadata.src_node_id, content)


def with_header(message: Message, **fields: Any) -> Message:
    """The same reply with other header fields."""
    header = json.loads(str(message.content.config_records[RECORD]["header"])) | fields
    return with_record(message, header=json.dumps(header))


def with_vector(
    message: Message, data: bytes, dtype: str, shape: tuple[int, ...]
) -> Message:
    """The same reply with another vector."""
    content = copied(message.content)
    array = Array(dtype=dtype, shape=shape, stype=VECTOR_LAYOUT, data=data)
    content.array_records[VECTOR_RECORD] = ArrayRecord({"vector": array})
    return from_node(message, message.metadata.src_node_id, content)


def with_content(message: Message, content: RecordDict) -> Message:
    return from_node(message, message.metadata.src_node_id, content)


def numpy_vector(message: Message) -> Message:
    """Serialised as by Flower: parsing would unpickle another party's bytes."""
    content = copied(message.content)
    content.array_records[VECTOR_RECORD] = ArrayRecord(
        {"vector": Array(np.zeros(9, dtype=np.uint64))}
    )
    return with_content(message, content)


def error_reply(message: Message) -> Message:
    reply = Message(Error(code=2, reason="boom"), reply_to=message)
    reply.metadata.__dict__.update(
        _src_node_id=message.metadata.src_node_id, _message_id="error"
    )
    return reply


NAN_BYTES = np.full(9, np.nan).tobytes()
MALFORMED: dict[str, Callable[[Message], Message]] = {
    "too short": lambda m: with_vector(m, bytes(8 * 8), "uint64", (8,)),
    "too long": lambda m: with_vector(m, bytes(10 * 8), "uint64", (10,)),
    "empty vector": lambda m: with_vector(m, b"", "uint64", (0,)),
    "torn": lambda m: with_vector(m, bytes(71), "uint64", (9,)),
    "shape lies": lambda m: with_vector(m, bytes(72), "uint64", (3, 3)),
    "shape negative": lambda m: with_vector(m, bytes(72), "uint64", (-9,)),
    "dtype float": lambda m: with_vector(m, NAN_BYTES, "float64", (9,)),
    "dtype object": lambda m: with_vector(m, NAN_BYTES, "object", (9,)),
    "numpy format": numpy_vector,
    "no vector": lambda m: with_content(
        m, RecordDict({RECORD: m.content.config_records[RECORD]})
    ),
    "no record": lambda m: with_content(
        m, RecordDict({"other": ConfigRecord({"a": 1})})
    ),
    "empty": lambda m: with_content(m, RecordDict()),
    "metrics instead": lambda m: with_content(
        m, RecordDict({RECORD: MetricRecord({"num-examples": 40})})
    ),
    "arrays instead": lambda m: with_content(
        m, RecordDict({RECORD: ArrayRecord({"v": Array(np.zeros(9))})})
    ),
    "header gone": lambda m: with_record(m, header=None),
    "header bytes": lambda m: with_record(m, header=b"\xff\xfe"),
    "header not JSON": lambda m: with_record(m, header="{status: ok"),
    "header a list": lambda m: with_record(m, header="[1, 2]"),
    "header deep": lambda m: with_record(m, header="[" * 9000),
    "header long": lambda m: with_record(m, header=" " * 10_001 + "{}"),
    "header big number": lambda m: with_record(
        m, header='{"status": "ok", "round": ' + "9" * 5000 + "}"
    ),
    "status unknown": lambda m: with_header(m, status="fine"),
    "status a list": lambda m: with_header(m, status=["ok"]),
    "round text": lambda m: with_header(m, round="2"),
    "round true": lambda m: with_header(m, round=True),
    "round NaN": lambda m: with_header(m, round=float("nan")),
    "round other": lambda m: with_header(m, round=1),
    "attempt other": lambda m: with_header(m, attempt=7),
    "tag gone": lambda m: with_record(m, tag=None),
    "tag text": lambda m: with_record(m, tag="tag"),
    "tag short": lambda m: with_record(m, tag=b"short"),
    "boxes undue": lambda m: with_record(m, boxes=bytes(8) + b"\x01\0\0\0x"),
    "boxes torn": lambda m: with_record(m, boxes=b"torn"),
    "boxes a number": lambda m: with_record(m, boxes=7),
    "failed": lambda m: with_header(
        m, status="failed", code="InternalError", sentence="x" * 5000 + "\n\x1b[31m"
    ),
    "failed, odd code": lambda m: with_header(
        m, status="failed", code=["BudgetError"], sentence=None
    ),
    "Flower error": error_reply,
}


@pytest.mark.sample(15)
@pytest.mark.parametrize("kind", MALFORMED)
def test_a_malformed_reply_counts_as_a_dropout(kind: str) -> None:
    parts = grid_parts(SIZES)
    federation = make_federation(parts)
    damaged: list[str] = []

    def on_reply(reply: Message) -> list[Message]:
        if reply.metadata.src_node_id == VICTIM and reply_round(reply) == 2:
            damaged.append(kind)
            return [MALFORMED[kind](reply)]
        return [reply]

    federation.faults.on_reply = on_reply
    lloyd_run(federation)
    assert damaged == [kind]
    require_result(federation, parts, [VICTIM], 2)
    assert federation.attempts_in_ledger(2) == [(1, 0), (2, 0), (2, 1), (3, 1), (4, 1)]


KEYS_MALFORMED = [
    "empty", "no record", "metrics instead", "header gone", "header not JSON",
    "header deep", "status unknown", "Flower error",
]  # fmt: skip


@pytest.mark.parametrize("position", ["keys", "finish"])
@pytest.mark.parametrize("kind", KEYS_MALFORMED)
def test_a_malformed_reply_of_another_phase_leaves_only_its_node_out(
    kind: str, position: str
) -> None:
    parts = grid_parts(SIZES)
    federation = make_federation(parts)
    n_replies = {"keys": 0, "finish": N_ROUNDS + 1}[position]
    counted = dict.fromkeys(federation.clients, -1)

    def on_reply(reply: Message) -> list[Message]:
        node = reply.metadata.src_node_id
        counted[node] += 1
        return (
            [MALFORMED[kind](reply)]
            if node == VICTIM and counted[node] == n_replies
            else [reply]
        )

    federation.faults.on_reply = on_reply
    result = lloyd_run(federation)
    assert result.confirmed == (2, 3, 5)
    require_result(federation, parts, [VICTIM] if position == "keys" else [], 1)


@pytest.mark.parametrize(
    "fields",
    [
        {"public_key": b"short"},
        {"public_key": None},
        {"public_key": 3},
        {"plan_digest": None},
    ],
)
def test_malformed_keys_leave_only_their_node_out(fields: dict[str, Any]) -> None:
    parts = grid_parts(SIZES)
    federation = make_federation(parts)

    def on_reply(reply: Message) -> list[Message]:
        is_key = "public_key" in (reply.content.config_records.get(RECORD) or {})
        return (
            [with_record(reply, **fields)]
            if is_key and reply.metadata.src_node_id == VICTIM
            else [reply]
        )

    federation.faults.on_reply = on_reply
    lloyd_run(federation)
    require_result(federation, parts, [VICTIM], 1)


@pytest.mark.parametrize(
    ("fields", "error", "word"),
    [
        ({"plan_digest": bytes(32)}, DPKMeansError, "another plan"),
        ({"header": json.dumps({"status": "ok", "n_features": 3} | version_fields())},
         RefusalError, "different numbers of features"),
    ],
)  # fmt: skip
def test_a_node_with_another_plan_or_table_stops_the_run(
    fields: dict[str, Any], error: type, word: str
) -> None:
    federation = make_federation(grid_parts(SIZES))

    def on_reply(reply: Message) -> list[Message]:
        return [
            (
                with_record(reply, **fields)
                if reply.metadata.src_node_id == VICTIM
                else reply
            )
        ]

    federation.faults.on_reply = on_reply
    with pytest.raises(error) as caught:
        lloyd_run(federation)
    require_sentence(caught.value, word)
    assert federation.charges() == 0


@pytest.mark.parametrize("tag", [bytes(32), b""])
@pytest.mark.parametrize("at_the_end", [False, True])
def test_a_wrong_tag_stops_the_run_and_names_the_node(
    tag: bytes, at_the_end: bool
) -> None:
    federation = make_federation(grid_parts(SIZES))
    seen = []

    def on_reply(reply: Message) -> list[Message]:
        mine = reply.metadata.src_node_id == VICTIM
        seen.append(mine)
        due = sum(seen) == N_ROUNDS + 2 if at_the_end else reply_round(reply) == 3
        return [with_record(reply, tag=tag) if mine and due else reply]

    federation.faults.on_reply = on_reply
    with pytest.raises(DisagreementError) as caught:
        lloyd_run(federation)
    require_sentence(caught.value, f"node(s) [{VICTIM}]")


@pytest.mark.parametrize(
    "kind", ["no record", "header not JSON", "too short", "Flower error"]
)
def test_malformed_replies_of_everybody_stop_the_run_with_a_sentence(kind: str) -> None:
    federation = make_federation(grid_parts(SIZES))
    federation.faults.on_reply = lambda reply: [
        MALFORMED[kind](reply) if reply_round(reply) == 2 else reply
    ]
    with pytest.raises(CohortError) as caught:
        lloyd_run(federation)
    require_sentence(caught.value, "0 clients are left")


def test_boxes_that_do_not_open_stop_the_run_with_a_sentence() -> None:
    """Rubbish from an author, or swapped boxes, leave no client to go on."""
    federation = make_federation(grid_parts(SIZES))

    def on_reply(reply: Message) -> list[Message]:
        record = (
            (reply.content.config_records.get(RECORD) or {})
            if not reply.has_error()
            else {}
        )
        if "boxes" not in record:
            return [reply]
        boxes = {
            node: bytes(len(box))
            for node, box in packed_parts.unpack_boxes(bytes(record["boxes"])).items()
        }
        return [with_record(reply, boxes=packed_parts.pack_boxes(boxes))]

    federation.faults.on_reply = on_reply
    with pytest.raises(CohortError) as caught:
        lloyd_run(federation)
    require_sentence(caught.value, "did not answer round 2")


def test_a_failure_sentence_cannot_write_into_the_servers_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    federation = make_federation(grid_parts(SIZES))
    evil = "fine\n2026 INFO all good\x1b[2J\ud800"
    federation.faults.on_reply = lambda reply: [
        (
            with_header(reply, status="failed", code="x\ny", sentence=evil)
            if reply.metadata.src_node_id == VICTIM and reply_round(reply) == 2
            else reply
        )
    ]
    lloyd_run(federation)
    text = [
        record.getMessage()
        for record in caplog.records
        if "did not answer (" in record.getMessage()
    ]
    assert text == [
        f"node {VICTIM} did not answer (unknown): fine?2026 INFO all good?[2J?"
    ]
