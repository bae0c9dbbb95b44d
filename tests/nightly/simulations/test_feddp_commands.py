"""The benchmark commands of FedDP-KMeans, on federations small enough for seconds."""

from __future__ import annotations

import csv
import dataclasses
import json
import math
from pathlib import Path

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from flwr_dpkmeans.kmeans.cost import cost_per_point
from simulations import run
from simulations.experiments.table import read_table
from simulations.experiments.workers import run_jobs
from simulations.papers.feddp import cost as feddp_cost
from simulations.papers.feddp import mixture_runs
from simulations.papers.feddp import utility as feddp_utility
from simulations.papers.feddp.mixture_runs import PAPER, Fit, Setting
from simulations.sources.mixture import draw_gaussian_mixture

SMALL = ("--clients", "5", "--rows", "200")
PNG = b"\x89PNG\r\n\x1a\n"


def table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_utility_is_above_the_optimum_of_the_same_seed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [
        "--unit",
        "record",
        "client",
        "--seeds",
        "2",
        "--epsilons",
        "2",
        "200",
        *SMALL,
    ]
    command = [*arguments, "--workers", "0", "--output", str(tmp_path)]
    assert feddp_utility.main(command) == 0
    rows = table(tmp_path / "feddp_utility.csv")
    written = json.loads((tmp_path / "feddp_utility.json").read_text())
    assert [(row["unit"], row["noise_kind"], row["epsilon"]) for row in rows] == [
        (unit, kind, epsilon)
        for unit in ("record", "client")
        for kind in ("gaussian", "paper")
        for epsilon in ("2.0", "200.0")
    ]
    assert [float(row["mean_excess"]) for row in rows] == [
        row["mean_excess"] for row in written["rows"]
    ]
    for row in rows:
        assert float(row["mean_excess"]) > 0.0
        assert float(row["se"]) > 0.0
        assert row["limit"] == ""  # The limits are for the paper's sizes.
    excess = {
        (row["unit"], row["noise_kind"], row["epsilon"]): float(row["mean_excess"])
        for row in rows
    }
    # One centre for all costs 100/12 * 9/10 more than the optimum; hardly any noise is
    # close to it.
    assert (
        excess["record", "gaussian", "200.0"]
        < 0.1
        < 4.0
        < excess["record", "gaussian", "2.0"]
        < 8.0
    )
    assert (
        excess["record", "paper", "200.0"]
        < 0.1
        < 4.0
        < excess["record", "paper", "2.0"]
        < 16.0
    )
    printed = capsys.readouterr().out
    assert "5 x 200" in printed
    assert "2 seeds" in printed


def test_the_papers_noise_comes_with_the_references_clip_bounds() -> None:
    asked: list[Fit] = []

    def run_fit(fit: Fit) -> mixture_runs.Fitted:
        asked.append(fit)
        return mixture_runs.Fitted(1.0, 1.0)

    for unit in ("record", "client"):
        for kind in ("gaussian", "paper"):
            job = feddp_utility.Job(PAPER[unit], 0, kind, 0.5)
            feddp_utility.run_job(job, run_fit)
    found = [dict(fit.options) for fit in asked]
    defaults, paper = (
        {"noise_kind": "gaussian", "max_iter": 0},
        {"noise_kind": "paper", "max_iter": 0, "trust": "central"},
    )
    client = {
        "outer_product_bound": 1500,
        "weights_bound": 1,
        "means_bound": 21,
        "indicators_bound": 10,
    }
    assert found == [defaults, paper | {"data_radius": 11}, defaults, paper | client]


def test_the_optimum_is_no_worse_than_any_start_in_reach() -> None:
    setting = Setting("record", 3, 200)
    mixture = draw_gaussian_mixture(
        np.random.default_rng(4), n_clients=3, points_per_client=200
    )
    points = np.concatenate(mixture.clients)
    best = mixture_runs.optimum(setting, 4, restarts=3)
    assert best == min(best, mixture_runs.optimum(setting, 4, restarts=0))
    assert best < cost_per_point(points, mixture.means)
    assert best <= mixture_runs.run_fit(Fit(setting, 4, "feddp_kmeans", 1000.0)).cost


