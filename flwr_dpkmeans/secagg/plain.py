"""Sums without masks, for experiments with many virtual clients: whoever runs this sees every client's vector."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flwr_dpkmeans.secagg.messages import FinishRequest, Release, SumReply, SumRequest
from flwr_dpkmeans.secagg.party import Party, Phase, changed
from flwr_dpkmeans.secagg.retry import RetrySession
from flwr_dpkmeans.secagg.ring import AggregateVector, FixedPointVector, MaskedVector
from flwr_dpkmeans.secagg.roster import Roster


@dataclass(frozen=True)
class Plain(Party):
    """A client that sends its vector as it is; see `Party`."""

    @property
    def announced(self) -> Roster | None:
        """See `Party.announced`."""
        return self.roster

    def admit(self, request: SumRequest, first_round: int) -> Plain:
        """Take any request in: there are no masks that a second answer could give away."""
        del first_round
        roster = request.roster or self.roster
        index, attempt = request.round_index, request.attempt
        return changed(self, phase=Phase.ADMITTED, roster=roster, round_index=index, attempt=attempt)

    def answer(
        self, request: SumRequest, vector: FixedPointVector, *, blinded: bool, state_digest: bytes
    ) -> tuple[Plain, SumReply]:
        """Send the vector as it is."""
        del blinded, state_digest
        reply = SumReply(request.round_index, request.attempt, MaskedVector(vector.values))
        return changed(self, phase=Phase.SUMMING), reply

    def finish(self, request: FinishRequest) -> Plain:
        """See `Party.finish`."""
        del request
        return changed(self, phase=Phase.FINISHED)

    def unblind(self, release: Release, *, blinded: bool) -> AggregateVector:
        """Nothing is blinded."""
        del blinded
        return AggregateVector(release.values, blinded=False)

    def tag(self, round_index: int, attempt: int, state_digest: bytes) -> bytes:
        """No key is shared."""
        del round_index, attempt, state_digest
        return b""

    def pack(self) -> tuple[dict[str, Any], dict[str, bytes]]:
        """See `Party.pack`; nobody writes such a run down."""
        raise NotImplementedError

    @classmethod
    def unpack(cls, run_id: int, node_id: int, progress: dict[str, Any], blobs: Mapping[str, Any]) -> Plain:
        """See `Party.unpack`."""
        raise NotImplementedError


class PlainSession(RetrySession):
    """The server's side: it adds up, and no key author hides anything from it, whatever the trust model says."""

    def authors(self) -> frozenset[int]:
        """Nobody seals a group key."""
        return frozenset()
