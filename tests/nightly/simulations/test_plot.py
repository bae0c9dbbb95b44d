"""Figures of results tables: their numbers by hand, what is refused, and that equal
tables give equal files.
"""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from flwr_dpkmeans.errors import ConfigurationError, DataError
from simulations.figures.frame import LARGEST_PNG
from simulations.figures.kinds import KINDS, CurveSpec, ElbowSpec, FigureSpec, Scale
from simulations.figures.numbers import (
    curve_numbers,
    pareto_numbers,
    shares_numbers,
)
from simulations.figures.plot import figure_files, main
from simulations.figures.ratios import ablation_numbers, area_numbers, heatmap_numbers
from simulations.figures.specs import parse_specs
from simulations.figures.table import (
    Results,
    Selection,
    notes_of,
    select,
)

PNG = b"\x89PNG\r\n\x1a\n"
T_2 = 4.302652729911275  # 97.5% quantile of Student's t with 2 degrees of freedom
EPSILONS = (0.5, 1.0, 2.0)
AREA_COSTS = (4.0, 2.0, 2.0)  # area 0.5 * 3 + 1 * 2 = 3.5
Row = dict[str, Any]


def row(
    method: str, epsilon: float | None, seed: int, nicv: float | None, **more: Any
) -> Row:
    private = method not in ("lloyd", "optimal", "k_fed")
    plain = {
        "algorithm.name": method,
        "algorithm.max_iter": None,
        "algorithm.budget_shares": None,
        "privacy.epsilon": epsilon,
        "privacy.unit": "record",
        "privacy.noise": "seeded",
        "data.name": "iris",
        "data.n_clusters": 2,
        "data.n_features": 4,
        "seed": seed,
        "n_clients": 10,
        "status": "done",
        "epsilon": epsilon if private else None,
        "nicv": nicv,
    }
    return plain | {key.replace("__", "."): value for key, value in more.items()}


def selection(rows: Sequence[Row]) -> Selection:
    return Selection(pd.DataFrame(rows), 0)


def spec(kind: str, **keys: Any) -> Any:
    return parse_specs({"name": "figure", "kind": kind, **keys})[0]


def cell(cells: pd.DataFrame, **wanted: Any) -> Mapping[str, Any]:
    """The only row with these values; None is NaN."""
    for column, value in wanted.items():
        cells = cells[cells[column].isna() if value is None else cells[column] == value]
    assert len(cells) == 1
    return dict(cells.iloc[0])


AREA_ROWS = [
    row(
        method,
        epsilon,
        seed,
        factor * cost + shift,
        data__n_features=d,
        data__n_clusters=k,
    )
    for method, factor in (("fastlloyd", 1.0), ("sulloyd", 4.0))
    for d in (2, 4)
    for k in (2, 8)
    for epsilon, cost in zip(EPSILONS, AREA_COSTS, strict=True)
    for seed, shift in ((0, -0.5), (1, 0.5))
] + [
    row("lloyd", 1.0, seed, 1.0, data__n_features=2, data__n_clusters=2)
    for seed in (0, 1)
]
PARETO_ROWS = [
    row(
        "feddp_kmeans",
        epsilon,
        seed,
        cost + shift,
        algorithm__max_iter=rounds,
        algorithm__budget_shares=shares,
    )
    for epsilon, cost, rounds, shares in (
        (0.5, 4.0, None, None),
        (1.0, 3.0, None, "0.2 0.2 0.45 0.15"),
        (1.0, 5.0, 1, "1 1 1 1"),
        (2.0, 2.0, 1, "2, 2, 2, 2"),
        (2.0, 2.5, 2, "1 1 1 1"),
        (4.0, 2.2, 2, "1 1 1 1"),
    )
    for seed, shift in ((0, -0.1), (1, 0.1))
] + [
    row("optimal", epsilon, 0, 1.0, algorithm__max_iter=n)
    for epsilon in EPSILONS
    for n in (1, 2)
]
ABLATION_ROWS = [
    row(
        "fastlloyd",
        0.1,
        seed,
        cost,
        algorithm__alpha=alpha,
        algorithm__schedule="step",
        algorithm__post_processing=post,
    )
    for alpha, post, costs in (
        (0.4, "fold", (2.0, 4.0)),
        (0.8, "fold", (1.0, 3.0)),
        (0.8, "none", (6.0, 6.0)),
    )
    for seed, cost in enumerate(costs)
] + [
    row("glloyd", 0.1, seed, 4.0 * (seed + 1), algorithm__post_processing="none")
    for seed in (0, 1)
]
ELBOW_ROWS = [
    row(
        "feddp_kmeans",
        1.0,
        seed,
        1.0,
        data__n_clusters="auto",
        cost_curve=[9.0, shift, 1.0],
        n_found_clusters=chosen,
    )
    for seed, shift, chosen in ((0, 2.0, 2), (1, 4.0, 2), (2, 6.0, 3))
]