def test_limits_and_reference_are_looked_up_by_epsilon(tmp_path: Path) -> None:
    runs = {"0.080": [51.0, 52.0, 60.0], "1.301": [50.5]}
    reference = {
        "optimum_cost_per_point": 50.0,
        "record_level_100_clients_x_1000": {"runs": runs},
        "client_level_2000_clients_x_50": {"runs": {"3.005": [50.25]}},
    }
    path = tmp_path / "reference.json"
    path.write_text(json.dumps(reference))
    found = feddp_utility.reference_excesses(path)
    assert found == {
        ("record", 0.08): 2.0,
        ("record", 1.301): 0.5,
        ("client", 3.005): 0.25,
    }
    limit_of = feddp_utility.limit_of
    assert limit_of(PAPER["record"], "gaussian", 0.322, {}) == (0.03, "limit")
    assert limit_of(PAPER["client"], "gaussian", 1.49, found) == (0.12, "limit")
    assert limit_of(PAPER["record"], "paper", 1.30, found) == (0.5, "reference")
    assert limit_of(PAPER["client"], "paper", 3.01, found) == (0.25, "reference")
    assert limit_of(PAPER["client"], "paper", 1.30, found) == (None, "")
    assert limit_of(PAPER["record"], "paper", 0.08, {}) == (None, "")
    assert limit_of(Setting("record", 100, 1000, missing=2), "gaussian", 0.322, {}) == (
        None,
        "",
    )


def test_the_papers_fronts_of_every_method(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = ["n_clients=5", "data.rows_per_client=200", "privacy.epsilon=4", "seed=0"]
    assert (
        run.main(["+experiment=feddp_fig1", *small, "workers=0", f"output={tmp_path}"])
        == 0
    )
    rows, experiment, figures = read_table(tmp_path)
    assert experiment == "feddp_fig1"
    assert [figure["kind"] for figure in figures] == ["pareto", "shares"]
    numbers = rows["algorithm.name"].value_counts().to_dict()
    # Splits x rounds; the others have neither splits nor rounds, ProxyLloyd runs with
    # and without server points.
    assert numbers == {
        "feddp_kmeans": 18,
        "server_kmeans++": 8,
        "server_lloyd": 8,
        "sphere_packing": 8,
        "fastlloyd": 5,
        "proxy_lloyd": 2,
        **dict.fromkeys(("glloyd", "sulloyd", "max_cover", "optimal", "k_fed"), 1),
    }
    assert (rows["status"] == "done").all()
    private = rows[~rows["algorithm.name"].isin(["optimal", "k_fed"])]
    assert (private["epsilon"] <= 4.0).all()
    assert (
        rows[rows["algorithm.name"].isin(["optimal", "k_fed"])]["epsilon"].isna().all()
    )
    assert rows["algorithm.name"][rows["cost_per_point"].idxmin()] == "optimal"
    assert (tmp_path / "figures" / "feddp_fig1.png").read_bytes().startswith(PNG)
    assert (tmp_path / "figures" / "feddp_fig1.pdf").read_bytes().startswith(b"%PDF-")
    assert str(tmp_path / "table.parquet") in capsys.readouterr().out


def test_cost_in_a_process_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--unit", "record", "--clients", "6", "--rows", "20", "--repeats", "2"]
    assert feddp_cost.main([*arguments, "--output", str(tmp_path)]) == 0
    (row,) = table(tmp_path / "feddp_cost.csv")
    assert (row["unit"], row["engine"], row["masks"], row["repeats"]) == (
        "record",
        "direct",
        "0",
        "2",
    )
    assert (
        0.0
        < float(row["least_seconds"])
        <= float(row["median_seconds"])
        <= float(row["most_seconds"])
    )
    # Python with numpy and scikit-learn needs tens of megabytes; a wrong unit would be
    # off by 1000.
    assert 0.03 < float(row["gb_before_fit"]) <= float(row["peak_gb"]) < 3.0
    # Triangle of 100 x 100, 300 server points, sums and counts of 10 clusters.
    assert int(row["noise_entries_per_client"]) == 100 * 101 // 2 + 300 + 10 * 101
    assert (
        0.0
        < float(row["seeded_noise_ms_per_client"])
        < float(row["secure_noise_ms_per_client"])
    )
    assert row["limit_seconds"] == ""
    assert "6 x 20" in capsys.readouterr().out
    assert (
        json.loads((tmp_path / "feddp_cost.json").read_text())["options"]["repeats"]
        == 2
    )


@pytest.mark.parametrize("case", [*feddp_cost.CASES, *feddp_cost.FLOWER_CASES][3:])
def test_every_kind_of_run_is_one_that_the_estimator_takes(
    case: feddp_cost.Case,
) -> None:
    small = dataclasses.replace(case, setting=Setting(case.setting.unit, 4, 20))
    with threadpool_limits(1):
        feddp_cost._fit(small, 1.0)


def test_the_cases_have_the_limits_of_their_sizes() -> None:
    limits = {
        (c.setting.n_clients, c.setting.rows, c.masking): c.limit
        for c in feddp_cost.CASES
    }
    assert limits == {
        (100, 1000, False): 2.5,
        (2000, 50, False): 4.0,
        (10_000, 50, False): 20.0,
        (2000, 50, True): 25.0,
    }


def test_workers_give_the_same_in_order() -> None:
    values = [1.0, 4.0, 9.0, 16.0]
    found = run_jobs(math.sqrt, values, workers=2, chunk=2, description="roots")
    assert found == [1.0, 2.0, 3.0, 4.0]
