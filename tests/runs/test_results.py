"""Files that are whole or absent, and a picture for every kind of run."""

from __future__ import annotations

import functools
import io
import json
import math
import shutil
import struct
import warnings
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.machine import replace_call, replace_rights, replace_room, replace_sync
from support.results import report_of, result_of

from flwr_dpkmeans.algorithms.measure.evaluated_state import COST_CURVE
from flwr_dpkmeans.algorithms.proxy.entries import RADIUS
from flwr_dpkmeans.algorithms.server.box_widths import squared_unit
from flwr_dpkmeans.errors import LocalMisuseError
from flwr_dpkmeans.flower.kmeans_client import DESCRIBE, KMeansClient
from flwr_dpkmeans.privacy.provenance import Provenance
from flwr_dpkmeans.privacy.report import PrivacyReport
from flwr_dpkmeans.results import picture, whole_files
from flwr_dpkmeans.results.model import Model
from flwr_dpkmeans.results.pictures.figures import png_of
from flwr_dpkmeans.results.pictures.rounds_picture import rounds_figure
from flwr_dpkmeans.results.run_metrics import metrics_of
from flwr_dpkmeans.results.run_result import RunResult
from flwr_dpkmeans.results.whole_files import write_folder, write_whole
from flwr_dpkmeans.results.writer import result_files, write_report
from flwr_dpkmeans.sums.round import State

pytestmark = pytest.mark.drawn

ALL_MAY_HAVE = [
    "privacy_report.json",
    "metrics.json",
    "report.html",
    "report.md",
    "deployment.json",
]
NAMES = ["model.json", "centroids.npz", "summary.png", "rounds.png", *ALL_MAY_HAVE]


# Kinds of layout, report and numbers, several in one picture: drawing takes most of
# these tests' time.
RESULTS: dict[str, Callable[[], RunResult]] = {
    "digits": lambda: result_of(10, 64, image_shape=(8, 8)),
    "two rows of images, laplace": lambda: result_of(
        9, 6, image_shape=(2, 3), report=report_of(9, 6, algorithm="sulloyd")
    ),
    "two features": lambda: result_of(4, 2, feature_names=("length", "width")),
    "one feature, negative counts": lambda: result_of(
        3, 1, feature_names=("length",), counts=np.array([-5.0, -1.0, 0.0])
    ),
    "one feature without a name, nothing moved": lambda: result_of(
        3, 1, movements=(0.0, 0.0, 0.0)
    ),
    "one cluster in five dimensions": lambda: result_of(1, 5),
    "one cluster as a blank image": lambda: result_of(
        1, 4, centroids=np.zeros((1, 4)), image_shape=(2, 2)
    ),
    "not private": lambda: result_of(3, 2, report=report_of(3, 2, algorithm="lloyd")),
    "retried": lambda: result_of(
        3,
        2,
        report=report_of(3, 2, [(1, 0), (2, 0), (2, 1), (3, 1)], algorithm="fastlloyd"),
    ),
    "fastlloyd": lambda: result_of(3, 2, report=report_of(3, 2, algorithm="fastlloyd")),
    "counted": lambda: result_of(
        3, 2, report=report_of(3, 2, counted=900, n_examples=None)
    ),
    "forty features": lambda: result_of(6, 40),
    "coinciding centroids": lambda: result_of(3, 5, centroids=np.zeros((3, 5))),
    "large and small": lambda: result_of(
        2, 4, image_shape=(2, 2), counts=np.array([1e6, 1.0])
    ),
}


@functools.cache
def result_named(name: str) -> RunResult:
    """Made when a test asks, as every process that runs tests imports this file."""
    return (RESULTS | CROWDED)[name]()


def png_size(content: bytes) -> tuple[int, int]:
    """Width and height; also checks signature and checksums of all chunks."""
    assert content.startswith(b"\x89PNG\r\n\x1a\n")
    start, kinds = 8, []
    while start < len(content):
        length, kind = struct.unpack_from(">I4s", content, start)
        body = content[start + 4 : start + 8 + length]
        assert (
            zlib.crc32(body) == struct.unpack_from(">I", content, start + 8 + length)[0]
        )
        kinds.append(kind)
        start += 12 + length
    assert kinds[0] == b"IHDR"
    assert kinds[-1] == b"IEND"
    width, height = struct.unpack_from(">II", content, 16)
    return int(width), int(height)


