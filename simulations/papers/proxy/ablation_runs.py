"""What `simulations.papers.proxy.ablation` runs: variants of ProxyLloyd, data sets, and
fits in process with seeded noise.

The noise is seeded and costs are exact, so these runs protect nobody.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.algorithms.lookup import clusterings
from flwr_dpkmeans.algorithms.proxy.proxy_lloyd import build
from flwr_dpkmeans.algorithms.proxy.proxy_options import ProxyOptions
from flwr_dpkmeans.data.simulated.mixture import MIXTURE_BOUNDS
from flwr_dpkmeans.kernels.grid import round_to_grid
from flwr_dpkmeans.kmeans.cost import cost_per_point
from flwr_dpkmeans.kmeans.proxies.variances import PRIOR_VARIANCE
from flwr_dpkmeans.options import own_options, read_config
from flwr_dpkmeans.privacy.closeness import SAME
from flwr_dpkmeans.privacy.noise import NoiseKind, NoiseSource, noise_source
from flwr_dpkmeans.privacy.release import Block, ReleasedSum, as_released, draw_noise
from flwr_dpkmeans.secagg.ring import FRACTION_BITS, encode
from flwr_dpkmeans.sums.public_facts import PublicFacts
from flwr_dpkmeans.sums.round import Algorithm, State
from flwr_dpkmeans.threads import one_thread
from simulations.papers.fastlloyd.utility import load_scaled
from simulations.sources.mixture import draw_gaussian_mixture

Array = NDArray[np.float64]

FASTLLOYD = "FastLloyd"
ALL = "all"
MIXTURE = "mixture"
"""Name of the generated set: the FedDP-KMeans paper's Gaussians in 100 dimensions, k of
them.
"""
_MIXTURE_SEED = 0
_NOTHING = 1e-9
"""A share of the budget that is as good as none: shares must be above 0."""


@dataclass(frozen=True)
class Variant:
    """ProxyLloyd with one ingredient changed.

    Parameters
    ----------
    meaning : str
        What is changed.
    options : ProxyOptions
        With that change.
    zeroed : tuple of str
        Released arrays that are replaced by zeros: the prior remains, not a guess from
        noise alone.
    wide_only : bool
        Without effect where proxies live in the whole space.
    """

    meaning: str
    options: ProxyOptions
    zeroed: tuple[str, ...] = ()
    wide_only: bool = False


VARIANTS: Mapping[str, Variant] = MappingProxyType(
    {
        ALL: Variant("the defaults", ProxyOptions()),
        "rows dropped": Variant(
            "rows beyond the radius are dropped, not clipped", ProxyOptions(clips=False)
        ),
        "fixed radius": Variant(
            "the first radius stays", ProxyOptions(residual_share=_NOTHING)
        ),
        # alpha * sqrt(d) where the ellipsoid's spread is the prior's, sqrt(d * 0.2).
        "paper radius": Variant(
            "FastLloyd's radius, fixed",
            ProxyOptions(
                cluster_clip=0.8 / math.sqrt(PRIOR_VARIANCE),
                residual_share=_NOTHING,
                audible_noise=0.0,
            ),
        ),
        "no proxies": Variant(
            "the start is spread over the ellipsoid",
            ProxyOptions(rows_per_proxy=math.inf, few_proxies=0.0),
        ),
        "no looks": Variant(
            "one location round at a fixed clip bound",
            ProxyOptions(least_zoom=math.inf),
        ),
        "no few proxies": Variant(
            "no proxies where each has few rows", ProxyOptions(few_proxies=0.0)
        ),
        "no cover": Variant(
            "proxies over the ellipsoid only, and no second pass of narrow tables",
            ProxyOptions(proxies_per_column=math.inf),
        ),
        "no far proxies": Variant(
            "no proxies beyond the rows that are heard", ProxyOptions(far_share=0.0)
        ),
        "none unheard": Variant(
            "rows that no proxy hears have no weight", ProxyOptions(unheard_times=0.0)
        ),
        "noisy weights": Variant(
            "proxies are weighed by their noisy counts",
            ProxyOptions(weighs_likely=False),
        ),
        "no shrinkage": Variant(
            "steps are nearly noisy quotients", ProxyOptions(least_tau=1.0)
        ),
        "proxies as points": Variant(
            "rows lie on few proxies, not around",
            ProxyOptions(most_scattered_features=0),
        ),
        "counts alone": Variant(
            "noisy counts need not add up to all rows", ProxyOptions(adds_up=False)
        ),
        "counts apart": Variant(
            "noisy counts are not pulled toward their mean", ProxyOptions(pulls=False)
        ),
        "empty clusters stay": Variant(
            "no cluster is split by a centroid without rows", ProxyOptions(splits=False)
        ),
        "no ellipsoid": Variant(
            "centre, spread and axes are the prior's",
            ProxyOptions(
                location_share=_NOTHING, squares_share=_NOTHING, least_zoom=math.inf
            ),
            ("row_sums", "row_squares", "unit_outer_product"),
        ),
        "not widened": Variant(
            "radii do not grow where noise is next to nothing",
            ProxyOptions(audible_noise=0.0),
        ),
        "T = 2": Variant("two refinements", ProxyOptions(refinements=2)),
        "one pass": Variant(
            "one pass over proxies", ProxyOptions(subspace_passes=1), wide_only=True
        ),
        "4 axes": Variant(
            "proxies live on at most 4 axes",
            ProxyOptions(most_components=4),
            wide_only=True,
        ),
        "30 axes": Variant(
            "proxies live on at most 30 axes",
            ProxyOptions(most_components=30),
            wide_only=True,
        ),
    }
)


@dataclass(frozen=True)
class DataSet:
    """A table and its number of clusters.

    Parameters
    ----------
    name : str
        For the table.
    source : str
        Bundled name, path, or "mixture".
    n_clusters : int
        k.
    rows : int
        Of the generated mixture.
    """

    name: str
    source: str
    n_clusters: int
    rows: int = 0


@dataclass(frozen=True)
class Job:
    """Fits of one variant at one epsilon.

    Parameters
    ----------
    data : DataSet
    variant : str
        A key of `VARIANTS`, or "FastLloyd".
    epsilon : float
        Total.
    seeds : tuple of int
        Of start and noise.
    """

    data: DataSet
    variant: str
    epsilon: float
    seeds: tuple[int, ...]


@lru_cache(maxsize=2)
def points_of(data: DataSet) -> Array:
    """Rows in the box [-1, 1]^d on the grid.

    Columns are scaled by their own range (not private) or public bounds.
    """
    if data.source == MIXTURE:
        return round_to_grid(MIXTURE_BOUNDS.scale(_mixture(data)[0]))
    return round_to_grid(load_scaled(data.source))


def _mixture(data: DataSet) -> tuple[Array, Array]:
    """Rows of the generated mixture and its means."""
    generator = np.random.default_rng(_MIXTURE_SEED)
    drawn = draw_gaussian_mixture(
        generator,
        n_clients=1,
        points_per_client=data.rows,
        n_components=data.n_clusters,
        n_features=100,
    )
    return drawn.clients[0], drawn.means


@lru_cache(maxsize=16)
def optimum(data: DataSet) -> float:
    """Best non-private cost per point: k-means++ starts, on a mixture also its own
    means.
    """
    from sklearn.cluster import KMeans

    points = points_of(data)
    restarts = 20 if points.size > 100_000 else 100
    models = [
        KMeans(data.n_clusters, n_init=restarts, random_state=0, max_iter=1000, tol=0.0)
    ]
    if data.source == MIXTURE:
        means = MIXTURE_BOUNDS.scale(_mixture(data)[1])
        models.append(
            KMeans(data.n_clusters, init=means, n_init=1, max_iter=1000, tol=0.0)
        )
    with one_thread():
        return min(
            cost_per_point(points, model.fit(points).cluster_centers_)
            for model in models
        )


def public_of(
    points: Array, n_clusters: int, algorithm: str, epsilon: float
) -> PublicFacts:
    """Public values of a run with delta 1/(N ln N) whose rows are all in one place.

    Of the rows, their number only.
    """
    n_examples, n_features = points.shape
    config = read_config(
        n_clusters=n_clusters,
        algorithm=algorithm,
        epsilon=epsilon,
        bounds=((-1.0,) * n_features, (1.0,) * n_features),
        n_examples=n_examples,
        # As in the reference figures.
        **own_options({"packing": "halve"}, algorithm, clusterings()),
    )
    delta = 1.0 / (n_examples * math.log(n_examples))
    return PublicFacts(config, n_examples, n_features, delta, None, SAME, FRACTION_BITS)


def run_job(job: Job) -> list[float]:
    """Cost per point of the final centroids for every seed."""
    points = points_of(job.data)
    name = "fastlloyd" if job.variant == FASTLLOYD else "proxy_lloyd"
    public = public_of(points, job.data.n_clusters, name, job.epsilon)
    zeroed: tuple[str, ...] = ()
    if job.variant == FASTLLOYD:
        algorithm = public.config.task.build(public)
    else:
        variant = VARIANTS[job.variant]
        algorithm, zeroed = build(public, variant.options), variant.zeroed
    return [
        cost_per_point(
            points, play(algorithm, points, seed, zeroed)[-1].after.centroids
        )
        for seed in job.seeds
    ]


@dataclass(frozen=True, eq=False)
class Played:
    """One round of a run.

    Parameters
    ----------
    name : str
        Of the round.
    before, after : State
    released : ReleasedSum
    blocks : tuple of Block
        What was released, with its noise.
    """

    name: str
    before: State
    after: State
    released: ReleasedSum
    blocks: tuple[Block, ...]


def play(
    algorithm: Algorithm, points: Array, seed: int, zeroed: Sequence[str] = ()
) -> list[Played]:
    """Play an algorithm's own rounds on all rows at once, with seeded noise of the
    blocks' scales.

    Parameters
    ----------
    algorithm : Algorithm
    points : ndarray, (n_points, n_features)
        In the box, on the grid.
    seed : int
        Of start and noise.
    zeroed : sequence of str
        Released arrays that are replaced by zeros.

    Returns
    -------
    list of Played
        One for each round.
    """
    state, played = algorithm.initial_state(seed), []
    source = noise_source(NoiseKind.SEEDED, seed)
    for step in algorithm.rounds:
        released = _released(
            step.statistic(points, state.view(step.reads)), step.blocks, source, zeroed
        )
        played.append(
            Played(
                step.name, state, step.advance(state, released), released, step.blocks
            )
        )
        state = played[-1].after
    return played


def _released(
    arrays: Sequence[Array],
    blocks: tuple[Block, ...],
    source: NoiseSource,
    zeroed: Sequence[str],
) -> ReleasedSum:
    """Add a round's noise to its exact sum."""
    values = encode(np.concatenate([np.ravel(array) for array in arrays])).values
    values = values + draw_noise(blocks, source, FRACTION_BITS)
    start = 0
    for block in blocks:
        if block.name in zeroed:
            values[start : start + block.size] = 0
        start += block.size
    return as_released(values, blocks, FRACTION_BITS)
