"""Where messages and their limits end, from both sides.

And what two plans have in common.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from flwr_dpkmeans.errors import ProtocolError, VersionError
from flwr_dpkmeans.options import parse_config
from flwr_dpkmeans.secagg.credentials import Credential
from flwr_dpkmeans.secagg.messages import (
    FinishReply,
    FinishRequest,
    MaskedVector,
    Release,
    ShareRequest,
    Stage,
    SumReply,
    SumRequest,
    UnmaskReply,
)
from flwr_dpkmeans.secagg.retry import Retry
from flwr_dpkmeans.secagg.roster import Roster
from flwr_dpkmeans.sums import wire
from flwr_dpkmeans.sums.client import Memory
from flwr_dpkmeans.sums.draft import draft_plan
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.wire import (
    Failure,
    KeysReply,
    Packet,
    Request,
    Status,
    Versions,
    load_plan,
    stated_versions,
    terms_digest,
)
from flwr_dpkmeans.sums.wire.message_fields import message_fields


def packet(text: str | None = None, **header: Any) -> Packet:
    return Packet({"header": json.dumps(header) if text is None else text})


def of_length(length: int, blob: bytes = b"") -> bytes:
    """Bytes that say so."""
    return type("Long", (bytes,), {"__len__": lambda _: length})(blob)


@pytest.mark.parametrize(("n_spaces", "fits"), [(9_998, True), (9_999, False)])
def test_a_header_has_ten_thousand_characters_at_most(
    n_spaces: int, fits: bool
) -> None:
    if fits:
        assert packet("{" + " " * n_spaces + "}").header == {}
    else:
        with pytest.raises(ProtocolError, match="header is missing or too long"):
            _ = packet("{" + " " * n_spaces + "}").header
    for text, sentence in (
        ("[1]", "is not a mapping"),
        ("{", "is not JSON"),
        ("[" * 9_000, "is not JSON"),
    ):
        with pytest.raises(ProtocolError, match=sentence):
            _ = packet(text).header


@pytest.mark.parametrize("value", [2**31, -(2**31), 0])
def test_small_integers_are_read(value: int) -> None:
    assert packet(round=value).integer("round") == value


@pytest.mark.parametrize("value", [2**31 + 1, -(2**31) - 1, True, 1.0, "1", None])
def test_other_integers_are_refused(value: Any) -> None:
    with pytest.raises(ProtocolError, match="'round' is missing or is not a small"):
        packet(round=value).integer("round")


@pytest.mark.parametrize(
    ("name", "most"), [("roster", 2**22), ("marks", 2**22), ("state", 2**28)]
)
@pytest.mark.parametrize("more", [0, 1])
def test_blobs_are_read_up_to_their_limit(name: str, most: int, more: int) -> None:
    found = Packet({name: of_length(most + more)})
    if not more:
        assert found.blob(name) == b""
    else:
        with pytest.raises(ProtocolError, match="too long"):
            found.blob(name)


@pytest.mark.parametrize(
    ("header", "stated"),
    [
        ({"protocol": 0, "plan_format": 10**6, "package": "1.0"},
         Versions(0, 10**6, "1.0")),
        ({"protocol": 3, "plan_format": 4, "package": "1 great release"},
         Versions(3, 4)),
        ({"protocol": 3, "plan_format": 4, "package": 5}, Versions(3, 4)),
        ({"protocol": 3, "plan_format": 4, "package": "1.0rc1.dev2"}, Versions(3, 4)),
        ({"protocol": 3, "plan_format": 4, "package": "12345.1.2.3rc1"},
         Versions(3, 4, "12345.1.2.3rc1")),
        ({"protocol": -1, "plan_format": 4}, None),
        ({"protocol": 3, "plan_format": 10**6 + 1}, None),
        ({"protocol": True, "plan_format": 4}, None),
        ({"protocol": 3, "plan_format": 4.0}, None),
        ({"protocol": 3}, None),
    ],
)  # fmt: skip
def test_versions_are_numbers_up_to_a_million_and_a_release_without_words(
    header: dict[str, Any], stated: Versions | None
) -> None:
    assert stated_versions(header) == stated
    assert (
        str(Versions(3, 4, "1.0")) == "protocol 3 and plan format 4 (flwr-dpkmeans 1.0)"
    )
    assert str(Versions(3, 4)) == "protocol 3 and plan format 4"


@pytest.mark.parametrize(
    ("code", "read"),
    [
        ("x" * 100, "x" * 100), ("x" * 101, "unknown"), ("a b", "unknown"),
        ("", "unknown"), ("ä", "unknown"),
    ],
)  # fmt: skip
def test_a_failure_has_a_code_and_a_bounded_sentence(code: str, read: str) -> None:
    failure = packet(status="refused", code=code, sentence="x" * 2000).failure
    assert failure is not None
    assert (failure.status, failure.code) == (Status.REFUSED, read)
    assert failure.sentence == "x" * 1000 + "..."
    assert packet(status="ok", code=code).failure is None
    assert packet(status="failed", code=5, sentence=5).failure == Failure(
        Status.FAILED, "unknown", ""
    )
    sent = json.loads(
        wire.encode_failure(Failure(Status.FAILED, "DataError", "y" * 2000)).fields[
            "header"
        ]
    )
    assert (sent["status"], sent["code"]) == ("failed", "DataError")
    assert sent["sentence"] == "y" * 800 + "..."


@pytest.mark.parametrize(
    "code", ["BudgetError", "IdentityError", "ProtocolError", "unknown"]
)
def test_some_refusals_stop_a_run_and_others_leave_the_node_out(code: str) -> None:
    failure = Failure(Status.REFUSED, code, "so")
    stops = code.startswith(("Budget", "Identity"))
    told = f"node 3 refused ({code}): so"
    assert str(failure.stop(3, always=False)) == (
        told if stops else f"node 3 did not answer ({code}): so"
    )
    assert str(failure.stop(3, always=True)) == told
    assert failure.stop(3, always=True).for_others == f"node 3 refused ({code})."


@pytest.mark.parametrize("length", [0, 63, 64, 65])
def test_survivors_are_signed_with_64_bytes_or_not_at_all(length: int) -> None:
    sent = wire.encode_reply(
        Stage.UNMASK, UnmaskReply(1, 0, {3: b"share"}, bytes(length))
    )
    if length in (0, 64):
        assert wire.decode_reply(sent, Stage.UNMASK, 3) == UnmaskReply(
            1, 0, {3: b"share"}, bytes(length)
        )
    else:
        with pytest.raises(
            ProtocolError,
            match=f"signed the survivors with {length} bytes instead of 64",
        ):
            wire.decode_reply(sent, Stage.UNMASK, 3)


def test_a_last_reply_has_a_tag_and_no_vector() -> None:
    sent = wire.encode_reply(Stage.FINISH, FinishReply(b"t" * 32))
    assert wire.decode_reply(sent, Stage.FINISH, 3) == FinishReply(b"t" * 32)
    with pytest.raises(ProtocolError, match="carries a vector that was not asked for"):
        wire.decode_reply(
            replace(sent, vector=np.zeros(2, dtype=np.uint64)), Stage.FINISH, 3
        )


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({}, None),
        ({"columns": "0" * 64}, None),
        ({"public_key": bytes(31)}, "has 31 bytes instead of 32"),
        ({"public_key": bytes(33)}, "has 33 bytes instead of 32"),
        ({"columns": "0" * 63}, "no SHA-256 in hexadecimal"),
        ({"columns": "0" * 64 + "\n"}, "no SHA-256 in hexadecimal"),
        ({"columns": "A" * 64}, "no SHA-256 in hexadecimal"),
    ],
)
def test_keys_have_their_form(values: dict[str, Any], sentence: str | None) -> None:
    reply = replace(KeysReply(bytes(32), b"d" * 32, 2), **values)
    sent = wire.encode_reply(Stage.KEYS, reply)
    assert ("columns" in sent.header) is bool(reply.columns)
    if sentence is None:
        assert wire.decode_reply(sent, Stage.KEYS, 3) == reply
    else:
        with pytest.raises(ProtocolError, match=sentence):
            wire.decode_reply(sent, Stage.KEYS, 3)


def test_a_credential_is_there_where_anything_was_signed() -> None:
    reply = KeysReply(bytes(32), b"d" * 32, 2)
    assert reply.credential is None
    assert replace(
        reply, identity=b"i" * 32, signature=b"s" * 64
    ).credential == Credential(b"i" * 32, b"d" * 32, b"s" * 64)
    for half in ({"identity": b"i" * 32}, {"signature": b"s" * 64}):
        with pytest.raises(ProtocolError):
            _ = replace(reply, **half).credential  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("protocol", "plan_format"), [(1, 0), (0, 1), (-1, 0), (0, -1)]
)
def test_both_numbers_of_a_version_must_be_equal(
    protocol: int, plan_format: int
) -> None:
    own = wire.installed_versions()
    wire.require_same_versions(replace(own, package="9.9"), sender="a", receiver="b")
    other = replace(
        own, protocol=own.protocol + protocol, plan_format=own.plan_format + plan_format
    )
    with pytest.raises(VersionError, match="a speaks protocol"):
        wire.require_same_versions(other, sender="a", receiver="b")
    with pytest.raises(VersionError, match="a states no version that can be read"):
        wire.require_same_versions(None, sender="a", receiver="b")


@pytest.mark.parametrize(
    "request_",
    [
        Request(Stage.KEYS, plan=b"plan"),
        Request(Stage.KEYS, plan=b"plan", run_id=0, wait=2.5),
    ],
)
def test_a_request_says_what_it_knows(request_: Request) -> None:
    sent = wire.encode_request(request_)
    assert ("wait" in sent.fields) is (request_.wait is not None)
    assert ("run" in sent.header) is (request_.run_id is not None)
    assert wire.decode_request(sent) == replace(
        request_, versions=wire.installed_versions()
    )


def test_bodies_are_read_as_they_were_written() -> None:
    """A roster has its request's attempt; where keys are shared there is none."""
    members = ((3, bytes(32)), (5, b"k" * 32))
    signed = {5: Credential(b"i" * 32, b"d" * 32, b"s" * 64)}
    release = Release(1, 4, np.arange(3, dtype=np.uint64))
    bodies: list[tuple[Stage, Any]] = [
        (Stage.SHARE, ShareRequest(Roster(0, members), signed)),
        (
            Stage.SUM,
            SumRequest(
                2, 6, Roster(6, members), release, {3: b"box"}, b"state", signed, (3, 5)
            ),
        ),
        (Stage.SUM, SumRequest(2, 0)),
        (Stage.FINISH, FinishRequest(release, confirmations={3: b"c"})),
    ]
    for stage, body in bodies:
        packet = wire.encode_request(Request(stage, body))
        again = wire.decode_request(packet).body
        for name, value in vars(body).items():
            if name == "release" and value is not None:
                found = again.release
                assert (*found.attempt_id, found.values.tolist()) == (1, 4, [0, 1, 2])
            else:
                assert getattr(again, name) == value
        assert "protocol" not in packet.header
        assert (packet.vector is None) is (getattr(body, "release", None) is None)
    with pytest.raises(ProtocolError, match="came with a roster of 0 clients"):
        wire.decode_request(
            wire.encode_request(
                Request(Stage.SUM, SumRequest(2, 0, credentials=signed))
            )
        )
    with pytest.raises(ProtocolError, match="a message carries no release, but must"):
        wire.decode_request(
            replace(wire.encode_request(Request(*bodies[3])), vector=None)
        )
    reply = wire.encode_reply(
        Stage.SUM,
        SumReply(2, 6, MaskedVector(np.arange(2, dtype=np.uint64)), b"tag", {}),
    )
    assert set(reply.fields) == {"header", "tag"}  # nothing that is empty
    assert set(reply.header) == {"status", "round", "attempt"}
    assert wire.decode_reply(reply, Stage.SUM, 3).masked.values.tolist() == [0, 1]
    with pytest.raises(ProtocolError, match="a message carries no vector, but must"):
        wire.decode_reply(replace(reply, vector=None), Stage.SUM, 3)


