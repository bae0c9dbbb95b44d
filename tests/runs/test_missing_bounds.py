"""Bounds that nobody stated are refused at every door.

Only a plan on synthetic data needs none, and says so.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from flwr_dpkmeans import FastLloyd, FederatedKMeans, PrivateKMeans, ProxyLloyd
from flwr_dpkmeans.errors import ConfigurationError
from flwr_dpkmeans.flower.run_config import strategy_from_run_config

SENTENCE = (
    "no bounds were given, and they may not be taken from private data: give public"
    " ones, such as bounds='0,100' or the path of a file with columns"
    " feature,lower,upper, let them follow from server_data, or let private histograms"
    " find them by bounds='private'."
)
PARTS = [np.linspace(0, 10_000, 200).reshape(-1, 2) + i for i in range(2)]


@pytest.mark.parametrize("engine", ["inprocess", "direct"])
@pytest.mark.parametrize(
    "algorithm", ["proxy_lloyd", "fastlloyd", "lloyd", "max_cover", "k_fed", "optimal"]
)
def test_the_notebook_refuses_a_fit_without_bounds(algorithm: str, engine: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        FederatedKMeans(3, algorithm=algorithm, engine=engine).fit(PARTS)
    assert str(caught.value) == SENTENCE


@pytest.mark.parametrize("strategy", [PrivateKMeans, ProxyLloyd, FastLloyd])
def test_strategies_refuse_to_be_made_without_bounds(strategy: Any) -> None:
    options = {"algorithm": "glloyd"} if strategy is PrivateKMeans else {}
    with pytest.raises(ConfigurationError) as caught:
        strategy(3, n_features=2, **options)
    assert str(caught.value) == SENTENCE


def test_flwr_run_refuses_a_run_without_bounds() -> None:
    with pytest.raises(ConfigurationError) as caught:
        strategy_from_run_config(
            {"n-clusters": 3, "num-clients": 2, "data": "table.csv"}
        )
    assert str(caught.value) == SENTENCE


def test_server_data_give_bounds() -> None:
    km = FederatedKMeans(
        3, algorithm="proxy_lloyd", server_data=PARTS[0], random_state=1
    ).fit(PARTS)
    assert km.cluster_centers_.max() > 1.0


def test_a_plan_without_bounds_says_in_which_unit_its_noise_is() -> None:
    shape: dict[str, Any] = {"seeds": 2, "algorithms": ["fastlloyd"]}
    without = FederatedKMeans(3).plan(2_000, 2, 3, **shape)
    scaled = FederatedKMeans(3, bounds=(-1, 1)).plan(2_000, 2, 3, **shape)
    assert without.algorithms == scaled.algorithms
    assert without.to_dict()["request"]["bounds"] is None
    said = (
        "No bounds were given: noise is given as a fraction of half the range that they"
        " will have."
    )
    assert said in without.notes
    assert said not in scaled.notes
    assert "No bounds were given" in str(without)
