"""A client of the protocol: what it answers, and in which state."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
from cryptography.exceptions import InvalidTag

from second_client import algorithm, crypto, wire
from second_client.ledger import NOTHING, Ledger
from second_client.noise import own_noise
from second_client.plan import fewest_members, highest_price, read_plan
from second_client.wire import Fields, Refusal, require

Reply = tuple[Fields, np.ndarray | None]
MALFORMED = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


@dataclass(frozen=True)
class State:
    """Everything that changes from request to request."""

    private_key: bytes
    arrays: algorithm.Arrays
    pair: tuple[int, int] = NOTHING
    members: dict[int, bytes] = field(default_factory=dict)
    roster: bytes = b""
    transcript: bytes = b""
    order: list[int] = field(default_factory=list)
    pair_keys: dict[int, bytes] = field(default_factory=dict)
    authors: list[int] = field(default_factory=list)
    group_keys: dict[int, bytes] = field(default_factory=dict)
    tag_key: bytes = b""

    def stream(self, secret: bytes, purpose: str, *scope: int) -> np.ndarray:
        """Words that hide the vector of this pair."""
        key = crypto.derive(secret, purpose, *scope, self.transcript)
        length = self.arrays["centroids"].size + self.arrays["counts"].size
        return crypto.stream(key, *self.pair, length)


class SecondClient:
    """A node's side of one run."""

    min_clients = 3
    most_epsilon = 50.0

    def __init__(
        self,
        run: int,
        node: int,
        rows: np.ndarray,
        ledger: Ledger,
        entropy: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self.run, self.node, self.rows = run, node, rows
        self.ledger, self.entropy = ledger, entropy
        self.plan: SimpleNamespace | None = None
        self.state: State | None = None
        self.is_finished = False
        self.centroids: np.ndarray | None = None

    def answer(self, fields: Fields, vector: np.ndarray | None, age: float) -> Reply:
        """A reply's fields and vector."""
        try:
            return self._answer(fields, vector, age)
        except Refusal as refusal:
            status, (code, sentence) = "refused", refusal.args
        except (*MALFORMED, InvalidTag, RecursionError):
            status, code, sentence = "refused", "ProtocolError", "a malformed request"
        except OSError:
            status, code, sentence = "failed", "BudgetError", "the ledger is closed"
        return written(status=status, code=code, sentence=sentence), None

    def _answer(self, fields: Fields, vector: np.ndarray | None, age: float) -> Reply:
        header = wire.read_json(fields["header"], 10_000)
        run, wait = header.get("run", self.run), fields.get("wait", 1e9)
        require(type(run) is int and run == self.run, "another run")
        is_time = type(wait) in (int, float) and 0 < wait < np.inf
        require(is_time, "the waiting time is no time")
        stage = header["stage"]
        is_late = age > max(10, wait) and stage not in ("finish", "stop")
        require(not is_late, "the request comes too late")
        if stage == "keys":
            return self._keys(header, fields)
        if stage == "stop":
            self._end()
            return written(status="ok"), None
        require(self.state is not None, "no run goes on")
        if stage == "finish":
            return self._finish(header, fields, vector)
        require(stage == "sum", "an unknown stage")
        return self._sum(header, fields, vector)

    def _end(self) -> None:
        self.state, self.is_finished = None, True

    def _keys(self, header: Fields, fields: Fields) -> Reply:
        require(self.state is None and not self.is_finished, "a plan was agreed on")
        versions = [header.get("protocol"), header.get("plan_format")]
        require(json.dumps(versions) == "[2, 7]", "another version", "VersionError")
        blob, n_features = wire.read_blob(fields, "plan"), self.rows.shape[1]
        plan = read_plan(blob, self.run, n_features)
        self.price = highest_price(plan, self.most_epsilon)
        is_new = self.ledger.newest(self.run) == NOTHING
        require(is_new, "the run was begun before", "BudgetError")
        state = State(self.entropy(32), algorithm.start(plan))
        self.plan, self.state = plan, state
        self.plan_digest = hashlib.sha256(blob).digest()
        entries = {"protocol": 2, "plan_format": 7, "package": header.get("package")}
        reply = written(status="ok", **entries, n_features=n_features)
        reply["public_key"] = crypto.public_key(state.private_key)
        return reply | {"plan_digest": self.plan_digest}, None

    def _sum(self, header: Fields, fields: Fields, vector: np.ndarray | None) -> Reply:
        index = wire.read_integer(header, "round")
        attempt = wire.read_integer(header, "attempt")
        require(attempt <= self.plan.settings.max_retries, "too many attempts")
        require(not fields.keys() & {"plan", "state"}, "a plan or state in a sum")
        boxes: dict[int, bytes] = {}
        if vector is None:
            require("release_round" not in header, "no release")
            state, boxes = self._after_roster(index, attempt, fields)
        else:
            require("roster" not in fields, "a release and a roster")
            state = self._after_release(header, fields, vector)
            following = (state.pair[0] + 1, state.pair[1])
            require((index, attempt) == following, "out of order")
            state = replace(state, pair=following)
        is_newest = self.ledger.newest(self.run) == self.state.pair
        require(is_newest, "not the state that the ledger tells of", "BudgetError")
        words = self._masked(state)
        reply = written(status="ok", round=index, attempt=attempt)
        reply["tag"] = self._tag(state, *state.pair)
        if boxes:
            reply["boxes"] = wire.write_boxes(boxes)
        pair = {"round": index, "attempt": attempt}
        self.ledger.charge(run=self.run, **pair, price=self.price)
        self.state = state
        return reply, words

    def _finish(self, header: Fields, fields: Fields, vector: np.ndarray) -> Reply:
        state = self._after_release(header, fields, vector)
        last, attempt = state.pair
        require(last == len(self.plan.rounds), "not the last round")
        low, high = np.array(self.plan.settings.bounds)
        self.centroids = low + (high - low) * (state.arrays["centroids"] + 1) / 2
        self._end()
        tag = self._tag(state, last + 1, attempt)
        return written(status="ok") | {"tag": tag}, None

    # -- from state to state -----------------------------------------------------------

    def _after_roster(
        self, index: int, attempt: int, fields: Fields
    ) -> tuple[State, dict[int, bytes]]:
        """A new attempt, and the boxes of its group key."""
        last_index, last_attempt = self.state.pair
        require(index == last_index and attempt > last_attempt, "out of order")
        require("boxes" not in fields, "boxes of no attempt")
        blob = wire.read_blob(fields, "roster")
        members = wire.read_ascending(blob, 32)
        credentials = wire.read_blob(fields, "credentials")
        n_credentials = len(wire.read_ascending(credentials, 128))
        require(n_credentials <= len(members), "more credentials than members")
        self._check_members(members)
        roster = crypto.digest("roster", attempt, blob)
        order = crypto.hashed_order(roster, members)
        is_blind = self.plan.settings.trust == "oblivious"
        state = State(
            self.state.private_key,
            self.state.arrays,
            (index, attempt),
            members,
            roster,
            crypto.digest("transcript", self.plan_digest, roster),
            order,
            self._pair_keys(members),
            order[: self.plan.max_silent + 2] if is_blind else [],
            {},
            self.state.tag_key,
        )
        if self.node not in state.authors:
            return state if is_blind else self._with_group_keys(state, {}), {}
        group_key, boxes = self.entropy(32), {}
        for peer, key in state.pair_keys.items():
            context = self._context(state, self.node, peer)
            boxes[peer] = crypto.seal(key, group_key, context, self.entropy(12))
        return replace(state, group_keys={self.node: group_key}), boxes

    def _check_members(self, members: dict[int, bytes]) -> None:
        own = crypto.public_key(self.state.private_key)
        fewest = max(self.min_clients, fewest_members(self.plan))
        is_planned = fewest <= len(members) <= self.plan.n_clients
        require(is_planned, "too few or too many members", "CohortError")
        require(members.get(self.node) == own, "not this node's key", "CohortError")
        n_keys = len(set(members.values()))
        require(n_keys == len(members), "a key twice", "CohortError")
        before = self.state.members.items()
        require(not before or members.items() < before, "not fewer", "CohortError")

    def _pair_keys(self, members: dict[int, bytes]) -> dict[int, bytes]:
        private = self.state.private_key
        return {
            peer: crypto.pair_key(private, public, self.run, self.node, peer)
            for peer, public in members.items()
            if peer != self.node
        }

    def _context(self, state: State, author: int, reader: int) -> bytes:
        scope = (self.run, state.pair[1], author, reader)
        return crypto.digest("box", *scope, state.roster)

    def _with_group_keys(self, state: State, opened: dict[int, bytes]) -> State:
        keys = state.group_keys | opened
        secret = b"".join(keys[author] for author in sorted(keys))
        secret = secret or self.plan_digest
        tag_key = crypto.derive(secret, "tag", self.run, state.roster)
        return replace(state, group_keys=keys, tag_key=tag_key)

    def _after_release(
        self, header: Fields, fields: Fields, vector: np.ndarray
    ) -> State:
        """The state with boxes opened and a sum read."""
        state = self.state
        names = ("release_round", "release_attempt")
        released = tuple(wire.read_integer(header, name) for name in names)
        require(released == state.pair, "another release")
        boxes = wire.read_boxes(wire.read_blob(fields, "boxes"))
        due = set(state.authors) - set(state.group_keys)
        require(set(boxes) == due, "not the boxes that are due")
        if due:
            opened = {}
            for author, box in boxes.items():
                context = self._context(state, author, self.node)
                opened[author] = crypto.unseal(state.pair_keys[author], box, context)
            state = self._with_group_keys(state, opened)
        words = vector
        for author, key in state.group_keys.items():
            words = words - state.stream(key, "blind", self.run, author)
        arrays = algorithm.step(self.plan, released[0], state.arrays, words.view("<i8"))
        return replace(state, arrays=arrays)

    def _masked(self, state: State) -> np.ndarray:
        """The own statistic under noise and masks."""
        plan, pair = self.plan, state.pair
        words = algorithm.statistic(plan, pair[0], state.arrays, self.rows)
        if plan.settings.trust == "distributed":
            words += own_noise(plan, *pair, self.node, len(state.members))
        words = words.view("<u8")
        for peer in crypto.neighbours(state.order, self.node, plan.max_silent):
            mask = state.stream(state.pair_keys[peer], "mask")
            words = words + mask if peer > self.node else words - mask
        if self.node in state.authors:
            key = state.group_keys[self.node]
            words = words + state.stream(key, "blind", self.run, self.node)
        return words

    def _tag(self, state: State, index: int, attempt: int) -> bytes:
        if not state.tag_key:
            return b""
        of_state = algorithm.state_digest(state.arrays)
        return crypto.tag(state.tag_key, self.run, index, attempt, of_state)


def written(**header: Any) -> Fields:
    """A reply's fields."""
    return {"header": json.dumps(header)}
