"""Every limit of a node's policy, from its own TOML file to the sentence that the
server's operator reads.
"""

from __future__ import annotations

import errno
import json
import math
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Context, Message
from support.asked_plans import gaussian_cost
from support.faulty_grid import Faults, FaultyGrid
from support.ledger_entries import charged_epsilon, verify_ledger
from support.machine import replace_call
from support.messages import RECORD, VECTOR_RECORD
from support.protocol_federation import grid_parts, make_federation, small_config

from flwr_dpkmeans.errors import BudgetError, CohortError, DPKMeansError, RefusalError
from flwr_dpkmeans.flower.client.node_config import node_settings
from flwr_dpkmeans.flower.client_app import client_app
from flwr_dpkmeans.flower.in_process_grid import Node
from flwr_dpkmeans.flower.kmeans_client import KMeansClient
from flwr_dpkmeans.flower.strategies.strategy_result import KMeansResult
from flwr_dpkmeans.flower.strategy import PrivateKMeans
from flwr_dpkmeans.node.ledger import Admit, MemoryLedger, Past
from flwr_dpkmeans.node.ledger_entries import LedgerEntry
from flwr_dpkmeans.node.ledger_file import FileLedger
from flwr_dpkmeans.node.node_settings import NodeSettings
from flwr_dpkmeans.node.policy import ClientPolicy
from flwr_dpkmeans.privacy.gaussian import gaussian_epsilon
from flwr_dpkmeans.privacy.gaussian_cost import largest_mu
from flwr_dpkmeans.sums.plan import FIRST_NODE_ID

SIZES = (120, 80, 60)
VICTIM = 3
BESIDE = (".plans", ".data")
"""Of files beside a ledger that no charge is in."""
DATA_ID = "ward-7"


@dataclass
class Deployment:
    """Nodes that read their settings from their own files, as deployed ones do."""

    folder: Path
    grid: FaultyGrid
    faults: Faults

    @property
    def ledger(self) -> Path:
        return self.folder / f"ledger-{VICTIM}.jsonl"

    def files(self) -> dict[str, bytes]:
        """The victim's ledger and its head."""
        found = self.folder.glob(f"ledger-{VICTIM}*")
        return {
            place.name: place.read_bytes()
            for place in found
            if place.suffix not in BESIDE
        }

    def start(self, points: Any = None, **values: Any) -> KMeansResult:
        config = small_config(**values)
        strategy = PrivateKMeans.from_config(
            config, server_points=points, on_step=lambda _: None
        )
        with self.grid.running():
            return strategy.start(self.grid)

    def from_victim(self) -> list[Message]:
        return [
            message
            for message in self.grid.received
            if message.metadata.src_node_id == VICTIM
        ]


def deploy(
    folder: Path,
    policy: str,
    *,
    run_id: int = 31,
    spent: bool = True,
    sizes: tuple[int, ...] = SIZES,
) -> Deployment:
    """Three nodes; what other runs have cost the victim's data stands in its ledger."""
    folder.mkdir(exist_ok=True)
    lenient = "allow-non-private = true\nrequire-secure-noise = false\n"
    for name, text in (("policy", policy), ("lenient", lenient)):
        # In one step, since several processes do this at once and nobody may read a
        # file that is empty as yet.
        written = folder / f"{name}-{os.getpid()}"
        written.write_text(f"allow-anything = true\n{text}")
        written.replace(folder / f"{name}.toml")
    nodes = []
    for node_id, part in enumerate(grid_parts(sizes), start=FIRST_NODE_ID):
        own = "policy.toml" if node_id == VICTIM else "lenient.toml"
        config = {
            "ledger": str(folder / f"ledger-{node_id}.jsonl"),
            "data-id": DATA_ID,
            "policy": str(folder / own),
        }
        client = KMeansClient(part)
        nodes.append(Node(client_app(lambda _, client=client: client), config))
    if spent:
        other = LedgerEntry(
            "1/3",
            DATA_ID,
            "ab12",
            1,
            0,
            "sums",
            epsilon=5.0,
            delta=1e-4,
            unit="record",
            mu=SPENT.mu,
            own_delta=0.0,
        )
        FileLedger(folder / f"ledger-{VICTIM}.jsonl").charge(other)
    faults = Faults()
    return Deployment(folder, FaultyGrid(nodes, run_id=run_id, faults=faults), faults)


