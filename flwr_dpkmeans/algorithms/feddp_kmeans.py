"""FedDP-KMeans (Scott, Lampert, Saulpic, ICML 2025): a private start from server-held data, then DP-Lloyd.

Rounds: outer product -> weights -> centers -> Lloyd x T. Also the choice of k from the first two alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from flwr_dpkmeans.algorithms.feddp_steps import (
    centers_parts,
    centers_round,
    lloyd_round,
    outer_product_part,
    outer_product_round,
    server_state,
    weights_part,
    weights_round,
)
from flwr_dpkmeans.algorithms.kmeans_task import KMeansTask
from flwr_dpkmeans.algorithms.noise_budget import NoiseFamily, ReleasePart, allocate, shared
from flwr_dpkmeans.errors import ConfigurationError, PlanError
from flwr_dpkmeans.privacy.release import PrivacyUnit
from flwr_dpkmeans.sums.round import Algorithm, Array, InitialState, State
from flwr_dpkmeans.sums.settings import Options, choice, flag, is_finite, option, real, whole
from flwr_dpkmeans.sums.task import Known, ServerData, ServerFacts

RULE_OF_THUMB = {
    PrivacyUnit.RECORD: (0.2, 0.2, 0.45, 0.15),
    PrivacyUnit.CLIENT: (0.35, 0.1, 0.45, 0.1),
}
"""Budget shares of outer product, weights, sums and counts (appendix H.1)."""
DEFAULT_LLOYD_ROUNDS = 0
"""In most Pareto-optimal runs of the paper no Lloyd round followed the start (appendix H.1, Tables 4 and 5)."""


def as_shares(value: object) -> object:
    """Accept a sequence of numbers, or a string of numbers with commas, as budget shares."""
    parts = value.split(",") if isinstance(value, str) else value
    try:
        return tuple(float(part) for part in parts)  # type: ignore[attr-defined]
    except (TypeError, ValueError):
        return value


def require_shares(name: str, shares: object) -> None:
    """One sentence for budget shares that are not four positive numbers."""
    usable = isinstance(shares, tuple) and len(shares) == 4 and all(is_finite(s) and s > 0.0 for s in shares)
    if not usable:
        raise ConfigurationError(
            f"{name} are {shares!r}, but they must be four positive numbers (outer product, weights, sums, "
            "counts): give (0.2, 0.2, 0.45, 0.15)."
        )


def clip_bound(example: str, about: str) -> Any:
    """A clip bound that follows from server data unless it is given."""
    return real(None, 0.0, math.inf, example, f"{about}, in the caller's units; automatic: from server data")


@dataclass(frozen=True)
class ClippedOptions(Options):
    """What all algorithms on FedDP-KMeans' rounds have; bounds are relative to the server points' mean."""

    noise_kind: NoiseFamily = choice(NoiseFamily, NoiseFamily.GAUSSIAN, "noise of sums, histograms and counts")
    budget_shares: tuple[float, ...] | None = option(
        None,
        require_shares,
        "shares of outer product, weights, sums, counts; automatic: the paper's rule of thumb for the unit",
        as_shares,
    )
    data_radius: float | None = clip_bound("11.0", "norm that rows are clipped to")


@dataclass(frozen=True)
class ChooseKOptions(ClippedOptions):
    """Options of the first two rounds: weights of the server's points."""

    weight_threshold: float = real(
        3.0,
        -5e-324,
        math.inf,
        "1.5",
        "weights below so many standard deviations of their noise are dropped, except the largest 40%",
    )
    n_init: int = whole(20, 1, 20, "restarts of k-means on the server points", most=10_000)
    server_prior: bool = flag(
        True, "let the server points' own outer product support the noisy one; False: the released one alone"
    )
    outer_product_bound: float | None = clip_bound("1500.0", "norm of a unit's outer product")
    weights_bound: float | None = clip_bound("1.0", "norm of a client's histogram")


@dataclass(frozen=True)
class FedDPKMeansOptions(ChooseKOptions):
    """Options of FedDP-KMeans."""

    max_iter: int | None = whole(None, 0, 5, "Lloyd rounds after the start; automatic: none", most=1_000)
    lloyd_share: float = real(
        0.3,
        0.0,
        1.0,
        "0.3",
        # Not refused where there are none, since ``start(num_rounds=...)`` may still ask for some.
        "share of the budget that all Lloyd rounds together take, if there are any",
    )
    margin: float = real(
        1.0,
        0.0,
        math.inf,
        "1.0",
        "rows whose distances to the two nearest centres have a larger ratio are left out; 1 keeps all",
    )
    means_bound: float | None = clip_bound("21.0", "norm of a client's cluster means")
    indicators_bound: float | None = clip_bound("10.0", "norm of a client's list of clusters")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.margin > 1.0:
            raise ConfigurationError(
                f"margin is {self.margin:g}, but a nearest distance is at most the second one: give 1.0 or less."
            )