def test_curves_are_means_with_students_interval() -> None:
    rows = [
        row("fastlloyd", 1.0, seed, cost) for seed, cost in enumerate((1.0, 2.0, 3.0))
    ]
    rows += [
        row("fastlloyd", 0.5, seed, cost)
        for seed, cost in enumerate((4.0, math.inf, math.nan))
    ]
    # Swept over epsilon although it has none: two seeds, not four runs.
    rows += [
        row("lloyd", epsilon, seed, 1.0 + seed)
        for epsilon in (0.5, 1.0)
        for seed in (0, 1)
    ]
    found = curve_numbers(spec("curve"), selection(rows))
    full = cell(found.cells, series="fastlloyd", x=1.0)
    assert full["y"] == 2.0
    assert full["high"] - 2.0 == pytest.approx(T_2 / math.sqrt(3.0))
    assert 2.0 - full["low"] == pytest.approx(T_2 / math.sqrt(3.0))
    alone = cell(found.cells, series="fastlloyd", x=0.5)
    assert (alone["y"], alone["seeds"], alone["left_out"]) == (4.0, 1, 2)
    assert math.isnan(alone["low"])
    across = cell(found.cells, series="lloyd", x=None)
    assert (across["y"], across["seeds"]) == (1.5, 2)
    assert found.left_out == {"fastlloyd": 2, "lloyd": 0}


def test_areas_are_trapezoids_of_the_means() -> None:
    found = area_numbers(
        spec("auc", where={"data.n_clusters": 2}), selection(AREA_ROWS)
    ).cells
    assert cell(found, series="fastlloyd", x=2.0)["y"] == pytest.approx(3.5)
    assert cell(found, series="sulloyd", x=4.0)["y"] == pytest.approx(14.0)
    assert cell(found, series="lloyd", x=2.0)["y"] == pytest.approx(1.5)
    # Areas of the two seeds are 3.5 -+ 0.75.
    assert cell(found, series="fastlloyd", x=2.0)["high"] - 3.5 == pytest.approx(
        12.7062 * 0.75, rel=1e-4
    )
    divided = area_numbers(spec("auc", baseline="sulloyd"), selection(AREA_ROWS)).cells
    assert cell(divided, series="fastlloyd", x=2.0)["y"] == pytest.approx(0.25)
    own = cell(divided, series="sulloyd", x=2.0)
    assert (own["low"], own["y"], own["high"]) == pytest.approx((1.0, 1.0, 1.0))


def test_an_area_without_one_of_the_epsilons_is_left_out() -> None:
    left_out = (0.5, 4)
    rows = [
        {**row, "nicv": math.inf}
        if (row["privacy.epsilon"], row["data.n_features"]) == left_out
        else row
        for row in AREA_ROWS
    ]
    found = area_numbers(spec("auc"), selection(rows))
    assert set(found.cells["x"]) == {2.0}
    assert found.left_out["sulloyd"] == 4
    assert "2 cells are empty" in found.notes[0]


def test_heatmaps_have_areas_and_their_reduction() -> None:
    found = heatmap_numbers(
        spec("heatmap", baseline="sulloyd", of="fastlloyd"), selection(AREA_ROWS)
    ).cells
    assert cell(found, series="sulloyd", row=8.0, column=2.0)["y"] == pytest.approx(
        14.0
    )
    assert cell(found, series="reduction", row=8.0, column=4.0)["y"] == pytest.approx(
        75.0
    )
    assert len(found) == 4 + 4 + 4 + 1


def test_fronts_are_what_no_setting_beats() -> None:
    found = pareto_numbers(spec("pareto"), selection(PARETO_ROWS)).cells
    front = found[found["on_front"] & found["series"].eq("feddp_kmeans")].sort_values(
        "x"
    )
    assert list(zip(front["x"], front["y"], strict=True)) == [
        (0.5, 4.0),
        (1.0, 3.0),
        (2.0, 2.0),
    ]
    # Every number of rounds is a setting, epsilon is none.
    optimal = found[found["series"] == "optimal"]
    assert len(optimal) == 2
    assert optimal["on_front"].sum() == 1
    assert optimal["x"].isna().all()