SPENT = gaussian_cost(5.0, 1e-4)
NUMBER = r"[0-9.e+-]+"
POINTS = np.random.default_rng(3).uniform(-1, 1, (40, 2))
# Limit: policy file, what is planned, and the sentence.
DIGEST = "0123456789abcdef" * 4
CASES: dict[str, list[tuple[str, dict[str, Any], str]]] = {
    "min_max_silent": [
        (
            "min-max-silent = 1",
            {"max_silent": 0},
            (
                r"the plan's max_silent is 0, but this client's min_max_silent is 1:"
                r" raise the plan's max_silent\."
            ),
        )
    ],
    "runs_per_day": [
        (
            # One other run stands in the ledger.
            "runs-per-day = 1",
            {},
            r"this client's runs_per_day is 1, and as many others have begun within 24"
            r" hours: start the run later, or "
            r"leave this client out\.",
        )
    ],
    "plans_per_day": [
        (
            # The plan of run 30 was looked at, and nothing released.
            "plans-per-day = 1",
            {"earlier": 30},
            r"this client's plans_per_day is 1, and it looked at as many others within"
            r" 24 hours whose runs released "
            r"nothing: start the run later, or leave this client out\.",
        )
    ],
    "allowed_columns": [
        (
            'allowed-columns = ["age", "weight"]',
            {},
            r"this client's policy allows 2 columns, and its table of \d names has \d"
            r" besides them or none: have its "
            r"owner name the right columns\.",
        )
    ],
    "approved_plan_digests": [
        (
            f'approved-plan-digests = ["{DIGEST}"]',
            {},
            r"the plan's terms have the digest '[0-9a-f]{64}', which is not one of this"
            r" client's "
            r"approved_plan_digests: plan as agreed, or have its owner add it\.",
        )
    ],
    "max_epsilon_per_run": [
        (
            "max-epsilon-per-run = 0.9",
            {},
            rf"the plan's worst-case epsilon is {NUMBER}, but this client's"
            r" max_epsilon_per_run is 0\.9: lower the "
            r"plan's epsilon or its number of retries\.",
        ),
        (
            # Epsilon 1 fits, one retry does not.
            "max-epsilon-per-run = 1.05",
            {"max_retries": 1},
            (
                rf"the plan's worst-case epsilon is {NUMBER}, but this client's"
                r" max_epsilon_per_run is 1\.05: .*"
            ),
        ),
    ],
    "max_epsilon_total": [
        (
            "max-epsilon-total = 5.05\nmax-delta-total = 1e-4",
            {},
            rf"the plan's worst-case epsilon is {NUMBER}, but it does not fit into what"
            r" is left of this client's "
            r"max_epsilon_total of 5\.05: lower the plan's epsilon or leave this client"
            r" out\.",
        )
    ],
    "max_delta": [
        (
            "max-delta = 1e-7",
            {"delta": 1e-6},
            (
                r"the plan's delta is 1e-06, but this client's max_delta is 1e-07:"
                r" lower the plan's delta\."
            ),
        )
    ],
    "max_delta_total": [
        (
            "max-delta-total = 1.5e-4",
            {"delta": 1e-4},
            r"the plan's delta is 0\.0001, but it does not fit into what is left of"
            r" this client's max_delta_total of "
            r"0\.00015: lower the plan's delta or leave this client out\.",
        )
    ],
    "own_delta_share": [
        (
            # No noise is exactly Gaussian.
            "max-epsilon-total = 90.0\nmax-delta-total = 1e-4\nown-delta-share = 1e-60",
            {},
            rf"the plan's worst-case epsilon is {NUMBER}, but it does not fit into what"
            r" is left of this client's max_epsilon_total of 90: lower the plan's"
            r" epsilon or leave this client out\.",
        )
    ],
    "allowed_trust": [
        (
            'allowed-trust = ["central", "distributed"]',
            {},
            r"the plan's trust model is 'oblivious', but this client allows only"
            r" 'central', 'distributed': plan with "
            r"one of them\.",
        ),
        (
            'allowed-trust = ["oblivious"]',
            {"n_examples": None},
            r"the plan's round 'count' has the trust model 'distributed', but this"
            r" client allows only 'oblivious': declare what that round is to find, or"
            r" have this client's owner allow it\.",
        ),
        (
            'allowed-trust = ["oblivious"]',
            {"bounds": ((-8.0,), (8.0,)), "private_bounds": True},
            r"the plan's round '(count.*|magnitudes)' has the trust model"
            r" 'distributed', but this client allows only 'oblivious': .*",
        ),
    ],
    "allowed_algorithms": [
        (
            'allowed-algorithms = ["fastlloyd"]',
            {},
            (
                r"the plan's algorithm is 'proxy_lloyd', but this client allows only"
                r" 'fastlloyd': plan with one of them\."
            ),
        )
    ],
    "allowed_units": [
        (
            'allowed-units = ["record"]',
            {"unit": "client"},
            (
                r"the plan's privacy unit is 'client', but this client allows only"
                r" 'record': plan with one of them\."
            ),
        ),
        (
            'allowed-units = ["client"]',
            {},
            (
                r"the plan's privacy unit is 'record', but this client allows only"
                r" 'client': plan with one of them\."
            ),
        ),
    ],
    "min_cohort": [
        (
            "min-cohort = 3",
            {"min_clients": 2},
            (
                r"the plan goes on with 2 clients, but this client's min_cohort is 3:"
                r" raise the plan's min_clients\."
            ),
        )
    ],
    "require_secure_noise": [
        (
            # A file that says nothing of noise requires it.
            "allow-non-private = true",
            {"noise": "seeded"},
            (
                r"the plan's noise is 'seeded', but this client requires 'secure': drop"
                r" the noise seed\."
            ),
        )
    ],
    "allow_non_private": [
        (
            "min-cohort = 2",  # Likewise.
            {"algorithm": "lloyd"},
            r"the plan's algorithm 'lloyd' has an epsilon of inf, but this client"
            r" allows private runs only: plan with "
            r"a finite epsilon\.",
        )
    ],
    "allow_server_data": [
        (
            "allow-server-data = false",
            {"server data": True},
            r"the plan starts from the server's own points, but this client's"
            r" allow_server_data is false: plan without "
            r"them, such as with 'proxy_lloyd'\.",
        )
    ],
    "allowed_bounds": [
        (
            "allowed-bounds = [[-0.5, 1.0]]",
            {},
            r"the plan's bounds of feature 0 are \[-1, 1\], but this client allows only"
            r" \[-0\.5, 1\]: plan with bounds "
            r"inside these\.",
        ),
        (
            # One pair in the plan, one for each feature in the policy.
            "allowed-bounds = [[-1, 1], [-1, 0.5]]",
            {},
            (
                r"the plan's bounds of feature 1 are \[-1, 1\], but this client allows"
                r" only \[-1, 0\.5\]: .*"
            ),
        ),
        (
            "allowed-bounds = [[-1, 1], [-1, 0.5]]",
            {"bounds": ((-1.0, -1.0), (1.0, 1.0))},
            r"the plan's bounds of feature 1 are \[-1, 1\], but .*",
        ),
        (
            # Private bounds: what they may be found in counts.
            "allowed-bounds = [[-10, 10]]",
            {"private_bounds": True, "bounds": ((-1e3,), (1e3,))},
            (
                r"the plan's bounds of feature 0 are \[-1000, 1000\], but this client"
                r" allows only \[-10, 10\]: .*"
            ),
        ),
        (
            "allowed-bounds = [[-1, 1], [-1, 1], [-1, 1]]",
            {"bounds": ((-1.0, -1.0), (1.0, 1.0))},
            r"the plan's box has 2 features, but this client's allowed_bounds has 3:"
            r" plan for the features that were "
            r"agreed on\.",
        ),
    ],
    "allowed_evaluation": [
        (
            'allowed-evaluation = ["none"]',
            {"evaluation": "private"},
            (
                r"the plan's evaluation is 'private', but this client allows only"
                r" 'none': plan with one of them\."
            ),
        )
    ],
    "allowed_dropout": [
        (
            'allowed-dropout = ["recover"]',
            {},
            (
                r"the plan's dropout is 'retry', but this client allows only 'recover':"
                r" plan with one of them\."
            ),
        )
    ],
}
FLAT = [(name, *case) for name, cases in CASES.items() for case in cases]


