"""Reports priced by Rényi composition."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from flwr_dpkmeans import FederatedKMeans
from flwr_dpkmeans.errors import ConfigurationError
from flwr_dpkmeans.privacy.report import PrivacyReport
from simulations.audit.renyi import main, renyi_epsilon

ROWS = np.random.default_rng(0).uniform(-1.0, 1.0, (200, 2))


def report(algorithm: str = "glloyd") -> PrivacyReport:
    model = FederatedKMeans(
        2,
        bounds=(-1.0, 1.0),
        algorithm=algorithm,
        delta=1e-5,
        n_examples=400,
        random_state=0,
        engine="direct",
    )
    return model.fit([ROWS, ROWS]).privacy_


def test_one_gaussian_release_by_hand() -> None:
    whole = report()
    one = replace(whole, releases=(replace(whole.releases[0], noise_multiplier=2.0),))
    # alpha / (2 sigma^2) at order alpha, and the conversion of Canonne, Kamath and
    # Steinke 2020, Proposition 12.
    orders = np.arange(1.01, 60, 0.01)
    costs = orders / 8 + np.log1p(-1 / orders) - np.log(1e-5 * orders) / (orders - 1)
    assert renyi_epsilon(one) == pytest.approx(costs.min(), rel=1e-3)


def test_it_is_above_an_exact_price_and_infinite_without_noise() -> None:
    ours = report()
    assert ours.epsilon < renyi_epsilon(ours) < 1.3 * ours.epsilon
    # Half the noise that is claimed is seen.
    half = replace(
        ours,
        releases=tuple(
            replace(one, noise_multiplier=one.noise_multiplier / 2)
            for one in ours.releases
        ),
    )
    assert renyi_epsilon(half) > 1.9 * ours.epsilon
    assert math.isinf(renyi_epsilon(report("lloyd")))
    sampled = renyi_epsilon(ours, 0.1)
    assert sampled < renyi_epsilon(ours)
    with pytest.raises(ConfigurationError, match="Laplace"):
        renyi_epsilon(report("sulloyd"), 0.1)


def test_the_command_prints_both(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "privacy_report.json"
    path.write_text(report().to_json())
    assert main([str(path)]) == 0
    assert "1.0" in capsys.readouterr().out
    path.write_text(json.dumps({}))
    assert main([str(path)]) == 1
    assert str(path) in capsys.readouterr().err
