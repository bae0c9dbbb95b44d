"""A budget over several fits of a notebook."""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import pickle
import signal
import warnings
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from joblib import parallel_config
from sklearn import clone
from sklearn.model_selection import GridSearchCV, RandomizedSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from support.asked_plans import gaussian_cost, room_for

from flwr_dpkmeans import (
    Budget,
    ClientLevel,
    DPKMeans,
    DPNaiveBayes,
    FederatedKMeans,
    FederatedNaiveBayes,
    federate,
)
from flwr_dpkmeans.errors import BudgetError, ConfigurationError
from flwr_dpkmeans.node.ledger_file import FileLedger
from flwr_dpkmeans.privacy.gaussian import gaussian_delta

DELTA = 1e-5
ROWS = np.random.default_rng(0).uniform(-1.0, 1.0, (3000, 2))
LABELS = (ROWS[:, 0] > 0.0).astype(int)
PARTS = np.split(ROWS, 3)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def one_table(epsilon: float = 0.5, **values: Any) -> DPKMeans:
    return DPKMeans(3, epsilon=epsilon, delta=DELTA, bounds=(-1, 1), **values)


def parties(epsilon: float = 0.5, **values: Any) -> FederatedKMeans:
    options: dict[str, Any] = {"engine": "direct", "bounds": (-1, 1), "delta": DELTA}
    return FederatedKMeans(3, epsilon=epsilon, **options | values)


