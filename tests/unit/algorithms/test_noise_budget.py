"""How a budget becomes noise: shares, families and orders by hand, and that the whole
costs what there is.
"""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from flwr_dpkmeans.algorithms.budget.count_norms import count_norm, count_order
from flwr_dpkmeans.algorithms.budget.noise_budget import allocate, divided, private_sums
from flwr_dpkmeans.algorithms.budget.noise_kinds import NoiseFamily, ReleasePart
from flwr_dpkmeans.algorithms.budget.noise_shares import shared
from flwr_dpkmeans.options import parse_config
from flwr_dpkmeans.privacy.accounting import compose_epsilon
from flwr_dpkmeans.privacy.calibration import gaussian_noise_multiplier
from flwr_dpkmeans.privacy.closeness import SAME
from flwr_dpkmeans.privacy.release import (
    NoiseShape,
    Norm,
    PrivacyUnit,
    Sensitivity,
    round_events,
    with_joint_pure_release,
)
from flwr_dpkmeans.sums.public_facts import PublicFacts
from flwr_dpkmeans.sums.round import PrivateSum

SUMS = ReleasePart(
    "sums", (3,), Sensitivity(Norm.L2, 1.0, PrivacyUnit.RECORD, "S1: sums"), 2.0, 1.5
)
COUNTS = ReleasePart(
    "counts", (3,), Sensitivity(Norm.L1, 1.0, PrivacyUnit.RECORD, "S2: counts", True),
    1.0, 1.0,
)  # fmt: skip

VOTES = ReleasePart(
    "votes", (3,), Sensitivity(Norm.L2, 1.0, PrivacyUnit.RECORD, "S2: votes", True),
    1.0, 1.0,
)  # fmt: skip


def known_of(n_declared: int | None = 1000, **values: Any) -> PublicFacts:
    settings: dict[str, Any] = {
        "algorithm": "feddp_kmeans",
        "trust": "central",
        "epsilon": 2.0,
    } | values
    config = parse_config(
        n_clusters=2, bounds=((-1.0,), (1.0,)), n_examples=n_declared, **settings
    )
    return PublicFacts(
        config=config, n_examples=1000, n_features=3, delta=1e-6,
        released_multiplier=None, released_closeness=SAME, fraction_bits=16,
    )  # fmt: skip


def test_a_share_is_divided_by_parts_and_costs_as_much_as_it_is() -> None:
    first, second = divided([SUMS, VOTES], 0.25, 3.0)
    # Two thirds of a quarter, and one third, of the squares' sum 1 / 3^2.
    assert (first.noise_multiplier, second.noise_multiplier) == pytest.approx(
        (3 / math.sqrt(1 / 6), 3 / math.sqrt(1 / 12))
    )
    assert (first.name, first.entry_bound, second.name, second.entry_bound) == (
        "sums", 1.5, "votes", 1.0,
    )  # fmt: skip
    assert {first.noise, second.noise} == {NoiseShape.GAUSSIAN}
    assert (first.shape, first.sensitivity) == (SUMS.shape, SUMS.sensitivity)


def test_shares_add_up_as_their_noise_does() -> None:
    assert shared((3.0, 4.0), 0.25, NoiseFamily.GAUSSIAN) == pytest.approx((0.3, 0.4))
    assert shared((1.0, 3.0), 0.5, NoiseFamily.PAPER) == pytest.approx((0.125, 0.375))


@pytest.mark.parametrize(
    ("values", "norm", "order"),
    [
        ({}, Norm.L2, 2),
        ({"noise_kind": "paper"}, Norm.L1, 1),
        ({"algorithm": "glloyd"}, Norm.L2, 2),
    ],
)
def test_counts_have_the_norm_of_their_noise(
    values: Any, norm: Norm, order: int
) -> None:
    config = known_of(**values).config
    assert (count_norm(config), count_order(config)) == (norm, order)


@pytest.mark.parametrize("kind", NoiseFamily)
@pytest.mark.parametrize("declared", [1000, None])
def test_all_rounds_together_cost_the_whole_budget(
    kind: NoiseFamily, declared: int | None
) -> None:
    """After a released count, pure releases are priced as one, which is dearer."""
    known = known_of(declared)
    found = allocate(known, [[SUMS, COUNTS], [COUNTS]], kind)
    assert [[block.noise for block in blocks] for blocks in found] == [
        [NoiseShape.GAUSSIAN, NoiseShape.LAPLACE], [NoiseShape.LAPLACE]
    ]  # fmt: skip
    events = [event for blocks in found for event in round_events(blocks, 16, 1, 1.0)]
    price = compose_epsilon(
        with_joint_pure_release(events) if declared is None else events, 1e-6
    )
    assert 1.999 < price <= 2.0
    sums, counts = found[0]
    if kind is NoiseFamily.GAUSSIAN:
        assert sums.noise_multiplier == pytest.approx(counts.noise_multiplier / 2.0)
    else:
        # Each is private by itself: twice the epsilon of a count's Laplace noise, at
        # the run's delta.
        assert sums.noise_multiplier == pytest.approx(
            gaussian_noise_multiplier(2.0 / counts.noise_multiplier, 1e-6)
        )
    assert found[1][0].noise_multiplier == counts.noise_multiplier


@pytest.mark.parametrize(
    ("kind", "given"), [(NoiseFamily.PAPER, "paper"), (NoiseFamily.GAUSSIAN, None)]
)
def test_rounds_get_the_noise_that_the_options_name_and_take_blocks(
    kind: NoiseFamily, given: str | None
) -> None:
    known = known_of(**({} if given is None else {"noise_kind": given}))
    step: Any = PrivateSum("one", (), SimpleNamespace(), SimpleNamespace())  # type: ignore[arg-type]
    (found,) = private_sums(known, [([SUMS], step)])
    assert (found.blocks,) == allocate(known, [[SUMS]], kind)
    assert (found.name, found.in_blocks) == ("one", True)
