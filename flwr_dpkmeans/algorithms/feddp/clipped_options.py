"""What all algorithms on FedDP-KMeans' rounds can be told."""

from __future__ import annotations

from dataclasses import dataclass

from flwr_dpkmeans.algorithms.budget.noise_kinds import NoiseFamily
from flwr_dpkmeans.algorithms.feddp.shares import (
    clip_bound,
    require_shares,
)
from flwr_dpkmeans.sums.option_rules import Options, as_numbers, choice, option


@dataclass(frozen=True)
class ClippedOptions(Options):
    """What all algorithms on FedDP-KMeans' rounds have.

    Bounds are relative to the server points' mean.
    """

    noise_kind: NoiseFamily = choice(
        NoiseFamily,
        NoiseFamily.GAUSSIAN,
        "noise of sums, histograms and counts",
    )
    budget_shares: tuple[float, ...] | None = option(
        None,
        require_shares,
        "shares of outer product, weights, sums, counts; automatic: the paper's rule of"
        " thumb for the unit",
        as_numbers,
    )
    data_radius: float | None = clip_bound("11.0", "norm that rows are clipped to")
