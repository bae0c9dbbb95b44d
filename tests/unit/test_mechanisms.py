"""Blocks, the noise that they ask for, and the type that the mechanism makes."""

from __future__ import annotations

import copy
import math
import pickle
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter

from flwr_dpkmeans.errors import LocalMisuseError, PlanError
from flwr_dpkmeans.privacy.closeness import (
    Closeness,
    discrete_gaussian_closeness,
    discrete_gaussian_sum_log_ratio,
    joint_closeness,
)
from flwr_dpkmeans.privacy.noise import NoiseKind, noise_source
from flwr_dpkmeans.privacy.release import (
    Block,
    ExactRelease,
    GaussianRelease,
    NoiseShape,
    Norm,
    PrivacyUnit,
    PureRelease,
    ReleasedSum,
    Sensitivity,
    as_released,
    dominating_release,
    draw_noise,
    product_at_least,
    round_events,
    theorem,
    vector_length,
    with_joint_pure_release,
)
from flwr_dpkmeans.secagg.ring import encode

BITS = 16


def block(
    name: str = "sums", shape: tuple[int, ...] = (2, 3),
    noise: NoiseShape = NoiseShape.GAUSSIAN, multiplier: float = 2.0,
    bound: float = 1.5, norm: Norm | None = None,
) -> Block:  # fmt: skip
    fitting = norm or (Norm.L1 if noise is NoiseShape.LAPLACE else Norm.L2)
    return Block(
        name, shape, Sensitivity(fitting, bound, PrivacyUnit.RECORD), noise, multiplier,
        1.0,
    )  # fmt: skip


# -- blocks ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("noise", "norm", "word"),
    [
        (NoiseShape.GAUSSIAN, Norm.L1, "gaussian"),
        (NoiseShape.LAPLACE, Norm.L2, "laplace"),
    ],
)
def test_noise_and_norm_must_fit(noise: NoiseShape, norm: Norm, word: str) -> None:
    with pytest.raises(
        PlanError,
        match=f"'sums' has {word} noise, but its sensitivity is in another norm",
    ):
        block(noise=noise, norm=norm)


@pytest.mark.parametrize("noise", [NoiseShape.GAUSSIAN, NoiseShape.LAPLACE])
@pytest.mark.parametrize("multiplier", [0.0, -1.0, math.inf, math.nan])
def test_multiplier_must_be_positive_and_finite(
    noise: NoiseShape, multiplier: float
) -> None:
    with pytest.raises(
        PlanError,
        match=f"noise multiplier {multiplier!r}, but it must be positive and finite",
    ):
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
    assert (
        vector_length([block(shape=(2, 3)), block(shape=(2,)), block(shape=(0,))]) == 8
    )


def test_what_a_block_remembers_is_no_part_of_it() -> None:
    """Its noise scale is kept; what is compared, hashed and sent stays the same."""
    used, fresh = block(multiplier=2.0, bound=1.5), block(multiplier=2.0, bound=1.5)
    wire = TypeAdapter(Block)
    assert used.event(BITS) == fresh.event(BITS) != used.event(BITS - 1)
    assert used.event(0, 9) != used.event(0)
    assert replace(used, noise_multiplier=3.0).event(BITS) == block(
        multiplier=3.0, bound=1.5
    ).event(BITS)
    assert replace(used, noise_multiplier=3.0).noise_scale == 4.5
    assert (used.size, used.noise_scale, used.sensitivity.proof) == (
        6,
        3.0,
        fresh.sensitivity.proof,
    )
    other = block(multiplier=2.0, bound=1.5)
    assert used == other
    assert hash(used) == hash(other)
    assert wire.dump_json(used) == wire.dump_json(other)


def test_events_carry_multiplier_and_closeness() -> None:
    event = block(shape=(2, 3), multiplier=2.0, bound=1.5).event(BITS)
    assert isinstance(event, GaussianRelease)
    assert event.noise_multiplier == 2.0
    assert event.closeness == discrete_gaussian_closeness(3.0 * 65536, 6)
    assert event.closeness.log_ratio_above == pytest.approx(
        6 / (24 * (3.0 * 65536) ** 2)
    )
    assert 0.0 < event.closeness.additive < 1e-43
    shared = block(multiplier=2.0, bound=2.0**-16).event(BITS, n_shares=9)
    assert isinstance(shared, GaussianRelease)
    alone = block(multiplier=2.0, bound=2.0**-16).event(BITS)
    assert isinstance(alone, GaussianRelease)
    extra = discrete_gaussian_sum_log_ratio(2.0 / 3.0, 9, 6)
    assert shared.closeness == alone.closeness.widened(extra)
    assert shared.closeness.log_ratio_below > alone.closeness.log_ratio_below
    assert block(noise=NoiseShape.LAPLACE).event(BITS) == PureRelease("sums", 0.5)


# -- noise -----------------------------------------------------------------------------

