"""One contract for virtual clients that answer together.

Whatever the algorithm, the unit and who adds noise, a client of a group answers and
remembers, bit for bit, what a `Client` of its own does with the same memory. Where rows
have weights of their own, such as persons' have, no group sums them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from test_contract import FEDDP_FAMILY, FITS, LOWER, UPPER, Case, estimator

from flwr_dpkmeans.algorithms.first_plan import first_plan
from flwr_dpkmeans.algorithms.server.box_units import in_box, plan_bounds
from flwr_dpkmeans.flower.strategy import PrivateKMeans
from flwr_dpkmeans.resources import ResourceLimits, resource_limits
from flwr_dpkmeans.secagg.messages import Stage
from flwr_dpkmeans.secagg.party import Party, changed
from flwr_dpkmeans.secagg.retry import Retry
from flwr_dpkmeans.sums.client import Client, Memory
from flwr_dpkmeans.sums.local import LocalRun
from flwr_dpkmeans.sums.persons.counted_persons import Persons
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.settings import Dropout
from flwr_dpkmeans.sums.virtual.cohort import Asked, answers_together
from flwr_dpkmeans.sums.virtual.virtual_client import Virtual
from flwr_dpkmeans.sums.wire import Answer, Reply, Request

N_FEATURES = 3
SIZES = (7, 0, 1, 40, 12, 0, 3, 25, 9, 5, 30, 18, 2)
"""Rows of each client."""
FEW_NUMBERS = ResourceLimits(table_bytes=8 * 150)
"""Of the rows or vectors of a group, so that there are several groups."""
RECORD = [case for case in FITS if case[2] == "record"]
DRAWN = ("private_key", "public_key", "own_group_key", "group_keys", "tag_key")
"""What a client draws afresh, or follows from that."""


def table_of(n_rows: int) -> NDArray[np.float64]:
    generator = np.random.default_rng(n_rows)
    middles = np.array([[-0.6], [0.1], [1.2]])
    labels = generator.integers(len(middles), size=n_rows)
    noise = generator.normal(0.0, 0.2, (n_rows, N_FEATURES))
    return np.clip(middles[labels] + noise, LOWER, UPPER)


def scale(plan: Plan, points: Any) -> Any:
    return in_box(plan_bounds(plan, N_FEATURES), points, plan.fraction_bits)


class Compared(LocalRun):
    """Asks whoever answered in a group once more, by itself."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.vectors: list[list[int]] = []
        self.watch_vector = lambda vector: self.vectors.append(vector.tolist())
        self.stages: dict[Stage, int] = dict.fromkeys(Stage, 0)
        """How many answers of each came from a group."""

    def ask(self, node: int, request: Request) -> Answer:
        before = self.memories.get(node)
        is_of_group = node in self._answered
        answer = super().ask(node, request)
        if is_of_group:
            self.stages[request.stage] += 1
            memory, reply, vectors = self.alone(node, request, before)
            is_new = before is None or before.party.attempt < 0
            skipped = DRAWN if is_new else ()
            after = self.memories[node]
            assert remembered(after, skipped) == remembered(memory, skipped)
            together = answer(request.stage, node)
            assert isinstance(together, type(reply))
            drawn = after.party.own_group_key if is_new else b""
            assert said(together, drawn, skipped) == said(reply, drawn, skipped)
            assert all(vector in self.vectors for vector in vectors)
        return answer

    def alone(
        self, node: int, request: Request, before: Memory | None
    ) -> tuple[Memory, Reply, list[list[int]]]:
        """What a client of its own does, that shares nothing with its peers."""
        if before is not None:
            before = changed(before, party=unpaired(before.party))
        virtual = Virtual(self, node)
        vectors: list[list[int]] = []
        client = Client(
            virtual,
            virtual,
            before,
            watch=lambda vector: vectors.append(vector.tolist()),
        )
        memory, reply = client.handle(request)
        assert memory is not None
        return memory, reply, vectors


