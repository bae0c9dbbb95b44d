"""A server that does not keep to the protocol.

Clients refuse, remember nothing, pay nothing and tell nothing.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from support.faulty_grid import Faults, FaultyGrid
from support.ledger_entries import charged_epsilon
from support.messages import (
    RECORD,
    VECTOR_RECORD,
    ServerRun,
    Stage,
    Status,
    copied,
    dump_plan,
    load_plan,
    pack_boxes,
    parse_failure,
    request_content,
    unpack_boxes,
    unpack_roster,
    version_fields,
)
from support.protocol_federation import (
    Federation,
    all_bytes,
    grid_parts,
    make_federation,
    plain_lloyd,
    small_config,
    start_of,
)

from flwr_dpkmeans import KMeansClient
from flwr_dpkmeans.algorithms.lloyd_family.absolute_sums import LloydTask
from flwr_dpkmeans.errors import CohortError, DPKMeansError, RefusalError
from flwr_dpkmeans.flower.in_process_grid import Node
from flwr_dpkmeans.flower.mod import SecureAggregation
from flwr_dpkmeans.flower.strategies.timeouts import Timeouts
from flwr_dpkmeans.flower.strategy import PrivateKMeans
from flwr_dpkmeans.node.ledger import MemoryLedger
from flwr_dpkmeans.node.ledger_entries import RESULT_TAKEN, LedgerEntry
from flwr_dpkmeans.node.node_settings import NodeSettings
from flwr_dpkmeans.node.policy import ClientPolicy
from flwr_dpkmeans.privacy.release import NoiseShape, PrivacyUnit
from flwr_dpkmeans.secagg.keys import generate_private_key, public_key_of
from flwr_dpkmeans.secagg.messages import FinishRequest, Release
from flwr_dpkmeans.sums.config import RunConfig
from flwr_dpkmeans.sums.draft import draft_plan
from flwr_dpkmeans.sums.plan import Plan

SIZES = (120, 80, 60, 40)
VICTIM = 3
REFUSAL_FIELDS = {"status", "code", "sentence"}


@dataclass
class Hostile:
    """A server that follows the protocol and sends one client what it likes."""

    federation: Federation
    run: ServerRun
    parts: list[Any]

    def exchange(self, messages: list[Message]) -> list[Message]:
        return self.federation.grid.send_and_receive(messages)

    def agree(self) -> None:
        """The honest key phase."""
        self.run.take_keys(self.exchange(self.run.keys_messages()))

    def request(self, index: int) -> dict[int, RecordDict]:
        """The honest requests of a round, not sent yet."""
        self.run.open_round(index)
        return {
            message.metadata.dst_node_id: message.content
            for message in self.run.sum_messages()
        }

    def complete(self, requests: dict[int, RecordDict]) -> None:
        """Send the honest requests and take the replies."""
        messages = [
            Message(copied(content), node, "train")
            for node, content in requests.items()
        ]
        assert self.run.take_sums(self.exchange(messages)) is not None

    def finish(self) -> tuple[int, ...]:
        """The honest last phase."""
        return self.run.take_finish(self.exchange(self.run.finish_messages()))

    def require_refused(
        self, content: RecordDict, word: str, *, node: int = VICTIM,
        message_type: str = "train",
    ) -> tuple[Status, str, str]:  # fmt: skip
        """Send one message."""
        grid, ledger = self.federation.grid, self.federation.ledgers[node]
        before, charged = contents_of(grid.contexts[node].state), ledger.entries()
        (reply,) = self.exchange([Message(copied(content), node, message_type)])
        assert not reply.has_error()
        assert set(reply.content) == {RECORD}
        record = reply.content.config_records[RECORD]
        assert set(record) == {"header"}
        assert set(json.loads(str(record["header"]))) == REFUSAL_FIELDS
        status, code, sentence = parse_failure(reply.content)
        assert status in (Status.REFUSED, Status.FAILED)
        assert word in sentence, sentence
        assert sentence.endswith((".", "?"))
        assert "\n" not in sentence
        assert contents_of(grid.contexts[node].state) == before
        assert ledger.entries() == charged
        return status, code, sentence

    def require_unharmed(self, from_round: int) -> None:
        """The honest run goes on as if nothing had happened."""
        for index in range(from_round, self.run.plan.last_round + 1):
            self.complete(self.request(index))
        assert self.finish() == (2, 3, 4, 5)
        centroids, _ = plain_lloyd(
            start_of(self.run.plan), [self.parts] * self.run.plan.last_round
        )
        for client in self.federation.clients.values():
            assert np.array_equal(client.cluster_centers_, centroids)


def contents_of(state: RecordDict) -> Any:
    """A context's state as plain values."""
    return {name: dict(record) for name, record in state.config_records.items()}, dict(
        state.array_records
    )


@contextmanager
def hostile(config: RunConfig | None = None, **values: Any) -> Iterator[Hostile]:
    parts = grid_parts(SIZES)
    federation = make_federation(parts)
    config = config or small_config(
        **({"algorithm": "lloyd", "max_iter": 3, "n_examples": None} | values)
    )
    grid = federation.grid
    run = ServerRun(
        config, run_id=grid.run.run_id, seed=11, node_ids=grid.get_node_ids()
    )
    with grid.running():
        yield Hostile(federation, run, parts)


def fields_of(content: RecordDict) -> dict[str, Any]:
    return dict(content.config_records[RECORD])


def changed(
    content: RecordDict, header: dict[str, Any] | None = None, **fields: Any
) -> RecordDict:
    """A message with other header entries and blobs; None removes one."""
    copy = copied(content)
    record = fields_of(copy) | fields
    if header is not None:
        entries = json.loads(str(record["header"])) | header
        record["header"] = json.dumps(
            {name: value for name, value in entries.items() if value is not None}
        )
    copy.config_records[RECORD] = ConfigRecord(
        {name: value for name, value in record.items() if value is not None}
    )
    return copy


def with_release(content: RecordDict, words: Any) -> RecordDict:
    """A message with another release."""
    copy = copied(content)
    if words is None:
        del copy.array_records[VECTOR_RECORD]
    else:
        old = (
            content.array_records[VECTOR_RECORD]["vector"]
            if VECTOR_RECORD in content.array_records
            else None
        )
        stype = old.stype if old is not None else "flwr-dpkmeans.little-endian"
        array = Array(
            dtype="uint64",
            shape=(len(words),),
            stype=stype,
            data=words.astype("<u8").tobytes(),
        )
        copy.array_records[VECTOR_RECORD] = ArrayRecord({"vector": array})
    return copy


