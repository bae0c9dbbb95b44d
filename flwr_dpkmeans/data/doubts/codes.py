"""Texts that are codes, and numbers that count up."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.data.doubts.whole_numbers import are_different, is_whole

_CODE = re.compile(r"0\d+")


def are_codes(cells: Sequence[str]) -> bool:
    """Whether texts are codes of digits, some of which begin with 0."""
    if not any(map(_CODE.fullmatch, cells)):
        return False
    return all(map(str.isdecimal, cells))


def counts_up(numbers: NDArray[np.float64]) -> bool:
    """Whether whole numbers, (n,), have no gap and none of them occurs twice."""
    n_numbers = len(numbers)
    if n_numbers == 0 or not is_whole(numbers):
        return False
    n_steps = n_numbers - 1
    if np.ptp(numbers) != n_steps:
        return False
    return are_different(numbers)
