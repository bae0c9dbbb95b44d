"""Simulated excess, the search for epsilon, the whole answer and the command."""

from __future__ import annotations

import io
import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rich.console
from numpy.typing import NDArray
from support.flat import flat_estimator
from support.typed import typed_options

from flwr_dpkmeans import FederatedKMeans
from flwr_dpkmeans.__main__ import main
from flwr_dpkmeans.algorithms.states.cluster_states import cluster_state
from flwr_dpkmeans.cli import plan_command
from flwr_dpkmeans.cli.plan_options import PlanOptions
from flwr_dpkmeans.data.points import Bounds
from flwr_dpkmeans.data.schema import Schema
from flwr_dpkmeans.errors import ColumnError, ConfigurationError, LocalMisuseError
from flwr_dpkmeans.kernels.grid import round_to_grid
from flwr_dpkmeans.kmeans.cost import cost_per_point
from flwr_dpkmeans.planner import (
    Forecast,
    PlanningRequest,
    make_forecast,
    simulate,
)
from flwr_dpkmeans.planner.centroid_noise import centroid_noise
from flwr_dpkmeans.planner.excess import (
    Excess,
    epsilon_for_target,
    n_clusters_for_target,
    n_clusters_grid,
)
from flwr_dpkmeans.planner.forecast import AlgorithmForecast, notes_on
from flwr_dpkmeans.planner.simulate import Simulator, run_plan
from flwr_dpkmeans.planner.synthetic_data import (
    draw_mixture,
    optimal_cost,
    scaled_spread,
    simulated_size,
)
from flwr_dpkmeans.planner.traffic import Deployment
from flwr_dpkmeans.privacy.noise.seeded_noise import SeededNoise
from flwr_dpkmeans.privacy.release import as_released
from flwr_dpkmeans.secagg.ring import encode
from flwr_dpkmeans.sums.build import build_algorithm
from flwr_dpkmeans.sums.plan import make_noise_source
from flwr_dpkmeans.sums.statement import plan_cautions

SIMULATES = (
    r"simulating about \d+ points of curves on synthetic data: minutes, if there are"
    r" hundreds of clients\n"
)
SMALL = (
    "--n",
    "600",
    "--d",
    "2",
    "--k",
    "3",
    "--clients",
    "3",
    "--seeds",
    "2",
    "--algorithm",
    "glloyd",
)


def request_of(
    n: int = 600, clients: int = 3, seeds: int = 2, **options: Any
) -> PlanningRequest:
    given = {"n_clusters": 3, "bounds": (-1.0, 1.0)} | options
    return PlanningRequest(
        n, 2, clients, given, seeds=seeds, algorithms=("fastlloyd", "glloyd")
    )


@pytest.fixture(scope="module")
def forecast() -> Forecast:
    return make_forecast(request_of())


@pytest.mark.parametrize("algorithm", ["fastlloyd", "glloyd", "sulloyd"])
@pytest.mark.parametrize("trust", ["oblivious", "central"])
def test_a_simulated_run_is_that_of_the_direct_engine(
    algorithm: str, trust: str
) -> None:
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
    single = run_plan(plan, (points,))
    repeated = run_plan(plan, (points,), 3)
    tiled = run_plan(plan, (np.tile(points, (3, 1)),))
    np.testing.assert_array_equal(repeated.centroids, tiled.centroids)
    assert not np.array_equal(repeated.centroids, single.centroids)


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
        vector = encode(np.concatenate(exact)).values + simulate.draw_noise(
            step.blocks, source, plan.fraction_bits
        )
        moved.append(
            step.advance(
                start, as_released(vector, step.blocks, plan.fraction_bits)
            ).centroids
        )
    # The planner takes every absolute coordinate to be sqrt(1/3); here they are known.
    factors = (
        np.zeros((3, 2))
        if noise.relative
        else exact[0].reshape(3, 2) / exact[1][:, None]
    )
    expected = np.hypot(noise.sums_std, noise.counts_std * factors) / exact[1][:, None]
    np.testing.assert_allclose(np.std(moved, axis=0), expected, rtol=0.15)


class NotedNoise(SeededNoise):
    """Remembers the standard deviations that are drawn."""

    def __init__(self) -> None:
        super().__init__(np.random.default_rng(0))
        self.stds: list[float] = []

    def discrete_gaussian(self, std: float, size: int) -> NDArray[np.int64]:
        self.stds.append(std)
        return super().discrete_gaussian(std, size)


