"""Where noise is added, and what is readable afterwards: the only maker of both."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from types import MappingProxyType
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.errors import LocalMisuseError, PlanError
from flwr_dpkmeans.privacy.noise import NoiseSource
from flwr_dpkmeans.privacy.release.block import Block, NoiseShape, vector_length


def draw_noise(
    blocks: Sequence[Block],
    source: NoiseSource,
    fraction_bits: int,
    *,
    share: float = 1.0,
) -> NDArray[np.uint64]:
    """Draw fresh noise for one release.

    Parameters
    ----------
    blocks : sequence of Block
        What is released.
    source : NoiseSource
        Where the noise comes from.
    fraction_bits : int
        Fractional bits of the grid.
    share : float
        A factor on the standard deviation where each client adds a share; Laplace noise
        cannot be split.

    Returns
    -------
    array of shape (vector_length(blocks),)
        Elements of the ring, blocks laid end to end.
    """
    steps_per_unit = 2.0**fraction_bits
    parts = []
    for block in blocks:
        # Not below the exact product, in grid steps: that much noise is priced.
        scale = product_at_least(
            block.noise_multiplier, block.sensitivity.bound, share, steps_per_unit
        )
        if block.noise is NoiseShape.NONE:
            parts.append(np.zeros(block.size, dtype=np.int64))
        elif block.noise is NoiseShape.GAUSSIAN:
            parts.append(source.discrete_gaussian(scale, block.size))
        elif share == 1.0:
            parts.append(source.discrete_laplace(scale, block.size))
        else:
            raise PlanError(
                f"{block.name!r} has Laplace noise, which cannot be split into shares:"
                " use Gaussian noise or the trust model 'oblivious'."
            )
    return np.concatenate(parts).view(np.uint64)


@lru_cache(maxsize=256)
def product_at_least(*factors: float) -> float:
    """Return the smallest float that is not below the exact product."""
    exact = math.prod([Fraction(factor) for factor in factors])
    # Correctly rounded, so perhaps down.
    product = float(exact)
    if Fraction(product) >= exact:
        return product
    return math.nextafter(product, math.inf)


_MAKER = object()


class ReleasedSum:
    """The only thing that `advance` may look at: a noised sum's arrays.

    `as_released` makes it, not a plain array.
    """

    def __init__(
        self,
        arrays: Mapping[str, NDArray[np.float64]],
        blocks: Sequence[Block],
        maker: object,
    ) -> None:
        if maker is not _MAKER:
            raise LocalMisuseError(
                "a ReleasedSum is made by the mechanism that adds the noise: call"
                " `as_released`."
            )
        self.arrays: Mapping[str, NDArray[np.float64]] = MappingProxyType(dict(arrays))
        self.blocks = tuple(blocks)
        """What the plan says of them, their noise above all."""

    def __getitem__(self, name: str) -> NDArray[np.float64]:
        return self.arrays[name]

    def __reduce__(self) -> NoReturn:
        raise LocalMisuseError(
            "a ReleasedSum cannot be pickled: send the noised vector instead."
        )


def as_released(
    values: NDArray[np.uint64], blocks: Sequence[Block], fraction_bits: int
) -> ReleasedSum:
    """Declare a readable vector noised as the plan says, and cut it into its arrays.

    Parameters
    ----------
    values : array of shape (vector_length(blocks),)
        Elements of the ring.
    blocks : sequence of Block
        What the plan says of their noise.
    fraction_bits : int
        Fractional bits of the grid.

    Raises
    ------
    PlanError
        If the vector's length is not the plan's.
    """
    length = vector_length(blocks)
    if values.shape != (length,):
        raise PlanError(
            f"a release has {values.size} entries, but the plan has {length}."
        )
    numbers = values.view(np.int64).astype(np.float64) / 2.0**fraction_bits
    arrays = {}
    start = 0
    for block in blocks:
        end = start + block.size
        arrays[block.name] = numbers[start:end].reshape(block.shape)
        start = end
    return ReleasedSum(arrays, blocks, _MAKER)
