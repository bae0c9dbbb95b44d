"""Do the noise sources draw from the distributions that are priced?

Every check is a function of a sample and the distribution, so that wrong samplers can
be planted in front of the same checks. The probabilities come from `exact_noise`, which
shares nothing with the samplers. A check rejects a right one with probability 1e-9 or
so; there are some 100 of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import special, stats
from support.exact_noise import probability_below

from flwr_dpkmeans.privacy.noise import OpenDPNoise, SecureNoise, SeededNoise

LEVEL = 1e-9
SIZE = 20_000
CELLS = 40
LARGEST = math.inf
LARGEST_OF = {"gaussian": 2.0**63 / 40, "laplace": 2.0**63 / 128}
Sample = NDArray[np.int64]


@lru_cache(maxsize=64)
def exact_cells(
    family: str, scale: float
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Cut points c_1 < ... < c_m and the exact probabilities of (-inf, c_1), [c_1,
    c_2), ..., [c_m, inf).
    """
    law = (
        stats.norm(scale=scale) if family == "gaussian" else stats.laplace(scale=scale)
    )
    places = np.concatenate(
        [[0.001, 0.003, 0.01], np.arange(1, CELLS) / CELLS, [0.99, 0.997, 0.999]]
    )
    wanted = np.unique(np.rint(law.ppf(places)).astype(np.int64))
    below, cuts = [0.0], []
    for cut in wanted.tolist():
        probability = probability_below(family, scale, cut)
        if min(probability - below[-1], 1.0 - probability) * SIZE > 20:
            below.append(probability)
            cuts.append(cut)
    return np.array(cuts, dtype=np.int64), np.diff([*below, 1.0])


def chi_square_p(sample: Sample, family: str, scale: float) -> float:
    """P-value of Pearson's chi-square against the exact probabilities.

    a fit that is too good has a small one too.
    """
    cuts, probabilities = exact_cells(family, scale)
    counts = np.bincount(
        np.searchsorted(cuts, sample, side="right"), minlength=cuts.size + 1
    )
    expected = probabilities * sample.size
    law = stats.chi2(cuts.size)
    statistic = float(((counts - expected) ** 2 / expected).sum())
    return two_sided(float(law.cdf(statistic)), float(law.sf(statistic)))


def tails_p(sample: Sample, family: str, scale: float) -> float:
    """P-value of the numbers beyond 3 and beyond 4.5 scales on either side (the
    smallest of the four, times four).
    """
    worst = 1.0
    for scales in (3.0, 4.5):
        cut = math.ceil(scales * scale)
        law = stats.binom(sample.size, 1.0 - probability_below(family, scale, cut))
        for count in (int((sample >= cut).sum()), int((sample <= -cut).sum())):
            worst = min(
                worst, two_sided(float(law.cdf(count)), float(law.sf(count - 1)))
            )
    return min(1.0, 4.0 * worst)


def two_sided(lower: float, upper: float) -> float:
    """P-value of a statistic that may be too small or too large."""
    return min(1.0, 2.0 * min(lower, upper))


def variance_p(sample: Sample, family: str, scale: float) -> float:
    """P-value of the mean square against the exact second moment, by the central limit
    theorem.
    """
    if family == "gaussian":
        # the discrete Gaussian's moments are the continuous ones to 1e-7 from scale 1
        # on
        second, fourth = scale**2, 3 * scale**4
    else:
        values = np.arange(1, math.ceil(60 * min(scale, 1000.0)) + 1, dtype=np.float64)
        weights = np.exp(-values / min(scale, 1000.0))
        total = 1 + 2 * weights.sum()
        stretch = scale / min(scale, 1000.0)
        second = 2 * (weights * values**2).sum() / total * stretch**2
        fourth = 2 * (weights * values**4).sum() / total * stretch**4
    mean_square = float(np.mean(sample.astype(np.float64) ** 2))
    z = (mean_square - second) / math.sqrt((fourth - second**2) / sample.size)
    return float(special.erfc(abs(z) / math.sqrt(2)))


