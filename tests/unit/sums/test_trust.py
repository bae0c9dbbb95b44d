"""Shares of noise by hand: how many are counted on, how large one is, and what the
report says of them.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from flwr_dpkmeans.errors import PlanError
from flwr_dpkmeans.privacy.noise import SeededNoise
from flwr_dpkmeans.privacy.release import (
    Block,
    NoiseShape,
    Norm,
    PrivacyUnit,
    Sensitivity,
)
from flwr_dpkmeans.secagg.ring import AggregateVector, FixedPointVector
from flwr_dpkmeans.sums.trust import Central, Shares, trust_model


@pytest.mark.parametrize(
    ("n_clients", "max_silent", "max_lost", "n_honest"),
    [
        (2, 0, 0, 1),  # whoever looks knows its own share
        (2, 1, 0, 1),
        (3, 2, 0, 1),
        (5, 1, 0, 4),
        (10, 3, 2, 5),
        (4, 1, 2, 1),
    ],
)
def test_shares_that_are_counted_on(
    n_clients: int, max_silent: int, max_lost: int, n_honest: int
) -> None:
    assert Shares(n_clients, max_silent, max_lost).n_honest == n_honest


@pytest.mark.parametrize(
    ("n_clients", "max_silent", "max_lost"),
    [(1, 0, 0), (2, 2, 0), (3, 1, 2), (5, 9, 0)],
)
def test_nobody_honest_is_refused(
    n_clients: int, max_silent: int, max_lost: int
) -> None:
    with pytest.raises(
        PlanError, match=f"max_silent is {max_silent}, but only {n_clients} clients"
    ):
        _ = Shares(n_clients, max_silent, max_lost).n_honest


def test_a_share_and_all_of_them_together() -> None:
    assert Shares(5, 1).factor == 0.5
    assert Shares(10, 1).excess == pytest.approx((10 / 9) ** 0.5)
    for n_clients in range(2, 60):
        shares = Shares(n_clients, 1)
        # Rounded up, and by no more than the last digits.
        assert (
            1
            <= shares.n_honest * Fraction(shares.factor) ** 2
            < 1 + Fraction(1, 10**14)
        )


@pytest.mark.parametrize(
    ("least", "n_clients", "max_silent", "smallest"),
    [
        (2, 10, 0, 9), (2, 10, 1, 9), (2, 10, 2, 8), (8, 10, 2, 8), (9, 10, 2, 9),
        (2, 3, 2, 2),
    ],
)  # fmt: skip
def test_no_share_that_is_counted_on_may_be_missing(
    least: int, n_clients: int, max_silent: int, smallest: int
) -> None:
    assert (
        trust_model("distributed").smallest_cohort(least, n_clients, max_silent)
        == smallest
    )
    assert trust_model("central").smallest_cohort(least, n_clients, max_silent) == least


@pytest.mark.parametrize("name", ["oblivious", "central", "curator", "distributed"])
def test_each_sum_gets_noise_once(name: str) -> None:
    """From the server, or in shares from the clients."""
    model, shares, bits = trust_model(name), Shares(5, 1), 16
    one = Sensitivity(Norm.L2, 1.0, PrivacyUnit.RECORD, "one row is one row")
    block = Block("rows", (40,), one, NoiseShape.GAUSSIAN, 3.0, 1.0)
    exact = np.full(40, 7 << bits, dtype=np.uint64)
    source = SeededNoise(np.random.default_rng(5))
    sent = model.contribute(
        FixedPointVector(exact.copy()), (block,), bits, shares, source
    ).values
    aggregate = AggregateVector(exact.copy(), blinded=name == "oblivious")
    broadcast = model.broadcast(
        aggregate, (block,), bits, SeededNoise(np.random.default_rng(5))
    )
    split = name == "distributed"
    assert np.array_equal(sent, exact) is not split
    assert np.array_equal(broadcast.values, exact) is split
    # A share has half the planned scale, as four of five are counted on.
    drawn = np.random.default_rng(5).normal(
        0.0, (1.5 if split else 3.0) * 2.0**bits, 40
    )
    noised = (sent if split else broadcast.values).view(np.int64)
    assert np.array_equal(noised - (7 << bits), np.rint(drawn))
    assert (broadcast.released is None) is (name == "oblivious")
    if broadcast.released is not None:
        assert np.array_equal(
            broadcast.released["rows"], broadcast.values.view(np.int64) / 2.0**bits
        )
    readable = model.read(
        AggregateVector(broadcast.values, blinded=False), (block,), bits
    )
    assert np.array_equal(readable["rows"], broadcast.values.view(np.int64) / 2.0**bits)
    with pytest.raises(PlanError, match="a blinded sum cannot be read"):
        model.read(AggregateVector(broadcast.values, blinded=True), (block,), bits)


def test_a_sum_that_the_server_could_read_gets_no_noise_that_it_knows() -> None:
    readable = AggregateVector(np.zeros(1, dtype=np.uint64), blinded=False)
    with pytest.raises(PlanError, match="a readable sum reached the server under"):
        trust_model("oblivious").broadcast(
            readable, (), 16, SeededNoise(np.random.default_rng(5))
        )


@pytest.mark.parametrize(
    ("proofs", "guarantee"), [("", "so"), (" ", "so"), ("page", ""), ("page", " ")]
)
def test_a_model_says_what_it_guarantees_and_where_that_is_proved(
    proofs: str, guarantee: str
) -> None:
    class Silent(Central):
        name = "silent"

        def guarantee(self, shares: Shares) -> str:
            return guarantee

    Silent.proofs = proofs
    with pytest.raises(PlanError, match="'silent' does not say what it guarantees"):
        Silent().require_stated(Shares(3, 0))
    trust_model("central").require_stated(Shares(3, 0))
