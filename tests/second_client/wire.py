"""What travels: texts in JSON, tables and boxes in bytes, and refusals."""

from __future__ import annotations

import json
from typing import Any

Fields = dict[str, Any]
LONGEST_BLOB = 2**28
LONGEST_ROSTER = 2**22
LONGEST_INTEGER = 2**31


class Refusal(Exception):
    """What the client does not do, with a code for the server."""

    def __init__(self, sentence: str, code: str = "ProtocolError") -> None:
        super().__init__(sentence)
        self.code = code


def require(condition: Any, sentence: str, code: str = "ProtocolError") -> None:
    """Refuse what does not fulfil a condition."""
    if not condition:
        raise Refusal(sentence, code)


def _unique(pairs: list[tuple[str, Any]]) -> Fields:
    require(len(pairs) == len(dict(pairs)), "a name stands twice")
    return dict(pairs)


def _no_number(word: str) -> None:
    raise Refusal("NaN and infinity are not numbers")


def read_json(text: Any, longest: int, most_commas: int = 200_000) -> Fields:
    """A JSON object."""
    require(isinstance(text, str) and len(text) <= longest, "no text, or a long one")
    require(text.count(",") <= most_commas, "too many entries")
    try:
        entries = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_number)
    except (ValueError, RecursionError):
        raise Refusal("malformed JSON") from None
    require(isinstance(entries, dict), "no JSON object")
    return entries


def read_integer(header: Fields, name: str) -> int:
    """A round or an attempt."""
    value = header.get(name)
    is_number = type(value) is int and 0 <= value <= LONGEST_INTEGER
    require(is_number, f"{name} is no round and no attempt")
    return int(value)


def read_blob(fields: Fields, name: str, longest: int = LONGEST_BLOB) -> bytes:
    """Bytes, and none where there is no such field."""
    blob = fields.get(name, b"")
    is_blob = isinstance(blob, bytes) and len(blob) <= longest
    require(is_blob, f"{name} is no blob, or too long")
    return bytes(blob)


def read_table(blob: bytes, width: int) -> dict[int, bytes]:
    """Entries of one width by node id."""
    step = 8 + width
    require(len(blob) % step == 0, "a table is cut off")
    rows = [blob[start : start + step] for start in range(0, len(blob), step)]
    table = {int.from_bytes(row[:8], "little"): row[8:] for row in rows}
    require(len(table) == len(rows), "a node stands twice")
    require(list(table) == sorted(table), "node ids do not ascend")
    return table


def read_boxes(blob: bytes) -> dict[int, bytes]:
    """Boxes by node id."""
    boxes: dict[int, bytes] = {}
    while blob:
        node = int.from_bytes(blob[:8], "little")
        end = 12 + int.from_bytes(blob[8:12], "little")
        require(12 <= len(blob) >= end, "boxes are cut off")
        require(node not in boxes and len(boxes) < 100_000, "too many boxes")
        boxes[node] = blob[12:end]
        blob = blob[end:]
    return boxes


def write_boxes(boxes: dict[int, bytes]) -> bytes:
    """Boxes end to end."""
    parts = []
    for node, box in sorted(boxes.items()):
        parts += [node.to_bytes(8, "little"), len(box).to_bytes(4, "little"), box]
    return b"".join(parts)
