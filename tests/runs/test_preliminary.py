"""Releases that steer the plan: their shares of the budget, their sensitivities, and
what follows from them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from support.drafts import draft_of
from support.flat import flat_estimator

from flwr_dpkmeans.algorithms.feddp.packed_start import SpherePackingTask
from flwr_dpkmeans.errors import ConfigurationError, PlanError, ProtocolError
from flwr_dpkmeans.kmeans.ranges.histograms import N_BINS, magnitude_histogram
from flwr_dpkmeans.kmeans.ranges.magnitudes import N_MAGNITUDES
from flwr_dpkmeans.options import parse_config
from flwr_dpkmeans.privacy.accounting import compose_epsilon
from flwr_dpkmeans.privacy.release import (
    GaussianRelease,
    ReleasedSum,
    as_released,
    vector_length,
)
from flwr_dpkmeans.secagg.ring import encode
from flwr_dpkmeans.sums.checks.verify import require_next, verify_plan
from flwr_dpkmeans.sums.draft import draft_plan, redraft_plan
from flwr_dpkmeans.sums.outcome import Discoveries
from flwr_dpkmeans.sums.plan import Plan, takes_part
from flwr_dpkmeans.sums.public_facts import ServerFacts
from flwr_dpkmeans.sums.settings import Box
from flwr_dpkmeans.sums.statement import build_report
from flwr_dpkmeans.sums.task import TASKS, register
from flwr_dpkmeans.sums.wire import dump_plan, load_plan

BOX: Box = ((-2.0, 0.0), (2.0, 50.0))
COUNTING = "counting_packing"


@dataclass(frozen=True, kw_only=True)
class CountingPacking(SpherePackingTask):
    name = COUNTING
    needs_n_examples = True


@pytest.fixture
def counting() -> Iterator[str]:
    """A registered algorithm that needs N at both units.

    Sphere packing, whose noise comes from `allocate`.
    """
    register(CountingPacking)
    yield COUNTING
    TASKS.pop(COUNTING)


plan_of = partial(
    draft_of,
    n_clusters=3,
    bounds=((-100.0,), (100.0,)),
    private_bounds=True,
    run_id=9,
    seed=7,
)


def released(plan: Plan, index: int, *arrays: Any) -> ReleasedSum:
    blocks = plan.round_at(index).blocks
    values = encode(
        np.concatenate([np.ravel(np.asarray(array, dtype=float)) for array in arrays])
    ).values
    assert len(values) == vector_length(blocks)
    return as_released(values, blocks, plan.fraction_bits)


def squares(plan: Plan, *indices: int) -> list[float]:
    return [
        event.noise_multiplier**-2
        for event in plan.events(indices)
        if isinstance(event, GaussianRelease)
    ]


# -- the plan --------------------------------------------------------------------------


def test_the_count_shares_a_round_with_the_first_histogram() -> None:
    plan = plan_of()
    assert (plan.first_round, plan.is_final, plan.last_round) == (-1, False, 0)
    first, second = plan.preliminary
    assert [(block.name, block.shape) for block in first.blocks] == [
        ("count", (1,)),
        ("magnitudes", (2, N_MAGNITUDES)),
    ]
    assert [(block.name, block.shape) for block in second.blocks] == [
        ("ranges", (2, N_BINS))
    ]
    assert {planned.trust for planned in plan.preliminary} == {"distributed"}
    assert plan.count is first
    assert plan.round_at(0) is second


@pytest.mark.parametrize(
    "values",
    [{"n_examples": 1000}, {"algorithm": "lloyd"}, {"algorithm": "sphere_packing"}],
)
def test_without_a_count_the_histograms_are_alone(values: dict[str, Any]) -> None:
    plan = plan_of(**values)
    assert [planned.name for planned in plan.preliminary] == ["magnitudes", "ranges"]
    assert plan.count is None


def test_the_plan_is_final_once_everything_is_found() -> None:
    assert not plan_of(counted=900).is_final
    assert not plan_of(box=BOX).is_final
    final = plan_of(counted=900, box=BOX)
    assert final.is_final
    assert final.bounds == BOX
    assert plan_of().bounds == ((-100.0,), (100.0,))


@pytest.mark.parametrize(
    ("values", "share"),
    [
        ({}, 0.12),
        ({"n_examples": 900}, 0.1),
        ({"bounds_share": 0.2, "count_share": 0.1}, 0.3),
    ],
)
@pytest.mark.parametrize("algorithm", ["fastlloyd", "glloyd"])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0])
def test_the_total_is_exactly_epsilon(
    algorithm: str, epsilon: float, values: dict[str, Any], share: float
) -> None:
    plan = plan_of(counted=900, box=BOX, algorithm=algorithm, epsilon=epsilon, **values)
    assert 0.999 * epsilon <= plan.epsilon <= epsilon
    assert plan.epsilon == pytest.approx(compose_epsilon(plan.events(), plan.delta))
    spent, whole = (
        math.fsum(squares(plan, -1, 0)),
        math.fsum(squares(plan, *range(-1, plan.last_round + 1))),
    )
    assert spent / whole == pytest.approx(share, rel=1e-3)


@pytest.mark.sample(6)
@pytest.mark.parametrize("unit", ["record", "client"])
@pytest.mark.parametrize("kind", ["gaussian", "paper"])
@pytest.mark.parametrize("rate", [1.0, 0.5])
def test_allocation_knows_what_was_released_before(
    counting: str, unit: str, kind: str, rate: float
) -> None:
    if rate < 1.0 and (unit == "record" or kind == "paper"):
        return  # refused by the configuration
    values = {
        "algorithm": counting,
        "unit": unit,
        "noise_kind": kind,
        "trust": "central",
        "delta": 1e-6,
    }
    if rate < 1.0:
        with pytest.raises(ConfigurationError, match="a private count that its rounds"):
            plan_of(
                counted=900,
                box=BOX,
                epsilon=2.0,
                client_sampling_rate=rate,
                max_iter=2,
                **values,
            )
        return
    plan = plan_of(
        counted=900,
        box=BOX,
        epsilon=2.0,
        client_sampling_rate=rate,
        max_iter=2,
        **values,
    )
    assert 0.99 * 2.0 <= plan.epsilon <= 2.0
    alone = plan_of(
        epsilon=2.0,
        client_sampling_rate=rate,
        max_iter=2,
        private_bounds=False,
        n_examples=900,
        **values,
    )
    for block, other in zip(plan.rounds[0].blocks, alone.rounds[0].blocks, strict=True):
        assert block.noise_multiplier > other.noise_multiplier


def test_laplace_rounds_get_what_is_left_of_epsilon() -> None:
    plan = plan_of(counted=900, box=BOX, algorithm="sulloyd", epsilon=2.0, max_iter=2)
    per_round = math.fsum(
        1.0 / block.noise_multiplier for block in plan.rounds[0].blocks
    )
    assert 2.0 * per_round >= 2.0 * 0.88
    assert 0.999 * 2.0 < plan.epsilon <= 2.0
    gaussian = compose_epsilon(plan.events((-1, 0)), plan.delta)
    assert 0.99 * 2.0 * 0.12 < gaussian <= 2.0 * 0.12


def test_worst_case_repeats_histograms_too() -> None:
    plan = plan_of(counted=900, box=BOX, max_retries=1, bounds_share=0.45, max_iter=5)
    assert plan.epsilon_worst_case >= compose_epsilon(
        plan.events([*range(-1, 6), 0]), plan.delta
    ) * (1 - 1e-9)


def test_every_client_takes_part_in_preliminary_rounds() -> None:
    """They are not priced as samples."""
    plan = plan_of(
        algorithm="sphere_packing",
        unit="client",
        client_sampling_rate=0.001,
        noise="seeded",
        box=BOX,
    )
    assert all(
        takes_part(plan, node, index, 0) for node in range(200) for index in (-1, 0)
    )
    assert not all(takes_part(plan, node, 1, 0) for node in range(200))
    assert all(isinstance(event, GaussianRelease) for event in plan.events((-1, 0)))


def test_retries_that_break_the_limit_are_refused_before_anything_is_found() -> None:
    from flwr_dpkmeans.errors import BudgetError

    for width in (None, 2):
        with pytest.raises(BudgetError, match=r"max_epsilon is 0\.5"):
            plan_of(width=width, max_epsilon=0.5)


def test_histograms_wait_for_the_width() -> None:
    plan, wider = plan_of(width=None), plan_of(width=2)
    assert [planned.name for planned in plan.preliminary] == [
        "count and magnitudes",
        "ranges",
    ]
    assert [len(planned.blocks) for planned in plan.preliminary] == [1, 0]
    assert plan.first_round == -1
    verify_plan(load_plan(dump_plan(plan)))
    verify_plan(load_plan(dump_plan(wider)))
    require_next(plan, wider, Discoveries(), begun=False, released=None)
    final = plan_of(width=2, counted=900, box=BOX)
    require_next(wider, final, Discoveries(900, BOX), begun=True, released=0)
    for before, after in (
        *(
            (plan, final),
            (plan, replace(wider, seed=8)),
            (wider, replace(wider, n_features=3)),
        ),
        (plan, replace(wider, config=wider.config.changed(bounds_share=0.2))),
        (plan, replace(wider, box=BOX)),
    ):
        with pytest.raises(ProtocolError, match="which had fixed it or is still"):
            require_next(before, after, Discoveries(), begun=False, released=None)
    for same in (plan, wider):
        with pytest.raises(ProtocolError, match="the one in force says the same"):
            require_next(same, same, Discoveries(), begun=False, released=None)
    with pytest.raises(ProtocolError, match="another n_features than the one in force"):
        require_next(plan, wider, Discoveries(), begun=True, released=None)


@pytest.mark.parametrize(
    ("box", "sentence"),
    [
        (((-2.0,), (2.0,)), "has 1 features, but tables have 2"),
        (((-2.0, 0.0), (2.0, 0.0)), r"\[0, 0\] for feature 1"),
        (((-2.0, 0.0), (2.0, 101.0)), r"\[0, 101\] for feature 1, but it must lie in"),
        (((math.nan, 0.0), (2.0, 1.0)), "for feature 0"),
        (((-math.inf, 0.0), (2.0, 1.0)), "for feature 0"),
    ],
)
def test_a_box_that_no_release_leads_to_is_refused(box: Box, sentence: str) -> None:
    with pytest.raises(PlanError, match=sentence):
        plan_of(counted=900, box=box)


def test_a_box_beside_declared_bounds_is_refused() -> None:
    with pytest.raises(PlanError, match="a box besides its declared bounds"):
        plan_of(private_bounds=False, n_examples=900, box=BOX)


@pytest.mark.parametrize(
    "name", ["data_radius", "outer_product_bound", "means_bound", "sums_bound"]
)
def test_distances_in_unknown_units_are_refused(name: str) -> None:
    with pytest.raises(
        ConfigurationError, match=f"{name} is 1.5, in the units of the data"
    ):
        plan_of(algorithm="feddp_kmeans", **{name: 1.5})


def test_server_data_make_private_bounds_needless() -> None:
    config = parse_config(
        n_clusters=2,
        bounds=((-1,), (1,)),
        algorithm="feddp_kmeans",
        trust="distributed",
        private_bounds=True,
    )
    with pytest.raises(ConfigurationError, match="bounds follow from the server's own"):
        draft_plan(
            config,
            run_id=1,
            n_clients=3,
            seed=1,
            n_features=2,
            server=ServerFacts(9, (0.0, 0.0), 1.0, 1.0),
        )


# -- the private count of clients' rows ------------------------------------------------


def test_a_client_counts_no_more_rows_than_are_declared(counting: str) -> None:
    plan = plan_of(
        algorithm=counting, unit="client", private_bounds=False, examples_per_client=50
    )
    assert not plan.is_final
    (block,) = plan.round_at(0).blocks
    assert (block.name, block.sensitivity.bound, block.sensitivity.unit.value) == (
        "count",
        50.0,
        "client",
    )
    assert block.noise_scale == pytest.approx(50.0 * block.noise_multiplier)
    for rows, counted in ((0, 0.0), (7, 7.0), (50, 50.0), (51, 50.0), (9000, 50.0)):
        assert plan.task.preliminary_statistic(
            plan, 0, np.zeros((rows, 2)), Discoveries()
        )[0].tolist() == [counted]
    final = plan_of(
        algorithm=counting, unit="client", private_bounds=False, counted=200
    )
    assert final.is_final
    assert final.n_examples == 200
    assert 0.999 <= final.epsilon <= 1.0
    verify_plan(load_plan(dump_plan(final)))
    small = replace(block, sensitivity=replace(block.sensitivity, bound=1.0))
    tampered = replace(
        final, preliminary=(replace(final.preliminary[0], blocks=(small,)),)
    )
    with pytest.raises(ProtocolError, match="other sensitivities or noise"):
        verify_plan(tampered)


def test_a_client_level_count_fits_from_the_estimator(counting: str) -> None:
    parts = [
        np.random.default_rng(seed).uniform(-1, 1, (30 + seed, 2)) for seed in range(60)
    ]
    km = flat_estimator(
        3, algorithm=counting, unit="client", epsilon=8.0, engine="direct",
        noise="seeded", random_state=1, examples_per_client=40, bounds=(-1.0, 1.0),
    )  # fmt: skip
    report = km.fit(parts).privacy_
    truth = sum(min(len(part), 40) for part in parts)
    line = report.releases[0]
    assert (line.array, line.sensitivity, line.round_index) == ("count", 40.0, 0)
    assert report.n_examples is not None
    assert abs(report.n_examples - truth) < 5 * line.noise_scale
    assert report.n_examples != truth
    assert "clipped to the declared examples_per_client" in line.theorem
    assert "Of each client, at most 40 rows are counted." in report.assumptions
    assert report.epsilon <= 8.0


# -- what follows from a release -------------------------------------------------------


@pytest.mark.parametrize("unit", ["record", "client"])
def test_neighbouring_tables_differ_by_the_declared_bounds(
    counting: str, unit: str
) -> None:
    plan = plan_of(
        width=3,
        algorithm=counting,
        unit=unit,
        examples_per_client=4,
        trust="distributed",
    )
    generator = np.random.default_rng(2)
    table = generator.normal(0.0, 40.0, (12, 3))
    coarse = Discoveries(box=((-64.0, -128.0, 0.0), (64.0, 128.0, 8.0)))
    for index in (-1, 0):
        whole = plan.task.preliminary_statistic(plan, index, table, coarse)
        for row in range(len(table)):
            gone = (
                np.zeros((0, 3)) if unit == "client" else np.delete(table, row, axis=0)
            )
            less = plan.task.preliminary_statistic(plan, index, gone, coarse)
            for block, a, b in zip(
                plan.round_at(index).blocks, whole, less, strict=True
            ):
                assert a.shape == block.shape
                assert float(np.linalg.norm(a - b)) <= block.sensitivity.bound
                assert block.sensitivity.bound <= (
                    4.0 if block.name == "count" else 1.0000001 * math.sqrt(3.0)
                )
                assert np.array_equal(a * 2.0**16, np.rint(a * 2.0**16))


def test_ranges_before_magnitudes_are_refused() -> None:
    with pytest.raises(ProtocolError, match="before magnitudes"):
        plan_of().task.preliminary_statistic(
            plan_of(), 0, np.zeros((3, 2)), Discoveries()
        )


def test_releases_lead_to_the_final_plan() -> None:
    plan = plan_of(epsilon=50.0, delta=1e-5)
    points = np.random.default_rng(4).uniform((-3.0, 10.0), (5.0, 60.0), (20_000, 2))
    found = Discoveries()
    for index in (-1, 0):
        exact = plan.task.preliminary_statistic(plan, index, points, found)
        found = plan.task.take_preliminary(
            plan, index, released(plan, index, *exact), found
        )
    assert found.n_examples == 20_000
    assert found.unclear == ()
    final = redraft_plan(plan, n_features=2, n_examples=found.n_examples, box=found.box)
    require_next(plan, final, found, begun=True, released=0)
    assert final.is_final
    lower, upper = final.bounds
    assert -5.0 < lower[0] < -3.0
    assert 5.0 < upper[0] < 7.0
    assert 0.0 < lower[1] < 10.0
    assert 60.0 < upper[1] < 70.0
    verify_plan(load_plan(dump_plan(final)))
    assert load_plan(dump_plan(final)).box == final.box


def test_the_noise_of_all_shares_is_reckoned_with() -> None:
    """A full sum has twice the planned variance."""
    plan = plan_of(width=1, n_clients=2, n_examples=5000)
    block = plan.round_at(-1).blocks[0]
    counts = np.zeros((1, N_MAGNITUDES))
    counts += magnitude_histogram(np.full((1, 1), 3.0), ((-100.0,), (100.0,)))
    n_tests = sum(N_MAGNITUDES - width + 1 for width in (1, 2, 4, 8, 16))
    from scipy.stats import norm

    threshold = block.noise_scale * math.sqrt(2.0) * norm.isf(1e-3 / n_tests)
    for factor, unclear in ((0.999, (0,)), (1.001, ())):
        found = plan.task.take_preliminary(
            plan,
            -1,
            released(plan, -1, np.rint(counts * threshold * factor * 2**16) / 2**16),
            Discoveries(),
        )
        assert found.unclear == unclear


def test_found_numbers_have_a_digest() -> None:
    ranges = ((0.0,), (1.0,))
    first = Discoveries(3, ranges)
    assert first.digest() == Discoveries(3, ranges, (0,)).digest()
    others = [Discoveries(4, ranges), Discoveries(3), Discoveries()]
    assert len({each.digest() for each in (first, *others)}) == 4


# -- the report ------------------------------------------------------------------------


def test_each_release_has_a_line_of_its_own() -> None:
    final = plan_of(counted=900, box=BOX, max_iter=1, trust="oblivious")
    report = build_report(final, [(-1, 0), (0, 0), (1, 0)])
    lines = [(line.round_index, line.array, line.trust) for line in report.releases]
    assert lines[:3] == [
        (-1, "count", "distributed"),
        (-1, "magnitudes", "distributed"),
        (0, "ranges", "distributed"),
    ]
    for line in report.releases[1:3]:
        assert line.sensitivity == pytest.approx(math.sqrt(2.0))
        assert "Gaussian mechanism" in line.theorem
        assert "sqrt(number of columns)" in line.theorem
    costs = [line.epsilon_so_far for line in report.releases]
    assert costs[0] == costs[1] < costs[2] < costs[3] <= 1.0
    assert (
        "number of rows and histograms of each column's range are released to everybody"
        in report.guarantee
    )
    sentences = " ".join(report.assumptions)
    assert "found by the private histograms" in sentences
    assert "domain (-100 to 100) that is public knowledge" in sentences
    assert "were not taken from the data" not in sentences
    assert "magnitudes" in report.details()


def test_client_level_lines_say_what_is_clipped(counting: str) -> None:
    final = plan_of(
        algorithm=counting, unit="client", counted=900, box=BOX, trust="distributed"
    )
    report = build_report(final, [(-1, 0), (0, 0)])
    assert "clipped to the declared examples_per_client" in report.releases[0].theorem
    for line in report.releases[1:]:
        assert "scaled down to the norm of a single row's" in line.theorem
        assert line.sensitivity == pytest.approx(math.sqrt(2.0))
