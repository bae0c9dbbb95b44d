"""Messages as fields and a vector: read with every check of the page, and written."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

LONGEST_HEADER = 10_000
LARGEST_INTEGER = 2**31
LONGEST_BLOB = 2**28
LONGEST_ROSTER = 2**22
MOST_BOXES = 100_000
CREDENTIAL_BYTES = 136
MEMBER = struct.Struct("<Q32s")
BOX_HEAD = struct.Struct("<QI")

Fields = Mapping[str, Any]
Members = dict[int, bytes]


class Refusal(Exception):
    """What is answered instead of a reply."""

    def __init__(self, sentence: str, code: str = "ProtocolError") -> None:
        super().__init__(sentence)
        self.code = code


def require(condition: bool, sentence: str, code: str = "ProtocolError") -> None:
    """Refuse unless a condition holds."""
    if not condition:
        raise Refusal(sentence, code)


def parse_header(fields: Fields) -> dict[str, Any]:
    """The header's entries."""
    text = fields.get("header")
    is_text = isinstance(text, str) and len(text) <= LONGEST_HEADER
    require(is_text, "the header is missing or too long.")
    try:
        header = json.loads(str(text))
    except (ValueError, RecursionError) as error:
        raise Refusal("the header is no JSON.") from error
    require(isinstance(header, dict), "the header is no object.")
    return dict(header)


def is_whole(value: object) -> bool:
    """Whether a value is an integer, and neither true nor false."""
    return isinstance(value, int) and not isinstance(value, bool)


def integer(header: Mapping[str, Any], name: str) -> int:
    """A small integer of the header."""
    value = header.get(name)
    is_small = isinstance(value, int) and is_whole(value)
    is_small = is_small and abs(value) <= LARGEST_INTEGER
    require(is_small, f"{name} is missing or no small integer.")
    return int(value)


def blob(fields: Fields, name: str, longest: int = LONGEST_BLOB) -> bytes:
    """A bytes field; empty where it is absent."""
    value = fields.get(name, b"")
    is_short = isinstance(value, bytes) and len(value) <= longest
    require(is_short, f"{name} is no bytes, or too long.")
    return bytes(value)


def waiting_time(fields: Fields) -> float:
    """For how many seconds the sender waits; infinity if it does not say."""
    value = fields.get("wait", 1e299)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    require(is_number and 0.0 < value < 1e300, "wait is no positive number.")
    return float(value)


def parse_roster(content: bytes) -> Members:
    """Public keys by node id, in ascending order."""
    require(len(content) % MEMBER.size == 0, "the roster is cut off.")
    entries = list(MEMBER.iter_unpack(content))
    nodes = [node for node, _ in entries]
    require(len(nodes) >= 2, "the roster has fewer than two members.")
    require(nodes == sorted(set(nodes)), "the roster is unsorted or repeats a node.")
    members = dict(entries)
    n_keys = len(set(members.values()))
    require(n_keys == len(nodes), "the roster has one key for two nodes.")
    return members


def require_credentials(content: bytes, n_members: int) -> None:
    """Refuse credentials that are malformed; this client pins nobody."""
    n_entries, rest = divmod(len(content), CREDENTIAL_BYTES)
    require(rest == 0 and n_entries <= n_members, "the credentials are cut off.")
    starts = range(0, len(content), CREDENTIAL_BYTES)
    nodes = [int.from_bytes(content[start : start + 8], "little") for start in starts]
    require(nodes == sorted(set(nodes)), "the credentials are unsorted or repeated.")


def parse_boxes(content: bytes) -> dict[int, bytes]:
    """Sealed boxes by the node that they come from."""
    boxes: dict[int, bytes] = {}
    position = 0
    while position < len(content):
        start = position + BOX_HEAD.size
        is_whole_head = start <= len(content) and len(boxes) < MOST_BOXES
        require(is_whole_head, "the boxes are cut off, or too many.")
        node, length = BOX_HEAD.unpack_from(content, position)
        position = start + length
        is_new = position <= len(content) and node not in boxes
        require(is_new, "a box is cut off or repeated.")
        boxes[node] = content[start:position]
    return boxes


def write_boxes(boxes: Mapping[int, bytes]) -> bytes:
    """Boxes end to end, in order of the node that they are for."""
    parts = [BOX_HEAD.pack(node, len(box)) + box for node, box in sorted(boxes.items())]
    return b"".join(parts)


def parse_plan(content: bytes) -> dict[str, Any]:
    """A plan's JSON: no constants beyond JSON's own, no name twice."""
    require(len(content) <= 2**26, "the plan is too long.")
    require(content.count(b",") <= 200_000, "the plan has too many entries.")
    try:
        plan = json.loads(
            content, parse_constant=_no_constant, object_pairs_hook=_no_repetition
        )
    except (ValueError, RecursionError) as error:
        raise Refusal("the plan is no JSON.") from error
    require(isinstance(plan, dict), "the plan is no object.")
    return dict(plan)


def _no_constant(name: str) -> float:
    raise Refusal(f"the plan has {name}.")


def _no_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    require(len(entries) == len(pairs), "the plan has one name twice.")
    return entries


def to_grid(values: np.ndarray) -> np.ndarray:
    """Grid values as words of the ring."""
    steps = np.ravel(values) * 2.0**16
    is_exact = (np.abs(steps) <= 2.0**53).all() and (np.rint(steps) == steps).all()
    require(bool(is_exact), "a sum is not on the grid.", "LocalMisuseError")
    return steps.astype(np.int64).view(np.uint64)


def from_grid(words: np.ndarray) -> np.ndarray:
    """Words of the ring as numbers."""
    return words.view(np.int64).astype(np.float64) / 2.0**16


def is_positive(value: object) -> bool:
    """Whether a value is a finite float above 0."""
    return isinstance(value, float) and 0.0 < value < math.inf
