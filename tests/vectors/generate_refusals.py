"""Write refused_*.json: messages that every client must refuse, one file for each kind,
each made of one request of a conversation by a change with a reason.

Run ``python tests/vectors/generate_refusals.py`` after `generate_conversations.py`.
"""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from conversations import (
    CONVERSATIONS,
    KINDS,
    OTHERS,
    Entropy,
    Json,
    drawn_from,
    header_of,
    packed_boxes,
    read_json,
    stored_value,
    value_of,
    write_json,
)
from generate_conversations import CASES, LABEL

from flwr_dpkmeans.secagg import ciphers, keys
from flwr_dpkmeans.secagg.messages.packed_parts import unpack_boxes, unpack_roster
from flwr_dpkmeans.secagg.roster import Roster

CONVERSATION = {
    name: read_json(f"conversation_{name}") for name in CONVERSATIONS + OTHERS
}
PLACES = {
    "keys": ("oblivious", 0),
    "first_sum": ("oblivious", 1),
    "next_sum": ("oblivious", 2),
    "retry": ("oblivious", 3),
    "after_retry": ("oblivious", 4),
    "finish": ("oblivious", 5),
    "stop": ("oblivious", 5),
    "readable_next_sum": ("distributed", 2),
    "readable_retry": ("distributed", 3),
    "readable_finish": ("distributed", 5),
    "count": ("counted", 1),
    "final_plan": ("counted", 2),
    "server_state": ("server_points", 2),
    "server_state_again": ("server_points", 3),
    "server_result": ("server_points", 6),
    "share": ("recovered", 1),
    "shared_sum": ("recovered", 2),
    "unmask": ("recovered", 3),
    "unmasked_sum": ("recovered", 4),
    "unmasked_finish": ("recovered", 6),
}
"""By file, which request of which conversation its messages stand in the place of.

A blinded sum has more that gives a wrong release away than one that all may read.
"""
RUN = CONVERSATION["oblivious"]["run_id"]
NODE = CONVERSATION["oblivious"]["node_id"]
PEER = 4
LOW_ORDER = (
    bytes(32),
    (1).to_bytes(32, "little"),
    (2**255 - 20).to_bytes(32, "little"),
    bytes.fromhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"),
)
"""Public keys whose shared secret is zero for everybody (RFC 7748, section 6.1)."""
ANOTHER_KEY = keys.public_key_of(keys.digest("a key of the server's own"))
Changed = list[Json]


def request(kind: str) -> Json:
    """The request that a file's messages are made of."""
    conversation, step = PLACES[kind]
    return request_at(conversation, step)


def request_at(conversation: str, step: int) -> Json:
    """One request of a conversation."""
    return dict(CONVERSATION[conversation]["steps"][step]["request"])


def case(name: str, stops: str, **changes: Any) -> Json:
    """One message: what is changed, and which attack or fault its refusal stops."""
    entry: Json = {"name": name, "stops": stops}
    for part in ("vector", "record"):
        if part in changes:
            entry[part] = changes.pop(part)
    entry["fields"] = {
        field: stored_value(field, value) for field, value in changes.items()
    }
    return entry


def headed(kind: str, name: str, stops: str, **entries: Any) -> Json:
    """A message with other entries of the header; None takes one away."""
    header = header_of(request(kind)) | entries
    present = {key: value for key, value in header.items() if value is not None}
    return case(name, stops, header=json.dumps(present))


def header_with(kind: str, **entries: Any) -> str:
    """A request's header with other entries."""
    return json.dumps(header_of(request(kind)) | entries)