@pytest.mark.parametrize(
    # Three clients of which two shares are counted on.
    ("trust", "share"),
    [("distributed", 1.5**0.5), ("oblivious", 1.0)],
)
def test_shares_of_all_clients_are_drawn_as_one(trust: str, share: float) -> None:
    request, noted = request_of(trust=trust, max_iter=1), NotedNoise()
    plan = request.draft("glloyd", noise="seeded")
    run_plan(plan, draw_mixture(request, 3, 0).parts, source=noted)
    planned = [block.noise_scale for one in plan.rounds for block in one.blocks]
    unit = 2.0**plan.fraction_bits
    assert [std / unit for std in noted.stds] == pytest.approx(
        [share * scale for scale in planned], rel=1e-3
    )


def test_the_optimum_is_not_worse_than_the_mixture_itself() -> None:
    """Of clusters well apart it is about d times the squared spread."""
    data = draw_mixture(request_of(), 3, 1)
    assert data.points.shape == (600, 2)
    assert np.abs(data.points).max() <= 1.0
    assert optimal_cost(data) <= 2 * 0.15**2 * 1.1


def test_excess_falls_with_epsilon_and_rows() -> None:
    small, large = (
        Simulator(request_of(seeds=5)),
        Simulator(request_of(60_000, seeds=5)),
    )
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
        plan = request.draft("glloyd", noise="seeded", seed=seed)
        state = run_plan(plan, data.parts)
        cost = cost_per_point(data.points, state.centroids)
        ratios.append(cost / optimal_cost(data) - 1.0)
    excess = Simulator(request).excess("glloyd", 1.0, 3)
    assert excess is not None
    assert (excess.low, excess.high) == pytest.approx((min(ratios), max(ratios)))
    assert excess.mean == pytest.approx(sum(ratios) / 2.0)
    assert excess.standard_error == pytest.approx(abs(ratios[0] - ratios[1]) / 2.0)


def test_without_a_plan_there_is_no_excess() -> None:
    assert Simulator(request_of()).excess("glloyd", 1.0, 601) is None


def falling(epsilon: float) -> Excess:
    return Excess(1.0 / epsilon, 0.0, 0.0, 1.0)


@pytest.mark.parametrize(
    ("target", "expected"), [(0.25, 4.0), (1.6, 0.625), (10.0, 0.1), (1 / 30.0, 30.0)]
)
def test_bisection_finds_the_epsilon(target: float, expected: float) -> None:
    known = tuple((epsilon, falling(epsilon)) for epsilon in (0.5, 1.0, 2.0, 5.0))
    found = epsilon_for_target(known, falling, target)
    assert found is not None
    assert expected <= found * (1 + 1e-12) <= expected * 1.05


def test_a_target_that_nothing_meets_has_no_epsilon() -> None:
    assert epsilon_for_target(((1.0, falling(1.0)),), falling, 0.009) is None
    assert epsilon_for_target((), falling, 0.1) is None
    assert epsilon_for_target(((1.0, falling(1.0)),), lambda _: None, 0.5) is None


def test_the_best_candidate_is_first_and_recommended(forecast: Forecast) -> None:
    means = [
        entry.excess.mean for entry in forecast.algorithms if entry.excess is not None
    ]
    assert len(means) == 2
    assert means == sorted(means)
    assert forecast.recommended == forecast.algorithms[0].algorithm


def test_the_schema_is_strict_json(forecast: Forecast) -> None:
    plain = json.loads(json.dumps(forecast.to_dict(), allow_nan=False))
    assert set(plain) == {
        *(
            "version",
            "request",
            "recommended",
            "n_clusters_range",
            "epsilon_for_target",
        ),
        *("algorithms", "left_out", "notes"),
    }
    assert plain["request"]["n_examples"] == 600
    assert plain["request"]["bounds"] == [[-1.0], [1.0]]
    for one in plain["algorithms"]:
        assert set(one) == {
            *(
                "algorithm",
                "trust",
                "epsilon",
                "delta",
                "epsilon_worst_case",
                "max_retries",
            ),
            *(
                "noise_per_centroid",
                "scaled_noise_per_centroid",
                "excess_of_noise",
                "smallest_cluster",
            ),
            *(
                "epsilon_of_a_year",
                "n_clusters_range",
                "excess",
                "excess_by_epsilon",
                "excess_by_n_clusters",
                "epsilon_for_target",
            ),
            "deployment",
        }
        assert set(one["excess"]) == {"mean", "standard_error", "low", "high"}
        assert [value for value, _ in one["excess_by_epsilon"]] == [
            0.125,
            0.25,
            0.5,
            1.0,
            2.0,
            4.0,
            8.0,
        ]
        assert one["epsilon"] <= 1.0 < one["epsilon_worst_case"]


