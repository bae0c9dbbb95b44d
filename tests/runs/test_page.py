"""The page of a run: its numbers by hand, one content in three forms, and nothing that
is not its reader's.
"""

from __future__ import annotations

import itertools
import json
import math
import re
import tomllib
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from warnings import catch_warnings, simplefilter

import numpy as np
import pandas as pd
import pytest
from matplotlib.text import Text
from support.ledger_entries import entry
from support.results import report_of

from flwr_dpkmeans import ClientLevel, FederatedKMeans
from flwr_dpkmeans.algorithms.profile.profile_reading import Figure
from flwr_dpkmeans.data.points import Bounds
from flwr_dpkmeans.data.schema import Schema
from flwr_dpkmeans.errors import PrivacyWarning
from flwr_dpkmeans.node.guard import NodeGuard
from flwr_dpkmeans.node.ledger import MemoryLedger
from flwr_dpkmeans.node.node_settings import NodeSettings
from flwr_dpkmeans.node.policy import ClientPolicy
from flwr_dpkmeans.options import parse_config
from flwr_dpkmeans.privacy import provenance
from flwr_dpkmeans.privacy.provenance import Provenance
from flwr_dpkmeans.privacy.report import PrivacyReport, ReleaseLine
from flwr_dpkmeans.results import page as page_module
from flwr_dpkmeans.results import picture
from flwr_dpkmeans.results.cautions.centre_noise import centre_noise
from flwr_dpkmeans.results.cautions.close_clusters import closeness_cautions
from flwr_dpkmeans.results.cautions.drowned_columns import drowned_cautions
from flwr_dpkmeans.results.cautions.shades import column_shades
from flwr_dpkmeans.results.cautions.sureness import column_cautions, unsure_columns
from flwr_dpkmeans.results.model import Model
from flwr_dpkmeans.results.number_texts import number_text, number_texts
from flwr_dpkmeans.results.page import page, registry_record, summary
from flwr_dpkmeans.results.profile import profile
from flwr_dpkmeans.results.rendering import CONSOLE, HTML, MARKDOWN
from flwr_dpkmeans.results.run_result import RunResult
from flwr_dpkmeans.results.writer import result_files
from flwr_dpkmeans.sums.draft import draft_plan

HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(2)>',
    "a | b *c* [d](javascript:e)\x1b[2J\n# f",
)
SECTIONS = [
    *(
        "The clusters",
        "How sure they are",
        "Warnings",
        "What was asked",
        "Who could learn what",
        "Privacy card",
    ),
    *("What was spent, and what is left", "Where this comes from"),
]
SPANS = {"morning": "1970-01-02", "year": "1971-01-01"}
ALLOWED = {
    *(
        "html",
        "head",
        "meta",
        "title",
        "style",
        "body",
        "main",
        "h1",
        "h2",
        "p",
        "strong",
        "img",
        "div",
    ),
    *("table", "caption", "thead", "tbody", "tr", "th", "td"),
}


class Parsed(HTMLParser):
    """Tags with their attributes in order, and the text of some."""

    def __init__(self, content: bytes) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self._open: list[str] = []
        self.feed(content.decode())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "img"):
            self._open.append(tag)
            self.texts.setdefault(tag, []).append("")

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open:
            self.texts[self._open[-1]][-1] += data


def line_of(array: str, scale: float, noise: str = "gaussian") -> ReleaseLine:
    return replace(
        report_of(3, 2).releases[0], array=array, noise_scale=scale, noise=noise
    )


def report_with(*lines: ReleaseLine, **values: Any) -> PrivacyReport:
    known = {
        "releases": lines,
        "provenance": Provenance(
            "7", "client 2", "ab" * 32, cohort=("2 (ab)", "3 (cd)")
        ),
    }
    return replace(report_of(3, 3), **(known | values))


def result_of(report: PrivacyReport | None = None, **values: Any) -> RunResult:
    """Three clusters in three columns with hostile names.

    The second one is mostly noise.
    """
    told = report or report_with(
        line_of("relative_sums", 5.0), line_of("counts", 10.0), warnings=("<b>W</b>",)
    )
    scaled = np.array([[0.5, -0.5, 0.0], [0.5, 0.5, 0.0], [-0.5, -0.5, 0.25]])
    names = values.pop("feature_names", HOSTILE)
    model = Model(
        scaled, np.array([500.0, 29.0, 1200.0]), Bounds((0.0,), (2e4,)), told, names
    )
    return RunResult(model, told, (0.5,), **values)


def test_the_table_by_hand() -> None:
    told = summary(
        result_of(feature_names=("a", "b", "c")).model, result_of().report, CONSOLE
    )
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in told.splitlines()
        if line.startswith("|")
    ]
    assert rows[:1] + rows[2:] == [
        ["column", "cluster 0", "cluster 1", "cluster 2"],
        ["size in records", "500 ± 10", "29 ± 10", "1,200 ± 10"],
        ["told from noise", "yes", "mostly noise", "yes"],
        ["a", "15,000", "15,000", "5,000"],
        ["b (not told apart)", "5,000", "15,000", "5,000"],
        ["c", "10,000", "10,000", "12,500"],
    ]
    widths = {len(line) for line in told.splitlines() if line.startswith("|")}
    assert len(widths) == 1
    assert told.splitlines()[-3:] == [result_of().report.line, "", "WARNING: <b>W</b>"]


