"""What a person reads first: what came out, how sure it is, one epsilon.

And no number that is none.
"""

from __future__ import annotations

import re
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from test_page import line_of, report_with, result_of

from flwr_dpkmeans import DPKMeans, FederatedKMeans
from flwr_dpkmeans.algorithms.profile.profile_reading import Figure
from flwr_dpkmeans.privacy.provenance import Provenance
from flwr_dpkmeans.results.headline import headline
from flwr_dpkmeans.results.page import page
from flwr_dpkmeans.results.profile import profile
from flwr_dpkmeans.results.rendering import MARKDOWN
from flwr_dpkmeans.results.run_result import RunResult


def with_counts(*counts: float, **values: Any) -> RunResult:
    """The clusters of the page's tests, with a noise of 10 on these counts."""
    result = result_of(feature_names=("a", "b", "c"), **values)
    return replace(result, model=replace(result.model, counts=np.array(counts)))


def test_a_server_that_may_not_see_says_where_to_look() -> None:
    seen = replace(result_of().report, provenance=Provenance("7", "server", "ab" * 32))
    for trust, unseen in (("oblivious", True), ("central", False)):
        (sentence,) = headline(replace(seen, trust=trust))
        assert ("The server does not see what came out" in sentence) == unseen


def test_where_nobody_can_fall_silent_there_is_one_epsilon() -> None:
    rows = np.random.default_rng(0).uniform(-1.0, 1.0, (2000, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        models = [
            FederatedKMeans(2, bounds=(-1.0, 1.0), engine="inprocess").fit(
                [rows[:1000], rows[1000:]]
            ),
            DPKMeans(2, bounds=(-1.0, 1.0)).fit(rows),
        ]
    for km in models:
        report = km.privacy_
        written = page(MARKDOWN, report, km._result).decode()
        assert not report.may_cost_more
        assert "etries" not in f"{report} {report._repr_html_()}"
        assert "with all retries" not in written.partition("assumptions")[0]
        assert "  cost        epsilon 1 at delta" in str(report)
    assert "dropout" not in models[1].privacy_.details()


def test_where_somebody_can_it_stands_apart() -> None:
    report = replace(
        result_of().report, epsilon=1.0, epsilon_requested=1.0, epsilon_worst_case=1.5
    )
    lines = str(report).splitlines()
    assert lines[1].startswith("  cost        epsilon 1 at delta")
    assert "1.5" not in lines[1]
    assert lines[2].startswith("  at most     epsilon 1.5 with all retries")


def test_figures_that_are_noise_are_no_numbers() -> None:
    noisy = (
        Figure("all", "ward", "share", "A", 0.00955, 0.0105, noise=True),
        Figure("all", "ward", "share", "B", 0.25, 0.0125, noise=False),
        Figure("all", "age", "mean", "", 43.0, 200.0, noise=True),
        Figure("all", "age", "missing", "", 0.0, 0.01, noise=True),
    )
    result = with_counts(5e3, -42.0, 9e3)
    result = replace(result, model=replace(result.model, federated_profile=noisy))
    written = page(MARKDOWN, result.report, result).decode()
    assert "| ward: share A | under 3% |" in written
    assert "| ward: share B | 25.0% ± 1.2% |" in written
    assert "| age: mean | not told from noise |" in written
    assert "| age: missing | under 2% |" in written
    assert "-42" not in written
    assert "-42" not in str(result.model)


def test_texts_that_are_each_there_once_have_no_mean() -> None:
    """They were shown as nan and a deviation of nan."""
    frame = pd.DataFrame(
        {"note": [f"text {row}" for row in range(30)], "age": np.arange(30) % 7}
    )
    described = profile(frame, np.arange(30) % 2, 3)
    result = with_counts(5e3, 4e3, 9e3, profile=described)
    written = page(MARKDOWN, result.report, result).decode()
    assert "30 values, each once" in written
    assert "nan" not in written


def test_an_evaluation_has_no_share_below_zero() -> None:
    report = report_with(line_of("counts", 10.0))
    assert report.is_private
    rows = np.random.default_rng(0).uniform(-1.0, 1.0, (400, 2))
    shown = []
    for seed in range(6):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            km = DPKMeans(
                2,
                epsilon=1.0,
                bounds=(-1.0, 1.0),
                evaluation="private",
                noise="seeded",
                random_state=seed,
            )
            shown.append(str(km.fit(rows).evaluation_))
    assert not any(re.search(r"[ (]-\d", text) for text in shown)
    assert any("share clipped under" in text for text in shown)