SOURCES = {
    "secure": noise_source(NoiseKind.SECURE),
    "seeded": noise_source(NoiseKind.SEEDED, 5),
}


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
    # Six standard errors of a standard deviation from 4000 draws: 7% (Gaussian), 11%
    # (Laplace).
    assert a.std() == pytest.approx(3.0, rel=0.07)
    assert d.std() == pytest.approx(10.0, rel=0.07)
    assert c.std() == pytest.approx(math.sqrt(2.0) * 2.0, rel=0.11)
    assert abs(np.corrcoef(a, d)[0, 1]) < 0.1


@pytest.mark.parametrize("kind", SOURCES)
def test_shares_scale_the_standard_deviation(kind: str) -> None:
    noise = signed(
        draw_noise(
            [block("a", (4000,), multiplier=2.0, bound=1.5)],
            SOURCES[kind],
            BITS,
            share=1 / 3,
        )
    )
    assert noise.std() == pytest.approx(1.0, rel=0.07)


@pytest.mark.parametrize("share", [0.5, 0.999, 2.0])
def test_laplace_noise_is_not_split_into_shares(share: float) -> None:
    with pytest.raises(PlanError, match="'sums' has Laplace noise, which cannot"):
        draw_noise(
            [block(noise=NoiseShape.LAPLACE)], SOURCES["seeded"], BITS, share=share
        )
    assert draw_noise(
        [block(noise=NoiseShape.LAPLACE)], SOURCES["seeded"], BITS, share=1.0
    ).shape == (6,)


def test_noise_is_fresh_every_time() -> None:
    for source in SOURCES.values():
        first, second = (
            draw_noise([block(shape=(50,))], source, BITS) for _ in range(2)
        )
        assert not np.array_equal(first, second)


# -- the released sum ------------------------------------------------------------------


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
    with pytest.raises(LocalMisuseError, match="mechanism that adds the noise: call"):
        ReleasedSum({"sums": np.zeros(2)}, (), object())
    with pytest.raises(LocalMisuseError):
        ReleasedSum({"sums": np.zeros(2)}, (), None)
    with pytest.raises(TypeError):
        ReleasedSum({"sums": np.zeros(2)})  # type: ignore[call-arg]


def test_released_sum_cannot_be_pickled_or_copied() -> None:
    for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(LocalMisuseError, match="send the noised vector instead"):
            attempt(a_release())


def test_released_arrays_cannot_be_replaced() -> None:
    with pytest.raises(TypeError):
        a_release().arrays["sums"] = np.zeros(2)  # type: ignore[index]


@pytest.mark.parametrize("length", [0, 5, 7])
def test_release_of_another_length_is_refused(length: int) -> None:
    with pytest.raises(
        PlanError, match=f"a release has {length} entries, but the plan has 6"
    ):
        as_released(np.zeros(length, dtype=np.uint64), [block(shape=(2, 3))], BITS)


# -- numbers by hand -------------------------------------------------------------------


def test_deviations_of_each_noise() -> None:
    assert block(multiplier=2.0, bound=1.5).standard_deviation == 3.0
    assert block(
        noise=NoiseShape.LAPLACE, multiplier=2.0, bound=1.5
    ).standard_deviation == pytest.approx(3.0 * 2**0.5)
    assert block(shape=()).size == 1
    assert block(shape=(2, 0)).size == 0


@pytest.mark.parametrize("n_shares", [1, 2, 3])
def test_closeness_of_an_event_is_that_of_its_grid_and_of_its_shares(
    n_shares: int,
) -> None:
    """A deviation of 3/4 is one of 3/2 half steps."""
    event = block(multiplier=0.5, bound=1.5).event(1, n_shares)
    expected = discrete_gaussian_closeness(1.5, 6)
    if n_shares > 1:
        expected = expected.widened(
            discrete_gaussian_sum_log_ratio(1.5 / math.sqrt(n_shares), n_shares, 6)
        )
        assert expected != discrete_gaussian_closeness(1.5, 6)
    assert event == GaussianRelease("sums", 0.5, expected)


def test_a_round_over_a_sample_is_one_release() -> None:
    """Multipliers of 3 and 4 are one of 2.4; a rate of 1 leaves them apart."""
    blocks = [block("sums", multiplier=3.0), block("counts", (2,), multiplier=4.0)]
    both = round_events(blocks, BITS, 1)
    assert [event.name for event in both] == ["sums", "counts"]
    assert round_events(blocks, BITS, 1, 1.0) == both
    (joint,) = round_events(blocks, BITS, 1, 0.25)
    assert isinstance(joint, GaussianRelease)
    assert (joint.name, joint.sampling_rate) == ("sums and counts", 0.25)
    assert joint.noise_multiplier == pytest.approx(2.4)
    assert joint.closeness == joint_closeness(event.closeness for event in both)
    for noise in (NoiseShape.LAPLACE, NoiseShape.NONE):
        other = block(noise=noise)
        assert len(round_events([other], BITS, 1, 1.0)) == 1
        with pytest.raises(PlanError, match="amplification by sampling is accounted"):
            round_events([other], BITS, 1, math.nextafter(1.0, 0.0))