# -- plans -----------------------------------------------------------------------------


def first_round(plan: Plan, **values: Any) -> Plan:
    return replace(plan, rounds=(replace(plan.rounds[0], **values), *plan.rounds[1:]))


def first_block(plan: Plan, **values: Any) -> Plan:
    blocks = plan.rounds[0].blocks
    return first_round(plan, blocks=(replace(blocks[0], **values), *blocks[1:]))


def bound(plan: Plan, factor: float) -> Plan:
    sensitivity = plan.rounds[0].blocks[0].sensitivity
    return first_block(
        plan, sensitivity=replace(sensitivity, bound=sensitivity.bound * factor)
    )


@dataclass(frozen=True, kw_only=True)
class Loyd(LloydTask):
    name = "loyd"


OTHER_PLANS: dict[str, Callable[[Plan], Plan]] = {
    "half the noise": lambda p: first_block(
        p, noise_multiplier=p.rounds[0].blocks[0].noise_multiplier / 2
    ),
    "slightly less noise": lambda p: first_block(
        p, noise_multiplier=p.rounds[0].blocks[0].noise_multiplier * 0.999
    ),
    "no noise": lambda p: first_block(p, noise=NoiseShape.NONE, noise_multiplier=0.0),
    "double sensitivity": lambda p: bound(p, 2.0),
    "half sensitivity": lambda p: bound(p, 0.5),
    "other radius": lambda p: first_round(p, radius=0.1),
    "no radius": lambda p: first_round(p, radius=None),
    "NaN radius": lambda p: first_round(p, radius=float("nan")),
    "other shape": lambda p: first_block(p, shape=(4, 2)),
    "other array": lambda p: first_block(p, name="counts"),
    "other entry bound": lambda p: first_block(p, entry_bound=1e-9),
    "other unit": lambda p: first_block(
        p,
        sensitivity=replace(p.rounds[0].blocks[0].sensitivity, unit=PrivacyUnit.CLIENT),
    ),
    "other reason": lambda p: first_block(
        p,
        sensitivity=replace(
            p.rounds[0].blocks[0].sensitivity,
            because="S2: one row lies in at most one cluster",
        ),
    ),
    "said to be nonnegative": lambda p: first_block(
        p, sensitivity=replace(p.rounds[0].blocks[0].sensitivity, nonnegative=True)
    ),
    "central for one round": lambda p: first_round(p, trust="central"),
    "other round name": lambda p: first_round(p, name="count"),
    "a round more": lambda p: replace(p, rounds=(*p.rounds, p.rounds[-1])),
    "a round less": lambda p: replace(p, rounds=p.rounds[:-1]),
    "no rounds": lambda p: replace(p, rounds=()),
    "other k": lambda p: replace(p, config=p.config.changed(n_clusters=4)),
    "other epsilon": lambda p: replace(
        p, config=p.config.changed(epsilon=p.config.epsilon / 2)
    ),
    "other trust": lambda p: replace(p, config=p.config.changed(trust="central")),
    "other algorithm": lambda p: replace(
        p, config=RunConfig(p.settings, LloydTask(n_clusters=p.config.n_clusters))
    ),
    "unknown algorithm": lambda p: replace(
        p, config=RunConfig(p.settings, Loyd(n_clusters=p.config.n_clusters))
    ),
    "unknown trust": lambda p: replace(p, config=p.config.changed(trust="oblivios")),
    "other delta": lambda p: replace(p, delta=p.delta * 2),
    "other N": lambda p: replace(p, n_examples=10**6),
    "other t": lambda p: replace(p, max_silent=1),
    "a count nobody needs": lambda p: replace(p, preliminary=p.rounds[:1]),
    "other run": lambda p: replace(p, run_id=p.run_id + 1),
    "other version": lambda p: replace(p, version=1),
    "other grid": lambda p: replace(p, fraction_bits=8),
    "other width": lambda p: replace(p, n_features=3),
    "more clients than the ring holds": lambda p: replace(p, n_clients=2**20),
    "fewer clients than silent ones": lambda p: replace(p, n_clients=-5, max_silent=-3),
    "negative seed": lambda p: replace(p, seed=-1),
}


@pytest.mark.sample(6)
@pytest.mark.parametrize("kind", OTHER_PLANS)
def test_a_plan_that_does_not_follow_from_its_configuration_is_refused(
    kind: str,
) -> None:
    # ProxyLloyd's rounds have no radius in the plan: it follows from releases.
    algorithm = "fastlloyd" if "radius" in kind else "proxy_lloyd"
    with hostile(small_config(epsilon=1.0, algorithm=algorithm)) as server:
        plan = OTHER_PLANS[kind](server.run.plan)
        server.require_refused(request_content(Stage.KEYS, plan=dump_plan(plan)), "")
        server.agree()  # The client takes part in an honest run afterwards.
        for index in range(1, server.run.plan.last_round + 1):
            server.complete(server.request(index))
        assert server.finish() == (2, 3, 4, 5)


def edited(plan: Plan, **values: Any) -> bytes:
    """A plan's JSON with other configuration entries, valid or not."""
    content = json.loads(dump_plan(plan))
    config = content["config"]
    for name, value in values.items():
        key = "name" if name == "algorithm" else name
        place = next(
            (part for part in (config["settings"], config["task"]) if key in part),
            config["task"]["options"],
        )
        place[key] = value
    return json.dumps(content).encode()


MALFORMED_PLANS: dict[str, Callable[[Plan], bytes]] = {
    "not JSON": lambda p: b"\xff\x00plan",
    "empty object": lambda p: b"{}",
    "deep": lambda p: b"[" * 100_000,
    "k = 0": lambda p: edited(p, n_clusters=0),
    "k is text": lambda p: edited(p, n_clusters="3"),
    "k is huge": lambda p: edited(p, n_clusters=2**40),
    "epsilon negative": lambda p: edited(p, epsilon=-1.0),
    "epsilon infinite": lambda p: edited(p, epsilon=float("inf")),
    "epsilon NaN": lambda p: edited(p, epsilon=float("nan")),
    "delta above 1/N": lambda p: edited(p, delta=0.5),
    "bounds reversed": lambda p: edited(p, bounds=[[1.0], [-1.0]]),
    "bounds missing": lambda p: edited(p, bounds=None),
    "unit unknown": lambda p: edited(p, unit="rows"),
    "min_clients 1": lambda p: edited(p, min_clients=1),
}