def test_a_thousand_is_written_out() -> None:
    assert [
        number_text(sign * value)
        for sign in (1.0, -1.0)
        for value in (999.4, 999.5, 1000.2)
    ] == [*("999", "1,000", "1,000", "-999", "-1,000", "-1,000")]


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        ([1999.8, 2000.2], ["1,999.8", "2,000.2"]),
        ([1990.0, 2000.2], ["1,990", "2,000"]),
        ([0.12341, 0.12342, -5.0], ["0.12341", "0.12342", "-5"]),
        ([0.1234561, 0.1234562, 0.1251], ["0.123", "0.123", "0.125"]),
        ([123456.4, 123456.3], ["123,456", "123,456"]),
        ([7.0, 7.0], ["7", "7"]),
        ([], []),
    ],
)
def test_different_centres_have_different_texts(
    values: list[float], texts: list[str]
) -> None:
    """With six digits at most, and no more than tell something."""
    assert number_texts(values) == texts


@pytest.mark.drawn
def test_tables_and_picture_tell_close_centres_apart() -> None:
    scaled, counts = np.array([[-0.02, 0.0, 0.5], [0.02, 0.0, -0.5]]), np.full(2, 1e4)
    schema = Schema(
        columns=[
            {"name": name, "kind": "number", "bounds": [1990, 2010]} for name in "abc"
        ]
    )
    for stated in (None, schema):
        model = Model(
            scaled,
            counts,
            Bounds((1990.0,), (2010.0,)),
            report_of(2, 3),
            (),
            stated,
        )
        written = page(
            MARKDOWN, model.privacy, RunResult(model, model.privacy)
        ).decode()
        for text in (str(model), written):
            assert re.search(r"\| +1,999\.8 \| +2,000\.2 \|", text)
        figure = picture.summary_figure(RunResult(model, model.privacy))
        assert {"1,999.8", "2,000.2"} <= {
            text.get_text() for text in figure.findobj(Text)
        }


def test_a_console_shows_what_differs_most_and_says_what_it_leaves_out() -> None:
    scaled = np.zeros((12, 30))
    scaled[0, 5:20] = np.linspace(0.5, 1.0, 15)
    model = Model(scaled, np.full(12, 1e4), Bounds((-1.0,), (1.0,)), report_of(12, 30))
    text = str(model)
    assert "10 of 30 columns, which differ most; 10 of 12 clusters" in text
    shown = re.findall(r"feature \d+", text)
    assert shown == [f"feature {column}" for column in range(10, 20)]
    assert "cluster 9" in text
    assert "cluster 10" not in text


def test_shades_compare_a_columns_centres_with_each_other() -> None:
    """The means are (1/6, -1/6, 1/12), the largest clear differences 2/3 and 1/6."""
    model = result_of().model
    steps = np.rint(3.0 * column_shades(model)).astype(int)
    assert steps.tolist() == [[2, 1, -3], [0, 0, 0], [-1, 0, 3]]
    alike = replace(model, scaled=np.zeros((3, 3)))
    assert not column_shades(alike).any()


def shades_on(content: str, column: str) -> list[int]:
    """Of a column's cells, in all tables of centres on a page."""
    rows = re.findall(f'row">{column}</th>(.*)</tr>', content)
    steps = re.findall(r'shade(-?\d)"', "".join(rows))
    return list(map(int, steps))


def test_the_pages_shades_are_those_of_the_picture() -> None:
    """Also where bounds are a hundred times too wide for a column."""
    result = result_of(feature_names=("a", "b", "c"))
    scaled = result.model.scaled * [1.0, 1.0, 0.01]
    model = replace(result.model, scaled=scaled, counts=np.full(3, 1e6))
    content = page(HTML, result.report, replace(result, model=model)).decode()
    drawn = np.rint(3.0 * column_shades(model)).astype(int)
    assert [shades_on(content, column) for column in "abc"] == drawn.tolist()
    assert drawn[2].max() == 3
    assert "orange is above the mean of a column&#39;s centres" in content


def test_one_unknown_mean_hides_no_column_that_tells_nothing_apart() -> None:
    """The first cluster has no cell of the first column."""
    number = {"kind": "number", "bounds": (0, 1)}
    schema = Schema(columns={"a": number | {"missing": "centre"}, "b": number})
    shares = (("all", 0.4), ("0", 1.0), ("1", 0.1), ("2", 0.1))
    figures = tuple(
        Figure(cluster, "a", "missing", "", share, 0.01, noise=False)
        for cluster, share in shares
    )
    report = report_with(line_of("relative_sums", 5.0), line_of("counts", 10.0))
    scaled = np.array([[0.0, 0.1], [-0.5, 0.11], [0.5, 0.12]])
    counts, deviations = np.full(3, 1e4), np.full((3, 2), 0.05)
    model = Model(
        scaled, counts, schema.bounds, report, (), schema, figures, deviations
    )
    assert unsure_columns(model) == [1]
    (caution,) = column_cautions(model)
    assert caution.startswith("In column 'b' the centres differ by no more")


def test_columns_that_noise_drowns_and_others_that_it_blurs_are_both_named() -> None:
    """The first column holds a hundredth of the box."""
    number = {"kind": "number", "bounds": (0, 1)}
    schema = Schema(columns={"a": number | {"weight": 0.01}, "b": number})
    told = report_with(line_of("relative_sums", 5.0), line_of("counts", 10.0))
    scaled = np.array([[0.0, 0.1], [0.002, 0.2], [0.001, 0.9]])
    model = Model(scaled, np.full(3, 500.0), schema.bounds, told, schema=schema)
    (drowned,) = column_cautions(model)
    assert drowned.startswith("Noise moves a centre in column 'a'")
    deviations = np.full((3, 2), 0.5)
    first, second = column_cautions(replace(model, deviations=deviations))
    assert first == drowned
    assert second.startswith("In column 'b' the centres differ by no more")


