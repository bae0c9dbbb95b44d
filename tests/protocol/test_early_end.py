"""Runs that end once a released step is short.

What was agreed holds, no noise changes, and no price falls.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.budget_bugs import wrong_plan
from support.ledger_entries import charged_epsilon
from support.protocol_federation import (
    Federation,
    grid_parts,
    make_federation,
    small_config,
)
from test_hostile_server import VICTIM, changed, finish_content, hostile

from flwr_dpkmeans.errors import CohortError, ConfigurationError
from flwr_dpkmeans.flower.strategy import PrivateKMeans
from flwr_dpkmeans.secagg.messages import Stage
from flwr_dpkmeans.sums.draft import worst_case, worst_cost
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.round import State

SIZES = (120, 80, 60, 40)
LONG = 10.0
"""A tolerance that every step stays below."""


def settings(**values: Any) -> dict[str, Any]:
    given = {
        "algorithm": "glloyd", "max_iter": 6, "trust": "distributed", "tolerance": LONG,
        "epsilon": 5.0,
    }  # fmt: skip
    return given | values


def finished(**values: Any) -> Federation:
    federation = make_federation(grid_parts(SIZES))
    federation.start(**settings(**values))
    return federation


@pytest.mark.parametrize("trust", ["distributed", "central"])
@pytest.mark.parametrize("algorithm", ["fastlloyd", "glloyd", "lloyd"])
def test_a_short_step_ends_the_run_for_everybody(trust: str, algorithm: str) -> None:
    federation = finished(trust=trust, algorithm=algorithm)
    assert federation.strategy is not None
    server = federation.strategy.run
    assert server.attempts == ((1, 0),)
    assert server.clusters is not None
    for client in federation.clients.values():
        assert client.cluster_centers_ is not None
    assert all(
        federation.attempts_in_ledger(node) == [(1, 0)] for node in federation.clients
    )


def test_ledger_and_report_say_the_price_of_all_planned_rounds() -> None:
    federation = finished()
    report = federation.clients[VICTIM].privacy_
    assert report is not None
    plan, ledger = federation.plan, federation.ledgers[VICTIM]
    assert charged_epsilon(ledger, "rows", "record") == pytest.approx(worst_case(plan))
    cost = ledger.past("rows", "record").cost
    assert cost.mu == pytest.approx(worst_cost(plan).mu)
    assert cost.own_delta == pytest.approx(worst_cost(plan).own_delta)
    assert report.epsilon == plan.epsilon
    # What the one release costs stands in its line.
    assert report.releases[-1].epsilon_so_far < 0.6 * report.epsilon
    (sentence,) = [
        one for one in report.assumptions if one.startswith("Rounds end once")
    ]
    assert "1 of 6 planned rounds were released" in sentence
    assert "[C14]" in sentence


def test_the_noise_of_planned_rounds_is_what_it_is_without_a_tolerance() -> None:
    def rounds(tolerance: float | None) -> Plan:
        federation = make_federation(grid_parts(SIZES))
        federation.start(**settings(tolerance=tolerance, algorithm="fastlloyd"))
        return federation.plan

    with_one, without = rounds(0.5), rounds(None)
    assert with_one.rounds == without.rounds
    assert with_one.epsilon == without.epsilon


def test_steps_that_stay_longer_change_nothing() -> None:
    federation = finished(tolerance=1e-9)
    assert federation.attempts_in_ledger(VICTIM) == [
        (index, 0) for index in range(1, 7)
    ]


def test_an_evaluation_still_closes_the_run() -> None:
    federation = finished(evaluation="private")
    assert federation.attempts_in_ledger(VICTIM) == [(1, 0), (7, 0)]
    assert federation.clients[VICTIM].evaluation_ is not None


def test_recovered_sums_leave_rounds_out_too() -> None:
    federation = make_federation(grid_parts((60,) * 7))
    federation.start(**settings(dropout="recover", evaluation="private"))
    assert federation.attempts_in_ledger(VICTIM) == [(1, 0), (7, 0)]


def test_a_server_that_goes_on_by_itself_ends_as_well() -> None:
    points = np.concatenate(grid_parts(SIZES))[:50]
    federation = make_federation(grid_parts(SIZES))
    run = small_config(
        **settings(
            algorithm="feddp_kmeans", n_examples=None, max_iter=4, random_state=0
        )
    )
    federation.strategy = PrivateKMeans.from_config(
        run, server_points=points, on_step=lambda _: None
    )
    with federation.grid.running():
        federation.strategy.start(federation.grid)
    assert federation.attempts_in_ledger(VICTIM) == [(1, 0), (2, 0), (3, 0), (4, 0)]
    assert federation.clients[VICTIM].cluster_centers_ is not None


@pytest.mark.parametrize(("algorithm", "following"), [("glloyd", 2), ("lloyd", 7)])
def test_clusters_that_are_all_lost_in_noise_are_not_settled(
    algorithm: str, following: int
) -> None:
    """FedDP-KMeans leaves them where they are, as does a wall of the box."""
    plan = finished(algorithm=algorithm).plan
    still, moved = (
        State({}, movements=(0.5, last)).frozen() for last in (0.0, 2.0**-16)
    )
    assert plan.round_after(1, still) == following
    assert plan.round_after(1, moved) == 7


# -- a server that does something else -------------------------------------------------


def moving(tolerance: float) -> Any:
    return hostile(trust="distributed", max_iter=4, tolerance=tolerance)


def test_a_server_that_goes_on_is_refused() -> None:
    with moving(LONG) as server:
        server.agree()
        server.complete(server.request(1))
        assert server.run.due is Stage.FINISH
        # It asks for one more.
        server.run.due, server.run._to_open = Stage.SUM, 2
        more = server.request(2)
        server.require_refused(more[VICTIM], "by what was released round 5 follows")


def test_a_server_that_stops_or_leaves_out_too_early_is_refused() -> None:
    with moving(1e-9) as server:
        server.agree()
        server.complete(server.request(1))
        server.require_refused(
            finish_content(server), "round 2 follows", message_type="evaluate"
        )
        asked = server.request(2)
        server.require_refused(
            changed(asked[VICTIM], header={"round": 4}), "out of order"
        )
        server.complete(asked)


def test_a_jump_to_the_closing_round_is_refused_while_steps_are_long() -> None:
    with hostile(
        trust="distributed", max_iter=4, tolerance=1e-9, evaluation="private"
    ) as server:
        server.agree()
        server.complete(server.request(1))
        asked = server.request(2)
        server.require_refused(
            changed(asked[VICTIM], header={"round": 5}), "round 2 follows"
        )
        server.complete(asked)


def test_oblivious_refuses_a_tolerance() -> None:
    with pytest.raises(ConfigurationError, match="under trust 'oblivious' the server"):
        finished(trust="oblivious")


class LateServer(PrivateKMeans):
    """Goes on where its plan says that the run ends."""

    def aggregate_train(self, server_round: int, replies: Any) -> Any:
        if self.run.plan.is_final:
            self.run.plan = wrong_plan(
                self.run.plan, round_after=lambda _, index, state: index + 1
            )
        return super().aggregate_train(server_round, replies)


def test_a_server_with_another_rule_stops_nobody_but_itself() -> None:
    federation = make_federation(grid_parts(SIZES))
    federation.strategy_class = LateServer
    with pytest.raises(CohortError, match="did not answer round 2"):
        federation.start(**settings(max_retries=0))
