"""A whole client killed at random instants of a run, and resumed with a kept, an older
or a lost state.

As in a deployment every message is answered by a process of its own, which reads the
state, charges the ledger file and hands the reply over. Whatever was handed over must
stand in the ledger, once; the ledger may hold one release more for each process that
was killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import random
import select
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from support.ledger_crashes import Countdown
from support.ledger_entries import charged_epsilon
from support.messages import RECORD, VECTOR_RECORD, copied
from support.protocol_federation import (
    Federation,
    grid_parts,
    make_federation,
    small_config,
)

from flwr_dpkmeans.deploy.owner.ledger_report import inspect_ledger
from flwr_dpkmeans.errors import CohortError
from flwr_dpkmeans.flower.in_process_grid import Node
from flwr_dpkmeans.node.ledger_entries import RESULT_TAKEN
from flwr_dpkmeans.node.ledger_file import FileLedger
from flwr_dpkmeans.node.policy import ClientPolicy
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.statement import epsilon_after

pytestmark = pytest.mark.skipif(
    not hasattr(os, "fork"), reason="needs processes that fork"
)

SIZES = (400, 300, 200, 100)
VICTIM = 3
PATIENCE = 60.0
MOST_SECONDS = 0.06
"""Most answers take less."""
CALLS = ((0, 84), (57, 84))
"""Points before and after the watched calls to the operating system in an answer.

And those of the charge alone.
"""


@dataclass
class Killer:
    """Runs each message of one node in a process, and kills some of them."""

    app: ClientApp
    generator: random.Random
    rate: float
    kills: int = 0
    sent: list[tuple[int, int, int]] = field(default_factory=list)
    """(run, round, attempt) of every vector that left a process."""
    refused: list[str] = field(default_factory=list)
    older: RecordDict | None = None

    def __call__(self, message: Message, context: Context) -> Message:
        """Answer a message, as often as it is delivered."""
        before = copied(context.state)
        deliveries = self.generator.choice([1, 1, 2, 3])
        content = None
        for _ in range(deliveries):
            reply = self._answered(message, context)
            if content is None or not is_answer(content):
                content = reply or content
            fate = self.generator.random()
            if fate < 0.06:
                context.state = copied(
                    before
                )  # what was handed over has not been saved
            elif fate < 0.1:
                context.state = RecordDict()  # the SuperNode restarted
            elif fate < 0.14 and self.older is not None:
                context.state = copied(self.older)  # somebody put an older one back
        self.older = before
        if content is None:
            raise RuntimeError("killed")
        return Message(content, reply_to=message)

    def _answered(self, message: Message, context: Context) -> RecordDict | None:
        """Let a process answer; None if it was killed before it replied."""
        killed = self.generator.random() < self.rate
        by_time = self.generator.random() < 0.3
        seconds = (
            self.generator.uniform(0.0, MOST_SECONDS) if killed and by_time else None
        )
        die_at = (
            self.generator.randrange(*self.generator.choice(CALLS))
            if killed and not by_time
            else None
        )
        raw, code = in_process(lambda: self._serve(message, context, die_at), seconds)
        if code == -signal.SIGKILL:
            self.kills += 1
        else:
            assert code == 0, code
        if not raw:
            return None
        # A reply that was cut off on its way was given away all the same.
        header, state, reply = pickle.loads(raw)
        if VECTOR_RECORD in reply:
            self.sent.append((context.run_id, header["round"], header["attempt"]))
        elif header.get("sentence"):
            self.refused.append(header["sentence"])
        context.state = state
        return reply

    def _serve(self, message: Message, context: Context, die_at: int | None) -> bytes:
        if die_at is not None:
            Countdown(die_at, stride=10_000).watch_calls()
        content = self.app(message, context).content
        header = json.loads(str(content.config_records[RECORD]["header"]))
        return pickle.dumps((header, context.state, content))


def is_answer(content: RecordDict) -> bool:
    """Whether a reply is none of a refusal."""
    return "sentence" not in json.loads(str(content.config_records[RECORD]["header"]))


def in_process(work: Callable[[], bytes], seconds: float | None) -> tuple[bytes, int]:
    """Run in a forked process, killed after a time.

    Return what it handed over and how it ended.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        code = 70
        try:
            os.close(reading)
            handed = memoryview(work())
            while handed:
                handed = handed[os.write(writing, handed) :]
            code = 0
        finally:
            os._exit(code)
    os.close(writing)
    if seconds is not None:
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
    chunks = []
    while True:
        if not select.select([reading], [], [], PATIENCE)[0]:
            os.kill(child, signal.SIGKILL)
        chunk = os.read(reading, 1 << 20)
        if not chunk:
            break
        chunks.append(chunk)
    os.close(reading)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    raw = b"".join(chunks)
    return (raw if code == 0 or is_whole(raw) else b""), code


