"""What a step before `fit` learns from rows is exact.

The report says that it covers what happens from `fit` on.
"""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from flwr_dpkmeans import DPKMeans, FederatedKMeans


def test_a_report_says_that_steps_before_it_are_not_covered() -> None:
    rows = np.random.default_rng(0).normal([20, 60], 5, (200, 2))
    pipe = make_pipeline(StandardScaler(), DPKMeans(2, bounds=(-5, 5))).fit(rows)
    np.testing.assert_array_equal(pipe[0].mean_, rows.mean(axis=0))
    sentences = [
        text
        for text in pipe[-1].privacy_.assumptions
        if text.startswith("Columns reach fit as they are")
    ]
    assert len(sentences) == 1
    assert "scale = 'standard'" in sentences[0]


@pytest.mark.parametrize("estimator", [DPKMeans, FederatedKMeans])
def test_the_estimators_say_so_where_a_pipeline_is_written(estimator: type) -> None:
    text = " ".join((estimator.__doc__ or "").split())
    assert "StandardScaler" in text
    assert 'scale = "standard"' in text or '``scale="standard"``' in text
