"""What adversaries get: exactly what the protocol shows them, through messages as
without, and nothing else.
"""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from flwr_dpkmeans.errors import ConfigurationError
from flwr_dpkmeans.sums.local import run_direct
from flwr_dpkmeans.sums.statement import epsilon_after
from simulations.audit.audit import AuditOptions, prepare
from simulations.audit.cases import build_cases
from simulations.audit.information import Truth
from simulations.audit.runs import Engine, make_runner
from simulations.audit.views import Adversary, View, colluding, resolve_adversary
from simulations.audit.watched import Seen, run_watched


def seen_in(trust: str, algorithm: str = "glloyd") -> list[Seen]:
    (case,) = build_cases(algorithm, trust, "record", "edge", {})
    seen: list[Seen] = []
    run_watched(case.plan, case.candidates[0].absent, watch=seen.append)
    return seen


@pytest.mark.parametrize("trust", ["oblivious", "central", "distributed"])
def test_what_is_watched_is_what_passed_by(trust: str) -> None:
    seen = seen_in(trust)
    assert [one.round_index for one in seen] == [1, 2]
    for one in seen:
        sent = np.sum(one.sent, axis=0, dtype=np.uint64)
        received = np.sum(one.received, axis=0, dtype=np.uint64)
        assert np.array_equal(received, one.aggregate.values)
        assert np.array_equal(one.aggregate.values, sent) is (trust != "oblivious")
        assert np.array_equal(one.broadcast, one.released) is (trust != "oblivious")
        # Masked: no client's vector is what it sent.
        assert not any(
            np.array_equal(a, b) for a, b in zip(one.sent, one.received, strict=True)
        )
        noise = (one.released - sent).view(np.int64)
        assert np.array_equal(one.released, sent) is (trust == "distributed")
        assert np.abs(noise).max() < 2.0**40


def test_watching_changes_nothing() -> None:
    (case,) = build_cases("glloyd", "central", "record", "edge", {"noise": "seeded"})
    parts = case.candidates[0].present
    watched = run_watched(case.plan, parts, watch=lambda _: None)
    assert watched.state.digest == run_direct(case.plan, parts).state.digest


def residuals_of(view: View, truth: Truth) -> list[NDArray[np.float64]]:
    """Standardised noise that the adversary does not know."""
    found = []
    for one in view.sums:
        part = truth.part(one.plan, one.round_index, one.state, one.members)
        found.append((one.values.view(np.int64) - part.base) / part.scales)
    return found


def test_the_noise_that_is_left_is_what_the_guarantee_counts_on() -> None:
    """Variance 1 after colluding shares are taken off."""
    options = AuditOptions(
        "glloyd",
        trust="distributed",
        case="edge",
        values={"max_iter": 1, "n_clusters": 20},
    )
    setup = prepare(options)
    truth = Truth(setup.neighbours)
    for adversary in Adversary:
        assert colluding(setup.case.plan, adversary, 4) == (3,)
        run = make_runner(setup.case, setup.neighbours, adversary)
        noise = np.concatenate(
            [np.concatenate(residuals_of(run(False), truth)) for _ in range(75)]
        )
        # 3,000 values: the estimate's deviation is 0.026, and 6 of them are 0.16.
        assert np.mean(np.square(noise)) == pytest.approx(1.0, abs=0.16)


def test_an_oblivious_server_gets_no_sum_and_no_result() -> None:
    options = AuditOptions(
        "glloyd",
        trust="oblivious",
        adversary="server",
        case="edge",
        values={"max_iter": 1},
    )
    setup = prepare(options)
    view = make_runner(setup.case, setup.neighbours, Adversary.SERVER)(True)
    assert view.sums == ()
    assert view.result.size == 0
    assert [one.name for one in view.words] == [
        "client 0",
        "client 1",
        "aggregate",
        "own noise",
    ]
    for one in view.words[:3]:
        # Small numbers where a sum stood in the clear.
        assert np.abs(one.values.view(np.int64)).min() > 2.0**32


def test_adversaries_are_those_of_the_guarantee() -> None:
    assert resolve_adversary("auto", "distributed") is Adversary.SERVER
    assert resolve_adversary("auto", "oblivious") is Adversary.CLIENTS
    assert resolve_adversary("server", "oblivious") is Adversary.SERVER
    with pytest.raises(ConfigurationError, match="trusts the server"):
        resolve_adversary("server", "central")


def test_a_view_ends_where_the_adversary_stops() -> None:
    values = {"n_examples": None}
    setup = prepare(
        AuditOptions("glloyd", trust="oblivious", case="edge", until=0, values=values)
    )
    view = make_runner(setup.case, setup.neighbours, Adversary.CLIENTS, until=0)(True)
    assert view.attempts == ((0, 0),)
    assert [one.round_index for one in view.sums] == [0]
    # Under `oblivious` the count is public all the same, and a lone client knows its
    # own share.
    assert view.sums[0].members == (0,)


@pytest.mark.parametrize(
    ("trust", "adversary", "retries", "values"),
    [
        ("oblivious", "clients", 0, {}),
        ("central", "clients", 1, {"n_clients": 4}),
        ("distributed", "server", 0, {}),
        ("distributed", "server", 1, {}),
        ("distributed", "clients", 1, {}),
        ("distributed", "server", 1, {"dropout": "recover"}),
        ("oblivious", "clients", 0, {"n_examples": None, "n_clients": 3}),
    ],
)
def test_views_through_messages_hold_the_planned_noise(
    trust: str, adversary: str, retries: int, values: dict[str, object]
) -> None:
    values = {"max_iter": 1, **values}
    options = AuditOptions(
        "glloyd",
        trust=trust,
        adversary=adversary,
        case="edge",
        retries=retries,
        values=values,
    )
    setup = prepare(options)
    run = make_runner(
        setup.case, setup.neighbours, setup.adversary, Engine.MESSAGES, retries=retries
    )
    view = run(True)
    noise = np.concatenate(residuals_of(view, Truth(setup.neighbours)))
    # Residuals hold the target besides the noise: some deviations, not 2^40 of them.
    assert np.abs(noise).max() < 12.0
    both = (
        retries
        and trust == "distributed"
        and adversary == "server"
        and "dropout" not in values
    )
    places = [(one.round_index, one.attempt) for one in view.sums]
    if both:
        assert places == [(1, 0), (1, 1)]
        assert [len(one.members) for one in view.sums] == [3, 2]
    if retries and "dropout" not in values:
        assert view.attempts == ((1, 0), (1, 1))
        assert epsilon_after(view.plan, view.attempts) > 1.1 * epsilon_after(
            view.plan, view.attempts[:1]
        )


def test_an_oblivious_server_learns_nothing_from_a_late_reply() -> None:
    values = {"max_iter": 1, "n_clients": 4}
    setup = prepare(
        AuditOptions("glloyd", trust="oblivious", case="edge", values=values)
    )
    run = make_runner(
        setup.case, setup.neighbours, Adversary.SERVER, Engine.MESSAGES, retries=1
    )
    view = run(True)
    assert view.sums == ()
    sums = [one for one in view.words if one.name == "aggregate"]
    assert [(one.round_index, one.attempt, len(one.members)) for one in sums] == [
        (1, 0, 4),
        (1, 1, 3),
    ]
    for values_seen in (
        sums[0].values,
        sums[1].values,
        sums[0].values - sums[1].values,
    ):
        assert np.abs(values_seen.view(np.int64)).min() > 2.0**32
