"""A client of the protocol: what it answers, and in which state."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from cryptography.exceptions import InvalidTag

from second_client import algorithm, crypto, plan as plans, wire
from second_client.algorithm import discrete_gaussian
from second_client.wire import Fields, Refusal, require

Pair = tuple[int, int]
Reply = tuple[Fields, np.ndarray | None]
VERSIONS = {"protocol": 2, "plan_format": 7}
LAST_STAGES = ("finish", "stop")
UNREADABLE = (ArithmeticError, LookupError, TypeError, ValueError, InvalidTag)
BEFORE_ANY = (1, -1)


class Ledger:
    """A file of everything that was answered."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def entries(self) -> list[Fields]:
        """One of each vector that left."""
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        return [json.loads(line) for line in lines]

    def pairs(self, run: int) -> set[Pair]:
        """Rounds and attempts of a run."""
        mine = [entry for entry in self.entries() if entry["run"] == run]
        return {(entry["round"], entry["attempt"]) for entry in mine}

    def charge(self, **entry: Any) -> None:
        """Write an entry to the disk."""
        with self.path.open("a") as file:
            file.write(json.dumps(entry) + "\n")
            file.flush()
            os.fsync(file.fileno())


@dataclass(frozen=True)
class State:
    """Everything that the client remembers of a run."""

    plan: SimpleNamespace
    plan_digest: bytes
    private_key: bytes
    arrays: algorithm.Arrays
    pair: Pair = BEFORE_ANY
    pairs: frozenset[Pair] = frozenset()
    members: dict[int, bytes] = field(default_factory=dict)
    roster_digest: bytes = b""
    pair_keys: dict[int, bytes] = field(default_factory=dict)
    order: list[int] = field(default_factory=list)
    group_keys: dict[int, bytes] = field(default_factory=dict)
    tag_key: bytes = b""

    @property
    def authors(self) -> list[int]:
        """Who blinds the sum."""
        is_blind = self.plan.config.settings.trust == "oblivious"
        return sorted(self.order[: self.plan.max_silent + 2]) if is_blind else []


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
        self.run, self.node, self.ledger = run, node, ledger
        self.rows, self.entropy = rows, entropy
        self.state: State | None = None
        self.plan = None
        self.is_finished = False
        self.centroids: np.ndarray | None = None

    def answer(self, fields: Fields, vector: np.ndarray | None, age: float) -> Reply:
        """A reply's fields and vector."""
        try:
            header, blobs, words = self._answer(fields, vector, age)
        except Refusal as refusal:
            return refused("refused", refusal.code, str(refusal)), None
        except UNREADABLE:
            return refused("refused", "ProtocolError", "the request is malformed"), None
        except OSError:
            return refused("failed", "BudgetError", "the ledger cannot be used"), None
        return {"header": json.dumps({"status": "ok"} | header)} | blobs, words

    def _answer(self, fields: Fields, vector: np.ndarray | None, age: float) -> Any:
        header = wire.read_json(fields.get("header"), longest=10_000)
        stage, run, wait = (
            header.get("stage"),
            header.get("run", self.run),
            fields.get("wait", np.inf),
        )
        require(type(run) is int and run == self.run, "another run")
        if "wait" in fields:
            is_time = type(wait) in (int, float) and 0 < wait < np.inf
            require(is_time, "the waiting time is no time")
            is_late = age > max(10.0, wait) and stage not in LAST_STAGES
            require(not is_late, "the request comes too late")
        if stage == "stop":
            self.state, self.is_finished = None, True
            return {}, {}, None
        require(not self.is_finished, "the run is over")
        if stage == "keys":
            return self._keys(header, fields)
        require(self.state is not None, "no plan was agreed on")
        if stage == "finish":
            return self._finish(header, fields, vector)
        require(stage == "sum", "an unknown stage")
        return self._sum(header, fields, vector)

    def _keys(self, header, fields):
        require(self.state is None, "a plan was agreed on before")
        for name, version in VERSIONS.items():
            theirs = header.get(name)
            fits = type(theirs) is int and theirs == version
            require(fits, f"another version of {name}", "VersionError")
        blob = wire.read_blob(fields, "plan", 2**26)
        n_features = self.rows.shape[1]
        plan = plans.read_plan(blob, self.run, n_features)
        plans.check_price(plan, self.most_epsilon)
        require(
            not self.ledger.pairs(self.run), "the run was begun before", "BudgetError"
        )
        private, digest = self.entropy(32), crypto.sha256(blob)
        self.state = State(plan, digest, private, algorithm.start(plan))
        self.plan = plan
        reply = VERSIONS | {"package": header.get("package"), "n_features": n_features}
        public = crypto.public_key(private)
        return reply, {"public_key": public, "plan_digest": digest}, None

    def _sum(self, header, fields, vector):
        pair = wire.read_integer(header, "round"), wire.read_integer(header, "attempt")
        require(not fields.keys() & {"plan", "state"}, "a sum has no plan and no state")
        settings = self.state.plan.config.settings
        require(pair[1] <= settings.max_retries, "too many attempts")
        if vector is None:
            state, boxes = self._with_roster(pair, fields)
        else:
            require("roster" not in fields, "a roster comes with no release")
            state, boxes = self._with_release(header, fields, vector), {}
            require(pair == (state.pair[0] + 1, state.pair[1]), "out of order")
            require(pair[0] <= len(state.plan.rounds), "not a planned round")
        is_whole = self.ledger.pairs(self.run) == state.pairs
        require(is_whole, "the state is not the last one", "BudgetError")
        state = replace(state, pair=pair, pairs=state.pairs | {pair})
        words = self._masked(state)
        self.ledger.charge(
            run=self.run,
            round=pair[0],
            attempt=pair[1],
            price=plans.highest_price(state.plan),
        )
        self.state = state
        blobs = {"tag": self._tag(state, *pair)}
        if boxes:
            blobs["boxes"] = wire.write_boxes(boxes)
        return {"round": pair[0], "attempt": pair[1]}, blobs, words

    def _finish(self, header, fields, vector):
        state = self._with_release(header, fields, vector)
        last, attempt = state.pair
        require(last == len(state.plan.rounds), "not the last round")
        low, high = np.array(state.plan.config.settings.bounds)
        self.centroids = low + (high - low) * (state.arrays["centroids"] + 1) / 2
        self.state, self.is_finished = None, True
        return {}, {"tag": self._tag(state, last + 1, attempt)}, None

    def _with_roster(self, pair, fields):
        """The state in a new attempt, and the boxes that go out."""
        state = self.state
        index, attempt = state.pair
        require(pair[0] == index and pair[1] > attempt, "out of order")
        require("boxes" not in fields, "boxes come with a release")
        blob = wire.read_blob(fields, "roster", wire.LONGEST_ROSTER)
        members = wire.read_table(blob, 32)
        credentials = wire.read_table(wire.read_blob(fields, "credentials"), 128)
        require(len(credentials) <= len(members), "more credentials than members")
        self._check_members(members)
        attempt = pair[1]
        roster_digest = crypto.digest("roster", attempt, blob)
        order = crypto.hashed_order(roster_digest, members)
        pair_keys = {
            peer: crypto.pair_key(state.private_key, public, self.run, self.node, peer)
            for peer, public in members.items()
            if peer != self.node
        }
        state = replace(
            state,
            pair=pair,
            members=members,
            order=order,
            roster_digest=roster_digest,
            pair_keys=pair_keys,
            group_keys={},
        )
        if not state.authors:
            return self._with_group_keys(state, {}), {}
        if self.node not in state.authors:
            return state, {}
        group_key = self.entropy(32)
        boxes = {}
        for peer, key in pair_keys.items():
            context = self._context(state, self.node, peer)
            nonce = self.entropy(12)
            boxes[peer] = crypto.seal(key, group_key, context, nonce)
        return replace(state, group_keys={self.node: group_key}), boxes

    def _check_members(self, members):
        state = self.state
        own = crypto.public_key(state.private_key)
        require(members.get(self.node) == own, "not this node's key", "CohortError")
        require(
            len(set(members.values())) == len(members), "a key twice", "CohortError"
        )
        fewest = max(self.min_clients, plans.fewest_members(state.plan))
        is_planned = fewest <= len(members) <= state.plan.n_clients
        require(is_planned, "too few or too many", "CohortError")
        if state.members:
            is_smaller = members.items() < state.members.items()
            require(is_smaller, "no smaller roster", "CohortError")

    def _context(self, state, author, reader):
        attempt = state.pair[1]
        return crypto.digest(
            "box", self.run, attempt, author, reader, state.roster_digest
        )

    def _with_group_keys(self, state, opened):
        keys = state.group_keys | opened
        secret = b"".join(keys[node] for node in sorted(keys)) or state.plan_digest
        tag_key = crypto.derive(secret, "tag", self.run, state.roster_digest)
        return replace(state, group_keys=keys, tag_key=tag_key)

    def _with_release(self, header, fields, vector):
        """The state after a release."""
        state = self.state
        released = (
            wire.read_integer(header, "release_round"),
            wire.read_integer(header, "release_attempt"),
        )
        require(released == state.pair, "another release")
        require(vector is not None and len(vector) == n_words(state), "no release")
        boxes = wire.read_boxes(wire.read_blob(fields, "boxes"))
        due = set(state.authors) - set(state.group_keys)
        require(set(boxes) == due, "not the boxes that are due")
        if due:
            opened = {
                author: crypto.unseal(
                    state.pair_keys[author],
                    box,
                    self._context(state, author, self.node),
                )
                for author, box in boxes.items()
            }
            require(all(len(key) == 32 for key in opened.values()), "no group key")
            state = self._with_group_keys(state, opened)
        words = vector.copy()
        for author in state.authors:
            words -= self._blind(state, author)
        words = words.astype("<i8")
        arrays = algorithm.step(state.plan, state.pair[0] - 1, state.arrays, words)
        return replace(state, arrays=arrays)

    def _transcript(self, state):
        return crypto.digest("transcript", state.plan_digest, state.roster_digest)

    def _blind(self, state, author):
        scope = (self.run, author, self._transcript(state))
        key = crypto.derive(state.group_keys[author], "blind", *scope)
        return crypto.stream(key, *state.pair, n_words(state))

    def _masked(self, state):
        plan = state.plan
        settings = plan.config.settings
        rows = algorithm.grid_rows(self.rows, settings.bounds)
        radius = plan.rounds[state.pair[0] - 1].radius
        words = algorithm.statistic(rows, state.arrays["centroids"], radius)
        if settings.trust == "distributed":
            words += algorithm.own_noise(
                plan, state.pair, self.node, len(state.members)
            )
        words = words.astype("<u8")
        for peer in crypto.neighbours(state.order, self.node, plan.max_silent):
            key = crypto.derive(state.pair_keys[peer], "mask", self._transcript(state))
            mask = crypto.stream(key, *state.pair, len(words))
            words = words + mask if self.node < peer else words - mask
        if self.node in state.authors:
            words += self._blind(state, self.node)
        return words

    def _tag(self, state, index, attempt):
        if not state.tag_key:
            return b""
        digest = algorithm.state_digest(state.arrays)
        return crypto.tag(state.tag_key, self.run, index, attempt, digest)


def n_words(state):
    return state.arrays["centroids"].size + len(state.arrays["counts"])


def refused(status, code, sentence):
    return {
        "header": json.dumps({"status": status, "code": code, "sentence": sentence})
    }