def test_what_a_theorem_says() -> None:
    gaussian = replace(
        block(),
        sensitivity=Sensitivity(
            Norm.L2, 1.0, PrivacyUnit.RECORD, "S2: one row is in one cluster"
        ),
    )
    said = (
        "one row is in one cluster; Gaussian mechanism, (1/multiplier)-GDP (Dong, Roth,"
        " Su 2022, Theorem 1)"
    )
    assert theorem(gaussian) == f"{said} [S2, M1, M3]."
    assert theorem(gaussian, shared_noise=True) == f"{said} [S2, M1, M3, M4]."
    sampled = (
        "; all arrays of the aggregation are one release over a Poisson sample of the"
        " clients (rate 0.5), priced by its privacy-loss distribution (Zhu, Dong, Wang"
        " 2022, Theorem 11)"
    )
    assert (
        theorem(gaussian, shared_noise=True, sampling_rate=0.5)
        == f"{said}{sampled} [S2, M1, M3, M4, M5]."
    )
    laplace = replace(
        block(noise=NoiseShape.LAPLACE),
        sensitivity=Sensitivity(Norm.L1, 1.0, PrivacyUnit.RECORD, "so"),
    )
    assert (
        theorem(laplace)
        == "so; Laplace mechanism, (1/multiplier)-DP (Dwork et al. 2006) [M2]."
    )
    assert (
        theorem(replace(gaussian, noise=NoiseShape.NONE))
        == "no noise: the exact sum is released, and nothing is proved [M7]."
    )


def test_rates_of_releases_end_at_one() -> None:
    assert GaussianRelease("rows", 2.0, sampling_rate=1.0).sampling_rate == 1.0
    with pytest.raises(LocalMisuseError, match=r"sampling_rate is 1\.0000000000000002"):
        GaussianRelease("rows", 2.0, sampling_rate=math.nextafter(1.0, 2.0))
    with pytest.raises(LocalMisuseError, match=r"sampling_rate is 2\.0, but it must"):
        GaussianRelease("rows", 2.0, sampling_rate=2.0)


def test_a_product_is_rounded_up() -> None:
    """0.1 is above a tenth as a double, and so is its product with 3."""
    for factors in (
        (0.1, 3.0),
        (0.1, 0.1),
        (1.0 / 3.0, 3.0),
        (2.0, 0.25),
        (1e-8, 1.1, 7.3),
    ):
        exact = math.prod(Fraction(factor) for factor in factors)
        found = product_at_least(*factors)
        assert Fraction(found) >= exact > Fraction(math.nextafter(found, 0.0))


def test_a_dominating_release_of_two_rounds_by_hand() -> None:
    """Multipliers of 3 and 4 together are 2.4, stronger than one of 2.5."""
    strong = [
        GaussianRelease("a", 3.0, Closeness(0.1, 0.2, 1e-9)),
        GaussianRelease("b", 4.0, Closeness(0.1, 0.0, 0.0)),
    ]
    found = dominating_release(
        [strong, [GaussianRelease("c", 2.5, Closeness(0.3, 0.1, 1e-8))]]
    )
    assert isinstance(found, GaussianRelease)
    assert found.noise_multiplier == pytest.approx(2.4 * (1.0 - 2.0**-40), rel=1e-15)
    assert found.closeness == Closeness(0.3, 0.2, 1e-8)
    halves = [
        [GaussianRelease(name, scale, sampling_rate=0.5)]
        for name, scale in (("a", 3.0), ("b", 2.0))
    ]
    sampled = dominating_release(halves)
    assert (sampled.sampling_rate, sampled.noise_multiplier) == (
        0.5,
        pytest.approx(2.0, rel=1e-11),
    )
    for rounds in (
        [],
        [[]],
        [[PureRelease("a", 0.5)]],
        [[strong[0], PureRelease("a", 0.5)]],
    ):
        with pytest.raises(LocalMisuseError):
            dominating_release(rounds)
    with pytest.raises(LocalMisuseError, match=r"the sampling rates \[0\.5, 1\.0\]"):
        dominating_release(
            [[strong[0]], [GaussianRelease("a", 3.0, sampling_rate=0.5)]]
        )


def test_pure_releases_become_one_of_their_total() -> None:
    """0.5 + 0.25 + 0.125."""
    gaussian, exact = GaussianRelease("a", 3.0), ExactRelease("b")
    pure = [
        PureRelease("sums", 0.5),
        PureRelease("counts", 0.25),
        PureRelease("sums", 0.125),
    ]
    joined = with_joint_pure_release([pure[0], gaussian, pure[1], exact, pure[2]])
    assert joined == (gaussian, exact, PureRelease("sums and counts", 0.875))
    assert with_joint_pure_release([gaussian, exact]) == (gaussian, exact)
    assert with_joint_pure_release([]) == ()


def test_seeded_noise_is_rounded_and_a_difference_of_two_waits() -> None:
    source = noise_source(NoiseKind.SEEDED, 3)
    generator = np.random.default_rng(3)
    expected = np.rint(generator.normal(0.0, 5.0, 20))
    np.testing.assert_array_equal(source.discrete_gaussian(5.0, 20), expected)
    success = 1.0 - math.exp(-1.0 / 5.0)
    expected = generator.geometric(success, 20) - generator.geometric(success, 20)
    np.testing.assert_array_equal(source.discrete_laplace(5.0, 20), expected)
