"""The norm that counts of clusters are bounded in."""

from __future__ import annotations

from flwr_dpkmeans.algorithms.budget.noise_kinds import NoiseFamily
from flwr_dpkmeans.privacy.release import Norm
from flwr_dpkmeans.sums.config import RunConfig


def count_norm(config: RunConfig) -> Norm:
    """Norm of histograms, counts and indicators.

    That of their noise, which is Laplace in the paper's mixture.
    """
    return (
        Norm.L1
        if getattr(config.task.options, "noise_kind", None) is NoiseFamily.PAPER
        else Norm.L2
    )


def count_order(config: RunConfig) -> int:
    """The same as a number."""
    return 1 if count_norm(config) is Norm.L1 else 2
