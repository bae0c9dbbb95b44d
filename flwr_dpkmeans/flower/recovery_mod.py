"""What the mod does beside `flwr_dpkmeans.flower.mod` where sums are recovered: key shares, and survivors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from flwr.app import Message, RecordDict

from flwr_dpkmeans.flower.memory import ClientMemory
from flwr_dpkmeans.flower.node import NodeSettings
from flwr_dpkmeans.flower.recovery_records import (
    parse_share_request,
    parse_unmask_request,
    share_reply_content,
    unmask_reply_content,
)
from flwr_dpkmeans.log import now_at
from flwr_dpkmeans.node import client_log
from flwr_dpkmeans.node.guard import note_shares, require_pinned, require_same_history, require_size
from flwr_dpkmeans.secagg.credentials import fingerprints
from flwr_dpkmeans.secagg.recovery.agreement import survivors_digest


def share(memory: ClientMemory, message: Message, settings: NodeSettings) -> tuple[ClientMemory, RecordDict]:
    """Share the keys of all aggregations with the neighbours; nothing of the data is in it, so nothing is charged."""
    state = memory.protocol
    request = parse_share_request(message.content)
    require_same_history(memory, settings)
    require_size(memory.plan, request.roster)
    n_recognised = require_pinned(memory, settings, request)
    protocol, reply = state.share(request)
    identities: tuple[tuple[int, bytes], ...] = ()
    if n_recognised:
        identities = tuple((node, request.credentials[node].identity) for node in protocol.neighbours)
    client_log.shared(len(request.roster.members), n_recognised, len(protocol.neighbours), protocol.graph.threshold)
    memory = replace(memory, protocol=protocol, n_recognised=n_recognised, identities=identities)
    memory = replace(memory, cohort=fingerprints(request.roster, request.credentials))
    return memory, share_reply_content(reply)


def unmask(memory: ClientMemory, message: Message, settings: NodeSettings) -> tuple[ClientMemory, RecordDict]:
    """Give a share for each neighbour, and sign what survivors this client was told of."""
    state = memory.protocol
    request = parse_unmask_request(message.content)
    now_at(request.round_index, request.attempt)
    protocol, reply = state.unmask(request)
    if settings.identity is not None:
        told = survivors_digest(request.survivors)
        asked = (request.round_index, request.attempt)
        signature = settings.identity.sign_survivors(protocol.run_id, protocol.node_id, *asked, told)
        reply = replace(reply, signature=signature)
    note_shares(memory, settings, request.round_index, request.attempt)
    client_log.unmasked(len(request.survivors), len(state.cohort.members))
    return replace(memory, protocol=protocol), unmask_reply_content(reply)


def require_confirmed(memory: ClientMemory, settings: NodeSettings, confirmations: Mapping[int, bytes]) -> None:
    """Refuse to go on unless as many neighbours as it takes were told of the same survivors.

    Shares that were given to a server that told others of different ones do not open anyway; the signatures are
    evidence of what it said, and stop the run at once.
    """
    if settings.policy.pinned_peers is not None and settings.identity is not None:
        memory.protocol.require_confirmed(dict(memory.identities), confirmations)
