"""A deployed node takes part in nothing that its owner has not limited."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.protocol_federation import grid_parts, make_federation, small_config

import flwr_dpkmeans
from flwr_dpkmeans import ProxyLloyd
from flwr_dpkmeans.errors import BudgetError, DPKMeansError, RefusalError
from flwr_dpkmeans.flower.client_app import client_app
from flwr_dpkmeans.flower.in_process_grid import InProcessGrid, Node
from flwr_dpkmeans.flower.kmeans_client import KMeansClient
from flwr_dpkmeans.flower.strategies.strategy_result import KMeansResult
from flwr_dpkmeans.flower.strategy import PrivateKMeans
from flwr_dpkmeans.node.ledger import MemoryLedger, Past
from flwr_dpkmeans.node.ledger_entries import LedgerEntry
from flwr_dpkmeans.node.ledger_file import FileLedger
from flwr_dpkmeans.node.policy import DEPLOYED, REQUIRED, ClientPolicy
from flwr_dpkmeans.sums.checks.columns import columns_digest
from flwr_dpkmeans.sums.draft import draft_plan
from flwr_dpkmeans.sums.plan import FIRST_NODE_ID
from flwr_dpkmeans.sums.wire import terms_digest

EXAMPLE = Path(flwr_dpkmeans.__file__).parent / "node" / "policy.example.toml"
PARTS = grid_parts((120, 80, 60))
COMPLETE = {
    "max-epsilon-per-run": "1.5", "max-epsilon-total": "4.0", "max-delta": "1e-4",
    "allowed-trust": '["oblivious"]', "allowed-units": '["record"]', "min-cohort": "2",
}  # fmt: skip


def deployed(folder: Path, policy: str | None) -> InProcessGrid:
    """Nodes that read their settings from their own configuration."""
    nodes = []
    for node_id, part in enumerate(PARTS, start=FIRST_NODE_ID):
        config = {
            "ledger": str(folder / f"ledger-{node_id}"),
            "output": str(folder / f"out-{node_id}"),
        }
        if policy is not None:
            (folder / "policy.toml").write_text(policy)
            config["policy"] = str(folder / "policy.toml")
        client = KMeansClient(part)
        nodes.append(Node(client_app(lambda _, client=client: client), config))
    return InProcessGrid(nodes, run_id=77)


def run(grid: InProcessGrid, **values: Any) -> KMeansResult:
    config = small_config(**({"n_examples": 260, "delta": 1e-4} | values))
    with grid.running():
        return PrivateKMeans.from_config(config, on_step=lambda _: None).start(grid)


def keys(**changes: str | None) -> str:
    stated = COMPLETE | {
        name.replace("_", "-"): value for name, value in changes.items()
    }
    return "\n".join(
        f"{name} = {value}" for name, value in stated.items() if value is not None
    )


@pytest.mark.parametrize(
    "values",
    [
        {"epsilon": 1.0},
        {"epsilon": 10_000.0, "trust": "central"},
        {"epsilon": 1e5, "algorithm": "sulloyd", "trust": "central"},
        {"epsilon": 1e3, "algorithm": "glloyd", "n_examples": None},
    ],
    ids=str,
)
def test_a_node_without_a_policy_refuses_every_run(
    tmp_path: Path, values: dict[str, Any]
) -> None:
    grid = deployed(tmp_path, None)
    with pytest.raises(RefusalError) as caught:
        run(grid, **values)
    assert (
        "this client's policy does not limit max-epsilon-per-run, max-epsilon-total,"
        " max-delta, allowed-trust, allowed-units, min-cohort, and without that a"
        " deployed client takes part in no run: have its owner state these keys, or"
        " allow-anything = true." in str(caught.value)
    )
    assert str(tmp_path) not in str(caught.value)
    assert not list(tmp_path.glob("ledger-*"))


def test_these_limits_are_required_and_no_others() -> None:
    stated = {
        "max_epsilon_per_run", "max_epsilon_total", "max_delta", "allowed_trust",
        "allowed_units", "min_cohort",
    }  # fmt: skip
    assert set(REQUIRED) == stated


@pytest.mark.parametrize("name", REQUIRED)
def test_each_limit_must_be_stated_and_bounded(tmp_path: Path, name: str) -> None:
    endless = {
        "max_epsilon_per_run": "inf",
        "max_epsilon_total": "inf",
        "allowed_trust": "[]",
        "allowed_units": "[]",
    }
    for value in {None, endless.get(name)}:
        grid = deployed(tmp_path, keys(**{name: value}))
        with pytest.raises(
            RefusalError,
            match=f"policy does not limit {name.replace('_', '-')}, and without that",
        ):
            run(grid)


@pytest.mark.parametrize("nothing", [[], (), set(), iter(()), np.array([])])
def test_a_limit_that_allows_all_is_not_stated_in_whatever_form_it_is_given(
    nothing: Any,
) -> None:
    given = {
        "allowed_trust": nothing,
        "max_epsilon_total": np.float64(np.inf),
        "max_epsilon_per_run": np.float64(1),
    }
    policy = ClientPolicy.from_mapping(given, base=DEPLOYED)
    assert set(policy.unstated) == set(REQUIRED) - {"max_epsilon_per_run"}


@pytest.mark.parametrize("policy", [keys(), "allow-anything = true"])
def test_a_complete_policy_and_one_that_allows_anything_take_part(
    tmp_path: Path, policy: str
) -> None:
    assert run(deployed(tmp_path, policy)).confirmed == (2, 3, 4)


def test_limits_that_are_stated_hold_beside_allow_anything(tmp_path: Path) -> None:
    with pytest.raises(RefusalError, match=r"max_epsilon_per_run is 0\.5"):
        run(deployed(tmp_path, "allow-anything = true\nmax-epsilon-per-run = 0.5"))
    with pytest.raises(RefusalError, match="allows private runs only"):
        run(deployed(tmp_path, "allow-anything = true"), algorithm="lloyd")


def test_a_policy_file_cannot_say_that_it_is_complete(tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text("unstated = []")
    with pytest.raises(ValueError, match="the policy key 'unstated' is not known"):
        ClientPolicy.from_toml(tmp_path / "policy.toml", base=DEPLOYED)


def test_the_example_is_complete_and_strict(tmp_path: Path) -> None:
    policy = ClientPolicy.from_toml(EXAMPLE, base=DEPLOYED)
    policy.require_complete()
    assert policy.unstated == ()
    text = EXAMPLE.read_text()
    strict = ("max-epsilon-per-run", "max-delta", "allowed-trust", "min-cohort")
    assert run(
        deployed(tmp_path, text), epsilon=0.8, delta=1e-6, min_clients=3
    ).confirmed == (2, 3, 4)
    for values in (
        {"epsilon": 10_000.0},
        {"delta": 1e-3},
        {"trust": "central"},
        {"min_clients": 2},
    ):
        (tmp_path / "other").mkdir(exist_ok=True)
        with pytest.raises(RefusalError, match="this client"):
            run(
                deployed(tmp_path / "other", text),
                **({"epsilon": 0.1, "delta": 1e-6, "min_clients": 3} | values),
            )
    assert all(f"\n{key} = " in text for key in strict)
    documented = {
        line.lstrip("# ").split(" = ")[0] for line in text.splitlines() if " = " in line
    }
    assert {name.replace("_", "-") for name in REQUIRED} <= documented


# -- runs a day, and approved plans ----------------------------------------------------


def ledger_with(
    *ages_in_hours: float, data_id: str = "rows", nodes: Sequence[int] = (2,)
) -> MemoryLedger:
    """One entry of one run for each age and node: 0/2, 1/2, and so on."""
    ledger = MemoryLedger()
    for run_id, age in enumerate(ages_in_hours):
        time = (datetime.now(UTC) - timedelta(hours=age)).isoformat(timespec="seconds")
        for node in nodes:
            ledger.charge(
                LedgerEntry(
                    f"{run_id}/{node}", data_id, "ab", 1, 0, "sums", 0.1, 1e-6,
                    "record", time,
                )
            )  # fmt: skip
    return ledger


@pytest.mark.parametrize(
    ("hours", "data", "begins"),
    [
        ((1.0,), {}, True),
        ((1.0, 23.9), {}, False),
        ((1.0, 24.1), {}, True),
        ((1.0, 2.0), {"data_id": "others"}, True),
        # The server gives out the numbers of nodes: the table was asked twice.
        ((1.0,), {"nodes": (2, 3)}, False),
    ],
)
def test_what_began_in_the_last_day_is_counted_once_each(
    hours: tuple[float, ...], data: dict[str, Any], begins: bool
) -> None:
    # Made here: tests may run long after they were collected.
    ledger = ledger_with(*hours, **data)
    federation = make_federation(
        PARTS, policies={2: ClientPolicy(runs_per_day=2)}, ledgers={2: ledger}
    )
    if begins:
        # Its own first release does not count against the rest of the run.
        assert federation.start(n_examples=260).confirmed == (2, 3, 4)
    else:
        with pytest.raises(RefusalError, match="runs_per_day is 2, and as many others"):
            federation.start(n_examples=260)


def test_a_run_that_comes_again_under_other_numbers_of_nodes_counts_again() -> None:
    """Its own earlier release, as node 2, is another node's."""
    ledger = MemoryLedger()
    for place, is_asked in ((2, True), (3, False)):
        policies, ledgers = {place: ClientPolicy(runs_per_day=1)}, {place: ledger}
        parts = PARTS if place == 2 else [PARTS[1], PARTS[0], *PARTS[2:]]
        federation = make_federation(
            parts, policies=policies, ledgers=ledgers, run_id=900_001
        )
        if is_asked:
            federation.start(n_examples=260)
            continue
        with pytest.raises(RefusalError, match="runs_per_day is 1, and as many others"):
            federation.start(n_examples=260)
    assert {entry.run_id.split("/")[1] for entry in ledger.entries()} == {"2"}


