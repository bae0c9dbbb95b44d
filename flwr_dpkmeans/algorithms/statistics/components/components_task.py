"""Principal components of all columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from flwr_dpkmeans.algorithms.budget.noise_budget import private_sums
from flwr_dpkmeans.algorithms.discovery.discovering_task import DiscoveringTask
from flwr_dpkmeans.algorithms.server.box_units import plan_bounds
from flwr_dpkmeans.algorithms.statistics.components.covariance_sums import (
    MEAN,
    PRODUCTS,
    REACH,
    ROWS,
    covariance_round,
    location_round,
)
from flwr_dpkmeans.algorithms.statistics.components.noisy_components import (
    NoisyComponents,
)
from flwr_dpkmeans.algorithms.statistics.moment_errors import of_means
from flwr_dpkmeans.algorithms.statistics.noise_errors import constant, noise_of
from flwr_dpkmeans.algorithms.statistics.one_round import noise_caution
from flwr_dpkmeans.errors import listed
from flwr_dpkmeans.kernels.grid import is_on_grid
from flwr_dpkmeans.kernels.outer_products import triangle_size
from flwr_dpkmeans.kernels.triangles import symmetric_from_triangle
from flwr_dpkmeans.privacy.release import PrivacyUnit
from flwr_dpkmeans.privacy.sentences import report_sentence
from flwr_dpkmeans.sums.option_rules import Options, flag, real, whole
from flwr_dpkmeans.sums.outcome import CountedRows, Result
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.public_facts import PublicFacts
from flwr_dpkmeans.sums.round import Algorithm, Array, PrivateSum, State

_MOST_NOISE = 0.1
_MOST_COMPONENTS = 10_000


@dataclass(frozen=True)
class PcaOptions(Options):
    """Options of principal components."""

    components: int | None = whole(
        None,
        1,
        2,
        "how many principal components; automatic: as many as columns",
        most=_MOST_COMPONENTS,
    )
    standardize: bool = flag(False, "divide columns by their released deviations")
    outreach: float = real(
        3.0,
        1.0,
        100.0,
        "3.0",
        "spreads from the mean beyond which rows are pulled back",
    )


@dataclass(frozen=True, kw_only=True)
class PcaTask(DiscoveringTask):
    """Principal components: a round of means and spreads, one of outer products.

    The state has the number of ``rows``, their ``mean`` in the box, the ``reach`` and
    the ``unit_outer_product`` in parts of it.
    """

    name = "pca"
    units = (PrivacyUnit.RECORD, PrivacyUnit.CLIENT)
    clips_clients = False
    options: PcaOptions = PcaOptions()

    def build(self, public: PublicFacts) -> Algorithm:
        """Two rounds, from nothing."""
        location = location_round(public, self.options.outreach)
        rounds = private_sums(public, [location, covariance_round(public)])
        return Algorithm(self.name, rounds, lambda *_: State({}))

    def admits(self, plan: Plan, step: PrivateSum | None, state: State) -> bool:
        """In the end just these arrays, on the grid."""
        if step is not None:
            return super().admits(plan, step, state)
        n_features = plan.n_features or 0
        shapes = {
            ROWS: (1,),
            MEAN: (n_features,),
            REACH: (1,),
            PRODUCTS: (triangle_size(n_features),),
        }
        arrays = state.arrays
        sent = {name: array.shape for name, array in arrays.items()}
        if sent != shapes:
            return False
        return all(map(is_on_grid, arrays.values()))

    def counted_rows(self, state: State) -> CountedRows | None:
        """All rows, which the first round counts."""
        return CountedRows("group_counts", float(state[ROWS][0]), 1)

    def cautions(self, plan: Plan) -> tuple[str, ...]:
        """Say so where the noise leaves hardly any rows."""
        return noise_caution(
            plan,
            1,
            "",
            _MOST_NOISE,
        )

    def doubts(self, plan: Plan, state: State, names: Sequence[str]) -> tuple[str, ...]:
        """Components whose variance noise alone could have."""
        n_known = self.components(plan, state).read().n_known
        n_shown = self._n_shown(plan.n_features or 0)
        unknown = range(n_known, n_shown)
        if not unknown:
            return ()
        numbers = listed(map(str, unknown))
        what = f"variance of component {numbers}"
        return (report_sentence("blurred", what=what),)

    def result(self, plan: Plan, state: State) -> Result:
        """``components``, (n_components, n_features), and ``explained_variance``.

        ``explained_variance_ratio``, ``angles`` in degrees, ``noise_floor``,
        ``n_known``, ``mean`` and ``scale``: components are of rows less the mean,
        divided by the scale, in the units of the data.
        """
        noisy = self.components(plan, state)
        read = noisy.read()
        n_features = len(noisy.scales)
        n_shown = self._n_shown(n_features)
        n_known = min(read.n_known, n_shown)
        variances = read.variances[:n_shown]
        of_variances = read.errors[:n_shown]
        clear = variances[:n_known]
        released = float(np.trace(noisy.scaled))
        total = max(
            released,
            float(clear.sum()),
            noisy.floor,
        )
        halves = self._halves(plan)
        bounds = plan_bounds(plan, n_features)
        noise = noise_of(plan)
        means = state[MEAN][None]
        (mean,) = bounds.unscale(means)
        (of_mean,) = of_means(means, state[ROWS], noise)
        arrays = {
            "components": read.directions[:n_shown],
            "explained_variance": variances,
            "explained_variance_error": of_variances,
            "explained_variance_ratio": variances / total,
            "angles": read.angles[:n_shown],
            "noise_floor": np.array([noisy.floor]),
            "n_known": np.array([float(n_known)]),
            "mean": mean,
            "scale": halves / noisy.scales,
            ROWS: state[ROWS],
        }
        of_shares = of_variances / total
        errors = {
            "explained_variance": of_variances,
            "explained_variance_ratio": np.minimum(of_shares, 1.0),
            "mean": of_mean * halves,
            ROWS: constant(state[ROWS], noise["group_counts"]),
        }
        return Result(arrays, errors, _AXES)

    def components(self, plan: Plan, state: State) -> NoisyComponents:
        """The released covariance, with the scales of its columns."""
        planned = plan.rounds[1]
        rows = max(1.0, float(state[ROWS][0]))
        area = float(state[REACH][0]) ** 2 / rows
        n_features = len(state[MEAN])
        products = symmetric_from_triangle(state[PRODUCTS], n_features)
        covariance = area * products
        noise = area * plan.released_std(planned, planned.blocks[0])
        scales = self._halves(plan)
        if self.options.standardize:
            # A column that is not told from noise gets no longer by it.
            variances = np.maximum(np.diag(covariance), 2.0 * noise)
            scales = 1.0 / np.sqrt(variances)
        return NoisyComponents(covariance, noise, scales)

    def _n_shown(self, n_features: int) -> int:
        wanted = self.options.components
        if wanted is None:
            return n_features
        return min(wanted, n_features)

    def _halves(self, plan: Plan) -> Array:
        """Half of the width of each column's bounds, (n_features,)."""
        bounds = plan_bounds(plan, plan.n_features or 0)
        lower = np.array(bounds.lower)
        upper = np.array(bounds.upper)
        return np.asarray((upper - lower) / 2.0)


_AXES: Mapping[str, tuple[str, ...]] = {
    "components": ("component", "column"),
    "explained_variance": ("component",),
    "explained_variance_ratio": ("component",),
    "angles": ("component",),
    "mean": ("column",),
    "scale": ("column",),
}
