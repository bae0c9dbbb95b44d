"""Tables that a function makes: the result of a list, one at a time in memory, and sentences."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import pandas as pd
import pytest

from flwr_dpkmeans import FederatedKMeans
from flwr_dpkmeans.errors import ConfigurationError, DataError, DPKMeansError

OPTIONS: dict[str, Any] = {"bounds": (-1.0, 1.0), "noise": "seeded", "random_state": 3, "max_iter": 2}


def table_of(client: int) -> np.ndarray:
    return np.random.default_rng(client).uniform(-1.0, 1.0, (10 + client, 2))


@pytest.mark.filterwarnings("ignore::flwr_dpkmeans.errors.PrivacyWarning")
@pytest.mark.parametrize("engine", ["direct", "inprocess"])
def test_a_function_gives_what_a_list_gives(engine: str) -> None:
    made: list[Any] = []

    def noted(client: int) -> np.ndarray:
        # The one that is being replaced may still be there.
        assert engine == "inprocess" or sum(table() is not None for table in made) <= 1
        made.append(weakref.ref(table := table_of(client)))
        return table

    model = FederatedKMeans(2, algorithm="fastlloyd", engine=engine, **OPTIONS)
    centers = model.fit([table_of(client) for client in range(5)]).cluster_centers_.tolist()
    listed = model.privacy_
    assert model.fit(clients=noted, n_clients=5).cluster_centers_.tolist() == centers
    assert model.privacy_ == listed


@pytest.mark.parametrize(
    ("given", "error", "told"),
    [
        ({"clients": table_of}, ConfigurationError, "n_clients is None, but it must be an integer of at least 2"),
        ({"clients": table_of, "n_clients": 1}, ConfigurationError, "n_clients is 1,"),
        ({"n_clients": 3}, DataError, "clients must be a function"),
        ({"X": [table_of(0)], "clients": table_of, "n_clients": 3}, DataError, "leave out X, y, groups"),
        ({"clients": lambda i: np.full((3, 2), [np.nan, 0.0][i < 2]), "n_clients": 3}, DataError, r"^clients\[2\]: "),
        ({"clients": lambda i: np.zeros((3, 2 + i)), "n_clients": 3}, DPKMeansError, "3 features"),
        (
            {"clients": lambda i: pd.DataFrame(np.zeros((3, 2)), columns=list("abba"[2 * i :][:2])), "n_clients": 2},
            DataError,
            r"clients\(1\) has other columns than clients\(0\)",
        ),
    ],
)
def test_a_sentence_for_each_mistake(given: dict[str, Any], error: type[Exception], told: str) -> None:
    with pytest.raises(error, match=told):
        FederatedKMeans(2, engine="direct", **OPTIONS | {"n_examples": 100}).fit(**given)
