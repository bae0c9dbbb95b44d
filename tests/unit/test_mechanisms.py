"""Blocks, the noise that they ask for, and the type that only the mechanism can make."""

from __future__ import annotations

import copy
import math
import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter

from flwr_dpkmeans.errors import LocalMisuseError, PlanError
from flwr_dpkmeans.privacy.noise import (
    NoiseKind,
    discrete_gaussian_closeness,
    discrete_gaussian_sum_log_ratio,
    noise_source,
)
from flwr_dpkmeans.privacy.release import (
    Block,
    ExactRelease,
    GaussianRelease,
    LaplaceRelease,
    NoiseShape,
    Norm,
    PrivacyUnit,
    ReleasedSum,
    Sensitivity,
    as_released,
    draw_noise,
    vector_length,
)
from flwr_dpkmeans.secagg.keys import encode

BITS = 16


def block(
    name: str = "sums",
    shape: tuple[int, ...] = (2, 3),
    noise: NoiseShape = NoiseShape.GAUSSIAN,
    multiplier: float = 2.0,
    bound: float = 1.5,
    norm: Norm | None = None,
) -> Block:
    fitting = norm or (Norm.L1 if noise is NoiseShape.LAPLACE else Norm.L2)
    return Block(name, shape, Sensitivity(fitting, bound, PrivacyUnit.RECORD), noise, multiplier, 1.0)


# -- blocks -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("noise", "norm", "word"),
    [(NoiseShape.GAUSSIAN, Norm.L1, "gaussian"), (NoiseShape.LAPLACE, Norm.L2, "laplace")],
)
def test_noise_and_norm_must_fit(noise: NoiseShape, norm: Norm, word: str) -> None:
    with pytest.raises(PlanError, match=f"'sums' has {word} noise, but its sensitivity is in another norm"):
        block(noise=noise, norm=norm)


@pytest.mark.parametrize("noise", [NoiseShape.GAUSSIAN, NoiseShape.LAPLACE])
@pytest.mark.parametrize("multiplier", [0.0, -1.0, math.inf, math.nan])
def test_multiplier_must_be_positive_and_finite(noise: NoiseShape, multiplier: float) -> None:
    with pytest.raises(PlanError, match=f"noise multiplier {multiplier!r}, but it must be positive and finite"):
        block(noise=noise, multiplier=multiplier)


def test_without_noise_any_norm_and_no_multiplier_will_do() -> None:
    for norm in Norm:
        exact = block(noise=NoiseShape.NONE, norm=norm, multiplier=0.0)
        assert exact.noise_scale == 0.0
        assert exact.event(BITS) == ExactRelease("sums")


def test_scale_is_multiplier_times_sensitivity() -> None:
    assert block(multiplier=2.0, bound=1.5).noise_scale == 3.0
    assert block(shape=(4, 5)).size == 20
    assert block(shape=()).size == 1
    assert vector_length([block(shape=(2, 3)), block(shape=(2,)), block(shape=(0,))]) == 8


def test_what_a_block_remembers_is_no_part_of_it() -> None:
    """Its price is asked for again and again and kept; what is compared, hashed and sent stays the same."""
    used, fresh = block(multiplier=2.0, bound=1.5), block(multiplier=2.0, bound=1.5)
    wire = TypeAdapter(Block)
    assert used.event(BITS) is used.event(BITS)
    assert used.event(BITS) == fresh.event(BITS) != used.event(BITS - 1)
    assert used.event(0, 9) != used.event(0)
    assert replace(used, noise_multiplier=3.0).event(BITS) == block(multiplier=3.0, bound=1.5).event(BITS)
    assert replace(used, noise_multiplier=3.0).noise_scale == 4.5
    assert (used.size, used.noise_scale, used.sensitivity.proof) == (6, 3.0, fresh.sensitivity.proof)
    other = block(multiplier=2.0, bound=1.5)
    assert used == other
    assert hash(used) == hash(other)
    assert wire.dump_json(used) == wire.dump_json(other)


def test_events_carry_multiplier_and_closeness() -> None:
    event = block(shape=(2, 3), multiplier=2.0, bound=1.5).event(BITS)
    assert isinstance(event, GaussianRelease)
    assert event.noise_multiplier == 2.0
    assert event.closeness == discrete_gaussian_closeness(3.0 * 65536, 6)
    assert event.closeness.log_ratio_above == pytest.approx(6 / (24 * (3.0 * 65536) ** 2))
    assert 0.0 < event.closeness.additive < 1e-43
    shared = block(multiplier=2.0, bound=2.0**-16).event(BITS, n_shares=9)
    assert isinstance(shared, GaussianRelease)
    alone = block(multiplier=2.0, bound=2.0**-16).event(BITS)
    assert isinstance(alone, GaussianRelease)
    extra = discrete_gaussian_sum_log_ratio(2.0 / 3.0, 9, 6)
    assert shared.closeness == alone.closeness.widened(extra)
    assert shared.closeness.log_ratio_below > alone.closeness.log_ratio_below
    assert block(noise=NoiseShape.LAPLACE).event(BITS) == LaplaceRelease("sums", 2.0)