def test_every_limit_has_a_case() -> None:
    """But for pinned peers, which `test_pinned_identities` is about."""
    others = {"pinned_peers", "allow_anything", "unstated"}
    assert set(CASES) == {limit.name for limit in fields(ClientPolicy)} - others


@pytest.mark.parametrize("n_examples", [240, None], ids=["final", "preliminary"])
@pytest.mark.parametrize(
    ("limit", "policy", "values", "sentence"),
    FLAT,
    ids=[f"{case[0]}-{i}" for i, case in enumerate(FLAT)],
)
def test_a_limit_stops_the_run_before_anything_leaves(
    tmp_path: Path, limit: str, policy: str, values: dict[str, Any], sentence: str,
    n_examples: int | None,
) -> None:  # fmt: skip
    """The operator reads the sentence."""
    values = {"epsilon": 1.0, "n_examples": n_examples} | values
    points = POINTS if values.pop("server data", False) else None
    earlier = values.pop("earlier", None)
    if earlier is not None:
        deploy(tmp_path / "run", policy)
        FileLedger(tmp_path / "run" / f"ledger-{VICTIM}.jsonl").note_plan(
            DATA_ID, f"{earlier}/{VICTIM}", "ab", most=1
        )
    deployment = deploy(tmp_path / "run", policy, spent=earlier is None)
    before = deployment.files()
    with pytest.raises(RefusalError) as caught:
        deployment.start(points, **values)
    told = re.fullmatch(
        rf"node {VICTIM} refused \(RefusalError\): ({sentence})", str(caught.value)
    )
    assert told, str(caught.value)
    assert deployment.files() == before
    (reply,) = deployment.from_victim()
    assert set(reply.content) == {RECORD}
    header = json.loads(str(reply.content.config_records[RECORD]["header"]))
    assert set(reply.content.config_records[RECORD]) == {"header"}
    assert header["sentence"] == told[1]
    # Nobody else has been asked for a statistic either.
    assert not any(
        VECTOR_RECORD in message.content.array_records
        for message in deployment.grid.received
    )
    ledgers = [
        place
        for place in deployment.folder.glob("ledger-[24]*")
        if place.suffix not in BESIDE
    ]
    assert not any(place.read_bytes() for place in ledgers)


