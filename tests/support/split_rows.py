"""Federated estimators behind scikit-learn's interface of one table.

Its rows are dealt out to parties.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from flwr_dpkmeans import FederatedKMeans, FederatedNaiveBayes

N_PARTIES = 2


def parties_of(X: Any) -> Any:
    """The party of each row, in turn."""
    shape = getattr(X, "shape", None) or np.asarray(X).shape
    return np.arange(shape[0]) % N_PARTIES


class SplitKMeans(FederatedKMeans):
    """`FederatedKMeans` of one table."""

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Deal the rows out, and cluster them together."""
        return super().fit(X, y, sample_weight, groups=parties_of(X))

    def fit_predict(self, X: Any, y: Any = None, sample_weight: Any = None) -> Any:
        """Labels of the table."""
        return self.fit(X, y, sample_weight).predict(X)

    def fit_transform(self, X: Any, y: Any = None, sample_weight: Any = None) -> Any:
        """Distances of the table."""
        return self.fit(X, y, sample_weight).transform(X)


class SplitNaiveBayes(FederatedNaiveBayes):
    """`FederatedNaiveBayes` of one table."""

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Deal the rows out, and learn from them together."""
        return super().fit(X, y, sample_weight, groups=parties_of(X))
