"""What a client refuses in a plan that starts from server data, before it computes
anything.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from flwr_dpkmeans.errors import ConfigurationError, ProtocolError
from flwr_dpkmeans.options import read_config
from flwr_dpkmeans.sums.checks.verify import require_next, verify_plan
from flwr_dpkmeans.sums.draft import draft_plan
from flwr_dpkmeans.sums.outcome import Discoveries
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.plan_points import PublicPoints
from flwr_dpkmeans.sums.public_facts import MAX_SERVER_POINTS, ServerFacts

POINTS = np.linspace(-0.5, 0.5, 40).reshape(20, 2)
POINTS = np.rint(POINTS * 2.0**16) / 2.0**16
FACTS = ServerFacts(20, (0.0, 0.0), 0.5, 0.2)


def drafted(
    trust: str = "distributed", *, public: bool | None = None, **values: Any
) -> Plan:
    config = read_config(
        **(
            {
                "n_clusters": 3,
                "bounds": ((-1.0,), (1.0,)),
                "algorithm": "feddp_kmeans",
                "trust": trust,
            }
            | values
        )
    )
    shown = trust == "oblivious" if public is None else public
    return draft_plan(
        config,
        run_id=1,
        n_clients=5,
        seed=2,
        n_features=2,
        server=FACTS,
        public_points=PublicPoints.of(POINTS) if shown else None,
    )


@pytest.mark.parametrize("trust", ["distributed", "central", "oblivious"])
def test_honest_plans_are_accepted(trust: str) -> None:
    verify_plan(drafted(trust))


def test_a_plan_may_not_keep_points_back_that_clients_need() -> None:
    with pytest.raises(ProtocolError, match="keeps the server's points back"):
        verify_plan(drafted("oblivious", public=False))


def test_points_must_be_those_that_the_plan_counts() -> None:
    plan = drafted("oblivious")
    assert plan.public_points is not None
    for points in (
        PublicPoints.of(POINTS[:-1]),
        replace(plan.public_points, n_points=10, n_features=4),
        replace(plan.public_points, grid_values="not base64!"),
        replace(plan.public_points, grid_values=plan.public_points.grid_values[:-8]),
        PublicPoints.of(POINTS * 4.0),
    ):
        with pytest.raises(ProtocolError):
            verify_plan(replace(plan, public_points=points))


def test_work_without_end_is_not_taken_on() -> None:
    verify_plan(drafted("oblivious", n_init=1000))
    many = PublicPoints.of(np.zeros((20_000, 2)))
    plan = replace(
        drafted("oblivious", n_init=10_000),
        public_points=many,
        server=replace(FACTS, n_points=20_000),
    )
    with pytest.raises(ProtocolError, match="or have fewer clusters or server points"):
        verify_plan(plan)
    assert MAX_SERVER_POINTS == 131_072
    with pytest.raises(
        ConfigurationError, match=f"at most {MAX_SERVER_POINTS} can be weighted"
    ):
        replace(FACTS, n_points=MAX_SERVER_POINTS + 1)
    with pytest.raises(ConfigurationError, match="at most 50 Lloyd rounds"):
        drafted(unit="client", client_sampling_rate=0.5, max_iter=51)


@pytest.mark.parametrize(
    "change",
    [
        {"centre": (2.0**-17, 0.0)},
        {"centre": (1.5, 0.0)},
        {"centre": (float("nan"), 0.0)},
        {"data_radius": 0.0},
        {"data_radius": float("inf")},
        {"outer_product_bound": float("nan")},
        {"n_points": -1},
    ],
)
def test_impossible_facts_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        replace(FACTS, **change)


def test_a_centre_of_another_width_is_refused() -> None:
    plan = drafted()
    with pytest.raises(ProtocolError, match="another width"):
        verify_plan(replace(plan, server=replace(FACTS, centre=(0.0, 0.0, 0.0))))


def test_larger_bounds_need_larger_noise() -> None:
    plan = drafted()
    with pytest.raises(ProtocolError, match="other sensitivities or noise"):
        verify_plan(replace(plan, server=replace(FACTS, data_radius=0.6)))


def test_facts_cannot_change_after_they_were_agreed_on() -> None:
    plan = drafted()
    with pytest.raises(ProtocolError, match="another server than the one in force"):
        require_next(
            plan, replace(plan, server=replace(FACTS, data_radius=0.6)), Discoveries(),
            begun=False, released=None,
        )  # fmt: skip


def test_without_a_number_of_rows_delta_stays_small() -> None:
    assert drafted(delta=1e-5).delta == 1e-5
    assert drafted(delta=1e-4, n_examples=5000).delta == 1e-4
    assert drafted(delta=1e-4, unit="client").delta == 1e-4
    with pytest.raises(ConfigurationError, match="n_examples or give a smaller delta"):
        drafted(delta=1e-4)
    with pytest.raises(ConfigurationError, match=r"level it must be below 1/M = 0\.2"):
        drafted(delta=0.25, unit="client")
