"""Do the noise sources draw from the distributions that are priced?

Every check is a function of a sample and the distribution, so that wrong samplers can be planted in front of the same
checks. A check rejects a right sampler with probability below 1e-9; there are some 40 of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import special, stats

from flwr_dpkmeans.privacy.samplers import SecureNoise, SeededNoise

pytestmark = pytest.mark.statistical

LEVEL = 1e-9
SIZE = 20_000
CELLS = 40
Sample = NDArray[np.int64]


def exact_cells(family: str, scale: float) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Cut points c_1 < ... < c_m and the exact probabilities of (-inf, c_1), [c_1, c_2), ..., [c_m, inf)."""
    if scale > 1000:  # the sums below would be long; the continuous tails differ from the discrete by about 1/scale
        law = stats.norm(scale=scale) if family == "gaussian" else stats.laplace(scale=scale)
        cuts = np.rint(law.ppf(np.arange(1, CELLS) / CELLS)).astype(np.int64)
        below = law.cdf(cuts - 0.5)
        return cuts, np.diff(np.concatenate([[0.0], below, [1.0]]))
    reach = math.ceil((12 if family == "gaussian" else 45) * scale)
    values = np.arange(-reach, reach + 1)
    weights = np.exp(-(values**2) / (2 * scale**2) if family == "gaussian" else -np.abs(values) / scale)
    weights /= weights.sum()
    inner = values[(SIZE * np.cumsum(weights) > 20) & (SIZE * np.cumsum(weights[::-1])[::-1] > 20)]
    below = np.array([weights[values < cut].sum() for cut in inner])
    return inner, np.diff(np.concatenate([[0.0], below, [1.0]]))


def chi_square_p(sample: Sample, family: str, scale: float) -> float:
    """P-value of Pearson's chi-square against the exact probabilities."""
    cuts, probabilities = exact_cells(family, scale)
    counts = np.bincount(np.searchsorted(cuts, sample, side="right"), minlength=cuts.size + 1)
    return float(stats.chisquare(counts, probabilities * sample.size).pvalue)


def variance_p(sample: Sample, family: str, scale: float) -> float:
    """P-value of the mean square against the exact second moment, by the central limit theorem."""
    if family == "gaussian":  # the discrete Gaussian's moments are the continuous ones to 1e-7 from scale 1 on
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
    return float(special.erfc(abs(values.mean()) / values.std() * math.sqrt(values.size / 2)))


def serial_p(sample: Sample) -> float:
    """P-value of the correlation of neighbours, and of magnitudes of neighbours, against 0 (the smaller, doubled)."""
    worst = 1.0
    for values in (sample.astype(np.float64), np.abs(sample.astype(np.float64))):
        r = float(np.corrcoef(values[:-1], values[1:])[0, 1])
        worst = min(worst, float(special.erfc(abs(r) * math.sqrt(values.size / 2))))
    return min(1.0, 2 * worst)


def smallest_p(sample: Sample, family: str, scale: float) -> float:
    """The smallest p-value of all checks."""
    return min(chi_square_p(sample, family, scale), variance_p(sample, family, scale), mean_p(sample), serial_p(sample))


def draw(source: SecureNoise | SeededNoise, family: str, scale: float) -> Sample:
    return source.discrete_gaussian(scale, SIZE) if family == "gaussian" else source.discrete_laplace(scale, SIZE)


@pytest.mark.parametrize("family", ["gaussian", "laplace"])
@pytest.mark.parametrize("scale", [1.0, 4.0, 2.5e2, 1e6, 1e15])
def test_secure_noise_has_the_exact_distribution(family: str, scale: float) -> None:
    sample = draw(SecureNoise(), family, scale)
    assert chi_square_p(sample, family, scale) > LEVEL
    assert variance_p(sample, family, scale) > LEVEL
    assert mean_p(sample) > LEVEL
    assert serial_p(sample) > LEVEL


