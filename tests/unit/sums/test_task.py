"""What a task and a run answer without an algorithm, and the public facts that rounds
are computed from.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from flwr_dpkmeans.errors import ConfigurationError, PlanError
from flwr_dpkmeans.options import parse_config
from flwr_dpkmeans.privacy.closeness import SAME
from flwr_dpkmeans.sums.config import RunConfig
from flwr_dpkmeans.sums.option_rules import Options, whole
from flwr_dpkmeans.sums.public_facts import MAX_SERVER_POINTS, PublicFacts, ServerFacts
from flwr_dpkmeans.sums.round import Algorithm, State
from flwr_dpkmeans.sums.settings import Settings
from flwr_dpkmeans.sums.task import Task

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

    def build(self, public: PublicFacts) -> Algorithm:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("n_points", "centre", "sentence"),
    [
        (0, (1.0, -1.0, 2.0**-16, 3 * 2.0**-16), None),
        (MAX_SERVER_POINTS, (), None),
        (MAX_SERVER_POINTS + 1, (),
         "the server has 131073 points, but at most 131072 can be weighted"),
        (-1, (), "not on the grid"),
        (5, (0.0, 1.0 + 2.0**-16), "not on the grid"),
        (5, (-1.0 - 2.0**-16, 0.0), "not on the grid"),
        (5, (0.0, 2.0**-17), "not on the grid"),
        (5, (math.nan,), "not on the grid"),
    ],
)  # fmt: skip
def test_the_servers_centre_is_on_the_grid_inside_the_box(
    n_points: int, centre: tuple[float, ...], sentence: str | None
) -> None:
    if sentence is None:
        assert ServerFacts(n_points, centre, 1.0, 1.0).centre == centre
    else:
        with pytest.raises(ConfigurationError, match=sentence):
            ServerFacts(n_points, centre, 1.0, 1.0)


def known_of(
    n_examples: int | None = 800, multiplier: float | None = None, **values: Any
) -> PublicFacts:
    settings = {
        "algorithm": "glloyd", "n_clusters": 2, "bounds": BOX, "n_examples": None,
    }  # fmt: skip
    config = parse_config(**(settings | values))
    return PublicFacts(config, n_examples, 2, 1e-6, multiplier, SAME, 16, n_clients=20)


def test_whether_rows_were_counted_and_how_many_units_there_are() -> None:
    assert known_of().counted
    assert not known_of(n_examples=None).counted
    declared = replace(known_of(), config=known_of().config.changed(n_examples=800))
    assert not declared.counted
    assert declared.n_units == declared.required_n_examples == 800
    by_client = {"algorithm": "proxy_lloyd", "unit": "client", "trust": "central"}
    assert (
        known_of(**by_client).n_units,
        known_of(**by_client, client_sampling_rate=0.25).n_units,
    ) == (20.0, 5.0)
    with pytest.raises(PlanError, match="'glloyd' needs the number of rows: declare"):
        _ = known_of(n_examples=None).n_units


def test_a_task_that_says_nothing_has_defaults() -> None:
    task, settings = Bare(), Settings(bounds=BOX, n_examples=1)
    task.check(settings)
    assert (Bare.option_class(), Bare.parameter_names()) == (BareOptions, ("breadth",))
    assert (task.max_rounds, task.tolerance, task.least_rows) == (None, None, 1)
    assert task.counted_examples(0.4) == task.counted_examples(1.4) == 1
    assert task.why_rows == "'bare' needs at least 1: add data."
    config: Any = SimpleNamespace(settings=Settings(bounds=BOX))
    assert task.preliminary(config, 1e-6, 2) == ()
    task.require_box(config, None, 2)
    with pytest.raises(PlanError, match="the plan has a box besides its declared"):
        task.require_box(config, BOX, 2)
    for make in (task.evaluation, task.profile):
        with pytest.raises(ConfigurationError, match="'bare' has none: leave"):
            make(config, 2.0)
    assert task.result(config, State({"mean": np.ones(1)}))["mean"].tolist() == [1.0]


def test_options_of_a_run_are_read_and_changed_by_their_flat_names() -> None:
    run = RunConfig(
        Settings(bounds=BOX, epsilon=2.0, random_state=5),
        Bare(breadth=6, options=BareOptions(depth=3)),
    )
    assert (run.epsilon, run.breadth, run.depth, run.algorithm) == (2.0, 6, 3, "bare")
    other = run.changed(epsilon=0.5, breadth=7, depth=9)
    assert (other.epsilon, other.breadth, other.depth, other.random_state) == (
        0.5, 7, 9, 5,
    )  # fmt: skip
    assert (run.epsilon, run.unseeded.random_state, run.unseeded.epsilon) == (
        2.0,
        None,
        2.0,
    )
    assert run.changed(random_state=6).unseeded == run.unseeded
    assert copy.deepcopy(run) == run
    for name in ("alpha", "_private", "__dataclass_params"):
        with pytest.raises(AttributeError, match=f"this run has no option '{name}'"):
            getattr(run, name)
    with pytest.raises(TypeError, match="alpha"):
        run.changed(alpha=1.0)
