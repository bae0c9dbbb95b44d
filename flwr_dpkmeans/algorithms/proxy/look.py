"""The same in several looks, each closer than the last."""

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
from flwr_dpkmeans.algorithms.proxy.location import CLIPPED_SQUARE, before_looks
from flwr_dpkmeans.algorithms.proxy.proxy_options import look_share
from flwr_dpkmeans.algorithms.proxy.proxy_space import length_of
from flwr_dpkmeans.algorithms.proxy.setting import Setting, as_length
from flwr_dpkmeans.algorithms.weighing import weighing
from flwr_dpkmeans.kernels.grid import round_to_grid
from flwr_dpkmeans.kernels.residual_sums import residual_sums
from flwr_dpkmeans.kmeans.folding import truncate
from flwr_dpkmeans.kmeans.proxies.distances import distance_counts, squared_edges
from flwr_dpkmeans.kmeans.proxies.ellipsoid import shrunk_centre
from flwr_dpkmeans.kmeans.proxies.noisy_distances import (
    MIDDLE_OF_BIN,
    binned_square,
    farther_if_likelier,
    farthest_heard,
)
from flwr_dpkmeans.kmeans.proxies.variances import axis_variance
from flwr_dpkmeans.privacy.release import ReleasedSum
from flwr_dpkmeans.sums.round import Array, PrivateSum, RowWeights, State

# mean squared length, in squared clip bounds, from which on it says only that rows lie
# beyond
_MOSTLY_CLIPPED = 0.9
_SAME_PLACE = 4.0
"""A histogram from a centre that moved counts on in bins so many steps away.

Their rows changed at most one bin.
"""


def look_round(setting: Setting, index: int) -> PlannedSum:
    """Look at where the data lie and how far they reach.

    From the centre and at the clip bound of the last look.
    """
    options = setting.options
    parts = setting.parts("look", look_share(options))
    n = setting.public.n_units
    d = setting.n_features
    edges = squared_edges(d)

    @setting.summing(parts)
    def statistic(
        rows: Array,
        state: State,
        weights: RowWeights | None = None,
    ) -> Sequence[Array]:
        centre, clip = state[CENTRE], length_of(state, CLIP)
        residuals = residual_sums(
            rows,
            np.zeros(len(rows), dtype=np.int32),
            centre[None, :],
            clip,
            1,
            weights=weights,
        )
        distances = distance_counts(rows, centre, weights)
        return [residuals.sums[0], residuals.squares, distances]

    def advance(state: State, released: ReleasedSum) -> State:
        clip, spread = length_of(state, CLIP), length_of(state, SPREAD)
        mean_noise, square_noise, bin_noise = (
            setting.noise(block) for block in released.blocks
        )
        if (
            index == 1
            and setting.public.server is not None
            and released["row_squares"][0] > CLIPPED_SQUARE * n
        ):
            # The rows are elsewhere than the server's points, which say no more where
            # to look.
            return state.changed(**before_looks(setting))
        error = mean_noise * clip / n
        offset = shrunk_centre(released["row_sums"] * (clip / n), error)
        moved = math.sqrt(math.fsum(np.square(offset)))
        averages, looks, _ = state[DISTANCES]
        averages = round_to_grid(
            averages + (released["row_distances"] - averages) / (looks + 1.0)
        )
        noise = bin_noise / np.sqrt(looks + 1.0)
        first = farthest_heard(averages / noise, options.audible_deviations)
        first = farther_if_likelier(
            first,
            averages,
            noise,
            n,
        )
        # The rows' mean square, and the deviation of its noise.
        square = float(released["row_squares"][0]) * clip**2 / n
        square_error = square_noise * clip**2 / n
        binned, binned_error = binned_square(
            averages[first:],
            noise[first:],
            edges[first:],
            n,
        )
        # Either may miss rows: a histogram those that it did not hear, of which a mean
        # square beyond its noise tells.
        agrees = square - binned <= math.hypot(square_error, binned_error)
        is_clipped = square > _MOSTLY_CLIPPED * clip**2
        if agrees and (is_clipped or binned_error < square_error):
            square, square_error = binned, binned_error
        else:
            # Of rows beyond the clip bound, the mean square knows the bound only.
            excess = np.maximum(edges[first:] - clip**2 / MIDDLE_OF_BIN, 0.0)
            beyond, beyond_error = binned_square(
                averages[first:],
                noise[first:],
                excess,
                n,
            )
            if beyond > options.audible_deviations * beyond_error:
                square = square + beyond
                square_error = math.hypot(square_error, beyond_error)
        variance, trusted = axis_variance(
            square,
            square_error,
            offset,
            error,
            spread**2 / d,
            length_of(state, SPREAD_ERROR) ** 4,
        )
        spread = math.sqrt(d * variance)
        looks = np.where(edges > (_SAME_PLACE * moved) ** 2, looks + 1.0, 0.0)
        noise_of_one = round_to_grid(np.full(len(looks), bin_noise))
        closer = options.look_clip * spread + 2.0 * error * math.sqrt(d)
        farthest_row = math.sqrt(float(edges[first])) + moved
        return state.changed(
            **{
                CENTRE: truncate(state[CENTRE] + offset),
                CLIP: as_length(min(clip, closer)),
                SPREAD: as_length(spread),
                EXTENT: as_length(min(farthest_row, setting.farthest)),
                SPREAD_ERROR: as_length(trusted**0.25),
                DISTANCES: np.stack([averages, looks, noise_of_one]),
            }
        )

    reads = (CENTRE, CLIP)
    return parts, PrivateSum(
        f"look-{index}",
        (),
        statistic,
        advance,
        None,
        reads,
        setting.admitting(reads),
        weighted=weighing(setting.unit, statistic),
    )