def test_more_clusters_than_noise_tells_apart_are_named() -> None:
    result = result_of(feature_names=("a", "b", "c"))
    scaled = np.array([[0.5, 0.5, 0.0], [0.5, 0.505, 0.0], [-0.5, -0.5, 0.0]])
    model = replace(result.model, scaled=scaled, counts=np.full(3, 1e3))
    (caution,) = closeness_cautions(model)
    assert caution.startswith("2 of 3 clusters are too close to another one")
    assert "(number 0, 1)" in caution
    assert "choose fewer clusters" in caution
    assert closeness_cautions(replace(model, counts=np.full(3, 1e7))) == ()


def test_what_is_not_known_of_errors_is_said() -> None:
    result = result_of()
    text = page(MARKDOWN, result.report, result).decode()
    assert "how far a centre may be off is not known" in text
    model = replace(result.model, deviations=np.full((3, 3), 0.01))
    text = page(MARKDOWN, result.report, replace(result, model=model)).decode()
    assert "how far a centre may be off" not in text
    assert "15,000 ± 196" in text


def test_a_printed_page_has_room_for_ten_clusters_beside_each_other() -> None:
    """Twelve from -1 to 1, whose mean is 0."""
    scaled, report = np.linspace([-1.0], [1.0], 12), report_of(12, 1)
    model = Model(scaled, np.full(12, 1e4), Bounds((-1.0,), (1.0,)), report)
    result = RunResult(model, report)
    text = page(MARKDOWN, report, result).decode()
    headings = [line for line in text.splitlines() if line.startswith("| column  ")]
    assert [line.count("cluster") for line in headings] == [10, 2]
    assert re.search(r"\| feature 0 +\| +0\.818 \| +1 \|", text)
    content = page(HTML, report, result).decode()
    steps = [-3, -2, -2, -1, -1, 0, 0, 1, 1, 2, 2, 3]
    assert shades_on(content, "feature 0") == steps


def test_released_figures_by_hand() -> None:
    own = [
        Figure("all", "age", "mean", "", 1234.5, 0.5, noise=False),
        Figure("all", "seen", "mean", "", "2020-01-05", 3.0, noise=False),
        Figure("all", "ward", "share", "A", 0.25, 0.125, noise=True),
    ]
    figures = [
        replace(one, cluster=cluster)
        for cluster in ("all", *map(str, range(10)))
        for one in own
    ]
    first, second = page_module._profile(figures)
    cells = {
        "age: mean": "1,234 ± 0.5",
        "seen: mean": "2020-01-05 ± 3",
        "ward: share A": "under 50%",
    }
    assert first[1:] == (
        [(name, *[cell] * 10) for name, cell in cells.items()],
        ("column", "all", *(f"cluster {j}" for j in range(9))),
        [],
    )
    assert second[1:] == (list(cells.items()), ("column", "cluster 9"), [])
    assert page_module._profile([]) == []
    for released, version in (((), 1), (tuple(own), 2)):
        model = replace(
            result_of(feature_names=("a", "b", "c")).model, federated_profile=released
        )
        assert json.loads(model.to_json())["version"] == version
    ((_, rows, _, _),) = page_module._profile(
        [replace(own[0], column=f"{i}") for i in range(201)]
    )
    assert len(rows) == 200


def test_a_partys_own_rows_by_hand() -> None:
    frame = pd.DataFrame(
        {"a": [1.0, 3.0, None], "t": ["x; z", "x; z", "y"], "n": [1234.0] * 3}
    )
    ((_, rows, head, _),) = page_module._own_profile(
        profile(frame, np.array([0, 0, 1]), 2)
    )
    assert head == ("column", "all: 3 rows", "0: 2 rows", "1: 1 rows")
    assert rows == [
        ("a", "2 ± 1", "2 ± 1", ""),
        ("t", "x; z (66.7%)", "x; z (100.0%)", "y (100.0%)"),
        ("n", *["1,234 ± 0"] * 3),
    ]


@pytest.mark.parametrize("form", [HTML, MARKDOWN])
def test_one_cluster_is_at_no_distance_from_another(form: str) -> None:
    result = result_of(feature_names=("a", "b", "c"))
    model = replace(result.model, scaled=np.zeros((1, 3)), counts=np.array([900.0]))
    content = page(form, result.report, replace(result, model=model)).decode()
    assert "How far noise moves a centre" in content
    assert "distance to the next centre" not in content
    assert not re.search(r"\b(inf|nan)\b", content.partition("<body>")[2] or content)


def test_a_page_says_whether_only_clustered_columns_are_described() -> None:
    """A node reads others only where its own profile-columns names them."""
    result = result_of(feature_names=("a", "b", "c"))
    frame = pd.DataFrame(np.ones((3, 4)), columns=["a", "b", "c", "ward"])
    labels = np.array([0, 1, 2])
    sentence = "Only columns that were clustered are described"
    for columns, is_told in ((["a", "b", "c"], True), ([*frame], False)):
        own = profile(frame[columns], labels, 3)
        text = page(MARKDOWN, result.report, replace(result, profile=own)).decode()
        assert (sentence in text) is is_told