@pytest.mark.parametrize("kind", MALFORMED_PLANS)
def test_a_malformed_plan_is_refused(kind: str) -> None:
    with hostile(small_config(epsilon=1.0)) as server:
        blob = MALFORMED_PLANS[kind](server.run.plan)
        server.require_refused(request_content(Stage.KEYS, plan=blob), "plan")


def test_no_plan_and_a_second_plan_are_refused() -> None:
    with hostile() as server:
        server.require_refused(request_content(Stage.KEYS), "carries no plan")
        server.agree()
        again, *_ = server.run.keys_messages()
        server.require_refused(again.content, "second plan")
        other = replace(
            server.run.plan, config=server.run.plan.config.changed(n_clusters=2)
        )
        server.require_refused(
            request_content(Stage.KEYS, plan=dump_plan(other)), "second plan"
        )
        server.require_unharmed(1)


def test_a_plan_inside_a_round_is_refused() -> None:
    with hostile() as server:
        server.agree()
        requests = server.request(1)
        plan = dump_plan(replace(server.run.plan, seed=3))
        server.require_refused(
            changed(requests[VICTIM], plan=plan), "another seed than the one in force"
        )
        server.complete(requests)
        requests = server.request(2)
        server.require_refused(
            changed(requests[VICTIM], plan=plan), "another seed than the one in force"
        )
        server.complete(requests)
        server.require_unharmed(3)


# -- the first request of a run --------------------------------------------------------


def roster_of(content: RecordDict) -> Any:
    return unpack_roster(0, bytes(fields_of(content)["roster"]))


def roster_blob(members: dict[int, bytes]) -> bytes:
    return b"".join(
        node.to_bytes(8, "little") + key for node, key in sorted(members.items())
    )


def strange_key() -> bytes:
    return public_key_of(generate_private_key())


FIRST_REQUESTS: dict[str, tuple[Callable[[RecordDict], RecordDict], str]] = {
    "roster without the client": (
        lambda c: changed(
            c,
            roster=roster_blob(
                {n: k for n, k in roster_of(c).keys.items() if n != VICTIM}
            ),
        ),
        "does not list node",
    ),
    "roster with another key for the client": (
        lambda c: changed(
            c, roster=roster_blob(roster_of(c).keys | {VICTIM: strange_key()})
        ),
        "does not list node",
    ),
    "roster with an invented client": (
        lambda c: changed(
            c, roster=roster_blob(roster_of(c).keys | {99: strange_key()})
        ),
        "the plan that was agreed on has 4",
    ),
    "roster with the client's key twice": (
        lambda c: changed(
            c, roster=roster_blob(roster_of(c).keys | {4: roster_of(c).keys[VICTIM]})
        ),
        "one public key for two nodes",
    ),
    "roster of one": (
        lambda c: changed(c, roster=roster_blob({VICTIM: roster_of(c).keys[VICTIM]})),
        "at least 2",
    ),
    "roster out of order": (
        lambda c: changed(
            c,
            roster=b"".join(
                reversed(
                    [fields_of(c)["roster"][i : i + 40] for i in range(0, 160, 40)]
                )
            ),
        ),
        "out of order",
    ),
    "roster torn": (
        lambda c: changed(c, roster=fields_of(c)["roster"][:-1]),
        "not a multiple",
    ),
    "roster with a useless key": (
        lambda c: changed(c, roster=roster_blob(roster_of(c).keys | {2: bytes(32)})),
        "",
    ),
    "no roster": (lambda c: changed(c, roster=None), "without its own roster"),
    "later round": (lambda c: changed(c, {"round": 2}), "out of order"),
    "round that does not exist": (lambda c: changed(c, {"round": 9}), "out of order"),
    "private count that is not planned": (
        lambda c: changed(c, {"round": 0}),
        "out of order",
    ),
    "negative round": (lambda c: changed(c, {"round": -1}), "out of order"),
    "negative attempt": (
        lambda c: changed(c, {"attempt": -1}),
        "attempts count from 0",
    ),
    "attempt beyond the plan": (lambda c: changed(c, {"attempt": 2}), "1 retries"),
    "round as text": (lambda c: changed(c, {"round": "1"}), "'round'"),
    "round true": (lambda c: changed(c, {"round": True}), "'round'"),
    "no round": (lambda c: changed(c, {"round": None}), "'round'"),
    "release before the first round": (
        lambda c: with_release(
            changed(c, {"release_round": 0, "release_attempt": 0}),
            np.zeros(9, dtype=np.uint64),
        ),
        "out of order",
    ),
    "boxes before the first round": (
        lambda c: changed(c, boxes=pack_boxes({2: b"box"})),
        "sealed group keys",
    ),
    "boxes torn": (lambda c: changed(c, boxes=b"\x01"), "cut off"),
    "boxes as text": (lambda c: changed(c, boxes="box"), "'boxes'"),
    "unknown stage": (lambda c: changed(c, {"stage": "sums"}), "'stage'"),
    "header not JSON": (
        lambda c: changed(c, header=None) and with_text(c, "{"),
        "not JSON",
    ),
    "finish before anything": (lambda c: changed(c, {"stage": "finish"}), "no release"),
}


def with_text(content: RecordDict, header: str) -> RecordDict:
    copy = copied(content)
    copy.config_records[RECORD] = ConfigRecord(fields_of(content) | {"header": header})
    return copy


@pytest.mark.parametrize("kind", FIRST_REQUESTS)
def test_a_wrong_first_request_is_refused(kind: str) -> None:
    with hostile() as server:
        server.agree()
        requests = server.request(1)
        change, word = FIRST_REQUESTS[kind]
        server.require_refused(change(requests[VICTIM]), word)
        assert server.federation.charges() == 0
        server.complete(requests)
        server.require_unharmed(2)