def test_an_infinite_cost_is_nothing_in_json(forecast: Forecast) -> None:
    endless = replace(forecast.algorithms[0], epsilon_worst_case=math.inf)
    plain = replace(forecast, algorithms=(endless,)).to_dict()
    again = json.loads(json.dumps(plain, allow_nan=False))
    assert again["algorithms"][0]["epsilon_worst_case"] is None


def test_the_same_seeds_give_the_same_answer(forecast: Forecast) -> None:
    assert make_forecast(request_of()).to_dict() == forecast.to_dict()


def test_the_estimator_plans_with_its_options(forecast: Forecast) -> None:
    model = FederatedKMeans(3, bounds=(-1.0, 1.0))
    assert (
        model.plan(600, 2, 3, seeds=2, algorithms=["fastlloyd", "glloyd"]).to_dict()
        == forecast.to_dict()
    )
    other = FederatedKMeans(3, bounds=(0.0, 20.0), max_iter=4).plan(
        600, 2, 3, seeds=2, algorithms=["glloyd"]
    )
    assert other.algorithms[0].deployment.n_round_trips == 6
    private = FederatedKMeans(3, bounds="private").plan(
        600, 2, 3, seeds=2, algorithms=["glloyd"]
    )
    assert private.request.private_count
    assert private.to_dict()["request"]["private_bounds"]
    with pytest.raises(ConfigurationError, match="n_clusters is 'auto', but"):
        FederatedKMeans("auto").plan(600, 2, 3)


def test_what_has_no_plan_is_left_out_or_refused() -> None:
    options = {"n_clusters": 3, "bounds": (-1, 1), "trust": "distributed"}
    both = make_forecast(
        PlanningRequest(600, 2, 3, options, seeds=2, algorithms=("glloyd", "sulloyd"))
    )
    assert [one.algorithm for one in both.algorithms] == ["glloyd"]
    assert [name for name, _ in both.left_out] == ["sulloyd"]
    with pytest.raises(LocalMisuseError, match="Laplace noise"):
        make_forecast(
            PlanningRequest(600, 2, 3, options, seeds=2, algorithms=("sulloyd",))
        )


def test_clients_are_planned_for() -> None:
    options = {"n_clusters": 2, "bounds": (-1, 1), "unit": "client", "epsilon": 4.0}
    request = PlanningRequest(600, 2, 30, options | {"max_iter": 1}, seeds=2)
    forecast = {each.algorithm: each for each in make_forecast(request).algorithms}
    assert next(iter(forecast)) == "proxy_lloyd"
    assert {"fastlloyd", "glloyd", "sulloyd", "sphere_packing"} <= set(forecast)
    packing = forecast["sphere_packing"]
    assert packing.excess is not None
    assert packing.smallest_cluster is not None


def test_the_command_prints_json_and_writes_both_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", *SMALL, "--json", "--output", str(tmp_path / "new")]) == 0
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
        (("--seeds", "1"), "seeds is 1, but it must be an integer of at least 2:"),
        (("--target-excess", "nan"), "target_excess is nan"),
    ],
)
def test_the_command_refuses_with_one_sentence(
    arguments: tuple[str, ...], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", *SMALL, *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert sentence in err
    assert err.count("\n") == 1


def test_the_module_runs_and_opens_no_table(tmp_path: Path) -> None:
    code = (
        "import runpy, sys\ndef watch(event, arguments):\n    if event == 'open' and"
        " str(arguments[0]).endswith(('.csv', '.npy', '.npz', '.parquet')):\n       "
        " raise SystemExit(f'opened"
        " {arguments[0]}')\nsys.addaudithook(watch)\nrunpy.run_module('flwr_dpkmeans',"
        " run_name='__main__', alter_sys=True)\n"
    )
    command = [
        sys.executable,
        "-W",
        "error::RuntimeWarning",
        "-c",
        code,
        "plan",
        *SMALL,
    ]
    own = os.environ | {
        "LOKY_MAX_CPU_COUNT": "1"
    }  # joblib warns of machines whose cores it cannot count
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=tmp_path, env=own
    )
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(SIMULATES, done.stderr)
    assert "Recommended: glloyd" in done.stdout
    assert list(tmp_path.iterdir()) == []


# -- what is said and counted, number by number ----------------------------------------

FAIR = Excess(0.0994, 0.0021, 0.08, 0.12)


