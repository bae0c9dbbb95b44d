"""Checks of parameters that several data modules share."""

from __future__ import annotations

import numpy as np

from flwr_dpkmeans.errors import ConfigurationError


def check_integer(name: str, value: object, smallest: int, largest: int | None = None) -> None:
    """Refuse what is no integer in the range; `name` is what the caller knows it by."""
    is_integer = isinstance(value, int | np.integer) and not isinstance(value, bool)
    number = int(value) if isinstance(value, int | np.integer) else 0
    if not is_integer or number < smallest or (largest is not None and number > largest):
        bound = f"at least {smallest}" if largest is None else f"from {smallest} to {largest}"
        raise ConfigurationError(
            f"{name} is {value!r}, but it must be an integer {bound}: give for example {smallest}."
        )


def check_generator(rng: object) -> None:
    """Refuse what is no numpy generator, such as a seed."""
    if not isinstance(rng, np.random.Generator):
        raise ConfigurationError(
            f"rng is of type {type(rng).__name__}, but it must be a numpy generator: give numpy.random.default_rng(0)."
        )
