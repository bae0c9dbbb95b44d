"""A client of the protocol: what it answers, and in which state."""

import hashlib
import json
import os
from dataclasses import dataclass, field, replace

import numpy as np
from cryptography.exceptions import InvalidTag

from second_client import algorithm, crypto, wire
from second_client.plan import fewest_members, highest_price, read_plan
from second_client.wire import Refusal, require

Pair = tuple[int, int]
MALFORMED = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
NOTHING = (1, -1)
"""The pair before the first attempt of the first round."""


class Ledger:
    """A file with one line of JSON for each vector that left."""

    def __init__(self, path):
        self.path = path
        self.path.touch()

    def entries(self):
        return [json.loads(line) for line in self.path.read_text().splitlines()]

    def pairs(self, run):
        entries = [entry for entry in self.entries() if entry["run"] == run]
        return {(entry["round"], entry["attempt"]) for entry in entries}

    def newest(self, run):
        """The last pair, which tells all: later pairs are greater."""
        return max(self.pairs(run), default=NOTHING)

    def charge(self, **entry):
        with self.path.open("a") as file:
            file.write(json.dumps(entry) + "\n")
            file.flush()
            os.fsync(file.fileno())


@dataclass(frozen=True)
class State:
    """What changes from request to request; from members on, of one attempt."""

    private_key: bytes
    arrays: algorithm.Arrays
    tag_key: bytes = b""
    pair: Pair = NOTHING
    members: dict[int, bytes] = field(default_factory=dict)
    roster: bytes = b""
    transcript: bytes = b""
    order: list[int] = field(default_factory=list)
    authors: list[int] = field(default_factory=list)
    pair_keys: dict[int, bytes] = field(default_factory=dict)
    group_keys: dict[int, bytes] = field(default_factory=dict)
    boxes: dict[int, bytes] = field(default_factory=dict)

    @property
    def n_words(self):
        return self.arrays["centroids"].size + self.arrays["counts"].size

    def stream(self, secret, purpose, *scope):
        """Words that hide the vector of this pair."""
        key = crypto.derive(secret, purpose, *scope, self.transcript)
        return crypto.stream(key, *self.pair, self.n_words)


