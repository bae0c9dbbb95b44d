"""A server that plays other clients: what it reads where identities are not pinned, and
how pins stop it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord, Context, Message, RecordDict
from support.messages import (
    RECORD,
    KeysReply,
    ServerRun,
    Stage,
    Status,
    copied,
    dump_plan,
    parse_failure,
    parse_keys_reply,
    parse_sum_reply,
    plan_digest,
    request_content,
    version_fields,
)
from support.protocol_federation import (
    Federation,
    Truth,
    Words,
    grid_parts,
    make_federation,
    small_config,
)

from flwr_dpkmeans.errors import ConfigurationError, IdentityError, RefusalError
from flwr_dpkmeans.flower.client.node_config import node_settings
from flwr_dpkmeans.flower.strategy import PrivateKMeans
from flwr_dpkmeans.node.identity import Identity
from flwr_dpkmeans.node.ledger import MemoryLedger
from flwr_dpkmeans.node.node_settings import NodeSettings
from flwr_dpkmeans.node.policy import ClientPolicy
from flwr_dpkmeans.privacy.report import PrivacyReport
from flwr_dpkmeans.privacy.sentences import report_sentence
from flwr_dpkmeans.secagg.credentials import Credential
from flwr_dpkmeans.secagg.keys import generate_private_key, public_key_of
from flwr_dpkmeans.secagg.messages import Release, SumRequest
from flwr_dpkmeans.secagg.pins import pin_mark
from flwr_dpkmeans.secagg.retry import Retry
from flwr_dpkmeans.secagg.ring import FixedPointVector
from flwr_dpkmeans.secagg.roster import Roster
from flwr_dpkmeans.sums.trust import trust_model

SIZES = (120, 80, 60, 40)
NODES = (2, 3, 4, 5)
VICTIM = 3
TRUST = ("oblivious", "central", "distributed")
IDENTITIES = {node: Identity(bytes([node]) * 32) for node in NODES}
STRANGER = Identity(b"s" * 32)
PINS = tuple(
    (f"ward-{node}", identity.public_key.hex()) for node, identity in IDENTITIES.items()
)
POLICIES = {"not pinned": ClientPolicy(), "pinned": ClientPolicy(pinned_peers=PINS)}


@dataclass
class Cheat:
    """A server that takes keys honestly and then shows each client what it likes."""

    federation: Federation
    run: ServerRun
    keys: dict[int, bytes] = field(default_factory=dict)
    credentials: dict[int, Credential] = field(default_factory=dict)
    marks: dict[int, frozenset[bytes]] = field(default_factory=dict)

    @classmethod
    def over(cls, federation: Federation, nodes: Sequence[int], **values: Any) -> Cheat:
        """A plan for the given nodes, whether they exist or not."""
        run = ServerRun(
            small_config(**values),
            run_id=federation.grid.run.run_id,
            seed=11,
            node_ids=nodes,
        )
        return cls(federation, run)

    def exchange(self, content: RecordDict, node: int) -> RecordDict:
        """One message to one client."""
        with self.federation.grid.running():
            (reply,) = self.federation.grid.send_and_receive(
                [Message(copied(content), node, "train")]
            )
        return reply.content

    def agree(
        self, nodes: Sequence[int] = NODES, plans: Mapping[int, bytes] | None = None
    ) -> None:
        """Send the plan (or another one to some), and keep keys and credentials."""
        own = dump_plan(self.run.plan)
        for node in nodes:
            content = request_content(Stage.KEYS, plan=(plans or {}).get(node, own))
            reply = parse_keys_reply(self.exchange(content, node))
            self.keys[node], self.marks[node] = reply.public_key, reply.marks
            if reply.credential is not None:
                self.credentials[node] = reply.credential

    def request(self, **values: Any) -> RecordDict:
        """The first request of a run, honest unless told otherwise."""
        roster = values.pop("roster", None) or Roster.of(0, self.keys)
        honest: dict[str, Any] = {"roster": roster, "credentials": self.credentials}
        return request_content(Stage.SUM, request=SumRequest(1, 0, **(honest | values)))

    def with_credential(
        self, credential: Credential | None, node: int = 2
    ) -> dict[int, Credential]:
        """All credentials, with one exchanged or removed."""
        kept = {
            other: known for other, known in self.credentials.items() if other != node
        }
        return kept if credential is None else kept | {node: credential}

    def impersonate(
        self, victim: int, others: Sequence[int], credentials: Mapping[int, Credential]
    ) -> Words | None:
        """Play all others towards one client with keys of its own."""
        plan = self.run.plan
        trust = trust_model(plan.config.trust)
        digest = plan_digest(dump_plan(plan))
        secrets = {node: generate_private_key() for node in others}
        keys = {node: public_key_of(secret) for node, secret in secrets.items()}
        roster = Roster.of(0, keys | {victim: self.keys[victim]})
        content = self.exchange(
            self.request(roster=roster, credentials=credentials), victim
        )
        if parse_failure(content)[0] is not Status.OK:
            return None
        reply = parse_sum_reply(content)
        total, boxes, played = reply.masked.values.copy(), {victim: reply.boxes}, []
        for node, secret in secrets.items():
            state = Retry(
                plan.run_id, node, secret, 2, plan.max_silent, trust.blinded, digest
            )
            request = SumRequest(1, 0, roster)
            nothing = FixedPointVector(np.zeros(len(total), dtype=np.uint64))
            state, own = state.admit(request, 1).answer(
                request, nothing, blinded=trust.blinded, state_digest=b""
            )
            total += own.masked.values
            boxes[node] = own.boxes
            played.append(state)
        reader = played[0]
        if trust.blinded:
            sealed = {
                author: sent[reader.node_id]
                for author, sent in boxes.items()
                if reader.node_id in sent
            }
            reader = reader.with_boxes(sealed)
        return reader.unblind(Release(1, 0, total), blinded=trust.blinded).values

    def require_refused(
        self, content: RecordDict, *words: str, node: int = VICTIM
    ) -> str:
        """A sentence comes back, and nothing else."""
        before = states_of(self.federation, node)
        reply = self.exchange(content, node)
        assert set(reply) == {RECORD}
        status, _, sentence = parse_failure(reply)
        assert status is Status.REFUSED
        assert all(word in sentence for word in words), sentence
        assert sentence.endswith(".")
        assert states_of(self.federation, node) == before
        assert self.federation.ledgers[node].entries() == ()
        return sentence

    def require_accepted(self, content: RecordDict, node: int = VICTIM) -> None:
        """The client answers with a vector."""
        assert parse_failure(self.exchange(content, node))[0] is Status.OK


def states_of(federation: Federation, node: int) -> dict[str, Any]:
    return {
        name: dict(record)
        for name, record in federation.grid.contexts[node].state.config_records.items()
    }


def cheat(kind: str = "pinned", **values: Any) -> Cheat:
    """A cheating server over four honest clients, after the key phase."""
    federation = make_federation(
        grid_parts(SIZES), policy=POLICIES[kind], identities=IDENTITIES
    )
    server = Cheat.over(federation, NODES, **values)
    server.agree()
    return server


# -- a man in the middle ---------------------------------------------------------------


@pytest.mark.parametrize("trust", TRUST)
def test_without_pins_a_server_that_exchanges_keys_reads_every_vector(
    trust: str, truth: Truth
) -> None:
    server = cheat("not pinned", trust=trust)
    for node in NODES:
        others = [other for other in NODES if other != node]
        read = server.impersonate(node, others, server.credentials)
        assert read is not None
        assert np.array_equal(read, truth.sent[1, 0][node])
        if (
            trust != "distributed"
        ):  # There the client's own share of the noise is in it.
            assert np.array_equal(read, truth.statistics[1, 0][node])


@pytest.mark.parametrize("trust", TRUST)
def test_pins_stop_a_server_that_exchanges_keys(trust: str) -> None:
    server = cheat(trust=trust)
    for node in NODES:
        others = [other for other in NODES if other != node]
        assert server.impersonate(node, others, server.credentials) is None
    assert server.federation.charges() == 0
    # Not even a single key may be another one; afterwards the honest roster is
    # answered.
    for other in (2, 4, 5):
        roster = Roster.of(
            0, server.keys | {other: public_key_of(generate_private_key())}
        )
        content = server.request(roster=roster)
        server.require_refused(
            content, f"node {other} (ward-{other}) did not sign the public key"
        )
    server.require_accepted(server.request())


def test_the_servers_own_signature_does_not_help() -> None:
    server = cheat()
    secret = generate_private_key()
    key, digest = public_key_of(secret), plan_digest(dump_plan(server.run.plan))
    signature = STRANGER.sign_keys(server.run.plan.run_id, 2, digest, key)
    roster = Roster.of(0, server.keys | {2: key})
    own = Credential(STRANGER.public_key, digest, signature)
    name = STRANGER.public_key.hex()[:12]
    server.require_refused(
        server.request(roster=roster, credentials=server.with_credential(own)),
        f"node 2 has the identity {name}",
    )
    borrowed = Credential(IDENTITIES[2].public_key, digest, signature)
    server.require_refused(
        server.request(roster=roster, credentials=server.with_credential(borrowed)),
        "node 2 (ward-2) did not sign",
    )


# -- invented clients ------------------------------------------------------------------


def lonely(kind: str, **values: Any) -> Cheat:
    """One honest client; the plan is for three."""
    federation = make_federation(
        grid_parts(SIZES[:1]), policy=POLICIES[kind], identities={2: IDENTITIES[2]}
    )
    server = Cheat.over(federation, (2, 3, 4), **values)
    server.agree((2,))
    return server


@pytest.mark.parametrize("trust", TRUST)
def test_without_pins_a_server_that_invents_clients_reads_the_only_real_one(
    trust: str, truth: Truth
) -> None:
    server = lonely("not pinned", trust=trust)
    read = server.impersonate(2, (3, 4), {})
    assert read is not None
    assert np.array_equal(read, truth.sent[1, 0][2])
    if trust != "distributed":
        assert np.array_equal(read, truth.statistics[1, 0][2])


@pytest.mark.parametrize("trust", TRUST)
def test_pins_stop_a_server_that_invents_clients(trust: str) -> None:
    server = lonely("pinned", trust=trust)
    run_id, digest = server.run.plan.run_id, plan_digest(dump_plan(server.run.plan))
    keys = {node: public_key_of(generate_private_key()) for node in (3, 4)}
    invented = {node: Identity.generate() for node in keys}
    signed = {
        node: Credential(
            identity.public_key,
            digest,
            identity.sign_keys(run_id, node, digest, keys[node]),
        )
        for node, identity in invented.items()
    }
    # Real parties' signatures of an earlier run, for nodes that are not there now.
    old = {
        node: Credential(
            IDENTITIES[node].public_key,
            digest,
            IDENTITIES[node].sign_keys(run_id - 1, node, digest, keys[node]),
        )
        for node in keys
    }
    roster = Roster.of(0, server.keys | keys)
    for credentials, word in (
        ({}, "node 3 signed nothing"),
        (signed, "node 3 has the identity"),
        (old, "node 3 (ward-3) did not sign"),
        (
            {3: server.credentials[2], 4: server.credentials[2]},
            "node 3 (ward-2) did not sign",
        ),
    ):
        server.require_refused(
            server.request(roster=roster, credentials=credentials), word, node=2
        )
        assert server.impersonate(2, (3, 4), credentials) is None
    assert server.federation.charges() == 0


# -- different plans -------------------------------------------------------------------


@pytest.mark.parametrize("kind", POLICIES)
def test_different_plans_for_different_clients(kind: str) -> None:
    """Without pins nobody notices (masks then leave noise); with pins both sides do."""
    federation = make_federation(
        grid_parts(SIZES), policy=POLICIES[kind], identities=IDENTITIES
    )
    server, other = (
        Cheat.over(federation, NODES, epsilon=epsilon) for epsilon in (1.0, 9.0)
    )
    blob = dump_plan(other.run.plan)
    server.agree(plans={VICTIM: blob})
    if kind == "not pinned":
        server.require_accepted(server.request())
        server.require_accepted(server.request(), node=2)
        return
    digests = (
        plan_digest(dump_plan(server.run.plan)).hex()[:12],
        plan_digest(blob).hex()[:12],
    )
    for node, peer, (theirs, own) in ((VICTIM, 2, digests), (2, VICTIM, digests[::-1])):
        server.require_refused(
            server.request(),
            f"node {peer} (ward-{peer}) agreed to another plan ({theirs}...) than this"
            f" client ({own}...)",
            "different plans",
            node=node,
        )
    # A server that lies about which plan was signed gains nothing.
    lies = {
        node: replace(credential, plan_digest=plan_digest(blob))
        for node, credential in server.credentials.items()
    }
    server.require_refused(
        server.request(credentials=lies),
        "node 2 (ward-2) did not sign",
        "run, node or plan",
    )
    assert federation.charges() == 0


# -- signatures of something else ------------------------------------------------------


def signed_otherwise(server: Cheat, change: dict[str, Any]) -> Credential:
    """Node 2's own signature, of something else than its key in this run."""
    facts: dict[str, Any] = {
        "run_id": server.run.plan.run_id,
        "node_id": 2,
        "plan_digest": plan_digest(dump_plan(server.run.plan)),
        "public_key": server.keys[2],
    }
    signature = IDENTITIES[2].sign_keys(**(facts | change))
    return Credential(IDENTITIES[2].public_key, facts["plan_digest"], signature)