@dataclass
class Drawn:
    """A picture, and what can be seen in it."""

    content: bytes
    words: frozenset[str]
    lines: list[tuple[str, list[float]]]
    """Of each line its name, and where its points stand."""
    labels: dict[str, list[Any]]
    """Boxes of the words that stand beside each other.

    Ticks of each horizontal axis, and counts.
    """


@functools.cache
def drawn(name: str) -> Drawn:
    """Every picture is drawn once: drawing takes most of these tests' time."""
    # A crowded one in its own size: labels of a small one may not touch each other.
    return looked_at(result_named(name), dpi=60 if name in RESULTS else None)


def looked_at(result: RunResult, dpi: int | None) -> Drawn:
    """A picture that is drawn without a warning."""
    from matplotlib.lines import Line2D
    from matplotlib.text import Text

    words: set[str] = set()
    lines: list[tuple[str, list[float]]] = []
    labels: dict[str, list[Any]] = {}
    content = b""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for figure in (picture.summary_figure(result), rounds_figure(result)):
            if dpi is not None:
                figure.set_dpi(dpi)
            # Boxes are known once it is drawn.
            drawn_figure = png_of(figure)
            content = content or drawn_figure
            words.update(
                text.get_text() for text in figure.findobj(Text) if text.get_text()
            )
            lines.extend(
                (line.get_label(), list(line.get_xdata()))
                for line in figure.findobj(Line2D)
            )
            for i, axes in enumerate(figure.axes, start=len(labels)):
                shown = [
                    label
                    for label in axes.get_xticklabels()
                    if label.get_text() and axes.axison
                ]
                labels[f"ticks {i}"] = [label.get_window_extent() for label in shown]
                strip = axes.texts if axes.get_title() == "Budget by round" else []
                labels[f"strip {i}"] = [text.get_window_extent() for text in strip]
                labels[f"counts {i}"] = [
                    text.get_window_extent()
                    for text in axes.texts
                    if " n ~ " in text.get_text()
                ]
    return Drawn(content, frozenset(words), lines, labels)


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "name", sorted({*RESULTS} - {"counted"})
)  # as "two features", in the picture
def test_picture_of_every_kind_of_run(name: str) -> None:
    words = drawn(name).words
    assert not {"none", "None", "nan", "inf"} & {
        word.strip().lower() for text in words for word in text.split()
    }
    report = result_named(name).report
    titles = [
        text.split()
        for text in words
        if "clusters came out" in text or "cluster came out" in text
    ]
    assert titles
    assert (
        any("NOT" in title and "PRIVATE:" in title for title in titles)
        is not report.is_private
    )


