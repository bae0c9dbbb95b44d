"""How far Gaussian clusters are apart: the separation index of Qiu and Joe.

Projected on a direction ``a``, two clusters have means at distance ``a'(m2 - m1)`` and
standard deviations ``s_i = sqrt(a' S_i a)``. With z the 0.975 quantile of the normal
distribution, the index compares the inner ends of the clusters' central 95% with the
outer ends (Qiu and Joe 2006, "Separation index and partial membership for clustering"):

    J(a) = (L2 - U1) / (U2 - L1) = (r - z) / (r + z)
    with r(a) = a'(m2 - m1) / (s_1 + s_2)

J* is the largest J(a). 1/r is a sum of two norms on the plane ``a'(m2 - m1) = 1``,
hence convex, and splitting ``(s_1 + s_2)^2 = min_w s_1^2 / w + s_2^2 / (1 - w)`` leaves
one number: the largest r^2 is the maximum over w of ``shift' (S_1 / w + S_2 / (1 -
w))^-1 shift``, which is concave. Geometrically r is the common Mahalanobis radius at
which the clusters' ellipsoids touch. Every direction gives a lower bound on r; that
spares most pairs of clusters the work.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.errors import DataError

Array = NDArray[np.float64]

_QUANTILE = NormalDist().inv_cdf(0.975)
# The radius is stationary at the best direction: this relative slope leaves a relative
# error of about its square.
_SLOPE_TOLERANCE = 1e-7
_STRETCH_TOLERANCE = 1e-12
_LARGEST_STEPS = 100


@dataclass(frozen=True, eq=False)
class ClusterMoments:
    """Means and covariances of clusters.

    Attributes
    ----------
    means : ndarray of float64, shape (k, d)
    covariances : ndarray of float64, shape (k, d, d)
        Symmetric and positive definite.
    """

    means: Array
    covariances: Array


def separation_index(moments: ClusterMoments) -> Array:
    """Degree of separation J* between each cluster and its nearest neighbour.

    The nearest neighbour is the cluster of the smallest J*, of all others.

    Parameters
    ----------
    moments : ClusterMoments
        Of at least two clusters; true ones, or those of `estimate_moments`.

    Returns
    -------
    ndarray of float64, shape (k,)
        In [-1, 1]: 0.01 is close, 0.21 separated and 0.34 well separated (R's
        clusterGeneration).

    Raises
    ------
    DataError
        If there are fewer than two clusters, shapes do not fit, or a covariance is not
        positive definite.

    References
    ----------
    Qiu and Joe 2006, "Separation index and partial membership for clustering",
    Computational Statistics and Data Analysis 50, 585-603; Anderson and
    Bahadur 1962 for the best direction.

    Examples
    --------
    >>> two = ClusterMoments(np.array([[0.0], [4.0]]), np.array([[[1.0]], [[1.0]]]))
    >>> separation_index(two).round(4).tolist()
    [0.0101, 0.0101]
    """
    _check_moments(moments)
    radii = Touching(moments).nearest_radii()
    return np.asarray((radii - _QUANTILE) / (radii + _QUANTILE), dtype=np.float64)


def estimate_moments(points: Array, labels: NDArray[np.int64]) -> ClusterMoments:
    """Sample moments of each cluster.

    Parameters
    ----------
    points : ndarray of float64, shape (n, d)
    labels : ndarray of int64, shape (n,)
        Cluster of each point, counted from 0; negative ones (outliers) are left out.

    Returns
    -------
    ClusterMoments
        With unbiased covariances.

    Raises
    ------
    DataError
        If a cluster has d points or fewer: its covariance could not be inverted.

    Examples
    --------
    >>> points = np.array([[0.0], [2.0], [7.0], [9.0], [50.0]])
    >>> moments = estimate_moments(points, np.array([0, 0, 1, 1, -1]))
    >>> moments.means.tolist(), moments.covariances.ravel().tolist()
    ([[1.0], [8.0]], [2.0, 2.0])
    """
    n_features = points.shape[1]
    sizes = np.bincount(labels[labels >= 0])
    if len(sizes) == 0 or sizes.min() <= n_features:
        smallest = int(sizes.min()) if len(sizes) else 0
        raise DataError(
            f"the smallest cluster has {smallest} points, but with {n_features}"
            " features it needs more than that for a covariance that can be inverted:"
            " give more points or fewer clusters."
        )
    means = []
    covariances = []
    for label in range(len(sizes)):
        members = points[labels == label]
        covariance = np.cov(members, rowvar=False)
        means.append(members.mean(axis=0))
        covariances.append(covariance.reshape(n_features, n_features))
    return ClusterMoments(np.stack(means), np.stack(covariances))


def radius_of(separation: float) -> float:
    """Mahalanobis radius at which the ellipsoids of two clusters with this J* touch.

    Parameters
    ----------
    separation : float
        J*, below 1.

    Returns
    -------
    float

    Examples
    --------
    >>> round(radius_of(0.0), 2)
    1.96
    """
    return _QUANTILE * (1.0 + separation) / (1.0 - separation)


class Touching:
    """Radii at which ellipsoids of clusters touch.

    With the best direction so far for every pair.

    Parameters
    ----------
    moments : ClusterMoments
        Of k clusters. The ellipsoids of cluster i are stretched by ``stretch[i]``, at
        first 1.

    Attributes
    ----------
    stretch : ndarray of float64, shape (k,)

    Examples
    --------
    >>> two = ClusterMoments(np.array([[0.0], [4.0]]), np.array([[[1.0]], [[1.0]]]))
    >>> Touching(two).nearest_radii().tolist()
    [2.0, 2.0]
    """

    def __init__(self, moments: ClusterMoments) -> None:
        self._moments = moments
        n_clusters = len(moments.means)
        self.stretch = np.ones(n_clusters)
        # Along the best direction known for a pair: distance of the means, and
        # deviation of the first cluster.
        self._gaps = np.empty((n_clusters, n_clusters))
        self._spreads = np.empty((n_clusters, n_clusters))
        for i in range(n_clusters):
            shifts = moments.means - moments.means[i]
            scaled = shifts @ moments.covariances[i]
            self._gaps[i] = np.einsum("jd,jd->j", shifts, shifts)
            self._spreads[i] = np.sqrt(np.einsum("jd,jd->j", scaled, shifts))
        # Equal means have no direction; along any, they touch at radius 0.
        self._spreads[self._gaps == 0.0] = 1.0

    def nearest_radii(self) -> Array:
        """Smallest radius at which each cluster touches another, shape (k,)."""
        bounds = self._lower_bounds()
        nearest = np.full(len(bounds), np.inf)
        firsts, seconds = np.triu_indices(len(bounds), 1)
        for pair in np.argsort(bounds[firsts, seconds], kind="stable"):
            i = int(firsts[pair])
            j = int(seconds[pair])
            enough = max(nearest[i], nearest[j])
            if bounds[i, j] < enough:
                radius = self._radius(i, j, enough)
                nearest[i] = min(nearest[i], radius)
                nearest[j] = min(nearest[j], radius)
        return nearest

    def grow(
        self,
        cluster: int,
        radius: float,
    ) -> None:
        """Stretch a cluster until it touches its nearest neighbour at a radius.

        Parameters
        ----------
        cluster : int
            Counted from 0. It is left as it is if it touches one at a smaller radius
            already.
        radius : float
            Above 0.
        """
        while True:
            bounds = self._stretches(cluster, radius)
            closest = int(bounds.argmin())
            stretch = max(self.stretch[cluster], bounds[closest])
            self.stretch[cluster] = stretch
            self._radius(cluster, closest, math.inf)
            # The bound is now that of the best direction at this stretch: if it is no
            # larger, the two touch.
            bound = self._stretches(cluster, radius)[closest]
            if bound <= stretch * (1.0 + _STRETCH_TOLERANCE):
                return

    def _stretches(
        self,
        cluster: int,
        radius: float,
    ) -> Array:
        """Lower bounds on the stretch at which a cluster touches each of the others.

        Infinite for itself.
        """
        # A direction bounds the radius from below, so more stretch than this is needed.
        reach = self._gaps[cluster] / radius - self.stretch * self._spreads[:, cluster]
        bounds = np.full(len(reach), np.inf)
        is_other = np.arange(len(reach)) != cluster
        np.divide(
            reach,
            self._spreads[cluster],
            out=bounds,
            where=is_other,
        )
        return bounds

    def _lower_bounds(self) -> Array:
        """Radius of every pair along its best direction, infinite on the diagonal."""
        widths = self.stretch[:, None] * self._spreads
        bounds = self._gaps / (widths + widths.T)
        np.fill_diagonal(bounds, np.inf)
        return bounds

    def _radius(
        self,
        i: int,
        j: int,
        enough: float,
    ) -> float:
        """Radius at which two clusters touch, or one of at least `enough` below it.

        Remembers the direction.
        """
        if self._gaps[i, j] == 0.0:
            return 0.0
        first = self._moments.covariances[i]
        second = self._moments.covariances[j]
        first_stretch = self.stretch[i]
        second_stretch = self.stretch[j]
        shift = self._moments.means[j] - self._moments.means[i]
        first_width = float(first_stretch * self._spreads[i, j])
        second_width = float(second_stretch * self._spreads[j, i])
        weight = first_width / (first_width + second_width)
        radius = -math.inf
        for direction in _directions(
            shift, first_stretch**2, first, second_stretch**2, second, weight
        ):
            gap = float(direction @ shift)
            first_spread = math.sqrt(direction @ first @ direction)
            second_spread = math.sqrt(direction @ second @ direction)
            width = first_stretch * first_spread + second_stretch * second_spread
            if gap / width > radius:
                radius = float(gap / width)
                self._gaps[i, j] = self._gaps[j, i] = gap
                self._spreads[i, j] = first_spread
                self._spreads[j, i] = second_spread
            if radius >= enough:
                break
        return radius


def _directions(
    shift: Array,
    first_scale: float,
    first: Array,
    second_scale: float,
    second: Array,
    weight: float,
) -> Iterator[Array]:
    """Yield directions that approach the best one.

    Newton's method on the weight, kept inside a bracket.
    """
    from scipy.linalg import cho_factor, cho_solve

    low = 0.0
    high = 1.0
    for _ in range(_LARGEST_STEPS):
        rest = 1.0 - weight
        near = first_scale / weight
        far = second_scale / rest
        mixed = near * first + far * second
        factor = cho_factor(
            mixed,
            lower=True,
            overwrite_a=True,
            check_finite=False,
        )
        direction = cho_solve(factor, shift, check_finite=False)
        yield direction
        near_pull = near / weight * (first @ direction)
        far_pull = far / rest * (second @ direction)
        near_term = float(direction @ near_pull)
        far_term = float(direction @ far_pull)
        slope = near_term - far_term
        if abs(slope) <= _SLOPE_TOLERANCE * (near_term + far_term):
            return
        if slope > 0.0:
            low = weight
        else:
            high = weight
        turn = near_pull - far_pull
        bend = turn @ cho_solve(factor, turn, check_finite=False)
        bend = bend - near_term / weight - far_term / rest
        step = weight - slope / (2.0 * bend) if bend < 0.0 else math.nan
        weight = float(step) if low < step < high else 0.5 * (low + high)


def _check_moments(moments: ClusterMoments) -> None:
    """Refuse what has no nearest neighbours, or no ellipsoids."""
    means = moments.means
    covariances = moments.covariances
    if means.ndim != 2 or len(means) < 2:
        raise DataError(
            f"the means have shape {means.shape}, but there must be at least 2 rows:"
            " give two clusters."
        )
    expected = (*means.shape, means.shape[1])
    if covariances.shape != expected:
        raise DataError(
            f"the covariances have shape {covariances.shape}, but these means need"
            f" {expected}: give one per cluster."
        )
    try:
        np.linalg.cholesky(covariances)
    except np.linalg.LinAlgError:
        raise DataError(
            "a covariance is not positive definite, but all must be: leave out columns"
            " that are constant or that follow from others."
        ) from None
