"""Radius and noise of FastLloyd, as its paper has them."""

from __future__ import annotations

import math

BOX_BOUND = 1.0
"""B: data live in [-B, B]^d."""


def cluster_radius(
    alpha: float,
    n_clusters: int,
    n_features: int,
) -> float:
    """Radius eta = alpha * beta / (2 k^(1/d)).

    With beta = 2 B sqrt(d) (equations 22-25).
    """
    diagonal = 2.0 * BOX_BOUND * math.sqrt(n_features)
    # Twelve digits, so that a pow that differs in its last digit does not make two
    # machines' states differ.
    return float(f"{alpha * diagonal / (2.0 * n_clusters ** (1.0 / n_features)):.12g}")


def split_multiplier(noise_multiplier: float, n_features: int) -> tuple[float, float]:
    """Split sigma into (sigma_R, sigma_C).

    1/sigma_R^2 + 1/sigma_C^2 = 1/sigma^2 (equation 7).
    """
    root = math.sqrt(4.0 * n_features)
    counts = noise_multiplier * math.sqrt(1.0 + root)
    return counts / math.sqrt(root), counts
