"""The choice of k, by the first two rounds of FedDP-KMeans."""

from __future__ import annotations

import math
from dataclasses import dataclass

from flwr_dpkmeans.algorithms.budget.noise_shares import shared
from flwr_dpkmeans.algorithms.feddp.clipped_options import ClippedOptions
from flwr_dpkmeans.algorithms.feddp.on_server_points import OnServerPoints
from flwr_dpkmeans.algorithms.feddp.outer_product import outer_product_round
from flwr_dpkmeans.algorithms.feddp.server_weights import weights_round
from flwr_dpkmeans.algorithms.feddp.shares import budget_shares, clip_bound
from flwr_dpkmeans.errors import PlanError
from flwr_dpkmeans.sums.option_rules import flag, real, whole
from flwr_dpkmeans.sums.public_facts import PublicFacts
from flwr_dpkmeans.sums.round import Algorithm


@dataclass(frozen=True)
class ChooseKOptions(ClippedOptions):
    """Options of the first two rounds: weights of the server's points."""

    weight_threshold: float = real(
        3.0,
        -5e-324,
        math.inf,
        "1.5",
        "weights of fewer noise deviations are dropped, except the largest 40%",
    )
    n_init: int = whole(
        20,
        1,
        20,
        "restarts of k-means on the server points",
        most=10_000,
    )
    server_prior: bool = flag(
        True,
        "let the server points' own outer product support the noisy one; False: the"
        " released one alone",
    )
    outer_product_bound: float | None = clip_bound(
        "1500.0", "norm of a unit's outer product"
    )
    weights_bound: float | None = clip_bound("1.0", "norm of a client's histogram")


@dataclass(frozen=True, kw_only=True)
class FedDPChooseKTask(OnServerPoints):
    """The first two rounds alone, on the whole budget.

    The cost curve over k and its elbow (appendix H.3).
    """

    name = "feddp_choose_k"
    chooses = starts_private = True
    options: ChooseKOptions = ChooseKOptions()

    def build(self, public: PublicFacts) -> Algorithm:
        """Project, then weigh the server points: k follows from their cost curve."""
        facts = self.facts(public)
        if not self.choose_n_clusters:
            raise PlanError(
                "'feddp_choose_k' looks for the number of clusters: give"
                " n_clusters='auto'."
            )
        outer, weights = shared(budget_shares(public)[:2], 1.0, self.options.noise_kind)
        rounds = [
            outer_product_round(public, facts, outer),
            weights_round(public, facts, weights),
        ]
        return self.of_rounds(public, facts, rounds)
