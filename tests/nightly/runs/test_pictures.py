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
from flwr_dpkmeans.planner.excess import Excess
from flwr_dpkmeans.planner.forecast import Forecast, notes_on
from flwr_dpkmeans.privacy.provenance import Provenance
from flwr_dpkmeans.privacy.report import ReleaseLine
from flwr_dpkmeans.results import picture
from flwr_dpkmeans.results.model import Model
from flwr_dpkmeans.results.pictures.rounds_picture import rounds_figure
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
    """Two in one line were a formula, and one that does not parse left a node without
    its files.
    """
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


def test_fourteen_lines_of_caution_are_the_most() -> None:
    result = result_of(*THREE)
    long = " ".join(["word"] * 20)
    report = replace(result.report, warnings=(long, *map(str, range(20))))
    below = picture.summary_figure(replace(result, report=report)).subfigs[-1]
    (text,) = below.texts
    lines = text.get_text().splitlines()
    assert len(lines) == 14
    assert " ".join(" ".join(lines[:2]).split()) == f"WARNING {long}"
    assert lines[-1] == "WARNING  11"


def axis_named(figure: Any, word: str) -> Any:
    (found,) = [
        axis
        for axis in figure.axes
        if word in " ".join((axis.get_title(), axis.get_ylabel()))
    ]
    return found


THREE = ([[-0.5, 0.0], [0.5, 0.0], [0.0, 0.75]], [2000.0, 0.0, 8000.0])


def test_the_strip_begins_at_zero_and_leaves_a_twentieth_beyond_what_was_asked_for() -> (
    None
):
    figure = rounds_figure(result_of(*THREE))
    (axis,) = [
        axis
        for axis in figure.axes
        if any(line.get_label() == "epsilon asked for" for line in axis.lines)
    ]
    assert axis.get_xlim() == (0.0, pytest.approx(1.05 * 1.5))
    assert axis.get_ylim() == (-2.0, 2.0)


def test_areas_grow_with_counts_from_60_to_660_points() -> None:
    axis = axis_named(picture.summary_figure(result_of(*THREE)), "Centroids, area")
    assert axis.collections[0].get_sizes().tolist() == [60.0 + 600.0 / 4, 60.0, 660.0]


def test_one_clear_centroid_alone_does_not_make_the_axes() -> None:
    """Two of three are mostly noise: the axes are those of all, of which the first has
    what differs most.
    """
    centroids = [[0.0] * 4, [0.8, 0.0, 0.0, 0.0], [-0.8, 0.1, 0.0, 0.0]]
    axis = axis_named(
        picture.summary_figure(result_of(centroids, [9000.0, 0.0, 0.0])),
        "Centroids, area",
    )
    assert axis.get_xlabel() in {f"principal axis 1 ({share}%)" for share in (99, 100)}


def test_a_heat_map_compares_clusters_with_each_other() -> None:
    """By column: bounds that are a hundred times too wide made all of it pale.

    What may be noise stays so.
    """
    long = "a name that is longer than the picture has room for"
    centroids = [[0.1, 0.5, -0.01, 0.0], [0.1, -0.5, 0.01, 0.0], [0.1, 0.0, 0.0, 1e-4]]
    box = (-1.0, -1.0, -1_234_560.0, -1.0), (1.0, 1.0, 1_234_560.0, 1.0)
    result = result_of(
        centroids,
        [3e6, 2e6, 8e6],
        bounds=box,
        feature_names=("age", "h" * 18, "income", long),
    )
    noise = replace(
        result.report.releases[-1],
        array="relative_sums",
        noise_scale=500.0,
        noise="gaussian",
        surplus=1.0,
    )
    report = replace(
        result.report,
        releases=(noise, replace(noise, array="counts", noise_scale=20.0)),
    )
    result = replace(result, report=report, model=replace(result.model, privacy=report))
    axis = axis_named(picture.summary_figure(result), "red high")
    (image,) = axis.images
    shades = np.asarray(image.get_array())
    assert shades[:3] == pytest.approx(
        np.array([[0.0, 0.0, 0.0], [1.0, -1.0, 0.0], [-1.0, 1.0, 0.0]])
    )
    assert np.abs(shades[3]).max() < 0.3
    labels = [text.get_text() for text in axis.get_yticklabels()]
    assert labels == ["age", "h" * 18, "income", "a name ...room for"]
    assert [text.get_text() for text in axis.get_xticklabels()] == [
        "0: n ~ 3,000,000",
        "1: n ~ 2,000,000",
        "2: n ~ 8,000,000",
    ]
    values = {
        text.get_position(): (text.get_text(), text.get_color()) for text in axis.texts
    }
    assert len(values) == 12
    assert values[0, 2] == ("-12,346", "white")
    assert values[0, 0] == ("0.1", "#666666")