class SecondClient:
    """A node's side of one run."""

    min_clients = 3
    most_epsilon = 50.0

    def __init__(self, run, node, rows, ledger, entropy=os.urandom):
        self.run, self.node, self.rows = run, node, rows
        self.ledger, self.entropy = ledger, entropy
        self.plan = self.state = self.centroids = None

    def answer(self, fields, vector, age):
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

    def _answer(self, fields, vector, age):
        header = wire.read_json(fields["header"], 10_000)
        run = header.get("run", self.run)
        require(type(run) is int and run == self.run, "another run")
        wait = fields.get("wait", 1e9)
        is_time = type(wait) in (int, float) and 0 < wait < np.inf
        require(is_time, "the waiting time is no time")
        stage = header["stage"]
        is_late = age > max(10, wait) and stage not in ("finish", "stop")
        require(not is_late, "the request comes too late")
        if stage == "keys":
            return self._keys(header, fields)
        if stage == "stop":
            self.state = None
            return written(status="ok"), None
        require(self.state is not None, "no run goes on")
        if stage == "finish":
            return self._finish(header, fields, vector)
        require(stage == "sum", "an unknown stage")
        return self._sum(header, fields, vector)

    def _keys(self, header, fields):
        require(self.plan is None, "a plan was agreed on")
        versions = [header.get("protocol"), header.get("plan_format")]
        require(json.dumps(versions) == "[2, 8]", "another version", "VersionError")
        blob, n_features = wire.read_blob(fields, "plan"), self.rows.shape[1]
        plan = read_plan(blob, self.run, n_features)
        price = highest_price(plan, self.most_epsilon)
        is_new = self.ledger.newest(self.run) == NOTHING
        require(is_new, "the run was begun before")
        state = State(self.entropy(32), algorithm.start(plan))
        self.plan, self.price, self.state = plan, price, state
        self.plan_digest = hashlib.sha256(blob).digest()
        reply = {"status": "ok", "protocol": 2, "plan_format": 8}
        reply |= {"package": header.get("package"), "n_features": n_features}
        public = crypto.public_key(state.private_key)
        blobs = {"public_key": public, "plan_digest": self.plan_digest}
        return written(**reply) | blobs, None

    def _sum(self, header, fields, vector):
        pair = wire.read_pair(header)
        require(pair[1] <= self.plan.settings.max_retries, "too many attempts")
        require(not {"plan", "state"} & fields.keys(), "a plan or a state in a sum")
        if vector is None:
            require("boxes" not in fields, "boxes without a release")
            state = self._after_roster(pair, fields)
        else:
            require("roster" not in fields, "a release and a roster")
            state = self._after_release(header, fields, vector)
            index, attempt = state.pair
            require(pair == (index + 1, attempt), "out of order")
            require(index < len(self.plan.rounds), "not a planned round")
            state = replace(state, pair=pair, boxes={})
        is_newest = self.ledger.newest(self.run) == self.state.pair
        require(is_newest, "not the state that the ledger tells of")
        words = self._masked(state)
        position = {"round": pair[0], "attempt": pair[1]}
        reply = written(status="ok", **position)
        reply["tag"] = self._tag(state, *pair)
        if state.boxes:
            reply["boxes"] = wire.write_boxes(state.boxes)
        self.ledger.charge(run=self.run, **position, price=self.price)
        self.state = state
        return reply, words

    def _finish(self, header, fields, vector):
        state = self._after_release(header, fields, vector)
        last, attempt = state.pair
        require(last == len(self.plan.rounds), "not the last round")
        low, high = np.array(self.plan.settings.bounds)
        shares = (state.arrays["centroids"] / algorithm.GRID + 1) / 2
        self.centroids = low + (high - low) * shares
        self.state = None
        return written(status="ok") | {"tag": self._tag(state, last + 1, attempt)}, None

    def _after_roster(self, pair, fields):
        """The state of a new attempt."""
        index, attempt = self.state.pair
        require(pair[0] == index and pair[1] > attempt, "out of order")
        blob = wire.read_blob(fields, "roster")
        members = wire.read_table(blob, 32)
        credentials = wire.read_table(wire.read_blob(fields, "credentials"), 128)
        require(len(credentials) <= len(members), "more credentials than members")
        self._check_members(members)
        roster = crypto.digest("roster", pair[1], blob)
        order = crypto.hashed_order(roster, members)
        is_blind = self.plan.settings.trust == "oblivious"
        state = replace(
            self.state,
            pair=pair,
            members=members,
            roster=roster,
            transcript=crypto.digest("transcript", self.plan_digest, roster),
            order=order,
            authors=order[: self.plan.max_silent + 2] if is_blind else [],
            pair_keys=self._pair_keys(members),
            group_keys={},
            boxes={},
        )
        if self.node not in state.authors:
            return state if is_blind else self._with_group_keys(state, {})
        group_key, boxes = self.entropy(32), {}
        for peer, key in state.pair_keys.items():
            context = self._context(state, self.node, peer)
            boxes[peer] = crypto.seal(key, group_key, context, self.entropy(12))
        return replace(state, group_keys={self.node: group_key}, boxes=boxes)

    def _check_members(self, members):
        public = crypto.public_key(self.state.private_key)
        fewest = max(self.min_clients, fewest_members(self.plan))
        is_planned = fewest <= len(members) <= self.plan.n_clients
        require(is_planned, "too few or too many members")
        require(members.get(self.node) == public, "not this node's key")
        n_keys = len(set(members.values()))
        require(n_keys == len(members), "a key twice")
        before = self.state.members.items()
        require(not before or members.items() < before, "not fewer")

    def _pair_keys(self, members):
        keys = {}
        for peer, public in members.items():
            if peer != self.node:
                pair = (self.state.private_key, public)
                keys[peer] = crypto.pair_key(*pair, self.run, self.node, peer)
        return keys

    def _context(self, state, author, reader):
        scope = (self.run, state.pair[1], author, reader)
        return crypto.digest("box", *scope, state.roster)

    def _with_group_keys(self, state, opened):
        keys = state.group_keys | opened
        secret = b"".join(keys[author] for author in sorted(keys))
        secret = secret or self.plan_digest
        tag_key = crypto.derive(secret, "tag", self.run, state.roster)
        return replace(state, group_keys=keys, tag_key=tag_key)

    def _after_release(self, header, fields, vector):
        """The state with boxes opened and a sum read."""
        state = self.state
        released = wire.read_pair(header, "release_")
        require(released == state.pair, "another release")
        require(len(vector) == state.n_words, "a release of another length")
        boxes = wire.read_boxes(wire.read_blob(fields, "boxes"))
        due = set(state.authors) - set(state.group_keys)
        require(set(boxes) == due, "not the boxes that are due")
        opened = {}
        for author, box in boxes.items():
            context = self._context(state, author, self.node)
            opened[author] = crypto.unseal(state.pair_keys[author], box, context)
        if opened:
            state = self._with_group_keys(state, opened)
        for author, key in state.group_keys.items():
            vector = vector - state.stream(key, "blind", self.run, author)
        words = vector.view("<i8")
        arrays = algorithm.step(self.plan, released[0], state.arrays, words)
        return replace(state, arrays=arrays)

    def _masked(self, state):
        """The own statistic under noise and masks."""
        plan, pair = self.plan, state.pair
        words = algorithm.statistic(plan, pair[0], state.arrays, self.rows)
        if plan.settings.trust == "distributed":
            words += algorithm.noise_share(plan, pair, self.node, len(state.members))
        words = words.view("<u8")
        for peer in crypto.neighbours(state.order, self.node, plan.max_silent):
            mask = state.stream(state.pair_keys[peer], "mask")
            words = words + mask if peer > self.node else words - mask
        if self.node in state.authors:
            key = state.group_keys[self.node]
            words = words + state.stream(key, "blind", self.run, self.node)
        return words

    def _tag(self, state, index, attempt):
        digest = algorithm.state_digest(state.arrays)
        scope = (self.run, index, attempt, digest)
        return crypto.tag(state.tag_key, *scope) if state.tag_key else b""


def written(**header):
    return {"header": json.dumps(header)}
