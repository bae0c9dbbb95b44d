"""The last noised sum, after which clients have their result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from flwr_dpkmeans.secagg.messages.attempt import Boxes, Release


@dataclass(frozen=True)
class FinishRequest:
    """The last noised sum; no vector is asked for any more.

    The rest is as in `SumRequest`.
    """

    release: Release
    boxes: Boxes = field(default_factory=dict)
    state: bytes = field(default=b"", repr=False)
    confirmations: Mapping[int, bytes] = field(default_factory=dict)


@dataclass(frozen=True)
class FinishReply:
    """The client has its result; the tag says that it is the same as everybody's."""

    tag: bytes