def test_a_heat_map_has_what_differs_most_and_the_axes_only_where_two_say_most() -> (
    None
):
    """Of 30 columns 24, in their order.

    26 clusters that differ in 26 columns alike have no two axes that matter.
    """
    points = np.zeros((26, 30))
    np.fill_diagonal(points[:, 4:], np.linspace(0.5, 1.0, 26))
    figure = picture.summary_figure(result_of(points, [9000.0] * 26))
    axis = axis_named(figure, "red high")
    assert axis.get_title().startswith(
        "Centroids (24 of 30 columns, 24 of 26 clusters)"
    )
    assert [text.get_text() for text in axis.get_yticklabels()] == [
        f"feature {i}" for i in range(6, 30)
    ]
    assert len(axis.get_xticklabels()) == 24
    assert not axis.texts
    assert not [one for one in figure.axes if "area" in one.get_title()]
    flat = axis_named(
        picture.summary_figure(result_of(np.zeros((2, 3)), [9000.0] * 2)), "red high"
    )
    assert not np.asarray(flat.images[0].get_array()).any()


def test_values_are_shown_of_six_clusters_at_most() -> None:
    for shape, n_values in (((2, 12), 24), ((6, 20), 120), ((7, 20), 0)):
        axis = axis_named(
            picture.summary_figure(result_of(np.eye(*shape), [9000.0] * shape[0])),
            "red high",
        )
        assert len(axis.texts) == n_values


def test_images_are_shaded_from_the_smallest_value_to_the_largest() -> None:
    result = result_of([[-0.5, 0.25, 0.0, 0.75]], [9000.0], image_shape=(2, 2))
    figure = picture.summary_figure(result)
    (shades,) = [image.get_clim() for axis in figure.axes for image in axis.images]
    assert shades == (-0.5, 0.75)


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
    """Bounds from -1 to 1 are the scaled box itself.

    The noise is the same number there, for each feature.
    """
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


