"""What the server does beside `flwr_dpkmeans.flower.server_run` where sums are recovered."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from flwr.app import Message, RecordDict

from flwr_dpkmeans.errors import ProtocolError
from flwr_dpkmeans.flower import server_log
from flwr_dpkmeans.flower.recovery_records import (
    parse_share_reply,
    parse_unmask_reply,
    share_request_content,
    unmask_request_content,
)
from flwr_dpkmeans.log import placed_logger
from flwr_dpkmeans.secagg.credentials import Credential
from flwr_dpkmeans.secagg.messages import Release, ShareRequest, SumRequest, UnmaskRequest
from flwr_dpkmeans.secagg.recovery.session import RecoverSession
from flwr_dpkmeans.secagg.ring import AggregateVector

logger = placed_logger("flwr_dpkmeans.server")

Contents = Sequence[tuple[int, RecordDict]]
Check = Callable[[int, RecordDict], None]
"""Raises if a reply is a refusal."""


class RecoveryRun:
    """The steps of one run that only recovered sums have.

    Parameters
    ----------
    session : RecoverSession
        Of this run.
    credentials : mapping of node id to Credential
        What the clients signed, if they have identities.
    """

    def __init__(self, session: RecoverSession, credentials: Mapping[int, Credential]) -> None:
        self.session = session
        self._credentials = credentials
        self._signatures: dict[int, bytes] = {}

    def share_messages(self) -> list[Message]:
        """The roster, for everybody who agreed to the plan."""
        roster = self.session.sharers
        content = ShareRequest(roster, self._credentials)
        return [Message(share_request_content(content), node, "train") for node in roster.node_ids]

    def take_shares(self, contents: Contents, require_answer: Check) -> None:
        """Collect everybody's shares; those that did not share are left out, too many of them stop the run."""
        for node, content in contents:
            try:
                require_answer(node, content)
                self.session.receive_shares(node, parse_share_reply(content))
            except ProtocolError as error:
                logger.warning("%s", error)
        asked = self.session.sharers.node_ids
        self.session.close_shares()
        missing = [node for node in asked if node not in self.session.roster.keys]
        if missing:
            server_log.left_out(missing, "shared no keys")

    def sum_request(self, node: int, release: Release | None, state: bytes) -> SumRequest:
        """The open round's request to one client."""
        session = self.session
        boxes, group_boxes = session.take_boxes(node)
        return SumRequest(
            session.round_index,
            session.attempt,
            release=release,
            boxes=boxes,
            state=state,
            cohort=session.roster.node_ids,
            group_boxes=group_boxes,
            confirmations={} if release is None else self.confirmations(node),
        )

    def confirmations(self, node: int) -> dict[int, bytes]:
        """What the node's neighbours signed of the last survivors."""
        neighbours = self.session.neighbours(node)
        return {peer: self._signatures[peer] for peer in neighbours if peer in self._signatures}

    def unmask_messages(self) -> list[Message]:
        """The survivors, for each of them."""
        session = self.session
        request = UnmaskRequest(session.round_index, session.attempt, session.survivors)
        return [Message(unmask_request_content(request), node, "train") for node in session.survivors]

    def take_unmasked(
        self, contents: Contents, require_answer: Check, plan_digest: bytes, *, blinded: bool
    ) -> AggregateVector | None:
        """Take the survivors' shares in, and the masks away; None if another attempt was opened instead."""
        session, signatures = self.session, {}
        for node, content in contents:
            try:
                require_answer(node, content)
                reply = parse_unmask_reply(content)
                session.receive_unmask(node, reply)
                if reply.signature:
                    signatures[node] = reply.signature
            except ProtocolError as error:
                logger.warning("%s", error)
        silent = session.missing()
        try:
            aggregate = session.recover(plan_digest, blinded=blinded)
        except ProtocolError as error:
            logger.warning("%s", error)
            session.retry()
            server_log.missing(silent, session.attempt, len(session.roster.members))
            return None
        if silent:
            server_log.left_out(silent, "gave no shares")
        self._signatures = signatures
        return aggregate
