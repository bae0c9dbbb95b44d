"""Flower's hooks, called too early, say what is missing.

And what each round tells Flower, number by number.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from flwr.app import ArrayRecord, ConfigRecord, Message
from support.messages import Stage, stage_of
from support.protocol_federation import (
    Federation,
    grid_parts,
    make_federation,
    small_config,
)
from support.wrong_trust import watch_noise

from flwr_dpkmeans.errors import CohortError
from flwr_dpkmeans.flower.messages.message_records import RECORD

NOTHING: tuple[ArrayRecord, ConfigRecord] = (ArrayRecord(), ConfigRecord())


def stopped_at(stage: str) -> Federation:
    """A run that nobody answers from a stage on."""
    federation = make_federation(grid_parts([40, 40, 40]))

    def heard(message: Message) -> bool:
        return (
            json.loads(str(message.content.config_records[RECORD]["header"]))["stage"]
            != stage
        )

    federation.faults.on_request = heard
    with pytest.raises(CohortError):
        federation.start(algorithm="fastlloyd")
    return federation


@pytest.mark.parametrize("stage", ["keys", "sum"])
def test_whatever_hook_is_called_it_asks_for_what_is_due(
    stage: str,
) -> None:
    """Flower's order of hooks decides nothing."""
    federation = stopped_at(stage)
    assert federation.strategy is not None
    for hook in (
        federation.strategy.configure_train,
        federation.strategy.configure_evaluate,
    ):
        with federation.grid.running():
            asked: Any = hook(1, *NOTHING, federation.grid)
        assert {stage_of(message.content) for message in asked} == {Stage(stage)}
        assert len({message.metadata.dst_node_id for message in asked}) == 3


@pytest.mark.parametrize("trust", ["central", "oblivious"])
def test_metrics_of_a_round_are_those_of_its_step(trust: str) -> None:
    federation = make_federation(grid_parts([60, 60, 60]))
    result = federation.start(
        small_config(algorithm="fastlloyd", trust=trust, max_iter=2)
    )
    assert (
        [step.round_index for step in result.steps]
        == sorted(result.train_metrics_clientapp)
        == [1, 2]
    )
    for step in result.steps:
        expected: dict[str, Any] = {
            "epsilon": step.epsilon,
            "n-clients": 3,
            "attempt": 0,
        }
        expected |= {f"noise-{name}": scale for name, scale in step.noise_scales}
        assert step.radius is not None
        assert (step.movement is not None) is (trust == "central")
        expected |= {"radius": step.radius} | (
            {"movement": step.movement} if trust == "central" else {}
        )
        assert dict(result.train_metrics_clientapp[step.round_index]) == expected
    blocks = federation.plan.rounds[0].blocks
    assert result.steps[0].noise_scales == tuple(
        (block.name, block.noise_scale) for block in blocks
    )


def test_an_algorithm_without_a_radius_tells_none() -> None:
    result = make_federation(grid_parts([60, 60, 60])).start(
        algorithm="glloyd", max_iter=1, trust="central"
    )
    assert "radius" not in result.train_metrics_clientapp[1]
    assert "movement" in result.train_metrics_clientapp[1]


def test_noise_shares_go_on_counting_on_as_many_after_a_loss() -> None:
    """After a loss five are asked, and t of the six that shared keys may go."""
    federation = make_federation(grid_parts([40] * 6))
    factors: list[float] = []

    watch_noise(lambda _, share: factors.append(share))
    silent: set[int] = set()

    def heard(message: Message) -> bool:
        if message.metadata.dst_node_id == 4 and len(factors) >= 6:
            silent.add(4)
        return message.metadata.dst_node_id not in silent

    federation.faults.on_request = heard
    result = federation.start(
        algorithm="glloyd", trust="distributed", max_iter=3, max_silent=1,
        dropout="recover",
    )  # fmt: skip
    assert silent == {4}
    assert len(result.node_ids) == 5
    assert factors == [0.5] * (6 + 5 + 5)