def test_everything_in_a_forecast(forecast: Forecast) -> None:
    """Seven candidates go round six colours and markers and four dashes.

    The lowest of all values sets the axis.
    """
    (one,) = forecast.algorithms
    by_epsilon = ((0.5, Excess(0.5, 0.1, 0.0, 1.0)), (2.0, Excess(0.06, 0.0, 0.0, 1.0)))
    one = replace(
        one,
        excess_by_epsilon=by_epsilon,
        excess_by_n_clusters=((3.0, Excess(0.03, 0.01, 0.0, 1.0)),),
    )
    found = tuple(replace(one, algorithm=f"method {i}") for i in (1, 0, 2, 3, 4, 5, 6))
    figure = present.forecast_figure(replace(forecast, algorithms=found))
    left, right = figure.axes
    assert (left.get_title(), right.get_title()) == ("k = 3", "epsilon = 1")
    assert (left.get_xlabel(), right.get_xlabel()) == (
        "epsilon, total over the run (per record)",
        "number of clusters k",
    )
    assert left.get_ylabel() == "expected cost above the optimum (%, 0.1 or more)"
    for axis, xs, ys, asked in (
        (left, [0.5, 2.0], [50.0, 6.0], "epsilon 1"),
        (right, [3.0], [3.0], "k = 3"),
    ):
        *lines, mark, target = axis.lines
        colours = (*present._COLOURS, present._COLOURS[0])
        shapes = zip(
            colours, "osD^vXo", ("-", "--", "-.", ":", "-", "--", "-."), strict=True
        )
        expected = [
            (f"method {i}", *shape, 5.0, xs, ys) for i, shape in enumerate(shapes)
        ]
        assert [
            (
                *(
                    line.get_label(),
                    line.get_color(),
                    line.get_marker(),
                    line.get_linestyle(),
                    line.get_markersize(),
                ),
                *(list(line.get_xdata()), pytest.approx(line.get_ydata())),
            )
            for line in lines
        ] == expected
        assert (mark.get_label(), list(mark.get_xdata())) == (
            f"asked: {asked}",
            [float(asked.split()[-1])] * 2,
        )
        assert (
            mark.get_color(),
            mark._unscaled_dash_pattern,
            mark.get_linewidth(),
        ) == ("#555555", (0, (1, 2)), 1.4)
        assert (target.get_label(), list(target.get_ydata())) == (
            "target: 10%",
            [10.0, 10.0],
        )
        assert (target.get_color(), target.get_linewidth(), target.get_alpha()) == (
            "#555555",
            1.0,
            0.7,
        )
        assert [
            (band.get_alpha(), band.get_linewidth().tolist())
            for band in axis.collections
        ] == [(0.15, [0.0])] * 7
        assert {text.get_fontsize() for text in axis.get_legend().texts} == {8.0}
        assert {line.get_alpha() for line in axis.get_xgridlines()} == {0.25}
        assert (axis.title.get_fontsize(), axis.get_xscale(), axis.get_yscale()) == (
            10.0,
            "log",
            "log",
        )
        assert axis.yaxis.get_minor_locator()._subs.tolist() == [2.0, 5.0]
    assert left.get_ylim()[0] == pytest.approx(2.0)
    assert (
        right.get_xticks().tolist(),
        [tick.get_text() for tick in right.get_xticklabels()],
    ) == ([3], ["3"])
    formatters = (
        left.xaxis.get_major_formatter(),
        left.yaxis.get_major_formatter(),
        left.yaxis.get_minor_formatter(),
    )
    assert [formatter(0.25, 0) for formatter in formatters] == ["0.25"] * 3


def test_two_clear_centroids_make_the_axes_alone() -> None:
    """They differ along one line; the third, which is mostly noise, lies beside it."""
    centroids = [[0.8, 0.0, 0.0], [-0.8, 0.0, 0.0], [0.0, 0.0, 0.75]]
    axis = axis_named(
        picture.summary_figure(result_of(centroids, [9000.0, 9000.0, 0.0])),
        "Centroids, area",
    )
    assert axis.get_xlabel() == "principal axis 1 (100%)"
    places = np.asarray(axis.collections[0].get_offsets())
    assert np.abs(places[:, 0]).tolist() == pytest.approx([0.8, 0.8, 0.0])


def test_metrics_stand_below_the_title() -> None:
    result = replace(result_of(*THREE), evaluation="what was measured")  # type: ignore[arg-type]
    title = picture.summary_figure(result)._suptitle.get_text()
    assert title.splitlines()[-1] == "what was measured"


def test_two_centroids_in_many_columns_have_one_axis() -> None:
    """The second was rounding, with 0% of the variance, and put them into opposite
    corners.
    """
    centroids = [[0.51, -0.47, 0.33, 0.1], [-0.49, 0.53, -0.3, 0.7]]
    axis = axis_named(
        picture.summary_figure(result_of(centroids, [9000.0, 8000.0])),
        "Centroids, area",
    )
    assert (axis.get_xlabel(), axis.get_ylabel()) == ("principal axis 1 (100%)", "")
    assert np.asarray(axis.collections[0].get_offsets())[:, 1].tolist() == [0.0, 0.0]
    assert axis.get_yticks().tolist() == []
