"""Write refused_*.json of plans that a client need not know: private counts, states of
the server's, and sums that are recovered.

Run ``python tests/vectors/generate_other_refusals.py`` after
`generate_conversations.py`.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
from conversations import (
    OTHER_KINDS,
    Json,
    packed_boxes,
    value_of,
    write_json,
)
from generate_refusals import (
    ANOTHER_KEY,
    FEWER,
    LOW_ORDER,
    NODE,
    PEER,
    RELAYED,
    TORN,
    Changed,
    case,
    headed,
    malformed,
    members_at,
    numbers,
    plan_case,
    request,
    request_at,
    roster,
    roster_bytes,
    setting,
    stored,
    top,
    vector_cases,
    with_numbers,
)

from flwr_dpkmeans.secagg.messages.packed_parts import unpack_boxes, unpack_nodes

ASTRAY = "a state that goes astray"
CHOSEN = "a plan that does not follow from what was released"


# -- private counts --------------------------------------------------------------------


def plan_of(step: int) -> str:
    """A plan of the counted conversation."""
    return str(request_at("counted", step)["fields"]["plan"]["utf8"])


def count_cases() -> Changed:
    """The first request, for the count, with plans that come too early."""
    kind = "count"
    final = plan_of(2).encode()
    early = "bounds and counts that a server chooses"
    return [
        *numbers(kind, "round", "attempt"),
        case("the final plan", early, plan=final),
        plan_case("another seed", early, top(seed=12), plan_of(0)),
        plan_case("N of the server's", early, top(n_examples=42), plan_of(0)),
        headed(kind, "the first round of the task", early, round=1),
        headed(kind, "a round before the first", early, round=-1),
        case("a state of the server's", early, state=b"{}\n"),
    ]


def final_plan_cases() -> Changed:
    """The final plan, which comes with the released count."""
    kind = "final_plan"
    text = plan_of(2)

    def plan(name: str, edit: Callable[[Any], object]) -> Json:
        return plan_case(name, CHOSEN, edit, text)

    n_rows = json.loads(text)["n_examples"]
    return [
        *vector_cases(kind),
        case("no plan", CHOSEN, plan=None),
        case("the plan before", CHOSEN, plan=plan_of(0).encode()),
        case("a plan that is cut off", TORN, plan=text[:-1].encode()),
        plan("a row more than was counted", top(n_examples=n_rows + 1)),
        plan("many rows", top(n_examples=10**6)),
        plan("no N", top(n_examples=None)),
        plan("N that is declared", setting("n_examples", n_rows)),
        plan("another epsilon", setting("epsilon", 60.0)),
        plan("another seed", top(seed=12)),
        plan("another cohort", top(n_clients=4)),
        plan("another width", top(n_features=3)),
        plan("another run", top(run_id=1)),
        plan("a box", top(box=[[-0.5, -0.5], [0.5, 0.5]])),
        plan("no count", top(preliminary=[])),
        plan("no rounds", top(rounds=[])),
        plan("other columns", top(columns_digest="0" * 64)),
        plan("another trust model", setting("trust", "central")),
    ]


# -- states of the server's ------------------------------------------------------------


def packed_state(header: Any, *arrays: Any) -> bytes:
    """A state as it travels, whatever its header says."""
    flat = [np.ravel(np.asarray(array, dtype="<f8")) for array in arrays]
    doubles = np.concatenate(flat).tobytes() if flat else b""
    return json.dumps(header).encode() + b"\n" + doubles


def state_parts(kind: str) -> tuple[dict[str, list[int]], dict[str, Any], int]:
    """Shapes, arrays and number of movements of an honest state."""
    blob = value_of(request(kind)["fields"]["state"])
    line, _, data = blob.partition(b"\n")
    header = json.loads(line)
    doubles = np.frombuffer(data, dtype="<f8")
    position = header["movements"]
    arrays = {}
    for name, shape in header["arrays"].items():
        end = position + int(np.prod(shape))
        arrays[name] = doubles[position:end].reshape(shape)
        position = end
    return header["arrays"], arrays, header["movements"]


def state_cases(kind: str) -> Changed:
    """States that do not fit the plan, or tell a client more than it needs."""
    shapes, arrays, n_movements = state_parts(kind)
    blob = value_of(request(kind)["fields"]["state"])
    moves = [0.5] * n_movements
    told = "a statistic of one row, at a state that a server made for it"
    unlike = "a reader of arrays at wrong places"

    def with_arrays(**changes: Any) -> bytes:
        changed = {**arrays, **changes}
        sizes = {name: list(np.shape(array)) for name, array in changed.items()}
        header = {"movements": n_movements, "arrays": sizes}
        return packed_state(header, moves, *changed.values())

    def with_header(**changes: Any) -> bytes:
        header = {"movements": n_movements, "arrays": shapes} | changes
        return packed_state(header, moves, *arrays.values())

    def without(name: str) -> bytes:
        rest = {key: array for key, array in arrays.items() if key != name}
        sizes = {key: shapes[key] for key in rest}
        header = {"movements": n_movements, "arrays": sizes}
        return packed_state(header, moves, *rest.values())

    def entry(value: float) -> bytes:
        centroids = np.array(arrays["centroids"])
        centroids[0, 0] = value
        return with_arrays(centroids=centroids)

    def moved(*steps: float) -> bytes:
        header = {"movements": len(steps), "arrays": shapes}
        return packed_state(header, steps, *arrays.values())

    centroids = arrays["centroids"]
    states = {
        "cut off": (unlike, blob[:-1]),
        "a byte more": (unlike, blob + b"\0"),
        "eight bytes more": (unlike, blob + bytes(8)),
        "a header alone": (unlike, blob.partition(b"\n")[0] + b"\n"),
        "no line": (unlike, blob.replace(b"\n", b" ")),
        "no JSON": (unlike, b"{" + blob),
        "a list": (unlike, b"[]\n"),
        "no movements": (unlike, packed_state({"arrays": {}})),
        "negative sizes": (unlike, with_header(arrays=shapes | {"counts": [-3]})),
        "fractional sizes": (unlike, with_header(arrays=shapes | {"counts": [3.0]})),
        "true sizes": (unlike, with_header(arrays=shapes | {"counts": [True]})),
        "three dimensions": (unlike, with_arrays(counts=np.zeros((3, 1, 1)))),
        "no dimension": (unlike, with_arrays(note=np.float64(1.0))),
        "movements too many": (unlike, with_header(movements=10**6)),
        "more movements than rounds": (unlike, moved(*[0.5] * 5)),
        "a movement that is no number": (unlike, moved(float("nan"))),
        "NaN": (told, entry(float("nan"))),
        "infinity": (told, entry(float("inf"))),
        "between grid points": (told, entry(2.0**-20)),
        "outside the box": (told, entry(1.5)),
        "a centroid more": (told, with_arrays(centroids=np.zeros((4, 2)))),
        "a centroid too wide": (told, with_arrays(centroids=np.zeros((3, 3)))),
        "a row of centroids": (told, with_arrays(centroids=centroids.ravel())),
        "counts too large": (told, with_arrays(counts=np.full(3, 2.0**50))),
        "no centroids": (told, without("centroids")),
        "no counts": (told, without("counts")),
        "an array more": (told, with_arrays(note=np.zeros(3))),
    }
    if kind == "server_state":
        projection = np.array(arrays["projection"])
        states |= {
            "no projection": (told, without("projection")),
            "a projection that stretches": (
                told,
                with_arrays(projection=2.0 + 0.0 * projection),
            ),
            "points far away": (
                told,
                with_arrays(projected_points=np.full((12, 2), 9)),
            ),
            "no points": (told, with_arrays(projected_points=np.zeros((0, 2)))),
        }
    cases = [
        case(f"a state with {name}", why, state=state)
        for name, (why, state) in states.items()
    ]
    return [
        case("no state", ASTRAY, state=None),
        case("an empty state", ASTRAY, state=b""),
        case("a state of text", "a field of another type", state=blob.hex()),
        *cases,
    ]


def server_state_cases() -> Changed:
    """A request for the second round, with the state that it reads."""
    kind = "server_state"
    return [
        *malformed(kind),
        *numbers(kind, "round", "attempt", "release_round", "release_attempt"),
        *state_cases(kind),
        headed(kind, "the round after the next", ASTRAY, round=3),
        headed(kind, "another release", ASTRAY, release_round=0),
        case("no release", ASTRAY, vector=None),
    ]


def server_state_again_cases() -> Changed:
    """A retry, in which the state is known."""
    state = value_of(request("server_state")["fields"]["state"])
    return [case("the state again", "one round for two states", state=state)]


# -- sums that are recovered -----------------------------------------------------------


def share_cases() -> Changed:
    """The request for key shares."""
    kind = "share"
    members = members_at(kind, 1)
    few = "a sum of so few that it tells of one"
    played = "a server that takes part in a client's place"
    entries = sorted(members.items())
    swapped = [entries[1], entries[0], *entries[2:]]
    others = {node: key for node, key in members.items() if node != NODE}
    two = {node: key for node, key in members.items() if node in (NODE, PEER)}
    whole = roster(members)
    cases = [
        case("no roster", few, roster=None),
        case("an empty roster", few, roster=b""),
        case("a roster that is cut off", TORN, roster=whole[:-1]),
        case("an unsorted roster", "a client twice", roster=roster_bytes(swapped)),
        case("the own node is missing", played, roster=roster(others)),
        case("another own key", played, roster=roster(members | {NODE: ANOTHER_KEY})),
        case("a roster of two", few, roster=roster(two)),
        case(
            "one key of two nodes",
            "a server that knows the masks of others",
            roster=roster(members | {PEER: members[5]}),
        ),
        case(
            "more clients than planned",
            "shares of less noise",
            roster=roster(members | {99: ANOTHER_KEY}),
        ),
        headed(kind, "a vector before shares", ASTRAY, stage="sum", round=1, attempt=0),
    ]
    for number, key in enumerate(LOW_ORDER):
        name = f"a key of low order, number {number}"
        known = roster(members | {PEER: key})
        cases.append(case(name, "a secret that everybody knows", roster=known))
    return [*malformed(kind), *cases]


def nodes_bytes(*nodes: int) -> bytes:
    """Node ids end to end."""
    return struct.pack(f"<{len(nodes)}Q", *nodes)


def node_cases(kind: str, field: str) -> Changed:
    """Cohorts or survivors that no honest server names."""
    nodes = list(unpack_nodes(value_of(request(kind)["fields"][field])))
    others = [node for node in nodes if node != NODE]
    helped = "a client that helps to open its own key"
    twice = "masks with somebody whose key was given away"
    few = "a sum of few, with less noise than was priced"
    whole = nodes_bytes(*nodes)

    def named(name: str, stops: str, *members: int) -> Json:
        return case(name, stops, **{field: nodes_bytes(*members)})

    return [
        case(f"no {field}", few, **{field: None}),
        case(f"empty {field}", few, **{field: b""}),
        case(f"{field} that are cut off", TORN, **{field: whole[:-1]}),
        case(f"{field} of text", "a field of another type", **{field: whole.hex()}),
        named(f"{field} out of order", twice, nodes[1], nodes[0], *nodes[2:]),
        named(f"a node twice in {field}", twice, nodes[0], *nodes),
        named(f"a stranger in {field}", twice, *nodes, 99),
        named(f"a stranger in place of one in {field}", twice, *nodes[:-1], 99),
        named(f"{field} without the own node", helped, *others),
        named(f"too few {field}", few, *nodes[:4]),
    ]


def sealed_cases(kind: str, field: str) -> Changed:
    """Sealed parts of another client, or for another."""
    blob = value_of(request(kind)["fields"][field])
    boxes = unpack_boxes(blob)
    one, other, *_ = boxes
    exchanged = boxes | {one: boxes[other], other: boxes[one]}
    flipped = bytearray(boxes[one])
    flipped[20] ^= 1
    changed = packed_boxes(boxes | {one: bytes(flipped)})
    rest = {node: box for node, box in boxes.items() if node != one}
    return [
        case(f"no {field}", FEWER, **{field: None}),
        case(f"a part of {field}", FEWER, **{field: packed_boxes(rest)}),
        case(
            f"a stranger's {field}", FEWER, **{field: packed_boxes(boxes | {99: b""})}
        ),
        case(f"{field} exchanged", RELAYED, **{field: packed_boxes(exchanged)}),
        case(f"{field} changed by a bit", RELAYED, **{field: changed}),
        case(f"{field} that are cut off", TORN, **{field: blob[:-1]}),
        case(f"{field} twice", TORN, **{field: blob + blob}),
    ]


def shared_sum_cases() -> Changed:
    """The first request for a vector, with everybody's shares."""
    kind = "shared_sum"
    return [
        *malformed(kind),
        *numbers(kind, "round", "attempt"),
        *node_cases(kind, "cohort"),
        *sealed_cases(kind, "boxes"),
        *sealed_cases(kind, "group_boxes"),
        case(
            "a roster",
            "other neighbours than those that hold shares",
            roster=roster(members_at(kind, 1)),
        ),
        headed(kind, "a later attempt", "a key of two sums", attempt=1),
        headed(kind, "an attempt too many", "a price that grows", attempt=2),
        headed(kind, "the next round", ASTRAY, round=2),
        headed(kind, "a round without keys", "a key of two sums", round=9),
    ]