def test_shares_are_those_of_the_front() -> None:
    shares, rounds = shares_numbers(spec("shares"), selection(PARETO_ROWS))
    # Two settings of the rule of thumb (null stands for it), one of equal shares.
    expected = (
        np.array([2 * 0.2 + 0.25, 2 * 0.2 + 0.25, 2 * 0.45 + 0.25, 2 * 0.15 + 0.25]) / 3
    )
    own = shares.cells.iloc[0]
    assert own["panel"] == "iris / record / 10"
    np.testing.assert_allclose(
        own[["outer product", "weights", "sums", "counts"]].astype(float),
        expected,
        rtol=1e-5,
    )
    assert rounds.cells.iloc[0].to_dict() == {
        "panel": "iris / record / 10", "0 rounds": 2 / 3, "1 round": 1 / 3,
        "2 rounds": 0.0, "settings": 3,
    }  # fmt: skip


def test_ablations_are_divided_by_their_baseline() -> None:
    given = spec("ablation", baseline={"algorithm.name": "glloyd"})
    found = ablation_numbers(
        given, selection(ABLATION_ROWS)
    ).cells  # the baseline's mean is 6
    assert cell(found, series="step / fold", x=0.4)["y"] == pytest.approx(0.5)
    assert cell(found, series="step / none", x=0.8)["y"] == pytest.approx(1.0)
    # Seed by seed, 2 and 4 are half of 4 and 8: the ratio is certain. 6 and 6 are not:
    # 6 - 4 and 6 - 8 deviate by 2.
    assert cell(found, series="step / fold", x=0.4)["high"] == pytest.approx(0.5)
    assert cell(found, series="step / none", x=0.8)["high"] - 1.0 == pytest.approx(
        12.7062 * 2.0 / 6.0, rel=1e-4
    )
    # The baseline's rows have no alpha: they are the line at 1.
    assert set(found["series"]) == {"step / fold", "step / none"}


SPECS: tuple[tuple[Row, list[Row]], ...] = (
    ({"kind": "curve", "panel": "data.name", "title": "Curves"}, AREA_ROWS),
    ({"kind": "auc", "baseline": "sulloyd"}, AREA_ROWS),
    ({"kind": "heatmap", "baseline": "sulloyd", "of": "fastlloyd"}, AREA_ROWS),
    ({"kind": "pareto"}, PARETO_ROWS),
    ({"kind": "ablation", "baseline": {"algorithm.name": "glloyd"}}, ABLATION_ROWS),
    ({"kind": "elbow", "true_k": 2}, ELBOW_ROWS),
    ({"kind": "shares"}, PARETO_ROWS),
)


@pytest.mark.parametrize(
    ("given", "rows"), SPECS, ids=[str(given["kind"]) for given, _ in SPECS]
)
def test_every_kind_is_drawn_and_a_second_time_the_same(
    given: Row, rows: list[Row]
) -> None:
    parsed = spec(**given)
    files = figure_files(parsed, Results(pd.DataFrame(rows)))
    if given["kind"] == "shares":
        assert set(files) == {"figure.md", "figure_shares.csv", "figure_rounds.csv"}
        assert (
            "| Iris, record level, 10 clients | 0.22 | 0.22 | 0.38 | 0.18 | 3 |"
            in files["figure.md"].decode()
        )
    else:
        assert set(files) == {"figure.png", "figure.pdf", "figure.csv"}
        assert files["figure.png"].startswith(PNG)
        assert len(files["figure.png"]) < LARGEST_PNG
        assert files["figure.pdf"].startswith(b"%PDF")
        assert b"CreationDate" not in files["figure.pdf"]
        assert len(pd.read_csv(io.BytesIO(files["figure.csv"]))) > 0
    if given["kind"] == "pareto":
        assert figure_files(parsed, Results(pd.DataFrame(rows))) == files


def drawn_of(
    given: FigureSpec, results: Results, monkeypatch: pytest.MonkeyPatch
) -> Figure:
    """A figure before it is encoded."""
    drawn: list[Figure] = []

    def keep(figure: Figure) -> Mapping[str, bytes]:
        drawn.append(figure)
        return {}

    figure_files(given, results, keep)
    return drawn[0]


