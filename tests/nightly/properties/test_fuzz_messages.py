"""Parsers of messages, and the mod as a whole, on mutated real messages.

a value or a `ProtocolError`, and no trace.
"""

from __future__ import annotations

import contextlib
import json
import logging
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from hypothesis import given, settings
from hypothesis import strategies as st
from support.messages import (
    READERS,
    RECORD,
    VECTOR_LAYOUT,
    VECTOR_RECORD,
    Status,
    copied,
    dump_plan,
    load_plan,
    parse_failure,
)
from support.protocol_federation import (
    Federation,
    grid_parts,
    make_federation,
    small_config,
)

from flwr_dpkmeans.algorithms.states.cluster_states import cluster_state
from flwr_dpkmeans.errors import ProtocolError
from flwr_dpkmeans.flower.strategy import PrivateKMeans
from flwr_dpkmeans.node.ledger import MemoryLedger
from flwr_dpkmeans.node.ledger_entries import LedgerEntry
from flwr_dpkmeans.secagg.messages import packed_parts
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.wire.packed_state import unpack_state

FUZZ = settings(max_examples=50)
BYTE_FUZZ = settings(max_examples=200)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.just(10**400)
    | st.just(2**63),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=8,
)
"""What JSON can hold."""


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)


# -- real messages ---------------------------------------------------------------------

RUNS: dict[str, dict[str, Any]] = {
    "retry": {"algorithm": "lloyd", "n_examples": None},
    "counted": {
        "algorithm": "glloyd",
        "n_examples": None,
        "epsilon": 20.0,
        "noise": "seeded",
    },
    "proxies": {
        "algorithm": "proxy_lloyd",
        "epsilon": 50.0,
        "noise": "seeded",
        "evaluation": "private",
    },
    "bounds": {
        "algorithm": "fastlloyd",
        "n_examples": None,
        "private_bounds": True,
        "epsilon": 90.0,
        "noise": "seeded",
    },
    "recover": {"algorithm": "lloyd", "n_examples": None, "dropout": "recover"},
    "server": {
        "algorithm": "server_lloyd",
        "n_examples": 300,
        "epsilon": 9.0,
        "noise": "seeded",
        "trust": "central",
    },
}
N_NODES = 6


class ResettableLedger(MemoryLedger):
    """Goes back to what stood in it at an earlier time, as no real one does."""

    def reset(self, entries: Sequence[LedgerEntry]) -> None:
        vars(self).update(vars(MemoryLedger()))
        for entry in entries:
            self.charge(entry)


def federation_of(kind: str) -> tuple[Federation, PrivateKMeans]:
    """Clients and a strategy that has not started."""
    ledgers: dict[int, MemoryLedger] = {3: ResettableLedger()}
    federation = make_federation(
        grid_parts([5] * N_NODES), run_id=4711, ledgers=ledgers
    )
    points = grid_parts([30], seed=3)[0] if kind == "server" else None
    values = {"max_iter": 2, "n_clusters": 2, **RUNS[kind]}
    if points is not None:
        strategy = PrivateKMeans(
            2,
            bounds=(-1.0, 1.0),
            server_data=points,
            on_step=lambda _: None,
            random_state=11,
            **{name: value for name, value in values.items() if name != "n_clusters"},
        )
        return federation, strategy
    return federation, PrivateKMeans.from_config(
        small_config(**values), on_step=lambda _: None
    )


@lru_cache(maxsize=1)
def real_contents() -> tuple[list[RecordDict], list[RecordDict]]:
    """Requests and replies of whole runs of every kind."""
    requests: list[RecordDict] = []
    replies: list[RecordDict] = []
    for kind in RUNS:
        federation, strategy = federation_of(kind)

        def on_request(message: Message) -> bool:
            if message.metadata.dst_node_id == 3:
                requests.append(copied(message.content))
            return True

        def on_reply(reply: Message) -> list[Message]:
            if reply.metadata.src_node_id == 3:
                replies.append(copied(reply.content))
            return [reply]

        federation.faults.on_request, federation.faults.on_reply = on_request, on_reply
        with federation.grid.running():
            strategy.start(federation.grid)
    return requests, replies


def all_contents() -> list[RecordDict]:
    """Requests, then replies."""
    requests, replies = real_contents()
    return [*requests, *replies]