def test_secure_noise_in_small_draws_is_the_same() -> None:
    """Plans draw some tens of entries at a time, with several scales in turn."""
    source = SecureNoise()
    sample, other = [], []
    for _ in range(SIZE // 50):
        sample.append(source.discrete_gaussian(4.0, 50))
        other.append(source.discrete_laplace(9.0, 50))
    assert smallest_p(np.concatenate(sample), "gaussian", 4.0) > LEVEL
    assert smallest_p(np.concatenate(other), "laplace", 9.0) > LEVEL


@pytest.mark.parametrize(
    ("family", "scale"), [("gaussian", 20.0), ("gaussian", 1e6), ("laplace", 1.0), ("laplace", 1e6)]
)
def test_seeded_noise_has_nearly_the_distribution(family: str, scale: float) -> None:
    assert smallest_p(draw(SeededNoise(np.random.default_rng(11)), family, scale), family, scale) > LEVEL


def continuous(family: str, scale: float) -> NDArray[np.float64]:
    generator = np.random.default_rng(12)
    return generator.normal(0, scale, SIZE) if family == "gaussian" else generator.laplace(0, scale, SIZE)


def rescaled(factor: float) -> Callable[[str, float], Sample]:
    return lambda family, scale: np.rint(continuous(family, factor * scale)).astype(np.int64)


def truncated(family: str, scale: float) -> Sample:
    return np.trunc(continuous(family, scale)).astype(np.int64)


def floored(family: str, scale: float) -> Sample:
    return np.floor(continuous(family, scale)).astype(np.int64)


def repeated(family: str, scale: float) -> Sample:
    return np.repeat(draw(SeededNoise(np.random.default_rng(13)), family, scale)[: SIZE // 2], 2)


def one_sided(family: str, scale: float) -> Sample:
    return np.abs(np.rint(continuous(family, scale))).astype(np.int64)


WRONG: dict[str, tuple[Callable[[str, float], Sample], tuple[float, ...]]] = {
    "scale 0.7": (rescaled(0.7), (1.0, 4.0, 1e6)),
    "scale 1.3": (rescaled(1.3), (1.0, 4.0, 1e6)),
    "truncated toward zero": (truncated, (1.0, 4.0)),
    "floored": (floored, (1.0, 4.0)),
    "every value twice": (repeated, (20.0, 1e6)),
    "one-sided": (one_sided, (4.0, 1e6)),
    "wrapped to 16 bits": (
        lambda f, s: np.rint(continuous(f, s)).astype(np.int64).astype(np.int16).astype(np.int64),
        (3e4,),
    ),
    "wrapped to 32 bits": (
        lambda f, s: np.rint(continuous(f, s)).astype(np.int64).astype(np.int32).astype(np.int64),
        (2e9,),
    ),
    "the other family": (
        lambda f, s: np.rint(continuous("laplace" if f == "gaussian" else "gaussian", s)).astype(np.int64),
        (4.0, 1e6),
    ),
}


@pytest.mark.parametrize("family", ["gaussian", "laplace"])
@pytest.mark.parametrize("name", WRONG)
def test_planted_wrong_samplers_are_caught(name: str, family: str) -> None:
    sampler, scales = WRONG[name]
    for scale in scales:
        assert smallest_p(sampler(family, scale), family, scale) < LEVEL, scale


@pytest.mark.parametrize("family", ["gaussian", "laplace"])
@pytest.mark.parametrize("factor", [0.7, 1.3])
@pytest.mark.parametrize("scale", [4.0, 1e6])
def test_variance_check_alone_rejects_a_change_of_scale_by_30_percent(family: str, factor: float, scale: float) -> None:
    assert variance_p(rescaled(factor)(family, scale), family, scale) < LEVEL


def test_chi_square_check_alone_rejects_truncation() -> None:
    assert chi_square_p(truncated("gaussian", 4.0), "gaussian", 4.0) < LEVEL
    assert chi_square_p(truncated("laplace", 4.0), "laplace", 4.0) < LEVEL