SEVEN = "max-epsilon-total = 7.0\nmax-delta-total = 1e-4"


def asked_for(folder: Path, policy: str, run_id: int, epsilon: float) -> str:
    """What the victim answers to a plan whose run ends before any release."""
    deployment = deploy(folder, policy, run_id=run_id, spent=run_id == 100)
    deployment.faults.on_request = lambda message: not is_sum(message, 1)
    try:
        deployment.start(epsilon=epsilon, max_retries=0, delta=1e-4)
    except RefusalError as error:
        return str(error)
    except DPKMeansError:
        return "allowed"
    return "finished"


def test_plan_after_plan_tells_what_was_spent_in_steps_only(tmp_path: Path) -> None:
    """A server that halves what it does not know, for nothing."""
    lowest, highest = 0.0, 8.0
    for number in range(12):
        middle = (lowest + highest) / 2
        answer = asked_for(tmp_path / "run", SEVEN, 100 + number, middle)
        if answer == "allowed":
            lowest = middle
        else:
            assert "does not fit into what is left" in answer
            highest = middle
    # Of squares, what was spent rounded up to steps of a 60th leaves less.
    whole = gaussian_cost(7.0, 1e-4).mu ** 2
    n_steps = math.ceil(60 * SPENT.mu**2 / whole)
    left = gaussian_epsilon(math.sqrt(whole * (1 - n_steps / 60)), 1e-4)
    assert 1.0 < left < gaussian_epsilon(math.sqrt(whole - SPENT.mu**2), 1e-4) - 0.01
    assert (lowest + highest) / 2 == pytest.approx(left, abs=5e-3)


def test_a_node_looks_at_so_many_plans_a_day_that_cost_nothing(tmp_path: Path) -> None:
    policy = f"{SEVEN}\nplans-per-day = 2"
    answers = [
        asked_for(tmp_path / "run", policy, 100 + number, 1.0 + number % 2 * 5)
        for number in range(4)
    ]
    assert answers[0] == "allowed"
    assert "does not fit into what is left" in answers[1]
    # The third one fits and the fourth does not: both have one answer.
    assert answers[2] == answers[3]
    assert "plans_per_day is 2" in answers[2]
    # A run that pays for its answer counts no more.
    FileLedger(tmp_path / "run" / f"ledger-{VICTIM}.jsonl").charge(
        LedgerEntry(
            "100/3", DATA_ID, "ab", 1, 0, "sums", epsilon=0.01, delta=1e-9,
            unit="record",
        )
    )  # fmt: skip
    assert asked_for(tmp_path / "run", policy, 110, 1.0) == "allowed"


def test_other_plans_of_one_run_are_other_plans(tmp_path: Path) -> None:
    """The server says a run's number: many plans of one would tell as much."""
    policy = "max-epsilon-total = 6.0\nmax-delta-total = 1e-4\nplans-per-day = 3"
    assert asked_for(tmp_path / "run", policy, 100, 1.0) == "allowed"
    # Other runs have cost 5.0, so that none of these is allowed.
    answers = [
        asked_for(tmp_path / "run", policy, 101, epsilon)
        for epsilon in (6.0, 5.0, 4.0, 3.5, 5.0)
    ]
    told = ["plans_per_day is 3" in answer for answer in answers]
    # One that was looked at before tells nothing new.
    assert told == [False, False, True, True, False]
    assert answers[2] == answers[3]


def test_plans_of_yesterday_and_lines_that_are_none_do_not_count(
    tmp_path: Path,
) -> None:
    ledger = FileLedger(tmp_path / "ledger.jsonl")
    yesterday = (datetime.now(UTC) - timedelta(hours=25)).isoformat()
    old = json.dumps({"time": yesterday, "data_id": DATA_ID, "run_id": "1"})
    (tmp_path / "ledger.jsonl.plans").write_text(
        f'{old}\n{{"time": "soon", "data_id": "x", "run_id": "y"}}\n[]\n{{'
    )
    assert ledger.note_plan(DATA_ID, "2/3", "ab", most=5) == 0
    later = FileLedger(tmp_path / "ledger.jsonl")
    assert later.note_plan(DATA_ID, "3/3", "ab", most=5) == 1
    # Nodes of one run on one host, and a plan that comes again, are one run; other data
    # have their own number.
    assert ledger.note_plan(DATA_ID, "3/4", "ab", most=5) == 1
    assert ledger.note_plan("other", "4/3", "ab", most=5) == 0
    assert len((tmp_path / "ledger.jsonl.plans").read_text().splitlines()) == 3