def drafted(**values: Any) -> Plan:
    given = {
        "n_clusters": 2,
        "bounds": ((-1.0,), (1.0,)),
        "algorithm": "glloyd",
        "max_iter": 2,
        "delta": 1e-6,
    }
    known = {
        name: values.pop(name)
        for name in ("run_id", "seed", "n_features", "n_examples")
        if name in values
    }
    return draft_plan(
        parse_config(**given | values),
        **{"run_id": 1, "n_clients": 3, "seed": 0, "n_features": 2} | known,
    )


def test_runs_of_the_same_terms_differ_in_run_id_seeds_and_what_is_found() -> None:
    first = terms_digest(drafted())
    for known in (
        {"run_id": 2},
        {"seed": 5},
        {"n_examples": 1_000},
        {"random_state": 3},
        {"n_features": None},
    ):
        assert terms_digest(drafted(**known)) == first
    assert terms_digest(replace(drafted(), columns_digest="ab" * 32)) == first
    for other in (
        {"epsilon": 1.5},
        {"max_iter": 3},
        {"delta": 2e-6},
        {"trust": "central"},
        {"min_clients": 3},
    ):
        assert terms_digest(drafted(**other)) != first


def test_a_plan_of_nothing_but_terms_has_their_digest() -> None:
    """So that one that an owner approved stays approved."""
    terms = replace(
        drafted(), run_id=0, seed=0, preliminary=(), rounds=(), n_examples=None,
        n_features=None,
    )  # fmt: skip
    assert terms_digest(terms) == wire.plan_digest(wire.dump_plan(terms)).hex()


