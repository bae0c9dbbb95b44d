"""A client without masks, on one machine."""

from __future__ import annotations

from dataclasses import dataclass

from flwr_dpkmeans.secagg.messages import Release, SumRequest
from flwr_dpkmeans.secagg.party import Party, Phase, changed
from flwr_dpkmeans.secagg.ring import AggregateVector


@dataclass(frozen=True)
class Plain(Party):
    """A client without masks, for experiments with many virtual ones.

    Whoever runs this sees every vector.
    """

    @property
    def public_key(self) -> bytes:
        """A name only, as nobody agrees on a key with it."""
        return self.private_key

    def admit(
        self, request: SumRequest, first_round: int, closing_round: int = 0
    ) -> Plain:
        """Take any request in: no masks are there that a second answer gives away."""
        return changed(
            self,
            phase=Phase.ADMITTED,
            roster=self.roster if request.roster is None else request.roster,
            round_index=request.round_index,
            attempt=request.attempt,
        )

    def unblind(self, release: Release, *, blinded: bool) -> AggregateVector:
        """Nothing is blinded."""
        return AggregateVector(release.values, blinded=False)
