"""Seeds as scikit-learn takes them."""

from __future__ import annotations

import numpy as np

_SEEDS = 2**31 - 1
"""Seeds below it are drawn from generators."""


Seed = int | np.random.RandomState | np.random.Generator | None
"""What scikit-learn takes for a random state."""


def seed_of(random_state: object) -> object:
    """Read a seed as scikit-learn takes it.

    Of a generator it is the next number, so that a second run has another.

    Examples
    --------
    >>> first, second = np.random.RandomState(0), np.random.RandomState(0)
    >>> seed_of(7), seed_of(first) == seed_of(second)
    (7, True)
    """
    if random_state is np.random:
        random_state = np.random.mtrand._rand
    if isinstance(random_state, np.random.RandomState):
        number = random_state.randint(_SEEDS)
        return int(number)
    if isinstance(random_state, np.random.Generator):
        drawn = random_state.integers(_SEEDS)
        return int(drawn)
    return random_state