def one_of(algorithm: str, **changes: Any) -> AlgorithmForecast:
    known: dict[str, Any] = {
        "algorithm": algorithm,
        "trust": "oblivious",
        "epsilon": 1.0,
        "delta": 1e-5,
        "epsilon_worst_case": 1.25,
        "max_retries": 2,
        "noise_per_centroid": (0.0125,),
        "scaled_noise_per_centroid": 0.0125,
        "excess_of_noise": 0.0125,
        "smallest_cluster": 1234,
        "n_clusters_range": (2, 7),
        "excess": FAIR,
        "excess_by_epsilon": ((1.0, FAIR),),
        "excess_by_n_clusters": ((3.0, FAIR),),
        "epsilon_for_target": 0.987,
        "deployment": Deployment(4, 6, 1036, 12_345, 6_789, 0.96),
    }
    return AlgorithmForecast(**known | changes)


TEXT = """\
N = 12,345, d = 8, k = 3, 5 clients, epsilon 1.5 per record

| | glloyd (best) | fastlloyd | sulloyd |
| :- | -: | -: | -: |
| expected excess cost, ± standard error | 9.9% ± 0.2% | 10% ± 10% | unknown |
| of which noise of the last release | 1.2% | all of it | unknown |
| epsilon for an excess of 10% | 0.99 | out of reach | 0.99 |
| noise per centroid coordinate, 4,115 rows | 0.0125 | 0.0001 to 0.25 | unknown |
| smallest cluster told from noise, rows | 1,234 | unknown | 1,234 |
| k with an excess of 10% | 2 to 7 | 9 | none |
| epsilon with all retries (2) | 1.25 | infinite | 1.25 |
| delta | 1e-05 | 1e-05 | 1e-05 |
| iterations, round trips | 4, 6 | 4, 6 | 4, 6 |
| messages | 1,036 | 1,036 | 1,036 |
| kB per client down, up | 12.3, 6.8 | 12.3, 6.8 | 12.3, 6.8 |
| minutes in deployment, without computing | 1.0 | 1.0 | 1.0 |

Recommended: glloyd. Sensible k, of 3 to 3 that were tried: 2 to 7 \
(within 10% of the optimum). \
With k = 3, epsilon 0.99 brings it within 10%, by this forecast on drawn data.

Left out: proxy_lloyd: Because.

Note: One.

Note: Two.
"""


def test_everything_that_a_forecast_says() -> None:
    options = {"n_clusters": 3, "bounds": (-1.0, 1.0), "epsilon": 1.5}
    request = PlanningRequest(
        12_345, 8, 5, options, seeds=2, algorithms=("glloyd", "fastlloyd")
    )
    noisy: dict[str, Any] = {
        "epsilon_worst_case": math.inf,
        "noise_per_centroid": (0.01, 0.25, 0.0001),
    }
    noisy |= {
        "excess_of_noise": 0.0995,
        "excess": Excess(0.0995, 0.1, 0.0, 1.0),
        "epsilon_for_target": None,
    }
    second = one_of(
        "fastlloyd", smallest_cluster=None, n_clusters_range=(9, 9), **noisy
    )
    third = one_of(
        "sulloyd",
        noise_per_centroid=(),
        excess_of_noise=None,
        excess=None,
        n_clusters_range=None,
    )
    found = Forecast(
        request,
        (one_of("glloyd"), second, third),
        (("proxy_lloyd", "Because."),),
        ("One.", "Two."),
    )
    assert re.sub(" {2,}", " ", re.sub("-{2,}", "-", str(found))) == TEXT
    assert (found.to_dict()["version"], found.to_dict()["n_clusters_range"]) == (
        2,
        [2, 7],
    )
    alone = replace(
        found,
        algorithms=(one_of("glloyd", n_clusters_range=None, epsilon_for_target=None),),
    )
    assert (alone.n_clusters_range, alone.to_dict()["n_clusters_range"]) == (None, None)
    said = " ".join(str(alone).split())
    assert "(best)" not in said
    assert (
        "No k of 3 to 3 that were tried stays within 10% of the optimum: raise epsilon"
        " or add data." in said
    )
    assert (
        "No epsilon up to 100 brings k = 3 within 10%, by this forecast on drawn data."
        " Left out" in said
    )