def mean_p(sample: Sample) -> float:
    """P-value of the mean against 0."""
    values = sample.astype(np.float64)
    return float(
        special.erfc(abs(values.mean()) / values.std() * math.sqrt(values.size / 2))
    )


def serial_p(sample: Sample) -> float:
    """P-value of the correlation of neighbours, and of magnitudes of neighbours,
    against 0 (the smaller, doubled).
    """
    worst = 1.0
    for values in (sample.astype(np.float64), np.abs(sample.astype(np.float64))):
        r = float(np.corrcoef(values[:-1], values[1:])[0, 1])
        worst = min(worst, float(special.erfc(abs(r) * math.sqrt(values.size / 2))))
    return min(1.0, 2 * worst)


def smallest_p(sample: Sample, family: str, scale: float) -> float:
    """The smallest p-value of all checks."""
    found = [
        check(sample, family, scale) for check in (chi_square_p, tails_p, variance_p)
    ]
    return min(*found, mean_p(sample), serial_p(sample))


def draw(source: SecureNoise | SeededNoise, family: str, scale: float) -> Sample:
    return (
        source.discrete_gaussian(scale, SIZE)
        if family == "gaussian"
        else source.discrete_laplace(scale, SIZE)
    )


@pytest.mark.parametrize(
    "scale", [1.0, 1.5, 4.0, 4.3, 2.5e2, 65537.5, 1e6, 1e12, LARGEST]
)
@pytest.mark.parametrize("family", ["gaussian", "laplace"])
def test_secure_noise_has_the_exact_distribution(family: str, scale: float) -> None:
    scale = LARGEST_OF[family] if scale == LARGEST else scale
    sample = draw(SecureNoise(), family, scale)
    assert chi_square_p(sample, family, scale) > LEVEL
    assert tails_p(sample, family, scale) > LEVEL
    assert variance_p(sample, family, scale) > LEVEL
    assert mean_p(sample) > LEVEL
    assert serial_p(sample) > LEVEL


@pytest.mark.parametrize("scale", [1.0, 4.3, 1e6])
def test_opendps_gaussians_have_the_same_distribution(scale: float) -> None:
    """The reference, which is an option too."""
    assert (
        smallest_p(OpenDPNoise().discrete_gaussian(scale, SIZE), "gaussian", scale)
        > LEVEL
    )


@pytest.mark.parametrize("scale", [1.0, 1.01, 2.3, 15.9, 16.5, 300.0, 65537.5])
def test_a_million_gaussians_have_the_exact_distribution(scale: float) -> None:
    """Cells as wide as a block's and its edges."""
    sample = SecureNoise().discrete_gaussian(scale, 1_000_000)
    assert smallest_p(sample, "gaussian", scale) > LEVEL
    width = math.ceil(scale / 16)
    edges = [
        width * block for block in range(-45, 46) if abs(width * block) < 3.2 * scale
    ]
    below = np.array([probability_below("gaussian", scale, edge) for edge in edges])
    counts = np.bincount(
        np.searchsorted(edges, sample, side="right"), minlength=len(edges) + 1
    )
    expected = sample.size * np.diff([0.0, *below, 1.0])
    assert (
        stats.chi2(len(edges)).sf(((counts - expected) ** 2 / expected).sum()) > LEVEL
    )


@pytest.mark.parametrize("factor", [1.0 - 1e-2, 1.0 + 1e-2])
def test_a_million_gaussians_with_a_deviation_that_is_a_hundredth_off_are_caught(
    factor: float,
) -> None:
    sample = SecureNoise().discrete_gaussian(300.0 * factor, 1_000_000)
    assert smallest_p(sample, "gaussian", 300.0) < LEVEL