class Torn(MemoryLedger):
    """Breaks between two reads, as a file may."""

    def past(
        self, data_id: str, unit: str, *, excluding_run: str | None = None
    ) -> Past:
        raise BudgetError("the ledger /var/ward7 is damaged: restore it from a backup.")


def test_a_ledger_that_breaks_while_runs_are_counted_does_not_tell_its_path() -> None:
    federation = make_federation(
        PARTS, policies={2: ClientPolicy(runs_per_day=2)}, ledgers={2: Torn()}
    )
    with pytest.raises(DPKMeansError) as caught:
        federation.start(n_examples=260)
    assert "ward7" not in str(caught.value)


def test_the_digest_of_a_plans_terms_is_that_of_all_its_runs_and_stages() -> None:
    """Digests of columns are bound to the run, and a count may lower delta."""
    config = small_config(n_examples=None, dropout="retry", feature_names=("a", "b"))
    first = draft_plan(config, run_id=1, n_clients=3, seed=5, n_features=None)
    stages = [
        draft_plan(
            config, run_id=run_id, n_clients=3, seed=run_id, n_features=2,
            n_examples=counted,
        )
        for run_id, counted in ((1, None), (2, 5_000), (3, 5_000_000))
    ]  # fmt: skip
    assert len({plan.delta for plan in stages}) > 1
    assert {terms_digest(plan) for plan in stages} == {terms_digest(first)}