def unpaired(party: Party) -> Party:
    fields = dict(vars(party))
    if fields.pop("awaited", None) is None:
        return party
    return Retry(**fields)


def comparable(value: object) -> object:
    """Arrays and states by their bits."""
    if hasattr(value, "digest") and not callable(value.digest):
        return value.digest
    if hasattr(value, "values") and not callable(value.values):
        return value.values.tolist()
    return value


def remembered(memory: Memory, skipped: tuple[str, ...]) -> dict[str, object]:
    fields = dict(vars(memory))
    fields.update(vars(unpaired(fields.pop("party"))))
    return {
        name: comparable(value) for name, value in fields.items() if name not in skipped
    }


def said(reply: Reply, drawn_key: bytes, skipped: tuple[str, ...]) -> dict[str, object]:
    """A reply, but for what a group key hides that was drawn for it."""
    fields = {
        name: comparable(value)
        for name, value in vars(reply).items()
        if name not in skipped
    }
    if drawn_key:
        fields["masked"] = ""
        boxes: Any = fields["boxes"]
        fields["boxes"] = sorted(boxes)
    return fields


class MadeAnew(Sequence[Any]):
    """Tables that are counted whenever they are looked at."""

    def __init__(self) -> None:
        self.looks: Counter[int] = Counter()

    def __len__(self) -> int:
        return len(SIZES)

    def __getitem__(self, index: Any) -> Any:
        self.looks[index] += 1
        return table_of(SIZES[index])


def run_of(
    case: Case,
    *,
    masking: bool = True,
    kind: type[Compared] = Compared,
    parts: Sequence[Any] | None = None,
    persons: Sequence[Persons] | None = None,
    **values: Any,
) -> Compared:
    given = estimator(case).get_params(deep=False)
    points = given["server_data"]
    others = ("engine", "n_clients", "server_data", "n_examples", "masking")
    options = {name: value for name, value in given.items() if name not in others}
    config = PrivateKMeans(
        server_data=points,
        n_features=N_FEATURES,
        **{"n_examples": sum(SIZES), **options, **values},
    ).config
    config = config.changed(dropout=Dropout.undisturbed(), masking=masking)
    plan, on_server = first_plan(
        config, points, run_id=9, n_clients=len(SIZES), n_features=N_FEATURES
    )
    if parts is None:
        parts = [table_of(n_rows) for n_rows in SIZES]
    return kind(
        plan,
        parts,
        scale=scale,
        server_points=on_server,
        persons=persons,
    )


def played(case: Case, **values: Any) -> Compared:
    return in_groups(run_of(case, **values))


def in_groups(run: Compared) -> Compared:
    with resource_limits(FEW_NUMBERS):
        return run.play()


@pytest.mark.filterwarnings("ignore::flwr_dpkmeans.errors.PrivacyWarning")
@pytest.mark.parametrize("masking", [True, False])
@pytest.mark.parametrize("case", FITS, ids="-".join)
def test_a_client_of_a_group_answers_what_it_would_alone(
    case: Case, masking: bool
) -> None:
    run = played(case, masking=masking)
    assert run.stages[Stage.KEYS] == run.stages[Stage.FINISH] == len(SIZES)
    # All but the largest tables, of which each is a group.
    algorithm, *_ = case
    if algorithm in FEDDP_FAMILY:
        assert run.stages[Stage.SUM] >= run.plan.last_round * len(SIZES) // 2
    else:
        assert run.stages[Stage.SUM] == 0


