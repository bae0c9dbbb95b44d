"""Recovered sums by hand: whose noise is counted on, and what a client receives and
sends besides vectors.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from flwr_dpkmeans.errors import ConfigurationError
from flwr_dpkmeans.options import parse_config
from flwr_dpkmeans.sums.aggregation import AGGREGATORS
from flwr_dpkmeans.sums.settings import Dropout

RECOVERED = AGGREGATORS["recover"]
# Six clients share three keys with all five others; whoever adds up may lose one of
# them.
PLAN: Any = SimpleNamespace(
    n_clients=6, max_silent=1, min_cohort=2, slots=SimpleNamespace(number=3)
)


def test_bytes_of_key_shares_tickets_and_survivors() -> None:
    """A box: who, its length, 28 of encryption, 3 x 3 words of 32."""
    boxes = 5 * (12 + 28 + 288)
    for n_sums in (1, 4):
        down, up = RECOVERED.bytes_besides(PLAN, n_sums)
        assert down == boxes + n_sums * (2 * 6 * 8 + 100)
        assert up == boxes + 250 + 2 * 96 + n_sums * (
            5 * (12 + 32) + 5 * (12 + 96) + 80
        )


def test_recovery_takes_masks() -> None:
    """Masks that are off stay off in a large cohort, and asking for both is refused."""
    given: dict[str, Any] = {
        "n_clusters": 2,
        "bounds": ((-1.0,), (1.0,)),
        "masking": False,
    }
    assert parse_config(**given).settings.dropout_of(101) is Dropout.RETRY
    assert (
        parse_config(**given | {"masking": True}).settings.dropout_of(101)
        is Dropout.RECOVER
    )
    with pytest.raises(ConfigurationError, match="but dropout is 'recover'"):
        parse_config(**given, dropout="recover")


@pytest.mark.parametrize(
    ("n_clients", "max_silent", "chance"), [(6, 1, False), (200, 25, True)]
)
def test_where_not_everybody_holds_shares_the_report_says_what_is_left_to_chance(
    n_clients: int, max_silent: int, chance: bool
) -> None:
    """Of 200 the sum of 117 can be opened, of whom 25 may help the server."""
    plan: Any = SimpleNamespace(n_clients=n_clients, max_silent=max_silent)
    (said,) = RECOVERED.assumptions(plan)
    assert ("a chance of at most 2^-40" in said) is chance
    assert (" 92 " in said) is chance
    assert AGGREGATORS["retry"].assumptions(plan) == ()
