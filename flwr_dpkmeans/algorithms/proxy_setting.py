"""What all rounds of ProxyLloyd share: the setting, the unit of privacy, names in the state, checks of a state.

Record level: every row adds vectors of length at most 1, and N rows are summed. Client level: every client adds the
mean over its rows of the same vectors, clipped, and M clients are summed; a client of 10 rows weighs as much as one of
1,000.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from flwr_dpkmeans.algorithms.feddp_steps import SEED, state_extra
from flwr_dpkmeans.algorithms.noise_budget import ReleasePart
from flwr_dpkmeans.algorithms.proxy_plan import ProxyOptions, ProxyPlan, client_bounds
from flwr_dpkmeans.algorithms.received import is_near, is_projection, is_table
from flwr_dpkmeans.kmeans.clipping import clip_vector
from flwr_dpkmeans.kmeans.update import round_to_grid
from flwr_dpkmeans.privacy.release import Block, Norm, PrivacyUnit, Sensitivity
from flwr_dpkmeans.sums.round import Array, State
from flwr_dpkmeans.sums.task import Known

CENTRE = "centre"
SPREAD = "spread"
SUBSPACE_SPREAD = "subspace_spread"
AXES = "axes"
PROXIES = "proxies"
PROXY_RADIUS = "proxy_radius"
RADIUS = "radius"

_SMALLEST_RADIUS = 2.0**-12
_MEANS = (
    "S15: one client's {}, vectors of length at most 1, is scaled down to the bound, which follows from the declared "
    "examples_per_client (ProxyLloyd)"
)


@dataclass(frozen=True)
class Setting:
    """What all rounds of one run need to know.

    Parameters
    ----------
    public : Known
    plan : ProxyPlan
    options : ProxyOptions
    """

    public: Known
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
    def per_client(self) -> bool:
        """Whether one client, not one row, is protected."""
        return self.public.settings.unit is PrivacyUnit.CLIENT

    @property
    def n_units(self) -> float:
        """What the sums are taken over."""
        return self.public.n_units

    @property
    def middle(self) -> Array:
        """The public point that rows are seen from first: the server points' mean, else the middle of the box."""
        server = self.public.server
        return np.zeros(self.n_features) if server is None else np.asarray(server.centre)

    @property
    def reach(self) -> float:
        """The public distance from there at which rows are clipped first."""
        server = self.public.server
        box = self.options.location_clip * math.sqrt(self.n_features)
        return box if server is None else min(server.data_radius, 2.0 * math.sqrt(self.n_features))

    def noise(self, block: Block) -> float:
        """Standard deviation of a released entry, in the units of the statistic.

        Seven digits, as calibration searches for it and two machines' last digits may differ.
        """
        return float(np.float32(block.noise_scale * self.public.noise_factor))

    def generator(self, state: State, *place: int) -> np.random.Generator:
        """Public randomness of one step."""
        return np.random.default_rng([int(state_extra(state, SEED)[0]), *place])

    def part(
        self,
        name: str,
        shape: tuple[int, ...],
        weight: float,
        one_row: str,
        means: str,
        *,
        rounding: float = 0.0,
        nonnegative: bool = False,
    ) -> ReleasePart:
        """Describe an array with its share of the squared-GDP budget.

        One row adds a vector of length at most 1, because of `one_row`, and `rounding` where a client's sum is rounded;
        one client's `means` of such vectors are clipped to a bound of at most 1 and rounded toward zero.
        """
        if self.per_client:
            bound, because = client_bounds(self.public.config)[name], _MEANS.format(means)
        else:
            bound, because = 1.0 + rounding, one_row
        sensitivity = Sensitivity(Norm.L2, bound, self.public.settings.unit, because, nonnegative)
        return ReleasePart(name, shape, sensitivity, math.sqrt(weight), bound)

    def sent(self, arrays: Sequence[Array], n_rows: int, blocks: tuple[Block, ...]) -> list[Array]:
        """Turn sums over one client's rows into what it sends."""
        if not self.per_client:
            return list(arrays)
        pairs = zip(arrays, blocks, strict=True)
        return [clip_vector(array / max(1, n_rows), block.sensitivity.bound) for array, block in pairs]


def as_length(value: float) -> Array:
    """A length on the grid, as an array of the state."""
    return round_to_grid(np.array([max(value, _SMALLEST_RADIUS)]))


def admitting(setting: Setting, names: Sequence[str]) -> Callable[[State], bool]:
    """Return a round's `admits`, for the extras that its statistic reads."""
    return lambda state: admits(setting, names, state)


def admits(setting: Setting, names: Sequence[str], state: State) -> bool:
    """Whether what a server sent for a round lies on the grid and in the ranges where nearest proxies are exact.

    The bounds of the statistics hold for every state. Inside these ranges each row's label is also a function of that
    row alone, to the last bit.
    """
    d, plan = setting.n_features, setting.plan
    width = plan.n_components or d
    shapes: dict[str, tuple[int, ...]] = {
        CENTRE: (d,),
        SPREAD: (1,),
        PROXY_RADIUS: (1,),
        RADIUS: (1,),
        AXES: (d, width),
        PROXIES: (plan.n_proxies, width),
    }
    for name in names:
        if name not in state.extras:
            return False
        array = state.extras[name]
        fits = array.shape == shapes[name] if name in shapes else is_table(array, setting.n_clusters, width)
        if not fits or not (is_projection(array) if name == AXES else is_near(array, d)):
            return False
    return True
