"""How the budget is shared among the rounds, and bounds that an option gives."""

from __future__ import annotations

import math

from flwr_dpkmeans.errors import ConfigurationError
from flwr_dpkmeans.privacy.release import PrivacyUnit
from flwr_dpkmeans.sums.option_rules import real
from flwr_dpkmeans.sums.public_facts import PublicFacts

RULE_OF_THUMB = {
    PrivacyUnit.RECORD: (0.2, 0.2, 0.45, 0.15),
    PrivacyUnit.CLIENT: (0.35, 0.1, 0.45, 0.1),
}
"""Budget shares of outer product, weights, sums and counts (appendix H.1)."""


def require_shares(name: str, shares: object) -> None:
    """One sentence for budget shares that are not four positive numbers."""
    four = shares if isinstance(shares, tuple) and len(shares) == 4 else (None,)
    if not all(isinstance(share, float) and 0.0 < share < math.inf for share in four):
        raise ConfigurationError(
            f"{name} are {shares!r}, but they must be four positive numbers (outer"
            " product, weights, sums, counts): give (0.2, 0.2, 0.45, 0.15)."
        )


def clip_bound(example: str, about: str) -> float | None:
    """A clip bound that follows from server data unless it is given."""
    bound: float | None = real(
        None,
        0.0,
        math.inf,
        example,
        f"{about}, in the caller's units; automatic: from server data",
    )
    return bound


def sums_bound_option() -> float | None:
    """Declare the clip bound of a Lloyd round's sums."""
    return clip_bound("400.0", "norm of a client's cluster sums")


def counts_bound_option() -> float | None:
    """Declare the clip bound of a Lloyd round's counts."""
    return clip_bound("30.0", "norm of a client's rows by cluster")


def budget_shares(public: PublicFacts) -> tuple[float, ...]:
    """Shares as configured, or the paper's rule of thumb for the unit."""
    shares: tuple[float, ...] | None = public.options.budget_shares
    return shares or RULE_OF_THUMB[public.settings.unit]
