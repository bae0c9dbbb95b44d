"""Which released sums no honest clients can have sent."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from support.drafts import draft_of

from flwr_dpkmeans.errors import ProtocolError
from flwr_dpkmeans.privacy.release import NoiseShape, ReleasedSum, as_released
from flwr_dpkmeans.sums.checks.plausible import require_plausible
from flwr_dpkmeans.sums.plan import Plan

N_CLIENTS = 4


plan_of = partial(
    draft_of, epsilon=5.0, trust="central", n_clients=N_CLIENTS, n_examples=300
)


def released(plan: Plan, index: int = 1, **entries: float) -> ReleasedSum:
    """A release of zeros, except for the first entry of the named arrays."""
    blocks = plan.round_at(index).blocks
    parts = []
    for block in blocks:
        values = np.zeros(block.size)
        values[0] = entries.get(block.name, 0.0)
        parts.append(np.rint(values * 2.0**16).astype(np.int64).view(np.uint64))
    return as_released(np.concatenate(parts), blocks, plan.fraction_bits)


def refused(
    plan: Plan, index: int = 1, n_clients: int = N_CLIENTS, **entries: float
) -> bool:
    try:
        require_plausible(plan, index, released(plan, index, **entries), n_clients)
    except ProtocolError:
        return True
    return False


def test_without_noise_the_bounds_are_sharp() -> None:
    plan = plan_of(algorithm="lloyd")
    assert plan.rounds[0].blocks[1].noise is NoiseShape.NONE
    # Twice the declared number of rows, as it may be rounded.
    assert not refused(plan, counts=600.0, sums=-600.0)
    assert refused(plan, counts=600.0 + 2.0**-16)
    assert refused(plan, sums=-600.0 - 2.0**-16)
    assert refused(plan, counts=-(2.0**-16))


def test_undeclared_rows_are_bounded_by_what_a_client_may_hold() -> None:
    plan = plan_of(n_examples=None, algorithm="lloyd")
    most = N_CLIENTS * 2.0**28
    assert not refused(plan, counts=most)
    assert refused(plan, counts=most + 1.0)
    assert refused(plan, n_clients=3, counts=most)


@pytest.mark.parametrize("trust", ["central", "distributed"])
@pytest.mark.parametrize("algorithm", ["fastlloyd", "glloyd", "sulloyd"])
def test_noise_has_room(algorithm: str, trust: str) -> None:
    if (algorithm, trust) == ("sulloyd", "distributed"):
        pytest.skip("Laplace noise has no shares")
    plan = plan_of(algorithm=algorithm, trust=trust)
    block = next(block for block in plan.rounds[0].blocks if block.name == "counts")
    std = plan.released_std(plan.rounds[0], block)
    assert not refused(plan, counts=-11.9 * std)
    assert not refused(plan, counts=600.0 + 11.9 * std)
    assert refused(plan, counts=-41.0 * std)
    assert refused(plan, counts=600.0 + 41.0 * std)


def test_fewer_clients_make_larger_shares() -> None:
    plan = plan_of(algorithm="glloyd", trust="distributed", max_silent=1)
    std = plan.rounds[0].blocks[1].noise_scale
    # Two shares of three honest ones' width, if nobody drops; each as wide as the whole
    # if only two are left.
    assert not refused(plan, n_clients=2, counts=-12.0 * std * 1.41)
    assert refused(plan, n_clients=2, counts=-12.0 * std * 1.42)


def test_a_private_count_bounds_the_rows_with_its_own_noise() -> None:
    plan = plan_of(
        n_examples=None, counted=500, algorithm="glloyd", trust="distributed"
    )
    assert refused(plan, counts=1e5)
    assert not refused(plan, counts=1000.0)
    assert not refused(plan, index=0, count=1e5)
    assert refused(plan, index=0, count=-1e5)


def test_clients_are_units_of_their_own() -> None:
    plan = plan_of(
        n_examples=None, algorithm="proxy_lloyd", unit="client", trust="distributed",
        epsilon=200.0,
    )  # fmt: skip
    block = plan.rounds[0].blocks[0]
    room = 12.0 * plan.released_std(plan.rounds[0], block)
    assert not refused(plan, **{block.name: N_CLIENTS * block.entry_bound + 0.9 * room})
    assert refused(plan, **{block.name: N_CLIENTS * block.entry_bound + 1.1 * room})


def test_the_sentence_names_array_and_bound_but_no_entry() -> None:
    plan = plan_of(algorithm="lloyd")
    with pytest.raises(ProtocolError) as caught:
        require_plausible(plan, 1, released(plan, counts=123456.0), N_CLIENTS)
    text = str(caught.value)
    assert "1 of 2 entries of 'counts' in round 1 lie outside 0 to 600" in text
    assert "123456" not in text
