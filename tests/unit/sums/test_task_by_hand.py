"""What a task and a run answer without an algorithm, and the public facts that rounds are computed from."""

from __future__ import annotations

import copy
import hashlib
import math
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr

from flwr_dpkmeans.errors import ConfigurationError, PlanError, ProtocolError
from flwr_dpkmeans.options import parse_config
from flwr_dpkmeans.privacy.noise import SAME
from flwr_dpkmeans.privacy.release import GaussianRelease, PrivacyUnit
from flwr_dpkmeans.sums.round import Algorithm, State
from flwr_dpkmeans.sums.settings import Evaluation, Options, Settings, whole
from flwr_dpkmeans.sums.task import (
    CLIP_BOUNDS,
    MAX_SERVER_POINTS,
    Found,
    Known,
    Registry,
    Run,
    ServerData,
    ServerFacts,
    Task,
    _read,
)

BOX = ((-1.0,), (1.0,))


@dataclass(frozen=True)
class BareOptions(Options):
    depth: int = whole(2, 1, 2, "of nothing")


@dataclass(frozen=True, kw_only=True)
class Bare(Task):
    """All defaults."""

    name = "bare"
    options: BareOptions = BareOptions()
    breadth: int = 4

    def build(self, known: Known) -> Algorithm:
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Needy(Bare):
    """It needs rows, and a thousand of them."""

    needs_n_examples = True
    least_rows = 1000  # type: ignore[assignment]


def test_a_registry_has_what_was_added_once() -> None:
    registry: Registry[str] = Registry("nobody.offers.this", "colour")
    registry.add("red", one := "a warm one")
    registry.add("red", one)
    with pytest.raises(ConfigurationError, match="'red' is registered already"):
        registry.add("red", "another one")
    assert (registry.find("red"), registry["red"], list(registry), len(registry)) == (one, one, ["red"], 1)
    for others, meant in (((), "red"), (("reed",), "reed")):
        with pytest.raises(ConfigurationError, match=f"colour is 'reedd', which is not known: did you mean '{meant}'"):
            registry.find("reedd", *others)


