"""The noise in released sums has the scale that the plan promises.

Client-side released minus exact sum.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from support.protocol_federation import (
    Federation,
    Truth,
    Words,
    grid_parts,
    make_federation,
    record_truth,
    small_config,
)
from support.wrong_trust import plant_noise

from flwr_dpkmeans.privacy import release as mechanisms
from flwr_dpkmeans.privacy.release import NoiseShape

SMALLEST_P = 1e-7
CONFIG: dict[str, Any] = {
    "algorithm": "fastlloyd", "n_clusters": 40, "n_features": 2, "n_examples": 400,
    "epsilon": 2.0, "max_iter": 25,
}  # fmt: skip
ENOUGH = 1000
SMALL = "arrays of few entries"

CASES = [
    ("fastlloyd", "oblivious", "secure"),
    ("fastlloyd", "central", "secure"),
    ("fastlloyd", "distributed", "secure"),
    ("fastlloyd", "oblivious", "seeded"),
    ("fastlloyd", "central", "seeded"),
    ("fastlloyd", "distributed", "seeded"),
    ("glloyd", "oblivious", "secure"),
    ("glloyd", "distributed", "seeded"),
    ("sulloyd", "oblivious", "secure"),
    ("sulloyd", "central", "seeded"),
    ("proxy_lloyd", "oblivious", "secure"),
    ("proxy_lloyd", "distributed", "seeded"),
]


def run(**values: Any) -> tuple[Federation, Truth]:
    truth = record_truth()
    federation = make_federation(
        grid_parts(
            [100] * (4 if values.get("trust") == "distributed" else 2),
            CONFIG["n_features"],
        )
    )
    federation.start(small_config(**(CONFIG | values)))
    return federation, truth


def noise_by_block(
    federation: Federation, truth: Truth
) -> dict[str, NDArray[np.float64]]:
    """Released minus exact, in units of the planned scale, for each array."""
    parts: dict[str, list[NDArray[np.float64]]] = {}
    for index, planned in enumerate(federation.plan.rounds, start=1):
        exact = truth.exact_sum((index, 0))
        flat = (truth.released[index] - exact).view(np.int64) / 2.0**16
        start = 0
        for block in planned.blocks:
            parts.setdefault(block.name, []).append(
                flat[start : start + block.size] / block.noise_scale
            )
            start += block.size
    small = [name for name, values in parts.items() if sum(map(len, values)) < ENOUGH]
    if small:
        parts[SMALL] = [noise for name in small for noise in parts.pop(name)]
    return {name: np.concatenate(values) for name, values in parts.items()}


def scale_p_value(
    noise: NDArray[np.float64], shape: NoiseShape, variance: float = 1.0
) -> float:
    """Two-sided p-value of the planned scale."""
    n = len(noise)
    if shape is NoiseShape.GAUSSIAN:
        below = float(stats.chi2.cdf(float((noise**2).sum()) / variance, n))
    else:
        below = float(stats.gamma.cdf(float(np.abs(noise).sum()), n))
    return 2.0 * min(below, 1.0 - below)


def expected_variance(federation: Federation) -> float:
    """Of all shares together, over the planned one."""
    if federation.plan.config.trust != "distributed":
        return 1.0
    n_clients = len(federation.clients)
    return n_clients / (n_clients - max(1, federation.plan.max_silent))


def check(federation: Federation, truth: Truth) -> None:
    """Scale, mean and independence of the noise in every array."""
    variance = expected_variance(federation)
    shapes = {
        block.name: block.noise
        for planned in federation.plan.rounds
        for block in planned.blocks
    }
    shapes[SMALL] = NoiseShape.GAUSSIAN
    for name, noise in noise_by_block(federation, truth).items():
        # Of ProxyLloyd's, only those of its refinements have enough.
        assert len(noise) >= (
            30
            if federation.plan.config.algorithm == "proxy_lloyd" and name == SMALL
            else ENOUGH
        )
        p = scale_p_value(noise, shapes[name], variance)
        assert p > SMALLEST_P, (
            f"{name}: std is {noise.std():.3f} of the plan's, p = {p:.3g}"
        )
        assert stats.ttest_1samp(noise, 0.0).pvalue > SMALLEST_P, (
            f"{name}: the noise is not centred"
        )
        assert stats.pearsonr(noise[:-1], noise[1:]).pvalue > SMALLEST_P, (
            f"{name}: the noise repeats itself"
        )


@pytest.mark.sample(3)
@pytest.mark.parametrize(("algorithm", "trust", "noise"), CASES)
def test_noise_has_the_planned_scale(algorithm: str, trust: str, noise: str) -> None:
    federation, truth = run(algorithm=algorithm, trust=trust, noise=noise)
    check(federation, truth)


def scaled(factor: float) -> Callable[..., Words]:
    """`draw_noise` with a wrong scale."""

    def draw(blocks: Any, *args: Any, **kwargs: Any) -> Words:
        wrong = [
            replace(block, noise_multiplier=block.noise_multiplier * factor)
            for block in blocks
        ]
        return mechanisms.draw_noise(wrong, *args, **kwargs)

    return draw


@pytest.mark.sample(4)
@pytest.mark.parametrize("factor", [0.7, 1.3])
@pytest.mark.parametrize(
    ("algorithm", "trust"),
    [
        ("fastlloyd", "oblivious"),
        ("fastlloyd", "central"),
        ("fastlloyd", "distributed"),
        ("sulloyd", "oblivious"),
    ],
)
def test_a_planted_wrong_scale_is_caught(
    monkeypatch: pytest.MonkeyPatch, algorithm: str, trust: str, factor: float
) -> None:
    plant_noise(monkeypatch, scaled(factor))
    federation, truth = run(algorithm=algorithm, trust=trust, noise="seeded")
    with pytest.raises(AssertionError, match="of the plan's"):
        check(federation, truth)
    shapes = {block.name: block.noise for block in federation.plan.rounds[0].blocks}
    variance = expected_variance(federation)
    for name, noise in noise_by_block(federation, truth).items():
        assert scale_p_value(noise, shapes[name], variance) < SMALLEST_P, (
            f"{name}: not noticed"
        )


@pytest.mark.parametrize("max_silent", [0, 1, 2])
def test_the_noise_that_an_onlooker_does_not_know_has_the_planned_scale(
    max_silent: int,
) -> None:
    """A client knows its share, and t may share theirs with the server."""
    federation, truth = run(trust="distributed", noise="seeded", max_silent=max_silent)
    check(federation, truth)
    known = set(list(federation.clients)[: max(1, max_silent)])
    for key, statistics in truth.statistics.items():
        shares = {
            node: truth.sent[key][node] - words for node, words in statistics.items()
        }
        unknown = [share for node, share in shares.items() if node not in known]
        truth.released[key[0]] = truth.exact_sum(key) + np.sum(
            unknown, axis=0, dtype=np.uint64
        )
    for name, noise in noise_by_block(federation, truth).items():
        assert scale_p_value(noise, NoiseShape.GAUSSIAN) > SMALLEST_P, name


@pytest.mark.nightly
def test_the_private_count_has_its_planned_noise() -> None:
    """Whatever the trust model, the count's noise comes in shares from the clients."""
    truth = record_truth()
    parts = grid_parts([100, 250], 2)

    def counts() -> Iterator[float]:
        for seed in range(80):
            federation = make_federation(parts)
            federation.start(
                n_examples=None, noise="seeded", random_state=seed, max_iter=1,
                epsilon=4.0,
            )  # fmt: skip
            assert federation.plan.count is not None
            error = (truth.released[0] - truth.exact_sum((0, 0))).view(np.int64)[
                0
            ] / 2.0**16
            yield float(error) / federation.plan.count.blocks[0].noise_scale

    noise = np.array(list(counts()))
    noise /= math.sqrt(
        len(parts) / (len(parts) - 1)
    )  # One of the shares is not counted on.
    assert scale_p_value(noise, NoiseShape.GAUSSIAN) > SMALLEST_P
    # This many runs could tell: half as much or twice as much would be rejected.
    assert scale_p_value(noise * 0.5, NoiseShape.GAUSSIAN) < SMALLEST_P
    assert scale_p_value(noise * 2.0, NoiseShape.GAUSSIAN) < SMALLEST_P


def test_two_runs_never_share_secure_noise() -> None:
    """The same random_state fixes the public start, but not secure noise."""
    for kind, equal in (("secure", False), ("seeded", True)):
        drawn = []
        for _ in range(2):
            federation, truth = run(noise=kind, max_iter=2)
            drawn.append(
                np.concatenate(list(noise_by_block(federation, truth).values()))
            )
        assert np.array_equal(*drawn) is equal
