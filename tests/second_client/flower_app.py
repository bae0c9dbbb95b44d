"""The second client in Flower: its records, and nothing else of Flower."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict

from second_client.client import SecondClient
from second_client.wire import LONGEST_BLOB, Fields

RECORD = "dpkmeans"
VECTOR = "dpkmeans.vector"
LAYOUT = "flwr-dpkmeans.little-endian"


def read_content(content: RecordDict) -> tuple[Fields, np.ndarray | None]:
    """Fields and vector of a message; a wrong record is fields without a header."""
    record = content.get(RECORD)
    fields = dict(record) if isinstance(record, ConfigRecord) else {}
    vector = content.get(VECTOR)
    if vector is None:
        return fields, None
    words = _words(vector)
    return (fields, words) if words is not None else ({}, None)


def _words(record: Any) -> np.ndarray | None:
    """A vector's words; None if it is malformed."""
    array = record.get("vector") if isinstance(record, ArrayRecord) else None
    if array is None or (array.dtype, array.stype) != ("uint64", LAYOUT):
        return None
    is_short = len(array.data) <= LONGEST_BLOB and len(array.data) % 8 == 0
    if not is_short or tuple(array.shape) != (len(array.data) // 8,):
        return None
    return np.frombuffer(array.data, dtype="<u8")


def write_content(fields: Fields, vector: np.ndarray | None) -> RecordDict:
    """A reply's content."""
    content = RecordDict({RECORD: ConfigRecord(dict(fields))})
    if vector is not None:
        data = vector.astype("<u8").tobytes()
        shape = (len(vector),)
        array = Array(dtype="uint64", shape=shape, stype=LAYOUT, data=data)
        content[VECTOR] = ArrayRecord({"vector": array})
    return content


class SecondApp:
    """What Flower calls with each message; its client lives as long as it does."""

    def __init__(self, client: SecondClient) -> None:
        self.client = client

    def __call__(self, message: Message, context: Context) -> Message:
        """Answer a message."""
        fields, vector = read_content(message.content)
        age = time.time() - message.metadata.created_at
        reply = self.client.answer(fields, vector, age)
        return Message(write_content(*reply), reply_to=message)