@pytest.mark.parametrize("name", CLIP_BOUNDS)
def test_bounds_of_the_server_are_positive_and_finite(name: str) -> None:
    facts = {"n_points": 1, "centre": (0.0,), "data_radius": 1.0, "outer_product_bound": 1.0}
    assert getattr(ServerFacts(**facts | {name: 5e-324}), name) == 5e-324  # type: ignore[arg-type]
    for value in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(ConfigurationError, match=f"{name} is {value!r}, but it must be positive and finite"):
            ServerFacts(**facts | {name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("n_points", "centre", "sentence"),
    [
        (0, (1.0, -1.0, 2.0**-16, 3 * 2.0**-16), None),
        (MAX_SERVER_POINTS, (), None),
        (MAX_SERVER_POINTS + 1, (), "the server has 131073 points, but at most 131072 can be weighted"),
        (-1, (), "not on the grid"),
        (5, (0.0, 1.0 + 2.0**-16), "not on the grid"),
        (5, (-1.0 - 2.0**-16, 0.0), "not on the grid"),
        (5, (0.0, 2.0**-17), "not on the grid"),
        (5, (math.nan,), "not on the grid"),
    ],
)
def test_the_servers_centre_is_on_the_grid_inside_the_box(
    n_points: int, centre: tuple[float, ...], sentence: str | None
) -> None:
    if sentence is None:
        assert ServerFacts(n_points, centre, 1.0, 1.0).centre == centre
    else:
        with pytest.raises(ConfigurationError, match=sentence):
            ServerFacts(n_points, centre, 1.0, 1.0)


def known_of(n_examples: int | None = 800, multiplier: float | None = None, **values: Any) -> Known:
    settings = {"algorithm": "glloyd", "n_clusters": 2, "bounds": BOX, "n_examples": None}
    config = parse_config(**(settings | values))
    return Known(config, n_examples, 2, 1e-6, multiplier, SAME, 16, n_clients=20)


def test_whether_rows_were_counted_and_how_many_units_there_are() -> None:
    assert known_of().counted
    assert not known_of(n_examples=None).counted
    declared = replace(known_of(), config=known_of().config.changed(n_examples=800))
    assert not declared.counted
    assert declared.n_units == declared.known_n_examples == 800
    by_client = {"algorithm": "proxy_lloyd", "unit": "client", "trust": "central"}
    assert (known_of(**by_client).n_units, known_of(**by_client, client_sampling_rate=0.25).n_units) == (20.0, 5.0)
    with pytest.raises(PlanError, match="'glloyd' needs the number of rows: declare n_examples"):
        _ = known_of(n_examples=None).n_units


def gaussian_multiplier(epsilon: float, delta: float) -> float:
    """Of the Gaussian mechanism that is (epsilon, delta)-DP (Balle and Wang 2018, Theorem 8)."""

    def excess(sigma: float) -> float:
        a, b = 0.5 / sigma - epsilon * sigma, -0.5 / sigma - epsilon * sigma
        return float(ndtr(a) - math.exp(epsilon + log_ndtr(b))) - delta

    return float(brentq(excess, 0.1, 100.0, xtol=1e-13))


def test_what_other_releases_leave_of_the_budget() -> None:
    """Squared reciprocals add up: of 1 a release of 2^.5 times the noise takes one half, one of 5^.5 a fifth."""
    whole_budget = gaussian_multiplier(1.0, 1e-6)
    assert known_of().calibrate(lambda multiplier: SAME) == pytest.approx(whole_budget, rel=1e-6)
    for part in (0.5, 0.2):
        found = known_of(multiplier=whole_budget / math.sqrt(part)).calibrate(lambda multiplier: SAME)
        assert found == pytest.approx(whole_budget / math.sqrt(1.0 - part), rel=1e-5)
    exactly = known_of().calibrate(lambda multiplier: SAME)
    for taken in (exactly, 0.9 * exactly):
        with pytest.raises(PlanError, match="the other releases take the whole budget: lower their shares"):
            known_of(multiplier=taken).calibrate(lambda multiplier: SAME)


def test_other_releases_are_one_and_those_over_a_sample() -> None:
    sampled = (GaussianRelease("evaluation", 3.0, SAME, 0.5),)
    assert replace(known_of(), sampled=sampled).released_events() == sampled
    other = GaussianRelease("other releases", 4.0, SAME)
    assert replace(known_of(multiplier=4.0), sampled=sampled).released_events() == (other, *sampled)


def test_a_digest_of_what_was_found_covers_rows_and_box() -> None:
    box = ((0.0,), (0.5,))
    assert Found(7, box).digest() == hashlib.sha256(b"(7, ((0.0,), (0.5,)))").digest()
    assert Found(7, box, (0,)).digest() == Found(7, box).digest()
    assert len({Found(7, box).digest(), Found(8, box).digest(), Found(7).digest(), Found().digest()}) == 4


def test_a_task_that_says_nothing_has_defaults() -> None:
    task, settings = Bare(), Settings(bounds=BOX, n_examples=1)
    task.check(settings)
    assert (Bare.option_class(), Bare.own_fields()) == (BareOptions, ("breadth",))
    assert (task.max_rounds, task.tolerance, task.least_rows) == (None, None, 1)
    assert task.counted_examples(0.4) == task.counted_examples(1.4) == 1
    assert task.why_rows == "'bare' needs at least 1: add data."
    config: Any = SimpleNamespace(settings=Settings(bounds=BOX))
    assert task.preliminary(config, 1e-6, 2) == ()
    task.require_box(config, None, 2)
    with pytest.raises(PlanError, match="the plan has a box besides its declared bounds"):
        task.require_box(config, BOX, 2)
    for make in (task.evaluation, task.profile):
        with pytest.raises(ConfigurationError, match="'bare' has none: leave"):
            make(config, 2.0)
    assert task.result(config, State({"mean": np.ones(1)}))["mean"].tolist() == [1.0]


@pytest.mark.parametrize(
    ("needs", "alike", "unit", "counts"),
    [
        (True, True, PrivacyUnit.RECORD, True),
        (True, True, PrivacyUnit.CLIENT, False),
        (True, False, PrivacyUnit.CLIENT, True),
        (False, False, PrivacyUnit.RECORD, False),
        (False, True, PrivacyUnit.CLIENT, False),
    ],
)
def test_where_the_number_of_rows_must_be_known(needs: bool, alike: bool, unit: PrivacyUnit, counts: bool) -> None:
    kind = type("Kind", (Bare,), {"needs_n_examples": needs, "weighs_clients_alike": alike})
    assert kind.counts(unit) is counts


@pytest.mark.parametrize("use", ServerData)
@pytest.mark.parametrize("given", [True, False])
def test_points_that_may_stay_on_the_server_ask_for_a_model_that_leaves_them_there(
    use: ServerData, given: bool
) -> None:
    kind = type("Kind", (Bare,), {"server_data": use, "trust": "central"})
    expected = "distributed" if given and use is ServerData.OPTIONAL else "central"
    assert kind.default_trust(has_server_data=given) == expected


@pytest.mark.parametrize(("evaluation", "n_classes"), [("none", 0), ("private", 3), ("exact", 3)])
def test_classes_are_looked_at_where_there_is_an_evaluation(evaluation: str, n_classes: int) -> None:
    assert Bare().n_classes(Settings(bounds=BOX, n_classes=3, evaluation=Evaluation(evaluation))) == n_classes


@pytest.mark.parametrize("values", [{"private_bounds": True, "n_examples": 1000}, {}])
def test_a_task_that_finds_no_bounds_and_counts_no_rows_is_told_both(values: dict[str, Any]) -> None:
    needy, declared = Needy(), Settings(bounds=BOX, n_examples=1000)
    needy.check(declared)
    needy.check(Settings(bounds=BOX))
    with pytest.raises(ConfigurationError, match="n_examples is 999, but 'bare' needs at least 1000: add data"):
        needy.check(replace(declared, n_examples=999))
    assert needy.counted_examples(999.6) == 1000
    with pytest.raises(PlanError, match="found about 999 rows, but 'bare' needs at least 1000: add data"):
        needy.counted_examples(999.4)
    config: Any = SimpleNamespace(settings=declared)
    assert needy.preliminary(config, 1e-6, 2) == ()
    config.settings = Settings(bounds=BOX, **values)
    with pytest.raises(ConfigurationError, match="or rows are to be counted, but 'bare' does not find them"):
        needy.preliminary(config, 1e-6, 2)


@pytest.mark.parametrize(
    ("reads", "arrays", "allowed", "admitted"),
    [
        (("points",), ("points", "centroids"), None, True),
        (("points",), ("points",), True, True),
        (("points",), ("points",), False, False),
        (("points",), (), True, False),
        ((), ("points",), None, False),
        ((), ("counts",), None, True),
    ],
)
def test_a_state_has_what_a_round_reads_and_nothing_else(
    reads: tuple[str, ...], arrays: tuple[str, ...], allowed: bool | None, admitted: bool
) -> None:
    step: Any = SimpleNamespace(reads=reads, admits=None if allowed is None else lambda state: allowed)
    state, plan = State({name: np.zeros(1) for name in arrays}), SimpleNamespace()
    assert Bare().admits(plan, step, state) is admitted  # type: ignore[arg-type]
    assert Bare().admits(plan, None, state) is True  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [None, 3, "glloyd", [], {}, {"name": 7}, {"n_clusters": 2}])
