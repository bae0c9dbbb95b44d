"""The private histogram that the steps of the appendix read."""

from __future__ import annotations

from flwr_dpkmeans.algorithms.budget.count_norms import count_norm
from flwr_dpkmeans.algorithms.budget.noise_kinds import ReleasePart
from flwr_dpkmeans.privacy.release import PrivacyUnit, Sensitivity
from flwr_dpkmeans.sums.public_facts import PublicFacts, ServerFacts

_NEAREST = "S7: one row is nearest to one server point (FedDP-KMeans, appendix E)"


def server_histogram(
    public: PublicFacts,
    facts: ServerFacts,
    share: float,
) -> list[ReleasePart]:
    """Number of rows nearest to each server point, (n_points,), as a release."""
    moved = Sensitivity(
        count_norm(public.config),
        1.0,
        PrivacyUnit.RECORD,
        _NEAREST,
        nonnegative=True,
    )
    return [
        ReleasePart(
            "weights",
            (facts.n_points,),
            moved,
            share,
            1.0,
        )
    ]
