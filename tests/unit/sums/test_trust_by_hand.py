"""Shares of noise by hand: how many are counted on, how large one is, and what the report says of them."""

from __future__ import annotations

from fractions import Fraction

import pytest

from flwr_dpkmeans.errors import PlanError
from flwr_dpkmeans.sums.trust import Shares, trust_model


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
def test_shares_that_are_counted_on(n_clients: int, max_silent: int, max_lost: int, n_honest: int) -> None:
    assert Shares(n_clients, max_silent, max_lost).n_honest == n_honest


@pytest.mark.parametrize(("n_clients", "max_silent", "max_lost"), [(1, 0, 0), (2, 2, 0), (3, 1, 2), (5, 9, 0)])
def test_nobody_honest_is_refused(n_clients: int, max_silent: int, max_lost: int) -> None:
    with pytest.raises(PlanError, match=f"max_silent is {max_silent}, but only {n_clients} clients"):
        _ = Shares(n_clients, max_silent, max_lost).n_honest


def test_a_share_and_all_of_them_together() -> None:
    assert Shares(5, 1).factor == 0.5
    assert Shares(10, 1).excess == pytest.approx((10 / 9) ** 0.5)
    for n_clients in range(2, 60):
        shares = Shares(n_clients, 1)
        # Rounded up, and by no more than the last digits.
        assert 1 <= shares.n_honest * Fraction(shares.factor) ** 2 < 1 + Fraction(1, 10**14)


def test_the_report_speaks_of_lost_shares_where_some_may_be_lost() -> None:
    said = trust_model("distributed").guarantee
    assert said(Shares(9, 2)).endswith("up to 2 of 9 clients: their shares are not counted on.")
    assert said(Shares(9, 2, 3)).endswith(
        "not counted on, nor are those of 3 more that may be lost or left out of a sum."
    )