FITS: dict[str, Callable[..., object]] = {
    "one table": lambda **more: one_table().fit(ROWS, **more),
    "parties": lambda **more: parties().fit(PARTS, **more),
    "naive Bayes": lambda **more: DPNaiveBayes(
        2, epsilon=0.5, delta=DELTA, bounds=(-1, 1)
    ).fit(ROWS, LABELS, **more),
    "parties' naive Bayes": lambda **more: FederatedNaiveBayes(
        2, epsilon=0.5, delta=DELTA, bounds=(-1, 1), engine="direct"
    ).fit(PARTS, np.split(LABELS, 3), **more),
    "a statistic": lambda **more: federate(
        "moments", PARTS, bounds=(-1, 1), epsilon=0.5, delta=DELTA, engine="direct",
        **more,
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", FITS)
def test_every_estimator_is_counted_as_context_and_as_argument(kind: str) -> None:
    budget = Budget(3.0, DELTA)
    with budget:
        FITS[kind]()
    assert budget.n_fits == 1
    assert budget.spent == pytest.approx(0.5, rel=1e-3)
    FITS[kind](budget=budget)
    assert budget.n_fits == 2
    with budget:
        # Once, where it is both.
        FITS[kind](budget=budget)
    assert budget.n_fits == 3
    FITS[kind]()
    assert budget.n_fits == 3


def test_ten_fits_refuse_the_one_that_would_exceed_before_noise_is_drawn() -> None:
    """By an independent sum of squares at most nine fit."""
    budget = Budget(room_for(9.5, 0.5, DELTA), DELTA)
    mu = gaussian_cost(0.5, DELTA).mu
    with budget:
        for _ in range(9):
            model = one_table().fit(ROWS)
        n_fits, centers = budget.n_fits, model.cluster_centers_.copy()
        with pytest.raises(BudgetError, match=r"this fit can cost epsilon 0\.5, but 9"):
            model.fit(ROWS)
    assert budget.n_fits == n_fits == 9
    # Nothing was computed.
    assert np.array_equal(model.cluster_centers_, centers)
    assert gaussian_delta(budget.spent, 3.0 * mu) == pytest.approx(DELTA, rel=1e-3)
    assert 2.5 * budget.spent < 9 * 0.5
    # What is left is what one more may cost.
    with budget:
        one_table(epsilon=budget.left * 0.999).fit(ROWS)
        with pytest.raises(BudgetError):
            one_table(epsilon=0.1).fit(ROWS)


def test_noise_of_a_fit_that_is_refused_is_not_drawn() -> None:
    budget = Budget(0.4, DELTA)
    model = parties(engine="inprocess")
    with pytest.raises(BudgetError, match=r"may cost 0\.4"):
        model.fit(PARTS, budget=budget)
    assert not hasattr(model, "privacy_")
    assert budget.n_fits == 0


def test_messages_may_be_repeated_and_are_charged_so() -> None:
    """In one process without messages nothing is repeated."""
    direct, messages = Budget(3.0, DELTA), Budget(3.0, DELTA)
    parties().fit(PARTS, budget=direct)
    model = parties(engine="inprocess").fit(PARTS, budget=messages)
    assert direct.spent == pytest.approx(0.5, rel=1e-3)
    assert messages.spent == pytest.approx(model.privacy_.epsilon_worst_case, rel=1e-3)


def test_two_budgets_are_charged_both_or_neither() -> None:
    wide, narrow = Budget(3.0, DELTA), Budget(0.4, DELTA)
    with wide, pytest.raises(BudgetError):
        one_table().fit(ROWS, budget=narrow)
    assert (wide.n_fits, narrow.n_fits) == (0, 0)
    other = Budget(3.0, DELTA)
    with wide, other:
        one_table().fit(ROWS)
    assert (wide.n_fits, other.n_fits) == (1, 1)


@pytest.mark.parametrize(
    "values", [{"algorithm": "lloyd"}, {"noise": "seeded", "random_state": 1}]
)
def test_what_is_not_private_has_no_room(values: dict[str, Any]) -> None:
    budget = Budget(1e3, DELTA)
    with budget, pytest.raises(BudgetError, match=r"inf.* noise without a seed"):
        one_table(**values).fit(ROWS)


def test_units_are_never_added_up() -> None:
    budget = Budget(8.0, 1e-2)
    with budget:
        one_table().fit(ROWS)
        clients = [ROWS[i : i + 10] for i in range(0, 600, 10)]
        model = parties(2.0, unit=ClientLevel(examples_per_client=10), delta=1e-3)
        with pytest.raises(ConfigurationError, match=r"each client, but .* each"):
            model.fit(clients)
    assert budget.n_fits == 1


def test_a_fit_alone_may_take_all_and_no_other_follows() -> None:
    """Laplace noise alone: its Gaussian conversion is beyond the total."""
    budget = Budget(0.5, DELTA)
    with budget:
        DPKMeans(3, epsilon=0.5, delta=0.0, algorithm="sulloyd", bounds=(-1, 1)).fit(
            ROWS
        )
        with pytest.raises(BudgetError):
            one_table(0.01).fit(ROWS)


# -- searches --------------------------------------------------------------------------


def search() -> GridSearchCV:
    grid = {"n_clusters": [2, 3, 4], "algorithm": ["fastlloyd", "proxy_lloyd"]}
    return GridSearchCV(one_table(0.1), grid, cv=3)


def test_a_search_says_beforehand_what_it_costs_and_then_costs_that() -> None:
    budget = Budget(3.0, DELTA)
    one_table(0.3).fit(ROWS, budget=budget)
    before = budget.spent
    cost = budget.search_cost(search(), ROWS)
    assert (cost.n_fits, cost.fits, budget.n_fits) == (19, True, 1)
    assert budget.spent == before
    expected = room_for(19, 0.1, DELTA)
    assert cost.epsilon == pytest.approx(expected, rel=1e-3)
    with budget:
        search().fit(ROWS)
    assert budget.n_fits == 20
    assert budget.spent == pytest.approx(cost.epsilon_after, rel=1e-6)
    again = budget.search_cost(search(), ROWS)
    assert str(again).startswith("19 fits cost epsilon 0.4")
    small = Budget(0.3, DELTA)
    assert "does NOT fit into 0.3" in str(small.search_cost(search(), ROWS))


@pytest.mark.parametrize("refit", [True, False])
def test_parties_and_pipelines_are_searched_by_tables(refit: bool) -> None:
    budget = Budget(3.0, DELTA)
    tables = np.split(ROWS, 6)
    trial = GridSearchCV(parties(0.1), {"n_clusters": [2, 3]}, cv=2, refit=refit)
    cost = budget.search_cost(trial, tables)
    assert cost.n_fits == 4 + refit
    trial.fit(tables, budget=budget)
    assert budget.n_fits == cost.n_fits
    pipeline = make_pipeline(FunctionTransformer(), one_table(0.1))
    assert budget.search_cost(pipeline, ROWS).n_fits == 1
    chances = {"n_clusters": [2, 3, 4]}
    random = RandomizedSearchCV(one_table(0.1), chances, n_iter=2, cv=2)
    with pytest.raises(ConfigurationError, match="nobody knows its candidates"):
        budget.search_cost(random, ROWS)
    random.random_state = 0
    assert budget.search_cost(random, ROWS).n_fits == 5


def test_other_processes_are_no_way_around_a_budget(tmp_path: Path) -> None:
    with Budget(3.0, DELTA) as budget, pytest.raises(ConfigurationError) as caught:
        pickle.dumps(one_table())
    assert "search with n_jobs=1, or give fit its argument budget=" in str(caught.value)
    with pytest.raises(ConfigurationError, match="without a path"):
        pickle.dumps(budget)
    assert deepcopy(budget) is budget
    # A model that is fitted may be stored.
    with budget:
        pickle.dumps(one_table().fit(ROWS))
    path = tmp_path / "budget.jsonl"
    shared = pickle.loads(pickle.dumps(Budget(3.0, DELTA, path)))
    search().fit(ROWS, budget=shared)
    assert Budget(3.0, DELTA, path).n_fits == 19


@pytest.mark.nightly
@pytest.mark.parametrize("backend", ["loky", "threading", "multiprocessing"])
def test_a_search_of_several_jobs_is_counted_or_refused(
    tmp_path: Path, backend: str
) -> None:
    two = clone(search()).set_params(n_jobs=2)
    budget = Budget(3.0, DELTA)
    with budget, parallel_config(backend, n_jobs=2):
        if backend == "threading":
            two.fit(ROWS)
        else:
            # loky hides the sentence behind an error of its own.
            with pytest.raises((ConfigurationError, pickle.PicklingError)):
                two.fit(ROWS)
    assert budget.n_fits == (19 if backend == "threading" else 0)
    shared = Budget(3.0, DELTA, tmp_path / "budget.jsonl")
    with parallel_config(backend, n_jobs=2):
        two.fit(ROWS, budget=shared)
    assert shared.n_fits == 19


# -- files -----------------------------------------------------------------------------


def test_a_file_is_read_again_and_keeps_its_total(tmp_path: Path) -> None:
    path = tmp_path / "budget.jsonl"
    first = Budget(1.2, DELTA, path)
    one_table().fit(ROWS, budget=first)
    again = pickle.loads(pickle.dumps(Budget(1.2, DELTA, path)))
    assert (again.n_fits, again.spent) == (1, first.spent)
    one_table().fit(ROWS, budget=again)
    # Each sees what the other was charged.
    assert first.n_fits == again.n_fits == 2
    with pytest.raises(ConfigurationError, match=r"was begun with epsilon 1\.2"):
        Budget(9.0, DELTA, path)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["unit"] for line in lines] == ["record", "record"]


def spend(path: Path, start: Any, results: Any) -> None:
    budget = Budget(1.0, DELTA, path)
    start.wait()
    n_fits = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        while True:
            try:
                one_table(0.4).fit(ROWS, budget=budget)
            except BudgetError:
                break
            n_fits += 1
    results.put(n_fits)


def test_two_processes_at_once_never_exceed_it(tmp_path: Path) -> None:
    path = tmp_path / "budget.jsonl"
    context = multiprocessing.get_context("spawn")
    start, results = context.Barrier(2), context.Queue()
    children = [
        context.Process(target=spend, args=(path, start, results)) for _ in range(2)
    ]
    for child in children:
        child.start()
    n_fits = results.get(timeout=120) + results.get(timeout=120)
    for child in children:
        child.join(120)
    mu = gaussian_cost(0.4, DELTA).mu
    most = (gaussian_cost(1.0, 0.99 * DELTA).mu / mu) ** 2
    assert n_fits == math.floor(most) == Budget(1.0, DELTA, path).n_fits


def die_after(path: Path, n_fits: int) -> None:
    """Fit, and be killed between a charge and the next noise."""
    budget = Budget(3.0, DELTA, path)
    for _ in range(n_fits):
        one_table().fit(ROWS, budget=budget)
    original = budget._ledger.charge

    class Killed(FileLedger):
        def charge(self, *arguments: Any) -> None:
            original(*arguments)
            os.kill(os.getpid(), signal.SIGKILL)

    budget._ledger = Killed(path)
    one_table().fit(ROWS, budget=budget)


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs signals")
def test_a_fit_that_is_killed_after_its_charge_has_paid_once(tmp_path: Path) -> None:
    path = tmp_path / "budget.jsonl"
    context = multiprocessing.get_context("spawn")
    child = context.Process(target=die_after, args=(path, 1))
    child.start()
    child.join(120)
    assert child.exitcode == -signal.SIGKILL
    budget = Budget(3.0, DELTA, path)
    assert budget.n_fits == 2
    one_table().fit(ROWS, budget=budget)
    assert budget.n_fits == 3


@pytest.mark.parametrize(
    ("epsilon", "delta", "share"),
    [(0.0, 1e-5, 0.01), (math.inf, 1e-5, 0.01), (1.0, 1.0, 0.01), (1.0, 1e-5, 0.0)],
)
def test_a_total_is_a_number(epsilon: float, delta: float, share: float) -> None:
    with pytest.raises(ConfigurationError, match="but it must be"):
        Budget(epsilon, delta, own_share=share)


def test_choosing_k_is_counted_too() -> None:
    points = np.random.default_rng(1).uniform(-1.0, 1.0, (200, 2))
    model = parties(algorithm="feddp_kmeans", server_data=points, trust="distributed")
    with Budget(3.0, DELTA) as budget:
        model.choose_k(PARTS, 4)
    assert budget.n_fits == 1