@lru_cache(maxsize=1)
def real_plans() -> tuple[Plan, ...]:
    """Plans as they travelled, preliminary ones too."""
    blobs = [dict(content[RECORD]).get("plan") for content in real_contents()[0]]
    return tuple(load_plan(bytes(blob)) for blob in blobs if blob)


# -- mutations -------------------------------------------------------------------------


def mutated_bytes(data: bytes, draw: random.Random, others: list[bytes]) -> bytes:
    """Flip, cut, insert, repeat, or take another message's bytes."""
    kind = draw.randrange(7)
    place = draw.randrange(len(data) + 1)
    if kind == 0 and data:
        flipped = bytearray(data)
        for _ in range(draw.randrange(1, 4)):
            flipped[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        return bytes(flipped)
    if kind == 1:
        return data[:place]
    if kind == 2:
        return data[place:]
    if kind == 3:
        return data[:place] + draw.randbytes(draw.randrange(1, 9)) + data[place:]
    if kind == 4:
        return data + data[:place]
    if kind == 5:
        return draw.choice(
            [b"", bytes(8), b"\xff" * 40, bytes(2**16), draw.randbytes(64)]
        )
    return draw.choice(others) if others else b""


def mutated_header(text: str, draw: random.Random, value: Any) -> str:
    """Change, drop or add a field, or the text itself."""
    kind = draw.randrange(4)
    try:
        header = json.loads(text)
        name = draw.choice(
            [
                *header,
                "stage",
                "round",
                "attempt",
                "release_round",
                "release_attempt",
                "status",
                "run",
            ]
        )
    except (ValueError, TypeError):
        header, name = {}, "stage"
    if kind == 0:
        header[name] = value
    elif kind == 1:
        header.pop(name, None)
    elif kind == 2:
        header[name] = draw.choice(
            [
                -1,
                0,
                1,
                2,
                3,
                2**31,
                -(2**31),
                10**30,
                True,
                None,
                "keys",
                "sum",
                "finish",
                1.0,
            ]
        )
    else:
        return mutated_bytes(text.encode(), draw, []).decode("utf-8", "replace")
    return json.dumps(header)


def mutated(content: RecordDict, draw: random.Random, value: Any) -> RecordDict:
    """A message with one to three changes of fields, types, records or arrays."""
    pool = [
        bytes(v)
        for other in all_contents()
        for v in dict(other[RECORD]).values()
        if isinstance(v, bytes)
    ]
    copy = copied(content)
    for _ in range(draw.randrange(1, 4)):
        record = (
            dict(copy[RECORD]) if isinstance(copy.get(RECORD), ConfigRecord) else {}
        )
        names = [
            *record,
            "plan",
            "roster",
            "boxes",
            "state",
            "tag",
            "survivors",
            "shares",
            "credentials",
            "cohort",
        ]
        name = draw.choice(names)
        kind = draw.randrange(8)
        if kind <= 1 and isinstance(record.get("header"), str):
            record["header"] = mutated_header(record["header"], draw, value)
        elif kind == 2:
            record.pop(name, None)
        elif kind <= 4:
            old = record.get(name, b"")
            record[name] = (
                mutated_bytes(old, draw, pool)
                if isinstance(old, bytes)
                else draw.choice(pool)
            )
        elif kind == 5:
            record[name] = draw.choice(
                [7, 1.5, "text", True, [1, 2], [b"a"], ["a"], -(2**60)]
            )
        elif kind == 6:
            mutate_vector(copy, draw)
        else:
            replace_record(copy, draw)
            continue
        if record:
            copy[RECORD] = ConfigRecord(record)
    return copy


def mutate_vector(content: RecordDict, draw: random.Random) -> None:
    """Another vector, or another form of it."""
    old = content.get(VECTOR_RECORD)
    array = old.get("vector") if isinstance(old, ArrayRecord) else None
    data = mutated_bytes(array.data if array is not None else bytes(72), draw, [])
    kinds = ["uint64", "uint64", "int64", "float64", "object", "", "\0"]
    layouts = [VECTOR_LAYOUT, VECTOR_LAYOUT, "numpy.ndarray", ""]
    shapes = [(len(data) // 8,), (len(data) // 8,), (), (-1,), (2**62,), (3, 3)]
    changed = Array(
        dtype=draw.choice(kinds),
        shape=draw.choice(shapes),
        stype=draw.choice(layouts),
        data=data,
    )
    content[VECTOR_RECORD] = ArrayRecord(
        {draw.choice(["vector", "vector", "other"]): changed}
    )


def replace_record(content: RecordDict, draw: random.Random) -> None:
    """A record of another type, of another message, or none."""
    name = draw.choice([RECORD, VECTOR_RECORD])
    kind = draw.randrange(4)
    donor = draw.choice(all_contents())
    if kind == 0:
        content.pop(name, None)
    elif kind == 1 and name in donor:
        content[name] = donor[name]
    elif kind == 2:
        content[name] = MetricRecord({"a": 1, "b": [1.0]})
    else:
        content[name] = ArrayRecord({"vector": Array(np.zeros(3))})


# -- parsers ---------------------------------------------------------------------------

PARSERS = READERS
BYTES: dict[str, tuple[Callable[[bytes], object], str]] = {
    "plan": (load_plan, "plan"),
    "roster": (lambda blob: packed_parts.unpack_roster(0, blob), "roster"),
    "boxes": (packed_parts.unpack_boxes, "boxes"),
    "credentials": (
        lambda blob: packed_parts.unpack_credentials(blob, 4),
        "credentials",
    ),
    "nodes": (packed_parts.unpack_nodes, "survivors"),
    "state": (unpack_state, "state"),
}


def require_value_or_refusal(parse: Callable[[Any], object], given_value: Any) -> None:
    """The only two outcomes."""
    with contextlib.suppress(ProtocolError):
        parse(given_value)


@pytest.mark.parametrize("name", PARSERS)
@FUZZ
@given(seed=st.integers(0, 2**32), value=VALUES)
def test_parsers_of_records(name: str, seed: int, value: Any) -> None:
    draw = random.Random(seed)
    content = mutated(draw.choice(all_contents()), draw, value)
    require_value_or_refusal(PARSERS[name], content)


@lru_cache(maxsize=8)
def real_blobs(field: str) -> list[bytes]:
    """What a field held in real messages, or something of that form."""
    found = [dict(content[RECORD]).get(field) for content in all_contents()]
    extras = {"a": np.eye(2), "b": np.zeros(1)}
    made = {
        "state": cluster_state(np.zeros((2, 2)), np.ones(2), (0.5,), extras).packed,
        "credentials": bytes(136),
    }
    return [bytes(blob) for blob in found if blob] + [made.get(field, b"")]


@pytest.mark.parametrize("name", BYTES)
@BYTE_FUZZ
@given(seed=st.integers(0, 2**32), noise=st.binary(max_size=200))
def test_parsers_of_bytes(name: str, seed: int, noise: bytes) -> None:
    parse, field = BYTES[name]
    draw = random.Random(seed)
    blob = draw.choice(real_blobs(field))
    for _ in range(draw.randrange(1, 3)):
        blob = mutated_bytes(blob, draw, [noise, *real_blobs(field)])
    require_value_or_refusal(parse, blob)


def mutated_json(tree: Any, draw: random.Random, value: Any) -> Any:
    """Replace, drop or repeat something somewhere in a tree of JSON."""
    if isinstance(tree, dict) and tree and draw.random() < 0.9:
        name = draw.choice(list(tree))
        return {
            key: mutated_json(part, draw, value) if key == name else part
            for key, part in tree.items()
        }
    if isinstance(tree, list) and tree and draw.random() < 0.8:
        place = draw.randrange(len(tree))
        if draw.random() < 0.2:
            return tree[:place] + tree[place:] * 2
        return [
            mutated_json(part, draw, value) if i == place else part
            for i, part in enumerate(tree)
        ]
    numbers = [
        0,
        1,
        -1,
        2,
        2**31,
        2**63,
        -(2**63),
        10**30,
        1e300,
        -1e300,
        1e-300,
        5e-324,
        0.5,
        1e15,
        65536,
        1000,
    ]
    return draw.choice(
        [
            value,
            draw.choice(numbers),
            draw.choice(numbers),
            None,
            True,
            "central",
            "",
            [],
            {},
        ]
    )


@FUZZ
@given(seed=st.integers(0, 2**32), value=VALUES)
def test_plans_of_another_content_parse_or_are_refused(seed: int, value: Any) -> None:
    draw = random.Random(seed)
    tree = json.loads(dump_plan(draw.choice(real_plans())))
    for _ in range(draw.randrange(1, 4)):
        tree = mutated_json(tree, draw, value)
    require_value_or_refusal(load_plan, json.dumps(tree).encode())


# -- the mod ---------------------------------------------------------------------------


def contents_of(state: RecordDict) -> Any:
    """A state as plain values, which nothing can change behind the test's back."""
    return {name: dict(record) for name, record in state.items()}


@dataclass(frozen=True)
class Snapshot:
    """A client before one request of a run.

    Its memory, its ledger, and that request with the ones around it.
    """

    federation: Federation
    state: RecordDict
    entries: tuple[LedgerEntry, ...]
    near: list[RecordDict]
    message_type: str

    def send(self, content: RecordDict) -> Message:
        """Put the client back where it was, and send it a message."""
        grid, ledger = self.federation.grid, self.federation.ledgers[3]
        assert isinstance(ledger, ResettableLedger)
        grid.contexts[3].state = copied(self.state)
        ledger.reset(self.entries)
        (reply,) = grid.send_and_receive(
            [Message(copied(content), 3, self.message_type)]
        )
        return reply


@lru_cache(maxsize=1)
def snapshots() -> list[Snapshot]:
    """One for each request to node 3 in a run of every kind."""
    taken: list[Snapshot] = []
    for kind in RUNS:
        federation, strategy = federation_of(kind)
        steps: list[tuple[RecordDict, Any, RecordDict, str]] = []

        def on_request(
            message: Message, federation: Federation = federation, steps: Any = steps
        ) -> bool:
            if message.metadata.dst_node_id == 3:
                state, entries = (
                    copied(federation.grid.contexts[3].state),
                    federation.ledgers[3].entries(),
                )
                steps.append(
                    (
                        state,
                        entries,
                        copied(message.content),
                        message.metadata.message_type,
                    )
                )
            return True

        federation.faults.on_request = on_request
        with federation.grid.running():
            strategy.start(federation.grid)
        federation.faults.on_request = lambda _: True
        requests = [content for _, _, content, _ in steps]
        for place, (state, entries, content, message_type) in enumerate(steps):
            near = [content, content, content, *requests[max(0, place - 1) : place + 2]]
            taken.append(Snapshot(federation, state, entries, near, message_type))
    return taken


@pytest.fixture(scope="module")
def _task() -> Iterator[None]:
    """Flower's task identity for all messages of the tests below."""
    with snapshots()[0].federation.grid.running():
        yield


def send_mutated(
    seed: int,
    value: Any,
    change: Callable[[RecordDict, random.Random, Any], RecordDict],
) -> Status:
    """One mutated message to a client in a state that it really had."""
    draw = random.Random(seed)
    snapshot = draw.choice(snapshots())
    reply = snapshot.send(change(draw.choice(snapshot.near), draw, value))
    assert not reply.has_error()
    status, code, sentence = parse_failure(reply.content)
    if status is Status.OK:
        return status
    assert set(reply.content) == {RECORD}
    assert code.isidentifier()
    assert sentence.endswith((".", "?", "..."))
    assert contents_of(snapshot.federation.grid.contexts[3].state) == contents_of(
        snapshot.state
    )
    assert snapshot.federation.ledgers[3].entries() == snapshot.entries
    # Nothing that a server sends may look like a fault of the client's machine.
    assert code != "InternalError", sentence
    return status


@pytest.mark.usefixtures("_task")
@settings(FUZZ, max_examples=200)
@given(seed=st.integers(0, 2**32), value=VALUES)
def test_the_mod_on_mutated_messages(seed: int, value: Any) -> None:
    send_mutated(seed, value, mutated)


def other_plan(content: RecordDict, draw: random.Random, value: Any) -> RecordDict:
    """The message with a plan of other content."""
    tree = json.loads(dump_plan(draw.choice(real_plans())))
    for _ in range(draw.randrange(1, 3)):
        tree = mutated_json(tree, draw, value)
    copy = copied(content)
    copy[RECORD] = ConfigRecord(
        dict(content[RECORD]) | {"plan": json.dumps(tree).encode()}
    )
    return copy


@pytest.mark.usefixtures("_task")
@settings(FUZZ, max_examples=200)
@given(seed=st.integers(0, 2**32), value=VALUES)
def test_the_mod_on_mutated_plans(seed: int, value: Any) -> None:
    send_mutated(seed, value, other_plan)


@pytest.mark.usefixtures("_task")
def test_unchanged_messages_are_answered() -> None:
    """The harness itself refuses nothing."""
    for snapshot in snapshots():
        assert parse_failure(snapshot.send(snapshot.near[0]).content)[0] is Status.OK
