"""Noise sources: their contract.

Their distributions are tested in tests/nightly/statistical.
"""

from __future__ import annotations

import math
import pickle
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from support.machine import replace_entropy

from flwr_dpkmeans.errors import LocalMisuseError
from flwr_dpkmeans.privacy import exact_gaussian as samplers
from flwr_dpkmeans.privacy.noise import (
    NoiseKind,
    NoiseSource,
    OpenDPNoise,
    SecureNoise,
    SeededNoise,
    noise_source,
)
from flwr_dpkmeans.privacy.noise.opendp_noise import build_measurement

SOURCES = [SecureNoise(), OpenDPNoise(), SeededNoise(np.random.default_rng(3))]
DRAWS = ["discrete_gaussian", "discrete_laplace"]


@pytest.mark.parametrize("source", SOURCES, ids=["secure", "opendp", "seeded"])
@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("size", [0, 1, 45])
def test_shape_and_type(source: NoiseSource, draw: str, size: int) -> None:
    for scale in (1.0, 3.7, 2.0**40, 2.0**56):
        noise = getattr(source, draw)(scale, size)
        assert noise.shape == (size,)
        assert noise.dtype == np.int64


@pytest.mark.parametrize("source", SOURCES, ids=["secure", "opendp", "seeded"])
@pytest.mark.parametrize("draw", DRAWS)
def test_arguments_out_of_range_are_refused(source: NoiseSource, draw: str) -> None:
    for scale in (0.0, 0.99, -1.0, math.nan, math.inf, 2.0**58, 1e300, "4"):
        with pytest.raises(LocalMisuseError, match=r"^(std|scale) is"):
            getattr(source, draw)(scale, 3)
    for size in (-1, 2.5, True, None):
        with pytest.raises(LocalMisuseError, match="size"):
            getattr(source, draw)(4.0, size)


@pytest.mark.parametrize(("draw", "reach"), [(DRAWS[0], 40), (DRAWS[1], 128)])
def test_largest_scale_fills_64_bits_without_wrapping(draw: str, reach: int) -> None:
    """Noise has both signs and its usual range, and nothing sits at the ends."""
    largest = 2.0**63 / reach
    for source in SOURCES:
        noise = getattr(source, draw)(largest, 400).astype(np.float64) / largest
        assert noise.min() < -1
        assert noise.max() > 1
        assert np.abs(noise).max() < 39
        assert 0.5 < np.abs(noise).mean() < 1.5
        with pytest.raises(LocalMisuseError, match=r"grid steps \(64 bits\)"):
            getattr(source, draw)(math.nextafter(largest, math.inf), 1)


@pytest.mark.parametrize(("draw", "reach"), [(DRAWS[0], 40), (DRAWS[1], 128)])
def test_numbers_of_other_types_are_scales_up_to_the_same_end(
    draw: str, reach: int
) -> None:
    """Whole numbers and NumPy's doubles, which are a `float` but not exactly one."""
    largest = np.float64(2.0**63 / reach)
    for source in SOURCES:
        assert all(
            getattr(source, draw)(scale, 2).shape == (2,)
            for scale in (1, 3, np.float64(1.0), largest)
        )
        for scale in (np.nextafter(largest, np.inf), 2**58):
            with pytest.raises(LocalMisuseError, match=r"grid steps \(64 bits\)"):
                getattr(source, draw)(scale, 1)


@pytest.mark.parametrize("source", SOURCES, ids=["secure", "opendp", "seeded"])
@pytest.mark.parametrize("draw", DRAWS)
def test_noise_lies_about_zero(source: NoiseSource, draw: str) -> None:
    """The mean of a thousand draws of scale 1 has a deviation of .032 or .043."""
    assert abs(getattr(source, draw)(1.0, 1000).mean()) < 0.3


def test_gaussians_alone_are_made_of_the_systems_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Laplace variables remain OpenDP's, which has a generator of its own."""
    asked: list[int] = []
    urandom = samplers.os.urandom
    replace_entropy(monkeypatch, lambda size: asked.append(size) or urandom(size))
    SecureNoise().discrete_laplace(4.0, 3)
    OpenDPNoise().discrete_gaussian(4.0, 3)
    assert asked == []
    SecureNoise().discrete_gaussian(4.0, 3)
    assert asked


@pytest.mark.parametrize("draw", DRAWS)
def test_no_seed_reaches_the_secure_source(draw: str) -> None:
    draws = []
    for _ in range(2):
        np.random.seed(0)  # noqa: NPY002
        random.seed(0)
        draws.append(getattr(SecureNoise(), draw)(1e9, 8))
    assert (draws[0] != draws[1]).any()
    with pytest.raises(TypeError):
        SecureNoise(0)  # type: ignore[call-arg]
    with pytest.raises(LocalMisuseError, match="seed is 0"):
        noise_source(NoiseKind.SECURE, 0)


def test_secure_draws_differ_between_calls_copies_and_threads() -> None:
    source = noise_source(NoiseKind.SECURE)
    copy = pickle.loads(pickle.dumps(source))
    with ThreadPoolExecutor(4) as pool:
        draws = list(
            pool.map(
                lambda s: tuple(s.discrete_gaussian(1e12, 4)),
                [source, copy, source, copy],
            )
        )
    assert len(set(draws)) == 4
    assert isinstance(copy, SecureNoise)


def test_secure_source_keeps_few_measurements_and_uses_the_right_one() -> None:
    source = OpenDPNoise()
    for power in range(1, 40):
        scale = 2.0**power
        assert np.abs(source.discrete_gaussian(scale, 20)).max() < 12 * scale
        assert np.abs(source.discrete_laplace(scale, 20)).max() < 45 * scale
    assert np.abs(source.discrete_gaussian(2.0**39, 50)).max() > 2.0**35
    assert build_measurement.cache_info().currsize <= 64


def test_seeded_source_repeats_and_says_that_it_is_not_private() -> None:
    first, again, other = (noise_source(NoiseKind.SEEDED, seed) for seed in (5, 5, 6))
    for draw in DRAWS:
        a, b, c = (getattr(source, draw)(100.0, 20) for source in (first, again, other))
        assert (a == b).all()
        assert (a != c).any()
    assert "NOT private" in (SeededNoise.__doc__ or "")


def test_kinds_and_seeds_are_checked() -> None:
    made = {
        NoiseKind.SECURE: SecureNoise,
        NoiseKind.OPENDP: OpenDPNoise,
        NoiseKind.SEEDED: SeededNoise,
    }
    assert {
        kind: type(noise_source(kind, 0 if kind is NoiseKind.SEEDED else None))
        for kind in NoiseKind
    } == made
    for seed in (None, -1, 1.5, True):
        with pytest.raises(LocalMisuseError, match="seed"):
            noise_source(NoiseKind.SEEDED, seed)  # type: ignore[arg-type]
    with pytest.raises(LocalMisuseError, match="NoiseKind"):
        noise_source("secure")  # type: ignore[arg-type]


def test_heavy_libraries_are_imported_only_when_used() -> None:
    code = (
        "import sys\nimport flwr_dpkmeans.privacy.accounting,"
        " flwr_dpkmeans.privacy.noise\nprint([name for name in ('scipy', 'opendp',"
        " 'dp_accounting', 'mpmath') if name in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"