def malformed(kind: str) -> Changed:
    """What is wrong with a header, or the waiting time, of any request."""
    unread = "a reader that goes on with what it cannot read"
    header = request(kind)["fields"]["header"]
    long = header[:-1] + " " * 10_000 + "}"
    cases = [
        case("a record of another name", "another app's message", record="config"),
        case("no header", unread, header=None),
        case("a header that is cut off", unread, header=header[:-1]),
        case("bytes after the header", unread, header=header + "x"),
        case("a header of bytes", "a field of another type", header=header.encode()),
        case("a header that is a list", unread, header="[" + header + "]"),
        headed(kind, "no stage", unread, stage=None),
        headed(kind, "an unknown stage", unread, stage="sums"),
        headed(kind, "a stage that is a number", unread, stage=1),
        headed(kind, "another run", "a message that went astray", run=RUN + 1),
        headed(kind, "a run of text", "a field of another type", run=str(RUN)),
    ]
    if kind == "keys":
        bound = "a parser without a bound"
        cases.append(case("a header of brackets", bound, header="[" * 9_000))
        cases.append(case("a long header", bound, header=long))
    waits: dict[str, Any] = {
        "negative": -1.0,
        "zero": 0.0,
        "not a number": float("nan"),
        "infinite": float("inf"),
        "a text": "600",
        "true": True,
    }
    stops = "a request that is never late"
    for what, value in waits.items():
        cases.append(case(f"a waiting time that is {what}", stops, wait=value))
    return cases


# -- the plan --------------------------------------------------------------------------

PLAN = request("keys")["fields"]["plan"]["utf8"]


def plan_case(
    name: str, stops: str, edit: Callable[[Any], object], text: str = PLAN
) -> Json:
    """A plan that somebody edited."""
    plan = json.loads(text)
    edit(plan)
    return case(name, stops, plan=json.dumps(plan).encode())


def setting(name: str, value: object) -> Callable[[Any], object]:
    """Change one of the run's settings."""
    return lambda plan: plan["config"]["settings"].update({name: value})


def option(name: str, value: object) -> Callable[[Any], object]:
    """Change one of the algorithm's own options."""
    return lambda plan: options_of(plan).update({name: value})


def options_of(plan: Any) -> Any:
    """The algorithm's own options in a plan."""
    return plan["config"]["task"]["options"]


def task(name: str, value: object) -> Callable[[Any], object]:
    """Change one entry of the task."""
    return lambda plan: plan["config"]["task"].update({name: value})


def top(**entries: object) -> Callable[[Any], object]:
    """Change entries of the plan itself."""
    return lambda plan: plan.update(entries)


def of_round(**entries: object) -> Callable[[Any], object]:
    """Change the first round."""
    return lambda plan: plan["rounds"][0].update(entries)


def of_block(name: str, value: object) -> Callable[[Any], object]:
    """Change the first array of the first round."""
    return lambda plan: plan["rounds"][0]["blocks"][0].update({name: value})


def bounded(name: str, value: object) -> Callable[[Any], object]:
    """Change the sensitivity of the first array."""

    def edit(plan: Any) -> None:
        plan["rounds"][0]["blocks"][0]["sensitivity"][name] = value

    return edit


def scaled(name: str, factor: float) -> Callable[[Any], object]:
    """Multiply a number of the first array."""

    def edit(plan: Any) -> None:
        block = plan["rounds"][0]["blocks"][0]
        holder = block if name in block else block["sensitivity"]
        holder[name] *= factor

    return edit


