"""What stands where in pictures: axes, areas, shades and room, read off the figures
before they are drawn.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from matplotlib.text import Text

from flwr_dpkmeans.data.points import Bounds
from flwr_dpkmeans.options import parse_config
from flwr_dpkmeans.planner import PlanningRequest, make_forecast, present
from flwr_dpkmeans.planner.forecast import Forecast, notes_on
from flwr_dpkmeans.privacy.provenance import Provenance
from flwr_dpkmeans.privacy.report import ReleaseLine
from flwr_dpkmeans.results import picture
from flwr_dpkmeans.results.model import Model
from flwr_dpkmeans.results.run_result import RunResult
from flwr_dpkmeans.sums.draft import draft_plan
from flwr_dpkmeans.sums.statement import build_report

pytestmark = pytest.mark.drawn


def result_of(centroids: Any, counts: Any, **values: Any) -> RunResult:
    points = np.asarray(centroids, dtype=np.float64)
    config = parse_config(
        n_clusters=len(points),
        bounds=((-1.0,), (1.0,)),
        n_examples=10_000,
        max_iter=2,
        epsilon=1.5,
    )
    plan = draft_plan(config, run_id=1, n_clients=4, seed=1, n_features=points.shape[1])
    report = build_report(
        plan, [(index, 0) for index in range(plan.first_round, plan.last_round + 1)]
    )
    counted, quiet = np.asarray(counts, dtype=np.float64), replace(report, warnings=())
    model = Model(
        points,
        counted,
        Bounds(*values.pop("bounds", plan.bounds)),
        quiet,
        values.pop("feature_names", ()),
    )
    return RunResult(model, quiet, (0.5,) * 2, **values)


@pytest.mark.parametrize("n_columns", [2, 3, 30])
def test_dollars_in_names_and_warnings_are_text(n_columns: int) -> None:
    """Two in one line were a formula."""
    names = ("a_$", "b_$", r"c$x^$ \$\frac", *map("d{}".format, range(27)))[:n_columns]
    points = np.linspace(-0.9, 0.9, 3 * n_columns).reshape(3, n_columns)
    result = result_of(points, [5.0, 50.0, 500.0], feature_names=names)
    warned = replace(
        result,
        report=replace(result.report, warnings=("columns 'a_$' and 'b_$' and $x_$$",)),
    )
    assert picture.draw_summary(warned).startswith(b"\x89PNG")
    texts = [
        text
        for text in picture.summary_figure(warned).findobj(Text)
        if "$" in text.get_text()
    ]
    assert len(texts) >= 3
    assert not any(text.get_parse_math() for text in texts)


def release(
    index: int,
    attempt: int,
    name: str,
    cost: float,
    array: str,
    radius: float | None = None,
) -> ReleaseLine:
    how = ("l2", 1.0, "oblivious", "gaussian", 20.0, 20.0, "[M1]")
    return ReleaseLine(index, attempt, name, array, *how, cost, radius)


TOLD = Provenance("7", "server", "ab" * 32)


def test_a_summary_says_first_what_came_out_and_last_what_is_against_it() -> None:
    """Counts have a noise of 20, so fewer than 60 are mostly noise."""
    result = result_of(
        [[-0.5, 0.0], [0.5, 0.0], [0.0, 0.75], [0.25, 1.0]],
        [8000.0, -59.0, 2000.0, 4000.0],
    )
    last = replace(
        result.report.releases[-1],
        array="counts",
        noise_scale=20.0,
        noise="gaussian",
        surplus=1.0,
    )
    report = replace(
        result.report, releases=(last,), warnings=("One.", "Two."), provenance=TOLD
    )
    model = replace(result.model, feature_names=("age", "height"), privacy=report)
    figure = picture.summary_figure(replace(result, model=model, report=report))
    title = " ".join(figure._suptitle.get_text().split())
    assert title.startswith(
        "4 clusters came out, of about 8,000, 0, 2,000 and 4,000 records. Cluster 1 is"
        " mostly noise"
    )
    assert "2 warnings say what is against it. PRIVATE: epsilon 1.5 at delta" in title
    texts = [text.get_text() for text in figure.findobj(Text)]
    assert {
        "WARNING  One.\nWARNING  Two.",
        "1: n ~ 0, mostly noise",
        "age",
        "height",
    } <= set(texts)
    # On the 390 pixels of a telephone the smallest text is nine pixels high.
    smallest = min(
        text.get_fontsize() for text in figure.findobj(Text) if text.get_text()
    )
    assert smallest / 72.0 * 390.0 / figure.get_figwidth() > 9.0


@pytest.fixture(scope="module")
def forecast() -> Forecast:
    options = {"n_clusters": 3, "bounds": (-1.0, 1.0)}
    return make_forecast(
        PlanningRequest(600, 2, 3, options, seeds=2, algorithms=("glloyd",))
    )


def test_a_forecast_is_drawn_over_doublings_from_two_thirds_of_its_lowest_value(
    forecast: Forecast,
) -> None:
    left, right = present.forecast_figure(forecast).axes
    assert (left.xaxis.get_transform().base, right.xaxis.get_transform().base) == (
        2.0,
        2.0,
    )
    (one,) = forecast.algorithms
    means = [
        excess.mean
        for curve in (one.excess_by_epsilon, one.excess_by_n_clusters)
        for _, excess in curve
    ]
    # The target, in percent, or the floor of a tenth of a percent, if nothing lies
    # lower.
    lowest = 100.0 * min(
        forecast.request.target_excess, *(max(0.001, mean) for mean in means)
    )
    assert left.get_ylim()[0] == pytest.approx(lowest / 1.5)


def test_noise_per_centroid_is_told_in_the_units_of_the_bounds(
    forecast: Forecast,
) -> None:
    """Bounds from -1 to 1 are the scaled box itself."""
    (one,) = forecast.algorithms
    assert one.scaled_noise_per_centroid is not None
    assert one.noise_per_centroid == pytest.approx(
        [one.scaled_noise_per_centroid] * len(one.noise_per_centroid)
    )
    assert one.noise_per_centroid


@pytest.mark.parametrize(("part", "said"), [(0.05, True), (0.2, False), (None, False)])
def test_a_note_says_where_the_excess_is_not_of_the_last_noise(
    forecast: Forecast, part: float | None, said: bool
) -> None:
    """Less than a tenth of it is."""
    (one,) = forecast.algorithms
    assert one.excess is not None
    changed = replace(
        one, excess_of_noise=None if part is None else part * one.excess.mean
    )
    notes = notes_on(forecast.request, [changed])
    assert (
        any(
            note.startswith(
                "Most of the excess does not come from the last release's noise"
            )
            for note in notes
        )
        is said
    )