def test_noise_of_a_centre_by_hand() -> None:
    """Of 3 columns: 5 sqrt(3) over the count."""
    model = result_of().model
    expected = 5.0 * math.sqrt(3.0) / np.array([500.0, 29.0, 1200.0])
    assert centre_noise(model) == pytest.approx(expected)
    counts = line_of("counts", 10.0)
    residuals = replace(
        model, privacy=report_with(line_of("residual_sums", 5.0), counts)
    )
    assert centre_noise(residuals) is None
    assert centre_noise(residuals, 0.5) == pytest.approx(0.5 * expected)
    own = np.array([0.25, 0.5, 0.125])
    assert centre_noise(residuals, own) == pytest.approx(own * expected)
    laplace = replace(
        model,
        privacy=report_with(
            line_of("sums", 5.0, "laplace"), line_of("counts", 10.0, "laplace")
        ),
    )
    lengths = np.linalg.norm(model.scaled, axis=1)
    both = np.sqrt(50.0 * 3.0 + 200.0 * lengths**2) / np.array([500.0, 29.0, 1200.0])
    assert centre_noise(laplace) == pytest.approx(both)
    assert centre_noise(replace(model, privacy=report_with(counts))) is None
    little = replace(
        model,
        privacy=report_with(line_of("relative_sums", 0.5), counts),
        counts=np.array([1.5, 0.5, 0.0]),
    )
    fewer = replace(model, scaled=model.scaled[:2], counts=model.counts[:2])
    assert centre_noise(fewer) == pytest.approx(expected[:2])
    assert centre_noise(little) == pytest.approx(
        0.5 * math.sqrt(3.0) / np.array([1.5, 1.0, 1.0])
    )
    assert centre_noise(replace(model, counts=np.full(3, 1e9))) == pytest.approx(
        math.sqrt(3.0) * 2.0**-16
    )
    assert centre_noise(replace(model, counts=np.full(3, -5.0))) == pytest.approx(
        2.0 * math.sqrt(3.0)
    )


@pytest.mark.parametrize(
    ("steps", "warns"), [(1, True), (63, True), (64, False), (0, False)]
)
def test_centroids_within_64_steps_of_the_grid_are_told_coarsely(
    steps: int, warns: bool
) -> None:
    model = result_of().model
    scaled = np.full(model.scaled.shape, 0.25)
    scaled[1, 2] += steps / 65536.0
    result = drowned_cautions(replace(model, scaled=scaled))
    assert [
        f"lie within {steps} of the 131,072 steps" in sentence for sentence in result
    ] == [True] * warns
    assert (
        drowned_cautions(replace(model, scaled=scaled[:1], counts=model.counts[:1]))
        == ()
    )


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("places", "n_found", "warns"),
    [([(0, 0)], 1, True), ([(-3, -3), (3, 3)], 2, False)],
)
def test_a_choice_of_one_cluster_says_what_it_means(
    places: list[tuple[int, int]], n_found: int, warns: bool
) -> None:
    generator = np.random.default_rng(1)
    rows = np.concatenate(
        [generator.normal(middle, 0.8, (1500, 2)) for middle in places]
    )
    options: dict[str, Any] = {
        "engine": "direct",
        "bounds": (-8, 8),
        "random_state": 0,
        "noise": "seeded",
    }
    km = FederatedKMeans("auto", epsilon=2.0, trust="distributed", **options)
    with catch_warnings():
        simplefilter("ignore")
        km.fit([rows[::2], rows[1::2]])
        fixed = FederatedKMeans(1, epsilon=2.0, **options).fit([rows[::2], rows[1::2]])
    assert len(km.cluster_centers_) == n_found
    assert (
        any(each.startswith("One cluster was chosen") for each in km.privacy_.warnings)
        == warns
    )
    assert not any(
        each.startswith("One cluster was chosen") for each in fixed.privacy_.warnings
    )


def test_columns_in_which_noise_is_a_quarter_of_the_range_are_named() -> None:
    """It is 50 over the count; a cluster of 29 rows is mostly noise and left out."""
    report = report_with(line_of("relative_sums", 50.0), line_of("counts", 10.0))
    model = replace(result_of(feature_names=("a", "b", "c")).model, privacy=report)
    sentence = "Noise moves a centre in columns 'a', 'b', 'c'"
    for least, texts in ((101.0, []), (99.0, [sentence]), (29.0, [])):
        counts = np.array([500.0, least, 1200.0])
        cautions = drowned_cautions(replace(model, counts=counts))
        assert [caution[: len(sentence)] for caution in cautions] == texts
    unknown = report_with(line_of("residual_sums", 50.0))
    assert drowned_cautions(replace(model, privacy=unknown)) == ()


def test_a_drowned_column_is_named_in_every_file(tmp_path: Path) -> None:
    """In units of their own, a flag beside thousands of euro is noise."""
    generator = np.random.default_rng(0)
    euros = generator.uniform(0, 20000, (2, 500))
    flags = generator.integers(0, 2, (2, 500))
    parts = [pd.DataFrame({"euro": euros[i], "flag": flags[i]}) for i in range(2)]
    columns = {
        "euro": {"kind": "number", "bounds": (0, 20000)},
        "flag": {"kind": "flag"},
    }
    schema = Schema(columns=columns, scale="none")
    km = FederatedKMeans(2, epsilon=2.0, bounds=schema, engine="direct")
    with pytest.warns(PrivacyWarning, match="Noise moves .* column 'flag' by") as seen:
        km.fit(parts)
    (sentence,) = (str(warning.message) for warning in seen)
    km.write(tmp_path / "run")
    for name in ("model.json", "privacy_report.json", "report.html", "report.md"):
        text = (tmp_path / "run" / name).read_text()
        assert "Noise moves a centre in column" in text, name
    again = FederatedKMeans.load(tmp_path / "run" / "model.json")
    assert sentence in str(km.model_)
    assert sentence in km.privacy_.warnings == again.privacy_.warnings