def texts_of(
    given: FigureSpec,
    rows: Sequence[Row],
    monkeypatch: pytest.MonkeyPatch,
    missing: tuple[str, ...] = (),
) -> str:
    """All text of a figure."""
    figure = drawn_of(given, Results(pd.DataFrame(rows), missing=missing), monkeypatch)
    found = [text.get_text() for text in figure.findobj(Text) if isinstance(text, Text)]
    return " ".join(" ".join(found).split())


def test_the_caption_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        row("fastlloyd", epsilon, seed, 1.0 + seed)
        for epsilon in EPSILONS
        for seed in (0, 1)
    ]
    rows += [row("sulloyd", 1.0, 0, math.inf), row("sulloyd", 1.0, 1, 2.0)]
    rows += [row("sulloyd", 0.5, seed, None, status="failed") for seed in (0, 1)]
    text = texts_of(spec("curve"), rows, monkeypatch)
    assert "2 failed runs are left out." in text
    assert "not finite or missing: SuLloyd 1." in text
    assert "Noise was seeded in all private runs, so they protect nobody." in text
    assert (
        "Means over 1 to 2 seeds; bands: 95% confidence interval of the mean"
        " (Student t)." in text
    )
    assert "FastLloyd" in text
    assert "cost per point (NICV)" in text
    assert "total epsilon" in text
    secure = [one | {"privacy.noise": "secure"} for one in rows]
    assert "seeded" not in texts_of(spec("curve"), secure, monkeypatch)
    assert (
        "seeded in 2 of 7 private runs"
        in notes_of(Selection(pd.DataFrame([*rows[:2], *secure[2:7]]), 0))[0]
    )


def test_failed_runs_and_other_rows_are_not_used() -> None:
    rows = [
        row("fastlloyd", 1.0, 0, 1.0),
        row("fastlloyd", 1.0, 1, 9.0, status="failed"),
        row("glloyd", 1.0, 0, 5.0),
    ]
    chosen = select(
        "figure", Results(pd.DataFrame(rows)), (("algorithm.name", ("fastlloyd",)),)
    )
    assert (chosen.rows["nicv"].to_list(), chosen.n_failed) == ([1.0], 1)
    with pytest.raises(DataError, match="1 of 1 failed"):
        select("figure", Results(pd.DataFrame(rows[1:2])), ())
    with pytest.raises(ConfigurationError, match="did you mean 'glloyd'"):
        select("figure", Results(pd.DataFrame(rows)), (("algorithm.name", ("gloyd",)),))


def test_specifications_are_read_from_an_experiment() -> None:
    one = {
        "name": "a",
        "kind": "curve",
        "y_scale": "log",
        "panel": None,
        "where": {"data.name": ["iris", None]},
    }
    expected = CurveSpec(
        name="a", y_scale=Scale.LOG, where=(("data.name", ("iris", None)),)
    )
    assert (
        parse_specs({"sweep": {"figures": [one]}})
        == parse_specs({"figures": [one]})
        == parse_specs(one)
        == (expected,)
    )
    assert parse_specs(None) == ()
    assert parse_specs({"name": "b", "kind": "elbow", "true_k": 10}) == (
        ElbowSpec(name="b", true_k="10"),
    )
    assert list(KINDS) == [
        "curve",
        "auc",
        "heatmap",
        "pareto",
        "shares",
        "ablation",
        "elbow",
    ]


def test_the_command_line_asks_for_a_figure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "results.csv"
    pd.DataFrame(AREA_ROWS).to_csv(table, index=False)
    shown = [
        "--kind",
        "curve",
        "--panel",
        "data.n_features",
        "--where",
        "data.n_clusters=2,8",
        "privacy.epsilon=1,2",
    ]
    assert (
        main([str(table), *shown, "--y", "nicv", "--output", str(tmp_path / "out")])
        == 0
    )
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "curve_nicv.png",
        "curve_nicv.pdf",
        "curve_nicv.csv",
    }
    found = pd.read_csv(tmp_path / "out" / "curve_nicv.csv")
    assert sorted(found["privacy.epsilon"].dropna().unique()) == [1.0, 2.0]
    large = (tmp_path / "out" / "curve_nicv.pdf").read_bytes()
    assert (
        main(
            [
                str(table),
                *shown,
                "--y",
                "nicv",
                "--output",
                str(tmp_path / "bare"),
                "--bare",
            ]
        )
        == 0
    )
    assert (tmp_path / "bare" / "curve_nicv.pdf").read_bytes() != large
    assert list(found.columns) == [
        "panel",
        "series",
        "privacy.epsilon",
        "nicv",
        "low",
        "high",
        "seeds",
        "left_out",
    ]
    capsys.readouterr()
