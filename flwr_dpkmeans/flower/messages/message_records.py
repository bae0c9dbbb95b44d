"""Packets of the protocol as records of Flower's messages.

Every message has one `ConfigRecord` named `RECORD`, and a vector as a uint64 array in
an `ArrayRecord` named `VECTOR_RECORD`; records of other kinds than they should be are
refused.
"""

from __future__ import annotations

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from flwr_dpkmeans.errors import ProtocolError
from flwr_dpkmeans.secagg.ring import Ring
from flwr_dpkmeans.sums.wire import MAX_BLOB_BYTES, Packet

RECORD = "dpkmeans"

VECTOR_RECORD = "dpkmeans.vector"

VECTOR_LAYOUT = "flwr-dpkmeans.little-endian"
"""Serialisation of vectors: raw 64-bit words, so that nothing has to be parsed."""


def content_of(packet: Packet) -> RecordDict:
    """A packet as the content of a message."""
    content = RecordDict({RECORD: ConfigRecord(dict(packet.fields))})
    if packet.vector is not None:
        data = np.ascontiguousarray(packet.vector, dtype="<u8").tobytes()
        array = Array(
            dtype="uint64",
            shape=(len(packet.vector),),
            stype=VECTOR_LAYOUT,
            data=data,
        )
        content[VECTOR_RECORD] = ArrayRecord({"vector": array})
    return content


def packet_of(content: RecordDict) -> Packet:
    """Undo `content_of`."""
    # Flower's typed views (config_records) copy the whole dictionary each time, so
    # records are looked up directly.
    record = content.get(RECORD)
    if not isinstance(record, ConfigRecord):
        raise ProtocolError(
            f"a message carries no record {RECORD!r}: it is not of this protocol."
        )
    carried = content.get(VECTOR_RECORD)
    return Packet(record, None if carried is None else _vector_of(carried))


def _vector_of(record: object) -> Ring:
    if not isinstance(record, ArrayRecord):
        raise ProtocolError("a vector is not an array record: message discarded.")
    array = record.get("vector")
    if array is None or (array.dtype, array.stype) != ("uint64", VECTOR_LAYOUT):
        raise ProtocolError(
            "a vector is missing or is not of 64-bit ring elements: message discarded."
        )
    if (
        len(array.data) > MAX_BLOB_BYTES
        or len(array.data) % 8
        or tuple(array.shape) != (len(array.data) // 8,)
    ):
        raise ProtocolError(
            "a vector's length does not match its shape, or is too long: message"
            " discarded."
        )
    return np.frombuffer(array.data, dtype="<u8").astype(np.uint64, copy=False)