def test_centres_are_told_apart_three_times_their_noise_from_each_other() -> None:
    """Noise is 8.66/500, 8.66/29 and 8.66/1200."""
    (_, rows, _, _), (_, by_column, head, _) = page_module._sureness(result_of())
    assert head == ("column", "cluster 0", "cluster 1", "cluster 2")
    # 5 over the count, of half of 20,000.
    assert by_column == [(name, "100", "1,724", "41.7") for name in HOSTILE]
    assert rows == [
        ("cluster 0", "0.017", "1", "cluster 1", "mostly noise"),
        ("cluster 1", "0.3", "1", "cluster 0", "mostly noise"),
        ("cluster 2", "0.0072", "1", "cluster 0", "told apart"),
    ]
    near = result_of()
    near = replace(
        near,
        model=replace(
            near.model, scaled=near.model.scaled * 0.05, counts=np.full(3, 500.0)
        ),
    )
    assert [row[4] for row in page_module._sureness(near)[0][1]] == [
        "too close for the noise"
    ] * 3
    wide = replace(near, model=replace(near.model, bounds=Bounds((-1.0,), (3.0,))))
    assert [row[1:] for row in page_module._sureness(wide)[1][1]] == [("0.02",) * 3] * 3


@pytest.mark.nightly
def test_noise_of_centres_is_what_repeated_runs_show() -> None:
    """24 runs of two centres tell it to 7% (one standard deviation)."""
    generator = np.random.default_rng(0)
    rows = np.array([[-0.5, -0.5], [0.5, 0.5]])[
        generator.integers(0, 2, 1000)
    ] + generator.normal(0, 0.05, (1000, 2))
    for algorithm in ("fastlloyd", "glloyd", "sulloyd", "server_lloyd"):
        options: dict[str, Any] = {
            "engine": "direct",
            "bounds": (-1, 1),
            "random_state": 0,
            "max_iter": 2,
        }
        options["server_data"] = rows[:50] if algorithm == "server_lloyd" else None
        fits = [
            FederatedKMeans(2, algorithm=algorithm, epsilon=0.5, **options)
            for _ in range(24)
        ]
        found = [fit.fit([rows[::2], rows[1::2]]).model_ for fit in fits]
        ordered = np.array(
            [model.scaled[np.argsort(model.scaled[:, 0])] for model in found]
        )
        # Medians, as a run may take another way: of a squared length in two columns it
        # is ln 2 of the mean.
        lengths = np.square(ordered - np.median(ordered, axis=0)).sum(axis=2)
        seen = math.sqrt(np.median(lengths) / math.log(2.0))
        noise = found[0].centre_noise()
        assert noise is not None
        assert 0.6 < seen / noise.mean() < 1.5, algorithm


@pytest.mark.parametrize("full", [False, True])
def test_both_forms_have_the_same_sections_words_and_cells(full: bool) -> None:
    result = result_of(profile=None, spent="Spent so much.") if full else None
    if result is not None:
        released = (Figure("all", "a", "mean", "", 0.5, 0.25, noise=False),)
        result = replace(
            result, model=replace(result.model, federated_profile=released)
        )
    report = result_of().report
    parsed, text = (
        Parsed(page(HTML, report, result, b"png")),
        page(MARKDOWN, report, result, b"png").decode(),
    )
    assert parsed.texts["h1"] == ["Private run of proxy_lloyd, for a client"]
    assert parsed.texts["h2"] == [
        name for name in SECTIONS if full or name != "How sure they are"
    ]
    assert re.findall("^## (.*)$", text, re.M) == parsed.texts["h2"]
    plain = re.sub(r"\\(.)", r"\1", text)
    for tag in ("p", "caption", "th", "td"):
        for told in parsed.texts[tag]:
            assert told.split("; orange is above")[0].strip() in plain, told
    assert ("Centres of the clusters in the units" in plain) is full
    assert (
        ("Spent so much." in plain)
        is ("0.5 ± 0.25" in plain)
        is ("| told apart |" in plain)
        is full
    )
    assert ("What is left is not known here" in plain) is not full
    for sentence in (
        report.guarantee,
        report.neighbours,
        *report.assumptions,
        "ab" * 32,
        "2 (ab), 3 (cd)",
    ):
        assert sentence in plain