def test_a_request_without_a_plan_or_of_another_run_is_refused() -> None:
    with hostile() as other:
        other.agree()
        foreign = {
            node: changed(content, {"run": None})
            for node, content in other.request(1).items()
        }
        other.complete(foreign)
        named = other.request(2)[VICTIM]
        later = {VICTIM: changed(named, {"run": None})}
    with hostile() as server:
        # Without the number of its run, which a server can leave out or change.
        server.require_refused(named, "of another run")
        server.require_refused(foreign[VICTIM], "unknown to this client")
        server.agree()
        server.require_refused(foreign[VICTIM], "under its own key")
        requests = server.request(1)
        server.complete(requests)
        assert server.federation.charges() == 4
        server.require_refused(later[VICTIM], "sealed ")
        server.require_refused(foreign[VICTIM], "replayed")
        # The state after a refused replay is the state before, so the honest run goes
        # on.
        server.require_unharmed(2)


# -- later requests --------------------------------------------------------------------


def release_of(content: RecordDict) -> Any:
    return np.frombuffer(
        content.array_records[VECTOR_RECORD]["vector"].data, dtype="<u8"
    )


def boxes_of(content: RecordDict) -> dict[int, bytes]:
    return unpack_boxes(bytes(fields_of(content).get("boxes", b"")))


LATER_REQUESTS: dict[str, tuple[Callable[[dict[int, RecordDict]], RecordDict], str]] = {
    "release too short": (
        lambda r: with_release(r[VICTIM], release_of(r[VICTIM])[:-1]),
        "entries",
    ),
    "release too long": (
        lambda r: with_release(
            r[VICTIM], np.append(release_of(r[VICTIM]), np.uint64(0))
        ),
        "entries",
    ),
    "no release": (lambda r: with_release(r[VICTIM], None), "out of order"),
    "release of another round": (
        lambda r: changed(r[VICTIM], {"release_round": 2}),
        "out of order",
    ),
    "release of another attempt": (
        lambda r: changed(r[VICTIM], {"release_attempt": 1}),
        "out of order",
    ),
    "release without its round": (
        lambda r: changed(r[VICTIM], {"release_round": None}),
        "'release_round'",
    ),
    "round skipped": (lambda r: changed(r[VICTIM], {"round": 3}), "out of order"),
    "round again": (lambda r: changed(r[VICTIM], {"round": 1}), "out of order"),
    "other attempt": (lambda r: changed(r[VICTIM], {"attempt": 1}), "out of order"),
    "boxes garbage": (
        lambda r: changed(
            r[VICTIM],
            boxes=pack_boxes(
                {n: bytes(len(b)) for n, b in boxes_of(r[VICTIM]).items()}
            ),
        ),
        "",
    ),
    "boxes of another client": (
        lambda r: changed(r[VICTIM], boxes=fields_of(r[other_reader(r)])["boxes"]),
        "",
    ),
    "boxes missing": (lambda r: changed(r[VICTIM], boxes=None), "sealed group keys"),
    "box of one author only": (
        lambda r: changed(
            r[VICTIM], boxes=pack_boxes(dict([*boxes_of(r[VICTIM]).items()][1:]))
        ),
        "sealed group keys",
    ),
    "box of a stranger": (
        lambda r: changed(
            r[VICTIM], boxes=pack_boxes(boxes_of(r[VICTIM]) | {99: bytes(48)})
        ),
        "sealed group keys",
    ),
}


def other_reader(requests: dict[int, RecordDict]) -> int:
    """Another client with boxes from the same authors, if there is one."""
    mine = set(boxes_of(requests[VICTIM]))
    others = [node for node in requests if node != VICTIM]
    return next(
        (node for node in others if set(boxes_of(requests[node])) == mine), others[0]
    )


@pytest.mark.parametrize("kind", LATER_REQUESTS)
def test_a_wrong_later_request_is_refused(kind: str) -> None:
    with hostile() as server:
        server.agree()
        server.complete(server.request(1))
        requests = server.request(2)
        change, word = LATER_REQUESTS[kind]
        server.require_refused(change(requests), word)
        server.complete(requests)
        server.require_unharmed(3)


def test_a_round_is_answered_once() -> None:
    with hostile() as server:
        server.agree()
        requests = server.request(1)
        server.complete(requests)
        server.require_refused(requests[VICTIM], "replayed")
        later = server.request(2)
        server.complete(later)
        server.require_refused(later[VICTIM], "replayed")
        server.require_refused(requests[VICTIM], "replayed")
        server.require_unharmed(3)
        server.require_refused(later[VICTIM], "finished")
        assert server.federation.attempts_in_ledger(VICTIM) == [(1, 0), (2, 0), (3, 0)]


def test_a_client_whose_state_was_rolled_back_still_answers_once() -> None:
    """A reply is pushed before its context is saved."""
    with hostile() as server:
        server.agree()
        requests = server.request(1)
        context = server.federation.grid.contexts[VICTIM]
        saved = copied(context.state)
        server.complete(requests)
        server.federation.grid.contexts[VICTIM].state = saved
        server.require_refused(requests[VICTIM], "ledger already")
        # Nor does it count from zero in a later attempt.
        fewer = {
            node: key
            for node, key in roster_of(requests[VICTIM]).keys.items()
            if node != 5
        }
        server.require_refused(retry_content(1, 1, fewer), "does not remember")


def retry_content(index: int, attempt: int, members: dict[int, bytes]) -> RecordDict:
    content = request_content(Stage.SUM)
    return changed(
        content, {"round": index, "attempt": attempt}, roster=roster_blob(members)
    )


def test_a_later_roster_may_only_lose_nodes() -> None:
    with hostile() as server:
        server.agree()
        requests = server.request(1)
        keys = dict(roster_of(requests[VICTIM]).keys)
        server.complete(requests)
        fewer = {node: key for node, key in keys.items() if node != 5}
        for members, word in (
            (keys, "adds a node or changes a key"),
            (keys | {99: strange_key()}, "the plan that was agreed on has 4"),
            (fewer | {99: strange_key()}, "adds a node or changes a key"),
            (fewer | {4: strange_key()}, "adds a node or changes a key"),
            (fewer | {VICTIM: strange_key()}, "under its own key"),
            ({VICTIM: keys[VICTIM]}, "at least 2"),
        ):
            server.require_refused(retry_content(1, 1, members), word)
        server.require_unharmed(2)