def test_clients_are_named_where_they_are_the_unit() -> None:
    request = PlanningRequest(
        600, 2, 30, {"n_clusters": 2, "bounds": (-1, 1), "unit": "client"}, seeds=2
    )
    text = str(Forecast(request, (one_of("proxy_lloyd"),), (), ()))
    for part in (
        "epsilon 1 per client",
        "noise per centroid coordinate, 30 clients",
        "told from noise, clients",
    ):
        assert part in text


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, []),
        ({"n": 20_000}, []),
        ({"n": 20_001}, ["10000 rows were simulated and each"]),
        ({"clients": 500, "unit": "client", "n": 5_000}, []),
        (
            {"clients": 501, "unit": "client", "n": 5_010},
            ["250 clients were simulated and each"],
        ),
        ({"counted": True}, ["The number of rows is counted"]),
        ({"bounds": None}, ["No bounds were given: noise is"]),
        (
            {"bounds": "private", "counted": True},
            ["The number of rows is counted", "Bounds are found privately, at a"],
        ),
    ],
)
def test_notes_say_what_was_simulated_and_what_is_unknown(
    changes: dict[str, Any], expected: list[str]
) -> None:
    options = {"n_clusters": 3, "bounds": (-1, 1)} | changes
    size = options.pop("n", 600), 2, options.pop("clients", 3)
    counted = options.pop("counted", False)
    if options["bounds"] is None:
        del options["bounds"]
    algorithm = "proxy_lloyd" if "unit" in options else "glloyd"
    request = PlanningRequest(
        *size, options, seeds=2, algorithms=(algorithm,), private_count=counted
    )
    notes = notes_on(request, [one_of(algorithm)])
    assert "over 2 synthetic data sets: 3 Gaussian clusters" in notes[0]
    cautions = plan_cautions(request.draft(algorithm))
    others = [note.split() for note in notes[2:] if note not in cautions]
    assert [" ".join(words[:6]) for words in others] == expected


def test_notes_say_where_candidates_are_alike() -> None:
    cautions = plan_cautions(request_of().draft("glloyd"))
    best = one_of("glloyd", excess=Excess(0.5, 0.25, 0.0, 1.0), excess_of_noise=0.05)
    others = [
        one_of("fastlloyd", excess=Excess(mean, 0.0, 0.0, 1.0)) for mean in (0.75, 0.76)
    ]
    others.append(one_of("sulloyd", excess=None))
    assert notes_on(request_of(), [best, *others])[2:] == (
        "Within the simulation's standard error as good as glloyd: fastlloyd.",
        *cautions,
    )
    unknown = replace(best, excess=None)
    assert notes_on(request_of(), [unknown, *others])[2:] == cautions


@pytest.mark.parametrize(
    ("n", "d", "clients", "k", "unit", "expected"),
    [
        (20_000, 100, 5, 3, "record", (1, 20_000, 1)),
        (20_001, 100, 5, 3, "record", (1, 10_000, 2)),
        # At most 2,000,000 cells, and at least 20 rows for each cluster.
        (20_000, 101, 5, 3, "record", (1, 10_000, 2)),
        (30_000, 101, 5, 1_000, "record", (1, 15_000, 2)),
        (20_500, 101, 5, 1_000, "record", (1, 10_250, 2)),
        (19_900, 101, 5, 1_000, "record", (1, 19_900, 1)),
        (2_000, 2, 500, 3, "client", (500, 4, 1)),
        (2_000, 2, 501, 3, "client", (250, 3, 2)),
        (50_000, 2, 500, 3, "client", (500, 40, 1)),
        (400_000, 2, 1_500, 3, "client", (500, 40, 3)),
        # And 20 rows for each client, if it has them.
        (400_000, 2_000, 1_500, 3, "client", (500, 20, 3)),
    ],
)
def test_how_many_rows_are_drawn_and_how_often_each_counts(
    n: int, d: int, clients: int, k: int, unit: str, expected: tuple[int, int, int]
) -> None:
    options = {"n_clusters": k, "bounds": (-1.0, 1.0), "unit": unit}
    request = PlanningRequest(n, d, clients, options, algorithms=("proxy_lloyd",))
    size = simulated_size(request)
    assert (size.n_parts, size.rows_per_part, size.repeats) == expected


def test_the_mixture_is_drawn_as_described() -> None:
    request = request_of(40, seeds=3)
    data = draw_mixture(request, 4, 9)
    generator = np.random.default_rng([9, 4, 2])
    centres = generator.uniform(-0.7, 0.7, (4, 2))
    labels = generator.integers(0, 4, 40)
    rows = centres[labels] + generator.normal(0.0, 0.15, (40, 2))
    np.testing.assert_array_equal(data.centres, centres)
    np.testing.assert_array_equal(data.points, round_to_grid(np.clip(rows, -1.0, 1.0)))
    wide = replace(request, spread=1.0)
    assert np.abs(draw_mixture(wide, 4, 9).points).max() == 1.0


def test_no_cost_at_all_is_the_smallest_one_that_is_divided_by() -> None:
    data = draw_mixture(request_of(3), 3, 0)
    exact = replace(data, points=data.centres)
    assert optimal_cost(exact) == 2.0**-32


