"""scikit-learn's own checks on all four estimators, federated ones behind an adapter
that deals rows out.
"""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import sklearn.utils
from sklearn.utils.estimator_checks import parametrize_with_checks
from support.split_rows import SplitKMeans, SplitNaiveBayes

from flwr_dpkmeans import DPKMeans, DPNaiveBayes

OPTIONS: dict[str, Any] = {
    "bounds": (-10, 10),
    "max_weight": 5.0,
    "noise": "seeded",
    "random_state": 0,
    # With weights the rows are counted privately.
    "epsilon": 50.0,
    "delta": 1e-6,
}
ESTIMATORS = [
    DPKMeans(2, **OPTIONS),
    SplitKMeans(n_clusters=2, engine="direct", **OPTIONS),
    DPNaiveBayes(**OPTIONS),
    SplitNaiveBayes(engine="direct", **OPTIONS),
]
EXPECTED = {
    "check_dtype_object": (
        "wants Python's TypeError for a dict in a cell; ours names the column"
    ),
    "check_sample_weight_equivalence_on_dense_data": (
        "two rows have other noise than one that weighs two, whose noise is that of"
        " max_weight; test_row_weights compares exact sums"
    ),
}
OF_CLUSTERINGS = {
    "check_clustering": (
        "reads labels_, exact labels of private rows, which would travel with the model"
    ),
}
OF_PARTIES = {
    "check_fit2d_1sample": (
        "one row is one party's, but masks take two: the sentence says so"
    )
}


def expected(estimator: Any) -> dict[str, str]:
    """Checks that cannot pass, by name, with the reason."""
    reasons = dict(EXPECTED)
    if hasattr(estimator, "n_clusters"):
        reasons |= OF_CLUSTERINGS
    if hasattr(estimator, "trust"):
        reasons |= OF_PARTIES
    return reasons


@pytest.mark.sample(40)
@pytest.mark.skipif(
    not hasattr(sklearn.utils, "get_tags"),
    reason="older versions cannot leave checks out by name",
)
@parametrize_with_checks(ESTIMATORS, expected_failed_checks=expected)
def test_the_check_passes(estimator: Any, check: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(estimator)
