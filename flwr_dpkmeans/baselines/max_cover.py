"""Central differentially private k-means by max cover (Nguyen, Chaturvedi and Xu 2021,
AAAI), as a baseline.

What differs from the paper, and why:

* Grid points cover cubes, not balls (``selection``): simple and fast, at the price of a
  factor sqrt(m) in the radius.
* Radii double from the finest grid to the coarsest, and each grid gets n_clusters
  selections: constants that the paper leaves open.
* The price of the selections is a sharper theorem with a proof of its own
  (``selection``), and their sampling is exact.
* All noise but that of the selections is Gaussian, so that it composes exactly; small
  clusters fall back to the overall average instead of a random point
  (`noisy_averages`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from flwr_dpkmeans.baselines.pooled import (
    FloatArray,
    require_count,
    require_enough,
    require_points,
    run_kmeans,
)
from flwr_dpkmeans.baselines.selection import (
    LARGEST_NUMBER_OF_CANDIDATES,
    SELECTION_SLACK,
    CoverageSampler,
    byte_source,
    cover_centres,
    selection_rate,
)
from flwr_dpkmeans.errors import (
    ConfigurationError,
    LocalMisuseError,
    require_delta,
    require_positive,
)
from flwr_dpkmeans.kernels.assignment import nearest_centroids
from flwr_dpkmeans.kernels.clipping import largest_square_within
from flwr_dpkmeans.kernels.grid import round_to_grid
from flwr_dpkmeans.kmeans.folding import truncate
from flwr_dpkmeans.privacy.calibration import calibrate_scale, gaussian_noise_multiplier
from flwr_dpkmeans.privacy.closeness import (
    Closeness,
    discrete_gaussian_closeness,
    joint_closeness,
)
from flwr_dpkmeans.privacy.noise import NoiseSource
from flwr_dpkmeans.privacy.release import (
    Event,
    GaussianRelease,
    Norm,
    PrivacyUnit,
    PureRelease,
    Sensitivity,
    product_at_least,
)

_RESTARTS = 10
_MATRIX_BITS = 20
_POINT_BITS = 16
# A random direction sees a vector of length R as a normal variable of standard
# deviation R / sqrt(d).
_DEVIATIONS_IN_BOX = 3.0
# Part of epsilon that goes to the selections, and parts of the squared GDP parameter of
# the Gaussian releases, which add up to 1. The best of nine splits on mixtures of 64
# Gaussians in 100 dimensions with 50,000 points.
_SELECTION_SHARE = 0.35
_WEIGHTS = {
    "cover counts": 0.05,
    "average sums": 0.25,
    "average counts": 0.025,
    "Lloyd sums": 0.65,
    "Lloyd counts": 0.025,
}
_SELECTION_DELTA_SHARE = 0.1
NOISE_BITS = 24
"""Noise lives on multiples of 2^-24: what its discreteness costs falls with the square
of the step, to nothing.
"""
_SELECTION_THEOREM = (
    "adaptive max cover by the exponential mechanism, any number of selections (after"
    " Nguyen, Chaturvedi and Xu 2021, Lemma 17; proof in"
    " flwr_dpkmeans.baselines.selection) [S20, M6]."
)


class CentralLine(NamedTuple):
    """What was released, how far one record can move it (L2 for Gaussian noise), its
    noise, and why it is private.

    The noise's scale is a standard deviation in the release's own units; for
    selections, 1 / rate.
    """

    event: Event
    sensitivity: float
    noise_scale: float
    theorem: str
    noise: str = "gaussian"

    @property
    def name(self) -> str:
        """Of the release."""
        return self.event.name


@dataclass(frozen=True)
class CoverBudget:
    """The rate of the selections, the noise's standard deviation of each Gaussian
    release by name, and their price.
    """

    rate: float
    stds: dict[str, float]
    lines: tuple[CentralLine, ...]

    @property
    def events(self) -> tuple[Event, ...]:
        """What is accounted for."""
        return tuple(line.event for line in self.lines)


def draft_budget(
    epsilon: float,
    delta: float,
    *,
    radius: float,
    n_clusters: int,
    n_features: int,
    n_levels: int,
) -> CoverBudget:
    """Split a budget among the releases of max cover, from public numbers alone.

    The selections are (e, s)-DP with e a share of epsilon, by the theorem in
    ``selection``. Such a mechanism is a post-processing of one that with probability s
    tells everything and else is e-DP (Kairouz, Oh and Viswanath 2015), so that it adds
    at most s to the delta of whatever is composed with an e-DP mechanism. It is
    described by a `PureRelease` of e and by an additive closeness of s, beside its own,
    on the first Gaussian release: the accountant charges (1 + exp(epsilon)) s for it,
    more than is due.

    No clipped point is longer than `radius`. The events cost at most `epsilon` at
    `delta`, as `compose_epsilon` prices them; a budget that is too small for discrete
    noise and failing selections is a PlanError.
    """
    epsilon, delta = require_positive("epsilon", epsilon), require_delta(delta)
    n_choices = n_clusters * n_levels
    failure = _SELECTION_DELTA_SHARE * delta * math.exp(-epsilon)
    selections = Closeness(additive=min(1.0, failure + n_choices * SELECTION_SLACK))
    sizes = {"cover counts": n_choices} | average_sizes(n_clusters, n_features)
    (selected,), noisy = price_releases(
        epsilon,
        delta,
        pure={"grid set cover": _SELECTION_SHARE},
        weights=_WEIGHTS,
        sizes=sizes,
        slack=selections,
    )
    rate = selection_rate(selected.epsilon, failure)
    lines = (
        CentralLine(
            selected,
            1.0,
            1.0 / rate,
            _SELECTION_THEOREM,
            "exponential mechanism",
        ),
        *gaussian_lines(noisy, radius),
    )
    return CoverBudget(rate, {line.name: line.noise_scale for line in lines[1:]}, lines)


def average_sizes(n_clusters: int, n_features: int) -> dict[str, int]:
    """How many numbers each release of `average_twice` has."""
    sums = n_clusters * n_features
    return {
        "average sums": sums,
        "average counts": n_clusters,
        "Lloyd sums": sums,
        "Lloyd counts": n_clusters,
    }


def price_releases(
    epsilon: float,
    delta: float,
    *,
    pure: Mapping[str, float],
    weights: Mapping[str, float],
    sizes: Mapping[str, int],
    slack: Closeness,
) -> tuple[tuple[PureRelease, ...], tuple[GaussianRelease, ...]]:
    """Pure releases of these shares of epsilon, Gaussian ones of these parts of what is
    left; all cost epsilon.

    `slack`, what the pure ones' sampling may fail by, is charged with the first
    Gaussian one.
    """
    # What basic composition would leave to each; a common scale below 1 then uses what
    # exact composition saves.
    entire = gaussian_noise_multiplier(epsilon - epsilon * sum(pure.values()), delta)
    first = next(iter(weights))

    def priced_at(
        scale: float,
    ) -> tuple[tuple[PureRelease, ...], tuple[GaussianRelease, ...]]:
        multipliers = {
            name: scale * entire / math.sqrt(weight) for name, weight in weights.items()
        }
        # Sensitivities are at least 1, so that the noise is no finer than this.
        closeness = {
            name: discrete_gaussian_closeness(
                max(1.0, multiplier * 2.0**NOISE_BITS), sizes[name]
            )
            for name, multiplier in multipliers.items()
        }
        closeness[first] = joint_closeness([closeness[first], slack])
        gaussians = tuple(
            GaussianRelease(name, multiplier, closeness[name])
            for name, multiplier in multipliers.items()
        )
        pure_releases = tuple(
            PureRelease(name, share * epsilon / scale) for name, share in pure.items()
        )
        return pure_releases, gaussians

    def events_at(scale: float) -> tuple[Event, ...]:
        released, gaussians = priced_at(scale)
        return (*released, *gaussians)

    return priced_at(calibrate_scale(events_at, epsilon, delta))


def gaussian_lines(
    events: Sequence[GaussianRelease], radius: float
) -> tuple[CentralLine, ...]:
    """Report lines of Gaussian releases, of points no longer than the radius."""
    sensitivities = [_sensitivity(event.name, radius) for event in events]
    return tuple(
        # Never below the multiplier that is priced times the bound, not even in the
        # last digit.
        CentralLine(
            event,
            moved.bound,
            product_at_least(event.noise_multiplier, moved.bound),
            _theorem(moved),
        )
        for event, moved in zip(events, sensitivities, strict=True)
    )


def _sensitivity(name: str, radius: float) -> Sensitivity:
    """How far one record moves a release."""
    if name.endswith("sums"):
        because = "S22: one row of the sums moves by at most the radius"
        return Sensitivity(
            Norm.L2,
            radius,
            PrivacyUnit.RECORD,
            because,
        )
    row = "S21" if name == "cover counts" else "S22"
    return Sensitivity(
        Norm.L2,
        1.0,
        PrivacyUnit.RECORD,
        f"{row}: one count moves by 1",
        nonnegative=True,
    )


def _theorem(sensitivity: Sensitivity) -> str:
    """Say why one Gaussian release is private."""
    row, bound = sensitivity.proof
    return f"Gaussian mechanism (Dong, Roth and Su 2022): {bound} [{row}, M1, M3]."


@dataclass(frozen=True, eq=False)
class MaxCoverResult:
    """What max cover releases: centroids, (n_clusters, n_features), in [-1, 1] on the
    2^-16 grid.

    Counts, (n_clusters,), are noisy numbers of points in the clusters before the last
    Lloyd step, and may be negative.
    """

    centroids: FloatArray
    counts: FloatArray
    lines: tuple[CentralLine, ...]


def max_cover(
    points: npt.ArrayLike,
    n_clusters: int,
    *,
    epsilon: float,
    delta: float,
    source: NoiseSource,
    generator: np.random.Generator,
    n_examples: int | None = None,
    n_components: int | None = None,
    n_levels: int = 7,
) -> MaxCoverResult:
    """Cluster points, (n_points, n_features), in one place by max cover, noisy
    averages, and one private Lloyd step.

    Points are scaled to [-1, 1], and clipped to it. The number of records,
    `n_examples`, is public; by default it is thereby declared public. Points are
    projected to `n_components` dimensions, by default about ``log(n_examples) / 2``;
    the finest of `n_levels` grids there has spacing 2^-(n_levels - 1). With a private
    source the selections draw from the operating system's entropy, too; else from the
    generator, which also draws the projection and the starts of k-means, which protect
    nothing. The result's events cost at most `epsilon` at `delta` under the
    add-or-remove-one-record relation.

    Every label and every cell is a function of one record and of earlier releases, to
    the last bit; so are clipped points, all on the 2^-16 grid, and their sums are
    exact. Sensitivities therefore hold without slack. The time is some ``n_points
    2^n_components`` operations per level.

    Source: Nguyen, Chaturvedi and Xu 2021, "Differentially private k-means via
    exponential mechanism and max cover".

    Examples
    --------
    >>> from flwr_dpkmeans.privacy.noise import SeededNoise
    >>> generator = np.random.default_rng(0)
    >>> points = np.repeat([[-0.75], [0.5]], 5000, axis=0)
    >>> result = max_cover(
    ...     points,
    ...     2,
    ...     epsilon=1.0,
    ...     delta=1e-6,
    ...     source=SeededNoise(generator),
    ...     generator=generator,
    ... )
    >>> np.sort(result.centroids[:, 0]).round(1).tolist()
    [-0.8, 0.5]
    """
    table = Table.of(
        points,
        n_clusters,
        n_examples,
        n_components,
        generator,
    )
    if (2**n_levels + 1) ** table.n_components > LARGEST_NUMBER_OF_CANDIDATES:
        raise ConfigurationError(
            f"n_levels is {n_levels} and n_components {table.n_components}, but grids"
            " may have at most 2^62 points: choose fewer of either."
        )
    budget = draft_budget(
        epsilon,
        delta,
        radius=table.radius,
        n_clusters=n_clusters,
        n_features=table.points.shape[1],
        n_levels=n_levels,
    )
    clipped, projected = table.clipped_and_projected(generator)
    sampler = CoverageSampler(budget.rate, byte_source(source, generator))
    cover = cover_centres(
        projected,
        n_clusters,
        n_levels,
        sampler,
    )
    proxies = _proxy_centres(
        projected,
        cover,
        n_clusters,
        budget,
        source,
        generator,
    )
    return average_twice(
        clipped,
        projected,
        proxies,
        budget.lines,
        source,
    )


class Table(NamedTuple):
    """Checked points, the public number of them, how many dimensions they are projected
    to, and their box's radius.
    """

    points: FloatArray
    n_examples: int
    n_components: int
    radius: float

    @classmethod
    def of(
        cls,
        points: npt.ArrayLike,
        n_clusters: int,
        n_examples: int | None,
        n_components: int | None,
        generator: np.random.Generator,
    ) -> Table:
        """From what a caller gave; one sentence for what cannot be."""
        n_clusters, table = (
            require_count("n_clusters", n_clusters),
            require_points(points),
        )
        n_examples = (
            len(table)
            if n_examples is None
            else require_count("n_examples", n_examples)
        )
        require_enough(n_examples, n_clusters)
        if not isinstance(generator, np.random.Generator):
            raise LocalMisuseError(
                f"generator is of type {type(generator).__name__!r}, but it must be a"
                " numpy Generator: give numpy.random.default_rng(seed)."
            )
        n_features = table.shape[1]
        n_components = min(
            n_components or default_components(n_examples, n_features), n_features
        )
        return cls(
            table,
            n_examples,
            n_components,
            math.nextafter(math.sqrt(n_features), math.inf),
        )

    def clipped_and_projected(
        self, generator: np.random.Generator
    ) -> tuple[FloatArray, FloatArray]:
        """Points, (n, d), in box and ball, and (n, n_components), in [-1, 1]."""
        clipped = clip_to_ball(self.points, self.radius)
        return clipped, project_to_box(
            clipped,
            self.radius,
            self.n_components,
            generator,
        )


def average_twice(
    points: FloatArray,
    projected: FloatArray,
    proxies: FloatArray,
    lines: tuple[CentralLine, ...],
    source: NoiseSource,
) -> MaxCoverResult:
    """Average the clusters of the projected centres, then those of the averages."""
    n_clusters, stds = len(proxies), {line.name: line.noise_scale for line in lines}

    def released(
        what: str,
        labels: npt.NDArray[np.int32],
        previous: FloatArray | None,
    ) -> NoisyAverages:
        noise = {"sum_std": stds[f"{what} sums"], "count_std": stds[f"{what} counts"]}
        return noisy_averages(
            points,
            labels,
            previous=previous,
            n_clusters=n_clusters,
            source=source,
            **noise,
        )

    averages = released("average", nearest_centroids(projected, proxies)[0], None)
    final = released(
        "Lloyd", nearest_centroids(points, averages.centroids)[0], averages.centroids
    )
    return MaxCoverResult(final.centroids, final.counts, lines)


def _proxy_centres(
    projected: FloatArray,
    cover: FloatArray,
    n_clusters: int,
    budget: CoverBudget,
    source: NoiseSource,
    generator: np.random.Generator,
) -> FloatArray:
    """Cluster the cover's centres, weighted by noisy counts of the points nearest to
    each.

    One record changes one count by 1. Counts of at most two standard deviations are
    dropped. Fewer centres than clusters are filled up by uniform points.
    """
    labels, _ = nearest_centroids(projected, cover)
    counts = np.bincount(labels, minlength=len(cover)).astype(np.float64)
    std = budget.stds["cover counts"]
    weights = add_gaussian_noise(counts, std, source)
    is_clear = weights > 2.0 * std
    n_found = min(n_clusters, int(is_clear.sum()))
    filling = generator.uniform(-1.0, 1.0, (n_clusters - n_found, cover.shape[1]))
    if n_found:
        seed = int(generator.integers(2**31))
        centers = run_kmeans(
            cover[is_clear],
            n_found,
            n_init=_RESTARTS,
            random_state=seed,
            weights=weights[is_clear],
        )
        filling = np.concatenate([centers, filling])
    return round_to_grid(np.clip(filling, -1.0, 1.0))


def clip_to_ball(points: FloatArray, radius: float) -> FloatArray:
    """Clip every point to the box and to the ball around the origin, and round it
    toward zero to the 2^-16 grid.

    No row is longer than `radius` then, and each is a function of its own row alone.
    """
    scale = 2.0**_POINT_BITS
    boxed = np.trunc(np.clip(points, -1.0, 1.0) * scale) / scale
    # Squares are multiples of 2^-32: the sum is exact, in any order, and one row's does
    # not depend on others.
    squares = np.einsum("ij,ij->i", boxed, boxed)
    # Squares are compared, since a root may be rounded down to the radius.
    far = squares > largest_square_within(radius)
    # Rounding errors of the norm and of the product stay far below the part of 2^-40
    # that is taken off.
    factors = np.where(
        far,
        radius * (1.0 - 2.0**-40) / np.sqrt(np.maximum(squares, 4.0**-_POINT_BITS)),
        1.0,
    )
    clipped: FloatArray = np.trunc(boxed * factors[:, None] * scale) / scale
    return clipped


def default_components(n_examples: int, n_features: int) -> int:
    """Return about ``log(n) / 2`` dimensions, as in the paper's experiments.

    At most `n_features` and 8.
    """
    return max(1, min(n_features, round(0.5 * math.log(n_examples)), 8))


def project_to_box(
    points: FloatArray,
    radius: float,
    n_components: int,
    generator: np.random.Generator,
) -> FloatArray:
    """Project clipped points onto random orthogonal directions, scaled so that they
    fill [-1, 1]^n_components.

    With `n_components` equal to the number of features there is no projection.
    Otherwise coordinates are divided by 3 ``radius / sqrt(n_features)``, three standard
    deviations for a point at distance `radius`, and clipped. A row is a function of its
    own point alone, to the last bit: the matrix is rounded to multiples of 2^-20, so
    that all sums of products are exact in whatever order a library forms them, and the
    result lies on the 2^-16 grid. Source: Nguyen, Chaturvedi and Xu 2021, Algorithm 1,
    step 1.
    """
    n_features = points.shape[1]
    if n_components == n_features:
        return round_to_grid(np.clip(points / min(radius, 1.0), -1.0, 1.0))
    directions, _ = np.linalg.qr(generator.standard_normal((n_features, n_components)))
    matrix = round_to_grid(directions, _MATRIX_BITS)
    unit = _DEVIATIONS_IN_BOX * radius / math.sqrt(n_features)
    return round_to_grid(np.clip(points @ matrix / unit, -1.0, 1.0))


class NoisyAverages(NamedTuple):
    """Centroids, (n_clusters, n_features) on the 2^-16 grid of [-1, 1], and noisy
    counts, which may be negative.
    """

    centroids: FloatArray
    counts: FloatArray


def add_gaussian_noise(
    values: FloatArray,
    std: float,
    source: NoiseSource,
) -> FloatArray:
    """Return exact multiples of 2^-16, such as counts or sums of points, with discrete
    Gaussian noise on 2^-24.
    """
    scale = 2.0**NOISE_BITS
    exact = np.rint(values * scale).astype(np.int64)
    noise = source.discrete_gaussian(std * scale, exact.size).reshape(exact.shape)
    noisy: FloatArray = (exact + noise).astype(np.float64) / scale
    return noisy


def cluster_statistics(
    points: FloatArray,
    labels: npt.NDArray[np.int32],
    n_clusters: int,
) -> tuple[FloatArray, FloatArray]:
    """The (n_clusters, n_features) sums and the (n_clusters,) counts of the points with
    each label.

    Adding or removing a record whose point is no longer than R changes one row of the
    sums by at most R in the L2 norm, hence all sums jointly by at most R; and one count
    by 1. Points lie on the 2^-16 grid, so that sums are exact, and each label must be a
    function of its own record and of earlier releases alone.
    """
    columns = [
        np.bincount(labels, weights=column, minlength=n_clusters) for column in points.T
    ]
    counts = np.bincount(labels, minlength=n_clusters).astype(np.float64)
    return np.stack(columns, axis=1), counts


def noisy_averages(
    points: FloatArray,
    labels: npt.NDArray[np.int32],
    *,
    previous: FloatArray | None,
    n_clusters: int,
    sum_std: float,
    count_std: float,
    source: NoiseSource,
) -> NoisyAverages:
    """Release sums and counts with Gaussian noise of these deviations, in data units
    and in records, and divide.

    A cluster whose noisy count is at most two standard deviations of the counts' noise
    keeps its previous centroid; if there is none, it gets the average of everything
    that was released, where the paper takes a random point. All of this happens after
    the release and costs nothing. Points and labels are those of `cluster_statistics`.
    Source: Nissim, Stemmer and Vadhan 2016, "Locating a small cluster privately",
    Algorithm 5 (NoisyAVG), here with joint Gaussian accounting of sums and counts
    instead of Laplace noise on the counts.
    """
    sums, counts = cluster_statistics(points, labels, n_clusters)
    noisy_sums = add_gaussian_noise(sums, sum_std, source)
    noisy_counts = add_gaussian_noise(counts, count_std, source)
    floor = 2.0 * count_std
    fallback = (
        noisy_sums.sum(axis=0) / max(float(noisy_counts.sum()), floor)
        if previous is None
        else previous
    )
    usable = noisy_counts > floor
    quotients = noisy_sums / np.where(usable, noisy_counts, 1.0)[:, None]
    centroids = np.where(usable[:, None], quotients, fallback)
    return NoisyAverages(round_to_grid(truncate(centroids)), noisy_counts)