def test_what_has_no_name_is_no_task(value: Any) -> None:
    with pytest.raises(ValueError, match="a task has a name"):
        _read(value)
    with pytest.raises(ProtocolError, match=r"the plan computes 'x{60}', which is not known here"):
        _read({"name": "x" * 61})


def test_options_of_a_run_are_read_and_changed_by_their_flat_names() -> None:
    run = Run(Settings(bounds=BOX, epsilon=2.0, random_state=5), Bare(breadth=6, options=BareOptions(depth=3)))
    assert (run.epsilon, run.breadth, run.depth, run.algorithm) == (2.0, 6, 3, "bare")
    other = run.changed(epsilon=0.5, breadth=7, depth=9)
    assert (other.epsilon, other.breadth, other.depth, other.random_state) == (0.5, 7, 9, 5)
    assert (run.epsilon, run.unseeded.random_state, run.unseeded.epsilon) == (2.0, None, 2.0)
    assert run.changed(random_state=6).unseeded == run.unseeded
    assert copy.deepcopy(run) == run
    for name in ("alpha", "_private", "__dataclass_params"):
        with pytest.raises(AttributeError, match=f"this run has no option '{name}'"):
            getattr(run, name)
    with pytest.raises(TypeError, match="alpha"):
        run.changed(alpha=1.0)