def test_a_client_answers_no_more_attempts_than_the_plan_priced() -> None:
    with hostile() as server:
        server.agree()
        requests = server.request(1)
        keys = dict(roster_of(requests[VICTIM]).keys)
        server.complete(requests)
        three = {node: key for node, key in keys.items() if node != 5}
        two = {node: key for node, key in three.items() if node != 4}
        (reply,) = server.exchange(
            [Message(retry_content(1, 1, three), VICTIM, "train")]
        )
        assert parse_failure(reply.content)[0] is Status.OK
        server.require_refused(retry_content(1, 2, two), "1 retries")
        assert server.federation.attempts_in_ledger(VICTIM) == [(1, 0), (1, 1)]


@pytest.mark.parametrize("limit", ["plan", "policy"])
def test_a_roster_below_the_minimum_cohort_is_refused(limit: str) -> None:
    with hostile(min_clients=3) as server:
        server.agree()
        keys = dict(roster_of(server.request(1)[VICTIM]).keys)
        two = {node: key for node, key in keys.items() if node < 4}
        server.require_refused(retry_content(1, 0, two), "minimum cohort is 3")


# -- the end of a run ------------------------------------------------------------------


def finish_content(server: Hostile, node: int = VICTIM) -> RecordDict:
    contents = {
        message.metadata.dst_node_id: message.content
        for message in server.run.finish_messages()
    }
    return contents[node]


def test_a_finish_before_the_last_round_is_refused() -> None:
    with hostile() as server:
        server.agree()
        server.complete(server.request(1))
        server.complete(server.request(2))
        server.require_refused(
            finish_content(server), "the plan has 3", message_type="evaluate"
        )
        assert server.federation.clients[VICTIM].cluster_centers_ is None
        server.require_unharmed(3)


def test_wrong_finishes_are_refused() -> None:
    with hostile() as server:
        server.agree()
        for index in (1, 2, 3):
            server.complete(server.request(index))
        good = finish_content(server)
        release = release_of(good)
        for content, word in (
            (with_release(good, release[:-1]), "entries"),
            (with_release(good, None), "no release"),
            (changed(good, {"release_round": 2}), "late, replayed"),
            (changed(good, {"release_attempt": 1}), "late, replayed"),
            (changed(good, boxes=pack_boxes({2: b"box"})), "sealed boxes"),
        ):
            server.require_refused(content, word, message_type="evaluate")
            assert server.federation.clients[VICTIM].cluster_centers_ is None
        server.require_unharmed(4)
        server.require_refused(good, "late, replayed", message_type="evaluate")


def test_another_release_for_one_client_makes_its_tag_differ() -> None:
    """A server that sends one client another sum is found out at the next reply."""
    with hostile() as server:
        server.agree()
        server.complete(server.request(1))
        requests = server.request(2)
        words = release_of(requests[VICTIM]) + np.uint64(2**20)
        requests[VICTIM] = with_release(requests[VICTIM], words)
        with pytest.raises(DPKMeansError, match=f"node\\(s\\) \\[{VICTIM}\\] differs"):
            server.complete(requests)


# -- the private count and the final plan ----------------------------------------------


@contextmanager
def counting() -> Iterator[tuple[Hostile, dict[int, RecordDict]]]:
    """A run with a private count, up to the requests with the final plan."""
    with hostile(small_config(n_examples=None, epsilon=3.0)) as server:
        server.agree()
        server.complete(server.request(0))
        yield server, server.request(1)


def final_plan(requests: dict[int, RecordDict]) -> Plan:
    return load_plan(bytes(fields_of(requests[VICTIM])["plan"]))


def rebuilt(plan: Plan, **values: Any) -> Plan:
    """A plan that follows from its configuration, but not from the preliminary plan."""
    arguments: dict[str, Any] = {
        "run_id": plan.run_id, "n_clients": plan.n_clients, "seed": plan.seed,
        "n_features": plan.n_features, "n_examples": plan.n_examples,
    }  # fmt: skip
    config = values.pop("config", plan.config)
    return draft_plan(config, **(arguments | values))


FINAL_PLANS: dict[str, tuple[Callable[[Plan], Plan], str]] = {
    "larger N": (lambda p: rebuilt(p, n_examples=10**5), "the private count released"),
    "smaller N": (
        lambda p: rebuilt(p, n_examples=(p.n_examples or 0) - 1),
        "the private count released",
    ),
    "other epsilon": (
        lambda p: rebuilt(p, config=p.config.changed(epsilon=30.0)),
        "had fixed",
    ),
    "other trust": (
        lambda p: rebuilt(p, config=p.config.changed(trust="central")),
        "had fixed",
    ),
    "other k": (
        lambda p: rebuilt(p, config=p.config.changed(n_clusters=2)),
        "had fixed",
    ),
    "more retries": (
        lambda p: rebuilt(p, config=p.config.changed(max_retries=9)),
        "had fixed",
    ),
    "other seed": (lambda p: rebuilt(p, seed=p.seed + 1), "had fixed"),
    "more clients": (lambda p: rebuilt(p, n_clients=50), "had fixed"),
    "other run": (lambda p: rebuilt(p, run_id=p.run_id + 1), "had fixed"),
    "declared N": (
        lambda p: rebuilt(p, config=p.config.changed(n_examples=p.n_examples)),
        "had fixed",
    ),
    "preliminary again": (
        lambda p: replace(p, rounds=(), n_examples=None),
        "the private count released",
    ),
    "less noise": (
        lambda p: first_block(
            p, noise_multiplier=p.rounds[0].blocks[0].noise_multiplier / 2
        ),
        "other sensitivities or noise",
    ),
}


@pytest.mark.sample(5)
@pytest.mark.parametrize("kind", FINAL_PLANS)
def test_a_wrong_final_plan_is_refused(kind: str) -> None:
    change, word = FINAL_PLANS[kind]
    with counting() as (server, requests):
        blob = dump_plan(change(final_plan(requests)))
        server.require_refused(changed(requests[VICTIM], plan=blob), word)
        server.require_refused(changed(requests[VICTIM], plan=None), "no final plan")
        assert server.federation.attempts_in_ledger(VICTIM) == [(0, 0)]
        server.complete(requests)
        for index in range(2, server.run.plan.last_round + 1):
            server.complete(server.request(index))
        assert server.finish() == (2, 3, 4, 5)


