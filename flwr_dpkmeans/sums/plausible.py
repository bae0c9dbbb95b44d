"""What a released sum can be at all: a server that reads it notices one that no honest clients can have sent.

Under masks nobody sees one client's vector, and a client can add anything modulo 2^64. The sum, where the server reads
it, is held against public bounds only, with room for its noise. That is post-processing of the release and stops no
honest run, so that stopping tells nothing beyond the release. Where only clients read the sum nobody may do this: a
server that shifts a sum it cannot read would learn from a refusal whether the sum passes a bound.
"""

from __future__ import annotations

import numpy as np

from flwr_dpkmeans.errors import ProtocolError
from flwr_dpkmeans.privacy.release import Block, NoiseShape, PrivacyUnit, ReleasedSum
from flwr_dpkmeans.sums.limits import MAX_ROWS_PER_CLIENT
from flwr_dpkmeans.sums.plan import COUNT, Plan, PlannedRound
from flwr_dpkmeans.sums.trust import trust_model

_GAUSSIAN_ROOM = 12.0
_LAPLACE_ROOM = 40.0
"""Noise of more scales than these has a probability below 1e-17 in one entry."""
_DECLARED_ROOM = 2.0
"""A declared number of rows may be rounded or old, but not by more than this factor."""


def require_plausible(
    plan: Plan, index: int, released: ReleasedSum, n_clients: int, n_sharers: int | None = None
) -> None:
    """Refuse a released sum with an entry that rows within the plan's bounds cannot add up to.

    Parameters
    ----------
    plan : Plan
        In force in that round.
    index : int
        Of the round.
    released : ReleasedSum
        As the server reads it.
    n_clients : int
        How many clients' vectors are in it.
    n_sharers : int, optional
        How many shared keys before, where sums are recovered; all clients of the plan if left out.

    Raises
    ------
    ProtocolError
        If an entry is out of range; the sentence names the array and the bound, not the entry.

    Examples
    --------
    >>> from flwr_dpkmeans.options import parse_config
    >>> from flwr_dpkmeans.sums.draft import draft_plan
    >>> from flwr_dpkmeans.sums.trust import as_released
    >>> config = parse_config(algorithm="lloyd", n_clusters=1, bounds=((-1,), (1,)), n_examples=10, trust="central")
    >>> plan = draft_plan(config, run_id=1, n_clients=2, seed=7, n_features=1)
    >>> sums_and_counts = np.array([3, 10], dtype=np.uint64) << np.uint64(16)
    >>> require_plausible(plan, 1, as_released(sums_and_counts, plan.rounds[0].blocks, 16), n_clients=2)
    """
    planned = plan.round_at(index)
    rows = _most_rows(plan, index, n_clients)
    for block in planned.blocks:
        units = rows if block.sensitivity.unit is PrivacyUnit.RECORD else float(n_clients)
        room = _room(plan, planned, block, n_clients, n_sharers)
        most = block.entry_bound * units + room
        least = 0.0 - room if block.sensitivity.nonnegative else -most
        values = released[block.name]
        outside = int(np.count_nonzero(~((values >= least) & (values <= most))))
        if outside:
            raise ProtocolError(
                f"{outside} of {values.size} entries of {block.name!r} in round {index} lie outside {least:.6g} to "
                f"{most:.6g}, which no data within the plan's bounds add up to: a client sent a wrong vector, or "
                "n_examples is declared too small; nothing was sent on."
            )


def _most_rows(plan: Plan, index: int, n_clients: int) -> float:
    """Rows that this many clients can have: by declaration or count if there is one, and in any case by their limit."""
    limit = float(MAX_ROWS_PER_CLIENT * n_clients)
    if plan.settings.n_examples is not None:
        return min(limit, _DECLARED_ROOM * plan.settings.n_examples)
    counting = plan.count
    if plan.n_examples is None or counting is None or index <= 0:
        return limit
    # The count itself was noisy.
    block = next(block for block in counting.blocks if block.name == COUNT)
    return min(limit, _DECLARED_ROOM * (plan.n_examples + _room(plan, counting, block, n_clients)))


def _room(plan: Plan, planned: PlannedRound, block: Block, n_clients: int, n_sharers: int | None = None) -> float:
    """How far noise can move an entry."""
    if block.noise is NoiseShape.NONE:
        return 0.0
    scales = _LAPLACE_ROOM if block.noise is NoiseShape.LAPLACE else _GAUSSIAN_ROOM
    # A cohort of more clients than those whose shares arrived made the shares smaller, not larger.
    shares = plan.shares_of(n_clients, n_sharers)
    return scales * block.noise_scale * trust_model(planned.trust).released_factor(shares)
