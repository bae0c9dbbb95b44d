"""FedDP-KMeans itself."""

from __future__ import annotations

import math
from dataclasses import dataclass

from flwr_dpkmeans.algorithms.budget.noise_kinds import NoiseSchedule
from flwr_dpkmeans.algorithms.budget.noise_shares import shared
from flwr_dpkmeans.algorithms.budget.round_options import (
    noise_schedule_option,
    tolerance_option,
)
from flwr_dpkmeans.algorithms.feddp.appendix.parting import parting_round
from flwr_dpkmeans.algorithms.feddp.appendix.separation import (
    QUARTER,
    require_known,
    separation_cautions,
)
from flwr_dpkmeans.algorithms.feddp.appendix.simplification import simplify_rounds
from flwr_dpkmeans.algorithms.feddp.choose_k import ChooseKOptions
from flwr_dpkmeans.algorithms.feddp.on_server_points import OnServerPoints
from flwr_dpkmeans.algorithms.feddp.outer_product import outer_product_round
from flwr_dpkmeans.algorithms.feddp.projected_centers import centers_round, lloyd_rounds
from flwr_dpkmeans.algorithms.feddp.server_weights import weights_round
from flwr_dpkmeans.algorithms.feddp.shares import (
    budget_shares,
    clip_bound,
    counts_bound_option,
    sums_bound_option,
)
from flwr_dpkmeans.errors import ConfigurationError
from flwr_dpkmeans.sums.option_rules import flag, real, whole
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.public_facts import PublicFacts
from flwr_dpkmeans.sums.round import Algorithm
from flwr_dpkmeans.sums.settings import Settings

DEFAULT_LLOYD_ROUNDS = 0
"""In most Pareto-optimal runs of the paper no Lloyd round followed the start (appendix
H.1, Tables 4 and 5).
"""


@dataclass(frozen=True)
class FedDPKMeansOptions(ChooseKOptions):
    """Options of FedDP-KMeans."""

    max_iter: int | None = whole(
        None,
        0,
        5,
        "Lloyd rounds after the start; automatic: none",
        most=1_000,
    )
    # Not refused where there are no rounds, since ``start(num_rounds=...)`` may still
    # ask for some.
    lloyd_share: float = real(
        0.3,
        0.0,
        1.0,
        "0.3",
        "share of the budget that all Lloyd rounds together take, if there are any",
    )
    margin: float = real(
        1.0,
        0.0,
        math.inf,
        "1.0",
        "largest ratio of a row's distances to its two nearest centres; 1 keeps all"
        " rows",
    )
    reduce_diameter: bool = flag(
        False,
        "bring parts of the data that server points show to be far apart nearer to each"
        " other (Lemma 17)",
    )
    simplify_server_data: bool = flag(
        False,
        "halve server points that few rows are near to, over and over, before they are"
        " weighed (Algorithm 4)",
    )
    least_weight: float | None = real(
        None,
        1e-9,
        1.0,
        "0.1",
        "w_min, the smallest cluster's part of the rows, publicly known: these two"
        " need it",
    )
    deviation: float | None = real(
        None,
        0.0,
        math.inf,
        "0.5",
        "sigma_max, largest of a cluster in any direction, which Lemma 17 needs as"
        " well",
    )
    means_bound: float | None = clip_bound("21.0", "norm of a client's cluster means")
    indicators_bound: float | None = clip_bound(
        "10.0", "norm of a client's list of clusters"
    )
    sums_bound: float | None = sums_bound_option()
    counts_bound: float | None = counts_bound_option()
    noise_schedule: NoiseSchedule = noise_schedule_option()
    tolerance: float | None = tolerance_option()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.margin > 1.0:
            raise ConfigurationError(
                f"margin is {self.margin:g}, but a nearest distance is at most the"
                " second one: give 1.0 or less."
            )


@dataclass(frozen=True, kw_only=True)
class FedDPKMeansTask(OnServerPoints):
    """FedDP-KMeans (Scott, Lampert, Saulpic 2025), from server data.

    3 + T private sums.
    """

    name = "feddp_kmeans"
    chooses = starts_private = True
    options: FedDPKMeansOptions = FedDPKMeansOptions()

    def build(self, public: PublicFacts) -> Algorithm:
        """Three steps, then Lloyd rounds, with the appendix's steps before them."""
        facts, rounds = self.facts(public), self.options.max_iter
        n_lloyd = DEFAULT_LLOYD_ROUNDS if rounds is None else rounds
        lloyd_total = self.options.lloyd_share if n_lloyd else 0.0
        start, kind = 1.0 - lloyd_total, self.options.noise_kind
        parted, simplified = (
            self.options.reduce_diameter,
            self.options.simplify_server_data,
        )
        part = QUARTER * start
        outer, weights, *centers = shared(
            budget_shares(public), start - part * (parted + simplified), kind
        )
        weighed = weights_round(public, facts, weights)
        rounds_of_start = [
            outer_product_round(public, facts, outer),
            weighed,
            centers_round(public, facts, *centers),
        ]
        if simplified:
            rounds_of_start[1:1] = simplify_rounds(
                public,
                facts,
                part,
                weighed[1],
            )
        if parted:
            (share,) = shared((1.0,), part, kind)
            rounds_of_start[:0] = [parting_round(public, facts, share)]
        return self.of_rounds(
            public,
            facts,
            rounds_of_start
            + lloyd_rounds(
                public,
                facts,
                lloyd_total,
                n_lloyd,
            ),
        )

    def cautions(self, plan: Plan) -> tuple[str, ...]:
        """Say besides what public numbers say against the appendix's steps."""
        return *super().cautions(plan), *separation_cautions(plan)

    def check(self, settings: Settings) -> None:
        """Refuse steps of the appendix without the public numbers that they need."""
        super().check(settings)
        require_known(self.options, settings)

    def server_points_words(self, plan: Plan) -> str:
        """Say that points are sent where clients need them, else that they stay."""
        if self.options.reduce_diameter:
            return (
                "are sent to every client, which takes its rows to the nearest of them"
                " (reduce_diameter)"
            )
        return super().server_points_words(plan)
