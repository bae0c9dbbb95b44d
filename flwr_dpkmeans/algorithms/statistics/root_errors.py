"""The same of square roots."""

from __future__ import annotations

import numpy as np

from flwr_dpkmeans.sums.round import Array


def of_roots(roots: Array, errors: Array) -> Array:
    """Of square roots, by the errors of their squares."""
    squares = np.square(roots)
    above = np.sqrt(squares + errors) - roots
    below = roots - np.sqrt(np.maximum(squares - errors, 0.0))
    return np.maximum(above, below)
