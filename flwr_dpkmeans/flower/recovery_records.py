"""Messages of recoverable sums as Flower records, and back; see `flwr_dpkmeans.flower.records`."""

from __future__ import annotations

from flwr.app import RecordDict

from flwr_dpkmeans.errors import ProtocolError
from flwr_dpkmeans.flower.content import blob_of, build_content, header_of, integer_of
from flwr_dpkmeans.flower.records import Stage, Status
from flwr_dpkmeans.secagg.messages import ShareReply, ShareRequest, UnmaskReply, UnmaskRequest
from flwr_dpkmeans.secagg.packing import (
    pack_boxes,
    pack_credentials,
    pack_nodes,
    pack_roster,
    unpack_boxes,
    unpack_credentials,
    unpack_nodes,
    unpack_roster,
)
from flwr_dpkmeans.secagg.signing import SIGNATURE_BYTES


def share_request_content(request: ShareRequest) -> RecordDict:
    """Build the content of the message that asks for key shares."""
    blobs = {"roster": pack_roster(request.roster)}
    if request.credentials:
        blobs["credentials"] = pack_credentials(request.credentials)
    return build_content({"stage": Stage.SHARE.value}, blobs)


def parse_share_request(content: RecordDict) -> ShareRequest:
    """Parse a request for key shares."""
    roster = unpack_roster(0, blob_of(content, "roster"))
    credentials = unpack_credentials(blob_of(content, "credentials", b""), len(roster.members))
    return ShareRequest(roster, credentials)


def share_reply_content(reply: ShareReply) -> RecordDict:
    """Build the content of a client's key shares."""
    blobs = {"public_keys": reply.public_keys, "commitments": reply.commitments, "boxes": pack_boxes(reply.boxes)}
    if reply.group_boxes:
        blobs["group_boxes"] = pack_boxes(reply.group_boxes)
    return build_content({"status": Status.OK.value}, blobs)


def parse_share_reply(content: RecordDict) -> ShareReply:
    """Parse a client's key shares; who is due what is checked by the session."""
    return ShareReply(
        blob_of(content, "public_keys"),
        blob_of(content, "commitments"),
        unpack_boxes(blob_of(content, "boxes")),
        unpack_boxes(blob_of(content, "group_boxes", b"")),
    )


def unmask_request_content(request: UnmaskRequest) -> RecordDict:
    """Build the content of the message that names the survivors."""
    header = {"stage": Stage.UNMASK.value, "round": request.round_index, "attempt": request.attempt}
    return build_content(header, {"survivors": pack_nodes(request.survivors)})


def parse_unmask_request(content: RecordDict) -> UnmaskRequest:
    """Parse a request for the shares that take masks away."""
    header = header_of(content)
    nodes = unpack_nodes(blob_of(content, "survivors"))
    return UnmaskRequest(integer_of(header, "round"), integer_of(header, "attempt"), nodes)


def unmask_reply_content(reply: UnmaskReply) -> RecordDict:
    """Build the content of a client's shares."""
    header = {"status": Status.OK.value, "round": reply.round_index, "attempt": reply.attempt}
    signed = {"signature": reply.signature} if reply.signature else {}
    return build_content(header, {"shares": pack_boxes(reply.shares), **signed})


def parse_unmask_reply(content: RecordDict) -> UnmaskReply:
    """Parse a client's shares."""
    header = header_of(content)
    signature = blob_of(content, "signature", b"")
    if len(signature) not in (0, SIGNATURE_BYTES):
        raise ProtocolError(
            f"a client signed the survivors with {len(signature)} bytes instead of {SIGNATURE_BYTES}: reply discarded."
        )
    shares = unpack_boxes(blob_of(content, "shares"))
    return UnmaskReply(integer_of(header, "round"), integer_of(header, "attempt"), shares, signature)