def is_whole(raw: bytes) -> bool:
    """Whether a killed process had handed all of its reply over.

    One that is cut off cannot be used by anybody.
    """
    try:
        pickle.loads(raw)
    except Exception:
        return False
    return True


def federation_with(
    killer: Killer, ledger: FileLedger, policy: ClientPolicy
) -> Federation:
    """A federation in which one node's app is run by the killer."""
    ledgers: Any = {VICTIM: ledger}
    federation = make_federation(
        grid_parts(SIZES), ledgers=ledgers, policies={VICTIM: policy}
    )
    node = federation.grid._nodes[VICTIM]
    killer.app = node.app
    federation.grid._nodes[VICTIM] = Node(killer, node.node_config)  # type: ignore[arg-type]
    return federation


def price(plan: Plan, releases: list[tuple[int, int]]) -> float:
    """What some releases of a run cost; None at all cost nothing."""
    return epsilon_after(plan, releases) if releases else 0.0


@pytest.mark.parametrize(
    ("n_runs", "values"),
    [(16, {"n_examples": 1000}), (16, {"n_examples": None, "trust": "distributed"})],
    ids=["oblivious", "preliminary and distributed"],
)
def test_what_a_killed_client_gave_stands_in_its_ledger_once(
    tmp_path: Path, n_runs: int, values: dict[str, Any]
) -> None:
    """Many runs on one data set, each message in a process of its own."""
    path, killer = tmp_path / "ledger", Killer(ClientApp(), random.Random(8), rate=0.35)
    costs = 0.0
    for _ in range(n_runs):
        federation = federation_with(killer, FileLedger(path), ClientPolicy())
        killer.older, kills_before = None, killer.kills
        with contextlib.suppress(CohortError):
            federation.start(
                small_config(epsilon=5.0, max_iter=3, max_retries=3, **values)
            )
        run, plan = federation.grid.run.run_id, federation.plan
        sent = [
            (index, attempt) for number, index, attempt in killer.sent if number == run
        ]
        assert len(sent) == len(set(sent)), "one release was given twice"
        report = inspect_ledger(path)
        assert report.problems == () or not path.exists()
        ledger = FileLedger(path)
        charged = {
            entry
            for entry in ledger.attempts(f"{run}/{VICTIM}")
            if entry[1] < RESULT_TAKEN
        }
        assert set(sent) <= charged
        assert len(charged) - len(sent) <= killer.kills - kills_before
        costs += price(plan, sent)
        assert charged_epsilon(ledger, "rows", "record") >= costs * (1 - 1e-9)
    # All of it did happen; a slow machine is caught at its work less often.
    assert killer.kills > 5
    assert len(killer.sent) > 20
    for told in ("stands in this client's ledger already", "unknown to this client"):
        assert any(told in sentence for sentence in killer.refused), told
    assert len(inspect_ledger(path).entries) > len(killer.sent)
    print(
        f"{killer.kills} kills, {len(killer.sent)} releases,"
        f" {len(inspect_ledger(path).entries)} charged"
    )