def test_a_final_plan_before_the_count_is_refused() -> None:
    with counting() as (_, requests):
        final = final_plan(requests)
    with hostile(small_config(n_examples=None, epsilon=3.0)) as server:
        server.agree()
        early = replace(final, run_id=server.run.plan.run_id)
        first = server.request(0)
        server.require_refused(
            changed(first[VICTIM], plan=dump_plan(early)),
            "which had fixed it or is still to find it",
        )
        server.complete(first)


def test_a_count_release_of_the_wrong_length_is_refused() -> None:
    with counting() as (server, requests):
        words = np.zeros(2, dtype=np.uint64)
        server.require_refused(with_release(requests[VICTIM], words), "entries")


# -- messages around the protocol ------------------------------------------------------


def inner_content(kind: str, config: dict[str, Any], arrays: list[Any]) -> RecordDict:
    """What the mod says to the client behind it."""
    content = RecordDict()
    record = ArrayRecord(
        {str(i): Array(np.ascontiguousarray(array)) for i, array in enumerate(arrays)}
    )
    content.array_records[f"{kind}ins.parameters"] = record
    content.config_records[f"{kind}ins.config"] = ConfigRecord(config)
    return content


def test_the_client_behind_the_mod_cannot_be_asked_directly() -> None:
    """It would answer with exact statistics."""
    with hostile() as server:
        plan = dump_plan(server.run.plan)
        centroids = np.zeros((3, 2))
        for content in (
            inner_content("fit", {"task": "count"}, []),
            inner_content("fit", {"task": "describe"}, []),
            inner_content(
                "fit", {"task": "statistic", "plan": plan, "round": 1}, [centroids]
            ),
            inner_content(
                "evaluate",
                {"plan": plan, "report": "{}"},
                [centroids, np.zeros(3), np.zeros(0)],
            ),
            RecordDict(),
        ):
            for message_type in ("train", "evaluate"):
                server.require_refused(
                    content,
                    "not of the private k-means protocol",
                    message_type=message_type,
                )
        # Records beside the protocol's own change nothing either.
        mixed = inner_content("fit", {"task": "count"}, [])
        mixed.config_records[RECORD] = ConfigRecord(
            {"header": json.dumps({"stage": "keys"} | version_fields())}
        )
        server.require_refused(mixed, "carries no plan")
        server.agree()
        server.require_unharmed(1)


def somebody_elses_app(
    client: Callable[[Context], Any], ledger: MemoryLedger
) -> ClientApp:
    """README's second way: an own ClientApp with the mod in it."""
    settings = NodeSettings(ClientPolicy(), ledger, "rows")
    return ClientApp(
        client_fn=lambda context: client(context).to_client(),
        mods=[SecureAggregation(lambda _: settings)],
    )


def test_the_mod_protects_somebody_elses_app_as_well() -> None:
    parts = grid_parts(SIZES)
    clients = [KMeansClient(part) for part in parts]
    ledgers = [MemoryLedger() for _ in parts]
    nodes = [
        Node(somebody_elses_app(lambda _, client=client: client, ledger))
        for client, ledger in zip(clients, ledgers, strict=True)
    ]
    grid = FaultyGrid(nodes, run_id=77, faults=Faults())
    federation = Federation(
        dict(enumerate(clients, 2)), dict(enumerate(ledgers, 2)), grid, Faults()
    )
    with grid.running():
        for kind in ("train", "evaluate"):
            (reply,) = grid.send_and_receive(
                [Message(inner_content("fit", {"task": "count"}, []), 2, kind)]
            )
            assert parse_failure(reply.content)[0] is Status.REFUSED
            assert not reply.content.array_records
    federation.start(algorithm="lloyd", n_examples=None, max_iter=2)
    centroids, _ = plain_lloyd(start_of(federation.plan), [parts] * 2)
    assert np.array_equal(clients[0].cluster_centers_, centroids)


# -- exceptions ------------------------------------------------------------------------

SECRET = "patient 4711 has 3.14159"


class FailsLater:
    """``load_data`` that raises at its n-th call."""

    def __init__(
        self, client: Any, at_call: int, error: type[Exception] = ValueError
    ) -> None:
        self._client, self._left, self._error = client, at_call, error

    def __call__(self, _: Context) -> Any:
        self._left -= 1
        if self._left < 0:
            raise self._error(SECRET)
        return self._client


ERRORS = [ValueError, KeyError, MemoryError, DPKMeansError]


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("at_call", [0, 1, 2])
def test_an_exceptions_text_stays_at_home(
    at_call: int, error: type[Exception], caplog: pytest.LogCaptureFixture
) -> None:
    """The server sees a fixed code, the client's own log kind and place."""
    parts = grid_parts(SIZES)
    load = FailsLater(KMeansClient(parts[VICTIM - 2]), at_call, error)
    federation = make_federation(parts, loaders={VICTIM: load})
    if at_call == 0:
        with pytest.raises(RefusalError, match=f"^node {VICTIM} refused") as stopped:
            federation.start(algorithm="lloyd", max_iter=2, n_examples=None)
        assert "4711" not in str(stopped.value)
        assert federation.charges() == 0
    else:
        federation.start(algorithm="lloyd", max_iter=2, n_examples=None)
    failures = [
        m
        for m in federation.grid.received
        if parse_failure(m.content)[0] is Status.FAILED
    ]
    assert len(failures) == 1
    _, code, sentence = parse_failure(failures[0].content)
    assert code == ("DPKMeansError" if error is DPKMeansError else "InternalError")
    assert "in its own log" in sentence
    require_no_secret(federation.grid)
    own_log = [r for r in caplog.records if r.name == "flwr_dpkmeans.mod"]
    told = [
        r.getMessage() + (r.exc_text or "")
        for r in own_log
        if r.levelno == logging.ERROR
    ]
    if error is DPKMeansError:
        # A sentence of this package.
        assert told == [f"cannot answer: {SECRET}"]
    else:
        # Anybody's exception, which may quote rows.
        assert re.fullmatch(
            rf"cannot answer: {error.__name__} at test_hostile_server.py:\d+ in"
            r" __call__",
            told[0],
        )
        assert not any("4711" in line for line in told)
    server_log = [
        r.getMessage() for r in caplog.records if r.name == "flwr_dpkmeans.server"
    ]
    assert not any("4711" in line for line in server_log)
    assert len(federation.ledgers[VICTIM].entries()) == max(at_call - 1, 0)


