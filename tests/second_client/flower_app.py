"""The second client in Flower: its records, and nothing else of Flower."""

import time

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict

from second_client.client import SecondClient
from second_client.wire import LONGEST_BLOB, Fields

RECORD, VECTOR = "dpkmeans", "dpkmeans.vector"
LAYOUT = ("uint64", "flwr-dpkmeans.little-endian")


def read_content(content: RecordDict) -> tuple[Fields, np.ndarray | None]:
    """Fields and vector; a malformed message has no fields."""
    fields = dict(content.config_records.get(RECORD, {}))
    if VECTOR not in content:
        return fields, None
    array = content.array_records.get(VECTOR, {}).get("vector")
    if array is None or (array.dtype, array.stype) != LAYOUT:
        return {}, None
    length, rest = divmod(len(array.data), 8)
    if rest or tuple(array.shape) != (length,) or 8 * length > LONGEST_BLOB:
        return {}, None
    return fields, np.frombuffer(array.data, dtype="<u8")


def write_content(fields: Fields, vector: np.ndarray | None) -> RecordDict:
    """A reply's content."""
    content = RecordDict({RECORD: ConfigRecord(fields)})
    if vector is not None:
        dtype, stype = LAYOUT
        data = vector.astype("<u8").tobytes()
        array = Array(dtype=dtype, shape=vector.shape, stype=stype, data=data)
        content[VECTOR] = ArrayRecord({"vector": array})
    return content


class SecondApp:
    """What Flower calls with each message; its client lives as long as it does."""

    def __init__(self, client: SecondClient) -> None:
        self.client = client

    def __call__(self, message: Message, context: Context) -> Message:
        """Answer a message."""
        age = time.time() - message.metadata.created_at
        reply = self.client.answer(*read_content(message.content), age)
        return Message(write_content(*reply), reply_to=message)
