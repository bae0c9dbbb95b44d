"""Repeatable noise for experiments, which hides nothing."""

from __future__ import annotations

import numpy as np

from flwr_dpkmeans.privacy.exact_gaussian import Integers
from flwr_dpkmeans.privacy.noise.integer_noise import NoiseSource


class SeededNoise(NoiseSource):
    """Repeatable noise for experiments.

    It is NOT private: whoever knows the seed can take the noise away again.

    The Gaussians are close to discrete Gaussians in distribution but not exact.
    """

    def __init__(self, generator: np.random.Generator | int) -> None:
        self._seed = generator

    def _draw(
        self,
        family: str,
        scale: float,
        size: int,
    ) -> Integers:
        # From a seed it is made now, which takes longer than much of what clients do
        # that add no noise.
        generator = np.random.default_rng(self._seed)
        self._seed = generator
        if family == "gaussian":
            normal = generator.normal(0.0, scale, size)
            return np.rint(normal).astype(np.int64)
        success = -np.expm1(-1.0 / scale)
        positive = generator.geometric(success, size)
        negative = generator.geometric(success, size)
        return positive - negative