def test_whatever_a_name_or_a_sentence_holds_stays_text() -> None:
    frame = pd.DataFrame({HOSTILE[0]: ["<i>x</i>"] * 3, HOSTILE[2]: [1.0] * 3})
    result = result_of(profile=profile(frame, np.array([0, 1, 2]), 3))
    content = page(HTML, result.report, result, b"png")
    parsed = Parsed(content)
    assert {tag for tag, _ in parsed.tags} <= ALLOWED
    assert not [
        names
        for _, names in parsed.tags
        if any(name.startswith("on") for name in names)
    ]
    assert {
        HOSTILE[0],
        HOSTILE[1],
        HOSTILE[2].replace("\x1b", "?").replace("\n", "?"),
    } <= set(parsed.texts["th"])
    assert any("<i>x</i> (100.0%)" in cell for cell in parsed.texts["td"])
    assert any(" <b>W</b>" in text for text in parsed.texts["p"])
    lines = page(MARKDOWN, result.report, result, b"png").decode().splitlines()
    for _, rows in itertools.groupby(lines, key=lambda line: line.startswith("|")):
        assert (
            len(
                {
                    len(re.findall(r"(?<!\\)\|", row))
                    for row in rows
                    if row.startswith("|")
                }
            )
            <= 1
        )
    assert not re.search(r"(?<!\\)[<>]|(?<!\\)\]\(javascript", "\n".join(lines))
    assert "\x1b" not in summary(result.model, result.report, CONSOLE)
    assert "<script" not in result.model._repr_html_()


def test_a_page_loads_nothing_and_can_be_read_by_a_screen_reader() -> None:
    content = page(HTML, result_of().report, result_of(), b"png")
    parsed = Parsed(content)
    assert content.startswith(b'<!doctype html>\n<html lang="en">')
    sources = [
        value
        for _, names in parsed.tags
        for name, value in names.items()
        if name in ("src", "href")
    ]
    assert sources == ["data:image/png;base64,cG5n"]
    assert not re.search(rb"https?:|url\(|@import", content)
    assert any(
        "default-src 'none'" in str(names.get("content"))
        for tag, names in parsed.tags
        if tag == "meta"
    )
    assert all(
        names.get("scope") in ("row", "col")
        for tag, names in parsed.tags
        if tag == "th"
    )
    assert all(names.get("alt") for tag, names in parsed.tags if tag == "img")
    assert all(names.get("aria-label") for tag, names in parsed.tags if tag == "div")
    assert [tag for tag, _ in parsed.tags if tag in ("h1", "h2")] == ["h1", *["h2"] * 8]
    assert len(parsed.texts["caption"]) == parsed.texts["table"].__len__()


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255.0 for i in (1, 3, 5)]
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
        for part in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_every_colour_of_text_stands_out_from_what_is_behind_it() -> None:
    """WCAG 2.1, level AA: 4.5 to 1, light and dark."""
    style = tomllib.loads(
        Path(page_module.__file__).with_name("templates.toml").read_text()
    )["page.css"]
    schemes = [
        dict(re.findall(r"--([a-z0-9]+): (#[0-9a-f]{6})", one))
        for one in style.split("prefers-color-scheme")
    ]
    assert [len(scheme) for scheme in schemes] == [12, 12]
    for scheme in schemes:
        behind = [
            name for name in scheme if re.fullmatch(r"paper|head|(up|down)\d", name)
        ]
        pairs = [("ink", name) for name in behind] + [
            ("quiet", "paper"),
            ("alarm", "paper"),
        ]
        for one, other in pairs:
            dark, light = sorted((luminance(scheme[one]), luminance(scheme[other])))
            assert (light + 0.05) / (dark + 0.05) >= 4.5, (one, other)


REGISTRY = {
    "basic": (
        "name data_curators intended_use data_product_type data_product_region"
        " description publication_date"
    ),
    "dp_variant": "variant_name data_domain unprotected_quantities",
    "privacy_loss": (
        "privacy_unit privacy_unit_details privacy_parameters"
        " privacy_parameters_details"
    ),
    "deployment_model": (
        "model_name model_name_details actors release_type release_type_details"
        " data_source_type data_source_type_details access_type access_type_details"
    ),
    "accounting": "post_processing composition",
    "implementation": (
        "preprocessing_and_hyperparameter_tuning mechanisms justification"
    ),
    "administrative": "sources notes registry_authors",
}
"""Names that the registry's schema allows (opendp/deployments-registry-data, July
2026).
"""


def test_the_record_has_the_registrys_form() -> None:
    report = report_with(
        line_of("counts", 10.0), assumptions=('a "quoted" \\ one </script>',)
    )
    record = json.loads(registry_record(report, result_of()))
    assert set(record) == {"url_slug", "status", "tier", "deployment"}
    assert (record["url_slug"], record["status"], record["tier"]) == (
        "flwr-dpkmeans-7",
        "Draft",
        2,
    )
    deployment = record["deployment"]
    assert set(deployment) == set(REGISTRY)
    for part, names in REGISTRY.items():
        assert set(deployment[part]) <= set(names.split()), part
    assert set(deployment["basic"]) == set(REGISTRY["basic"].split())
    assert deployment["privacy_loss"]["privacy_parameters"] == {
        "epsilon": report.epsilon,
        "delta": report.delta,
    }
    assert deployment["administrative"]["notes"] == report.assumptions[0]
    assert deployment["deployment_model"]["model_name"] == "Federated"
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", deployment["basic"]["publication_date"])
    bare = replace(result_of(), report=replace(report, is_private=False))
    assert "deployment.json" not in result_files(bare)
    assert "deployment.json" in result_files(replace(bare, report=report))