# -- noise --------------------------------------------------------------------------------------------------------

SOURCES = {"secure": noise_source(NoiseKind.SECURE), "seeded": noise_source(NoiseKind.SEEDED, 5)}


def signed(words: Any) -> Any:
    assert words.dtype == np.uint64
    return words.view(np.int64).astype(float) / 2.0**BITS


@pytest.mark.parametrize("kind", SOURCES)
def test_each_block_gets_its_own_scale(kind: str) -> None:
    size = 4000
    blocks = [
        block("a", (size,), NoiseShape.GAUSSIAN, 2.0, 1.5),
        block("b", (size // 2, 2), NoiseShape.NONE, 0.0),
        block("c", (size,), NoiseShape.LAPLACE, 4.0, 0.5),
        block("d", (size,), NoiseShape.GAUSSIAN, 10.0, 1.0),
    ]
    noise = signed(draw_noise(blocks, SOURCES[kind], BITS))
    a, b, c, d = np.split(noise, 4)
    assert not b.any()
    # Six standard errors of a standard deviation from 4000 draws: 7% (Gaussian), 11% (Laplace).
    assert a.std() == pytest.approx(3.0, rel=0.07)
    assert d.std() == pytest.approx(10.0, rel=0.07)
    assert c.std() == pytest.approx(math.sqrt(2.0) * 2.0, rel=0.11)
    assert abs(np.corrcoef(a, d)[0, 1]) < 0.1


@pytest.mark.parametrize("kind", SOURCES)
def test_shares_scale_the_standard_deviation(kind: str) -> None:
    noise = signed(draw_noise([block("a", (4000,), multiplier=2.0, bound=1.5)], SOURCES[kind], BITS, share=1 / 3))
    assert noise.std() == pytest.approx(1.0, rel=0.07)


@pytest.mark.parametrize("share", [0.5, 0.999, 2.0])
def test_laplace_noise_is_not_split_into_shares(share: float) -> None:
    with pytest.raises(PlanError, match="'sums' has Laplace noise, which cannot be split into shares: use Gaussian"):
        draw_noise([block(noise=NoiseShape.LAPLACE)], SOURCES["seeded"], BITS, share=share)
    assert draw_noise([block(noise=NoiseShape.LAPLACE)], SOURCES["seeded"], BITS, share=1.0).shape == (6,)


def test_noise_is_fresh_every_time() -> None:
    for source in SOURCES.values():
        first, second = (draw_noise([block(shape=(50,))], source, BITS) for _ in range(2))
        assert not np.array_equal(first, second)


# -- the released sum ---------------------------------------------------------------------------------------------


def a_release() -> ReleasedSum:
    blocks = (block("sums", (2, 2)), block("counts", (2,)))
    values = encode(np.array([1.0, -2.0, 0.5, 0.25, 7.0, -3.0])).values
    return as_released(values, blocks, BITS)


def test_release_cuts_the_vector_into_its_arrays() -> None:
    made = a_release()
    assert made["sums"].tolist() == [[1.0, -2.0], [0.5, 0.25]]
    assert made["counts"].tolist() == [7.0, -3.0]
    with pytest.raises(KeyError):
        made["other"]


def test_released_sum_cannot_be_built_from_an_array() -> None:
    with pytest.raises(LocalMisuseError, match="a ReleasedSum is made by the mechanism that adds the noise: call"):
        ReleasedSum({"sums": np.zeros(2)}, object())
    with pytest.raises(LocalMisuseError):
        ReleasedSum({"sums": np.zeros(2)}, None)
    with pytest.raises(TypeError):
        ReleasedSum({"sums": np.zeros(2)})  # type: ignore[call-arg]


def test_released_sum_cannot_be_pickled_or_copied() -> None:
    for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(LocalMisuseError, match="cannot be pickled: send the noised vector instead"):
            attempt(a_release())


def test_released_arrays_cannot_be_replaced() -> None:
    with pytest.raises(TypeError):
        a_release().arrays["sums"] = np.zeros(2)  # type: ignore[index]


@pytest.mark.parametrize("length", [0, 5, 7])
def test_release_of_another_length_is_refused(length: int) -> None:
    with pytest.raises(PlanError, match=f"a release has {length} entries, but the plan has 6"):
        as_released(np.zeros(length, dtype=np.uint64), [block(shape=(2, 3))], BITS)