def keys_cases() -> Changed:
    """Plans, and the versions that stand before them."""
    parser = "two readers of two plans"
    price = "a price that is not the plan's"
    version = "masks of two versions, whose sum is noise"
    moved = "a bound that the statistic does not keep"
    header = "keys"
    cases = [
        headed(header, "no protocol version", version, protocol=None),
        headed(header, "another protocol version", version, protocol=1),
        headed(header, "a later protocol version", version, protocol=3),
        headed(header, "a protocol version of text", version, protocol="2"),
        headed(header, "a protocol version that is true", version, protocol=True),
        headed(header, "a fractional protocol version", version, protocol=2.0),
        headed(header, "no plan format", version, plan_format=None),
        headed(header, "another plan format", version, plan_format=7),
        case("no plan", "a key for nothing", plan=None),
        case("an empty plan", "a key for nothing", plan=b""),
        case("a plan that is cut off", parser, plan=PLAN[:-1].encode()),
        case("bytes after the plan", parser, plan=(PLAN + "x").encode()),
        case("two plans", parser, plan=(PLAN + PLAN).encode()),
        case("a plan in a list", parser, plan=f"[{PLAN}]".encode()),
        case("a plan of brackets", "a parser without a bound", plan=b"[" * 5_000),
        plan_case("an entry more", parser, top(note="")),
        plan_case("an entry less", parser, lambda plan: plan.pop("box")),
        plan_case("a setting more", parser, setting("note", "")),
        plan_case("a part more", parser, lambda plan: plan["config"].update(note={})),
        plan_case("an option more", parser, option("note", "")),
        plan_case("an option less", parser, lambda plan: options_of(plan).pop("alpha")),
        plan_case("a task's entry more", parser, task("note", "")),
        plan_case("a round's entry more", parser, of_round(note="")),
        plan_case("an array's entry more", parser, of_block("note", "")),
        plan_case("a bound's entry more", parser, bounded("note", "")),
        plan_case("a round of text", parser, top(rounds="lloyd")),
        plan_case("a seed of text", parser, top(seed="11")),
        plan_case("a fractional seed", parser, top(seed=11.5)),
        plan_case("a negative seed", parser, top(seed=-1)),
        plan_case("NaN for epsilon", price, setting("epsilon", float("nan"))),
        plan_case("infinite epsilon", price, setting("epsilon", float("inf"))),
        plan_case("half the epsilon", price, setting("epsilon", 4.0)),
        plan_case("twice the delta", price, top(delta=2 * json.loads(PLAN)["delta"])),
        plan_case("NaN for delta", price, top(delta=float("nan"))),
        plan_case("half the noise", price, scaled("noise_multiplier", 0.5)),
        plan_case("a little less noise", price, scaled("noise_multiplier", 0.99)),
        plan_case("no noise", price, of_block("noise", "none")),
        plan_case("noise of zero", price, of_block("noise_multiplier", 0.0)),
        plan_case("negative noise", price, scaled("noise_multiplier", -1.0)),
        plan_case("NaN noise", price, of_block("noise_multiplier", float("nan"))),
        plan_case("half the sensitivity", moved, scaled("bound", 0.5)),
        plan_case("twice the sensitivity", moved, scaled("bound", 2.0)),
        plan_case("a sensitivity in L1", moved, bounded("norm", "l1")),
        plan_case("a sensitivity of clients", moved, bounded("unit", "client")),
        plan_case("another radius", moved, of_round(radius=0.1)),
        plan_case("no radius", moved, of_round(radius=None)),
        plan_case("NaN radius", moved, of_round(radius=float("nan"))),
        plan_case("another shape", moved, of_block("shape", [4, 2])),
        plan_case("another array", moved, of_block("name", "counts")),
        plan_case("a readable round", "a sum that is read", of_round(trust="central")),
        plan_case("no masks", "vectors that are read", setting("masking", False)),
        plan_case("unknown noise", "a plan in words unknown", setting("noise", "x")),
        plan_case("unknown packing", "a plan in words unknown", option("packing", "x")),
        plan_case("unknown trust", "a plan in words unknown", setting("trust", "x")),
        plan_case("an unknown task", "a plan in words unknown", task("name", "x")),
        plan_case("no clusters", "a plan for nothing", task("n_clusters", 0)),
        plan_case("true clusters", "a field of another type", task("n_clusters", True)),
        plan_case("3.5 clusters", "a field of another type", task("n_clusters", 3.5)),
        plan_case("no rounds", "a plan for nothing", top(rounds=[])),
        plan_case(
            "a round more", price, lambda plan: plan["rounds"].append(plan["rounds"][2])
        ),
        plan_case("a plan of another run", "a replayed plan", top(run_id=RUN + 1)),
        plan_case("another format", version, top(version=6)),
        plan_case("another grid", "a vector that is misread", top(fraction_bits=8)),
        plan_case("another width", "a vector that is misread", top(n_features=3)),
        plan_case("another N", price, top(n_examples=10**6)),
        plan_case("another N declared", price, setting("n_examples", 43)),
        plan_case("too few clients", "a sum of few", top(n_clients=2)),
        plan_case("no clients", "a plan for nobody", top(n_clients=0)),
        plan_case("minus five clients", "a plan for nobody", top(n_clients=-5)),
        plan_case("more silent ones", "noise that is lost", top(max_silent=1)),
        plan_case("a million clients", "sums that wrap", top(n_clients=2**20)),
        plan_case("10^300 rows", "sums that wrap", top(n_examples=10**300)),
        plan_case(
            "a box known beforehand",
            "bounds that a server chooses",
            top(box=[[-1.0], [1.0]]),
        ),
        plan_case(
            "columns of nobody",
            "a sum under two names",
            top(columns_digest="0" * 64),
        ),
        plan_case(
            "a round in advance",
            "a release that nobody needs",
            lambda plan: plan.update(preliminary=plan["rounds"][:1]),
        ),
    ]
    return malformed("keys") + cases