@pytest.mark.parametrize(
    ("trust", "server", "given"),
    [
        (
            "oblivious",
            "the noise that it adds; not the result",
            "must not be who runs the server",
        ),
        ("central", "exact sums over all parties, and the result", "public facts |"),
        ("distributed", "sums with noise over all parties", "public facts |"),
        ("curator", "", "whoever holds the rows | all of them"),
        ("one that is not installed", "", "Who could learn what"),
    ],
)
def test_who_sees_what_follows_from_the_trust_model(
    trust: str, server: str, given: str
) -> None:
    text = page(
        MARKDOWN, replace(result_of().report, trust=trust), result_of(), b""
    ).decode()
    assert ("| the server |" in text) is bool(server)
    assert server in text
    assert given in text
    # One table has no ledger to look into.
    alone = page(MARKDOWN, replace(result_of().report, trust=trust), None, b"").decode()
    assert ("No ledger adds up" in alone, "node status" in alone) == (
        trust == "curator",
        trust != "curator",
    )


@pytest.mark.parametrize(
    ("array", "unit", "bound", "told"),
    [
        ("counts", "record", 1.0, "records"),
        ("indicators", "client", 10.0, "clients with rows there"),
        ("counts", "client", 30.0, "rows, of each client cut to a norm of 30"),
        (
            "counts",
            "client",
            0.75,
            "clients, each by the shares of its rows, cut to a norm of 0.75",
        ),
        ("counts", "client", 1.0, "clients, each by the shares of its rows"),
        ("sums", "client", 1.0, "clients"),
    ],
)
def test_sizes_say_what_they_count(
    array: str, unit: str, bound: float, told: str
) -> None:
    """At client level rows were called clients, and more than there were."""
    report = report_with(replace(line_of(array, 5.0), sensitivity=bound), unit=unit)
    assert f"| size in {told} |" in re.sub(
        " +", " ", summary(result_of(report).model, report, CONSOLE)
    )


@pytest.mark.nightly
def test_sizes_of_sampled_clients_say_so() -> None:
    """Half of the clients were shown as all of them."""
    km = FederatedKMeans(
        2,
        epsilon=20.0,
        unit=ClientLevel(4, 0.5),
        bounds=(-1.0, 1.0),
        engine="direct",
        noise="seeded",
        random_state=1,
    ).fit([np.full((4, 2), (-0.5, 0.5)[client % 2]) for client in range(40)])
    assert (
        "size in clients of a round's sample, each by the shares of its rows"
        in re.sub(" +", " ", str(km.model_))
    )


def test_an_oblivious_servers_line_excepts_what_is_released_to_everybody_before() -> (
    None
):
    """A private number of rows has noise from the clients, and the server reads it."""
    early = replace(line_of("n_examples", 5.0), trust="distributed")
    later = replace(line_of("counts", 5.0), trust="oblivious")
    for lines, excepted in (((early, later), True), ((later,), False)):
        report = replace(report_with(*lines), trust="oblivious")
        text = page(MARKDOWN, report, result_of(), b"").decode()
        assert (
            "not the result, but what the guarantee below says is released to"
            " everybody; no party" in text
        ) is excepted
        assert ("not the result; no party" in text) is not excepted


def test_what_was_spent_and_is_left_is_the_ledgers_and_the_policys() -> None:
    """Two runs on this data set in this unit, one beside; of a total of 5."""
    config = parse_config(n_clusters=2, bounds=((0.0,), (1.0,)), n_examples=1000)
    ledger, plan = (
        MemoryLedger(),
        draft_plan(config, run_id=4, n_clients=3, seed=1, n_features=2),
    )
    for run, data, unit, epsilon in (
        ("1/2", "ward 7", "record", 1.25),
        ("4/2", "ward 7", "record", 2.5),
        ("5/2", "ward 8", "record", 9.0),
        ("6/2", "ward 7", "client", 9.0),
    ):
        ledger.charge(entry(run, 1, epsilon, data_id=data, unit=unit))
    for total, left in (
        (5.0, "; its policy leaves 3.905 for one more"),
        (3.0, "; its policy leaves 0.9835 for one more"),
        (2.5, "; its policy leaves 0 for one more"),
        (math.inf, ""),
    ):
        policy = ClientPolicy(max_epsilon_total=total, max_delta_total=2e-6)
        settings = NodeSettings(policy, ledger, "ward 7")
        assert (
            NodeGuard(settings, 4, 2, 2, 0.0).spent(plan)
            == "By this party's ledger this run cost epsilon 1.187 at most, and all"
            " runs of unit 'record' on data set 'ward 7' cost 2.773 at delta"
            f" 2e-06{left}."
        )


def test_a_run_that_protects_nobody_says_so_where_epsilon_is_explained() -> None:
    text = page(
        MARKDOWN, replace(result_of().report, is_private=False, epsilon=math.inf), None
    ).decode()
    assert "This run protects nobody; the warnings say why." in text
    assert "by a factor of at most" not in text
    assert (
        "ab" * 32
        not in page(
            MARKDOWN, replace(result_of().report, provenance=None), None
        ).decode()
    )
    huge = page(MARKDOWN, replace(result_of().report, epsilon=1e6), None).decode()
    assert "a factor of at most 1.01e+304" in huge
    odds = page(
        MARKDOWN, replace(result_of().report, epsilon=math.log(3.0)), None
    ).decode()
    assert "any one record was among the data by a factor of at most 3 (" in odds


