"""Every bad message is refused in under a second and in bounded memory, by clients and
by the server.
"""

from __future__ import annotations

import contextlib
import io
import json
import time
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from support.messages import (
    MAX_BLOB_BYTES,
    MAX_LIST_BYTES,
    MAX_PLAN_BYTES,
    MAX_PLAN_ENTRIES,
    RECORD,
    VECTOR_LAYOUT,
    VECTOR_RECORD,
    Stage,
    Status,
    copied,
    dump_plan,
    parse_failure,
    parse_sum_reply,
    request_content,
)
from test_dropouts import MALFORMED, with_content, with_header, with_record, with_vector
from test_hostile_server import (
    FINAL_PLANS,
    FIRST_REQUESTS,
    LATER_REQUESTS,
    MALFORMED_PLANS,
    OTHER_PLANS,
    VICTIM,
    Hostile,
    changed,
    edited,
    fields_of,
    final_plan,
    finish_content,
    hostile,
    small_config,
    with_text,
)

from flwr_dpkmeans.errors import DPKMeansError, ProtocolError
from flwr_dpkmeans.secagg.messages.packed_parts import MAX_BOXES
from flwr_dpkmeans.sums.draft import draft_plan
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.wire.packed_state import unpack_state

SECONDS = 5.0
"""Of processor time, since the machine that runs the tests may be busy, or slow.

What is caught here took minutes.
"""
MEGABYTE = 2**20
OVERHEAD = 128 * MEGABYTE
"""Beyond copies of the message itself: plans and rosters as Python objects."""


def zip_bomb() -> bytes:
    """Forty million zeros as Flower's own serialiser would compress them, if it did."""
    packed = io.BytesIO()
    np.savez_compressed(packed, np.zeros(5_000_000, dtype=np.uint64))
    return packed.getvalue()