def test_a_crash_while_plans_are_noted_forgets_none_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By lost notes, a server would learn more of what other runs have cost."""
    ledger = FileLedger(tmp_path / "ledger.jsonl")
    assert ledger.note_plan(DATA_ID, "2/3", "ab", most=5) == 0
    with monkeypatch.context() as patch:
        replace_call(patch, "write", broken_write)
        with pytest.raises(BudgetError, match="No space left"):
            ledger.note_plan(DATA_ID, "3/3", "ab", most=5)
    assert ledger.note_plan(DATA_ID, "4/3", "ab", most=5) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ledger.jsonl.plans"]


def broken_write(descriptor: int, content: bytes) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_note_whose_time_has_no_zone_is_none(tmp_path: Path) -> None:
    """It would otherwise keep the node from every run, until somebody deletes it."""
    naive = datetime.now().isoformat()
    note = json.dumps({"time": naive, "data_id": DATA_ID, "run_id": "1"})
    (tmp_path / "ledger.jsonl.plans").write_text(f"{note}\n")
    ledger = FileLedger(tmp_path / "ledger.jsonl")
    assert ledger.note_plan(DATA_ID, "2/3", "ab", most=5) == 0
    assert ledger.note_plan(DATA_ID, "3/3", "ab", most=5) == 1


ALLOWING = """
max-epsilon-per-run = 2.0
max-epsilon-total = 7.0
max-delta = 1e-4
max-delta-total = 2e-4
allowed-trust = ["oblivious", "distributed"]
allowed-algorithms = ["proxy_lloyd"]
allowed-units = ["record"]
min-cohort = 3
allowed-bounds = [[-1, 1], [-1, 1]]
allowed-evaluation = ["none", "private"]
allow-server-data = false
"""


@pytest.mark.parametrize("n_examples", [240, None], ids=["final", "preliminary"])
def test_a_plan_within_every_limit_runs(tmp_path: Path, n_examples: int | None) -> None:
    deployment = deploy(tmp_path / "run", ALLOWING)
    result = deployment.start(
        epsilon=1.0, n_examples=n_examples, delta=1e-4, min_clients=3,
        evaluation="private",
    )  # fmt: skip
    assert result.confirmed == (2, 3, 4)
    assert result.privacy is not None
    ledger = FileLedger(deployment.ledger)
    assert charged_epsilon(ledger, DATA_ID, "record") == pytest.approx(
        5.0 + result.privacy.epsilon_worst_case
    )
    assert ledger.past(DATA_ID, "record").delta == pytest.approx(2e-4)
    assert verify_ledger(deployment.ledger) == []


@pytest.mark.parametrize("n_examples", [240, None], ids=["final", "preliminary"])
def test_a_declared_largest_epsilon_counts_for_a_preliminary_plan(
    tmp_path: Path, n_examples: int | None
) -> None:
    """Before N is known the worst case is at most 2 epsilon or max_epsilon."""
    deployment = deploy(tmp_path / "run", "max-epsilon-per-run = 1.5")
    assert deployment.start(
        epsilon=1.0, n_examples=n_examples, max_epsilon=1.5
    ).confirmed == (2, 3, 4)
    assert charged_epsilon(FileLedger(deployment.ledger), DATA_ID, "record") <= 6.5


# -- limits during a run ---------------------------------------------------------------


def is_sum(message: Message, index: int) -> bool:
    """Whether a message asks the victim for one round's vector."""
    header = json.loads(str(message.content.config_records[RECORD]["header"]))
    return message.metadata.dst_node_id == VICTIM and (
        header["stage"],
        header.get("round"),
    ) == ("sum", index)


@pytest.mark.parametrize("index", [0, 1, 3])
def test_an_owner_who_becomes_stricter_is_obeyed_at_once(
    tmp_path: Path, index: int
) -> None:
    """Also between the private count and the final plan."""
    deployment = deploy(tmp_path / "run", ALLOWING)

    def on_request(message: Message) -> bool:
        if is_sum(message, index):
            (tmp_path / "run" / "policy.toml").write_text(
                'allow-anything = true\nallowed-algorithms = ["fastlloyd"]'
            )
        return True

    deployment.faults.on_request = on_request
    with pytest.raises(
        RefusalError, match=rf"node {VICTIM} refused .* allows only 'fastlloyd'"
    ):
        deployment.start(epsilon=1.0, n_examples=None, delta=1e-4, min_clients=3)
    entries = FileLedger(deployment.ledger).entries()[1:]
    assert [entry.round_index for entry in entries] == list(range(index))


