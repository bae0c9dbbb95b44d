"""What a person reads first: what came out, how sure it is, one epsilon.

And no number that is none.
"""

from __future__ import annotations

import logging
import re
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from test_cautions import run_in_process, uniform_parts
from test_page import line_of, report_with, result_of

from flwr_dpkmeans import DPKMeans, FederatedKMeans
from flwr_dpkmeans.algorithms.profile.profile_reading import Figure
from flwr_dpkmeans.flower.server_app import report_result
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


CLOSE = (
    "Clusters 0, 1 are too close to another one for the noise; the others are clear."
)


@pytest.mark.parametrize(
    ("counts", "sure"),
    [
        ((5e3, 4e3, 9e3), "All are clearly told from noise and from each other."),
        ((5e3, 20.0, 9e3), "Cluster 1 is mostly noise; the others are clear."),
        ((5.0, -20.0, 9.0), "All of it is mostly noise: do not use it."),
        ((32.0, 35.0, 9e3), CLOSE),
    ],
)
def test_two_sentences_say_what_came_out_and_how_sure_it_is(
    counts: tuple[float, ...], sure: str
) -> None:
    result = with_counts(*counts)
    quiet = replace(result.report, warnings=())
    first, second = headline(quiet, result)
    a, b, c = (f"{max(0.0, count):,.0f}" for count in counts)
    assert first == f"3 clusters came out, of about {a}, {b} and {c} records."
    assert second == sure
    _, warned = headline(result.report, result)
    assert warned == f"{sure} 1 warning says what is against it."


def test_a_server_that_may_not_see_says_where_to_look() -> None:
    seen = replace(result_of().report, provenance=Provenance("7", "server", "ab" * 32))
    for trust, unseen in (("oblivious", True), ("central", False)):
        (sentence,) = headline(replace(seen, trust=trust))
        assert ("The server does not see what came out" in sentence) == unseen


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("trust", "first", "last"),
    [
        ("oblivious", "The server does not see what came out", "report.html"),
        ("central", "3 clusters came out, of about ", "noise"),
    ],
)
def test_the_last_lines_of_a_run_say_what_came_out_or_where_it_is(
    trust: str, first: str, last: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "flwr_dpkmeans.server")
    parts = uniform_parts()
    strategy, result, _ = run_in_process(tmp_path, parts, trust=trust, epsilon=5.0)
    report_result(strategy, result, tmp_path, {})
    records = [each for each in caplog.records if each.name == "flwr_dpkmeans.server"]
    lines = [record.getMessage() for record in records]
    assert lines[-2].startswith(first)
    assert last in lines[-1]


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