# -- rosters ---------------------------------------------------------------------------


def members_at(kind: str, step: int) -> dict[int, bytes]:
    """Public keys by node id, of the roster of a step of the same conversation."""
    conversation, _ = PLACES[kind]
    blob = value_of(request_at(conversation, step)["fields"]["roster"])
    return dict(unpack_roster(0, blob).keys)


def roster(members: Mapping[int, bytes]) -> bytes:
    """A roster in order."""
    return roster_bytes(sorted(members.items()))


def roster_bytes(entries: list[tuple[int, bytes]]) -> bytes:
    """A roster in whatever order."""
    return b"".join([node.to_bytes(8, "little") + key for node, key in entries])


def credential(node: int) -> bytes:
    """A signature of nobody, for nodes of which nobody is pinned."""
    return node.to_bytes(8, "little") + bytes(128)


def roster_cases(kind: str) -> Changed:
    """Rosters that no honest server announces."""
    _, step = PLACES[kind]
    members = members_at(kind, step)
    entries = sorted(members.items())
    others = [entry for entry in entries if entry[0] != NODE]
    torn = "a reader that goes on with what it cannot read"
    twice = "one client that counts twice"
    alone = "a sum of so few that it tells of one"
    played = "a server that takes part in a client's place"
    all_masks = "a server that knows the masks of others"

    whole = roster_bytes(entries)
    # As many as before, so that nothing but the repetition is wrong.
    swapped = [entries[0], entries[2], entries[1], *entries[3:]]
    doubled = [entries[0], entries[1], entries[1], *entries[3:]]
    renamed = [entries[0], entries[1], (entries[1][0], entries[2][1]), *entries[3:]]
    least = roster_bytes([entry for entry in entries if entry[0] in (NODE, PEER)])
    three = [entry for entry in entries if entry[0] in (NODE, PEER, 5)]
    cases = [
        case("no roster", "masks of another attempt", roster=None),
        case("an empty roster", alone, roster=b""),
        case("a roster that is cut off", torn, roster=whole[:-1]),
        case("a byte after the roster", torn, roster=whole + b"\0"),
        case("a roster of text", "a field of another type", roster=whole.hex()),
        case("a roster backwards", twice, roster=roster_bytes(entries[::-1])),
        case("an unsorted roster", twice, roster=roster_bytes(swapped)),
        case("a node twice", twice, roster=roster_bytes(doubled)),
        case("a node twice with two keys", twice, roster=roster_bytes(renamed)),
        case(
            "one key of two nodes",
            all_masks,
            roster=roster(members | {PEER: members[NODE]}),
        ),
        case("the own node is missing", played, roster=roster_bytes(others)),
        case(
            "another key of the own",
            played,
            roster=roster(members | {NODE: ANOTHER_KEY}),
        ),
        case("alone", alone, roster=roster_bytes([(NODE, members[NODE])])),
        case("a roster of two", alone, roster=least),
        case(
            "credentials that are cut off",
            torn,
            roster=whole,
            credentials=credential(PEER)[:-1],
        ),
        case(
            "more credentials than members",
            torn,
            roster=whole,
            credentials=b"".join([credential(node) for node in range(10)]),
        ),
        case(
            "unsorted credentials",
            twice,
            roster=whole,
            credentials=credential(5) + credential(4),
        ),
        case(
            "repeated credentials",
            twice,
            roster=whole,
            credentials=credential(4) + credential(4),
        ),
        case(
            "boxes with a new roster",
            "group keys of another attempt",
            boxes=packed_boxes({PEER: bytes(60)}),
        ),
        case(
            "a release with a new roster",
            "one round that is answered for two states",
            vector=release_of_round_one(kind),
            header=with_release(kind, 1, 0),
        ),
        case(
            "a release without its round",
            "a release that is taken for another",
            vector=release_of_round_one(kind),
        ),
    ]
    if kind == "readable_retry":
        # Of five shares of the noise, four are counted on.
        cases.append(case("a roster of three", alone, roster=roster_bytes(three)))
    return cases