# Made once: some have a quarter of a gigabyte.
TOO_LONG = bytes(MAX_BLOB_BYTES + 8)
MANY_BOXES = (
    np.stack([np.arange(5 * 10**6), np.zeros(5 * 10**6)], axis=1)
    .astype("<i8")
    .view("<i4")[:, :3]
    .tobytes()
)
AS_MANY_AS_PARSED = MANY_BOXES[: MAX_BOXES * 12]
MANY_MEMBERS = b"".join(
    node.to_bytes(8, "little") + node.to_bytes(32, "big") for node in range(10**6)
)
AS_MANY_MEMBERS = MANY_MEMBERS[: MAX_LIST_BYTES // 40 * 40]
BOMB = zip_bomb()


def raw_vector(
    content: RecordDict, data: bytes, shape: tuple[int, ...], **values: str
) -> RecordDict:
    """A message with a vector whose serialised form is given."""
    copy = copied(content)
    layout = {"dtype": "uint64", "stype": VECTOR_LAYOUT} | values
    copy[VECTOR_RECORD] = ArrayRecord(
        {"vector": Array(shape=shape, data=data, **layout)}
    )
    return copy


def long_plan(plan: Plan, **values: Any) -> bytes:
    return edited(plan, **values)


def top(plan: Plan, **values: Any) -> bytes:
    return json.dumps(json.loads(dump_plan(plan)) | values).encode()


BIG_PLANS: dict[str, Callable[[Plan], bytes]] = {
    "longer than any blob": lambda p: TOO_LONG,
    "longer than any plan": lambda p: b" " * MAX_PLAN_BYTES + dump_plan(p),
    "spaces": lambda p: b" " * (MAX_PLAN_BYTES - 10**5) + dump_plan(p) + b"x",
    "a million entries": lambda p: long_plan(p, bounds=[[0.0] * 10**6, [1.0] * 10**6]),
    "as many wrong entries as are parsed": lambda p: long_plan(
        p, feature_names=[1] * (MAX_PLAN_ENTRIES - 1000)
    ),
    "as many wrong rounds as are parsed": lambda p: top(
        p, rounds=[{}] * (MAX_PLAN_ENTRIES - 1000)
    ),
    "as many features as are parsed": lambda p: long_plan(
        p, bounds=[[0.0] * 90_000, [1.0] * 90_000]
    ),
    "deep": lambda p: b'{"config":' + b"[" * 10**6,
    "deep objects": lambda p: b'{"a":' * 10**6,
    "a number of a million digits": (
        lambda p: dump_plan(p).replace(b'"seed":', b'"seed":' + b"9" * 10**6)
    ),
    "a number of 4000 digits": lambda p: top(p, run_id=10**4000),
    "N of 300 digits": lambda p: long_plan(p, n_examples=10**300),
    "N of 4000 digits": lambda p: long_plan(p, n_examples=10**4000),
    "N of 4000 digits, counted": lambda p: top(p, n_examples=10**4000),
    "t of 4000 digits": lambda p: top(p, max_silent=10**4000),
    "M of 4000 digits": lambda p: top(p, n_clients=10**4000),
    "M of ten digits": lambda p: top(p, n_clients=2**31),
    "M of a million": lambda p: top(p, n_clients=10**6),
    "version of 4000 digits": lambda p: top(p, version=10**4000),
    "grid of 4000 digits": lambda p: top(p, fraction_bits=10**4000),
    "a name of a million letters": lambda p: long_plan(p, algorithm="f" * 10**6),
    "a trust of a million letters": lambda p: long_plan(p, trust="o" * 10**6),
    "a name of control characters": lambda p: long_plan(
        p, algorithm="\U0001f600\n" * 5000
    ),
    "alpha that overflows": lambda p: long_plan(p, alpha=1e300),
    "alpha that underflows": lambda p: long_plan(p, alpha=1e-300),
    "epsilon that underflows": lambda p: long_plan(p, epsilon=1e-300),
    "epsilon that overflows": lambda p: long_plan(p, epsilon=1e300),
    "delta that underflows": lambda p: long_plan(p, delta=5e-324),
    "1000 rounds and retries": lambda p: long_plan(p, max_iter=1000, max_retries=1000),
    "65,536 features": lambda p: top(p, n_features=65_536),
    "server points that are none": lambda p: top(
        p,
        public_points={"n_points": 10**7, "n_features": 2, "grid_values": "A" * 10**7},
    ),
}
BIG_REQUESTS: dict[str, Callable[[RecordDict], RecordDict]] = {
    "roster too long": lambda c: changed(c, roster=TOO_LONG),
    "a million members": lambda c: changed(c, roster=MANY_MEMBERS),
    "as many members as are parsed": lambda c: changed(c, roster=AS_MANY_MEMBERS),
    "five million boxes": lambda c: changed(c, boxes=MANY_BOXES),
    "as many boxes as are parsed": lambda c: changed(c, boxes=AS_MANY_AS_PARSED),
    "as many confirmations as are parsed": lambda c: changed(
        c, {"round": 7}, confirmations=AS_MANY_AS_PARSED
    ),
    "a box of four gigabytes, it says": lambda c: changed(
        c, boxes=bytes(8) + b"\xff\xff\xff\xff" + bytes(100)
    ),
    "boxes too long": lambda c: changed(c, boxes=TOO_LONG),
    "credentials too long": lambda c: changed(c, credentials=TOO_LONG),
    "as many credentials as are parsed": lambda c: changed(
        c, credentials=bytes(MAX_LIST_BYTES)
    ),
    "a cohort too long": lambda c: changed(c, cohort=bytes(MAX_LIST_BYTES + 8)),
    "as large a cohort as is parsed": lambda c: changed(
        c, {"round": 7}, cohort=bytes(MAX_LIST_BYTES)
    ),
    "state too long": lambda c: changed(c, state=TOO_LONG),
    "state of zeros": lambda c: changed(c, state=bytes(MAX_BLOB_BYTES)),
    "plan too long": lambda c: changed(c, plan=TOO_LONG),
    "vector too long": lambda c: raw_vector(c, TOO_LONG, (len(TOO_LONG) // 8,)),
    "as long a vector as is parsed": lambda c: raw_vector(
        changed(c, {"release_round": 0, "release_attempt": 0}),
        TOO_LONG[:-8],
        (MAX_BLOB_BYTES // 8,),
    ),
    "zip bomb": lambda c: raw_vector(c, BOMB, (5_000_000,)),
    "zip bomb in Flower's layout": lambda c: raw_vector(
        c, BOMB, (5_000_000,), stype="numpy.ndarray"
    ),
    "pickled object": lambda c: raw_vector(
        c, b"\x80\x04cos\nsystem\n.", (1,), dtype="object", stype="numpy.ndarray"
    ),
    "huge shape": lambda c: raw_vector(c, bytes(8), (2**60,)),
    "shape of many dimensions": lambda c: raw_vector(c, bytes(8), (1,) * 10**5),
    "deep header": lambda c: with_text(c, "[" * 9_999),
    "long header": lambda c: with_text(c, '{"stage": "sum"' + " " * 10**7 + "}"),
    "wide header": lambda c: with_text(
        c, '{"stage": "sum", ' + ", ".join(f'"{i}": 1' for i in range(900)) + "}"
    ),
    "number of 9000 digits": lambda c: with_text(
        c, '{"stage": "sum", "round": ' + "9" * 9_000 + "}"
    ),
    "number of 4000 digits": lambda c: changed(c, {"round": 10**4000}),
    "run of 4000 digits": lambda c: changed(c, {"run": 10**4000}),
    "exponent": lambda c: with_text(
        c, '{"stage": "sum", "round": 1e999999999, "attempt": 0}'
    ),
    "NaN": lambda c: with_text(c, '{"stage": "sum", "round": NaN, "attempt": 0}'),
    "ten thousand records": lambda c: RecordDict(
        {f"r{i}": MetricRecord({"a": 1}) for i in range(10**4)}
        | {RECORD: ConfigRecord({"header": "{}"})}
    ),
}


def states() -> dict[str, bytes]:
    """States that are large, or say that they are."""
    deep = b'{"arrays": ' + b"[" * 9_000 + b"\n"
    shapes = json.dumps({"movements": 0, "arrays": {"a": [2**31] * 800}}).encode()
    many = json.dumps(
        {"movements": 0, "arrays": {str(i): [0] for i in range(500)}}
    ).encode()
    large = json.dumps(
        {"movements": 0, "arrays": {"centroids": [2**12, 2**12]}}
    ).encode()
    return {
        "deep": deep,
        "a long line": b'{"arrays": [' + b"0," * 4 * 10**7 + b"0]}\n",
        "no line": b"0" * 10**7,
        "shapes that multiply": shapes + b"\n",
        "many extras": many + b"\n",
        "more centroids than the plan has": large + b"\n" + bytes(8 * 2**24),
        "infinite": (
            json.dumps({"movements": 0, "arrays": {"centroids": [1, 1]}}).encode()
            + b"\n\xff" * 9
        ),
        "text": "é\ud83d".encode("utf-8", "surrogatepass") + b"\n",
    }


# -- clients ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def before_keys() -> Iterator[Hostile]:
    """A server that has sent nothing; refusals leave it so, and it serves all tests."""
    with hostile(small_config(epsilon=1.0, algorithm="fastlloyd")) as server:
        yield server


@pytest.fixture(scope="module")
def after_keys() -> Iterator[tuple[Hostile, RecordDict]]:
    """A server with the first honest request, not sent."""
    with hostile() as server:
        server.agree()
        yield server, server.request(1)[VICTIM]


@pytest.fixture(scope="module")
def midway() -> Iterator[tuple[Hostile, dict[int, RecordDict]]]:
    """A server with the second round's honest requests, not sent."""
    with hostile() as server:
        server.agree()
        server.complete(server.request(1))
        yield server, server.request(2)


def require_quick_refusal(
    server: Hostile, content: RecordDict, message_type: str = "train"
) -> None:
    """One message: refused, soon, in bounded memory, and without a trace."""
    size = sum(
        len(value)
        for value in fields_of(content).values()
        if isinstance(value, bytes | str)
    )
    size += sum(
        len(array.data)
        for record in content.array_records.values()
        for array in record.values()
    )
    message = Message(copied(content), VICTIM, message_type)
    grid = server.federation.grid
    before, charged = grid.contexts[VICTIM].state, server.federation.charges()
    started = time.process_time()
    (reply,) = grid.send_and_receive([message])
    spent = time.process_time() - started
    assert parse_failure(reply.content)[0] is not Status.OK
    assert spent < SECONDS, f"{spent:.2f} s"
    assert grid.contexts[VICTIM].state == before
    assert server.federation.charges() == charged
    tracemalloc.start()
    try:
        grid.send_and_receive([Message(copied(content), VICTIM, message_type)])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2 * size + OVERHEAD, (
        f"{peak / MEGABYTE:.0f} MB for a message of {size / MEGABYTE:.0f} MB"
    )


@pytest.mark.sample(17)
@pytest.mark.parametrize("kind", [*OTHER_PLANS, *MALFORMED_PLANS, *BIG_PLANS])
def test_bad_plans(kind: str, before_keys: Hostile) -> None:
    plan = before_keys.run.plan
    if kind in OTHER_PLANS:
        # Radii are only in FastLloyd's plans, and some of these changes are not changes
        # to it.
        if kind == "other algorithm":
            pytest.skip(
                "lloyd's rounds are refused for their names in test_hostile_server"
            )
        blob = dump_plan(OTHER_PLANS[kind](plan))
    else:
        blob = (MALFORMED_PLANS | BIG_PLANS)[kind](plan)
    require_quick_refusal(before_keys, request_content(Stage.KEYS, plan=blob))


@pytest.mark.sample(14)
@pytest.mark.parametrize("kind", [*FIRST_REQUESTS, *BIG_REQUESTS])
def test_bad_first_requests(kind: str, after_keys: tuple[Hostile, RecordDict]) -> None:
    server, request = after_keys
    change = BIG_REQUESTS[kind] if kind in BIG_REQUESTS else FIRST_REQUESTS[kind][0]
    require_quick_refusal(server, change(request))


@pytest.mark.sample(12)
@pytest.mark.parametrize("kind", [*LATER_REQUESTS, *BIG_REQUESTS])
def test_bad_later_requests(
    kind: str, midway: tuple[Hostile, dict[int, RecordDict]]
) -> None:
    server, requests = midway
    content = (
        BIG_REQUESTS[kind](requests[VICTIM])
        if kind in BIG_REQUESTS
        else LATER_REQUESTS[kind][0](requests)
    )
    if content == requests[VICTIM]:
        pytest.skip("nothing changed")
    require_quick_refusal(server, content)


@pytest.mark.sample(9)
@pytest.mark.parametrize("kind", BIG_REQUESTS)
def test_bad_last_messages(
    kind: str, midway: tuple[Hostile, dict[int, RecordDict]]
) -> None:
    server, _ = midway
    content = changed(BIG_REQUESTS[kind](finish_content(server)))
    require_quick_refusal(server, content, "evaluate")


@pytest.mark.sample(5)
@pytest.mark.parametrize("kind", states())
def test_bad_states(kind: str, midway: tuple[Hostile, dict[int, RecordDict]]) -> None:
    """Sent to clients that compute their own, and parsed directly."""
    server, requests = midway
    blob = states()[kind]
    require_quick_refusal(server, changed(requests[VICTIM], state=blob))
    unpack_state.cache_clear()
    started = time.process_time()
    try:
        unpack_state(blob)
    except ProtocolError:
        assert kind not in ("many extras", "more centroids than the plan has")
    assert time.process_time() - started < SECONDS


def test_more_movements_than_rounds_are_not_made_into_numbers() -> None:
    header = json.dumps(
        {"movements": 4 * 10**6, "arrays": {"centroids": [1, 1]}}
    ).encode()
    blob = header + b"\n" + bytes(8 * (4 * 10**6 + 2))
    started = time.process_time()
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError, match="4000000 movements, but there are 7"):
            unpack_state(blob, 7)
        assert tracemalloc.get_traced_memory()[1] < MEGABYTE
    finally:
        tracemalloc.stop()
    assert time.process_time() - started < SECONDS


@pytest.mark.nightly
def test_as_many_bad_final_plans() -> None:
    with hostile(
        small_config(n_examples=None, epsilon=3.0, algorithm="fastlloyd")
    ) as server:
        server.agree()
        server.complete(server.request(0))
        requests = server.request(1)
        for kind, (change, _) in FINAL_PLANS.items():
            blob = dump_plan(change(final_plan(requests)))
            require_quick_refusal(server, changed(requests[VICTIM], plan=blob)), kind
        for kind, build in BIG_PLANS.items():
            content = changed(requests[VICTIM], plan=build(final_plan(requests)))
            require_quick_refusal(server, content), kind


def test_a_plan_that_asks_for_minutes_of_work(before_keys: Hostile) -> None:
    """Packing 100,000 spheres takes eight minutes, in the key phase already."""
    few, many = (
        small_config(algorithm="lloyd", n_clusters=n_clusters, n_examples=10**9)
        for n_clusters in (3, 100_000)
    )
    run_id = before_keys.run.plan.run_id
    plan = draft_plan(few, run_id=run_id, n_clients=4, seed=1, n_features=2)
    rounds = [
        replace(
            planned,
            blocks=tuple(
                replace(block, shape=(100_000, *block.shape[1:]))
                for block in planned.blocks
            ),
        )
        for planned in plan.rounds
    ]
    plan = replace(plan, config=many, rounds=tuple(rounds))
    require_quick_refusal(
        before_keys, request_content(Stage.KEYS, plan=dump_plan(plan))
    )


def test_honest_messages_after_all_of_these(before_keys: Hostile) -> None:
    """The clients that were sent every bad plan still take part."""
    before_keys.agree()
    for index in range(1, before_keys.run.plan.last_round + 1):
        before_keys.complete(before_keys.request(index))
    assert before_keys.finish() == (2, 3, 4, 5)


# -- the server ------------------------------------------------------------------------

BIG_REPLIES: dict[str, Callable[[Message], Message]] = {
    "vector too long": lambda m: with_vector(
        m, TOO_LONG, "uint64", (len(TOO_LONG) // 8,)
    ),
    "as long a vector as is parsed": lambda m: with_vector(
        m, TOO_LONG[:-8], "uint64", (MAX_BLOB_BYTES // 8,)
    ),
    "zip bomb": lambda m: with_content(
        m, raw_vector(m.content, BOMB, (5_000_000,), stype="numpy.ndarray")
    ),
    "zip bomb in our layout": lambda m: with_vector(m, BOMB, "uint64", (5_000_000,)),
    "pickled object": lambda m: with_content(
        m,
        raw_vector(
            m.content,
            b"\x80\x04cos\nsystem\n.",
            (1,),
            dtype="object",
            stype="numpy.ndarray",
        ),
    ),
    "huge shape": lambda m: with_vector(m, bytes(8), "uint64", (2**60,)),
    "five million boxes": lambda m: with_record(m, boxes=MANY_BOXES),
    "as many boxes as are parsed": lambda m: with_record(m, boxes=AS_MANY_AS_PARSED),
    "boxes too long": lambda m: with_record(m, boxes=TOO_LONG),
    "tag too long": lambda m: with_record(m, tag=TOO_LONG),
    "as long a tag as is parsed": lambda m: with_record(m, tag=TOO_LONG[:-8]),
    "header deep": lambda m: with_record(m, header="[" * 9_999),
    "header long": lambda m: with_record(m, header=" " * 10**7),
    "round of 4000 digits": lambda m: with_header(m, round=10**4000),
    "sentence long": lambda m: with_header(
        m, status="failed", code="x" * 4000, sentence="y" * 5000
    ),
}


@pytest.mark.sample(26)
@pytest.mark.parametrize("kind", [*MALFORMED, *BIG_REPLIES])
def test_bad_replies(kind: str) -> None:
    """The server goes on with the others at once."""
    with hostile() as server:
        server.agree()
        server.complete(server.request(1))
        requests = server.request(2)
        replies = server.exchange(
            [
                Message(copied(content), node, "train")
                for node, content in requests.items()
            ]
        )
        change = (MALFORMED | BIG_REPLIES)[kind]
        bad = [
            change(reply) if reply.metadata.src_node_id == VICTIM else reply
            for reply in replies
        ]
        started = time.process_time()
        assert server.run.take_sums(bad) is None
        spent = time.process_time() - started
        assert spent < SECONDS, f"{spent:.2f} s"
        assert server.run.session.roster.node_ids == (2, 4, 5)


@pytest.mark.parametrize("n_features", [-1, 0, 2**31, 2**31 - 1, 65_537])
def test_a_width_that_no_table_has(n_features: int) -> None:
    """From all clients: the server says so in a sentence."""
    with hostile(small_config(n_features=None, epsilon=1.0)) as server:
        replies = server.exchange(server.run.keys_messages())
        started = time.process_time()
        with pytest.raises(DPKMeansError) as caught:
            server.run.take_keys(
                [with_header(reply, n_features=n_features) for reply in replies]
            )
        assert time.process_time() - started < SECONDS
        assert str(caught.value).endswith((".", "?"))


@pytest.mark.sample(8)
@pytest.mark.parametrize("kind", BIG_REPLIES)
def test_parsing_a_reply_takes_no_memory_of_its_own(kind: str) -> None:
    with hostile() as server:
        server.agree()
        replies = server.exchange(
            [Message(copied(c), node, "train") for node, c in server.request(1).items()]
        )
    bad = BIG_REPLIES[kind](replies[0])
    tracemalloc.start()
    try:
        with contextlib.suppress(ProtocolError):
            parse_failure(bad.content)
            parse_sum_reply(bad.content)
        assert tracemalloc.get_traced_memory()[1] < OVERHEAD
    finally:
        tracemalloc.stop()