def test_a_picture_that_fails_costs_nobody_the_model(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(*_: object) -> bytes:
        raise ValueError("row 4711")

    files = result_files(result_of(2, 3), fail)
    assert "summary.png" not in files
    assert {"model.json", "report.html", "centroids.npz"} <= set(files)
    (told,) = [
        record for record in caplog.records if record.name == "flwr_dpkmeans.results"
    ]
    assert told.getMessage().startswith("a picture was not drawn: ValueError at ")
    assert "4711" not in told.getMessage()


@pytest.mark.parametrize(
    ("width", "squared"),
    [(2.0, 1.0), (2.0**500, 2.0**998), (1e155, None), (1e300, None)],
)
def test_a_squared_unit_that_is_no_number_is_none(
    width: float, squared: float | None
) -> None:
    """It was an error after the last release, and a node had no file."""
    assert squared_unit(((0.0,) * 2, (width,) * 2)) == squared


@pytest.mark.nightly
def test_picture_names_clusters_features_rounds_and_costs() -> None:
    words = drawn("two features").words
    assert {
        "length",
        "width",
        "1",
        "2",
        "3",
        "epsilon so far",
        "Movement per round",
    } <= words
    assert {"radius", "largest movement", "Radius and movement per round"} <= drawn(
        "fastlloyd"
    ).words
    for name, k in (("two features", 4), ("digits", 10)):
        assert sorted(
            int(word.split(":")[0]) for word in drawn(name).words if " n ~ " in word
        ) == list(range(k))
    assert any(
        "no noise was added: epsilon is infinite" in word
        for word in drawn("not private").words
    )


@pytest.mark.parametrize(
    ("name", "rounds"), [("two features", [6, 7, 8]), ("fastlloyd", [1, 2, 3])]
)
def test_movements_stand_at_the_rounds_that_moved_something(
    name: str, rounds: list[int]
) -> None:
    assert ("largest movement", rounds) in drawn(name).lines


def with_private_bounds(report: PrivacyReport) -> PrivacyReport:
    """The report of a run whose first two rounds found the bounds."""
    first = report_of(3, 2, private_bounds=True, n_examples=None).releases
    assert {line.round_name for line in first} == {"count and magnitudes", "ranges"}
    return replace(report, releases=(*first, *report.releases))


CROWDED: dict[str, Callable[[], RunResult]] = {
    "private bounds": lambda: result_of(
        4, 2, report=with_private_bounds(report_of(4, 2))
    ),
    "k = 20, d = 60": lambda: result_of(
        20, 60, report=with_private_bounds(report_of(20, 60, max_iter=15))
    ),
    "many rounds, many of them twice": lambda: result_of(
        100,
        3,
        report=report_of(
            3,
            2,
            [(i, j) for i in range(1, 121) for j in (2 * i, 2 * i + 1)],
            max_iter=120,
        ),
    ),
}


def test_repeated_attempts_are_marked_and_others_are_not() -> None:
    # Round 3 ran once, although its attempt has number 1.
    assert {
        "1",
        "2",
        "2'",
        "3",
        "numbers are rounds; ' marks a repeated attempt",
    } <= drawn("retried").words
    assert not {"1'", "3'"} & drawn("retried").words


def test_counts_within_the_noise_carry_a_word_of_caution() -> None:
    assert {"0: n ~ 1,000,000", "1: n ~ 1, mostly noise"} <= drawn(
        "large and small"
    ).words


# -- the files -------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["not private", "counted", "fastlloyd"])
def test_all_files_are_written_and_parse(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = result_named(name)
    paths = write_folder(tmp_path / "run" / "client-2", result_files(result))
    names = [
        one for one in NAMES if one != "deployment.json" or result.report.is_private
    ]
    assert [path.name for path in paths] == names
    place = dict(zip(names, paths, strict=True))
    assert all(path.is_absolute() for path in paths)
    assert sorted(
        path.name for path in (tmp_path / "run" / "client-2").iterdir()
    ) == sorted(names)
    with np.load(place["centroids.npz"]) as archive:
        assert np.array_equal(archive["centroids"], result.model.centroids)
        assert np.array_equal(archive["counts"], result.model.counts)
        assert tuple(archive["feature_names"]) == result.model.feature_names
    assert (
        PrivacyReport.from_dict(json.loads(place["privacy_report.json"].read_text()))
        == result.report
    )
    metrics = json.loads(place["metrics.json"].read_text())
    assert metrics["n_iterations"] == 3
    assert metrics["n_rounds"] == len(
        [entry for entry in metrics["rounds"] if entry["round"] > 0]
    )
    assert metrics["noisy_counts"] == result.model.counts.tolist()
    assert [entry["movement"] for entry in metrics["rounds"][-3:]] == list(
        result.movements
    )
    assert not any("movement" in entry for entry in metrics["rounds"][:-3])
    png_size(place["summary.png"].read_bytes())


def test_metrics_follow_from_the_report() -> None:
    report = result_named("retried").report
    metrics = metrics_of(report)
    assert [entry["round"] for entry in metrics["rounds"]] == [1, 2, 3]
    assert metrics["epsilon"] == report.epsilon
    # Prices of the whole plan and of its lines take two ways to one number.
    assert metrics["rounds"][-1]["epsilon"] == pytest.approx(report.epsilon, rel=1e-9)
    assert "noisy_counts" not in metrics
    assert not any("movement" in entry for entry in metrics["rounds"])
    assert metrics["rounds"][0]["noise_relative_sums"] == report.releases[0].noise_scale
    counted = metrics_of(result_named("counted").report, None, (0.5, 0.25, 0.125))
    # The count, three looks, covariance and proxies move nothing.
    assert [entry.get("movement") for entry in counted["rounds"]] == [None] * 6 + [
        0.5,
        0.25,
        0.125,
    ]
    assert (counted["n_iterations"], counted["n_rounds"]) == (3, 8)
    assert metrics["n_rounds"] == 3
    assert "n_iterations" not in metrics
    assert metrics_of(result_named("not private").report)["epsilon"] is None
    json.dumps(metrics_of(result_named("not private").report), allow_nan=False)
    with pytest.raises(ValueError, match="not JSON compliant"):
        result_files(result_of(2, 2, movements=(math.nan, math.nan)))


def test_report_alone_has_no_centroids(tmp_path: Path) -> None:
    report = result_named("digits").report
    paths = write_report(tmp_path, report)
    assert [path.name for path in paths] == ALL_MAY_HAVE
    assert len(list(tmp_path.iterdir())) == 5


# -- whole or absent -------------------------------------------------------------------


def failing(error: BaseException) -> Any:
    def fail(*_: Any, **__: Any) -> None:
        raise error

    return fail


def test_a_disk_without_room_for_a_result_is_told_and_never_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What is left depends on how many rows are kept on the same disk."""
    here, there = shutil.disk_usage(tmp_path), tmp_path / "runs" / "one"
    answers = []
    for free, told in ((2**24, 0), (2**23, 1)):
        replace_room(monkeypatch, lambda _, free=free: here._replace(free=free))
        answers.append(
            KMeansClient(np.zeros((3, 2)), output_dir=there).fit([], {"task": DESCRIBE})
        )
        said = [
            one
            for one in caplog.messages
            if f"{there}: 8 MiB are left, too few for a result" in one
        ]
        assert len(said) == told
    assert answers[0] == answers[1]
    assert not there.parent.exists()


@pytest.mark.parametrize("step", ["fsync", "replace"])
@pytest.mark.parametrize("before", [b"the old file", None])
def test_a_failure_in_the_middle_leaves_the_old_file(
    step: str, before: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "metrics.json"
    if before is not None:
        path.write_bytes(before)
    replace_call(monkeypatch, step, failing(OSError(28, "No space left on device")))
    with pytest.raises(LocalMisuseError) as caught:
        write_whole(path, b"new" * 1000)
    assert (
        str(caught.value)
        == f"the file {path} cannot be written (No space left on device): free space or"
        " choose another output folder."
    )
    assert [found.name for found in tmp_path.iterdir()] == (
        [] if before is None else ["metrics.json"]
    )
    assert before is None or path.read_bytes() == before


@pytest.mark.parametrize("error", [KeyboardInterrupt(), MemoryError(), SystemExit(1)])
def test_an_interruption_leaves_no_temporary_file(
    error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "metrics.json"
    path.write_bytes(b"old")
    replace_sync(monkeypatch, failing(error))
    with pytest.raises(type(error)):
        write_whole(path, b"new")
    assert list(tmp_path.iterdir()) == [path]
    assert path.read_bytes() == b"old"


def test_the_new_file_is_complete_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, seen = tmp_path / "metrics.json", []
    replace = whole_files.os.replace

    def looking(source: str, target: Path) -> None:
        assert not path.exists()
        assert Path(source).parent == tmp_path
        seen.append(Path(source).read_bytes())
        replace(source, target)

    replace_call(monkeypatch, "replace", looking)
    assert write_whole(path, b"content") == path.absolute()
    assert seen == [b"content"]
    assert path.read_bytes() == b"content"


def test_a_folder_that_cannot_be_written_has_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    folder = tmp_path / "file" / "run-1"
    with pytest.raises(LocalMisuseError) as caught:
        write_folder(folder, result_files(result_named("two features")))
    assert (
        str(caught.value)
        == f"the folder {folder} cannot be written (Not a directory): choose another"
        " output folder."
    )
    (tmp_path / "metrics.json").mkdir()
    with pytest.raises(LocalMisuseError, match=r"metrics.json cannot be written"):
        write_whole(tmp_path / "metrics.json", b"x")
    assert sorted(found.name for found in tmp_path.iterdir()) == [
        "file",
        "metrics.json",
    ]
    with pytest.raises(LocalMisuseError, match=r"the folder .*/file/a cannot"):
        write_whole(tmp_path / "file" / "a" / "b.json", b"1")


def test_a_result_never_replaces_another_one(tmp_path: Path) -> None:
    folder, report = tmp_path / "run-1" / "client-2", result_named("digits").report
    (tmp_path / "run-1").mkdir()
    (tmp_path / "run-1" / "client-2-2").write_text("a file")
    places = [
        write_folder(folder, {"a.json": content})[0].parent.name
        for content in (b"1", b"2")
    ]
    assert places == ["client-2", "client-2-3"]
    assert write_report(folder, report)[0].parent.name == "client-2-4"
    assert (folder / "a.json").read_bytes() == b"1"
    assert not [path for path in folder.parent.iterdir() if path.name.startswith(".")]


def test_runs_that_end_at_the_same_time_all_keep_their_results(tmp_path: Path) -> None:
    def write(number: int) -> tuple[int, Path]:
        return (
            number,
            write_folder(
                tmp_path / "result", {"a": b"%d" % number, "b": b"%d" % number}
            )[0],
        )

    with ThreadPoolExecutor(8) as pool:
        written = list(pool.map(write, range(24)))
    assert len({path.parent for _, path in written}) == 24
    for number, path in written:
        assert [path.parent.joinpath(name).read_bytes() for name in "ab"] == [
            b"%d" % number
        ] * 2


@pytest.mark.parametrize("step", ["fsync", "rename"])
@pytest.mark.parametrize(
    "error", [OSError(28, "No space left on device"), KeyboardInterrupt()]
)
def test_a_failure_leaves_no_part_of_a_folder(
    error: BaseException, step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace_call(monkeypatch, step, failing(error))
    with pytest.raises(
        LocalMisuseError if isinstance(error, OSError) else KeyboardInterrupt
    ):
        write_folder(tmp_path / "result", {"a": b"1"})
    assert list(tmp_path.iterdir()) == []


def test_a_release_without_noise_is_no_missing_bar() -> None:
    report = report_of(3, 2, evaluation="exact")
    assert [math.isinf(line.epsilon_so_far) for line in report.releases][-3:] == [
        True
    ] * 3
    words = looked_at(result_of(3, 2, report=report), dpi=40).words
    assert f"{report.releases[-1].round_index}: infinite" in words


def test_the_picture_says_which_run_it_belongs_to() -> None:
    provenance = Provenance.of(77, "client 2", b"p" * 32)
    result = replace(
        result_named("digits"),
        report=replace(result_named("digits").report, provenance=provenance),
    )
    assert str(provenance) in looked_at(result, dpi=40).words


def test_infinite_epsilon_never_reaches_a_file_as_a_word(tmp_path: Path) -> None:
    report = result_named("not private").report
    assert math.isinf(report.epsilon)
    for path in write_report(tmp_path, report):
        assert "Infinity" not in path.read_text()


def test_who_reads_a_result_sees_no_private_number_by_accident() -> None:
    """What shows a result in a log or an error shows no released arrays."""
    shown = {field.name for field in fields(RunResult) if field.repr}
    assert shown == {"model", "report", "image_shape", "evaluation"}
    shown = {field.name for field in fields(Model) if field.repr}
    assert shown == {"bounds", "feature_names", "schema"}


def test_a_result_knows_its_last_state() -> None:
    model, curve = result_of(3, 2).model, np.array([2.0, 1.0])
    arrays = {"centroids": model.scaled, "counts": model.counts}
    for more, radius in (
        ({}, None),
        ({RADIUS: np.array([0.25]), COST_CURVE: curve}, [0.25]),
        # Of fewer clusters than may be chosen.
        (
            {RADIUS: np.array([0.25, 0.5, 0.125, 9.0]), COST_CURVE: curve},
            [0.25, 0.5, 0.125],
        ),
    ):
        result = RunResult.of(
            model, model.privacy, State(arrays | more, (0.5,)), spent="x"
        )
        assert (
            result.radius if result.radius is None else result.radius.tolist()
        ) == radius
        assert (result.movements, result.spent) == ((0.5,), "x")
        assert result.scaled_costs is (curve if more else None)


def test_costs_are_told_in_squared_units_where_all_features_have_one_width() -> None:
    scaled = np.array([4.0, 1.0])
    alone = result_of(2, 2)
    assert alone.costs is None
    for bounds, factor in ((((0.0,), (10.0,)), 25.0), (((0.0, 0.0), (10.0, 2.0)), 1.0)):
        costs = result_of(2, 2, bounds=bounds, scaled_costs=scaled).costs
        assert costs is not None
        assert costs.tolist() == [4.0 * factor, factor]


def test_a_chosen_number_of_clusters_comes_with_its_curve() -> None:
    provenance = Provenance("7", "server", "ab" * 32)
    result = result_of(
        3, 2, scaled_costs=np.array([4.0, 1.0]), bounds=((0.0,), (10.0,))
    )
    files = result_files(
        replace(result, report=replace(result.report, provenance=provenance))
    )
    assert sorted(files) == sorted([*NAMES, "cost_curve.png"])
    png_size(files["cost_curve.png"])
    metrics = json.loads(files["metrics.json"])
    assert (metrics["n_clusters"], metrics["costs"]) == (3, [100.0, 25.0])
    assert metrics["provenance"] == provenance.to_dict()
    with np.load(io.BytesIO(files["centroids.npz"])) as archive:
        assert json.loads(str(archive["provenance"])) == provenance.to_dict()
        assert set(archive) == {
            "centroids",
            "cluster_centers_error",
            "counts",
            "feature_names",
            "scaled",
            "bounds",
            "provenance",
        }
        assert archive["bounds"].tolist() == [[0.0] * 2, [10.0] * 2]
    without = result_files(result_of(3, 2))
    assert list(without) == NAMES
    assert "provenance" not in json.loads(without["metrics.json"])


def test_movements_belong_to_the_last_rounds_that_move_something() -> None:
    """Rounds up to 0 and the evaluation do not; the last attempt's epsilon counts."""
    line = report_of(3, 2).releases[0]
    rounds = (
        (-1, "ranges"),
        (0, "count"),
        (1, "look"),
        (2, "lloyd-1"),
        (2, "lloyd-1"),
        (3, "lloyd-2"),
        (4, "evaluation"),
    )
    lines = []
    for i, (index, name) in enumerate(rounds):
        names = {"round_index": index, "round_name": name, "array": "a"}
        costs = {"noise_scale": float(i), "epsilon_so_far": 0.5 + i}
        lines.append(replace(line, **names, **costs))
    report = replace(report_of(3, 2), releases=tuple(lines), epsilon=math.inf)
    metrics = metrics_of(report, np.array([1.0, 2.5]), (0.5, 0.25))
    entries = metrics["rounds"]
    assert [entry["round"] for entry in entries] == [-1, 0, 1, 2, 3, 4]
    assert [entry["epsilon"] for entry in entries] == [0.5, 1.5, 2.5, 4.5, 5.5, 6.5]
    assert [entry["noise_a"] for entry in entries] == [0.0, 1.0, 2.0, 4.0, 5.0, 6.0]
    movements = [entry.get("movement") for entry in entries]
    assert movements == [None, None, None, 0.5, 0.25, None]
    assert entries[0]["radius"] == line.radius
    assert (metrics["n_rounds"], metrics["n_iterations"]) == (4, 2)
    assert metrics["noisy_counts"] == [1.0, 2.5]
    assert metrics["epsilon"] is None
    unmoved = metrics_of(report, None, ())
    assert unmoved["n_iterations"] == 0
    assert not any("movement" in entry for entry in unmoved["rounds"])


def test_files_are_for_their_writer_alone_and_folders_are_made(tmp_path: Path) -> None:
    place = write_whole(tmp_path / "a" / "b" / "c.json", b"1")
    (other,) = write_folder(tmp_path / "d" / "e", {"f": b"2"})
    assert [path.stat().st_mode & 0o777 for path in (place, other)] == [0o600, 0o600]
    assert write_whole(place, b"3").read_bytes() == b"3"
    arrays, *_ = write_report(
        tmp_path / "d" / "g", result_named("digits").report, {"x": np.arange(3)}
    )
    assert arrays.name == "result.npz"
    with np.load(arrays) as archive:
        assert archive["x"].tolist() == [0, 1, 2]


def test_a_place_for_results_is_looked_at_before_it_is_paid_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole_files.require_writable(tmp_path / "not" / "there" / "yet")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("not a folder")
    sentence = "is no folder that this user may write into"
    with pytest.raises(LocalMisuseError, match=sentence):
        whole_files.require_writable(tmp_path / "file" / "run-1")
    asked: list[Any] = []
    replace_rights(monkeypatch, lambda *how: bool(asked.append(how)))
    with pytest.raises(LocalMisuseError, match=sentence):
        whole_files.require_writable(tmp_path / "run-1")
    assert asked == [(tmp_path, whole_files.os.W_OK | whole_files.os.X_OK)]
