"""Server and nodes state their versions with the plan and its answer, and each refuses
another before any charge.
"""

from __future__ import annotations

import json
import logging
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from flwr.app import Context, Message
from support.crypto import speak_version
from support.messages import (
    RECORD,
    Stage,
    Status,
    Versions,
    dump_plan,
    header_of,
    installed_versions,
    plan_digest,
    request_content,
    stated_versions,
    version_fields,
)
from support.protocol_federation import (
    Federation,
    Truth,
    count_readable,
    grid_parts,
    make_federation,
    received_vectors,
)
from test_dropouts import with_content, with_header
from test_hostile_server import VICTIM, changed, hostile, small_config

import flwr_dpkmeans
from flwr_dpkmeans.errors import DPKMeansError, RefusalError, VersionError
from flwr_dpkmeans.flower.in_process_grid import Node
from flwr_dpkmeans.node.identity import Identity
from flwr_dpkmeans.secagg import keys
from flwr_dpkmeans.secagg.credentials import verify
from flwr_dpkmeans.sums import plan as plan_module

SIZES = (40, 50, 60, 70)
OWN = installed_versions()
NEWER = OWN.plan_format + 1
NEXT = OWN.protocol + 1
SECRET = "row 7 is 41.5"
# What the other side's header says instead, and how the sentence names it.
READABLE: dict[str, tuple[dict[str, Any], Versions]] = {
    "older protocol": ({"protocol": 1, "package": "0.0.9"},
                       Versions(1, OWN.plan_format, "0.0.9")),
    "newer protocol": ({"protocol": NEXT, "package": "1.4.0rc1"},
                       Versions(NEXT, OWN.plan_format, "1.4.0rc1")),
    "older plans": ({"plan_format": 4}, Versions(OWN.protocol, 4, OWN.package)),
    "newer plans": ({"plan_format": NEWER, "package": "2.0"},
                    Versions(OWN.protocol, NEWER, "2.0")),
    "newer, with text for a release": ({"protocol": NEXT, "package": SECRET},
                                       Versions(NEXT, OWN.plan_format)),
    "newer, with a long release": ({"protocol": NEXT, "package": "1" * 5000},
                                   Versions(NEXT, OWN.plan_format)),
    "newer, without a release": ({"protocol": NEXT, "package": None},
                                 Versions(NEXT, OWN.plan_format)),
}  # fmt: skip
UNREADABLE: dict[str, dict[str, Any]] = {
    "none at all": {"protocol": None, "plan_format": None, "package": None},
    "no protocol": {"protocol": None},
    "no plan format": {"plan_format": None},
    "text": {"protocol": "1"},
    "words": {"protocol": SECRET, "plan_format": SECRET},
    "true": {"protocol": True},
    "a fraction": {"protocol": float(OWN.protocol)},
    "negative": {"plan_format": -5},
    "a huge number": {"protocol": 10**400},
    "infinite": {"protocol": float("inf")},
    "a list": {"protocol": [1]},
    "an object": {"plan_format": {"plan_format": 5}},
}
CASES = {**READABLE, **{kind: (fields, None) for kind, fields in UNREADABLE.items()}}


def told_by(sender: str, stated: Versions | None, receiver: str) -> str:
    told = (
        f"speaks {stated}"
        if stated is not None
        else "states no version that can be read"
    )
    return (
        f"{sender} {told}, but {receiver} speaks {OWN}: install the same version of"
        " flwr-dpkmeans"
    )


def require_nothing_happened(federation: Federation) -> None:
    """Nothing charged, no vector sent, no result."""
    assert federation.charges() == 0
    assert received_vectors(federation.grid.received) == {}
    assert all(
        client.cluster_centers_ is None for client in federation.clients.values()
    )


def test_both_sides_state_what_they_speak() -> None:
    assert (OWN.protocol, OWN.plan_format) == (
        keys.PROTOCOL_VERSION,
        plan_module.Plan.version,
    )
    assert flwr_dpkmeans.__version__ == OWN.package
    with hostile() as server:
        messages = server.run.keys_messages()
        assert {
            stated_versions(header_of(message.content)) for message in messages
        } == {OWN}
        assert {
            stated_versions(header_of(reply.content))
            for reply in server.exchange(messages)
        } == {OWN}