def release_of_round_one(kind: str) -> list[int]:
    """The first release of the same conversation."""
    conversation, _ = PLACES[kind]
    return list(request_at(conversation, 2)["vector"])


def with_release(kind: str, round_index: object, attempt: object) -> str:
    """A header that names a release."""
    entries = {"release_round": round_index, "release_attempt": attempt}
    return json.dumps(header_of(request(kind)) | entries)


def numbers(kind: str, *names: str) -> Changed:
    """Integers of a header that are none."""
    values: Mapping[str, Any] = {
        "missing": None,
        "text": "1",
        "true": True,
        "fractional": 1.0,
        "a list": [1],
        "too large": 2**31 + 1,
        "too small": -(2**31) - 1,
    }
    stops = "a field of another type"
    return [
        headed(kind, f"{name} is {what}", stops, **{name: value})
        for name in names
        for what, value in values.items()
    ]


def sum_cases(kind: str) -> Changed:
    """What no request for a vector may have."""
    computed = "a statistic where its bound does not hold"
    recovered = "key shares in a run that repeats sums"
    survivors = struct.pack("<3Q", 2, 3, 4)
    survivor_case = headed(kind, "a request for shares", recovered, stage="unmask")
    survivor_case["fields"]["survivors"] = stored_value("survivors", survivors)
    return [
        case("a state of the server's", computed, state=b'{"movements": 0}\n'),
        case("a plan of text", "a field of another type", plan=PLAN),
        case("the plan again", "one run of two prices", plan=PLAN.encode()),
        case(
            "another plan",
            "one run of two prices",
            plan=PLAN.replace('"seed":', '"seed":1').encode(),
        ),
        headed(kind, "an attempt below zero", "a pair twice", attempt=-1),
        headed(kind, "an attempt too many", "a price that grows", attempt=2),
        headed(kind, "another round", "one round for two states", round=3),
        headed(kind, "round 0", "one round for two states", round=0),
        headed(kind, "a round that is not planned", "a price that grows", round=4),
        headed(kind, "key shares", recovered, stage="share"),
        headed(kind, "a plan's stage", "one run of two prices", stage="keys"),
        survivor_case,
    ]


def first_sum_cases() -> Changed:
    """The first request for a vector."""
    kind = "first_sum"
    members = members_at(kind, 1)
    larger = roster(members | {99: ANOTHER_KEY})
    named = [
        case("more clients than planned", "shares of less noise", roster=larger),
    ]
    for number, key in enumerate(LOW_ORDER):
        name = f"a key of low order, number {number}"
        known = roster(members | {PEER: key})
        named.append(case(name, "a secret that everybody knows", roster=known))
    return [
        *malformed(kind),
        *numbers(kind, "round", "attempt"),
        *sum_cases(kind),
        *roster_cases(kind),
        *named,
    ]


