"""Clusters that are too close for the noise."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from flwr_dpkmeans.privacy.sentences import report_sentence
from flwr_dpkmeans.results.cautions.centre_noise import centre_noise
from flwr_dpkmeans.results.cautions.clear_centres import (
    Cautions,
    Radius,
    clear_clusters,
    distances_to_others,
)
from flwr_dpkmeans.results.cautions.sureness import APART

if TYPE_CHECKING:
    from flwr_dpkmeans.results.model import Model


def close_clusters(model: Model, radius: Radius = None) -> list[int]:
    """List clear clusters that are less than three times the noise from another one."""
    lengths = centre_noise(model, radius)
    clear = clear_clusters(model)
    if lengths is None or len(clear) < 2:
        return []
    noise = lengths[clear]
    distances = distances_to_others(model.scaled[clear])
    nearest = distances.argmin(axis=1)
    noise_of_pair = np.hypot(noise, noise[nearest])
    least = APART * noise_of_pair
    is_close = distances.min(axis=1) < least
    clusters: list[int] = clear[is_close].tolist()
    return clusters


def closeness_cautions(model: Model, radius: Radius = None) -> Cautions:
    """Warn of clusters that the noise may have made of one: so many were asked for."""
    clusters = close_clusters(model, radius)
    if not clusters:
        return ()
    sentence = report_sentence(
        "close",
        n=len(clusters),
        n_clusters=len(model.counts),
        listed=", ".join(map(str, clusters)),
    )
    return (sentence,)
