"""Noise on centroids, survivors and traffic, by hand."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from support.flat import flat_estimator
from support.watching import Call, watch

from flwr_dpkmeans.algorithms.lloyd_family.glloyd import GLloydTask
from flwr_dpkmeans.errors import ConfigurationError
from flwr_dpkmeans.flower.in_process_grid import InProcessGrid
from flwr_dpkmeans.planner.centroid_noise import (
    CentroidNoise,
    centroid_noise,
    noise_in_units,
)
from flwr_dpkmeans.planner.request import PlanningRequest
from flwr_dpkmeans.planner.traffic import deployment_of
from flwr_dpkmeans.privacy.release import (
    Block,
    NoiseShape,
    Norm,
    PrivacyUnit,
    Sensitivity,
)
from flwr_dpkmeans.sums.plan import Plan, PlannedRound
from flwr_dpkmeans.sums.task import TASKS, register


def request_of(
    n: int = 10_000, d: int = 3, clients: int = 3, **changes: Any
) -> PlanningRequest:
    named = {
        name: changes.pop(name)
        for name in ("algorithms", "private_count", "spread")
        if name in changes
    }
    return PlanningRequest(
        n, d, clients, {"n_clusters": 2, "bounds": (0.0, 10.0)} | changes, seeds=2,
        **named,
    )  # fmt: skip


def block(
    name: str, shape: tuple[int, ...], bound: float, multiplier: float,
    noise: NoiseShape,
) -> Block:  # fmt: skip
    norm = Norm.L1 if noise is NoiseShape.LAPLACE else Norm.L2
    return Block(
        name, shape, Sensitivity(norm, bound, PrivacyUnit.RECORD), noise, multiplier,
        1.0,
    )  # fmt: skip


def plan_with(sums: str, noise: NoiseShape, trust: str = "oblivious") -> Plan:
    """Sums of deviation (or Laplace scale) 4, counts of 6."""
    blocks = (
        block(sums, (2, 3), 0.5, 8.0, noise),
        block("counts", (2,), 1.0, 6.0, noise),
    )
    return replace(
        request_of().draft("glloyd"), rounds=(PlannedRound("lloyd-1", trust, blocks),)
    )


def test_noise_on_relative_sums_is_divided_by_the_rows() -> None:
    noise = centroid_noise(plan_with("relative_sums", NoiseShape.GAUSSIAN))
    assert noise is not None
    assert (noise.sums_std, noise.counts_std, noise.relative) == (4.0, 6.0, True)
    assert noise.per_coordinate(100) == pytest.approx(0.04)


def test_noise_on_counts_moves_absolute_means() -> None:
    noise = centroid_noise(plan_with("sums", NoiseShape.GAUSSIAN))
    assert noise is not None
    # sqrt(4^2 + 6^2 / 3) = sqrt(28).
    assert noise.per_coordinate(100) == pytest.approx(math.sqrt(28.0) / 100.0)


def test_laplace_noise_has_a_deviation_of_root_two_scales() -> None:
    noise = centroid_noise(plan_with("sums", NoiseShape.LAPLACE))
    assert noise is not None
    assert (noise.sums_std, noise.counts_std) == pytest.approx(
        (4.0 * math.sqrt(2.0), 6.0 * math.sqrt(2.0))
    )


def test_shares_of_three_clients_count_on_two() -> None:
    noise = centroid_noise(
        plan_with("relative_sums", NoiseShape.GAUSSIAN, "distributed")
    )
    assert noise is not None
    assert noise.sums_std == pytest.approx(4.0 * math.sqrt(1.5))


def test_the_last_round_with_sums_and_counts_is_what_matters() -> None:
    plan = plan_with("relative_sums", NoiseShape.GAUSSIAN)
    other = PlannedRound(
        "lloyd-2", "oblivious", (block("sums", (2, 3), 1.0, 9.0, NoiseShape.GAUSSIAN),)
    )
    first, last = (
        centroid_noise(plan),
        centroid_noise(replace(plan, rounds=(*plan.rounds, other))),
    )
    assert first == last
    assert centroid_noise(replace(plan, rounds=(other,))) is None


def test_noise_in_the_callers_units() -> None:
    plan = plan_with("sums", NoiseShape.GAUSSIAN)
    assert noise_in_units(plan, 0.04) == pytest.approx((0.2,))
    uneven = request_of(bounds=((0.0, 0.0, -1.0), (10.0, 2.0, 1.0))).draft("glloyd")
    assert noise_in_units(uneven, 0.04) == pytest.approx((0.2, 0.04, 0.04))


@pytest.mark.parametrize("algorithm", ["fastlloyd", "glloyd", "sulloyd"])
def test_smaller_clusters_survive_with_more_epsilon(algorithm: str) -> None:
    sizes = []
    for epsilon in (0.1, 0.5, 1.0, 4.0):
        noise = centroid_noise(request_of(epsilon=epsilon, max_iter=3).draft(algorithm))
        assert noise is not None
        sizes.append(noise.smallest_cluster(0.15))
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] > 4 * sizes[-1]


def test_a_cluster_survives_noise_on_its_centroid_and_on_its_count() -> None:
    assert CentroidNoise(30.0, 4.0, relative=True).smallest_cluster(0.2) == 150
    # Three deviations of the count's noise.
    assert CentroidNoise(0.3, 40.0, relative=True).smallest_cluster(0.2) == 120


def test_average_clusters() -> None:
    assert request_of(900).units_per_cluster(3) == 300.0
    # Four clients with one row each: each has one in a given one of two clusters with
    # probability a half.
    assert request_of(4, clients=4, unit="client").units_per_cluster(
        2
    ) == pytest.approx(2.0)


def test_candidates_follow_from_the_registry() -> None:
    record = request_of().candidates()
    assert record == ("proxy_lloyd", "fastlloyd", "glloyd", "sulloyd")
    assert request_of(unit="person").candidates() == record
    assert request_of(unit="client").candidates() == (*record, "sphere_packing")


@dataclass(frozen=True, kw_only=True)
class NewLloyd(GLloydTask):
    name = "new_lloyd"


def test_a_new_algorithm_is_a_candidate_once_it_is_registered() -> None:
    register(NewLloyd)
    try:
        assert "new_lloyd" in request_of().candidates()
        assert request_of().draft("new_lloyd").is_final
    finally:
        TASKS.pop("new_lloyd")


def test_a_private_count_is_one_more_round_and_costs_its_share() -> None:
    declared, counted = (
        request_of().draft("fastlloyd"),
        request_of(private_count=True).draft("fastlloyd"),
    )
    assert (declared.first_round, counted.first_round) == (1, 0)
    assert (
        deployment_of(counted).n_round_trips
        == deployment_of(declared).n_round_trips + 1
    )
    assert counted.epsilon <= 1.0


def test_private_bounds_take_rounds_and_a_share_and_leave_no_units() -> None:
    declared, private = (
        request_of().draft("glloyd"),
        request_of(bounds="private").draft("glloyd"),
    )
    assert private.first_round < declared.first_round
    assert private.epsilon <= 1.0
    noises = [centroid_noise(plan) for plan in (declared, private)]
    assert noises[0] is not None
    assert noises[1] is not None
    assert noises[1].total_std > noises[0].total_std
    assert noise_in_units(private, 0.04) == (0.04,)


@pytest.mark.parametrize("width", [2, 5])
def test_bounds_by_name_have_all_columns_that_are_planned_for(width: int) -> None:
    options = {"n_clusters": 2, "bounds": {"a": (0.0, 10.0)}, "epsilon": 1.0}
    sentence = (
        f"n_features is {width}, but the bounds name 1 columns: leave n_features out,"
        " or give bounds without names."
    )
    with pytest.raises(ConfigurationError, match=f"^{sentence}$"):
        PlanningRequest(1000, width, 3, options)
    assert [PlanningRequest(1000, one, 3, options).n_features for one in (0, 1)] == [
        1,
        1,
    ]
    assert (
        PlanningRequest(1000, width, 3, options | {"bounds": (0.0, 10.0)}).n_features
        == width
    )


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"n": 2},
         "n_examples is 2, but it must be an integer of at least 3: give 10000."),
        ({"d": 0}, "n_features is 0, but it must be an integer of at least 1: give 8."),
        ({"clients": 1},
         "n_clients is 1, but it must be an integer of at least 2: give 5."),
        ({"spread": 1.5},
         "spread is 1.5, but it must be a finite number strictly between 0 and"
         " 1: give 0.15."),
        ({"epsilon": -1.0},
         "epsilon is -1.0, but it must be a finite number greater than 0: give 1.0."),
        ({"n_clusters": 20_000},
         "n_examples is 10000, but 20000 clusters need at least as many rows"),
        ({"unit": "recrod"},
         "unit is 'recrod', which is not known: did you mean 'record'?"),
        ({"bounds": (1.0, 0.0)}, "the lower one must be smaller"),
        ({"delta": 0.1}, r"delta is 0.1, but it must be below 1/N"),
        ({"algorithms": ("lloyd",)}, "algorithm is 'lloyd', which is not private"),
        ({"algorithms": ("feddp_kmeans",)},
         "algorithm is 'feddp_kmeans', whose accuracy depends on the server's own"),
        ({"algorithms": ("fastloyd",)},
         "algorithm is 'fastloyd', which is not known: did you mean 'fastlloyd'?"),
    ],
)  # fmt: skip
def test_bad_input_is_refused_with_one_sentence(
    change: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(
        ConfigurationError, match=sentence.replace("?", r"\?")
    ) as caught:
        request_of(**change)
    assert "\n" not in str(caught.value)


def _size(item: Any) -> int:
    return len(item.deflate()) + sum(
        _size(child) for child in (item.children or {}).values()
    )


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("algorithm", "trust", "values"),
    [
        ("proxy_lloyd", "oblivious", {}),
        ("proxy_lloyd", "distributed", {}),
        ("fastlloyd", "oblivious", {}),
        ("fastlloyd", "distributed", {}),
        ("fastlloyd", "oblivious", {"n_examples": "private"}),
        ("fastlloyd", "oblivious", {"bounds": "private"}),
        ("proxy_lloyd", "distributed", {"bounds": "private", "n_examples": 2_000}),
    ],
)
def test_traffic_is_that_of_a_run(
    algorithm: str, trust: str, values: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[int] = []
    received: list[int] = []

    def weigh(call: Call) -> None:
        sent.append(_size(call.arguments["message"].content))
        received.extend(_size(reply.content) for reply in call.result)

    watch(InProcessGrid.deliver, weigh)
    points = np.random.default_rng(0).uniform(0.0, 10.0, (2_000, 8))
    common: dict[str, Any] = {
        "trust": trust,
        "noise": "seeded",
        "random_state": 0,
        "bounds": (0.0, 10.0),
    }
    model = flat_estimator(10, algorithm=algorithm, **(common | values))
    model.fit(np.array_split(points, 5))
    options = common | {
        name: value for name, value in values.items() if name == "bounds"
    }
    counted = model.privacy_.n_examples_source == "private count"
    request = request_of(2_000, 8, 5, n_clusters=10, private_count=counted, **options)
    expected = deployment_of(request.draft(algorithm))
    assert expected.n_rounds == len(model.history_)
    preliminary = len(
        {line.round_index for line in model.privacy_.releases if line.round_index <= 0}
    )
    assert expected.n_round_trips == expected.n_rounds + preliminary + 2
    assert expected.n_messages == len(sent) + len(received)
    assert expected.bytes_down == pytest.approx(sum(sent) / 5, rel=0.03)
    assert expected.bytes_up == pytest.approx(sum(received) / 5, rel=0.03)


def test_minutes_are_start_up_and_polling() -> None:
    deployment = deployment_of(request_of(max_iter=4).draft("fastlloyd"))
    assert (deployment.n_rounds, deployment.n_round_trips, deployment.n_messages) == (
        4,
        6,
        36,
    )
    assert deployment.minutes == pytest.approx((20.0 + 6 * 6.0) / 60.0)


@pytest.mark.parametrize(
    ("name", "fitting", "refused"),
    [
        ("n_examples", (3, np.int64(4)), (2, True, 3.5, "3")),
        ("n_features", (1, 2), (0, True, 1.5)),
        ("n_clients", (2, 3), (1, False, None)),
        ("seeds", (2, 1_000), (1, 1_001, 2.5)),
        ("spread", (5e-324, 1, 1.0), (0.0, 1.0000001, math.nan, True, "0.1")),
        ("target_excess", (5e-324, 1e300, 2), (0.0, -1.0, math.inf, math.nan, False)),
    ],
)
def test_where_the_ranges_of_a_request_end(
    name: str, fitting: tuple[Any, ...], refused: tuple[Any, ...]
) -> None:
    shape: dict[str, Any] = {"n_examples": 100, "n_features": 2, "n_clients": 3}
    for value in fitting:
        options = {"n_clusters": 1, "bounds": (-1.0, 1.0)}
        assert (
            getattr(PlanningRequest(**shape | {"options": options, name: value}), name)
            == value
        )
    for value in refused:
        with pytest.raises(
            ConfigurationError,
            match=f"{name} is {re.escape(repr(value))}, but it must be a",
        ):
            PlanningRequest(
                **shape
                | {
                    "options": {"n_clusters": 1, "bounds": (-1.0, 1.0)},
                    name: value,
                }
            )


def test_what_a_request_says_of_itself() -> None:
    plain = request_of(900, algorithms=("glloyd",), spread=0.25).to_dict()
    assert plain == {
        "n_examples": 900,
        "n_features": 3,
        "n_clusters": 2,
        "n_clients": 3,
        "epsilon": 1.0,
        "unit": "record",
        "trust": None,
        "bounds": [[0.0], [10.0]],
        "target_excess": 0.1,
        "spread": 0.25,
        "seeds": 2,
        "private_count": False,
        "private_bounds": False,
        "feature_names": [],
    }
    assert request_of(900, bounds=None).to_dict()["bounds"] is None
    with pytest.raises(ConfigurationError, match="bounds are not 'private'"):
        request_of(900, bounds=None, bounds_domain=(-5.0, 5.0))
    private = request_of(
        900, bounds="private", bounds_domain=(-5.0, 5.0), trust="central"
    ).to_dict()
    assert (private["bounds"], private["private_bounds"], private["trust"]) == (
        [[-5.0], [5.0]],
        True,
        "central",
    )


def test_what_is_declared_for_a_candidate() -> None:
    """At client level the rows of a client are what an average one has."""
    assert request_of(900).config("glloyd").n_examples == 900
    assert request_of(900, private_count=True).config("glloyd").n_examples is None
    request = request_of(901, clients=30, unit="client", algorithms=("sphere_packing",))
    assert (
        request.config("sphere_packing").n_examples,
        request.draft("sphere_packing").n_examples,
    ) == (None, None)
    assert request.config("sphere_packing").settings.examples_per_client == 30
    few = request_of(29, clients=30, unit="client", algorithms=("sphere_packing",))
    assert few.config("sphere_packing").settings.examples_per_client == 1
    stated = request_of(
        901, clients=30, unit="client", examples_per_client=7,
        algorithms=("sphere_packing",),
    )  # fmt: skip
    assert stated.config("sphere_packing").settings.examples_per_client == 7
    drafted = request_of(900, private_count=True).draft("glloyd")
    assert (drafted.n_examples, drafted.run_id, drafted.n_clients, drafted.seed) == (
        900, 1, 3, 0,
    )  # fmt: skip
    assert request_of(900).draft("glloyd", seed=5, max_iter=2).seed == 5
    box = (
        request_of(900, bounds="private", bounds_domain=(-5.0, 5.0)).draft("glloyd").box
    )
    assert box == ((-5.0,) * 3, (5.0,) * 3)
    assert request_of(900).draft("glloyd").box is None
    # Five clients of two rows, which fall into three clusters: 5 (1 - (2/3)^2).
    sparse = request_of(
        10, clients=5, unit="client", n_clusters=3, algorithms=("sphere_packing",)
    )
    assert sparse.units_per_cluster() == pytest.approx(25.0 / 9.0)


def test_the_share_of_counts_in_noise_and_the_least_cluster() -> None:
    noise = CentroidNoise(3.0, 2.0, relative=False)
    assert noise.total_std == pytest.approx(math.sqrt(9.0 + 4.0 / 3.0))
    assert noise.per_coordinate(4.0) == pytest.approx(noise.total_std / 4.0)
    # A quotient that is whole but for its last digits is not rounded up, one that is
    # larger is; none is below 1.
    assert CentroidNoise(0.3, 0.0, relative=True).smallest_cluster(0.1) == 3
    assert (
        CentroidNoise(0.3 * (1.0 + 1e-11), 0.0, relative=True).smallest_cluster(0.1)
        == 4
    )
    assert CentroidNoise(0.0, 0.0, relative=True).smallest_cluster(0.1) == 1
    assert CentroidNoise(0.0, 0.6, relative=True).smallest_cluster(0.1) == 2


def test_noise_of_residuals_is_in_radii_of_a_cluster() -> None:
    """The radius of a cluster of the spread's rows is spread sqrt(d)."""
    residuals = centroid_noise(plan_with("residual_sums", NoiseShape.GAUSSIAN), 0.25)
    assert residuals is not None
    assert residuals == CentroidNoise(
        pytest.approx(4.0 * 0.25 * math.sqrt(3.0)), 6.0, relative=True
    )
