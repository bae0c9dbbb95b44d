"""What stands where in pictures: axes, areas, shades and room, read off the figures before they are drawn."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from flwr_dpkmeans.options import parse_config
from flwr_dpkmeans.planner import PlanningRequest, make_forecast, present
from flwr_dpkmeans.planner.forecast import Forecast, notes_on
from flwr_dpkmeans.planner.simulate import Excess
from flwr_dpkmeans.results import picture
from flwr_dpkmeans.results.writer import RunResult
from flwr_dpkmeans.sums.draft import draft_plan
from flwr_dpkmeans.sums.statement import build_report


def result_of(centroids: Any, counts: Any, **values: Any) -> RunResult:
    points = np.asarray(centroids, dtype=np.float64)
    config = parse_config(n_clusters=len(points), bounds=((-1.0,), (1.0,)), n_examples=10_000, max_iter=2, epsilon=1.5)
    plan = draft_plan(config, run_id=1, n_clients=4, seed=1, n_features=points.shape[1])
    report = build_report(plan, [(index, 0) for index in range(plan.first_round, plan.last_round + 1)])
    counted, quiet = np.asarray(counts, dtype=np.float64), replace(report, warnings=())
    return RunResult(points, counted, (0.5,) * 2, quiet, **({"scaled": points, "bounds": plan.bounds} | values))


def figure_of(result: RunResult, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The summary, before it becomes a file."""
    kept: list[Any] = []
    monkeypatch.setattr(picture, "png_of", lambda figure: kept.append(figure) or b"")
    picture.draw_summary(result)
    return kept[0]


def axis_named(figure: Any, word: str) -> Any:
    (found,) = [axis for axis in figure.axes if word in " ".join((axis.get_title(), axis.get_ylabel()))]
    return found


THREE = ([[-0.5, 0.0], [0.5, 0.0], [0.0, 0.75]], [2000.0, 0.0, 8000.0])


def test_epsilon_begins_at_zero_and_leaves_a_fifth_above_what_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    figure = figure_of(result_of(*THREE), monkeypatch)
    (axis,) = [axis for axis in figure.axes if any(line.get_label() == "epsilon asked for" for line in axis.lines)]
    assert axis.get_ylim() == (0.0, pytest.approx(1.2 * 1.5))


def test_areas_grow_with_counts_from_60_to_660_points(monkeypatch: pytest.MonkeyPatch) -> None:
    axis = axis_named(figure_of(result_of(*THREE), monkeypatch), "Centroids, area")
    assert axis.collections[0].get_sizes().tolist() == [60.0 + 600.0 / 4, 60.0, 660.0]


def test_one_clear_centroid_alone_does_not_make_the_axes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of three are mostly noise: the axes are those of all, of which the first has what differs most."""
    centroids = [[0.0] * 4, [0.8, 0.0, 0.0, 0.0], [-0.8, 0.1, 0.0, 0.0]]
    axis = axis_named(figure_of(result_of(centroids, [9000.0, 0.0, 0.0]), monkeypatch), "Centroids, area")
    assert axis.get_xlabel() in {f"principal axis 1 of the centroids ({share}%)" for share in (99, 100)}


def test_images_are_shaded_from_the_smallest_value_to_the_largest(monkeypatch: pytest.MonkeyPatch) -> None:
    result = result_of([[-0.5, 0.25, 0.0, 0.75]], [9000.0], image_shape=(2, 2))
    figure = figure_of(result, monkeypatch)
    (shades,) = [image.get_clim() for axis in figure.axes for image in axis.images]
    assert shades == (-0.5, 0.75)


def test_without_warnings_the_two_halves_fill_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    upper, lower, below = figure_of(result_of(*THREE), monkeypatch).subfigs
    heights = [part.bbox_relative.height for part in (upper, lower, below)]
    assert heights == pytest.approx([share / 2.26 for share in (1.25, 1.0, 0.01)])


@pytest.fixture(scope="module")
def forecast() -> Forecast:
    options = {"n_clusters": 3, "bounds": (-1.0, 1.0)}
    return make_forecast(PlanningRequest(600, 2, 3, options, seeds=2, algorithms=("glloyd",)))


def test_a_forecast_is_drawn_over_doublings_from_two_thirds_of_its_lowest_value(
    forecast: Forecast, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[Any] = []
    monkeypatch.setattr(present, "png_of", lambda figure: kept.append(figure) or b"")
    present.draw_forecast(forecast)
    left, right = kept[0].axes
    assert (left.xaxis.get_transform().base, right.xaxis.get_transform().base) == (2.0, 2.0)
    (one,) = forecast.algorithms
    means = [excess.mean for curve in (one.excess_by_epsilon, one.excess_by_n_clusters) for _, excess in curve]
    # The target, in percent, or the floor of a tenth of a percent, if nothing lies lower.
    lowest = 100.0 * min(forecast.request.target_excess, *(max(0.001, mean) for mean in means))
    assert left.get_ylim()[0] == pytest.approx(lowest / 1.5)


def test_noise_per_centroid_is_told_in_the_units_of_the_bounds(forecast: Forecast) -> None:
    """Bounds from -1 to 1 are the scaled box itself: the noise is the same number there, for each feature."""
    (one,) = forecast.algorithms
    assert one.scaled_noise_per_centroid is not None
    assert one.noise_per_centroid == pytest.approx([one.scaled_noise_per_centroid] * len(one.noise_per_centroid))
    assert one.noise_per_centroid


@pytest.mark.parametrize(("part", "said"), [(0.05, True), (0.2, False), (None, False)])
def test_a_note_says_where_the_excess_is_not_of_the_last_noise(
    forecast: Forecast, part: float | None, said: bool
) -> None:
    """Less than a tenth of it is."""
    (one,) = forecast.algorithms
    assert one.excess is not None
    changed = replace(one, excess_of_noise=None if part is None else part * one.excess.mean)
    notes = notes_on(forecast.request, [changed])
    assert (
        any(note.startswith("Most of the excess does not come from the last release's noise") for note in notes) is said
    )


def test_a_band_reaches_one_standard_error_to_either_side_of_its_line(forecast: Forecast) -> None:
    """In percent, and never below a tenth of one."""
    seen: dict[str, list[float]] = {}
    axis = SimpleNamespace(
        fill_between=lambda xs, low, high, **_: seen.update(xs=xs, low=low, high=high),
        plot=lambda xs, mean, **_: seen.update(mean=mean),
    )
    curve = ((2.0, Excess(0.5, 0.125, 0.0, 1.0)), (4.0, Excess(0.25, 0.5, 0.0, 1.0)))
    present._draw_curve(axis, curve, forecast.algorithms[0], 0)
    assert seen == {"xs": [2.0, 4.0], "low": [37.5, 0.1], "high": [62.5, 75.0], "mean": [50.0, 25.0]}
