"""Simulated excess, the search for epsilon, the whole answer and the command."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from dataclasses import FrozenInstanceError, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.flat import flat_estimator

from flwr_dpkmeans import FederatedKMeans
from flwr_dpkmeans.algorithms.kmeans_task import cluster_state
from flwr_dpkmeans.errors import ConfigurationError, LocalMisuseError
from flwr_dpkmeans.kmeans.lloyd import cost_per_point, round_to_grid
from flwr_dpkmeans.planner import Forecast, PlanningRequest, make_forecast, simulate
from flwr_dpkmeans.planner.cli import main
from flwr_dpkmeans.planner.forecast import centroid_noise
from flwr_dpkmeans.planner.simulate import (
    Excess,
    Simulator,
    draw_mixture,
    epsilon_for_target,
    n_clusters_grid,
    optimal_cost,
    run_plan,
    simulated_size,
)
from flwr_dpkmeans.privacy.release import as_released
from flwr_dpkmeans.secagg.keys import encode
from flwr_dpkmeans.sums.draft import build_algorithm
from flwr_dpkmeans.sums.plan import make_noise_source

SMALL = ("--n", "600", "--d", "2", "--k", "3", "--clients", "3", "--seeds", "2", "--algorithm", "glloyd")


def request_of(n: int = 600, clients: int = 3, seeds: int = 2, **options: Any) -> PlanningRequest:
    given = {"n_clusters": 3, "bounds": (-1.0, 1.0)} | options
    return PlanningRequest(n, 2, clients, given, seeds=seeds, algorithms=("fastlloyd", "glloyd"))


@pytest.fixture(scope="module")
def forecast() -> Forecast:
    return make_forecast(request_of())


@pytest.mark.parametrize("algorithm", ["fastlloyd", "glloyd", "sulloyd"])
@pytest.mark.parametrize("trust", ["oblivious", "central"])
def test_a_simulated_run_is_that_of_the_direct_engine(algorithm: str, trust: str) -> None:
    request = request_of(trust=trust)
    points = draw_mixture(request, 3, 0).points
    state = run_plan(request.draft(algorithm, noise="seeded", seed=7), (points,))
    model = flat_estimator(
        3,
        algorithm=algorithm,
        trust=trust,
        bounds=(-1.0, 1.0),
        engine="direct",
        noise="seeded",
        random_state=7,
        masking=False,
    )
    model.fit(np.array_split(points, 3))
    np.testing.assert_array_equal(state.centroids, model.cluster_centers_)


def test_repeated_rows_are_rows() -> None:
    request = request_of()
    plan = request.draft("fastlloyd", noise="seeded", seed=7)
    points = draw_mixture(request, 3, 0).points[:200]
    once, thrice = run_plan(plan, (points,), 3), run_plan(plan, (np.tile(points, (3, 1)),))
    np.testing.assert_array_equal(once.centroids, thrice.centroids)
    assert not np.array_equal(once.centroids, run_plan(plan, (points,)).centroids)


@pytest.mark.parametrize("algorithm", ["fastlloyd", "glloyd"])
def test_centroids_move_as_much_as_their_noise_says(algorithm: str) -> None:
    request = request_of(6_000)
    data, plan = draw_mixture(request, 3, 4), request.draft(algorithm, noise="seeded")
    step, noise = build_algorithm(plan).rounds[-1], centroid_noise(plan)
    assert noise is not None
    start = cluster_state(round_to_grid(data.centres), np.zeros(3))
    exact = [np.ravel(array) for array in step.statistic(data.points, start)]
    moved = []
    for seed in range(200):
        source = make_noise_source(replace(plan, seed=seed), "server")
        vector = encode(np.concatenate(exact)).values + simulate.draw_noise(step.blocks, source, plan.fraction_bits)
        moved.append(step.advance(start, as_released(vector, step.blocks, plan.fraction_bits)).centroids)
    # The planner takes every absolute coordinate to be sqrt(1/3); here they are known.
    factors = np.zeros((3, 2)) if noise.relative else exact[0].reshape(3, 2) / exact[1][:, None]
    expected = np.hypot(noise.sums_std, noise.counts_std * factors) / exact[1][:, None]
    np.testing.assert_allclose(np.std(moved, axis=0), expected, rtol=0.15)


def test_shares_of_all_clients_are_drawn_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    shares = []
    draw = simulate.draw_noise

    def noted(*arguments: Any, share: float) -> Any:
        shares.append(share)
        return draw(*arguments, share=share)

    monkeypatch.setattr(simulate, "draw_noise", noted)
    for trust in ("distributed", "oblivious"):
        request = request_of(trust=trust, max_iter=1)
        run_plan(request.draft("glloyd", noise="seeded"), draw_mixture(request, 3, 0).parts)
    # Three clients of which two shares are counted on.
    assert shares == pytest.approx([1.5**0.5, 1.0])


def test_the_size_is_capped_in_rows_and_in_clients() -> None:
    capped = simulated_size(PlanningRequest(1_000_001, 8, 5, {"n_clusters": 3, "bounds": (0, 1)}))
    assert capped.n_rows * capped.repeats == pytest.approx(1_000_001, rel=1e-3)
    assert capped.n_rows <= 20_000
    clients = simulated_size(request_of(100_000, 2_000, unit="client"))
    assert clients.n_parts * clients.repeats == 2_000
    assert simulated_size(request_of()).repeats == 1


def test_the_optimum_is_not_worse_than_the_mixture_itself() -> None:
    data = draw_mixture(request_of(), 3, 1)
    assert data.points.shape == (600, 2)
    assert np.abs(data.points).max() <= 1.0
    # Well apart: the cost per row is about d times the squared spread.
    assert optimal_cost(data) <= 2 * 0.15**2 * 1.1


def test_excess_falls_with_epsilon_and_rows() -> None:
    small, large = Simulator(request_of(seeds=5)), Simulator(request_of(60_000, seeds=5))
    excess = [small.excess("glloyd", epsilon, 3) for epsilon in (0.05, 5.0)]
    more_rows = large.excess("glloyd", 0.05, 3)
    assert excess[0] is not None
    assert excess[1] is not None
    assert more_rows is not None
    assert excess[0].mean > 2.0 * excess[1].mean
    assert excess[0].mean > 2.0 * more_rows.mean
    assert excess[0].low <= excess[0].mean <= excess[0].high


def test_every_seed_has_its_own_data_start_and_noise() -> None:
    request = request_of(random_state=5)
    ratios = []
    for seed in (5, 6):
        data = draw_mixture(request, 3, seed)
        state = run_plan(request.draft("glloyd", noise="seeded", seed=seed), data.parts)
        ratios.append(cost_per_point(data.points, state.centroids) / optimal_cost(data) - 1.0)
    found = Simulator(request).excess("glloyd", 1.0, 3)
    assert found is not None
    assert (found.low, found.high) == pytest.approx((min(ratios), max(ratios)))
    assert found.mean == pytest.approx(sum(ratios) / 2.0)
    assert found.standard_error == pytest.approx(abs(ratios[0] - ratios[1]) / 2.0)


def test_without_a_plan_there_is_no_excess() -> None:
    assert Simulator(request_of()).excess("glloyd", 1.0, 601) is None


def falling(epsilon: float) -> Excess:
    return Excess(1.0 / epsilon, 0.0, 0.0, 1.0)


@pytest.mark.parametrize(("target", "expected"), [(0.25, 4.0), (1.6, 0.625), (10.0, 0.1), (1 / 30.0, 30.0)])
def test_bisection_finds_the_epsilon(target: float, expected: float) -> None:
    known = tuple((epsilon, falling(epsilon)) for epsilon in (0.5, 1.0, 2.0, 5.0))
    found = epsilon_for_target(known, falling, target)
    assert found is not None
    assert expected <= found * (1 + 1e-12) <= expected * 1.05


def test_a_target_that_nothing_meets_has_no_epsilon() -> None:
    assert epsilon_for_target(((1.0, falling(1.0)),), falling, 0.1) is None
    assert epsilon_for_target((), falling, 0.1) is None
    assert epsilon_for_target(((1.0, falling(1.0)),), lambda _: None, 0.5) is None


def test_grids_ask_for_possible_numbers_only() -> None:
    assert n_clusters_grid(request_of(n_clusters=1)) == (1, 2, 4)
    assert n_clusters_grid(request_of(20, n_clusters=8)) == (2, 4, 8)


def test_the_answer_is_frozen_and_sorted(forecast: Forecast) -> None:
    means = [one.excess.mean for one in forecast.algorithms if one.excess is not None]
    assert len(means) == 2
    assert means == sorted(means)
    assert forecast.recommended == forecast.algorithms[0].algorithm
    with pytest.raises(FrozenInstanceError):
        forecast.version = 2  # type: ignore[misc]


def test_the_text_answers_the_questions(forecast: Forecast) -> None:
    text = str(forecast)
    for part in ("fastlloyd", "glloyd", "smallest cluster", "round trips", "Recommended", "synthetic", "minutes"):
        assert part in text
    assert max(len(line) for line in text.splitlines()) <= 110


def test_the_schema_is_strict_json(forecast: Forecast) -> None:
    plain = json.loads(json.dumps(forecast.to_dict(), allow_nan=False))
    assert set(plain) == {
        *("version", "request", "recommended", "n_clusters_range", "epsilon_for_target"),
        *("algorithms", "left_out", "notes"),
    }
    assert plain["request"]["n_examples"] == 600
    assert plain["request"]["bounds"] == [[-1.0], [1.0]]
    for one in plain["algorithms"]:
        assert set(one) == {
            *("algorithm", "title", "trust", "epsilon", "delta", "epsilon_worst_case", "max_retries"),
            *("noise_per_centroid", "scaled_noise_per_centroid", "excess_of_noise", "smallest_cluster", "survives"),
            *("largest_n_clusters", "excess", "excess_by_epsilon", "excess_by_n_clusters", "epsilon_for_target"),
            "deployment",
        }
        assert set(one["excess"]) == {"mean", "standard_error", "low", "high"}
        assert [value for value, _ in one["excess_by_epsilon"]] == [0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0]
        assert one["epsilon"] <= 1.0 < one["epsilon_worst_case"]


def test_an_infinite_cost_is_nothing_in_json(forecast: Forecast) -> None:
    endless = replace(forecast.algorithms[0], epsilon_worst_case=math.inf, epsilon_for_target=None)
    plain = json.loads(json.dumps(replace(forecast, algorithms=(endless,)).to_dict(), allow_nan=False))
    assert plain["algorithms"][0]["epsilon_worst_case"] is None
    assert "infinite" in str(replace(forecast, algorithms=(endless,)))


def test_the_same_seeds_give_the_same_answer(forecast: Forecast) -> None:
    assert make_forecast(request_of()).to_dict() == forecast.to_dict()


def test_the_estimator_plans_with_its_options(forecast: Forecast) -> None:
    model = FederatedKMeans(3, bounds=(-1.0, 1.0))
    assert model.plan(600, 2, 3, seeds=2, algorithms=["fastlloyd", "glloyd"]).to_dict() == forecast.to_dict()
    other = FederatedKMeans(3, bounds=(0.0, 20.0), max_iter=4).plan(600, 2, 3, seeds=2, algorithms=["glloyd"])
    assert other.algorithms[0].deployment.n_round_trips == 6
    private = FederatedKMeans(3, bounds="private").plan(600, 2, 3, seeds=2, algorithms=["glloyd"])
    assert private.request.private_count
    assert private.to_dict()["request"]["private_bounds"]
    with pytest.raises(ConfigurationError, match="n_clusters is 'auto', but"):
        FederatedKMeans("auto").plan(600, 2, 3)


def test_what_has_no_plan_is_left_out_or_refused() -> None:
    options = {"n_clusters": 3, "bounds": (-1, 1), "trust": "distributed"}
    both = make_forecast(PlanningRequest(600, 2, 3, options, seeds=2, algorithms=("glloyd", "sulloyd")))
    assert [one.algorithm for one in both.algorithms] == ["glloyd"]
    assert [name for name, _ in both.left_out] == ["sulloyd"]
    with pytest.raises(LocalMisuseError, match="Laplace noise"):
        make_forecast(PlanningRequest(600, 2, 3, options, seeds=2, algorithms=("sulloyd",)))


def test_clients_are_planned_for() -> None:
    options = {"n_clusters": 2, "bounds": (-1, 1), "unit": "client", "epsilon": 4.0, "max_iter": 1}
    found = make_forecast(PlanningRequest(600, 2, 30, options, seeds=2)).algorithms[0]
    assert found.algorithm == "sphere_packing"
    assert found.excess is not None
    assert found.smallest_cluster is not None


def test_the_command_prints_json_and_writes_both_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SMALL, "--json", "--output", str(tmp_path / "new")]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out) == json.loads((tmp_path / "new" / "plan.json").read_text())
    assert (tmp_path / "new" / "plan.png").read_bytes().startswith(b"\x89PNG")
    assert str(tmp_path / "new" / "plan.png") in err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--clients", "1"), "n_clients is 1"),
        (("--algorithm", "lloyd"), "not private"),
        (("--trust", "oblivous"), "oblivious"),
        (("--algorithm", "no_such_algorithm"), "no_such_algorithm"),
        (("--seeds", "1"), "seeds is 1, but it must be a whole number from 2 to 1000"),
        (("--target-excess", "nan"), "target_excess is nan"),
    ],
)
def test_the_command_refuses_with_one_sentence(
    arguments: tuple[str, ...], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*SMALL, *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert sentence in err
    assert err.count("\n") == 1


def test_the_module_runs_and_opens_no_table(tmp_path: Path) -> None:
    code = (
        "import runpy, sys\n"
        "def watch(event, arguments):\n"
        "    if event == 'open' and str(arguments[0]).endswith(('.csv', '.npy', '.npz', '.parquet')):\n"
        "        raise SystemExit(f'opened {arguments[0]}')\n"
        "sys.addaudithook(watch)\n"
        "runpy.run_module('flwr_dpkmeans', run_name='__main__', alter_sys=True)\n"
    )
    command = [sys.executable, "-W", "error::RuntimeWarning", "-c", code, "plan", *SMALL]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Recommended: glloyd" in done.stdout
    assert list(tmp_path.iterdir()) == []
