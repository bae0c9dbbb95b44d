"""What clients that remember the same have in common where each sends one vector."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from flwr_dpkmeans.secagg import messages
from flwr_dpkmeans.secagg.party import Party
from flwr_dpkmeans.secagg.ring import FixedPointVector, Ring, encode
from flwr_dpkmeans.sums.client.memory import Memory
from flwr_dpkmeans.sums.plan import Plan, PlannedRound, make_noise_source, takes_part
from flwr_dpkmeans.sums.round import Array
from flwr_dpkmeans.sums.trust import Shares


@dataclass(frozen=True)
class Contribution:
    """One aggregation, of which each client is asked for a vector.

    `memory` is any of those clients', after it has taken the request in.
    """

    memory: Memory
    message: messages.SumRequest

    @property
    def plan(self) -> Plan:
        """The plan in force."""
        return self.memory.plan

    @cached_property
    def planned(self) -> PlannedRound:
        """The round, as the plan has it."""
        return self.plan.round_at(self.message.round_index)

    @cached_property
    def shares(self) -> Shares:
        """Who adds noise."""
        party = self.memory.party
        cohort = party.cohort
        sharers = cohort if party.announced is None else party.announced
        return self.plan.shares_of(len(cohort.members), len(sharers.members))

    @cached_property
    def _state_digest(self) -> bytes:
        return self.memory.digest()

    def on_grid(self, statistic: Array, stream: int) -> FixedPointVector:
        """Put a client's statistic, (n_entries,), on the grid.

        Zeros where the client's own coin says that it does not take part.
        """
        (values,) = self.on_grid_each(statistic[None], [stream])
        return FixedPointVector(values)

    def on_grid_each(self, statistics: Array, streams: Sequence[int]) -> Ring:
        """Put statistics of clients, (n_clients, n_entries), on the grid."""
        plan = self.plan
        encoded = encode(statistics, plan.fraction_bits)
        if plan.settings.client_sampling_rate < 1.0:
            # The work is the same either way, so that neither time nor a failure tells
            # who takes part.
            attempt_id = self.message.attempt_id
            coins = [takes_part(plan, stream, *attempt_id) for stream in streams]
            of_part = statistics * np.array(coins)[:, None]
            encoded = encode(of_part, plan.fraction_bits)
        return encoded.values.reshape(statistics.shape)

    def noised(self, exact: FixedPointVector, stream: int) -> FixedPointVector:
        """Add a client's share of the noise, where clients add it."""
        plan = self.plan
        planned = self.planned
        noise = make_noise_source(plan, "client", stream, *self.message.attempt_id)
        return planned.trust_model.contribute(
            exact, planned.blocks, plan.fraction_bits, self.shares, noise
        )

    def masked(
        self,
        party: Party,
        message: messages.SumRequest,
        vector: FixedPointVector,
    ) -> tuple[Party, messages.SumReply]:
        """Mask a client's vector."""
        return party.answer(
            message,
            vector,
            blinded=self.planned.trust_model.hides_sums(),
            state_digest=self._state_digest,
        )