@pytest.mark.parametrize(
    ("n", "k", "expected"),
    [
        (600, 3, (2, 3, 6, 12)),
        (600, 16, (4, 8, 16, 32, 64)),
        (128, 16, (4, 8, 16, 32, 64)),
        (127, 16, (4, 8, 16, 32)),
        (16, 16, (4, 8, 16)),
        (20, 8, (2, 4, 8)),
        (600, 1, (1, 2, 4)),
    ],
)
def test_the_grid_of_k(n: int, k: int, expected: tuple[int, ...]) -> None:
    assert n_clusters_grid(request_of(n, n_clusters=k)) == expected


def test_the_search_for_epsilon_goes_from_a_64th_of_the_curve_to_100() -> None:
    """A factor of two is halved four times, one of six octaves seven times."""

    def asked(
        known: tuple[float, ...], least: float
    ) -> tuple[float | None, list[float]]:
        trials: list[float] = []

        def excess_at(epsilon: float) -> Excess:
            if epsilon not in known:
                trials.append(epsilon)
            return Excess(0.0 if epsilon >= least else 1.0, 0.0, 0.0, 1.0)

        curve = tuple((epsilon, excess_at(epsilon)) for epsilon in known)
        return epsilon_for_target(curve, excess_at, 0.0), trials

    assert asked((1.0, 2.0), 2.0) == (
        2.0,
        [2**-6, *(pytest.approx(2**x) for x in (0.5, 0.75, 0.875, 0.9375))],
    )
    found, trials = asked((1.0, 4.0), 1.0001)
    assert (found, len(trials)) == (pytest.approx(4**0.03125), 6)
    assert asked((1.0, 2.0), 0.0) == (1.0 / 64.0, [2.0**-6])
    found, trials = asked((1.0, 2.0), 0.3)
    assert (0.3 <= (found or 0.0) <= 0.3 * 1.05, len(trials)) == (True, 8)
    assert asked((1.0, 2.0), 101.0) == (None, [2**-6, 100.0])
    assert asked((1.0, 200.0), 201.0) == (None, [2**-6])
    found, trials = asked((1.0, 2.0), 100.0)
    assert (found, trials[:2], len(trials)) == (100.0, [2**-6, 100.0], 9)


@pytest.mark.parametrize(
    ("means", "asked", "expected", "simulated"),
    [
        ({2: 0.01, 5: 0.02, 10: 0.05, 20: 0.4}, 5, (2, 14), [15, 12, 13, 14]),
        ({2: 0.01, 3: 0.02}, 3, (2, 3), []),
        ({2: 0.3, 3: 0.2}, 3, None, []),
        ({2: 0.3, 4: 0.1, 8: 0.09, 9: 0.2}, 8, (4, 8), []),
        # Around what was asked, or the nearest that meets the target: one bad k in
        # between parts the others.
        ({2: 0.01, 4: 0.3, 8: 0.01}, 8, (8, 8), []),
        ({2: 0.01, 4: 0.3, 8: 0.01}, 4, (2, 3), [3]),
    ],
)
def test_sensible_numbers_of_clusters_are_those_that_meet_the_target(
    means: dict[int, float],
    asked: int,
    expected: tuple[int, int] | None,
    simulated: list[int],
) -> None:
    trials: list[int] = []

    def excess_at(k: int) -> Excess:
        trials.append(k)
        return Excess(0.1 if k < 15 else 0.11, 0.0, 0.0, 1.0)

    known = tuple((float(k), Excess(mean, 0.0, 0.0, 1.0)) for k, mean in means.items())
    assert n_clusters_for_target(known, excess_at, 0.1, asked) == expected
    assert trials == simulated
    if expected is not None:
        assert n_clusters_for_target(known, lambda k: None, 0.1, asked) == (
            expected[0],
            max(k for k in means if k <= expected[1]),
        )


@pytest.mark.nightly
@pytest.mark.parametrize(("n", "d", "k"), [(333, 4, 3), (200, 10, 5), (60, 3, 2)])
def test_what_is_sensible_agrees_with_the_forecast(n: int, d: int, k: int) -> None:
    """333 rows were once told to have at most two clusters."""
    request = PlanningRequest(
        n, d, 3, {"n_clusters": k}, seeds=3, algorithms=("proxy_lloyd",)
    )
    found = make_forecast(request)
    (one,) = found.algorithms
    assert one.excess is not None
    low, high = found.n_clusters_range or (0, -1)
    assert (low <= k <= high) is (one.excess.mean <= 0.1)
    ends = Simulator(request)
    assert all(
        (excess := ends.excess("proxy_lloyd", 1.0, end)) and excess.mean <= 0.1
        for end in (low, high)
        if low
    )
    needed = found.epsilon_for_target
    assert (needed is not None and needed <= 1.0) is (one.excess.mean <= 0.1)


