"""Engines behind the one entry: evaluations within a run, and what a Ray run is told of
the data.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flwr_dpkmeans.data.bounds.stated_bounds import read_ranges
from flwr_dpkmeans.data.loading.source import load_source
from flwr_dpkmeans.data.points import Bounds
from flwr_dpkmeans.errors import ConfigurationError

pytest.importorskip("hydra")

from simulations.experiments import ray_job
from simulations.experiments.configuration import run_config_of
from simulations.experiments.datasets import load_data_set
from simulations.experiments.engines import run_settings
from simulations.experiments.expansion import expand
from simulations.experiments.job import run_job
from simulations.experiments.outcome import Outcome
from simulations.flower.ray_engine import RayResult


def settings_of(*overrides: str) -> Any:
    (settings,) = expand(["engine=direct", *overrides]).settings
    return settings


def test_an_exact_evaluation_says_what_the_metrics_say() -> None:
    row = run_job(
        settings_of(
            "data=iris",
            "evaluation=exact",
            "metrics=[accuracy,purity]",
            "privacy.epsilon=4",
        )
    )
    assert row["status"] == "done", row["reason"]
    # Rows are rounded to the grid of 2^-16 before they are summed.
    assert row["evaluation_cost"] == pytest.approx(row["nicv"], rel=1e-3)
    assert row["evaluation_accuracy"] == pytest.approx(row["accuracy"])
    assert row["evaluation_purity"] == pytest.approx(row["purity"])
    assert row["evaluation_cost_noise"] == row["evaluation_accuracy_noise"] == 0.0
    assert row["epsilon"] is None


def test_a_private_evaluation_is_within_its_noise_and_the_budget() -> None:
    row = run_job(
        settings_of(
            "data=digits",
            "evaluation=private",
            "metrics=[accuracy]",
            "privacy.epsilon=4",
        )
    )
    assert row["status"] == "done", row["reason"]
    assert 0.0 < row["evaluation_cost_noise"] < 0.5
    assert (
        abs(row["evaluation_cost"] - row["nicv"]) < 4.0 * row["evaluation_cost_noise"]
    )
    assert abs(row["evaluation_accuracy"] - row["accuracy"]) < 0.1
    assert 3.99 < row["epsilon"] <= 4.0


def test_an_evaluation_needs_rounds() -> None:
    with pytest.raises(ConfigurationError, match="'optimal' runs on all rows"):
        settings_of("data=iris", "algorithm=optimal", "evaluation=private")


class Told(Exception):
    """Carries what the engine would have been started with."""


def replace_ray(monkeypatch: pytest.MonkeyPatch, run: Callable[..., RayResult]) -> None:
    """Let ``run(run_config, **options)`` stand for a simulation on Ray."""
    monkeypatch.setattr(ray_job, "run_on_ray", run)


@pytest.mark.parametrize(
    ("overrides", "source", "bounds"),
    [
        (("data=iris",), "iris", None),
        (("data=iris", "data.bounds=range"), "file", "own"),
        (("data=synth", "data.n_points=50"), "file", "own"),
        (("data=max_cover", "data.n_points=200"), "file", "0.0,100.0"),
        (("data=mixture", "n_clients=3", "seed=4"), "mixture", "-2.7,3.7"),
        (("data=mixture", "n_clients=3", "data.server=own"), "file", None),
        (("data=iris", "partition=by_value"), "iris", None),
    ],
)
def test_ray_is_told_of_files_and_names_only(
    monkeypatch: pytest.MonkeyPatch,
    overrides: tuple[str, ...],
    source: str,
    bounds: str | None,
) -> None:
    settings = settings_of("engine=ray", *overrides)
    seen: dict[str, Any] = {}

    def run_on_ray(
        run_config: dict[str, Any], *, n_nodes: int, folder: Path, **_: Any
    ) -> RayResult:
        assert all(
            isinstance(value, str | int | float | bool) for value in run_config.values()
        )
        seen.update(run_config, n_nodes=n_nodes)
        if source == "file":
            table = load_source(
                run_config["data"],
                partition_column=run_config.get("partition-column", ""),
            )
            np.testing.assert_array_equal(table.points, load_data_set(settings).points)
        if bounds == "own":
            seen["box"] = read_ranges(run_config["bounds"]).matched(None)
        if run_config.get("server-data"):
            assert np.load(run_config["server-data"]).shape == (300, 100)
        raise Told

    replace_ray(monkeypatch, run_on_ray)
    with pytest.raises(Told):
        run_settings(settings)
    assert seen["n_nodes"] == settings["n_clients"]
    if source != "file":
        assert seen["data"] == source
    if source == "mixture":
        assert (seen["partition-seed"], seen["mixture-rows-per-client"]) == (4, 50)
    if bounds == "own":
        points = load_data_set(settings).points
        assert seen["box"] == Bounds(
            tuple(points.min(axis=0).tolist()), tuple(points.max(axis=0).tolist())
        )
    elif bounds is not None:
        assert seen["bounds"] == bounds
    if "partition=by_value" in overrides:
        assert (seen["partition"], seen["partition-column"]) == ("by_value", "target")
    assert not Path(str(seen["data"])).exists() or source != "file"


def test_a_ray_run_becomes_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = settings_of(
        "engine=ray", "data=iris", "algorithm=fastlloyd", "evaluation=private"
    )
    same = run_settings(settings_of("data=iris", "algorithm=fastlloyd"))[0]
    metrics = {"n_iterations": 3, "evaluation": {"cost": {"value": 0.25, "noise": 0.5}}}

    def run_on_ray(run_config: dict[str, Any], **_: Any) -> RayResult:
        assert run_config["n-classes"] == 3
        return RayResult(
            same.centers,
            same.centers,
            np.ones(3),
            same.privacy,
            metrics,
            12.5,
            10**9,
            Path(),
        )

    replace_ray(monkeypatch, run_on_ray)
    outcome, _ = run_settings(settings)
    assert isinstance(outcome, Outcome)
    assert (outcome.n_iterations, outcome.seconds, outcome.cost_curve) == (
        3,
        12.5,
        None,
    )
    assert outcome.columns == {
        "peak_bytes": 10**9,
        "evaluation_cost": 0.25,
        "evaluation_cost_noise": 0.5,
    }


def test_options_without_effect_are_refused_and_what_data_fill_in_is_left_out() -> None:
    feddp = ("data=iris", "algorithm=feddp_kmeans", "data.server=held_out")
    with pytest.raises(ConfigurationError, match=r"weights_bound is 3.0, but unit"):
        settings_of(*feddp, "algorithm.weights_bound=3")
    settings = settings_of(
        "data=mixture",
        "data.rows_per_client=30",
        "data.server=own",
        "algorithm=feddp_kmeans",
    )
    assert settings["algorithm"]["examples_per_client"] == 30
    assert "examples-per-client" not in run_config_of(settings)
