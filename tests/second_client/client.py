"""The states of a client, and what it answers to each request."""

from __future__ import annotations

import hashlib
import json
import math
import os
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from second_client import crypto, fastlloyd
from second_client.crypto import derive, digest, stream
from second_client.fastlloyd import Plan
from second_client.wire import (
    LONGEST_ROSTER,
    Fields,
    Members,
    Refusal,
    blob,
    integer,
    is_whole,
    parse_boxes,
    parse_header,
    parse_roster,
    require,
    require_credentials,
    to_grid,
    waiting_time,
    write_boxes,
)

AttemptId = tuple[int, int]
LEAST_WAIT = 10.0
PACKAGE = "1.0.0"


@dataclass
class Ledger:
    """What was released, in a file that is flushed before an answer is sent."""

    path: Path

    def entries(self) -> list[dict[str, Any]]:
        """All releases, of all runs."""
        if not self.path.exists():
            return []
        return [json.loads(line) for line in self.path.read_text().splitlines()]

    def pairs(self, run_id: int) -> set[AttemptId]:
        """(round, attempt) of a run's releases."""
        entries = [entry for entry in self.entries() if entry["run"] == run_id]
        return {(entry["round"], entry["attempt"]) for entry in entries}

    def charge(self, run_id: int, pair: AttemptId, epsilon: float) -> None:
        """Write one down."""
        round_index, attempt = pair
        entry = {"run": run_id, "round": round_index, "attempt": attempt}
        with self.path.open("a") as file:
            file.write(json.dumps(entry | {"epsilon": epsilon}) + "\n")
            file.flush()
            os.fsync(file.fileno())


@dataclass(frozen=True)
class State:
    """All that is remembered of a run; replaced as a whole."""

    phase: str = "new"
    plan: Plan | None = None
    private: bytes = field(default=b"", repr=False)
    pair: AttemptId = (-(2**31), -1)
    answered: frozenset[AttemptId] = frozenset()
    members: Members = field(default_factory=dict)
    roster_digest: bytes = b""
    group_key: bytes = field(default=b"", repr=False)
    group_keys: Mapping[int, bytes] | None = field(default=None, repr=False)
    tag_key: bytes = field(default=b"", repr=False)
    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)

    @property
    def agreed(self) -> Plan:
        """The plan, once there is one."""
        if self.plan is None:
            raise Refusal("the run is unknown to this client.")
        return self.plan