def retry_cases(kind: str) -> Changed:
    """A request that repeats a round."""
    joins = "clients that join when nobody looks"
    members = members_at(kind, 3)
    first = members_at(kind, 1)
    exchanged = members | {PEER: ANOTHER_KEY}
    replaced = {node: key for node, key in members.items() if node != PEER}
    cases = [
        case("no smaller roster", joins, roster=roster(first)),
        case("another key of a node", joins, roster=roster(exchanged)),
        case("a node more", joins, roster=roster(first | {99: ANOTHER_KEY})),
        case("a node replaced", joins, roster=roster(replaced | {99: ANOTHER_KEY})),
        case("a key moved", joins, roster=roster(replaced | {7: first[PEER]})),
        headed(kind, "the same attempt", "two vectors under one mask", attempt=0),
        case(
            "the same attempt without a roster",
            "two vectors under one mask",
            header=json.dumps(header_of(request(kind)) | {"attempt": 0}),
            roster=None,
        ),
        headed(kind, "the round before", "a pair twice", round=1),
    ]
    return [
        *malformed(kind),
        *numbers(kind, "round", "attempt"),
        *sum_cases(kind),
        *roster_cases(kind),
        *cases,
    ]


# -- releases and boxes ----------------------------------------------------------------


def vector_cases(kind: str) -> Changed:
    """Releases of another length or layout."""
    words = request(kind)["vector"]
    data = struct.pack(f"<{len(words)}Q", *words).hex()
    misread = "noise that is taken for a result"
    whole = {"shape": [len(words)], "hex": data}
    return [
        case("no release", misread, vector=None),
        case("an empty release", misread, vector=[]),
        case("a release too short", misread, vector=words[:-1]),
        case("a release too long", misread, vector=[*words, 0]),
        case("a release of another name", misread, vector=whole | {"name": "weights"}),
        case("signed words", misread, vector=whole | {"dtype": "int64"}),
        case("doubles", misread, vector=whole | {"dtype": "float64"}),
        case("another layout", misread, vector=whole | {"stype": "numpy.ndarray"}),
        case("a table", misread, vector=whole | {"shape": [3, 3]}),
        case("another shape", misread, vector=whole | {"shape": [len(words) + 1]}),
        case("a word cut off", misread, vector=whole | {"hex": data[:-2]}),
    ]


def box_of(author: int, attempt: int, roster: Roster, secret: bytes) -> bytes:
    """What an author seals for the interviewed node."""
    entropy = Entropy(LABEL, author)
    private = entropy(32)
    peers = {NODE: roster.keys[NODE]}
    pair_key = keys.agree_pair_keys(private, peers, RUN, author)[NODE]
    scope = (RUN, attempt, author, NODE, roster.digest)
    context = keys.digest("box", *scope)
    return ciphers.seal(keys.derive_key(pair_key, "box", context), secret, context)


def boxes_at(step: int) -> dict[int, bytes]:
    """What authors sealed for the interviewed node."""
    return unpack_boxes(value_of(request_at("oblivious", step)["fields"]["boxes"]))


TORN = "a reader that goes on with what it cannot read"
FEWER = "a sum that fewer authors blind"
RELAYED = "boxes that a server writes or relays from elsewhere"
SHORT = "keys that are read at wrong places"


