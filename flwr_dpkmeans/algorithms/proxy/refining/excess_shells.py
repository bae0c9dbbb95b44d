"""Shells beyond the radii, and what the last refinement cuts off."""

from __future__ import annotations

import numpy as np

from flwr_dpkmeans.algorithms.proxy.entries import RADIUS
from flwr_dpkmeans.algorithms.proxy.setting import Setting
from flwr_dpkmeans.algorithms.proxy.summed import EXCESS
from flwr_dpkmeans.kmeans.tails import beyond_radius, shell_lengths
from flwr_dpkmeans.privacy.release import ReleasedSum
from flwr_dpkmeans.sums.round import Array, State


def shells_of(setting: Setting, state: State) -> tuple[Array, Array]:
    """Radius, (k,), and lengths of shells, (k, n_shells).

    Of the clusters that there are.
    """
    radii = np.resize(state[RADIUS], len(state.centroids))
    return radii, shell_lengths(radii, setting.plan.n_shells, setting.farthest)


def cut_off(
    setting: Setting,
    state: State,
    released: ReleasedSum,
    counts: Array,
    fullness: Array,
) -> tuple[Array, Array]:
    """What the pulled residuals lack, (k, d), and its deviation.

    `fullness` is the root mean square of these residuals, in radii, (k,).
    """
    block = next(block for block in released.blocks if block.name == EXCESS)
    _, lengths = shells_of(setting, state)
    sums = released[EXCESS][: len(lengths)].reshape(*lengths.shape, setting.n_features)
    return beyond_radius(
        sums,
        lengths,
        counts,
        setting.noise(block),
        fullness,
    )