def require_within(ledger: FileLedger, epsilon: float, delta: float) -> None:
    """Fail if runs have cost more than a total."""
    spent = ledger.past(DATA_ID, "record").cost.epsilon(delta)
    assert 0.0 < spent <= epsilon * (1.0 + 1e-9)


def another_run(deployment: Deployment, limit: str) -> None:
    """Charge a run that alone fits into the budget."""
    other = (
        {"epsilon": 4.5, "delta": 1e-5, "mu": 1.14, "own_delta": 0.0}
        if limit == "epsilon"
        else {"epsilon": 0.01, "delta": 2e-4, "mu": 0.01, "own_delta": 1.998e-4}
    )
    entry = LedgerEntry("9/3", DATA_ID, "ab12", 1, 0, "sums", unit="record", **other)  # type: ignore[arg-type]

    def admit(past: Past) -> None:
        joint = past.cost.and_run(entry.cost)
        if joint.mu > largest_mu(7.0, 2e-4 - joint.own_delta):
            raise BudgetError("nothing is left: stop.")

    FileLedger(deployment.ledger).charge(entry, admit)


@pytest.mark.parametrize("limit", ["epsilon", "delta"])
def test_a_budget_that_another_run_takes_stops_this_one(
    tmp_path: Path, limit: str
) -> None:
    """Between the plan, which the node had agreed to, and the first release."""
    deployment = deploy(tmp_path / "run", ALLOWING)

    def on_request(message: Message) -> bool:
        if is_sum(message, 1):
            another_run(deployment, limit)
        return True

    deployment.faults.on_request = on_request
    sentence = (
        rf"node {VICTIM} refused .* what is left of this client's max_epsilon_total of "
    )
    with pytest.raises(RefusalError, match=sentence) as caught:
        deployment.start(epsilon=1.0, delta=1e-4, min_clients=3)
    assert "4.5" not in str(caught.value)
    ledger = FileLedger(deployment.ledger)
    assert ledger.attempts("31/3") == frozenset()
    require_within(ledger, 7.0, 2e-4)


@pytest.mark.parametrize("limit", ["epsilon", "delta"])
def test_a_run_under_way_has_paid_and_no_other_takes_its_budget(
    tmp_path: Path, limit: str
) -> None:
    deployment = deploy(tmp_path / "run", ALLOWING)
    refused: list[BudgetError] = []

    def on_request(message: Message) -> bool:
        if is_sum(message, 3):
            with pytest.raises(BudgetError) as caught:
                another_run(deployment, limit)
            refused.append(caught.value)
        return True

    deployment.faults.on_request = on_request
    assert deployment.start(epsilon=1.0, delta=1e-4, min_clients=3).confirmed == (
        2,
        3,
        4,
    )
    assert len(refused) == 1
    require_within(FileLedger(deployment.ledger), 7.0, 2e-4)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs processes that fork")
def test_two_whole_runs_at_once_never_exceed_the_total(tmp_path: Path) -> None:
    """Each in its own process, with room for one; the other is told why."""
    policy = "max-epsilon-total = 5.3\nmax-delta-total = 1e-4"
    deploy(tmp_path / "run", policy)
    reading, writing = os.pipe()
    children = []
    for run_id in (51, 52, 53):
        child = os.fork()
        if not child:
            told = "crashed"
            try:
                deploy(
                    tmp_path / "run",
                    policy,
                    run_id=run_id,
                    spent=False,
                ).start(epsilon=0.8, delta=1e-4)
                told = "finished"
            except RefusalError as error:
                told = f"refused: {error}"
            finally:
                os.write(writing, told.encode() + b"\n")
                os._exit(0)
        children.append(child)
    os.close(writing)
    for child in children:
        os.waitpid(child, 0)
    with open(reading) as pipe:
        told = pipe.read().splitlines()
    assert len(told) == 3
    assert told.count("finished") <= 1
    assert all(
        "max_epsilon_total of 5.3" in line for line in told if line != "finished"
    ), told
    ledger = FileLedger(tmp_path / "run" / f"ledger-{VICTIM}.jsonl")
    assert charged_epsilon(ledger, DATA_ID, "record") >= 5.0
    require_within(ledger, 5.3, 1e-4)
    assert verify_ledger(tmp_path / "run" / f"ledger-{VICTIM}.jsonl") == []


class Raced(MemoryLedger):
    """A ledger that another process charges between last check and charge."""

    def charge(self, entry: LedgerEntry, admit: Admit | None = None) -> None:
        if not self.entries():
            super().charge(replace(entry, run_id="9/3", epsilon=1.9, mu=2.0))
        super().charge(entry, admit)


