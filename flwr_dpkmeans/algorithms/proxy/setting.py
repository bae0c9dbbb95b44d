"""What all rounds of one run need to know."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from flwr_dpkmeans.algorithms.budget.noise_kinds import ReleasePart
from flwr_dpkmeans.algorithms.feddp.outer_product import outer_product_rounding
from flwr_dpkmeans.algorithms.proxy.entries import (
    AXES,
    CENTRE,
    CLIP,
    PROXIES,
    PROXY_RADIUS,
    RADIUS,
    SPREAD,
)
from flwr_dpkmeans.algorithms.proxy.proxy_options import ProxyOptions
from flwr_dpkmeans.algorithms.proxy.proxy_plan import ProxyPlan
from flwr_dpkmeans.algorithms.proxy.summed import ROUNDS, client_bounds
from flwr_dpkmeans.algorithms.states.cluster_states import seed_of
from flwr_dpkmeans.algorithms.states.state_arrays import is_table
from flwr_dpkmeans.algorithms.states.state_geometry import is_near, is_projection
from flwr_dpkmeans.algorithms.weighing import Weighable
from flwr_dpkmeans.kernels.block_sums import in_blocks
from flwr_dpkmeans.kernels.grid import round_to_grid
from flwr_dpkmeans.kernels.vector_clipping import clip_vector
from flwr_dpkmeans.privacy.release import Block, Norm, PrivacyUnit, Sensitivity
from flwr_dpkmeans.sums.public_facts import PublicFacts
from flwr_dpkmeans.sums.round import Array, RowWeights, State

_SMALLEST_RADIUS = 2.0**-15
_MEANS = (
    "S15: one client's {}, vectors of length at most 1, is scaled down to the bound,"
    " which follows from the declared examples_per_client (ProxyLloyd)"
)


@dataclass(frozen=True)
class Setting:
    """What all rounds of one run need to know."""

    public: PublicFacts
    plan: ProxyPlan
    options: ProxyOptions

    @property
    def n_clusters(self) -> int:
        """k, or the largest one that may be chosen."""
        return int(self.public.config.n_clusters)

    @property
    def n_features(self) -> int:
        """d."""
        return self.public.n_features

    @property
    def n_radii(self) -> int:
        """Radii of a refinement.

        One for each cluster where noise is so small that they are widened, else summed.
        """
        return self.n_clusters if self.plan.widening > 1.0 else 1

    @property
    def unit(self) -> PrivacyUnit:
        """What is protected."""
        return self.public.settings.unit

    @property
    def per_client(self) -> bool:
        """Whether one client, not one row, is protected."""
        return self.unit is PrivacyUnit.CLIENT

    @property
    def farthest(self) -> float:
        """Largest distance of two points of the box."""
        return 2.0 * math.sqrt(self.n_features)

    @property
    def in_subspace(self) -> bool:
        """Whether proxies live on some axes only."""
        return self.plan.n_components is not None

    def noise(self, block: Block) -> float:
        """Standard deviation of a released entry, in the units of the statistic.

        Seven digits, as calibration searches for it and two machines' last digits may
        differ.
        """
        return float(np.float32(self.public.released_std(block)))

    def generator(self, state: State, *index: int) -> np.random.Generator:
        """Public randomness of one step."""
        return np.random.default_rng([seed_of(state), *index])

    def parts(
        self,
        name: str,
        whole: float = 0.0,
    ) -> list[ReleasePart]:
        """What one round of a kind releases.

        The table's arrays, with the sensitivity of the run's unit.
        """
        parts = []
        for summed in ROUNDS[name]:
            shape = summed.shape(self)
            if self.per_client:
                bound = client_bounds(self.public.config)[summed.name]
                because = _MEANS.format(summed.one_client)
            else:
                rounding = 0.0
                if summed.sum_is_rounded:
                    rounding = outer_product_rounding(math.prod(shape))
                # Divided by its radius before it is summed: 1, whatever an earlier
                # release made it (S11-S14, S35).
                bound = 1.0 + rounding
                because = summed.one_row
            moved = Sensitivity(
                Norm.L2,
                bound,
                self.public.settings.unit.bounded,
                because,
                summed.nonnegative,
            )
            parts.append(
                ReleasePart(
                    summed.name,
                    shape,
                    moved,
                    math.sqrt(summed.share(self.options, whole)),
                    bound,
                )
            )
        return parts

    def summing(self, parts: Sequence[ReleasePart]) -> Callable[[Weighable], Weighable]:
        """Decorate ``statistic(rows, state, weights) -> arrays``.

        It sees one block after another, and the sum is made ready.
        """

        def decorate(of_block: Weighable) -> Weighable:
            summed = in_blocks(of_block)

            def statistic(
                points: Array,
                state: State,
                weights: RowWeights | None = None,
            ) -> Sequence[Array]:
                return self.sent(summed(points, state, weights), len(points), parts)

            return statistic

        return decorate

    def sent(
        self,
        arrays: Sequence[Array],
        n_rows: int,
        parts: Sequence[ReleasePart],
    ) -> list[Array]:
        """Turn sums over one client's rows into what it sends."""
        if not self.per_client:
            return list(arrays)
        pairs = zip(arrays, parts, strict=True)
        return [
            clip_vector(array / max(1, n_rows), part.sensitivity.bound)
            for array, part in pairs
        ]

    def admitting(self, names: Sequence[str]) -> Callable[[State], bool]:
        """Whether what a server sent for a round is exact.

        It lies on the grid and in the ranges where nearest proxies are exact.

        The bounds of the statistics hold for every state. Inside these ranges each
        row's label is also a function of that row alone, to the last bit.
        """
        d, k, n_proxies = self.n_features, self.n_clusters, self.plan.n_proxies
        width = self.plan.n_components or d
        shapes: dict[str, tuple[int, ...]] = {
            CENTRE: (d,),
            AXES: (d, width),
            PROXIES: (n_proxies, width),
        }
        shapes |= {
            PROXY_RADIUS: (n_proxies,),
            RADIUS: (self.n_radii,),
            CLIP: (1,),
            SPREAD: (1,),
        }

        def fits(name: str, array: Array) -> bool:
            shaped = (
                array.shape == shapes[name]
                if name in shapes
                else is_table(array, k, width)
            )
            # Each radius is a length of its own.
            points = (
                array[:, None] if shaped and name in (PROXY_RADIUS, RADIUS) else array
            )
            return shaped and (
                is_projection(points) if name == AXES else is_near(points, d)
            )

        return lambda state: all(
            name in state.arrays and fits(name, state.arrays[name]) for name in names
        )


def as_length(value: float | Array) -> Array:
    """A length, or several, on the grid, as an array of the state."""
    return round_to_grid(np.maximum(np.atleast_1d(value), _SMALLEST_RADIUS))
