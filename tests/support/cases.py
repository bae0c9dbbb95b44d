"""Which of all combinations of some parameters' values a test tries."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

from flwr_dpkmeans.sums.trust import TRUST_MODELS

OF_PARTIES = tuple(name for name, trust in TRUST_MODELS.items() if not trust.alone)
"""Trust models of runs with several parties."""


def pairs(*values: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Some of all combinations, so that every value of one parameter meets every value
    of each other one.

    What goes wrong for a combination of three values, but for no two of them, is not
    found; in return three parameters of five values each take about 30 cases instead of
    125. Equal arguments give equal cases.

    Examples
    --------
    >>> pairs([1, 2], "ab", [True, False])
    [(1, 'a', True), (1, 'b', False), (2, 'a', False), (2, 'b', True)]
    """
    lists = [list(given) for given in values]
    rest = list(itertools.product(*[range(len(given)) for given in lists]))
    missing = {pair for case in rest for pair in _meetings(case)}
    chosen = []
    while missing:
        best = max(rest, key=lambda case: len(missing & _meetings(case)))
        missing -= _meetings(best)
        chosen.append(best)
    return [
        tuple(given[place] for given, place in zip(lists, case, strict=True))
        for case in sorted(chosen)
    ]


def _meetings(case: tuple[int, ...]) -> set[tuple[tuple[int, int], ...]]:
    """Each two of the case's values, by parameter and place."""
    return set(itertools.combinations(enumerate(case), 2))
