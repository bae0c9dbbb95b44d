"""Rivals: their rounds under masks, what one row moves, each step by hand, and the
table of the comparison.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from flwr_dpkmeans import FederatedKMeans
from flwr_dpkmeans.errors import ConfigurationError, PlanError
from flwr_dpkmeans.kernels.grid import round_to_grid
from flwr_dpkmeans.options import read_config
from flwr_dpkmeans.privacy.calibration import gaussian_noise_multiplier
from flwr_dpkmeans.privacy.release import ReleasedSum, as_released
from flwr_dpkmeans.sums.build import build_algorithm
from flwr_dpkmeans.sums.checks.neighbours import check_sensitivity
from flwr_dpkmeans.sums.draft import draft_plan
from flwr_dpkmeans.sums.option_rules import Options
from flwr_dpkmeans.sums.round import Algorithm, PrivateSum, State
from flwr_dpkmeans.sums.task import TASKS
from simulations.rivals import register_rivals, rival_runs
from simulations.rivals.__main__ import main
from simulations.rivals.locality_hashing import (
    discrete_laplace,
    lsh_clustering,
    noise_multiplier,
)
from simulations.rivals.pe_means import (
    CANDIDATES,
    HDPEMeansOptions,
    PEMeansOptions,
    above_threshold,
    mutated,
    packed_ball,
)
from simulations.rivals.rival_figure import draw
from simulations.rivals.rival_table import (
    beside_published,
    compared,
    markdown,
    verdict,
    wins,
)
from simulations.rivals.uniform_grid import (
    UniformGridOptions,
    grid_side,
    weighted_kmeans,
)

Array = NDArray[np.float64]
NAMES = ("pe_means", "hdpe_means", "eugkm")
CENTERS = np.array([[-0.5, 0.5, 0.0, 0.25], [0.5, -0.5, 0.25, 0.0]])


@pytest.fixture(autouse=True, scope="module")
def _registered() -> Iterator[None]:
    """PublicFacts here alone: other tests count what is registered."""
    register_rivals()
    yield
    for name in NAMES:
        TASKS.pop(name)


def parts(n: int = 900, seed: int = 4) -> list[Array]:
    generator = np.random.default_rng(seed)
    rows = CENTERS[generator.integers(0, 2, n)] + 0.05 * generator.standard_normal(
        (n, 4)
    )
    return list(np.array_split(rows, 3))


def fitted(algorithm: Options, tables: list[Array], **values: Any) -> FederatedKMeans:
    given: dict[str, Any] = {
        "bounds": (-1.0, 1.0),
        "epsilon": 20.0,
        "noise": "seeded",
        "random_state": 2,
    }
    return FederatedKMeans(2, algorithm=algorithm, **(given | values)).fit(tables)


def built(algorithm: str, **options: Any) -> tuple[Algorithm, State]:
    values = {"n_clusters": 2, "bounds": ((-1,), (1,)), "n_examples": 1000, **options}
    plan = draft_plan(
        read_config(algorithm=algorithm, **values),
        run_id=1,
        n_clients=3,
        seed=7,
        n_features=4,
    )
    found = build_algorithm(plan)
    return found, found.initial_state(plan.seed)


def released(found: Algorithm, votes: Array) -> ReleasedSum:
    ring = np.rint(votes * 2.0**16).astype(np.int64).view(np.uint64)
    return as_released(ring, found.rounds[0].blocks, 16)


@pytest.mark.parametrize(
    "options",
    [
        PEMeansOptions(max_iter=8, mutants=40, radius=0.8),
        HDPEMeansOptions(max_iter=4, mutants=20, latent_dimensions=3),
        UniformGridOptions(hybrid=True),
    ],
    ids=NAMES,
)
def test_rounds_run_under_masks_with_noise_of_all_parties(options: Options) -> None:
    masked = fitted(options, parts(), engine="inprocess")
    direct = fitted(options, parts(), engine="direct")
    assert np.array_equal(masked.cluster_centers_, direct.cluster_centers_)
    assert masked.privacy_.trust == "distributed"
    assert masked.privacy_.epsilon <= 20.0
    distances = np.linalg.norm(masked.cluster_centers_[:, None] - CENTERS[None], axis=2)
    assert distances.min(axis=0).max() < 0.2


@pytest.mark.parametrize(
    ("algorithm", "options"),
    [
        ("pe_means", {"mutants": 4, "max_iter": 2}),
        (
            "hdpe_means",
            {"mutants": 4, "max_iter": 2, "latent_dimensions": 2, "radius": 0.7},
        ),
        ("eugkm", {"hybrid": True}),
    ],
)
def test_one_row_moves_each_release_by_its_bound_and_no_further(
    algorithm: str, options: dict[str, Any]
) -> None:
    found, state = built(algorithm, **options)
    state = (
        state.changed(**{CANDIDATES: state[CANDIDATES][:2]})
        if CANDIDATES in state.arrays
        else state
    )
    for step in found.rounds:

        def arrays(
            rows: Array, weights: Array | None = None, one: PrivateSum = step
        ) -> Sequence[Array]:
            return one.arrays_of(rows, state, weights=weights)

        used = check_sensitivity(step.blocks, arrays, n_features=4, weighted=arrays)
        assert all(0.9 < share <= 1.0 for share in used.values()), used


def test_each_row_votes_for_its_nearest_candidate_and_missing_ones_get_none() -> None:
    found, state = built("pe_means", mutants=4, max_iter=2)
    few = np.array([[0.0] * 4, [0.5] * 4, [-0.5] * 4])
    rows = np.array([[0.4] * 4, [0.3] * 4, [-0.9] * 4, [0.1, 0.1, 0.0, 0.0]])
    (votes,) = found.rounds[0].statistic(rows, state.changed(**{CANDIDATES: few}))
    assert votes.tolist() == [1.0, 2.0, 1.0] + [0.0] * 7


def test_votes_weigh_the_candidates_and_noise_halves_the_mutants() -> None:
    found, state = built("pe_means", mutants=12, max_iter=3)
    assert len(state[CANDIDATES]) == 26
    votes = np.zeros(26)
    votes[[3, 17]] = 700.0, 300.0
    after = found.rounds[0].advance(state, released(found, votes))
    order = np.argsort(-after.counts)
    assert after.counts[order].tolist() == [700.0, 300.0]
    assert np.array_equal(
        after.centroids[order],
        round_to_grid(np.clip(state[CANDIDATES][[3, 17]], -1.0, 1.0)),
    )
    assert len(after[CANDIDATES]) == 26
    assert found.rounds[0].admits is not None
    assert found.rounds[0].admits(after)
    assert not found.rounds[0].admits(
        after.changed(**{CANDIDATES: after[CANDIDATES] / 3.0})
    )
    noise = released(found, np.linspace(-1.0, 1.0, 26))
    assert len(found.rounds[0].advance(state, noise)[CANDIDATES]) == 2 * (6 + 1)


def test_the_largest_votes_that_add_up_to_all_rows_are_kept() -> None:
    assert above_threshold(np.array([4.0, 1.0, -2.0, 7.0, 0.5]), 11).tolist() == [
        4.0,
        0.0,
        0.0,
        7.0,
        0.0,
    ]
    assert above_threshold(np.array([4.0, -2.0, 1.0]), 50).tolist() == [4.0, 0.0, 1.0]


def test_candidates_start_apart_and_mutants_stay_in_the_ball() -> None:
    start = packed_ball(40, 3, 2.0, 5)
    gaps = np.linalg.norm(start[:, None] - start[None], axis=2)[~np.eye(40, dtype=bool)]
    assert np.linalg.norm(start, axis=1).max() < 2.0
    assert gaps.min() >= 2.0 * 2.0 / 8.0
    near = mutated(
        np.array([[0.0, 0.0], [0.0, 1.0]]), 5000, 1.0, np.random.default_rng(0)
    )
    assert np.linalg.norm(near, axis=1).max() <= 1.0 + 1e-12
    # A step is u / |v|^(1 / 1.75) of a hundredth; by Mantegna's formula u has standard
    # deviation .50745.
    v = np.linspace(0.0, 8.0, 4001)[1:]
    for length in (0.3, 1.0, 3.0):
        shares = np.array(
            [
                math.erfc(length * one ** (1 / 1.75) / 0.50745 / math.sqrt(2.0))
                for one in v
            ]
        )
        longer = float(
            (np.exp(-(v**2) / 2.0) * shares).sum() * 0.002 * math.sqrt(2.0 / math.pi)
        )
        assert np.mean(np.abs(near[:5000, 0]) > 0.01 * length) == pytest.approx(
            longer, abs=0.02
        )


def test_hdpe_means_pays_for_every_step_and_adds_a_vector_of_noise() -> None:
    options = HDPEMeansOptions(mutants=4, latent_dimensions=2)
    found = fitted(options, [np.zeros((50, 6))] * 3, epsilon=1.0, engine="direct")
    releases = found.privacy_.releases
    # int(4 sqrt(2)) - 2 histograms, sums and counts.
    assert [line.array for line in releases] == ["votes"] * 3 + ["sums", "counts"]
    assert len({round(line.noise_multiplier, 6) for line in releases}) == 1
    assert found.privacy_.epsilon == pytest.approx(1.0, rel=1e-3)
    moved = found.cluster_centers_[np.abs(found.cluster_centers_).max(axis=1) < 1.0]
    assert len(moved)
    assert all(len(set(row.tolist())) == 6 for row in moved)
    with pytest.raises(ConfigurationError, match="but 'hdpe_means' projects onto"):
        built("hdpe_means")


def test_a_grid_has_the_papers_number_of_cells_and_noise_of_both_signs_cancels() -> (
    None
):
    assert grid_side(5000, 2, 1.0) == int(500**0.5)
    assert grid_side(10_000, 4, 0.5) == int((500.0 ** (8 / 6)) ** 0.25)
    assert (grid_side(100, 6, 0.1), grid_side(10**7, 2, 1.0)) == (
        2,
        int((2**17) ** 0.5),
    )
    with pytest.raises(PlanError, match="a grid of 20 cells in each of 4 columns"):
        built("eugkm", cells_per_column=20)
    cells = np.array([[-0.5], [-0.25], [0.5], [0.25], [0.25]])
    found, counts = weighted_kmeans(cells, np.array([10.0, 30.0, 20.0, 5.0, -5.0]), 2)
    order = np.argsort(found[:, 0])
    assert found[order, 0].tolist() == [-0.3125, 0.5]
    assert counts[order].tolist() == [40.0, 20.0]


def test_a_tree_of_hashes_finds_clear_clusters_at_the_price_of_its_releases() -> None:
    generator = np.random.default_rng(1)
    # 21 counts with 20 times the noise: as Gaussian ones of the same variance of
    # privacy loss, to a few thousandths.
    alone = gaussian_noise_multiplier(1.0, 1e-5)
    assert noise_multiplier(1.0, 1e-5) == pytest.approx(
        alone * math.sqrt(1.0 + 21.0 / 20.0**2), rel=5e-3
    )
    drawn = np.array([discrete_laplace(5.0, generator) for _ in range(4000)])
    q = math.exp(-1.0 / 5.0)
    assert drawn.var() == pytest.approx(2.0 * q / (1.0 - q) ** 2, rel=0.12)
    rows = np.concatenate(parts(40_000))
    found = lsh_clustering(
        rows, 2, epsilon=1.0, delta=1e-5, radius=1.0, generator=generator
    )
    assert (
        np.linalg.norm(found[:, None] - CENTERS[None], axis=2).min(axis=0).max() < 0.2
    )


def rows_of(
    name: str, costs: dict[str, list[list[float]]], epsilons: tuple[float, ...]
) -> list[dict[str, Any]]:
    return [
        {
            "data.name": name,
            "algorithm.name": method,
            "seed": seed,
            "privacy.epsilon": epsilon,
            "cost": cost,
        }
        | {"status": "done"}
        for method, seeds in costs.items()
        for seed, values in enumerate(seeds)
        for epsilon, cost in zip(epsilons, values, strict=False)
    ]


def test_areas_are_compared_with_the_sets_that_are_lost_first() -> None:
    epsilons = (0.25, 0.5, 1.0, 2.0, 4.0)
    won = {
        "optimal": [[1.0]],
        "proxy_lloyd": [[2.0] * 5] * 2,
        "fastlloyd": [[4.0] * 5, [5.0] * 5, [9.0]],
    }
    lost = {"optimal": [[1.0]], "proxy_lloyd": [[3.0] * 5], "pe_means": [[2.0] * 5]}
    first, second = compared(
        rows_of("iris", won, epsilons) + rows_of("adult", lost, epsilons)
    )
    assert (first.name, first.best_rival, first.lead) == (
        "adult",
        "pe_means",
        pytest.approx(2.0 / 3.0),
    )
    # From .25 to 4, with mean costs of 4.5; a seed without all epsilons does not count.
    area = second.areas["fastlloyd"]
    assert (area.mean, area.n_seeds) == (pytest.approx(4.5 * 3.75), 2)
    assert area.error == pytest.approx(3.75 * 0.5)
    assert second.optimum == pytest.approx(3.75)
    assert second.excess("proxy_lloyd") == pytest.approx(3.75)
    assert (verdict(second, "fastlloyd"), verdict(first, "pe_means")) == (1, -1)
    table = markdown([first, second])
    assert "| adult | 3.7500 | 11.2500 |  | **7.5000** |" in table
    assert "| fastlloyd | 1 | 1 | 0 | 0 | 0.444 | 0.286 |" in wins([first, second])
    assert "| iris | 0.3979: 16.8750 ± 1.8750 |" in beside_published([second])
    assert draw([first, second], "title").startswith(b"\x89PNG")
    del lost["pe_means"]
    assert compared(rows_of("adult", lost, epsilons)) == compared([]) == []


def test_the_command_writes_goes_on_and_refuses_runs_of_other_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        rival_runs, "cluster", lambda method, rows, k, epsilon, seed: rows.points[:k]
    )
    command = [
        "--sets",
        "iris",
        "--methods",
        "optimal",
        "proxy_lloyd",
        "balcan",
        "--seeds",
        "1",
    ]
    command += [
        "--workers",
        "0",
        "--data-dir",
        str(tmp_path),
        "--output",
        str(tmp_path / "out"),
    ]
    # What the folder and the methods that are asked for cannot make is said before a
    # run.
    assert main([*command, "--methods", "balcan"]) == 2
    assert (
        "no set has runs of 'optimal', 'proxy_lloyd' and a rival, in the folder or"
        in capsys.readouterr().err
    )
    assert not (tmp_path / "out").exists()
    assert main(command) == 0
    assert "11 runs, 0 were finished before, 0 failed" in capsys.readouterr().err
    assert "| balcan | 1 | 0 | 1 | 0 |" in (tmp_path / "out" / "rivals.md").read_text()
    # Of runs that are not asked for but stand in the table too.
    journal = tmp_path / "out" / "journal.jsonl"
    journal.write_text(
        re.sub(
            r'(?<=lgorithm.name": "balcan")(.*"code": ")', r"\1x", journal.read_text()
        )
    )
    assert main([*command, "--methods", "optimal", "proxy_lloyd"]) == 2
    assert "5 of 11 finished runs" in capsys.readouterr().err
    journal.write_text(journal.read_text().replace('"code": "', '"code": "x'))
    assert main(command) == 2
    assert "11 of 11 finished runs" in capsys.readouterr().err
    assert main([*command, "--other-code"]) == 0
    assert "0 runs, 11 were finished before" in capsys.readouterr().err
