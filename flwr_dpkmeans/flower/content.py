"""The records that every message of the protocol is made of, field by field; what comes in is checked here.

Every message has one `ConfigRecord` named `RECORD`: a JSON header of scalars, and blobs. Vectors travel as uint64
arrays in an `ArrayRecord` named `VECTOR_RECORD`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from flwr_dpkmeans.errors import ProtocolError
from flwr_dpkmeans.log import printable
from flwr_dpkmeans.secagg.ring import Ring

RECORD = "dpkmeans"
VECTOR_RECORD = "dpkmeans.vector"
WAIT = "wait"
"""Entry of the record that says for how many seconds an answer is waited for."""
MAX_BLOB_BYTES = 2**28
"""Longest blob or vector that is parsed at all."""
MAX_LIST_BYTES = 2**22
"""Longest blob of equal entries that are taken apart one by one: a roster of 100,000 clients."""
LIST_BLOBS = frozenset(("roster", "cohort", "survivors", "marks"))
MAX_HEADER_CHARACTERS = 10_000
MAX_INTEGER = 2**31
VECTOR_LAYOUT = "flwr-dpkmeans.little-endian"
"""Serialisation of vectors: raw 64-bit words, so that nothing has to be parsed."""


def build_content(header: dict[str, Any], blobs: Mapping[str, bytes], vector: Ring | None = None) -> RecordDict:
    """One config record (a JSON header and blobs) and, if there is a vector, one array record."""
    fields: dict[str, Any] = {"header": json.dumps(header), **blobs}
    content = RecordDict({RECORD: ConfigRecord(fields)})
    if vector is not None:
        data = np.ascontiguousarray(vector, dtype="<u8").tobytes()
        array = Array(dtype="uint64", shape=(len(vector),), stype=VECTOR_LAYOUT, data=data)
        content[VECTOR_RECORD] = ArrayRecord({"vector": array})
    return content


def record_of(content: RecordDict) -> Mapping[str, Any]:
    """The protocol's config record."""
    # Flower's typed views (config_records) copy the whole dictionary each time, so records are looked up directly.
    record = content.get(RECORD)
    if not isinstance(record, ConfigRecord):
        raise ProtocolError(f"a message carries no record {RECORD!r}: it is not of this protocol.")
    return record


def header_of(content: RecordDict) -> Mapping[str, Any]:
    """The JSON header of a message."""
    text = record_of(content).get("header")
    if not isinstance(text, str) or len(text) > MAX_HEADER_CHARACTERS:
        raise ProtocolError("a message's header is missing or too long: message discarded.")
    return _parsed_header(text)


@lru_cache(maxsize=16)
def _parsed_header(text: str) -> Mapping[str, Any]:
    """A header is looked at several times while one message is handled, so the last few are kept."""
    try:
        header = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ProtocolError("a message's header is not JSON: message discarded.") from error
    if not isinstance(header, dict):
        raise ProtocolError("a message's header is not a mapping: message discarded.")
    return MappingProxyType(header)


def vector_of(content: RecordDict) -> Ring | None:
    """The uint64 vector in a message, if it carries one."""
    record = content.get(VECTOR_RECORD)
    if record is None:
        return None
    if not isinstance(record, ArrayRecord):
        raise ProtocolError("a vector is not an array record: message discarded.")
    array = record.get("vector")
    if array is None or (array.dtype, array.stype) != ("uint64", VECTOR_LAYOUT):
        raise ProtocolError("a vector is missing or is not of 64-bit ring elements: message discarded.")
    if len(array.data) > MAX_BLOB_BYTES or len(array.data) % 8 or tuple(array.shape) != (len(array.data) // 8,):
        raise ProtocolError("a vector's length does not match its shape, or is too long: message discarded.")
    return np.frombuffer(array.data, dtype="<u8").astype(np.uint64, copy=False)


def integer_of(header: Mapping[str, Any], name: str) -> int:
    """An integer of the header."""
    value = header.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) > MAX_INTEGER:
        raise ProtocolError(f"field {name!r} is missing or is not a small integer: message discarded.")
    return value


def printable_of(value: object, longest: int) -> str:
    """Another party's text for a log: bounded, and without control characters."""
    return printable(value, longest) if isinstance(value, str) else ""


def blob_of(content: RecordDict, name: str, default: bytes | None = None) -> bytes:
    """A bytes field of bounded length."""
    value = record_of(content).get(name, default)
    most = MAX_LIST_BYTES if name in LIST_BLOBS else MAX_BLOB_BYTES
    if not isinstance(value, bytes) or len(value) > most:
        raise ProtocolError(f"field {name!r} is missing, too long or is not bytes: message discarded.")
    return value


def set_wait(content: RecordDict, seconds: float) -> None:
    """Say in a request for how long its sender waits for the answer."""
    record: Any = content[RECORD]
    record[WAIT] = seconds


def wait_of(content: RecordDict) -> float | None:
    """For how long the sender of a request waits; None if it does not say."""
    seconds = record_of(content).get(WAIT)
    if seconds is None:
        return None
    if not isinstance(seconds, int | float) or isinstance(seconds, bool) or not 0.0 < seconds < math.inf:
        raise ProtocolError(f"field {WAIT!r} is not a positive, finite number of seconds: message discarded.")
    return float(seconds)


def member_of(kind: Any, value: object, name: str) -> Any:
    """A member of an enumeration by its value."""
    for member in kind:
        if member.value == value:
            return member
    raise ProtocolError(f"field {name!r} has an unknown value: message discarded.")
