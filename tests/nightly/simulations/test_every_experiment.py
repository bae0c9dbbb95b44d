"""Every experiment of conf/ runs: each of its methods once, on few rows of the right
form.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.configuration_files import text_of

pytest.importorskip("hydra")
from omegaconf import OmegaConf

from simulations.experiments.composition import parse_overrides, single_overrides
from simulations.experiments.configuration import require_valid
from simulations.experiments.engines import run_settings
from simulations.experiments.expansion import CONFIGURATION
from simulations.experiments.job import run_job
from simulations.sources.census_codes import STATES

EXPERIMENTS = sorted(
    path.stem for path in (CONFIGURATION / "experiment").glob("*.yaml")
)
SMALL = {"rows_per_client": 30, "n_points": 300}
CENSUS = "ST,AGEP,COW,SCHL,MAR,OCCP,POBP,RELP,WKHP,SEX,RAC1P,PINCP,PWGTP"


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small file of the right form for each set that has one."""
    folder, rng = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    for path in (CONFIGURATION / "data").glob("*.yaml"):
        if (given := read("data", path.stem)).get("path", "").endswith(".npz"):
            np.savez(folder / Path(given["path"]).name, X=rng.normal(size=(200, 3)))
    (folder / "census").mkdir()
    people = [
        f"{state},{rng.integers(20, 60)},{kind},{rng.integers(1, 25)},"
        f"{rng.integers(1, 6)},0120,001,00,40,1,1,90000,10"
        for state in STATES
        for kind in rng.permutation([2, 5, 6] * 15)
    ]
    (folder / "census" / "psam_pusa.csv").write_text(
        "\n".join([CENSUS, *people]) + "\n"
    )
    # 40 users of the two tags wrote some questions each, and the server has a question
    # of 10 and more of them.
    users = np.concatenate([rng.integers(0, 40, 120), 100 + np.arange(1000)])
    tags = [("github", "pdf")[n % 2] for n in range(120)] + ["c"] * 1000
    table = {
        "embeddings": list(rng.normal(size=(1120, 4))),
        "user_ids": users,
        "tags": tags,
    }
    pq.write_table(pa.table(table), folder / "stack_overflow.parquet")
    return folder


def read(group: str, option: str) -> dict[str, Any]:
    return dict(json.loads(text_of(group, option)))


def first_value(key: str, value: Any) -> Any:
    """The first of what a sweep lists, as Hydra reads it."""
    text = "null" if value is None else str(value)
    [line, *_] = single_overrides(parse_overrides([f"{key}={text}"])[key])
    return parse_overrides([line])[key].value()


def smallest(name: str, folder: Path) -> Iterator[dict[str, Any]]:
    """Each method of each sweep, with the first value of everything else and few rows.

    Put together without Hydra.
    """
    given = read("experiment", name)
    for grid in given.pop("sweep")["grids"]:
        for algorithm in grid["algorithm"].split(","):
            groups = {
                "algorithm": algorithm,
                "data": grid["data"].split(",")[0],
                "partition": "iid",
            }
            groups |= {"privacy": "seeded", "trust": "default", "engine": "direct"}
            config = read(".", "config") | {
                group: read(group, option) for group, option in groups.items()
            }
            settings = OmegaConf.merge(config, given)
            for key, value in grid.items():
                if key not in groups:
                    OmegaConf.update(settings, key, first_value(key, value))
            for key, small in SMALL.items():
                if key in settings.data:
                    settings.data[key] = small
            settings.merge_with(
                {
                    "seed": 0,
                    "data_dir": str(folder),
                    "sample_size": 50,
                    "privacy": {"epsilon": 20.0},
                }
            )
            settings.n_clients = settings.n_clients and min(settings.n_clients, 6)
            yield {
                str(key): found
                for key, found in OmegaConf.to_container(settings, resolve=True).items()
            }  # type: ignore[union-attr]


def kind_of(settings: dict[str, Any]) -> tuple[Any, ...]:
    data, unit = settings["data"], settings["privacy"]["unit"]
    # The rounds of clients' sums are the same in four columns and in a hundred, which
    # take seconds.
    source = data["source"] if unit == "record" else ""
    chosen = (
        source,
        data["bounds"],
        data["server"],
        data["n_clusters"] == "auto",
        tuple(settings["metrics"]),
    )
    return (settings["algorithm"]["name"], unit, *chosen)


@pytest.mark.filterwarnings("ignore")
def test_every_method_of_every_experiment_runs(data_dir: Path) -> None:
    # One of those that differ in numbers only.
    runs = {
        kind_of(one): (name, one)
        for name in EXPERIMENTS
        for one in smallest(name, data_dir)
    }
    assert {name for name, _ in runs.values()} >= {
        "census",
        "stack_overflow",
        "comparison",
    }
    failed = []
    for name, settings in runs.values():
        require_valid(settings)
        row = run_job(settings)
        if row["status"] != "done":
            failed.append((name, settings["algorithm"]["name"], row["reason"]))
        if name == "census":
            assert row["n_clients"] == 51
            if settings["algorithm"]["name"] == "k_fed":
                # A single run of it also writes its report.
                assert (
                    json.loads(run_settings(settings)[0].privacy.to_json())[
                        "is_private"
                    ]
                    is False
                )
        if name == "stack_overflow":
            # The authors of the server's questions are no clients.
            assert 20 <= row["n_clients"] <= 35
    assert failed == []
