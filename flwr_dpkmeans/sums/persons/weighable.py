"""What weights do not go together with."""

from __future__ import annotations

from flwr_dpkmeans.errors import ConfigurationError
from flwr_dpkmeans.privacy.release import PrivacyUnit


def require_weighable(
    max_weight: float, unit: PrivacyUnit, n_examples: int | None
) -> None:
    """Refuse weights where rows are not what counts, or a total is stated."""
    if not unit.by_row:
        raise ConfigurationError(
            f"max_weight is {max_weight:g}, but unit is {unit.value!r}, where a"
            " client's rows have no weights of their own: choose unit='record' or"
            " 'person', or leave it out."
        )
    if n_examples is not None:
        raise ConfigurationError(
            f"n_examples is {n_examples}, but rows have weights (max_weight"
            f" {max_weight:g}), of which a private count finds the total: leave"
            " n_examples out."
        )
