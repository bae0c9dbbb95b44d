"""Seams of ProxyLloyd: numbers that nobody declared or released, prices that must not
fall, and what reports say.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.ledger_entries import charge, charged_epsilon, entry
from support.messages import ServerRun, Stage, dump_plan, request_content
from support.protocol_federation import all_bytes, make_federation, received_vectors
from support.states import with_extras
from support.watching import Call, watch
from test_hostile_server import VICTIM, Hostile, changed, fields_of, hostile
from test_server_state import drawn

from flwr_dpkmeans import KMeansClient
from flwr_dpkmeans.algorithms.server.held_points import hold_points
from flwr_dpkmeans.errors import BudgetError, PlanError, ProtocolError
from flwr_dpkmeans.flower.client.wrapped import Wrapped
from flwr_dpkmeans.node.ledger import MemoryLedger
from flwr_dpkmeans.options import parse_config
from flwr_dpkmeans.results.model import Model
from flwr_dpkmeans.secagg.ring import encode
from flwr_dpkmeans.sums.build import build_algorithm, initial_state
from flwr_dpkmeans.sums.checks.verify import verify_plan
from flwr_dpkmeans.sums.config import RunConfig
from flwr_dpkmeans.sums.draft import draft_plan
from flwr_dpkmeans.sums.plan import Plan, takes_part
from flwr_dpkmeans.sums.round import State
from flwr_dpkmeans.sums.statement import build_report
from flwr_dpkmeans.sums.wire.packed_state import unpack_state

BOX = ((0.0,) * 3, (0.5,) * 3)


def config_of(**values: Any) -> RunConfig:
    return parse_config(
        **(
            {
                "n_clusters": 3,
                "bounds": ((-1.0,), (1.0,)),
                "epsilon": 2.0,
                "delta": 1e-5,
            }
            | values
        )
    )


def plan_of(n_clients: int = 5, *, server: bool = False, **values: Any) -> Plan:
    config = config_of(**values)
    held = hold_points(config, drawn(60, 99)) if server else None
    return draft_plan(
        config,
        run_id=1,
        n_clients=n_clients,
        seed=3,
        n_features=3,
        box=BOX if config.private_bounds else None,
        server=None if held is None else held.facts,
        public_points=None if held is None else held.public,
    )


# -- numbers that nobody declared or released ------------------------------------------


@pytest.mark.parametrize(
    "values",
    [
        {"algorithm": "sphere_packing", "epsilon": 1.0},
        {"algorithm": "proxy_lloyd", "unit": "client"},
    ],
    ids=lambda values: str(values["algorithm"]),
)
def test_a_number_of_rows_from_nowhere_is_refused(values: dict[str, Any]) -> None:
    """Else delta = 0.04 would pass for below 1/5, and nobody vouched for 5."""
    config = config_of(**values, n_examples=None)
    if config.algorithm == "sphere_packing":
        config = config.changed(delta=0.04)
    plan = draft_plan(config, run_id=1, n_clients=5, seed=1, n_features=3, n_examples=5)
    assert plan.is_final
    with pytest.raises(ProtocolError, match="neither declared nor counted"):
        verify_plan(plan)


def test_a_number_of_rows_from_nowhere_gets_no_key() -> None:
    with hostile(algorithm="sphere_packing", n_examples=None, delta=1e-5) as server:
        plan = draft_plan(
            server.run.plan.config.changed(delta=0.1), run_id=server.run.plan.run_id,
            n_clients=4, seed=1, n_features=2, n_examples=5,
        )  # fmt: skip
        server.require_refused(
            request_content(Stage.KEYS, plan=dump_plan(plan)),
            "neither declared nor counted",
        )
        server.agree()


def test_a_limit_does_not_refuse_a_choice_of_k_before_rows_are_counted() -> None:
    values: dict[str, Any] = {
        "n_clusters": 20,
        "choose_n_clusters": True,
        "trust": "distributed",
        "epsilon": 1.0,
    }
    values |= {"delta": None, "n_examples": None}
    plan = plan_of(max_epsilon=1.5, **values)
    assert not plan.is_final
    with pytest.raises(BudgetError):
        plan_of(max_epsilon=0.9, **values)
    with pytest.raises(PlanError, match="to look for up to 20"):
        plan_of(max_epsilon=1.5, **(values | {"n_examples": 100}))


# -- the ledger ------------------------------------------------------------------------


def test_a_release_that_could_cost_more_than_was_charged_is_refused() -> None:
    """A run is charged with its first release."""
    ledger = MemoryLedger()
    for index, price in enumerate([2.7, 2.7 * (1 + 1e-9), 2.5], start=1):
        charge(ledger, entry(round_index=index, epsilon=price))
    assert charged_epsilon(ledger) == 2.7
    with pytest.raises(ProtocolError, match=r"was charged epsilon 2\.7 at its first"):
        charge(ledger, entry(round_index=9, epsilon=2.71))


# -- reports ---------------------------------------------------------------------------


def test_only_sampled_rounds_are_said_to_be_sampled() -> None:
    plan = plan_of(
        300, trust="distributed", unit="client", client_sampling_rate=0.5,
        private_bounds=True, max_iter=1,
    )  # fmt: skip
    report = build_report(plan, [(-1, 0), (0, 0), (1, 0), (2, 0)])
    for line in report.releases:
        assert ("Poisson sample" in line.theorem) == (line.round_index > 0), line.array
    assert any(
        "rows of a client, 50, was not taken from the data" in s
        for s in report.assumptions
    )


@pytest.mark.parametrize("n_examples", [50, 30_000])
def test_the_report_says_what_clients_see_of_the_server_points(n_examples: int) -> None:
    """And it is so: the first state has k-means centers of the points."""
    values: dict[str, Any] = {
        "trust": "distributed",
        "n_examples": n_examples,
        "epsilon": 0.5 if n_examples == 50 else 2.0,
    }
    plan = plan_of(server=True, **values)
    said = " ".join(build_report(plan, [(1, 0)]).assumptions)
    rounds = build_algorithm(plan).rounds
    shown = {name for step in rounds for name in step.reads}
    assert ("proxies" in shown) == ("proxies, half of which" in said)
    assert ("proxies" in shown) != ("the centers of their own 3 clusters" in said)


# -- what a server with points sends, and what comes back ------------------------------


def server_with_points(trust: str, **values: Any) -> Hostile:
    parts = [drawn(400, seed) for seed in range(4)]
    federation = make_federation(parts)
    config = config_of(trust=trust, n_examples=1600, epsilon=8.0, max_iter=2, **values)
    held = hold_points(config, drawn(60, 99))
    grid = federation.grid
    run = ServerRun(
        config, run_id=grid.run.run_id, seed=11, node_ids=grid.get_node_ids(), held=held
    )
    return Hostile(federation, run, parts)


TAMPERED: dict[str, Callable[[State], State]] = {
    "one extra more": lambda s: with_extras(
        s, dict(s.extras) | {"axes": np.zeros((3, 3))}
    ),
    "another extra": lambda s: with_extras(
        s, dict(s.extras) | {"projected_points": np.zeros((2, 3))}
    ),
    "no extras": lambda s: with_extras(s, {}),
    "off the grid": lambda s: with_extras(
        s, {n: a + 2.0**-18 for n, a in s.extras.items()}
    ),
    "far away": lambda s: with_extras(s, {n: a + 100.0 for n, a in s.extras.items()}),
    "other shapes": lambda s: with_extras(
        s, {n: np.concatenate([a, a]) for n, a in s.extras.items()}
    ),
    "more centroids": lambda s: s.changed(
        centroids=np.zeros((4, 3)), counts=np.zeros(4)
    ),
}


@pytest.mark.parametrize("trust", ["distributed", "central"])
def test_a_server_with_points_steers_nothing_that_is_not_priced(trust: str) -> None:
    server = server_with_points(trust)
    with server.federation.grid.running():
        server.agree()
        for index in range(1, server.run.plan.last_round + 1):
            requests = server.request(index)
            state = unpack_state(bytes(fields_of(requests[VICTIM])["state"]))
            reads = build_algorithm(server.run.plan).rounds[index - 1].reads
            assert set(state.extras) == set(reads)
            if reads:
                for change in TAMPERED.values():
                    blob = change(state).packed
                    server.require_refused(
                        changed(requests[VICTIM], state=blob), "does not fit the plan"
                    )
            server.complete(requests)
            # The same request again, with another state or without, gets nothing.
            server.require_refused(requests[VICTIM], "")
        server.finish()
    lengths = {
        key: {len(v) for v in found.values()}
        for key, found in received_vectors(server.federation.grid.received).items()
    }
    planned = server.run.plan.rounds
    assert all(
        found == {sum(b.size for b in planned[r - 1].blocks)}
        for (r, _), found in lengths.items()
    )
    for node in server.federation.clients:
        charged = server.federation.attempts_in_ledger(node)
        assert charged == [(r, 0) for r in range(1, server.run.plan.last_round + 1)]
        entries = server.federation.ledgers[node].entries()
        assert {entry.epsilon for entry in entries} == {
            server.run.plan.epsilon_worst_case
        }


def test_replies_are_equally_long_whoever_has_no_rows_and_whoever_takes_part() -> None:
    """Vectors of one length and shape from all, whatever coins and tables."""
    parts = [
        drawn(n, 7 + n) if n else np.zeros((0, 3))
        for n in (0, 1, 30, 900, 40, 2, 5, 60)
    ]
    federation = make_federation(parts)
    values: dict[str, Any] = {
        "trust": "distributed",
        "unit": "client",
        "client_sampling_rate": 0.5,
        "max_iter": 1,
    }
    federation.start(config_of(**values, epsilon=9.0, delta=1e-2))
    sizes: dict[int, list[int]] = {}
    for message in federation.grid.received:
        sizes.setdefault(message.metadata.src_node_id, []).append(
            len(all_bytes(message))
        )
    first = next(iter(sizes.values()))
    assert all(len(found) == len(first) for found in sizes.values())
    assert all(
        abs(a - b) <= 8
        for found in sizes.values()
        for a, b in zip(found, first, strict=True)
    ), sizes


@pytest.mark.parametrize("rate", [1.0, 0.5])
def test_whoever_does_not_take_part_does_the_same_work(rate: float) -> None:
    """Time must not tell the coin: every client encodes as often as every other one."""
    work: dict[tuple[int, int], int] = {}
    coins: dict[tuple[int, int], bool] = {}
    entered: list[tuple[int, int]] = []

    def asked(call: Call) -> None:
        memory = call.arguments["memory"]
        entered[:] = [(memory.party.node_id, call.arguments["index"])]

    def encoded(_: Call) -> None:
        work[entered[0]] = work.get(entered[0], 0) + 1

    def tossed(call: Call) -> None:
        node, index = call.arguments["node_id"], call.arguments["round_index"]
        coins[node, index] = call.result

    watch(Wrapped.compute, begin=asked)
    watch(encode, encoded)
    watch(takes_part, tossed)
    federation = make_federation([drawn(30, seed) for seed in range(10)])
    values: dict[str, Any] = {
        "trust": "distributed",
        "unit": "client",
        "client_sampling_rate": rate,
        "max_iter": 1,
    }
    federation.start(config_of(**values, epsilon=9.0, delta=1e-2))
    assert len(work) == 10 * federation.plan.last_round
    assert set(work.values()) == {1 if rate == 1.0 else 2}
    assert (set(coins.values()) == {False, True}) == (rate < 1.0)


def test_the_cost_curve_is_in_units_of_the_box_that_was_found(tmp_path: Path) -> None:
    plan = plan_of(
        trust="distributed", private_bounds=True, n_examples=3000, max_iter=1
    )
    client = KMeansClient(np.zeros((1, 3)), output_dir=tmp_path / "run")
    report = json.dumps(build_report(plan, [(1, 0)]).to_dict())
    client.evaluate(
        [np.zeros((3, 3)), np.zeros(3), np.zeros(1)],
        {"plan": dump_plan(plan), "report": report},
    )
    bounds = Model.load(tmp_path / "run" / "model.json").bounds
    assert (bounds.lower, bounds.upper) == BOX != plan.config.bounds


# -- client level: tables of every size ------------------------------------------------


@pytest.mark.parametrize("n_rows", [0, 1, 3, 200_000])
@pytest.mark.parametrize("rows", ["equal", "corners", "tiny"])
def test_a_client_of_any_size_keeps_the_bounds_of_its_means(
    n_rows: int, rows: str
) -> None:
    plan = plan_of(3000, unit="client", examples_per_client=77, max_iter=1)
    generator = np.random.default_rng(1)
    points = {
        "equal": np.ones((n_rows, 3)),
        "corners": generator.choice([-1.0, 1.0], (n_rows, 3)),
        "tiny": generator.integers(-2, 3, (n_rows, 3)) / 2.0**16,
    }[rows]
    algorithm = build_algorithm(plan)
    state = initial_state(plan)
    n_proxies = next(
        b.shape[0]
        for s in algorithm.rounds
        for b in s.blocks
        if b.name == "proxy_counts"
    )
    extras = {
        "centre": np.zeros(3),
        "spread": np.array([2.0**-12]),
        "radius": np.array([-1.0]),
    }
    extras |= {
        "proxies": np.zeros((n_proxies, 3)),
        "proxy_radius": np.full(n_proxies, 2.0**-16),
    }
    made_up = with_extras(state, dict(state.extras) | extras)
    for step in algorithm.rounds:
        for array, block in zip(
            step.statistic(points, made_up), step.blocks, strict=True
        ):
            words = encode(np.ravel(array)).values.view(np.int64).astype(object)
            assert (
                int((words * words).sum()) <= (block.sensitivity.bound * 2.0**16) ** 2
            ), block.name
            if not n_rows:
                assert not words.any()
