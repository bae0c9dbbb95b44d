"""The ablation of ProxyLloyd, its figure, and the pictures of its page, on tables small
enough for a second.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from flwr_dpkmeans.algorithms.proxy.proxy_lloyd import build
from flwr_dpkmeans.algorithms.proxy.proxy_options import ProxyOptions
from simulations.papers.proxy import ablation
from simulations.papers.proxy import pictures as proxy_pictures
from simulations.papers.proxy.ablation_runs import (
    ALL,
    FASTLLOYD,
    MIXTURE,
    VARIANTS,
    DataSet,
    Job,
    optimum,
    play,
    points_of,
    public_of,
    run_job,
)

PNG = b"\x89PNG\r\n\x1a\n"
IRIS = DataSet("iris", "iris", 3)
WIDE = DataSet("mixture-3", MIXTURE, 3, 900)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Threads' start would take longer than the tests' own work."""
    with threadpool_limits(1):
        yield


def test_the_table_compares_every_variant_with_fastlloyd(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [
        "--sets",
        "iris:3",
        "--seeds",
        "2",
        "--epsilons",
        "0.5",
        "2",
        "--variants",
        "T = 2",
        "one pass",
    ]
    command = [*arguments, "--workers", "0", "--output", str(tmp_path)]
    assert ablation.main(command) == 0
    with (tmp_path / "ablation.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    # Passes over proxies differ in wide tables only, so 'one pass' is not run on iris.
    assert list(dict.fromkeys(row["method"] for row in rows)) == [
        FASTLLOYD,
        ALL,
        "T = 2",
    ]
    best = optimum(IRIS)
    ratios = {}
    for row in rows:
        job = Job(IRIS, row["method"], float(row["epsilon"]), (0, 1))
        assert float(row["mean_cost"]) == pytest.approx(
            np.mean(run_job(job)), rel=1e-12
        )
        assert float(row["excess"]) == pytest.approx(float(row["mean_cost"]) - best)
        ratios[row["method"], row["epsilon"]] = float(row["excess_ratio"])
    assert ratios[FASTLLOYD, "0.5"] == ratios[FASTLLOYD, "2.0"] == 1.0
    written = json.loads((tmp_path / "ablation.json").read_text())
    summary = {entry["variant"]: entry for entry in written["summary"]}
    assert summary[ALL]["excess_ratio"] == pytest.approx(
        math.sqrt(ratios[ALL, "0.5"] * ratios[ALL, "2.0"])
    )
    assert summary["one pass"]["excess_ratio"] == summary[ALL]["excess_ratio"]
    assert summary["one pass"]["over_all"] == 1.0
    assert summary["T = 2"]["over_all"] == pytest.approx(
        summary["T = 2"]["excess_ratio"] / summary[ALL]["excess_ratio"]
    )
    costs = {(row["method"], row["epsilon"]): float(row["mean_cost"]) for row in rows}
    areas = [costs[name, "0.5"] + costs[name, "2.0"] for name in (ALL, FASTLLOYD)]
    assert summary[ALL]["area_ratio"] == pytest.approx(areas[0] / areas[1])
    assert (tmp_path / "ablation.png").read_bytes().startswith(PNG)
    assert "not private" in capsys.readouterr().out


IN_A_CORNER = (
    "no far proxies",
    "no cover",
    "no few proxies",
    "counts apart",
    "empty clusters stay",
    "none unheard",
)
"""Variants that IRIS at epsilon 2 does not differ by.

Three counts are too few to be pulled together, and none is 0.
"""


def test_far_proxies_differ_where_most_rows_lie_in_a_corner(tmp_path: Path) -> None:
    generator = np.random.default_rng(1)
    centres = np.array(
        [[-0.7, -0.6, 0.5], [0.6, -0.7, -0.4], [0.7, 0.6, 0.6], [-0.5, 0.7, -0.6]]
    )
    near = np.clip(
        np.repeat(centres, 750, axis=0) + 0.1 * generator.normal(size=(3000, 3)), -1, 1
    )
    costs = costs_of(
        np.concatenate([0.95 + 0.05 * near, -np.ones((1, 3))]),
        4,
        0.5,
        "no far proxies",
        tmp_path,
    )
    assert costs[0] != costs[1]


def test_a_centroid_without_rows_goes_where_it_lowers_the_cost(tmp_path: Path) -> None:
    generator = np.random.default_rng(1)
    rows = np.repeat(
        generator.uniform(-0.9, 0.9, (15, 2)), 40, axis=0
    ) + 0.03 * generator.normal(size=(600, 2))
    split, stayed = costs_of(rows, 15, 2.0, "empty clusters stay", tmp_path)
    assert np.mean(split) < 0.99 * np.mean(stayed)
    assert all(np.array(split) <= np.array(stayed))


def test_few_rows_all_around_a_mass_get_centroids(tmp_path: Path) -> None:
    generator = np.random.default_rng(1)
    rows = np.concatenate(
        [
            0.01 * generator.normal(size=(19_400, 2)),
            generator.uniform(-1.0, 1.0, (600, 2)),
        ]
    )
    heard, lost = costs_of(
        generator.permutation(rows), 5, 0.5, "none unheard", tmp_path
    )
    assert np.mean(heard) < 0.6 * np.mean(lost)


@pytest.mark.parametrize(
    ("name", "epsilon"), [("no few proxies", 0.75), ("no cover", 20.0)]
)
def test_few_proxies_and_the_cover_differ_where_there_are_some(
    name: str, epsilon: float, tmp_path: Path
) -> None:
    costs = costs_of(points_of(IRIS), 3, epsilon, name, tmp_path)
    assert costs[0] != costs[1]


def costs_of(
    rows: Any, k: int, epsilon: float, name: str, folder: Path
) -> list[list[list[float]]]:
    """Of ProxyLloyd as it is and of a variant, with four seeds."""
    np.savez(folder / "rows.npz", X=rows)
    data = DataSet("rows", str(folder / "rows.npz"), k)
    return [
        [run_job(Job(data, method, epsilon, (seed,))) for seed in range(4)]
        for method in (ALL, name)
    ]


@pytest.mark.parametrize("name", VARIANTS)
def test_every_variant_runs_and_differs_where_it_says(name: str) -> None:
    variant = VARIANTS[name]
    wide = run_job(Job(WIDE, name, 200.0, (1,)))
    # Radii are widened where noise is next to nothing only.
    epsilon = 2_000.0 if name == "not widened" else 2.0
    narrow = run_job(Job(IRIS, name, epsilon, (1,)))
    assert math.isfinite(wide[0])
    same_narrow = narrow == run_job(Job(IRIS, ALL, epsilon, (1,)))
    assert same_narrow == (name in (ALL, *IN_A_CORNER) or variant.wide_only)
    assert (variant.options == ProxyOptions()) == (name == ALL)


def test_the_runner_reaches_the_optimum_without_noise_to_speak_of() -> None:
    (cost,) = run_job(Job(IRIS, ALL, 1000.0, (0,)))
    assert optimum(IRIS) <= cost < 1.05 * optimum(IRIS)


def test_the_runner_adds_the_noise_of_the_blocks() -> None:
    points = points_of(IRIS)
    algorithm = build(public_of(points, 3, "proxy_lloyd", 1.0))
    first = algorithm.rounds[0]
    algorithm = replace(algorithm, rounds=(first,))
    exact = first.statistic(points, algorithm.initial_state(0))[1][0]
    released = [
        play(algorithm, points, seed)[0].released["row_squares"][0]
        for seed in range(60)
    ]
    noise = first.blocks[1].noise_scale
    # The standard deviation of 60 draws is known to a tenth, their mean to an eighth of
    # one.
    assert np.std(released) == pytest.approx(noise, rel=0.35)
    assert abs(np.mean(released) - exact) < 0.5 * noise


def test_zeroed_releases_leave_the_prior() -> None:
    points, variant = points_of(IRIS), VARIANTS["no ellipsoid"]
    algorithm = build(public_of(points, 3, "proxy_lloyd", 1.0), variant.options)
    for seed in range(6):
        played = play(algorithm, points, seed, variant.zeroed)
        assert not played[0].after.extras["centre"].any()
        assert played[1].after.extras["spread"][0] == pytest.approx(
            math.sqrt(4 * 0.2), abs=1e-3
        )
        assert played[2].released["proxy_counts"].any()


def test_the_factor_over_all_leaves_out_where_nothing_differs() -> None:
    base = ablation.Worth(ALL, {"iris": 0.5, "mixture": 0.1}, {}, ())
    other = ablation.Worth("one pass", {"iris": 0.5, "mixture": 0.4}, {}, ("iris",))
    assert other.over(base) == pytest.approx(4.0)
    assert other.ratio == pytest.approx(math.sqrt(0.2))
    assert base.over(base) == pytest.approx(1.0)


def test_the_mixture_is_in_the_box_and_its_optimum_is_found() -> None:
    points = points_of(WIDE)
    assert points.shape == (900, 100)
    assert abs(points).max() <= 1.0
    # Variance 0.5 in a box of width 6.4.
    assert optimum(WIDE) == pytest.approx(100 * 0.5 / 3.2**2, rel=0.05)


def test_the_pages_pictures_are_those_of_the_command(tmp_path: Path) -> None:
    committed = {
        name: proxy_pictures.FOLDER / name
        for name in (proxy_pictures.START, proxy_pictures.PASSES)
    }
    page = (proxy_pictures.FOLDER.parent / "proxy_lloyd.md").read_text()
    for name, path in committed.items():
        assert path.read_bytes().startswith(PNG)
        assert path.stat().st_size < 200_000
        assert f"figures/{name}" in page
    smaller = proxy_pictures.Sizes(600, 500, 3)
    arguments = [
        "--start-epsilon",
        "50",
        "--passes-epsilon",
        "50",
        "--output",
        str(tmp_path),
    ]
    assert proxy_pictures.main(arguments, smaller) == 0
    for name in committed:
        assert (tmp_path / name).read_bytes().startswith(PNG)