@pytest.mark.parametrize("error", ERRORS)
def test_what_fails_when_the_result_is_written_is_seen_at_home_only(
    error: type[Exception], caplog: pytest.LogCaptureFixture
) -> None:
    """What is written holds exact facts of rows."""
    parts = grid_parts(SIZES)
    fails = FailsLater(KMeansClient(parts[VICTIM - 2]), 3, error)
    federation = make_federation(parts, loaders={VICTIM: fails})
    assert federation.start(
        algorithm="lloyd", max_iter=2, n_examples=None
    ).confirmed == tuple(federation.clients)
    assert not [
        m
        for m in federation.grid.received
        if parse_failure(m.content)[0] is Status.FAILED
    ]
    require_no_secret(federation.grid)
    (told,) = [
        r
        for r in caplog.records
        if r.name == "flwr_dpkmeans.mod" and r.levelno == logging.ERROR
    ]
    is_own = error is DPKMeansError
    assert told.getMessage().startswith(
        "the result is not written: " + (SECRET if is_own else error.__name__)
    )
    assert is_own or "4711" not in told.getMessage()
    # The own ledger says that there is no result.
    last = {
        node: ledger.entries()[-1].attempt == RESULT_TAKEN
        for node, ledger in federation.ledgers.items()
    }
    assert last == {node: node != VICTIM for node in federation.clients}


def require_no_secret(grid: FaultyGrid) -> None:
    assert grid.received
    for message in grid.received:
        content = all_bytes(message)
        assert b"4711" not in content
        assert b"3.14159" not in content


def raise_secret(*_: Any, **__: Any) -> Any:
    raise ValueError(SECRET)


@pytest.mark.parametrize("message_type", ["train", "evaluate"])
def test_an_exceptions_text_stays_at_home_outside_the_protocol(
    message_type: str,
) -> None:
    federation = make_federation(grid_parts(SIZES), loaders={VICTIM: raise_secret})
    ledger = MemoryLedger()
    other = FaultyGrid([Node(somebody_elses_app(raise_secret, ledger))], run_id=5)
    for grid, node in ((federation.grid, VICTIM), (other, 2)):
        with grid.running():
            for content in (RecordDict(), inner_content("fit", {"task": "count"}, [])):
                (reply,) = grid.send_and_receive(
                    [Message(copied(content), node, message_type)]
                )
                assert not reply.has_error()
        require_no_secret(grid)


def test_the_secret_checker_fires() -> None:
    """Without the mod the text does travel: Flower puts it into its error replies."""
    app = ClientApp()
    app.train()(raise_secret)
    grid = FaultyGrid([Node(app)], run_id=5)
    with grid.running():
        (reply,) = grid.send_and_receive([Message(RecordDict(), 2, "train")])
    assert reply.has_error()
    with pytest.raises(AssertionError):
        require_no_secret(grid)


def test_a_client_that_computes_rubbish_says_nothing() -> None:
    class Wrong(KMeansClient):
        def fit(self, parameters: Any, config: Any) -> Any:
            arrays, _, metrics = super().fit(parameters, config)
            if config["task"] == "statistic":
                arrays = [np.array([3.14159, np.nan, np.inf])] * 3
            return arrays, 4711, {**metrics, "num_examples": 4711}

    parts = grid_parts(SIZES)
    federation = make_federation(
        parts, loaders={VICTIM: lambda _: Wrong(parts[VICTIM - 2])}
    )
    with pytest.raises(
        RefusalError,
        match=(
            f"node {VICTIM} refused \\(LocalMisuseError\\): this client could not"
            " answer"
        ),
    ):
        federation.start(algorithm="lloyd", max_iter=2, n_examples=None)
    (failure,) = [
        m
        for m in federation.grid.received
        if parse_failure(m.content)[0] is not Status.OK
    ]
    assert failure.metadata.src_node_id == VICTIM
    require_no_secret(federation.grid)
    assert federation.ledgers[VICTIM].entries() == ()


# -- policies --------------------------------------------------------------------------

POLICIES: dict[str, tuple[ClientPolicy, dict[str, Any], str]] = {
    "epsilon of a run": (
        ClientPolicy(max_epsilon_per_run=0.5),
        {},
        "max_epsilon_per_run is 0.5",
    ),
    "worst case of a run": (
        ClientPolicy(max_epsilon_per_run=1.05),
        {},
        "worst-case epsilon",
    ),
    "non-private": (
        ClientPolicy(allow_non_private=False),
        {"algorithm": "lloyd"},
        "private",
    ),
    "non-private and a limit": (
        ClientPolicy(max_epsilon_per_run=9.0),
        {"algorithm": "lloyd"},
        "max_epsilon_per_run is 9: plan with a finite epsilon",
    ),
    "trust model": (
        ClientPolicy(allowed_trust=("distributed", "central")),
        {},
        "allows only 'distributed', 'central'",
    ),
    "algorithm": (
        ClientPolicy(allowed_algorithms=("glloyd",)),
        {},
        "allows only 'glloyd'",
    ),
    "cohort": (ClientPolicy(min_cohort=4), {}, "4"),
    "seeded noise": (
        ClientPolicy(require_secure_noise=True),
        {"noise": "seeded"},
        "noise",
    ),
    "seeded noise and a limit": (
        ClientPolicy(max_epsilon_per_run=9.0),
        {"noise": "seeded"},
        "max_epsilon_per_run is 9: plan with a finite epsilon",
    ),
    "delta": (ClientPolicy(max_delta=1e-9), {}, "delta"),
    "box": (ClientPolicy(allowed_bounds=((-0.5, 0.5),)), {}, "allows only [-0.5, 0.5]"),
    "what was spent before": (ClientPolicy(max_epsilon_total=5.5), {}, "total"),
}


