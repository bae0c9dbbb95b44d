"""Slips in drawing noise and in dividing it into shares: patches of the real code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from flwr_dpkmeans.privacy import release as mechanisms
from flwr_dpkmeans.privacy.noise import NoiseSource, SecureNoise, SeededNoise
from flwr_dpkmeans.privacy.release import Block, NoiseShape
from flwr_dpkmeans.secagg.ring import FixedPointVector
from flwr_dpkmeans.sums.plan import make_noise_source
from flwr_dpkmeans.sums.trust import Distributed, Shares
from support.watching import Call, watch
from support.wrong_trust import plant_noise, plant_trust

Array = NDArray[np.float64]
Words = NDArray[np.uint64]


def _weaker(blocks: Sequence[Block], factor: float) -> list[Block]:
    return [
        replace(block, noise_multiplier=block.noise_multiplier * factor)
        for block in blocks
    ]


def half_the_noise_of_the_server(patch: pytest.MonkeyPatch) -> None:
    def draw(blocks: Sequence[Block], *args: Any, **kwargs: Any) -> Words:
        return mechanisms.draw_noise(_weaker(blocks, 0.5), *args, **kwargs)

    plant_noise(patch, draw)


def half_the_noise_of_the_shares(patch: pytest.MonkeyPatch) -> None:
    def draw(*args: Any, share: float = 2.0, **kwargs: Any) -> Words:
        return mechanisms.draw_noise(*args, share=share / 2, **kwargs)

    plant_noise(patch, draw)


def noise_drawn_once_and_kept(patch: pytest.MonkeyPatch) -> None:
    kept = lru_cache(mechanisms.draw_noise)
    plant_noise(
        patch, lambda blocks, *args, **kwargs: kept(tuple(blocks), *args, **kwargs)
    )


def one_stream_for_all_arrays(patch: pytest.MonkeyPatch) -> None:
    """Every array's noise begins with the same draws, in its own scale."""

    def draw(
        blocks: Sequence[Block], source: Any, fraction_bits: int, **kwargs: Any
    ) -> Words:
        largest = max(blocks, key=lambda block: block.size)
        if largest.noise is NoiseShape.NONE:
            return mechanisms.draw_noise(blocks, source, fraction_bits, **kwargs)
        drawn = mechanisms.draw_noise([largest], source, fraction_bits, **kwargs).view(
            np.int64
        )
        parts = [
            np.rint(drawn[: block.size] * (block.noise_scale / largest.noise_scale))
            for block in blocks
        ]
        return np.concatenate(parts).astype(np.int64).view(np.uint64)

    plant_noise(patch, draw)


def plant_source(patch: pytest.MonkeyPatch, source: Callable[[], NoiseSource]) -> None:
    """Let ``source()`` give the server and the clients their noise."""

    def draw(blocks: Sequence[Block], _: Any, *args: Any, **kwargs: Any) -> Words:
        return mechanisms.draw_noise(blocks, source(), *args, **kwargs)

    plant_noise(patch, draw)


def noise_from_a_seed(patch: pytest.MonkeyPatch) -> None:
    """Which is in the plan, so that everybody knows it."""
    plant_source(patch, lambda: SeededNoise(np.random.default_rng(5)))


def triangle_noised_twice_and_averaged(patch: pytest.MonkeyPatch) -> None:
    """As if each triangle of the symmetric matrix had its own noise, and the mean of
    both were taken.
    """

    def draw(blocks: Sequence[Block], *args: Any, **kwargs: Any) -> Words:
        one = mechanisms.draw_noise(blocks, *args, **kwargs).view(np.int64)
        if blocks[0].name not in ("outer_product", "unit_outer_product"):
            return one.view(np.uint64)
        other = mechanisms.draw_noise(blocks, *args, **kwargs).view(np.int64)
        d = int(np.sqrt(2 * len(one)))
        rows, columns = np.triu_indices(d)
        return np.where(rows == columns, one, (one + other) // 2).view(np.uint64)

    plant_noise(patch, draw)


class WrongShares(Distributed):
    """Each client's share has the part of the deviation that `part_of` says."""

    def __init__(self, part_of: Callable[[Shares], float]) -> None:
        self.part_of = part_of

    def contribute(
        self,
        vector: FixedPointVector,
        blocks: Sequence[Block],
        fraction_bits: int,
        shares: Shares,
        source: NoiseSource,
    ) -> FixedPointVector:
        part = self.part_of(shares)
        noise = self.draw(blocks, source, fraction_bits, share=part)
        return FixedPointVector(vector.values + noise)


def shares_of_variance_over_the_square(patch: pytest.MonkeyPatch) -> None:
    """sigma / M instead of sigma / sqrt(M - t)."""
    plant_trust(patch, WrongShares(lambda shares: 1.0 / shares.n_clients))


def silent_clients_not_subtracted(patch: pytest.MonkeyPatch) -> None:
    plant_trust(patch, WrongShares(lambda shares: shares.n_clients**-0.5))


def shares_for_the_first_cohort(patch: pytest.MonkeyPatch) -> None:
    """After a dropout fewer clients add shares that are as small as before."""
    first: list[float] = []

    def part_of(shares: Shares) -> float:
        first.append(shares.factor)
        return first[0]

    plant_trust(patch, WrongShares(part_of))


def variance_for_the_deviation(patch: pytest.MonkeyPatch) -> None:
    """The multiplier's square root is drawn."""

    def draw(blocks: Sequence[Block], *args: Any, **kwargs: Any) -> Words:
        wrong = [
            replace(block, noise_multiplier=block.noise_multiplier**0.5)
            for block in blocks
        ]
        return mechanisms.draw_noise(wrong, *args, **kwargs)

    plant_noise(patch, draw)


class RoundedNoise(SecureNoise):
    """Rounded floats for integers."""

    def discrete_gaussian(self, std: float, size: int) -> NDArray[np.int64]:
        generator = np.random.default_rng()
        return np.rint(generator.normal(0.0, std, size)).astype(np.int64)


def noise_of_an_attempt_used_again(patch: pytest.MonkeyPatch) -> None:
    """A client keeps its share by round, for the sake of a retry."""
    kept: dict[tuple[int, int, int], Words] = {}
    now: list[tuple[int, int, int]] = []

    def remember(call: Call) -> None:
        purpose = call.arguments["purpose"]
        if purpose[0] == "client":
            now[:] = [(call.arguments["plan"].run_id, *purpose[1:3])]

    class Sparing(Distributed):
        def contribute(self, vector: Any, *args: Any) -> Any:
            noised = super().contribute(vector, *args)
            share = kept.setdefault(now[0], noised.values - vector.values)
            return replace(noised, values=vector.values + share)

    watch(make_noise_source, begin=remember)
    plant_trust(patch, Sparing())
