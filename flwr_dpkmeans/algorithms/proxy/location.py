"""Where the data lie and how far they spread, in one round."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from flwr_dpkmeans.algorithms.budget.noise_budget import PlannedSum
from flwr_dpkmeans.algorithms.proxy.entries import (
    CENTRE,
    CLIP,
    DISTANCES,
    EXTENT,
    SPREAD,
    SPREAD_ERROR,
)
from flwr_dpkmeans.algorithms.proxy.setting import Setting, as_length
from flwr_dpkmeans.algorithms.weighing import weighing
from flwr_dpkmeans.kernels.residual_sums import residual_sums
from flwr_dpkmeans.kmeans.folding import truncate
from flwr_dpkmeans.kmeans.proxies.distances import N_DISTANCES
from flwr_dpkmeans.kmeans.proxies.ellipsoid import shrunk_centre
from flwr_dpkmeans.kmeans.proxies.variances import (
    PRIOR_SPREAD,
    PRIOR_VARIANCE,
    axis_variance,
)
from flwr_dpkmeans.privacy.release import ReleasedSum
from flwr_dpkmeans.sums.public_facts import ServerFacts
from flwr_dpkmeans.sums.round import Array, PrivateSum, RowWeights, State

# mean squared length, in squared clip bounds, from which on rows are nearly all clipped
CLIPPED_SQUARE = 0.8
# part of the prior variance that the spread is then at least, by how nearly
LEAST_EXPECTED = 0.25


def location_round(setting: Setting) -> PlannedSum:
    """Release where the data lie and how far they spread."""
    parts = setting.parts("location", 1.0)
    n, d = setting.public.n_units, setting.n_features
    first = before_looks(setting, setting.public.server)
    middle = first[CENTRE]
    clip = float(first[CLIP][0])
    expected = float(first[SPREAD][0]) ** 2 / d

    @setting.summing(parts)
    def statistic(
        rows: Array,
        state: State,
        weights: RowWeights | None = None,
    ) -> Sequence[Array]:
        residuals = residual_sums(
            rows,
            np.zeros(len(rows), dtype=np.int32),
            middle[None, :],
            clip,
            1,
            weights=weights,
        )
        return [residuals.sums[0], residuals.squares]

    def advance(state: State, released: ReleasedSum) -> State:
        mean_noise, square_noise = (
            setting.noise(block) / n for block in released.blocks
        )
        offset = shrunk_centre(released["row_sums"] * (clip / n), mean_noise * clip)
        square = float(released["row_squares"][0]) * clip**2 / n
        prior_variance = (PRIOR_SPREAD * expected) ** 2
        variance, _ = axis_variance(
            square,
            square_noise * clip**2,
            offset,
            mean_noise * clip,
            expected,
            prior_variance,
        )
        # Above 0 where nearly all rows are clipped: their lengths are alike and say
        # nothing of the spread.
        clipped = min((square / clip**2 - CLIPPED_SQUARE) / (1.0 - CLIPPED_SQUARE), 1.0)
        variance = max(variance, clipped * expected * LEAST_EXPECTED)
        spread, extent = as_length(math.sqrt(d * variance)), as_length(setting.farthest)
        return state.changed(
            **{CENTRE: truncate(middle + offset), SPREAD: spread, EXTENT: extent}
        )

    return parts, PrivateSum(
        "location",
        (),
        statistic,
        advance,
        weighted=weighing(setting.unit, statistic),
    )


def before_looks(
    setting: Setting, server: ServerFacts | None = None
) -> dict[str, Array]:
    """What the first look goes on from.

    The middle of the box or of the server's points, and no histogram.
    """
    d = setting.n_features
    middle, spread = np.zeros(d), math.sqrt(d * PRIOR_VARIANCE)
    clip = setting.options.look_clip * spread
    if server is not None:
        # The server's radius takes in nearly all of its points, so it stands for a
        # larger variance than theirs.
        middle = np.asarray(server.centre)
        clip = min(server.data_radius, setting.farthest)
        spread = clip
    return {
        CENTRE: truncate(middle),
        CLIP: as_length(clip),
        SPREAD: as_length(spread),
        EXTENT: as_length(setting.farthest),
        # The root of the standard deviation of the variance along an axis.
        SPREAD_ERROR: as_length(spread * math.sqrt(PRIOR_SPREAD / d)),
        # Average counts, of how many looks, and the noise of one.
        DISTANCES: np.zeros((3, N_DISTANCES)),
    }