@pytest.mark.parametrize("attempt", [0, 300])
def test_what_a_client_keeps_of_a_run_is_read_again(attempt: int) -> None:
    roster = Roster(attempt, ((3, bytes(32)), (5, b"k" * 32)))
    for known in (None, roster):
        party = Retry(7, 3, b"p" * 32, 2, 0, False, b"digest", roster=known)
        assert wire.unpack_fields(Retry, wire.pack_fields(party)) == party
        assert (
            wire.unpack_fields(
                Retry, wire.pack_fields(party, without=("run_id",)), run_id=7
            )
            == party
        )


@pytest.mark.parametrize(
    ("n_commas", "sentence"),
    [(200_000, "malformed"), (200_001, "200001 commas, but at most")],
)
def test_a_plan_with_more_entries_is_not_parsed(n_commas: int, sentence: str) -> None:
    with pytest.raises(ProtocolError, match=sentence):
        wire.load_plan(b"," * n_commas)


@pytest.mark.parametrize(
    ("length", "sentence"),
    [(2**26, "malformed"), (2**26 + 1, "67108865 bytes and 1 commas")],
)
def test_a_longer_plan_is_not_parsed(length: int, sentence: str) -> None:
    with pytest.raises(ProtocolError, match=sentence):
        wire.load_plan(of_length(length, b","))


