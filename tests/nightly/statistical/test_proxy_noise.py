"""Does each array of ProxyLloyd get the noise that was planned for it, in real runs and
under every trust model?

A check rejects right noise with probability below 1e-7, and noise of a standard
deviation 30 percent off either way with almost certainty.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from support.protocol_federation import (
    Federation,
    Truth,
    grid_parts,
    make_federation,
    record_truth,
    small_config,
)
from support.wrong_trust import plant_noise

from flwr_dpkmeans.privacy import release as mechanisms
from flwr_dpkmeans.privacy.noise import SeededNoise
from flwr_dpkmeans.sums.draft import draft_plan

Floats = NDArray[np.float64]
LEVEL = 1e-7
GRID = 2.0**16
LARGE = ("proxy_sums", "proxy_counts", "residual_sums", "counts")
CONFIG: dict[str, Any] = {
    "algorithm": "proxy_lloyd",
    "n_clusters": 125,
    "n_examples": 100_000,
    "epsilon": 2.0,
    "max_iter": 8,
    "n_init": 1,
    "noise": "seeded",
}


def variance_p(sample: Floats) -> float:
    """Two-sided p-value of variance 1, by chi-square."""
    square = float((sample**2).sum())
    return float(
        2 * min(stats.chi2.cdf(square, sample.size), stats.chi2.sf(square, sample.size))
    )


def has_unit_variance(sample: Floats) -> bool:
    """Whether the sample may have variance 1.

    It must be large enough to tell 30 percent of deviation either way.
    """
    low, high = (
        float(stats.chi2.ppf(p, sample.size)) for p in (LEVEL / 2, 1.0 - LEVEL / 2)
    )
    for factor in (0.7, 1.3):
        assert (
            stats.chi2.cdf(high / factor**2, sample.size)
            - stats.chi2.cdf(low / factor**2, sample.size)
            < 1e-6
        )
    return variance_p(sample) > LEVEL


def run(**values: Any) -> tuple[Federation, Truth]:
    truth = record_truth()
    federation = make_federation(grid_parts([100] * 4))
    federation.start(small_config(**(CONFIG | values)))
    return federation, truth


def noise_by_array(federation: Federation, truth: Truth) -> dict[str, Floats]:
    """Released minus exact, over the planned standard deviation, for each array of all
    rounds.
    """
    plan, parts = federation.plan, {}
    # Shares of all clients are there, of which one is not counted on.
    surplus = (
        len(federation.clients) / plan.shares.n_honest
        if plan.config.trust == "distributed"
        else 1.0
    )
    for index, planned in enumerate(plan.rounds, start=1):
        flat = (truth.released[index] - truth.exact_sum((index, 0))).view(
            np.int64
        ) / GRID
        start = 0
        for block in planned.blocks:
            own = flat[start : start + block.size] / (
                block.noise_scale * math.sqrt(surplus)
            )
            parts.setdefault(block.name, []).append(own)
            start += block.size
        assert start == flat.size
    return {name: np.concatenate(values) for name, values in parts.items()}


@pytest.mark.parametrize("trust", ["oblivious", "central", "distributed"])
def test_released_arrays_have_the_planned_noise(trust: str) -> None:
    federation, truth = run(trust=trust)
    found = noise_by_array(federation, truth)
    assert set(found) == {
        "row_sums",
        "row_squares",
        "row_distances",
        "unit_outer_product",
        "residual_squares",
        "excess_sums",
        *LARGE,
    }
    for name in LARGE:
        assert has_unit_variance(found[name]), (name, found[name].std())
        assert stats.ttest_1samp(found[name], 0.0).pvalue > LEVEL
        assert stats.kstest(found[name], "norm").pvalue > LEVEL
        assert abs(
            np.corrcoef(found[name][:-1], found[name][1:])[0, 1]
        ) < 6 / math.sqrt(found[name].size)
    # The few other numbers of a run are not left without noise, or with much of it.
    few = np.concatenate(
        [values for name, values in found.items() if name not in LARGE]
    )
    assert variance_p(few) > LEVEL
    assert (few != 0.0).all()


@pytest.mark.parametrize("factor", [0.7, 1.3])
@pytest.mark.parametrize("trust", ["oblivious", "central", "distributed"])
def test_noise_of_a_wrong_scale_is_seen(
    monkeypatch: pytest.MonkeyPatch, trust: str, factor: float
) -> None:
    def scaled(blocks: Any, *args: Any, **kwargs: Any) -> Any:
        wrong = [
            replace(block, noise_multiplier=block.noise_multiplier * factor)
            for block in blocks
        ]
        return mechanisms.draw_noise(wrong, *args, **kwargs)

    plant: Callable[..., None] = plant_noise
    plant(monkeypatch, scaled)
    found = noise_by_array(*run(trust=trust))
    for name in LARGE:
        assert not has_unit_variance(found[name]), name


@pytest.mark.parametrize("n_features", [2, 9])
def test_every_array_however_small_has_the_noise_of_its_share(n_features: int) -> None:
    """Drawn again and again, in units of what the accountant was told."""
    config = small_config(
        **(CONFIG | {"n_clusters": 3, "n_features": n_features, "max_iter": None})
    )
    plan = draft_plan(config, run_id=1, n_clients=4, seed=1, n_features=n_features)
    source = SeededNoise(np.random.default_rng(n_features))
    for index, planned in enumerate(plan.rounds, start=1):
        if planned.name == "proxies-2":
            continue
        events = plan.events([index])
        draws = np.stack(
            [
                mechanisms.draw_noise(planned.blocks, source, 16).view(np.int64)
                for _ in range(1500)
            ]
        )
        start = 0
        for block, event in zip(planned.blocks, events, strict=True):
            std = event.noise_multiplier * block.sensitivity.bound * GRID  # type: ignore[union-attr]
            sample = draws[:, start : start + block.size].ravel() / std
            assert has_unit_variance(sample), (planned.name, block.name)
            start += block.size