def unmask_cases() -> Changed:
    """The request for what opens a sum."""
    kind = "unmask"
    both = "shares of both keys of one neighbour"
    return [
        *malformed(kind),
        *numbers(kind, "round", "attempt"),
        *node_cases(kind, "survivors"),
        headed(kind, "another round", both, round=2),
        headed(kind, "the round before", both, round=0),
        headed(kind, "another attempt", both, attempt=1),
        headed(kind, "an attempt below zero", both, attempt=-1),
    ]


def unmasked_sum_cases() -> Changed:
    """A request for the next round, of those that survived."""
    kind = "unmasked_sum"
    boxes = value_of(request("shared_sum")["fields"]["boxes"])
    group_boxes = value_of(request("shared_sum")["fields"]["group_boxes"])
    return [
        *numbers(kind, "round", "attempt", "release_round", "release_attempt"),
        *node_cases(kind, "cohort"),
        *vector_cases(kind),
        case("shares again", "keys in the place of others", boxes=boxes),
        case("keys again", "keys in the place of others", group_boxes=group_boxes),
        case(
            "a roster",
            "other neighbours than those that hold shares",
            roster=roster(members_at(kind, 1)),
        ),
        headed(kind, "the round again", "a pair twice", round=1),
        case(
            "a retry that is not smaller",
            "two vectors under the masks of one cohort",
            header=with_numbers(kind, 1, 1),
            vector=None,
        ),
        headed(kind, "another release", ASTRAY, release_round=2),
        headed(kind, "a release of a retry", ASTRAY, release_attempt=1),
        headed(kind, "an early end", "a result that is none", stage="finish"),
    ]


def unmasked_finish_cases() -> Changed:
    """The last release."""
    kind = "unmasked_finish"
    replayed = "a result that is not the others'"
    boxes = packed_boxes({PEER: bytes(60)})
    return [
        *vector_cases(kind),
        headed(kind, "the round before", replayed, release_round=1),
        headed(kind, "another attempt", replayed, release_attempt=1),
        case("boxes that are not due", "keys in the place of others", boxes=boxes),
    ]


CASES: dict[str, Callable[[], Changed]] = {
    "count": count_cases,
    "final_plan": final_plan_cases,
    "server_state": server_state_cases,
    "server_state_again": server_state_again_cases,
    "server_result": lambda: state_cases("server_result"),
    "share": share_cases,
    "shared_sum": shared_sum_cases,
    "unmask": unmask_cases,
    "unmasked_sum": unmasked_sum_cases,
    "unmasked_finish": unmasked_finish_cases,
}


def build(kind: str) -> Json:
    """One file, as JSON values."""
    return stored(kind, CASES[kind]())


if __name__ == "__main__":
    for name in OTHER_KINDS:
        write_json(f"refused_{name}", build(name))
