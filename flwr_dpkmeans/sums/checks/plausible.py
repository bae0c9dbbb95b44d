"""Released sums, held against public bounds by a server that may read them."""

from __future__ import annotations

import numpy as np

from flwr_dpkmeans.errors import (
    ProtocolError,
)
from flwr_dpkmeans.privacy.release import (
    Block,
    NoiseShape,
    ReleasedSum,
)
from flwr_dpkmeans.sums.checks.sound import (
    MAX_ROWS_PER_CLIENT,
)
from flwr_dpkmeans.sums.outcome import COUNT
from flwr_dpkmeans.sums.plan import Plan, PlannedRound

_GAUSSIAN_ROOM = 12.0
_LAPLACE_ROOM = 40.0
"""Noise of more scales than these has a probability below 1e-17 in one entry."""
DECLARED_ROOM = 2.0
"""A declared number of rows may be rounded or old, but not by more than this factor."""


def require_plausible(
    plan: Plan,
    index: int,
    released: ReleasedSum,
    n_clients: int,
    n_sharers: int | None = None,
) -> None:
    """Refuse a released sum that rows within the plan's bounds cannot add up to.

    By a `ProtocolError`, for one entry.

    A client can add anything modulo 2^64 to a masked sum. Where the server reads it, it
    is held against public bounds with room for its noise: post-processing that stops no
    honest run, so that stopping tells nothing besides. The sentence names array and
    bound, not the entry. Where only clients read the sum nobody may do this: a server
    that shifts a sum it cannot read would learn from a refusal whether the sum passes a
    bound.

    Of the clients `n_clients` are in the sum, and `n_sharers` shared keys before (None:
    all of the plan).
    """
    planned = plan.round_at(index)
    most_rows = _most_rows(plan, index, n_clients)
    for block in planned.blocks:
        sensitivity = block.sensitivity
        by_record = sensitivity.unit.by_row
        n_units = most_rows if by_record else float(n_clients)
        room = _room(
            plan,
            planned,
            block,
            n_clients,
            n_sharers,
        )
        most = block.entry_bound * n_units + room
        least = 0.0 - room if sensitivity.nonnegative else -most
        values = released[block.name]
        is_inside = (values >= least) & (values <= most)
        outside = int(np.count_nonzero(~is_inside))
        if outside:
            raise ProtocolError(
                f"{outside} of {values.size} entries of {block.name!r} in round {index}"
                f" lie outside {least:.6g} to {most:.6g}, which no data within the"
                " plan's bounds add up to: a client sent a wrong vector, or n_examples"
                " is declared too small; nothing was sent on."
            )


def _most_rows(
    plan: Plan,
    index: int,
    n_clients: int,
) -> float:
    """Bound the rows that so many clients can have.

    By declaration or count if there is one, and in any case by their limit.
    """
    limit = float(MAX_ROWS_PER_CLIENT * n_clients)
    if plan.settings.n_examples is not None:
        return min(limit, DECLARED_ROOM * plan.settings.n_examples)
    counting = plan.count
    if plan.n_examples is None or counting is None or plan.is_preliminary(index):
        return limit
    # The count itself was noisy.
    block = next(block for block in counting.blocks if block.name == COUNT)
    most = plan.n_examples + _room(
        plan,
        counting,
        block,
        n_clients,
    )
    return min(limit, DECLARED_ROOM * most)


def _room(
    plan: Plan,
    planned: PlannedRound,
    block: Block,
    n_clients: int,
    n_sharers: int | None = None,
) -> float:
    """How far noise can move an entry."""
    if block.noise is NoiseShape.NONE:
        return 0.0
    is_laplace = block.noise is NoiseShape.LAPLACE
    n_scales = _LAPLACE_ROOM if is_laplace else _GAUSSIAN_ROOM
    # A cohort of more clients than those whose shares arrived made the shares smaller,
    # not larger.
    shares = plan.shares_of(n_clients, n_sharers)
    factor = planned.trust_model.released_factor(shares)
    return n_scales * block.noise_scale * factor