def persons_of(n_rows: int) -> Persons:
    """Of a client of so many rows: persons with up to four of them, in no order."""
    generator = np.random.default_rng(n_rows)
    numbers = generator.integers(0, max(1, n_rows // 2), n_rows)
    return Persons(np.stack([numbers + 1.0, np.zeros(n_rows)], axis=1))


def run_of_persons(case: Case, **values: Any) -> Compared:
    algorithm, trust, _, kind = case
    persons = [persons_of(n_rows) for n_rows in SIZES]
    n_persons = sum(of_client.n_persons for of_client in persons)
    return run_of(
        (algorithm, trust, "person", kind),
        persons=persons,
        n_examples=n_persons,
        **values,
    )


@pytest.mark.filterwarnings("ignore::flwr_dpkmeans.errors.PrivacyWarning")
@pytest.mark.parametrize("rows_per_person", [None, 1])
@pytest.mark.parametrize("case", RECORD, ids="-".join)
def test_where_rows_are_weighed_each_client_sums_alone(
    case: Case, rows_per_person: int | None
) -> None:
    run = in_groups(run_of_persons(case, rows_per_person=rows_per_person))
    assert run.stages[Stage.SUM] == 0
    assert run.stages[Stage.KEYS] == run.stages[Stage.FINISH] == len(SIZES)


@pytest.mark.filterwarnings("ignore::flwr_dpkmeans.errors.PrivacyWarning")
@pytest.mark.parametrize("rows", ["of persons", "alike"])
def test_a_group_has_no_answers_where_rows_are_weighed(rows: str) -> None:
    """Whoever makes groups, and however large."""
    case = ("feddp_kmeans", "distributed", "record", "gaussian")
    run = run_of_persons(case) if rows == "of persons" else run_of(case)
    while run.due is not Stage.SUM:
        run.take((node, run.ask(node, request)) for node, request in run.requests())
    group = [Asked(Virtual(run, node), request) for node, request in run.requests()]
    answers = answers_together(run, group)
    assert len(answers) == (0 if rows == "of persons" else len(SIZES))


VARIANTS: dict[str, tuple[Case, dict[str, Any]]] = {
    "Lloyd rounds": (
        ("feddp_kmeans", "distributed", "record", "gaussian"),
        {"max_iter": 2, "server_prior": True, "tolerance": 0.01},
    ),
    "Lloyd rounds of clients": (
        ("feddp_kmeans", "oblivious", "client", "gaussian"),
        {"max_iter": 2},
    ),
    "margin": (
        ("feddp_kmeans", "distributed", "client", "gaussian"),
        {"margin": 0.5},
    ),
    "sampled clients": (
        ("feddp_kmeans", "distributed", "client", "gaussian"),
        {"client_sampling_rate": 0.5, "max_iter": 1},
    ),
    "evaluated": (
        ("feddp_kmeans", "distributed", "client", "gaussian"),
        {"evaluation": "private", "max_iter": 1},
    ),
    "parts of the appendix": (
        ("feddp_kmeans", "distributed", "record", "gaussian"),
        {"reduce_diameter": True, "least_weight": 0.1, "deviation": 0.1},
    ),
    "rows are counted": (
        ("feddp_kmeans", "distributed", "record", "gaussian"),
        {"n_examples": "private"},
    ),
}


@pytest.mark.filterwarnings("ignore::flwr_dpkmeans.errors.PrivacyWarning")
@pytest.mark.parametrize("name", VARIANTS)
def test_options_change_nothing_in_that(name: str) -> None:
    case, values = VARIANTS[name]
    run = played(case, **values)
    assert run.stages[Stage.SUM] > 0


@pytest.mark.filterwarnings("ignore::flwr_dpkmeans.errors.PrivacyWarning")
def test_whether_small_tables_are_retained_shows_in_how_often_they_are_made() -> None:
    case = ("feddp_kmeans", "distributed", "client", "gaussian")
    listed = played(case, max_iter=2)
    retained, made_anew = MadeAnew(), MadeAnew()
    runs = [played(case, parts=retained, max_iter=2)]
    with resource_limits(replace(FEW_NUMBERS, retained_bytes=0)):
        runs.append(run_of(case, parts=made_anew, max_iter=2).play())
    for run in runs:
        assert run.vectors == listed.vectors
        assert run.state.digest == listed.state.digest
    assert runs[0].scaled
    assert not runs[1].scaled
    assert retained.looks.total() < made_anew.looks.total()