# -- a schema, and a table's shape -----------------------------------------------------

MIXED = """
scale = "{scale}"
[columns]
length = {{ kind = "number", bounds = [0, 50] }}
mass = {{ kind = "number", bounds = [0, 1000], weight = 0.5 }}
sex = {{ kind = "category", values = ["F", "M"] }}
tagged = {{ kind = "flag" }}
"""


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    path = tmp_path / "mixed.toml"
    path.write_text(MIXED.format(scale="bounds"))
    return path


@pytest.mark.nightly
def test_a_schema_says_the_columns_and_what_stands_in_them(mixed: Path) -> None:
    request = PlanningRequest(
        600,
        0,
        3,
        {"n_clusters": 3, "bounds": str(mixed)},
        seeds=2,
        algorithms=("proxy_lloyd",),
    )
    names = ("length", "mass", "sex=F", "sex=M", "tagged")
    assert (request.n_features, request.feature_names) == (5, names)
    points = Bounds(*request.config("proxy_lloyd").settings.bounds).unscale(
        draw_mixture(request, 3, 0).points
    )
    length, mass, female, male, tagged = points.round(3).T
    np.testing.assert_array_equal(female + male, 1.0)
    for one_hot in (female, tagged):
        assert set(one_hot) == {0.0, 1.0}
    assert (length.min() >= 0.0, length.max() <= 50.0, length.std() > 5.0) == (
        True,
    ) * 3
    assert (mass.min() >= 0.0, mass.max() <= 1000.0, mass.std() > 100.0) == (True,) * 3
    # In the box, mass fills half of its column and the others' full range is 2 long: a
    # cluster's rows are nearer.
    assert 0.015 < scaled_spread(request) < 0.15
    pure = Schema(columns={name: {"kind": "flag"} for name in "ab"})
    flags = PlanningRequest(
        600,
        0,
        3,
        {"n_clusters": 4, "bounds": pure},
        seeds=2,
        algorithms=("proxy_lloyd",),
    )
    assert scaled_spread(flags) == 0.015
    found = make_forecast(request)
    assert found.to_dict()["request"]["feature_names"] == list(names)
    noise = dict(zip(names, found.algorithms[0].noise_per_centroid, strict=True))
    # Units: half of the box's width, which a weight of one half doubles, and one-hot
    # columns are two wide.
    scaled = found.algorithms[0].scaled_noise_per_centroid
    expected = {
        "length": 25.0,
        "mass": 1000.0,
        "sex=F": 1.0,
        "sex=M": 1.0,
        "tagged": 0.5,
    }
    assert noise == {
        name: pytest.approx(unit * (scaled or 0.0)) for name, unit in expected.items()
    }
    assert (
        f"Noise on a centroid, in units: length {noise['length']:.3g}, mass"
        in " ".join(str(found).split())
    )


def test_private_deviations_are_planned_for(mixed: Path) -> None:
    weighed = {"n_clusters": 3, "bounds": Schema.load(mixed)}
    mixed.write_text(MIXED.format(scale="standard"))
    for bounds in (str(mixed), Schema.load(mixed)):
        request = PlanningRequest(
            600,
            0,
            3,
            {"n_clusters": 3, "bounds": bounds},
            seeds=2,
            algorithms=("proxy_lloyd",),
        )
        plan = request.draft("proxy_lloyd")
        drawn = draw_mixture(request, 3, 0).points
        np.testing.assert_array_equal(
            drawn, draw_mixture(replace(request, options=weighed), 3, 0).points
        )
        assert (len(plan.preliminary), plan.settings.standard_columns) == (
            1,
            ((1, 1.0), (1, 0.5), (2, 1.0), (1, 1.0)),
        )