class SecondClient:
    """One party of one run: its rows, its ledger, its limits."""

    def __init__(
        self,
        run_id: int,
        node_id: int,
        rows: np.ndarray,
        ledger: Ledger,
        *,
        min_cohort: int = 2,
        most_epsilon: float = math.inf,
        entropy: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self.run_id = run_id
        self.node_id = node_id
        self.rows = np.asarray(rows, dtype=np.float64)
        self.ledger = ledger
        self.min_cohort = min_cohort
        self.most_epsilon = most_epsilon
        self.entropy = entropy
        self.state = State()

    def answer(
        self, fields: Fields, vector: np.ndarray | None, age: float = 0.0
    ) -> tuple[dict[str, Any], np.ndarray | None]:
        """Answer one message, whatever it is; `age` in seconds."""
        try:
            return self._answer(fields, vector, age)
        except Refusal as error:
            sentence, code, status = str(error), error.code, "refused"
        except Exception:
            sentence = "this client could not answer."
            code, status = "InternalError", "failed"
        entries = {"status": status, "code": code, "sentence": sentence}
        return {"header": json.dumps(entries)}, None

    def _answer(
        self, fields: Fields, vector: np.ndarray | None, age: float
    ) -> tuple[dict[str, Any], np.ndarray | None]:
        header = parse_header(fields)
        stage = header.get("stage")
        require(header.get("run") in (None, self.run_id), "a message of another run.")
        wait = waiting_time(fields)
        if stage == "stop":
            self.state = replace(State(), phase="finished")
            return {"header": json.dumps({"status": "ok"})}, None
        is_late = stage != "finish" and age > max(wait, LEAST_WAIT)
        require(not is_late, "the request is late.")
        if stage == "keys":
            return self._agree(header, fields)
        require(stage in ("sum", "finish"), "an unknown stage.")
        require(self.state.phase != "new", "the run is unknown to this client.")
        require(not blob(fields, "plan"), "a second plan.")
        require(not blob(fields, "state"), "a state that clients compute themselves.")
        if stage == "sum":
            return self._sum(header, fields, vector)
        return self._finish(header, fields, vector)

    def _agree(
        self, header: Mapping[str, Any], fields: Fields
    ) -> tuple[dict[str, Any], None]:
        """The plan comes; a fresh public key goes."""
        require(self.state.phase == "new", "a second plan.")
        versions = [header.get("protocol"), header.get("plan_format")]
        is_same = versions == [2, 7] and all(map(is_whole, versions))
        require(is_same, "another version.", "VersionError")
        content = blob(fields, "plan")
        width = self.rows.shape[1]
        try:
            plan = fastlloyd.read_plan(content, self.run_id, width)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise Refusal("the plan is malformed.") from error
        is_cheap = plan.worst_epsilon <= self.most_epsilon
        require(is_cheap, "the plan costs too much.", "RefusalError")
        require(not self.ledger.pairs(self.run_id), "the ledger has this run.")
        private = self.entropy(32)
        start = fastlloyd.packing(plan.n_clusters, plan.n_features, plan.seed)
        arrays = {"centroids": start, "counts": np.zeros(plan.n_clusters)}
        self.state = State("keyed", plan, private, arrays=arrays)
        package = header.get("package", PACKAGE)
        entries = {"status": "ok", "protocol": 2, "plan_format": 7}
        entries |= {"package": package, "n_features": width}
        public = crypto.public_key(private)
        reply = {"header": json.dumps(entries), "public_key": public}
        return reply | {"plan_digest": plan.digest}, None

    # -- one vector

    def _sum(
        self, header: Mapping[str, Any], fields: Fields, vector: np.ndarray | None
    ) -> tuple[dict[str, Any], np.ndarray]:
        state, plan = self.state, self.state.agreed
        pair = (integer(header, "round"), integer(header, "attempt"))
        require(pair[1] <= plan.max_retries, "an attempt that is not in the plan.")
        boxes = parse_boxes(blob(fields, "boxes"))
        release = None
        if vector is not None:
            release = _release_pair(header)
        if self._is_next(pair, release):
            require("roster" not in fields, "a second roster in one attempt.")
            state = self._with_boxes(state, boxes)
            state = self._advanced(state, vector)
        else:
            require(self._is_opening(pair, release), "replayed or out of order.")
            require(not boxes, "boxes came with a new roster.")
            state = self._in_attempt(fields, pair)
        require(1 <= pair[0] <= plan.last_round, "no such round.")
        recorded = self.ledger.pairs(self.run_id)
        require(recorded == state.answered, "ledger and memory differ.")
        state = replace(state, phase="summing", pair=pair)
        words = to_grid(self._statistic(state, pair[0]))
        if plan.shares_noise:
            words = words + self._noise_share(state)
        words = words + self._masks(state, len(words))
        reply_boxes = self._sealed(state)
        tag = self._tag(state, pair)
        self.ledger.charge(self.run_id, pair, plan.worst_epsilon)
        self.state = replace(state, answered=state.answered | {pair})
        entries = {"status": "ok", "round": pair[0], "attempt": pair[1]}
        reply: dict[str, Any] = {"header": json.dumps(entries), "tag": tag}
        if reply_boxes:
            reply["boxes"] = write_boxes(reply_boxes)
        return reply, words

    def _is_next(self, pair: AttemptId, release: AttemptId | None) -> bool:
        round_index, attempt = self.state.pair
        follows = pair == (round_index + 1, attempt) and release == self.state.pair
        return self.state.phase == "summing" and follows

    def _is_opening(self, pair: AttemptId, release: AttemptId | None) -> bool:
        """Whether a request may begin an attempt: the first one, or a retry."""
        if release is not None:
            return False
        if self.state.phase == "keyed":
            return pair[0] == 1 and pair[1] >= 0
        round_index, attempt = self.state.pair
        is_retry = pair[0] == round_index and pair[1] > attempt
        return self.state.phase == "summing" and is_retry

    def _in_attempt(self, fields: Fields, pair: AttemptId) -> State:
        """Enter an attempt, with its roster."""
        state, plan = self.state, self.state.agreed
        require("roster" in fields, "a new attempt without a roster.")
        members = parse_roster(blob(fields, "roster", LONGEST_ROSTER))
        require_credentials(blob(fields, "credentials"), len(members))
        listed = members.get(self.node_id)
        is_listed = listed == crypto.public_key(state.private)
        require(is_listed, "the roster lacks this node's key.")
        least = max(self.min_cohort, plan.min_cohort)
        require(len(members) >= least, "the roster is below the minimum cohort.")
        require(len(members) <= plan.n_clients, "the roster is larger than the plan.")
        if state.members:
            is_part = members.items() < state.members.items()
            require(is_part, "a later roster is no smaller part of the one before.")
        # Derived now, so that a key of low order is refused before anything is drawn.
        for peer in self._neighbours(members, pair[1]):
            self._pair_key(members, peer)
        entered = replace(
            state,
            members=members,
            roster_digest=crypto.roster_digest(pair[1], members),
            group_key=b"",
            group_keys=None,
        )
        if not plan.authored:
            return self._with_tag_key(entered, {})
        if self.node_id in self._authors(entered):
            entered = replace(entered, group_key=self.entropy(32))
        return entered

    def _neighbours(self, members: Members, attempt: int) -> list[int]:
        of_roster = crypto.roster_digest(attempt, members)
        order = crypto.hashed_order(of_roster, members)
        max_silent = self.state.agreed.max_silent
        return crypto.neighbours(order, self.node_id, max_silent)

    def _authors(self, state: State) -> list[int]:
        order = crypto.hashed_order(state.roster_digest, state.members)
        return order[: 2 + state.agreed.max_silent]

    def _pair_key(self, members: Members, peer: int) -> bytes:
        private, peer_key = self.state.private, members[peer]
        return crypto.pair_key(private, peer_key, self.run_id, self.node_id, peer)

    def _context(self, state: State, author: int, recipient: int) -> bytes:
        _, attempt = state.pair
        scope = (self.run_id, attempt, author, recipient, state.roster_digest)
        return digest("box", *scope)

    def _with_boxes(self, state: State, boxes: Mapping[int, bytes]) -> State:
        """Open what is due: the authors' boxes, once an attempt."""
        if not state.agreed.authored or state.group_keys is not None:
            require(not boxes, "boxes came although none are due.")
            return state
        others = sorted(set(self._authors(state)) - {self.node_id})
        require(sorted(boxes) == others, "boxes are not those of the authors.")
        group_keys = {}
        for author in others:
            pair_key = self._pair_key(state.members, author)
            context = self._context(state, author, self.node_id)
            group_keys[author] = crypto.unseal(pair_key, boxes[author], context)
        if state.group_key:
            group_keys[self.node_id] = state.group_key
        return self._with_tag_key(state, group_keys)

    def _with_tag_key(self, state: State, group_keys: dict[int, bytes]) -> State:
        secret = b"".join([key for _, key in sorted(group_keys.items())])
        if not state.agreed.authored:
            secret = state.agreed.digest
        tag_key = derive(secret, "tag", self.run_id, state.roster_digest)
        return replace(state, group_keys=group_keys, tag_key=tag_key)

    def _sealed(self, state: State) -> dict[int, bytes]:
        """An author's key for everybody else, in its first reply of an attempt."""
        if not state.group_key or state.group_keys is not None:
            return {}
        boxes = {}
        for peer in sorted(set(state.members) - {self.node_id}):
            pair_key = self._pair_key(state.members, peer)
            context = self._context(state, self.node_id, peer)
            nonce = self.entropy(crypto.NONCE_BYTES)
            boxes[peer] = crypto.seal(pair_key, state.group_key, context, nonce)
        return boxes

    def _statistic(self, state: State, round_index: int) -> np.ndarray:
        points = fastlloyd.in_box(state.agreed, self.rows)
        radius = state.agreed.radii[round_index - 1]
        return fastlloyd.statistic(points, state.arrays["centroids"], radius)

    def _transcript(self, state: State) -> bytes:
        return digest("transcript", state.agreed.digest, state.roster_digest)

    def _masks(self, state: State, length: int) -> np.ndarray:
        """Masks with all neighbours, and an author's own stream."""
        transcript = self._transcript(state)
        total = np.zeros(length, dtype=np.uint64)
        for peer in self._neighbours(state.members, state.pair[1]):
            key = derive(self._pair_key(state.members, peer), "mask", transcript)
            words = stream(key, *state.pair, length)
            total = total + words if self.node_id < peer else total - words
        if state.group_key:
            total = total + self._blinding(state, self.node_id, state.group_key, length)
        return total

    def _blinding(
        self, state: State, author: int, group_key: bytes, length: int
    ) -> np.ndarray:
        scope = (self.run_id, author, self._transcript(state))
        return stream(derive(group_key, "blind", *scope), *state.pair, length)

    def _tag(self, state: State, pair: AttemptId) -> bytes:
        if not state.tag_key:
            return b""
        covered = fastlloyd.state_digest(dict(state.arrays))
        return crypto.tag(state.tag_key, self.run_id, *pair, covered)

    # -- noise

    def _noise_share(self, state: State) -> np.ndarray:
        plan = state.agreed
        factor = _least_factor(plan.n_honest(len(state.members)))
        index = state.pair[0] - 1
        sums, counts = plan.multipliers[index]
        sizes = (plan.n_clusters * plan.n_features, plan.n_clusters)
        scales = (
            _product_up(sums, plan.radii[index], factor, 2.0**16),
            _product_up(counts, 1.0, factor, 2.0**16),
        )
        if plan.is_seeded:
            text = repr((plan.seed, "client", self.node_id, *state.pair))
            seed = hashlib.sha256(text.encode()).digest()[:8]
            generator = np.random.default_rng(int.from_bytes(seed, "little"))
            parts = [
                np.rint(generator.normal(0.0, scale, size)).astype(np.int64)
                for scale, size in zip(scales, sizes, strict=True)
            ]
            return np.concatenate(parts).view(np.uint64)
        values = [
            discrete_gaussian(scale)
            for scale, size in zip(scales, sizes, strict=True)
            for _ in range(size)
        ]
        return np.array(values, dtype=np.int64).view(np.uint64)

    # -- releases, and the end

    def _advanced(self, state: State, vector: np.ndarray | None) -> State:
        """Take the release of the last answered round in."""
        plan = state.agreed
        is_whole_release = vector is not None and vector.shape == (plan.length,)
        require(is_whole_release, "the release has another length.")
        words = np.array(vector, dtype=np.uint64)
        if plan.authored:
            for author, key in (state.group_keys or {}).items():
                words = words - self._blinding(state, author, key, len(words))
        arrays = fastlloyd.advance(plan, state.pair[0], dict(state.arrays), words)
        return replace(state, arrays=arrays)

    def _finish(
        self, header: Mapping[str, Any], fields: Fields, vector: np.ndarray | None
    ) -> tuple[dict[str, Any], None]:
        state = self.state
        require(vector is not None, "the last release is missing.")
        is_due = state.phase == "summing" and _release_pair(header) == state.pair
        require(is_due, "the release is late, replayed or of another run.")
        require(state.pair[0] == state.agreed.last_round, "the run ends too early.")
        state = self._with_boxes(state, parse_boxes(blob(fields, "boxes")))
        state = self._advanced(state, vector)
        round_index, attempt = state.pair
        tag = self._tag(state, (round_index + 1, attempt))
        self.state = State("finished", state.agreed, arrays=state.arrays)
        return {"header": json.dumps({"status": "ok"}), "tag": tag}, None

    @property
    def centroids(self) -> np.ndarray:
        """The result in the units of the rows."""
        plan = self.state.agreed
        share = (self.state.arrays["centroids"] + 1.0) / 2.0
        return plan.lower + share * (plan.upper - plan.lower)


def _release_pair(header: Mapping[str, Any]) -> AttemptId:
    return integer(header, "release_round"), integer(header, "release_attempt")


def _least_factor(n_honest: int) -> float:
    """The least double whose square, times the honest, is at least 1."""
    factor = 1.0 / math.sqrt(n_honest)
    while n_honest * Fraction(factor) ** 2 < 1:
        factor = math.nextafter(factor, math.inf)
    return factor


def _product_up(*factors: float) -> float:
    """The least double that is not below the exact product."""
    exact = math.prod(map(Fraction, factors))
    product = float(exact)
    return product if Fraction(product) >= exact else math.nextafter(product, math.inf)


def discrete_gaussian(scale: float) -> int:
    """One exact discrete Gaussian (Canonne, Kamath and Steinke 2020, algorithm 3)."""
    variance = Fraction(scale) ** 2
    width = math.floor(scale) + 1
    while True:
        value = _discrete_laplace(width)
        distance = (abs(value) - variance / width) ** 2 / (2 * variance)
        if _happens(distance):
            return value


def _discrete_laplace(width: int) -> int:
    while True:
        rest = secrets.randbelow(width)
        if not _happens(Fraction(rest, width)):
            continue
        whole = 0
        while _happens(Fraction(1)):
            whole += 1
        value = rest + width * whole
        is_negative = secrets.randbelow(2) == 1
        if not (is_negative and value == 0):
            return -value if is_negative else value


def _happens(exponent: Fraction) -> bool:
    """A coin with a probability of exp(-exponent), exactly."""
    while exponent > 1:
        if not _happens(Fraction(1)):
            return False
        exponent -= 1
    count = 1
    while True:
        chance = exponent / count
        if secrets.randbelow(chance.denominator) >= chance.numerator:
            return count % 2 == 1
        count += 1