class Broken(MemoryLedger):
    """A ledger whose disk fails."""

    def charge(self, entry: LedgerEntry, admit: Admit | None = None) -> None:
        raise BudgetError("the ledger /home/ward/7 cannot be used.")


@pytest.mark.parametrize("ledger", [Raced(), Broken()], ids=["raced", "broken"])
def test_a_charge_that_fails_at_the_last_moment_stops_the_run(
    ledger: MemoryLedger,
) -> None:
    policies = {VICTIM: ClientPolicy(max_epsilon_total=2.0)}
    federation = make_federation(
        grid_parts(SIZES), policies=policies, ledgers={VICTIM: ledger}
    )
    with pytest.raises(RefusalError, match=f"node {VICTIM} refused") as caught:
        federation.start(epsilon=1.0)
    own = (
        "in its own log"
        if isinstance(ledger, Broken)
        else "what is left of this client's max_epsilon_total of 2"
    )
    assert own in str(caught.value)
    assert "ward" not in str(caught.value)
    assert "1.9" not in str(caught.value)
    assert not any(
        message.metadata.src_node_id == VICTIM
        and VECTOR_RECORD in message.content.array_records
        for message in federation.grid.received
    )


# -- ledgers that cannot be used -------------------------------------------------------


def unlink(path: Path) -> None:
    path.unlink()


def cut_last_line(path: Path) -> None:
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))


def edit(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b'"epsilon": 5.0', b'"epsilon": 0.5'))


def delete_head(path: Path) -> None:
    path.with_name(path.name + ".head").unlink()


