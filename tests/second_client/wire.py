"""What travels: JSON, tables, boxes and refusals."""

import json
from typing import Any

Fields = dict[str, Any]
LONGEST_BLOB = 2**28
LONGEST = {"roster": 2**22, "plan": 2**26}
BOX_LENGTH = (12 + 32 + 16).to_bytes(4, "little")


class Refusal(Exception):
    """A code and a sentence for the server."""


def require(condition: Any, sentence: str, code: str = "ProtocolError") -> None:
    """Refuse what does not fulfil a condition."""
    if not condition:
        raise Refusal(code, sentence)


def unique(pairs: list[tuple[str, Any]]) -> Fields:
    require(len(pairs) == len(dict(pairs)), "a name stands twice")
    return dict(pairs)


def read_json(text: Any, longest: int) -> Fields:
    """A JSON object."""
    require(isinstance(text, str), "no text")
    require(len(text) <= longest and text.count(",") <= 200_000, "a long text")
    entries = json.loads(text, object_pairs_hook=unique)
    require(isinstance(entries, dict), "no JSON object")
    return entries


def read_pair(header: Fields, prefix: str = "") -> tuple[int, int]:
    """A round and an attempt."""
    pair = header[prefix + "round"], header[prefix + "attempt"]
    for value in pair:
        require(type(value) is int and 0 <= value <= 2**31, "no round or attempt")
    return pair


def read_blob(fields: Fields, name: str) -> bytes:
    """Bytes; none where there is no such field."""
    blob = fields.get(name, b"")
    require(isinstance(blob, bytes), f"{name} is no blob")
    require(len(blob) <= LONGEST.get(name, LONGEST_BLOB), f"{name} is too long")
    return blob


def read_table(blob: bytes, width: int) -> dict[int, bytes]:
    """Entries of one width by node id."""
    starts = range(0, len(blob), 8 + width)
    rows = [blob[start : start + 8 + width] for start in starts]
    ids = [int.from_bytes(row[:8], "little") for row in rows]
    require(len(blob) % (8 + width) == 0, "a table is cut off")
    require(ids == sorted(set(ids)), "node ids do not ascend")
    return {node: row[8:] for node, row in zip(ids, rows, strict=True)}


def read_boxes(blob: bytes) -> dict[int, bytes]:
    """Boxes by node id: each of a nonce, a group key and an AES-GCM tag."""
    table = read_table(blob, 64)
    for entry in table.values():
        require(entry[:4] == BOX_LENGTH, "a box of another length")
    return {node: entry[4:] for node, entry in table.items()}


def write_boxes(boxes: dict[int, bytes]) -> bytes:
    entries = []
    for node, box in boxes.items():
        entries += [node.to_bytes(8, "little"), BOX_LENGTH, box]
    return b"".join(entries)