def box_cases() -> Changed:
    """Boxes of the first attempt, which has one other author."""
    boxes, later = boxes_at(2), boxes_at(4)
    (author,) = boxes
    box = boxes[author]
    first = Roster.of(0, members_at("next_sum", 1))
    smaller = Roster.of(0, members_at("next_sum", 3))
    bystander = next(
        node for node in CASES["oblivious"].nodes if node not in (NODE, author)
    )
    late = next(iter(later.values()))
    whole = packed_boxes(boxes)

    def flipped(index: int) -> bytes:
        changed = bytearray(box)
        changed[index] ^= 1
        return packed_boxes({author: bytes(changed)})

    def sealed(length: int) -> bytes:
        return packed_boxes({author: box_of(author, 0, first, bytes(length))})

    def by(node: int, other_box: bytes) -> bytes:
        return packed_boxes({node: other_box})

    other_author = box_of(bystander, 0, first, bytes(32))
    both = packed_boxes({author: box, bystander: other_author})
    of_another_roster = box_of(author, 0, smaller, bytes(32))
    of_another_attempt = box_of(author, 1, first, bytes(32))
    return [
        case("no boxes", FEWER, boxes=None),
        case("empty boxes", FEWER, boxes=b""),
        case("a box of nobody", FEWER, boxes=by(99, box)),
        case("a box of a bystander", FEWER, boxes=by(bystander, box)),
        case("a bystander's own box", "a sum that a helper opens", boxes=both),
        case("a box of the own", FEWER, boxes=packed_boxes({NODE: box, author: box})),
        case("a box twice", TORN, boxes=whole + whole),
        case("boxes that are cut off", TORN, boxes=whole[:-1]),
        case("a byte after the boxes", TORN, boxes=whole + b"\0"),
        case("a box's head alone", TORN, boxes=whole[:12]),
        case("boxes of text", "a field of another type", boxes=whole.hex()),
        case("another nonce", RELAYED, boxes=flipped(0)),
        case("another ciphertext", RELAYED, boxes=flipped(20)),
        case("another tag", RELAYED, boxes=flipped(-1)),
        case("an empty box", RELAYED, boxes=by(author, b"")),
        case("a nonce alone", RELAYED, boxes=by(author, box[:12])),
        case("of another roster", RELAYED, boxes=by(author, of_another_roster)),
        case("of another attempt", RELAYED, boxes=by(author, of_another_attempt)),
        case("of a later attempt", RELAYED, boxes=by(author, late)),
        case("of another author", RELAYED, boxes=by(author, other_author)),
        case("a key of 31 bytes", SHORT, boxes=sealed(31)),
        case("a key of 33 bytes", SHORT, boxes=sealed(33)),
        case("a key of no bytes", SHORT, boxes=sealed(0)),
    ]


def not_due(kind: str) -> Changed:
    """Boxes where none are due."""
    box = packed_boxes({PEER: bytes(60)})
    stops = "keys in the place of others"
    return [
        case("boxes that are not due", stops, boxes=box),
        case("boxes that are cut off", TORN, boxes=box[:-1]),
    ]


def next_sum_cases(kind: str, own: Changed) -> Changed:
    """A request for the next round."""
    astray = "a state that goes astray"
    masks = "two cohorts under one mask"
    first = roster(members_at(kind, 1))
    smaller = roster(members_at(kind, 3))
    later = json.dumps(header_of(request(kind)) | {"attempt": 1})
    cases = [
        case("the roster again", masks, roster=first),
        case("a smaller roster", masks, roster=smaller),
        case("a new attempt of the next", astray, header=later, roster=smaller),
        headed(kind, "a new attempt", "a release that is not its own", attempt=1),
        headed(kind, "an old release", astray, release_round=0),
        headed(kind, "a release too new", astray, release_round=2),
        headed(kind, "of a retry", astray, release_attempt=1),
        headed(kind, "the round again", "a pair twice", round=1),
        headed(kind, "an early end", "a result that is none", stage="finish"),
    ]
    return [
        *malformed(kind),
        *numbers(kind, "round", "attempt", "release_round", "release_attempt"),
        *sum_cases(kind),
        *vector_cases(kind),
        *cases,
        *own,
    ]