class _FromServerData(KMeansTask):
    """What both tasks are."""

    units = tuple(PrivacyUnit)
    server_data = ServerData.NEEDED
    trust = "distributed"
    chooses = starts_private = True


@dataclass(frozen=True, kw_only=True)
class FedDPKMeans(_FromServerData):
    """FedDP-KMeans as a task."""

    name = "feddp_kmeans"
    title = "FedDP-KMeans (Scott, Lampert, Saulpic 2025): start from server data"
    options: FedDPKMeansOptions = FedDPKMeansOptions()

    def build(self, known: Known) -> Algorithm:
        """FedDP-KMeans as a list of 3 + T private sums; a `PlanError` if the server has no points.

        The rounds release ``outer_product``, ``weights``, and ``clipped_sums`` with ``counts`` (record level) or
        ``means`` with ``indicators`` (client level).
        """
        facts, options = _facts(known), known.options
        n_lloyd = options.max_iter if options.max_iter is not None else DEFAULT_LLOYD_ROUNDS
        lloyd_total = options.lloyd_share if n_lloyd else 0.0
        shares = shared(budget_shares(known), 1.0 - lloyd_total, options.noise_kind)
        parts: list[list[ReleasePart]] = [
            [outer_product_part(known, facts, shares[0])],
            [weights_part(known, facts, shares[1])],
            centers_parts(known, facts, *shares[2:]),
            *lloyd_parts(known, facts, lloyd_total, n_lloyd),
        ]
        outer, weights, centers, *lloyd = allocate(known, parts, options.noise_kind)
        rounds = (
            outer_product_round(known, facts, outer),
            weights_round(known, facts, weights),
            centers_round(known, facts, centers),
            *(lloyd_round(known, facts, blocks, index) for index, blocks in enumerate(lloyd, start=1)),
        )
        return Algorithm("feddp_kmeans", rounds, empty_state(known, facts))


@dataclass(frozen=True, kw_only=True)
class FedDPChooseK(_FromServerData):
    """The choice of k alone as a task."""

    name = "feddp_choose_k"
    title = "FedDP-KMeans' first two steps: the cost curve over k"
    options: ChooseKOptions = ChooseKOptions()

    def build(self, known: Known) -> Algorithm:
        """The first two rounds alone, on the whole budget: the cost curve over k and its elbow (appendix H.3)."""
        facts = _facts(known)
        if not known.config.choose_n_clusters:
            raise PlanError("'feddp_choose_k' looks for the number of clusters: give n_clusters='auto'.")
        shares = shared(budget_shares(known)[:2], 1.0, known.options.noise_kind)
        outer, weights = allocate(
            known,
            [[outer_product_part(known, facts, shares[0])], [weights_part(known, facts, shares[1])]],
            known.options.noise_kind,
        )
        rounds = (outer_product_round(known, facts, outer), weights_round(known, facts, weights))
        return Algorithm("feddp_choose_k", rounds, empty_state(known, facts))


def budget_shares(public: Known) -> tuple[float, ...]:
    """Shares as configured, or the paper's rule of thumb for the unit."""
    shares: tuple[float, ...] | None = public.options.budget_shares
    return shares or RULE_OF_THUMB[public.settings.unit]


def lloyd_parts(public: Known, facts: ServerFacts, total: float, n_rounds: int) -> list[list[ReleasePart]]:
    """T equal Lloyd rounds that take `total` of the budget together, split as the centers round is."""
    if n_rounds == 0:
        return []
    sums, counts = shared(budget_shares(public)[2:], total / n_rounds, public.options.noise_kind)
    return [centers_parts(public, facts, sums, counts) for _ in range(n_rounds)]


def empty_state(public: Known, facts: ServerFacts) -> InitialState:
    """Start without centroids: the server's points only."""

    def initial_state(seed: int, server_points: Array | None = None, /) -> State:
        nothing = np.zeros((public.config.n_clusters, public.n_features))
        return server_state(nothing, facts, seed, server_points)

    return initial_state


def _facts(public: Known) -> ServerFacts:
    """What follows from the server's points, which this algorithm needs."""
    if public.server is None or public.server.n_points == 0:
        raise PlanError(f"{public.config.algorithm!r} starts from the server's own points: give server_data.")
    return public.server
