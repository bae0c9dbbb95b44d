"""What travels: frozen messages of the aggregation protocol, independent of transport.

One request and one reply for each `Stage`; `messages.packed_parts` has their parts as
bytes.
"""

from __future__ import annotations

from flwr_dpkmeans.secagg.messages.attempt import NO_ROUND, OfAttempt, Release
from flwr_dpkmeans.secagg.messages.finish_messages import FinishReply, FinishRequest
from flwr_dpkmeans.secagg.messages.share_messages import ShareReply, ShareRequest
from flwr_dpkmeans.secagg.messages.stage import Stage
from flwr_dpkmeans.secagg.messages.stop_messages import StopReply, StopRequest
from flwr_dpkmeans.secagg.messages.sum_messages import (
    MaskedVector,
    SumReply,
    SumRequest,
)
from flwr_dpkmeans.secagg.messages.unmask_messages import UnmaskReply, UnmaskRequest

__all__ = [
    "NO_ROUND",
    "FinishReply",
    "FinishRequest",
    "MaskedVector",
    "OfAttempt",
    "Release",
    "ShareReply",
    "ShareRequest",
    "Stage",
    "StopReply",
    "StopRequest",
    "SumReply",
    "SumRequest",
    "UnmaskReply",
    "UnmaskRequest",
]
