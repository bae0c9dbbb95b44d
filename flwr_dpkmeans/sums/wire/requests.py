"""What a server asks and a client answers in each stage of a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from flwr_dpkmeans.secagg import messages
from flwr_dpkmeans.secagg.credentials import Credential
from flwr_dpkmeans.secagg.messages import Stage
from flwr_dpkmeans.sums.wire.failure import Failure
from flwr_dpkmeans.sums.wire.versions import Versions

RequestBody = (
    messages.ShareRequest
    | messages.SumRequest
    | messages.UnmaskRequest
    | messages.FinishRequest
    | messages.StopRequest
)
"""What a request says besides, in every stage but that of the keys."""


@dataclass(frozen=True)
class Request:
    """What a server asks one client."""

    stage: Stage
    body: RequestBody | None = None
    """None in the key phase, which asks with the plan alone."""
    plan: bytes | None = field(default=None, repr=False)
    """The plan, or a later one that takes its place."""
    run_id: object = None
    """As the message has it, since it is only compared; None: it does not say."""
    wait: float | None = None
    versions: Versions | None = None
    """Stated with the plan, and checked before the plan is parsed, whose format may be
    another.
    """


@dataclass(frozen=True)
class KeysReply:
    """A client's answer to the plan."""

    public_key: bytes
    """X25519, fresh for the run."""
    plan_digest: bytes
    n_features: int
    """Width of its table: schema, the same whatever the rows are."""
    identity: bytes = b""
    signature: bytes = b""
    """Ed25519 public key and signature of all this, from a node that has an identity.

    Else empty.
    """
    marks: frozenset[bytes] = frozenset()
    """From a node that pins identities: `pin_mark` of each, so that the server can tell
    a cohort that this node would refuse before anybody pays for it; else empty.
    """
    columns: str = ""
    """Digest of its column names in the order that the run agrees on.

    Empty without names.
    """

    @property
    def credential(self) -> Credential | None:
        """What the node signed, for the other clients.

        A malformed one is a `ProtocolError`.
        """
        if not self.identity and not self.signature:
            return None
        return Credential(self.identity, self.plan_digest, self.signature)


Reply = (
    KeysReply
    | messages.ShareReply
    | messages.SumReply
    | messages.UnmaskReply
    | messages.FinishReply
    | messages.StopReply
)
"""What a client answers."""
Answer = Callable[[Stage, int], Reply | Failure]
"""What came from a node, not yet looked at.

Called with what it was asked, and its id, it is the reply or a `Failure`; a
`ProtocolError` if it cannot be read.
"""
MESSAGES: Mapping[Stage, tuple[type[RequestBody] | None, type[Reply]]] = (
    MappingProxyType(
        {
            Stage.KEYS: (None, KeysReply),
            Stage.SHARE: (messages.ShareRequest, messages.ShareReply),
            Stage.SUM: (messages.SumRequest, messages.SumReply),
            Stage.UNMASK: (messages.UnmaskRequest, messages.UnmaskReply),
            Stage.FINISH: (messages.FinishRequest, messages.FinishReply),
            Stage.STOP: (messages.StopRequest, messages.StopReply),
        }
    )
)
"""Body of a request, if it has one, and reply of each stage."""
