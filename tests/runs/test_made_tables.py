"""Tables that a function makes: the result of a list, one at a time in memory, and
sentences.
"""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.limits import SetLimits

from flwr_dpkmeans import FederatedKMeans
from flwr_dpkmeans.errors import ConfigurationError, DataError

OPTIONS: dict[str, Any] = {
    "bounds": (-1.0, 1.0),
    "noise": "seeded",
    "random_state": 3,
    "max_iter": 2,
}


ONCE = iter([np.zeros((n, 2)) for n in (3, 3, 4)])


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
    centers = model.fit(
        [table_of(client) for client in range(5)]
    ).cluster_centers_.tolist()
    listed = model.privacy_
    assert model.fit(clients=noted, n_clients=5).cluster_centers_.tolist() == centers
    assert model.privacy_ == listed


@pytest.mark.parametrize(
    ("given", "error", "told"),
    [
        ({"clients": table_of}, ConfigurationError, "n_clients is None, but it must"),
        ({"clients": table_of, "n_clients": 1}, ConfigurationError, "n_clients is 1,"),
        ({"n_clients": 3}, DataError, "clients must be a function"),
        (
            {"X": [table_of(0)], "clients": table_of, "n_clients": 3},
            DataError,
            "leave out X, y, groups",
        ),
        (
            {
                "clients": lambda i: np.full((3, 2), [np.nan, 0.0][i < 2]),
                "n_clients": 3,
            },
            DataError,
            r"^clients\[2\]: ",
        ),
        (
            {"clients": lambda i: np.zeros((3, 2 + i)), "n_clients": 3},
            DataError,
            r"clients\(1\) has 3 columns, clients\(0\) 2",
        ),
        (
            {"clients": lambda i: next(ONCE), "n_clients": 3},
            DataError,
            (
                r"^clients\(\d\) (has 4 rows, but had 3: make the same|raised"
                r" StopIteration: . It is called many)"
            ),
        ),
        (
            {"clients": lambda i: [np.zeros((3, 2))][i], "n_clients": 3},
            DataError,
            (
                r"^clients\(1\) raised IndexError: list index out of range. It is"
                r" called many times"
            ),
        ),
        (
            {
                "clients": lambda i: pd.DataFrame(
                    np.zeros((3, 2)), columns=list("abba"[2 * i :][:2])
                ),
                "n_clients": 2,
            },
            DataError,
            r"clients\(1\) has other columns than clients\(0\)",
        ),
    ],
)
def test_a_sentence_for_each_mistake(
    given: dict[str, Any], error: type[Exception], told: str
) -> None:
    with pytest.raises(error, match=told):
        FederatedKMeans(2, engine="direct", **OPTIONS | {"n_examples": 100}).fit(
            **given
        )


@pytest.mark.parametrize("shape", [(12, 3), (12, 1), (13, 2)])
def test_a_table_that_changes_during_a_fit_is_told_whenever_it_does(
    shape: tuple[int, int], set_limits: SetLimits
) -> None:
    set_limits(retained_bytes=0)
    # Where it passed, sums of two shapes met in NumPy, whose words name no client.
    seen, told = [0], []
    for changing in range(2, 12):
        seen[0] = 0

        def load(client: int, changing: int = changing) -> np.ndarray:
            seen[0] += client == 2
            return (
                np.zeros(shape)
                if client == 2 and seen[0] >= changing
                else table_of(client)
            )

        try:
            FederatedKMeans(2, algorithm="fastlloyd", engine="direct", **OPTIONS).fit(
                clients=load, n_clients=3
            )
        except DataError as error:
            told.append(str(error).startswith("clients(2) has "))
        if seen[0] < changing:
            break
    assert len(told) > 2
    assert all(told)
