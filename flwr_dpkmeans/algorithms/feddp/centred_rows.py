"""Rows relative to the server points' mean, clipped to the data radius."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from flwr_dpkmeans.algorithms.feddp.appendix.moved_parts import moved_rows
from flwr_dpkmeans.algorithms.feddp.appendix.parting import MOVED, admits_moved
from flwr_dpkmeans.kernels.clipping import clip_rows
from flwr_dpkmeans.privacy.release import Norm, PrivacyUnit, Sensitivity
from flwr_dpkmeans.sums.public_facts import PublicFacts, ServerFacts
from flwr_dpkmeans.sums.round import Array, State


def centred(
    points: Array,
    facts: ServerFacts,
    radius: float,
    state: State,
) -> Array:
    """Rows relative to the public centre.

    Where Lemma 17 has them, clipped to the ball of a radius; on the grid.
    """
    return clip_rows(moved_rows(points - np.asarray(facts.centre), state), radius)


def with_parts(
    public: PublicFacts,
    facts: ServerFacts,
    reads: tuple[str, ...],
    admits: Callable[[State], bool] | None,
) -> tuple[tuple[str, ...], Callable[[State], bool] | None]:
    """What a round reads, and admits, with what Lemma 17 has found, if it is to."""
    if not getattr(public.options, "reduce_diameter", False):
        return reads, admits

    def both(state: State) -> bool:
        return admits_moved(state, facts, public.n_features) and (
            admits is None or admits(state)
        )

    return (*reads, *MOVED), both


def clipped_statistic(
    row: str,
    what: str,
    norm: Norm,
    bound: float,
    *,
    nonnegative: bool = False,
) -> Sensitivity:
    """Bound of a client's whole statistic, which is clipped to it.

    `row` is that of the proof table, `what` names the statistic.
    """
    because = (
        f"{row}: one client's {what} is scaled down to the bound (FedDP-KMeans,"
        " appendix G.4)"
    )
    return Sensitivity(
        norm,
        bound,
        PrivacyUnit.CLIENT,
        because,
        nonnegative,
    )