def test_an_approved_plan_is_accepted_in_every_run_and_no_other_one() -> None:
    # Virtual clients do not fall silent, so the strategy chooses this way for them.
    config = small_config(n_examples=None, dropout="retry")
    drafted = draft_plan(config, run_id=1, n_clients=3, seed=5, n_features=2)
    approved = ClientPolicy(approved_plan_digests=(terms_digest(drafted).upper(),))
    for run_id in (5, 6):
        federation = make_federation(PARTS, policies={2: approved}, run_id=run_id)
        # Seeds differ from run to run, and the number of rows is found on the way.
        result = federation.start(
            small_config(n_examples=None, random_state=run_id, dropout="retry")
        )
        assert result.confirmed == (2, 3, 4)
    for other in ({"epsilon": 1.01}, {"n_clusters": 4}, {"max_retries": 0}):
        federation = make_federation(PARTS, policies={2: approved})
        with pytest.raises(RefusalError, match=r"terms have the digest '[0-9a-f]{64}'"):
            federation.start(small_config(n_examples=None, **other))


@pytest.mark.parametrize("names", [(), ("age", "income")])
def test_a_count_that_lowers_delta_and_named_columns_leave_the_approved_digest_as_it_is(
    names: tuple[str, ...],
) -> None:
    """Otherwise an approved run would end after its count, charged in full."""
    config = small_config(n_examples=None, feature_names=names)
    first = draft_plan(config, run_id=1, n_clients=3, seed=5, n_features=2)
    answered = "" if names else columns_digest(6, ("age", "income"))
    later = draft_plan(
        config, run_id=6, n_clients=3, seed=7, n_features=2, n_examples=10**7,
        columns=answered,
    )  # fmt: skip
    assert later.delta < first.delta
    assert later.columns_digest != first.columns_digest
    assert terms_digest(first) == terms_digest(later)


def own_app(folder: Path, policy: str | None, **settings: Any) -> KMeansResult:
    """The README's strategy and client, on three nodes."""
    rows = np.random.default_rng(0).uniform(0.0, 16.0, (3, 500, 4))
    nodes = []
    for number, part in enumerate(rows):
        np.save(folder / f"{number}.npy", part)
        config = {
            "data-path": str(folder / f"{number}.npy"),
            "data-id": f"ward-{number}",
        }
        config |= {
            "ledger": str(folder / f"ledger-{number}"),
            "output": str(folder / f"out-{number}"),
        }
        if policy is not None:
            (folder / "policy.toml").write_text(policy)
            config["policy"] = str(folder / "policy.toml")
        nodes.append(
            Node(
                client_app(
                    lambda context: np.load(str(context.node_config["data-path"]))
                ),
                config,
            )
        )
    grid = InProcessGrid(nodes)
    known: dict[str, Any] = {
        "n_clusters": 10, "epsilon": 2.0, "n_examples": 1500,
    }  # fmt: skip
    strategy = ProxyLloyd(**known, bounds=(0.0, 16.0), **settings)
    with grid.running():
        return strategy.start(grid=grid)


def test_an_own_app_runs_in_a_deployment_with_the_settings_that_the_readme_names(
    tmp_path: Path,
) -> None:
    policy = keys(max_epsilon_per_run="4.0", max_delta="1e-3", min_cohort="3")
    assert len(own_app(tmp_path, policy, n_clients=3, min_clients=3).confirmed) == 3
    assert {
        len(FileLedger(tmp_path / f"ledger-{number}").entries()) > 0
        for number in range(3)
    } == {True}
    with pytest.raises(RefusalError, match="raise the plan's min_clients"):
        own_app(tmp_path, policy)
    with pytest.raises(RefusalError, match="this client's policy does not limit"):
        own_app(tmp_path, None, n_clients=3, min_clients=3)