@pytest.mark.parametrize("n_examples", [300, None])
@pytest.mark.parametrize("kind", POLICIES)
def test_the_operator_sees_why_a_policy_refuses(
    kind: str, n_examples: int | None
) -> None:
    """Before anything is charged, also when the plan is still preliminary."""
    policy, values, word = POLICIES[kind]
    ledger = MemoryLedger()
    ledger.charge(
        LedgerEntry(
            "1", "rows", "ab12", 1, 0, "sums", epsilon=5.0, delta=1e-6, unit="record"
        )
    )
    federation = make_federation(
        grid_parts(SIZES), policies={VICTIM: policy}, ledgers={VICTIM: ledger}
    )
    with pytest.raises(RefusalError) as caught:
        federation.start(**({"epsilon": 1.0, "n_examples": n_examples} | values))
    text = str(caught.value)
    assert text.startswith(f"node {VICTIM} refused (RefusalError): ")
    assert word in text
    assert text.endswith(".")
    assert federation.charges() == 1
    assert "spent" not in text.replace(
        "was spent", ""
    )  # What this data set has cost before is private.
    assert not any(
        VECTOR_RECORD in message.content.array_records
        for message in federation.grid.received
    )


def test_a_policy_that_allows_the_run_does_not_disturb_it() -> None:
    policy = ClientPolicy(
        max_epsilon_per_run=2.0, max_epsilon_total=2.0, allowed_trust=("oblivious",),
        min_cohort=3, require_secure_noise=True, allow_non_private=False,
    )  # fmt: skip
    federation = make_federation(grid_parts(SIZES), policy=policy)
    result = federation.start(epsilon=1.0, min_clients=3)
    assert result.privacy.epsilon <= 1.0
    assert (
        charged_epsilon(federation.ledgers[2], "rows", "record")
        == result.privacy.epsilon_worst_case
    )


def test_an_exhausted_ledger_stops_a_run_that_the_policy_allowed() -> None:
    """Two runs at once: the second no longer fits at its first release."""
    parts = grid_parts(SIZES)
    ledger = MemoryLedger()
    policy = ClientPolicy(max_epsilon_total=1.5)
    federation = make_federation(
        parts, policies={VICTIM: policy}, ledgers={VICTIM: ledger}
    )

    def on_request(message: Message) -> bool:
        header = json.loads(str(message.content.config_records[RECORD]["header"]))
        if header["stage"] == "sum" and not ledger.entries():
            ledger.charge(
                LedgerEntry(
                    "1", "rows", "ab12", 1, 0, "sums", epsilon=1.4, delta=1e-6,
                    unit="record",
                )
            )  # fmt: skip
        return True

    federation.faults.on_request = on_request
    sentence = "what is left of this client's max_epsilon_total of 1.5"
    with pytest.raises(
        RefusalError, match=f"node {VICTIM} refused .*{sentence}"
    ) as caught:
        federation.start(epsilon=1.0)
    assert "1.4" not in str(caught.value)
    assert len(ledger.entries()) == 1
    assert not any(
        message.metadata.src_node_id == VICTIM
        and VECTOR_RECORD in message.content.array_records
        for message in federation.grid.received
    )


def test_nodes_of_one_host_may_share_a_ledger() -> None:
    """Each node's releases are charged, none taken for its neighbour's replay."""
    shared = MemoryLedger()
    federation = make_federation(
        grid_parts(SIZES), ledgers=dict.fromkeys((2, 3, 4), shared)
    )
    result = federation.start(epsilon=1.0)
    assert result.confirmed == (2, 3, 4, 5)
    assert result.privacy.n_attempts == federation.plan.last_round
    assert (
        sum(entry.is_release for entry in shared.entries())
        == 3 * federation.plan.last_round
    )
    assert charged_epsilon(shared, "rows", "record") == pytest.approx(
        3 * result.privacy.epsilon_worst_case
    )


def test_clients_without_data_or_with_other_columns() -> None:
    """An empty client is fine."""
    parts = grid_parts(SIZES)
    federation = make_federation([*parts, np.zeros((0, 2))])
    federation.start(algorithm="lloyd", max_iter=2, n_examples=None)
    assert np.array_equal(
        federation.clients[6].cluster_centers_,
        plain_lloyd(start_of(federation.plan), [parts] * 2)[0],
    )
    for n_features, word in (
        (2, "the plan has 2"),
        (None, "different numbers of features"),
    ):
        federation = make_federation([*parts, np.zeros((5, 3))])
        with pytest.raises(RefusalError, match=word):
            federation.start(n_features=n_features)
        assert federation.charges() == 0


def test_if_all_clients_refuse_the_first_sentence_is_shown() -> None:
    federation = make_federation(grid_parts(SIZES), policy=ClientPolicy(min_cohort=3))
    with pytest.raises(RefusalError, match="node 2 refused"):
        federation.start()


def test_too_few_clients_joined() -> None:
    federation = make_federation(grid_parts(SIZES))
    strategy = PrivateKMeans.from_config(
        small_config(n_clients=9), timeouts=Timeouts(joining=0.01)
    )
    with (
        federation.grid.running(),
        pytest.raises(CohortError, match="4 of 9 clients joined"),
    ):
        strategy.start(federation.grid)
    assert federation.grid.received == []


def test_a_release_of_wrong_words_is_only_a_wrong_result() -> None:
    """A server may always spoil the utility."""
    with hostile(max_iter=1) as server:
        server.agree()
        server.complete(server.request(1))
        bad = Release(1, 0, np.full(9, 2**62, dtype=np.uint64))
        contents = {
            message.metadata.dst_node_id: request_content(
                Stage.FINISH, request=FinishRequest(bad, boxes_of(message.content))
            )
            for message in server.run.finish_messages()
        }
        replies = server.exchange(
            [Message(content, node, "evaluate") for node, content in contents.items()]
        )
        assert len(server.run.take_finish(replies)) == 4
        centroids = [
            client.cluster_centers_ for client in server.federation.clients.values()
        ]
        assert all(np.array_equal(centroids[0], other) for other in centroids)
        assert np.isfinite(centroids[0]).all()


def test_rosters_are_packed_as_these_tests_pack_them() -> None:
    with hostile() as server:
        server.agree()
        content = server.request(1)[VICTIM]
        assert (
            roster_of(content).packed
            == roster_blob(dict(roster_of(content).keys))
            == fields_of(content)["roster"]
        )