@pytest.mark.parametrize("kind", CASES)
def test_a_node_refuses_the_plan_of_a_server_of_another_version(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    fields, stated = CASES[kind]
    with hostile() as server:
        content, *_ = [message.content for message in server.run.keys_messages()]
        with caplog.at_level(logging.WARNING, "flwr_dpkmeans.mod"):
            status, code, sentence = server.require_refused(
                changed(content, fields),
                told_by("the server", stated, f"node {VICTIM}"),
            )
        assert (status, code) == (Status.REFUSED, "VersionError")
        assert caplog.records[-1].getMessage() == f"refused: {sentence}"
        assert SECRET not in caplog.text
        server.agree()
        server.require_unharmed(1)


def test_a_plan_of_another_format_is_not_even_parsed() -> None:
    """Else the sentence would be that it is malformed somewhere."""
    with hostile() as server:
        content = request_content(
            Stage.KEYS, plan=b'{"rounds": "as a newer version writes them"}'
        )
        stated = Versions(OWN.protocol, NEWER, OWN.package)
        server.require_refused(
            changed(content, {"plan_format": NEWER}),
            told_by("the server", stated, f"node {VICTIM}"),
        )


def test_a_server_that_states_a_false_plan_format_is_refused_for_the_plan() -> None:
    with hostile() as server:
        plan = json.loads(dump_plan(server.run.plan)) | {"version": NEWER}
        content = request_content(Stage.KEYS, plan=json.dumps(plan).encode())
        server.require_refused(
            content, "the plan does not follow from its own configuration"
        )


@pytest.mark.parametrize("kind", CASES)
def test_the_server_stops_when_a_node_speaks_another_version(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    fields, stated = CASES[kind]
    federation = make_federation(grid_parts(SIZES))
    federation.faults.on_reply = lambda reply: [
        (
            with_content(reply, changed(reply.content, fields))
            if reply.metadata.src_node_id == VICTIM
            else reply
        )
    ]
    with (
        caplog.at_level(logging.INFO, "flwr_dpkmeans"),
        pytest.raises(VersionError) as caught,
    ):
        federation.start()
    assert str(caught.value).startswith(told_by(f"node {VICTIM}", stated, "the server"))
    assert str(caught.value).endswith(".")
    assert len(str(caught.value)) < 300
    assert str(caught.value) in caplog.text
    # What another party wrote is not repeated.
    assert SECRET not in caplog.text + str(caught.value)
    require_nothing_happened(federation)


def test_every_node_of_another_version_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    federation = make_federation(grid_parts(SIZES))
    federation.faults.on_reply = lambda reply: [
        (
            with_header(reply, protocol=NEXT)
            if reply.metadata.src_node_id in (3, 5)
            else reply
        )
    ]
    with (
        caplog.at_level(logging.WARNING, "flwr_dpkmeans.server"),
        pytest.raises(VersionError, match="node 3"),
    ):
        federation.start()
    assert [
        f"node {node} speaks protocol {NEXT}" in caplog.text for node in (2, 3, 4, 5)
    ] == [False, True, False, True]


def test_an_answer_of_a_later_format_gets_the_same_sentence() -> None:
    """It may lack fields that this version needs."""
    federation = make_federation(grid_parts(SIZES))

    def on_reply(reply: Message) -> list[Message]:
        if reply.metadata.src_node_id != VICTIM:
            return [reply]
        content = changed(
            reply.content,
            {"protocol": NEXT, "n_features": None},
            public_key=None,
            plan_digest=None,
        )
        return [with_content(reply, content)]

    federation.faults.on_reply = on_reply
    with pytest.raises(VersionError, match=f"node {VICTIM} speaks protocol {NEXT}"):
        federation.start()
    require_nothing_happened(federation)


def test_a_node_that_agreed_is_not_undone_by_another_answer() -> None:
    """As with a refusal of the plan's copy: its first answer stands."""
    federation = make_federation(grid_parts(SIZES))

    def on_reply(reply: Message) -> list[Message]:
        is_key = "public_key" in reply.content.config_records[RECORD]
        return [reply, with_header(reply, protocol=NEXT)] if is_key else [reply]

    federation.faults.on_reply = on_reply
    assert federation.start(
        algorithm="lloyd", n_examples=None, max_iter=1
    ).confirmed == (2, 3, 4, 5)


def test_releases_of_the_package_may_differ() -> None:
    federation = make_federation(grid_parts(SIZES))
    federation.faults.on_reply = lambda reply: [
        (
            with_header(reply, package="9.9.9")
            if reply.metadata.src_node_id == VICTIM
            else reply
        )
    ]
    assert federation.start(
        algorithm="lloyd", n_examples=None, max_iter=1
    ).confirmed == (2, 3, 4, 5)


def test_a_refusal_by_the_node_reaches_the_server_as_one_sentence() -> None:
    """An older server that states nothing, for instance."""
    federation = make_federation(grid_parts(SIZES))

    def on_send(messages: list[Message]) -> list[Message]:
        silent = [
            changed(message.content, dict.fromkeys(version_fields()))
            for message in messages
        ]
        return [
            Message(content, message.metadata.dst_node_id, "train")
            for content, message in zip(silent, messages, strict=True)
        ]

    federation.faults.on_send = on_send
    with pytest.raises(RefusalError, match="the server states no version that can"):
        federation.start()
    require_nothing_happened(federation)


# -- a false statement gains nothing ---------------------------------------------------


def let_speak_another_protocol(federation: Federation, node: int) -> None:
    """One node has another protocol version, and the server hides it from all."""
    nodes, newer = federation.grid._nodes, OWN.protocol + 1

    def app(message: Message, context: Context) -> Message:
        if "protocol" in header_of(message.content):
            message.content = changed(message.content, {"protocol": newer})
        with pytest.MonkeyPatch.context() as patch:
            speak_version(patch, newer)
            return true_app(message, context)

    true_app = nodes[node].app
    nodes[node] = Node(app)  # type: ignore[arg-type]
    federation.faults.on_reply = lambda reply: [
        (
            with_header(reply, protocol=OWN.protocol)
            if "protocol" in header_of(reply.content)
            else reply
        )
    ]


@pytest.mark.parametrize("dropout", ["retry", "recover"])
@pytest.mark.parametrize("trust", ["oblivious", "central", "distributed"])
def test_a_sum_over_two_protocol_versions_does_not_open(
    trust: str, dropout: str, truth: Truth
) -> None:
    """A server that lies to both sides gets masks that do not cancel."""
    federation = make_federation(grid_parts((40, 50, 60, 70, 30, 20)))
    let_speak_another_protocol(federation, VICTIM)
    config = small_config(
        trust=trust, algorithm="lloyd", n_examples=None, max_iter=2, dropout=dropout,
        max_silent=1,
    )  # fmt: skip
    # Under masks alone nobody may notice but the odd one out, which an attempt without
    # it then leaves behind.
    with suppress(DPKMeansError):
        federation.start(config)
    assert federation.clients[VICTIM].cluster_centers_ is None
    vectors = received_vectors(federation.grid.received).get((1, 0), {})
    if dropout == "recover":
        # Shares are sealed under pair keys that differ, so that no client can take the
        # odd one's in.
        assert VICTIM not in vectors
        return
    assert len(vectors) == 6
    assert count_readable(np.sum(list(vectors.values()), axis=0, dtype=np.uint64)) == 0
    # Nor can a client read it that takes the key authors' streams away.
    assert (
        count_readable(truth.released.get(1, np.full(9, 2**62, dtype=np.uint64))) == 0
    )


def test_a_federation_in_which_all_speak_the_other_version_runs() -> None:
    """So that it is the difference that the test above sees."""
    federation = make_federation(grid_parts(SIZES))
    for node in federation.clients:
        let_speak_another_protocol(federation, node)
    assert federation.start(
        algorithm="lloyd", n_examples=None, max_iter=2
    ).confirmed == (2, 3, 4, 5)


def test_versions_are_in_signatures_and_in_the_plans_digest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    identity = Identity(bytes(range(32)))
    signed = (1, 2, bytes(32), b"k" * 32)
    signature = identity.sign_keys(*signed)
    speak_version(monkeypatch, OWN.protocol + 1)
    assert not verify(identity.public_key, signature, "keys", *signed)
    with hostile() as server:
        blob = dump_plan(server.run.plan)
        other = json.dumps(json.loads(blob) | {"version": NEWER}).encode()
        assert plan_digest(other) != plan_digest(blob)