@pytest.mark.parametrize("wait", [0, -0.5, 1e300, float("nan"), True, "1"])
def test_a_wait_that_no_server_has_is_refused(wait: Any) -> None:
    with pytest.raises(ProtocolError, match="not a positive, finite number"):
        _ = Packet({"wait": wait}).wait


def test_a_plan_that_says_a_name_twice_is_refused() -> None:
    blob = wire.dump_plan(drafted())
    assert wire.load_plan(blob) == drafted()
    repeated = blob[:-1] + b',"seed":%d}' % drafted().seed
    with pytest.raises(ProtocolError, match="more or less than one does"):
        wire.load_plan(repeated)


def test_a_malformed_plan_is_told_with_its_place_or_with_many() -> None:
    said = json.loads(wire.dump_plan(drafted()))
    with pytest.raises(ProtocolError, match="malformed at 'seed'"):
        wire.load_plan(json.dumps(said | {"seed": "0"}).encode())
    for n_wrong, place in ((100, "rounds.0"), (101, "many places")):
        with pytest.raises(ProtocolError, match=f"malformed at '{place}"):
            wire.load_plan(json.dumps(said | {"rounds": [0] * n_wrong}).encode())


@pytest.mark.parametrize("sentence", [["a"], 1, {"a": 1}, None])
def test_a_text_that_is_none_is_refused(sentence: object) -> None:
    header = {"stage": "stop", "sentence": sentence}
    with pytest.raises(ProtocolError, match="field 'sentence' is no text"):
        wire.decode_request(Packet({"header": json.dumps(header)}))


@dataclass(frozen=True)
class Misordered:
    credentials: Mapping[int, Credential]
    roster: Roster


def test_a_message_whose_fields_are_read_too_early_is_no_message() -> None:
    """The roster says how many credentials are read at most."""
    with pytest.raises(TypeError, match=r"Misordered\.credentials must come behind"):
        message_fields(Misordered)


def test_a_memory_of_an_earlier_run_and_release_is_left_unread() -> None:
    """After an update, Flower may still have one: it must not stop every new run."""
    stored = {"Retry": '{"run_id": 7, "of_an_older_release": 1}'}
    assert Memory.unpack(stored, 8) is None


def test_few_plans_of_a_peer_are_remembered() -> None:
    """One may have 64 MiB."""
    assert load_plan.cache_info().maxsize <= 4