def test_secure_noise_in_small_draws_is_the_same() -> None:
    """Plans draw some tens of entries at a time, with several scales in turn."""
    source = SecureNoise()
    sample, other = [], []
    for _ in range(SIZE // 50):
        sample.append(source.discrete_gaussian(4.0, 50))
        other.append(source.discrete_laplace(9.0, 50))
    assert smallest_p(np.concatenate(sample), "gaussian", 4.0) > LEVEL
    assert smallest_p(np.concatenate(other), "laplace", 9.0) > LEVEL


@pytest.mark.parametrize(("family", "scale"), [("laplace", 1.5), ("gaussian", 4.3)])
def test_secure_noise_has_no_bias_at_the_scales_where_old_opendp_had_one(
    family: str, scale: float
) -> None:
    """Up to 0.14.1 (its issue 2638)."""
    source = SecureNoise()
    sample = np.concatenate([draw(source, family, scale) for _ in range(3)])
    assert chi_square_p(sample, family, scale) > LEVEL


@pytest.mark.parametrize(
    ("family", "scale"),
    [("gaussian", 20.0), ("gaussian", 1e6), ("laplace", 1.0), ("laplace", 1e6)],
)
def test_seeded_noise_has_nearly_the_distribution(family: str, scale: float) -> None:
    assert (
        smallest_p(
            draw(SeededNoise(np.random.default_rng(11)), family, scale), family, scale
        )
        > LEVEL
    )


def continuous(family: str, scale: float) -> NDArray[np.float64]:
    generator = np.random.default_rng(12)
    return (
        generator.normal(0, scale, SIZE)
        if family == "gaussian"
        else generator.laplace(0, scale, SIZE)
    )


def rescaled(factor: float) -> Callable[[str, float], Sample]:
    return lambda family, scale: np.rint(continuous(family, factor * scale)).astype(
        np.int64
    )


def truncated(family: str, scale: float) -> Sample:
    return np.trunc(continuous(family, scale)).astype(np.int64)


def floored(family: str, scale: float) -> Sample:
    return np.floor(continuous(family, scale)).astype(np.int64)


def repeated(family: str, scale: float) -> Sample:
    return np.repeat(
        draw(SeededNoise(np.random.default_rng(13)), family, scale)[: SIZE // 2], 2
    )


def one_sided(family: str, scale: float) -> Sample:
    return np.abs(np.rint(continuous(family, scale))).astype(np.int64)


def cut_tails(sides: tuple[int, ...]) -> Callable[[str, float], Sample]:
    """Values beyond 3 scales on these sides are replaced by others within them."""

    def sampler(family: str, scale: float) -> Sample:
        values = draw(SeededNoise(np.random.default_rng(14)), family, scale)
        for side in sides:
            beyond = side * values >= math.ceil(3 * scale)
            values[beyond] = np.resize(
                values[np.abs(values) < 3 * scale], int(beyond.sum())
            )
        return values

    return sampler


def two_zeros(family: str, scale: float) -> Sample:
    """A sign for every magnitude: zero comes from both, with twice its probability."""
    generator, magnitudes = np.random.default_rng(15), np.arange(math.ceil(40 * scale))
    weights = np.exp(
        -(magnitudes**2) / (2 * scale**2)
        if family == "gaussian"
        else -magnitudes / scale
    )
    return generator.choice(
        magnitudes, SIZE, p=weights / weights.sum()
    ) * generator.choice([-1, 1], SIZE)


def too_even(family: str, scale: float) -> Sample:
    """Quantiles instead of draws, in random order.

    No cell is ever off by more than one.
    """
    law = (
        stats.norm(scale=scale) if family == "gaussian" else stats.laplace(scale=scale)
    )
    return np.random.default_rng(18).permutation(
        np.rint(law.ppf((np.arange(SIZE) + 0.5) / SIZE)).astype(np.int64)
    )


def overflowing(family: str, scale: float) -> Sample:
    """Canonne, Kamath and Steinke's rejection from a discrete Laplace variable, with
    every product in int64.
    """
    assert family == "gaussian"
    generator = np.random.default_rng(19)
    sigma2, t = np.int64(round(scale * scale)), np.int64(math.floor(scale) + 1)
    kept: list[Sample] = []
    with np.errstate(over="ignore"):
        while sum(map(len, kept)) < SIZE:
            success = -math.expm1(-1 / float(t))
            y = generator.geometric(success, SIZE) - generator.geometric(success, SIZE)
            # exp(-(|y| - sigma^2/t)^2 / (2 sigma^2)) over the common denominator 2
            # sigma^2 t^2
            numerator = (np.abs(y) * t - sigma2) ** 2
            denominator = 2 * sigma2 * t * t
            kept.append(
                y[
                    generator.random(SIZE)
                    < np.exp(np.minimum(-numerator / denominator, 0.0))
                ]
            )
    return np.concatenate(kept)[:SIZE]


WRONG: dict[str, tuple[Callable[[str, float], Sample], tuple[float, ...]]] = {
    "scale 0.7": (rescaled(0.7), (1.0, 1.5, 4.0, 1e6, 1e12)),
    "scale 1.3": (rescaled(1.3), (1.0, 1.5, 4.0, 1e6, 1e12)),
    "truncated toward zero": (truncated, (1.0, 4.0)),
    "floored": (floored, (1.0, 4.0)),
    "without tails": (cut_tails((-1, 1)), (4.0, 1e6)),
    "without the right tail": (cut_tails((1,)), (4.0, 1e6)),
    "without the left tail": (cut_tails((-1,)), (4.0, 1e6)),
    "zero twice": (two_zeros, (1.0, 4.0)),
    "too even": (too_even, (20.0, 1e6)),
    "every value twice": (repeated, (20.0, 1e6)),
    "one-sided": (one_sided, (4.0, 1e6)),
    "wrapped to 16 bits": (
        lambda f, s: (
            np.rint(continuous(f, s)).astype(np.int64).astype(np.int16).astype(np.int64)
        ),
        (3e4,),
    ),
    "wrapped to 32 bits": (
        lambda f, s: (
            np.rint(continuous(f, s)).astype(np.int64).astype(np.int32).astype(np.int64)
        ),
        (2e9,),
    ),
    "the other family": (
        lambda f, s: np.rint(
            continuous("laplace" if f == "gaussian" else "gaussian", s)
        ).astype(np.int64),
        (4.0, 1e6),
    ),
}


@pytest.mark.parametrize("family", ["gaussian", "laplace"])
@pytest.mark.parametrize("name", WRONG)
def test_planted_wrong_samplers_are_caught(name: str, family: str) -> None:
    sampler, scales = WRONG[name]
    for scale in scales:
        assert smallest_p(sampler(family, scale), family, scale) < LEVEL, scale


def test_a_rounded_continuous_gaussian_of_small_scale_is_caught() -> None:
    """Its variance is 1/12 too large, and nobody has priced that distribution."""
    sample = draw(SeededNoise(np.random.default_rng(11)), "gaussian", 1.0)
    assert smallest_p(sample, "gaussian", 1.0) < LEVEL


def test_a_sampler_that_overflows_int64_is_caught_from_30000_on() -> None:
    for scale in (4.0, 100.0, 1e4):
        assert smallest_p(overflowing("gaussian", scale), "gaussian", scale) > LEVEL, (
            scale
        )
    for scale in (3e4, 6e4, 1e6):
        assert smallest_p(overflowing("gaussian", scale), "gaussian", scale) < LEVEL, (
            scale
        )


def test_exact_probabilities_agree_with_special_functions() -> None:
    """Sums, series and closed forms."""
    for cut in (1, 50, 200, 400, 1000):
        for sign in (1, -1):
            assert probability_below("gaussian", 250.0, sign * cut) == pytest.approx(
                stats.norm.cdf((sign * cut - 0.5) / 250.0), rel=3e-5
            )
            found = probability_below("gaussian", 1e6, sign * cut * 5000)
            assert found == pytest.approx(
                stats.norm.cdf((sign * cut * 5000 - 0.5) / 1e6), rel=1e-10
            )
            assert probability_below("laplace", 7.5, sign * cut) == pytest.approx(
                stats.dlaplace.cdf(sign * cut - 1, 1 / 7.5), rel=1e-10
            )
