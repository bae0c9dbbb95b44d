"""Every message as it travels, and back.

One JSON header of scalars, blobs by name, and at most one vector.

Whatever comes in is hostile until it has been read here. Nothing is parsed that is
longer than its limit, no field is taken for another type than its own, and anything
else is a `ProtocolError`. What a well-formed message may *say* is for `sums.client` and
`sums.server` to judge. `pack_fields` and `unpack_fields` are for a client's own memory.
"""

from __future__ import annotations

from flwr_dpkmeans.sums.wire.codec import (
    LONGEST_SENTENCE,
    decode_reply,
    decode_request,
    encode_failure,
    encode_reply,
    encode_request,
)
from flwr_dpkmeans.sums.wire.failure import STOPPING_CODES, Failure, Status
from flwr_dpkmeans.sums.wire.packet import (
    LIST_BLOBS,
    MAX_BLOB_BYTES,
    MAX_HEADER_CHARACTERS,
    MAX_INTEGER,
    MAX_LIST_BYTES,
    Packet,
)
from flwr_dpkmeans.sums.wire.plan_text import (
    MAX_PLAN_BYTES,
    MAX_PLAN_ENTRIES,
    dump_plan,
    load_plan,
    plan_digest,
    terms_digest,
)
from flwr_dpkmeans.sums.wire.requests import Answer, KeysReply, Reply, Request
from flwr_dpkmeans.sums.wire.stored_fields import pack_fields, unpack_fields
from flwr_dpkmeans.sums.wire.versions import (
    Versions,
    installed_versions,
    require_same_versions,
    stated_versions,
)

__all__ = [
    "LIST_BLOBS",
    "LONGEST_SENTENCE",
    "MAX_BLOB_BYTES",
    "MAX_HEADER_CHARACTERS",
    "MAX_INTEGER",
    "MAX_LIST_BYTES",
    "MAX_PLAN_BYTES",
    "MAX_PLAN_ENTRIES",
    "STOPPING_CODES",
    "Answer",
    "Failure",
    "KeysReply",
    "Packet",
    "Reply",
    "Request",
    "Status",
    "Versions",
    "decode_reply",
    "decode_request",
    "dump_plan",
    "encode_failure",
    "encode_reply",
    "encode_request",
    "installed_versions",
    "load_plan",
    "pack_fields",
    "plan_digest",
    "require_same_versions",
    "stated_versions",
    "terms_digest",
    "unpack_fields",
]