def after_retry_cases() -> Changed:
    """A request after a retry, with the boxes of two authors of the new attempt."""
    kind = "after_retry"
    boxes, before = boxes_at(4), boxes_at(2)
    one, other = boxes
    exchanged = {one: boxes[other], other: boxes[one]}
    old = header_of(request("next_sum")) | {"round": 2, "attempt": 0}
    answered = "a pair twice"
    replaced = "a sum of those who had left"
    first = roster(members_at(kind, 1))
    last = members_at(kind, 3)
    fewer = {node: key for node, key in last.items() if node in (NODE, PEER, 5)}
    return [
        case("one box of two", FEWER, boxes=packed_boxes({one: boxes[one]})),
        case("two boxes exchanged", RELAYED, boxes=packed_boxes(exchanged)),
        case(
            "a box of the attempt before",
            RELAYED,
            boxes=packed_boxes(boxes | {one: next(iter(before.values()))}),
        ),
        headed(kind, "a release of the attempt before", replaced, release_attempt=0),
        headed(kind, "the attempt before", replaced, attempt=0),
        headed(
            kind, "all of the attempt before", replaced, attempt=0, release_attempt=0
        ),
        headed(kind, "the first release again", replaced, release_round=1),
        case("the attempt before once more", answered, header=json.dumps(old)),
        case(
            "the first attempt of the round",
            answered,
            header=with_numbers(kind, 2, 0),
            vector=None,
            boxes=None,
            roster=first,
        ),
        case(
            "the first attempt of the round, of fewer",
            answered,
            header=with_numbers(kind, 2, 0),
            vector=None,
            boxes=None,
            roster=roster(fewer),
        ),
        case(
            "a retry that is not smaller",
            "two cohorts under one mask",
            header=with_numbers(kind, 2, 1),
            vector=None,
            boxes=None,
            roster=roster(members_at(kind, 3)),
        ),
        headed(kind, "an early end", "a result that is none", stage="finish"),
    ]


def with_numbers(kind: str, round_index: int, attempt: int) -> str:
    """A header of another round and attempt, without a release."""
    header = header_of(request(kind)) | {"round": round_index, "attempt": attempt}
    names = ("release_round", "release_attempt")
    present = {name: value for name, value in header.items() if name not in names}
    return json.dumps(present)


def finish_cases(kind: str) -> Changed:
    """The last release."""
    replayed = "a result that is not the others'"
    cases = [
        headed(kind, "the round before", replayed, release_round=2),
        headed(kind, "a round behind", replayed, release_round=4),
        headed(kind, "another attempt", replayed, release_attempt=0),
        headed(kind, "a later attempt", replayed, release_attempt=2),
        case(
            "a round more",
            "a price that grows",
            header=header_with(kind, stage="sum", round=4, attempt=1),
        ),
        *not_due(kind),
    ]
    numbered = numbers(kind, "release_round", "release_attempt")
    return [*malformed(kind), *numbered, *vector_cases(kind), *cases]


def stop_cases() -> Changed:
    """The end of a run, of which another run's must not end this one."""
    cases = []
    whole = request("stop")["fields"]["header"].replace('"finish"', '"stop"')
    for entry in malformed("stop"):
        header = entry["fields"].get("header", whole)
        if isinstance(header, str):
            header = header.replace('"finish"', '"stop"')
        entry["fields"]["header"] = header
        cases.append(entry)
    return cases


def build(kind: str) -> Json:
    """One file, as JSON values."""
    if kind == "keys":
        cases = keys_cases()
    elif kind == "first_sum":
        cases = first_sum_cases()
    elif kind == "next_sum":
        nonces = Entropy("nonces of a server's own", 0)
        with drawn_from(lambda: nonces):
            cases = next_sum_cases(kind, box_cases())
    elif kind == "readable_next_sum":
        cases = next_sum_cases(kind, not_due(kind))
    elif kind in ("retry", "readable_retry"):
        cases = retry_cases(kind)
    elif kind == "after_retry":
        cases = after_retry_cases()
    elif kind == "stop":
        cases = stop_cases()
    else:
        cases = finish_cases(kind)
    return stored(kind, cases)


def stored(kind: str, cases: Changed) -> Json:
    """One file of messages."""
    names = [entry["name"] for entry in cases]
    conversation, step = PLACES[kind]
    doubled = {name for name in names if names.count(name) > 1}
    assert not doubled, (kind, doubled)
    return {
        "about": (
            "A client that was led through the steps before must refuse, and forget,"
            " the request of this step with these fields, and this vector, in the place"
            " of its own, or this name of its record; null takes one away. Afterwards"
            " it must answer the step as the conversation says."
        ),
        "conversation": f"conversation_{conversation}",
        "step": step,
        "refused": cases,
    }


if __name__ == "__main__":
    for name in KINDS:
        write_json(f"refused_{name}", build(name))