def test_the_shape_of_a_table_is_read_and_no_more_than_that(
    mixed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = mixed.with_suffix(".csv")
    table.write_text("mass,sex,length,tagged\n" + "400,F,40,true\n" * 7)
    asked: list[PlanningRequest] = []

    def said_of(**values: Any) -> str:
        options = PlanOptions(like=str(table), n_clusters=2, **values)
        asked.append(plan_command.request_of(options))
        return capsys.readouterr().err

    assert said_of(n_examples=900).endswith(
        "names and kinds of columns; 3 are numbers, others take a schema: sex; nothing"
        " else\n"
    )
    assert said_of(count_rows=True).endswith(
        "sex; the number of rows, 7; nothing else\n"
    )
    assert said_of(n_examples=900, bounds=str(mixed)).endswith(
        "names and kinds of columns; nothing else\n"
    )
    assert [(one.n_examples, one.n_features) for one in asked] == [
        (900, 3),
        (7, 3),
        (900, 5),
    ]
    with pytest.raises(ConfigurationError, match="and private_count that not"):
        said_of(count_rows=True, private_count=True)
    table.write_text("mass,sex,lenght,tagged\n400,F,40,1\n")
    with pytest.raises(ColumnError, match="did you mean 'lenght'"):
        said_of(n_examples=900, bounds=str(mixed))


def test_who_sees_no_bar_reads_at_once_that_it_takes_a_while(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A forecast of 400 clients printed nothing for minutes."""

    def begun(request: PlanningRequest, on_step: Callable[[int, int], object]) -> Any:
        def first(done: int, total: int) -> None:
            on_step(done, total)
            raise ConfigurationError(capsys.readouterr().err)

        return make_forecast(request, first)

    size = {"n_examples": 20_000, "n_features": 4, "n_clients": 400}
    options = PlanOptions(**size, unit="client", quick=True)
    with pytest.raises(ConfigurationError, match=SIMULATES):
        plan_command.make_one(options, begun)


def test_a_wanted_accuracy_is_a_target() -> None:
    def target(**values: float) -> float:
        options = PlanOptions(n_examples=900, n_features=4, **values)
        return plan_command.request_of(options).target_excess

    assert target(accuracy=1.05) == 0.05
    assert (target(target_excess=0.2), target()) == (0.2, 0.1)
    for wrong in (1.0, math.nan):
        with pytest.raises(ConfigurationError, match="it must be above 1"):
            target(accuracy=wrong)


def test_the_options_of_the_command_and_their_defaults() -> None:
    plain = typed_options(PlanOptions, "--n 900")
    stated = {
        "n_examples": 900,
        "n_features": 0,
        "n_clusters": 10,
        "n_clients": 2,
        "epsilon": 1.0,
        "algorithm": [],
        "spread": 0.15,
        "seeds": 20,
        "quick": False,
        "json": False,
        "private_count": False,
        "count_rows": False,
    }
    values = vars(plain)
    assert {name: values[name] for name in values if values[name] is not None} == stated
    assert values.keys() - stated == {
        "accuracy",
        "target_excess",
        "like",
        "delta",
        "unit",
        "trust",
        "bounds",
        "bounds_domain",
        "evaluation",
        "output",
        "max_iter",
        "max_silent",
        "max_retries",
        "examples_per_client",
        "random_state",
    }
    line = "--n 900 --d 4 --quick --json --private-count"
    switched = typed_options(PlanOptions, line)
    assert (switched.quick, switched.json, switched.private_count) == (True,) * 3
    assert switched.n_features == 4


@pytest.mark.parametrize(
    ("more", "seeds"),
    [
        ("", 20),
        ("--seeds 7", 7),
        ("--quick", 5),
        ("--quick --seeds 3", 3),
    ],
)
def test_a_quick_forecast_has_five_data_sets_at_most(more: str, seeds: int) -> None:
    line = (
        "--n 900 --d 4 --k 3 --spread 0.25 --target-excess 0.2 --private-count"
        f" --algorithm glloyd --epsilon 2 {more}"
    )
    request = plan_command.request_of(typed_options(PlanOptions, line))
    assert (
        request.n_examples,
        request.n_features,
        request.n_clients,
        request.n_clusters,
    ) == (900, 4, 2, 3)
    assert (
        request.seeds,
        request.spread,
        request.target_excess,
        request.private_count,
    ) == (seeds, 0.25, 0.2, True)
    assert (request.algorithms, request.epsilon) == (("glloyd",), 2.0)


@pytest.mark.parametrize("terminal", [False, True])
def test_a_terminal_has_its_own_width_and_a_bar_and_a_pipe_has_neither(
    terminal: bool,
    forecast: Forecast,
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Screen(rich.console.Console):
        def __init__(self, **options: Any) -> None:
            super().__init__(file=io.StringIO(), width=150, force_terminal=terminal)
            opened.append(options)

        def print(self, *things: Any, **options: Any) -> None:
            printed.append(self.width)

    opened: list[Any] = []
    printed: list[int] = []
    given: list[int] = []

    def made(request: PlanningRequest, *on_step: Any) -> Forecast:
        given.append(len(on_step))
        for step in on_step:
            step(1, 2)
        return forecast

    options = typed_options(PlanOptions, " ".join(SMALL))
    assert plan_command.print_forecast(options, made, Screen) == 0
    assert opened[0] == {"stderr": True}
    assert printed[-1:] == ([150] if terminal else [])
    out, err = capsys.readouterr()
    assert out == ("" if terminal else f"{forecast}\n")
    assert bool(re.fullmatch(SIMULATES, err)) != terminal
    assert given == [1]