@pytest.mark.drawn
def test_dates_flags_and_shares_are_shown_as_such() -> None:
    schema = Schema(
        columns={
            "seen": {"kind": "date", "bounds": ("1970-01-01", "1970-01-21")},
            "sick": {"kind": "flag"},
            "ward": {"kind": "category", "values": ["A", "B"]},
        }
    )
    report = report_with(line_of("counts", 10.0))
    scaled = schema.bounds.scale([[10.6, 0.25, 1.0, 0.0], [0.0, 1.5, 0.4, 0.6]])
    model = Model(
        scaled, np.array([500.0, 600.0]), schema.bounds, report, schema=schema
    )
    assert model.feature_names == ("seen", "sick", "ward=A", "ward=B")
    assert model.shown() == [
        ["1970-01-12", "1970-01-01"],
        ["25%", "100%"],
        ["100%", "40%"],
        ["0%", "60%"],
    ]
    figure = picture.summary_figure(RunResult(model, report))
    assert "1970-01-12" in {
        text.get_text() for axis in figure.axes for text in axis.texts
    }
    two = Schema(
        columns={
            "seen": {"kind": "date", "bounds": ("1970-01-01", "1970-01-21")},
            "sick": {"kind": "flag"},
        }
    )
    flat = Model(
        two.bounds.scale([[10.6, 0.0], [3.0, 1.0]]),
        np.full(2, 500.0),
        two.bounds,
        report,
        schema=two,
    )
    figure = picture.summary_figure(RunResult(flat, report))
    (axis,) = [axis for axis in figure.axes if axis.get_xlabel() == "seen"]
    assert axis.xaxis.get_major_formatter()(10.6, 0) == "1970-01-12"
    assert (
        len(axis.get_xticks()) <= 6
    )  # four steps between them and one beyond each end
    assert axis.yaxis.get_major_formatter().__class__.__name__ == "ScalarFormatter"
    day = Schema(
        columns={
            name: {"kind": "date", "bounds": ("1970-01-01", end)}
            for name, end in SPANS.items()
        }
    )
    figure = picture.summary_figure(
        RunResult(
            replace(model, scaled=scaled[:, :2], bounds=day.bounds, schema=day), report
        )
    )
    (axis,) = [axis for axis in figure.axes if axis.get_title().startswith("Centroids")]
    assert [
        side.get_major_formatter()(0.75, 0) for side in (axis.xaxis, axis.yaxis)
    ] == [
        "1970-01-01T18:00",
        "1970-01-02",
    ]


def test_the_hash_of_sources_covers_what_decides_results(tmp_path: Path) -> None:
    (tmp_path / "room").mkdir()
    seen = []
    for name in (
        "a.py",
        "room/b.toml",
        "room/c.example.toml",
        "room/d.css",
        "room/b.toml",
    ):
        (tmp_path / name).write_text(f"{len(seen)}")
        provenance.sources_hash.cache_clear()
        seen.append(provenance.sources_hash(tmp_path))
    assert len({seen[0], seen[1], seen[4]}) == 3
    assert seen[1] == seen[2] == seen[3]


def test_a_notebook_writes_what_a_run_writes(tmp_path: Path) -> None:
    rows = np.linspace(-1.0, 1.0, 200).reshape(100, 2)
    km = FederatedKMeans(2, bounds=(-1.0, 1.0), random_state=0, engine="direct").fit(
        [rows, rows]
    )
    places = {place.name for place in km.write(tmp_path / "run")}
    assert places == {
        *(
            "report.html",
            "report.md",
            "deployment.json",
            "model.json",
            "centroids.npz",
            "summary.png",
        ),
        "rounds.png",
        *("privacy_report.json", "metrics.json"),
    }
    again = FederatedKMeans.load(tmp_path / "run" / "model.json")
    assert again.predict(rows).tolist() == km.predict(rows).tolist()
    assert (
        "WARNING" not in (tmp_path / "run" / "report.md").read_text()
        or km.privacy_.warnings
    )
    # A loaded one knows less of its run, and nothing is replaced.
    first, *_ = again.write(tmp_path / "run")
    assert first.parent.name == "run-2"
    movements = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert [entry.get("movement") for entry in movements["rounds"]][-1] == km.history_[
        -1
    ]["movement"]


@pytest.mark.drawn
@pytest.mark.parametrize("algorithm", ["lloyd", "optimal", "k_fed", "fastlloyd"])
def test_a_page_speaks_of_noise_where_there_is_some(algorithm: str) -> None:
    """Exact sums came with an error by noise."""
    rows = np.linspace(-1.0, 1.0, 200).reshape(100, 2)
    with catch_warnings():
        simplefilter("ignore", PrivacyWarning)
        km = FederatedKMeans(
            2, bounds=(-1.0, 1.0), algorithm=algorithm, engine="direct"
        ).fit([rows, rows])
    figure = picture.summary_figure(km._result)
    drawn = [text.get_text() for text in figure.findobj(Text)]
    written = page(MARKDOWN, km.privacy_, km._result).decode().splitlines()
    told = [
        line
        for line in written + drawn
        if re.search("nois[ey]", line) and "WARNING" not in line
    ]
    if algorithm == "fastlloyd":
        assert len(told) > 10
    else:
        assert [
            line for line in told if not re.search(r"\bno noise|without noise$", line)
        ] == []
        assert any(
            re.search(r"arrays of sums: \d+ exact\. \|$", line) for line in written
        )


@pytest.mark.parametrize(("n_clients", "told"), [(2, True), (3, False)])
def test_of_two_parties_each_sees_the_others_totals_and_the_page_says_so(
    n_clients: int, told: bool
) -> None:
    text = page(
        MARKDOWN,
        replace(result_of().report, trust="central", n_clients=n_clients),
        None,
        b"",
    ).decode()
    assert (
        "but of two parties each the other's totals, up to the noise" in text
    ) is told
