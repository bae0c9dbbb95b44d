"""`FederatedPCA`: principal components of several parties' rows."""

from __future__ import annotations

from dataclasses import dataclass
from inspect import signature
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from flwr_dpkmeans.algorithms.statistics.components.components_task import (
    PcaOptions,
    PcaTask,
)
from flwr_dpkmeans.errors import DataError
from flwr_dpkmeans.estimators.fitted import ordered
from flwr_dpkmeans.estimators.refusals import require_rows
from flwr_dpkmeans.estimators.statistics.of_columns import StatisticOfColumns
from flwr_dpkmeans.results.federated import Federated
from flwr_dpkmeans.results.whole_files import write_whole
from flwr_dpkmeans.sums.round import Array


@dataclass(eq=False, repr=False)
class FederatedPCA(StatisticOfColumns):
    """Principal components of several parties' rows.

    Two masked and noised sums are released: how many rows there are with their means
    and spreads, and then outer products of their differences from the mean, of rows
    beyond `outreach` spreads those of the point there. All else follows from these.

    Parameters
    ----------
    n_components : int, optional
        How many components; None: as many as columns.
    standardize : bool
        Divide columns by their released deviations, for columns of different kinds.
    outreach : float
        Distance from the mean, in spreads (roots of the mean squared distance), to
        which rows beyond are pulled back. Noise grows with its square.
    epsilon, delta, bounds, unit, trust, noise, random_state, engine, n_examples
        As in `FederatedNaiveBayes`.

    Attributes
    ----------
    components_ : ndarray, (n_components, n_features)
        Orthogonal directions of length 1, that of most variance first. The largest
        entry of each is positive.
    explained_variance_, explained_variance_ratio_ : ndarray, (n_components,)
    explained_variance_error_ : ndarray, (n_components,)
        Half of a 95% interval, of the noise alone.
    angles_ : ndarray, (n_components,)
        Degrees by which the noise turns each component at most, in 95 of 100 runs; 90
        where nothing is known of it.
    noise_floor_ : float
        Variance that noise alone stays below.
    n_known_ : int
        How many components stand out of it. The others are unknown.
    mean_, scale_ : ndarray, (n_features,)
        What is taken off rows, and what they are then divided by: 1 unless
        `standardize`.
    mean_error_ : ndarray, (n_features,)
    values_ : Values
        All of these with names, to be printed, or ``values_.frame()``.
    privacy_ : PrivacyReport
    n_features_in_ : int

    Examples
    --------
    >>> generator = np.random.default_rng(0)
    >>> rows = generator.normal(size=(6000, 1)) * [3.0, 4.0] + [1.0, 2.0]
    >>> parts = np.array_split(rows + generator.normal(size=rows.shape) / 2, 3)
    >>> model = FederatedPCA(1, bounds=(-20, 20), epsilon=2.0).fit(parts)
    >>> model.components_.round(1), model.transform([[1.0, 2.0]]).shape
    (array([[0.6, 0.8]]), (1, 1))
    """

    n_components: int | None = None
    standardize: bool = False
    outreach: float = 3.0

    def _task(self) -> PcaTask:
        options = PcaOptions(
            self.n_components,
            self.standardize,
            self.outreach,
        )
        return PcaTask(options=options)

    def _take(self, run: Federated) -> None:
        self.components_ = run["components"]
        self.explained_variance_ = run["explained_variance"]
        self.explained_variance_ratio_ = run["explained_variance_ratio"]
        self.explained_variance_error_ = run.errors["explained_variance"]
        self.angles_ = run["angles"]
        self.noise_floor_ = float(run["noise_floor"][0])
        self.n_known_ = int(run["n_known"][0])
        self.mean_ = run["mean"]
        self.mean_error_ = run.errors["mean"]
        self.scale_ = run["scale"]
        self.n_components_ = len(self.components_)

    def transform(self, X: ArrayLike) -> Array:
        """Rows along the components, (n_rows, n_components); local, costs nothing."""
        check_is_fitted(self, "components_")
        require_rows(X)
        points, encoded = ordered(self, X)
        if encoded is not None and encoded.n_rows > len(points):
            n_left = encoded.n_rows - len(points)
            raise DataError(
                f"{n_left} of {encoded.n_rows} rows lack what the schema needs: fill it"
                " in, or drop them."
            )
        centred = (points - self.mean_) / self.scale_
        return np.asarray(centred @ self.components_.T)

    def inverse_transform(self, X: ArrayLike) -> Array:
        """Rows, (n_rows, n_features), of what `transform` has made of them."""
        check_is_fitted(self, "components_")
        scaled = np.asarray(X) @ self.components_
        return np.asarray(scaled * self.scale_ + self.mean_)

    def plot(self, path: str | Path) -> Path:
        """Draw variances above the noise, and the components, as a PNG.

        Whole or not at all. Returns its absolute path.
        """
        from flwr_dpkmeans.results.pictures.components_picture import draw_arrays

        check_is_fitted(self, "components_")
        arrays: dict[str, ArrayLike] = {
            "components": self.components_,
            "explained_variance": self.explained_variance_,
            "explained_variance_error": self.explained_variance_error_,
            "n_known": self.n_known_,
            "noise_floor": self.noise_floor_,
        }
        names = list(getattr(self, "feature_names_in_", ()))
        drawn = draw_arrays(arrays, names, self.privacy_)
        return write_whole(Path(path), drawn)


# What editors show: the fields, not what `__new__` takes.
_fields = FederatedPCA().__init__  # type: ignore[misc]
FederatedPCA.__signature__ = signature(_fields)