@pytest.mark.parametrize("damage", [unlink, cut_last_line, edit, delete_head])
def test_a_damaged_ledger_is_refused_before_anything_leaves(
    tmp_path: Path, damage: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    deployment = deploy(tmp_path / "run", ALLOWING)
    damage(deployment.ledger)
    before = deployment.files()
    with pytest.raises(RefusalError) as caught:
        deployment.start(epsilon=1.0, delta=1e-4, min_clients=3)
    assert str(caught.value).startswith(f"node {VICTIM} refused")
    assert "own log" in str(caught.value)
    assert str(tmp_path) not in str(caught.value)
    assert str(deployment.ledger) in caplog.text
    assert deployment.files() == before
    ledgers = [
        place
        for place in deployment.folder.glob("ledger-[24]*")
        if place.suffix not in BESIDE
    ]
    assert not any(place.read_bytes() for place in ledgers)


def test_a_ledger_that_cannot_be_written_is_refused_before_anything_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployment = deploy(tmp_path / "run", ALLOWING)

    look = os.open

    def unwritable(place: Any, flags: int, *rest: Any, **more: Any) -> int:
        if str(place).endswith("ledger-3.jsonl") and flags & os.O_RDWR:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        return look(place, flags, *rest, **more)

    replace_call(monkeypatch, "open", unwritable)
    sentence = (
        "this client's budget ledger is damaged, cannot be written or knows other data"
        " only .its own log says which., and without it"
    )
    with pytest.raises(
        RefusalError, match=f"node {VICTIM} refused .RefusalError.: {sentence}"
    ):
        deployment.start(epsilon=1.0, delta=1e-4, min_clients=3)
    ledgers = [
        place
        for place in deployment.folder.glob("ledger-[24]*")
        if place.suffix not in BESIDE
    ]
    assert not any(place.read_bytes() for place in ledgers)


def test_a_ledger_that_was_charged_for_other_rows_is_refused_before_anything_leaves(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    deploy(tmp_path / "run", ALLOWING).start(epsilon=0.5, delta=1e-5, min_clients=3)
    deployment = deploy(
        tmp_path / "run", ALLOWING, run_id=32, spent=False, sizes=(120, 11, 60)
    )
    before = deployment.files()
    with pytest.raises(RefusalError, match="knows other data only") as no:
        deployment.start(epsilon=0.5, delta=1e-5, min_clients=3)
    assert deployment.files() == before
    assert "now there are fewer rows" in caplog.text
    assert "rows" not in str(no.value)


@pytest.mark.parametrize("when", ["older copy", "deleted"])
def test_a_ledger_that_is_put_back_during_a_run_stops_this_client(
    tmp_path: Path, when: str
) -> None:
    """Both files at once, which the files themselves cannot tell."""
    deployment = deploy(tmp_path / "run", ALLOWING)
    backup = deployment.files()

    def on_request(message: Message) -> bool:
        if is_sum(message, 3):
            for name, content in backup.items():
                place = deployment.folder / name
                place.unlink() if when == "deleted" else place.write_bytes(content)
        return True

    deployment.faults.on_request = on_request
    with pytest.raises(CohortError):
        deployment.start(epsilon=1.0, delta=1e-4, min_clients=3)
    (refusal,) = [
        m
        for m in deployment.from_victim()
        if "sentence" in str(m.content.config_records[RECORD]["header"])
    ]
    header = json.loads(str(refusal.content.config_records[RECORD]["header"]))
    assert "lacks releases of run 31 that it has made" in header["sentence"]


# -- policies in files -----------------------------------------------------------------


@pytest.mark.parametrize("policy", [None, "", "min-cohort = 3"])
def test_a_deployed_node_requires_privacy_unless_its_file_says_otherwise(
    tmp_path: Path, policy: str | None
) -> None:
    """A file that leaves these two keys out is no weaker than no file."""
    config = {"ledger": str(tmp_path / "ledger")}
    if policy is not None:
        (tmp_path / "policy.toml").write_text(policy)
        config["policy"] = str(tmp_path / "policy.toml")

    def found() -> ClientPolicy:
        return settings_of(config).policy

    assert found().require_secure_noise
    assert not found().allow_non_private
    if policy is not None:
        (tmp_path / "policy.toml").write_text(
            "require-secure-noise = false\nallow-non-private = true"
        )
        assert not found().require_secure_noise
        assert found().allow_non_private


def settings_of(config: dict[str, Any]) -> NodeSettings:
    grid = FaultyGrid([Node(client_app(lambda _: np.zeros((1, 1))), config)])
    context: Context = grid.contexts[FIRST_NODE_ID]
    return node_settings(context)


# -- restarts and replays --------------------------------------------------------------


def test_a_node_that_lost_its_memory_gives_nothing_and_pays_nothing(
    tmp_path: Path,
) -> None:
    """A SuperNode restarted between rounds is left out, and the others go on."""
    ledgers = {node: FileLedger(tmp_path / f"ledger-{node}") for node in (2, 3, 4, 5)}
    federation = make_federation(grid_parts((120, 80, 60, 40)), ledgers=ledgers)  # type: ignore[arg-type]

    def on_request(message: Message) -> bool:
        if is_sum(message, 2):
            state = federation.grid.contexts[VICTIM].state
            for name in list(state):
                del state[name]
        return True

    federation.faults.on_request = on_request
    result = federation.start(epsilon=1.0)
    assert result.confirmed == (2, 4, 5)
    assert [(e.round_index, e.attempt) for e in ledgers[VICTIM].entries()] == [(1, 0)]
    assert verify_ledger(tmp_path / f"ledger-{VICTIM}") == []


@pytest.mark.parametrize("keeps_state", [True, False], ids=["state kept", "state lost"])
def test_a_plan_that_is_sent_again_gets_no_second_key(
    tmp_path: Path, keeps_state: bool
) -> None:
    """The same run id, by a server that restarted or that kept the plan."""
    first = deploy(tmp_path / "run", ALLOWING)
    first.start(epsilon=1.0, delta=1e-4, min_clients=3)
    before = first.files()
    again = deploy(tmp_path / "run", "max-epsilon-total = 9.0", spent=False)
    for node in (2, 3, 4) if keeps_state else ():
        again.grid.contexts[node].state.update(first.grid.contexts[node].state)
    with pytest.raises(RefusalError, match=r"refused \(ProtocolError\)") as caught:
        again.start(epsilon=1.0, delta=1e-4, min_clients=3)
    assert ("second plan" if keeps_state else "has releases of run 31 already") in str(
        caught.value
    )
    assert again.files() == before


def test_a_server_that_restarts_pays_for_its_new_run(tmp_path: Path) -> None:
    """A new run id is a new run, whose cost is added until nothing is left."""
    spent = [5.0]
    for run_id in (41, 42, 43):
        deployment = deploy(
            tmp_path / "run",
            "max-epsilon-total = 5.6\nmax-delta-total = 1e-4",
            run_id=run_id,
            spent=run_id == 41,
        )
        if run_id == 43:
            with pytest.raises(RefusalError, match="max_epsilon_total"):
                deployment.start(epsilon=1.0, delta=1e-4)
        else:
            deployment.start(epsilon=1.0, delta=1e-4)
        spent.append(charged_epsilon(FileLedger(deployment.ledger), DATA_ID, "record"))
    assert spent[0] < spent[1] < spent[2] == spent[3]
    require_within(FileLedger(deployment.ledger), 5.6, 1e-4)


def test_the_settings_of_these_nodes_are_those_of_a_deployment(tmp_path: Path) -> None:
    """So no settings of the test's own stand between."""
    deployment = deploy(tmp_path / "run", ALLOWING)
    found = node_settings(deployment.grid.contexts[VICTIM])
    assert not found.simulated
    assert found.policy == ClientPolicy.from_toml(
        tmp_path / "run" / "policy.toml",
        base=ClientPolicy(
            plans_per_day=20, allow_non_private=False, require_secure_noise=True
        ),
    )