@pytest.mark.parametrize(
    "change",
    [
        {"run_id": 5},
        {"node_id": 4},
        {"public_key": public_key_of(b"k" * 32)},
        {"plan_digest": bytes(32)},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_signature_of_another_run_node_key_or_plan_is_refused(
    change: dict[str, Any],
) -> None:
    server = cheat()
    assert signed_otherwise(server, {}) == server.credentials[2]
    wrong = signed_otherwise(server, change)
    server.require_refused(
        server.request(credentials=server.with_credential(wrong)),
        "node 2 (ward-2) did not sign",
    )
    server.require_accepted(server.request())


def test_other_wrong_signatures_are_refused() -> None:
    server = cheat()
    good = server.credentials[2]
    digest = plan_digest(dump_plan(server.run.plan))
    survivors = IDENTITIES[2].sign_survivors(server.run.plan.run_id, 2, 1, 0, digest)
    for wrong, word in (
        (None, "node 2 signed nothing"),
        (replace(good, signature=bytes(64)), "did not sign"),
        (replace(good, signature=b"\xff" * 64), "did not sign"),
        (replace(good, signature=survivors), "did not sign"),
        (replace(good, identity=IDENTITIES[4].public_key), "did not sign"),
        (replace(good, identity=bytes(32)), "has the identity 000000000000..."),
    ):
        server.require_refused(
            server.request(credentials=server.with_credential(wrong)), word
        )
    server.require_accepted(server.request())


def test_an_identity_stands_for_one_node() -> None:
    """A party that signs for two nodes, alone or with the server, counts once."""
    server = cheat()
    run_id, digest = server.run.plan.run_id, plan_digest(dump_plan(server.run.plan))
    for twice, first in ((2, 2), (VICTIM, VICTIM)):
        identity = IDENTITIES[twice]
        signature = identity.sign_keys(run_id, 4, digest, server.keys[4])
        both = server.with_credential(
            Credential(identity.public_key, digest, signature), node=4
        )
        server.require_refused(
            server.request(credentials=both),
            f"nodes {first} and 4 both have the identity ward-{twice}",
        )
    server.require_accepted(server.request())


def test_what_is_said_of_the_client_itself_is_ignored() -> None:
    server = cheat()
    server.require_accepted(
        server.request(credentials=server.with_credential(None, node=VICTIM))
    )


MALFORMED: dict[str, tuple[Callable[[bytes], dict[str, Any]], str]] = {
    "torn": (lambda blob: {"credentials": blob[:-1]}, "136 bytes for each"),
    "more than the roster": (lambda blob: {"credentials": blob + bytes(136)},
                             "a roster of 4 clients"),
    "without a roster": (lambda blob: {"roster": None}, "a roster of 0 clients"),
    "out of order": (lambda blob: {"credentials": blob[136:] + blob[:136]},
                     "out of order or repeated"),
    "repeated": (lambda blob: {"credentials": blob[:136] * 2},
                 "out of order or repeated"),
    "text": (lambda blob: {"credentials": "ward-7"}, "'credentials'"),
    "missing": (lambda blob: {"credentials": None}, "node 2 signed nothing"),
}  # fmt: skip


@pytest.mark.parametrize("kind", MALFORMED)
def test_malformed_credentials_are_refused(kind: str) -> None:
    server = cheat()
    content = server.request()
    fields: dict[str, Any] = dict(content.config_records[RECORD])
    change, word = MALFORMED[kind]
    fields |= change(bytes(fields["credentials"]))
    content.config_records[RECORD] = ConfigRecord(
        {name: value for name, value in fields.items() if value is not None}
    )
    server.require_refused(content, word)
    server.require_accepted(server.request())


def test_a_run_that_opens_with_a_later_attempt_is_held_against_the_pins_too() -> None:
    server = cheat()
    roster = Roster.of(0, server.keys).without(1, [5])
    late = SumRequest(1, 1, roster)
    server.require_refused(
        request_content(Stage.SUM, request=late), "node 2 signed nothing"
    )
    server.require_refused(
        request_content(Stage.SUM, request=replace(late, roster=None)),
        "without the run's roster",
    )
    strange = Roster.of(
        1, dict(roster.keys) | {2: public_key_of(generate_private_key())}
    )
    known = {node: server.credentials[node] for node in (2, 3, 4)}
    server.require_refused(
        request_content(
            Stage.SUM, request=replace(late, roster=strange, credentials=known)
        ),
        "did not sign",
    )
    server.require_accepted(
        request_content(Stage.SUM, request=replace(late, credentials=known))
    )


# -- settings --------------------------------------------------------------------------


def test_a_node_that_pins_others_needs_an_identity() -> None:
    with pytest.raises(ConfigurationError, match="but the node has no 'identity'"):
        NodeSettings(POLICIES["pinned"], MemoryLedger(), "rows")


def test_a_node_reads_its_identity_from_the_file_that_its_configuration_names(
    tmp_path: Path,
) -> None:
    IDENTITIES[2].save(tmp_path / "identity.pem")
    names = "".join(f'{name} = "{key}"\n' for name, key in PINS)
    (tmp_path / "policy.toml").write_text(f"min-cohort = 3\n[pinned-peers]\n{names}")
    files = {"policy": "policy.toml", "identity": "identity.pem", "ledger": "ledger"}

    def settings(*keys: str, **others: str) -> NodeSettings:
        config: Any = {
            key: str(tmp_path / files[key]) for key in ("ledger", *keys)
        } | others
        return node_settings(
            Context(
                run_id=1, node_id=2, node_config=config, state=RecordDict(),
                run_config={},
            )
        )  # fmt: skip

    found = settings("policy", "identity")
    assert found.identity == IDENTITIES[2]
    assert found.policy.pinned_peers == PINS
    assert IDENTITIES[2].private_key.hex() not in repr(found)
    assert settings("identity").policy.pinned_peers is None
    assert settings().identity is None
    with pytest.raises(ConfigurationError, match="has no 'identity'"):
        settings("policy")
    with pytest.raises(ConfigurationError, match=r"none\.pem cannot be read"):
        settings("policy", identity=str(tmp_path / "none.pem"))


def test_a_policy_that_begins_to_pin_during_a_run_stops_it() -> None:
    server = cheat("not pinned")
    server.require_accepted(server.request())
    settings = server.federation.settings
    settings[VICTIM] = replace(settings[VICTIM], policy=POLICIES["pinned"])
    retry = SumRequest(1, 1, Roster.of(0, server.keys).without(1, [5]))
    status, code, sentence = parse_failure(
        server.exchange(request_content(Stage.SUM, request=retry), VICTIM)
    )
    assert (status, code) == (Status.REFUSED, "IdentityError")
    assert "since this run began" in sentence


# -- honest runs -----------------------------------------------------------------------


def pinned_federation(**values: Any) -> Federation:
    settings: dict[str, Any] = {"policy": POLICIES["pinned"], "identities": IDENTITIES}
    return make_federation(grid_parts(SIZES), **(settings | values))


def said_by(federation: Federation, node: int) -> str:
    """What a client's own report assumes."""
    return assumed(federation.clients[node].privacy_)


def assumed(report: PrivacyReport | None) -> str:
    assert report is not None
    return " ".join(report.assumptions)


def lose_one_reply(federation: Federation, node: int) -> None:
    """The node's second answer (its first vector) gets lost."""
    seen: list[int] = []

    def on_reply(reply: Message) -> list[Message]:
        if reply.metadata.src_node_id == node:
            seen.append(node)
        return [] if reply.metadata.src_node_id == node and len(seen) >= 2 else [reply]

    federation.faults.on_reply = on_reply


@pytest.mark.sample(4)
@pytest.mark.parametrize("n_examples", [300, None])
@pytest.mark.parametrize("trust", TRUST)
def test_honest_parties_that_pin_each_other(trust: str, n_examples: int | None) -> None:
    """Also when one drops out, and when a final plan follows the signed one."""
    federation = pinned_federation()
    lose_one_reply(federation, 5)
    result = federation.start(trust=trust, n_examples=n_examples)
    assert result.confirmed == (2, 3, 4)
    first = federation.plan.first_round
    assert federation.attempts_in_ledger(2)[:2] == [(first, 0), (first, 1)]
    for node in (2, 3, 4):
        assert "Identities are pinned: all 3 peers were recognised" in said_by(
            federation, node
        )
        assert report_sentence("not_pinned") not in said_by(federation, node)
    said = assumed(result.privacy)
    assert "4 of 4 clients signed their keys" in said
    assert "each client's own decision" in said


@pytest.mark.parametrize("signed", [True, False])
def test_reports_of_runs_without_pins_say_so(signed: bool) -> None:
    federation = pinned_federation(
        policy=POLICIES["not pinned"], identities=IDENTITIES if signed else {}
    )
    result = federation.start()
    for node in NODES:
        assert report_sentence("not_pinned") in said_by(federation, node)
    said = assumed(result.privacy)
    assert ("4 of 4 clients signed their keys" in said) == signed
    assert ("No client signed its key" in said) != signed


def test_clients_with_and_without_pins_may_work_together() -> None:
    federation = pinned_federation(policies={4: POLICIES["not pinned"]})
    assert federation.start().confirmed == NODES
    assert [
        "Identities are pinned" in said_by(federation, node) for node in (2, 4)
    ] == [True, False]


def test_the_operator_reads_who_is_not_recognised() -> None:
    """One node has no identity: the run ends early, and nobody pays."""
    identities = {node: identity for node, identity in IDENTITIES.items() if node != 4}
    federation = pinned_federation(
        identities=identities, policies={4: POLICIES["not pinned"]}
    )
    with pytest.raises(IdentityError, match="node 2 takes part with pinned"):
        federation.start()
    assert federation.charges() == 0


def test_a_pinned_party_may_stay_away_and_a_stranger_may_not_come() -> None:
    everybody = ClientPolicy(
        pinned_peers=(*PINS, ("ward-9", Identity(b"9" * 32).public_key.hex()))
    )
    assert pinned_federation(policy=everybody).start().confirmed == NODES
    fewer = ClientPolicy(pinned_peers=tuple(pin for pin in PINS if pin[0] != "ward-5"))
    name = IDENTITIES[5].public_key.hex()[:12]
    federation = pinned_federation(policies={2: fewer})
    with pytest.raises(
        IdentityError, match=f"node 2 takes part .* but node 5 has the identity {name}"
    ):
        federation.start()
    assert federation.charges() == 0


class MarksUnread(PrivateKMeans):
    """A server that does not look at marks."""

    def aggregate_train(self, server_round: int, replies: Any) -> Any:
        answers = list(replies)
        for message in answers:
            if "marks" in message.content.config_records.get(RECORD, {}):
                del message.content.config_records[RECORD]["marks"]
        return super().aggregate_train(server_round, answers)


def test_a_server_that_does_not_look_at_marks_is_refused_by_the_node_itself() -> None:
    identities = {node: identity for node, identity in IDENTITIES.items() if node != 4}
    federation = pinned_federation(
        identities=identities, policies={4: POLICIES["not pinned"]}
    )
    federation.strategy_class = MarksUnread
    with pytest.raises(RefusalError, match=r"node 2 refused \(IdentityError\): node 4"):
        federation.start()
    assert all(federation.ledgers[node].entries() == () for node in (2, 3, 5))


@pytest.mark.parametrize("marks", [b"m" * 31, b"m" * (2**22 + 32), "text"])
def test_a_node_with_malformed_marks_is_left_out(
    marks: Any, caplog: pytest.LogCaptureFixture
) -> None:
    federation = pinned_federation(policy=POLICIES["not pinned"])

    def on_reply(reply: Message) -> list[Message]:
        fields = dict(reply.content.config_records[RECORD])
        if reply.metadata.src_node_id == VICTIM and "public_key" in fields:
            reply.content.config_records[RECORD] = ConfigRecord(
                fields | {"marks": marks}
            )
        return [reply]

    federation.faults.on_reply = on_reply
    assert federation.start().confirmed == (2, 4, 5)
    assert f"node {VICTIM}: " in caplog.text


def test_the_server_is_told_of_pins_by_hashes_that_no_other_run_has() -> None:
    first, second = cheat(), cheat()
    for server in (first, second):
        assert server.marks[2] == {
            pin_mark(key, server.run.plan.run_id)
            for key in map(bytes.fromhex, dict(PINS).values())
        }
    assert not first.marks[2] & second.marks[2]


@pytest.mark.parametrize(
    ("identity", "signature"),
    [
        (b"i" * 31, b"s" * 64), (b"i" * 32, b"s" * 65), (b"i" * 32, b""),
        (b"", b"s" * 64), (b"i" * 1000, b""),
    ],
)  # fmt: skip
def test_a_node_with_a_malformed_credential_is_left_out(
    identity: bytes, signature: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    federation = make_federation(grid_parts(SIZES), identities=IDENTITIES)

    def on_reply(reply: Message) -> list[Message]:
        fields = dict(reply.content.config_records[RECORD])
        if reply.metadata.src_node_id == VICTIM and "public_key" in fields:
            fields |= {"identity": identity, "signature": signature}
            reply.content.config_records[RECORD] = ConfigRecord(fields)
        return [reply]

    federation.faults.on_reply = on_reply
    with caplog.at_level(logging.WARNING, "flwr_dpkmeans.server"):
        assert federation.start().confirmed == (2, 4, 5)
    lengths = (
        f"have {len(identity)}, 32 and {len(signature)} bytes instead of 32, 32 and 64"
    )
    assert any(lengths in record.getMessage() for record in caplog.records)


def test_a_node_without_identity_sends_what_it_always_sent() -> None:
    federation = make_federation(grid_parts(SIZES))
    server = Cheat.over(federation, NODES)
    content = server.exchange(
        request_content(Stage.KEYS, plan=dump_plan(server.run.plan)), 2
    )
    assert set(content.config_records[RECORD]) == {
        "header",
        "public_key",
        "plan_digest",
    }
    assert json.loads(str(content.config_records[RECORD]["header"])) == (
        {"status": "ok", "n_features": 2} | version_fields()
    )
    assert KeysReply(b"k" * 32, b"d" * 32, 2).credential is None
