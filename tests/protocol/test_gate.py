"""An approved app that tries to tell one bit of its rows past the gate, and cannot.

Each try is made twice, with the bit 0 and 1: all that the server receives must be of
the same form, and the same must be charged.
"""

from __future__ import annotations

import os
import pickle
import socket
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from flwr.app import (
    Array,
    ArrayRecord,
    ConfigRecord,
    Context,
    Message,
    RecordDict,
)
from flwr.client import NumPyClient
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg
from support.gates import gate_options, require_confinement

from flwr_dpkmeans import SecureMean, SecureSum
from flwr_dpkmeans.deploy.gate.app_process import AppAnswer, AppProcess
from flwr_dpkmeans.deploy.gate.gate_app import GateApp
from flwr_dpkmeans.deploy.gate.gated_app import Ask, Gate, GatedApp
from flwr_dpkmeans.deploy.guard.gated_program import numbers_of
from flwr_dpkmeans.flower.in_process_grid import InProcessGrid, Node
from flwr_dpkmeans.node.ledger_file import FileLedger
from flwr_dpkmeans.sums.build import initial_state
from flwr_dpkmeans.sums.draft import draft_plan

SECONDS = 4.0
LISTENER = socket.create_server(("127.0.0.1", 0))
LISTENER.setblocking(False)
GATE = gate_options(
    arrays={name: {"shape": [2, 3], "dtype": "float64"} for name in "ab"},
    noise_share=0.1,
    epsilon_per_round=8.0,
    delta_per_round=1e-5,
    epsilon_total=100.0,
    delta_total=0.01,
    most_examples=10,
    metrics={"loss": [0.0, 4.0]},
    seconds=SECONDS,
)
POLICY = """
max-epsilon-per-run = 10.0
max-epsilon-total = 100.0
max-delta = 1e-3
allowed-trust = ["distributed"]
allowed-units = ["client"]
min-cohort = 2
"""
PROJECT = """
[project]
name = "leaky"
version = "1.0.0"
license = "Apache-2.0"
[tool.flwr.app]
publisher = "me"
[tool.flwr.app.components]
serverapp = "leaky:app"
clientapp = "leaky:app"
"""
APP = """
import os, signal, socket, subprocess, sys, time
from pathlib import Path
import numpy as np
from flwr.app import *
from flwr.clientapp import ClientApp
app = ClientApp()
def answer(message, arrays, **records):
    metrics = {"metrics": MetricRecord({"num-examples": 5, "loss": 1.0})}
    named = {name: Array(value) for name, value in arrays.items()}
    content = {"arrays": ArrayRecord(named)} | metrics | records
    return Message(RecordDict(content), reply_to=message)
@app.evaluate()
def evaluate(message, context):
    raise ValueError(BIT)
@app.train()
def train(message, context):
    arrays = {n: a.numpy() + 0.1 for n, a in message.content["arrays"].items()}
    TRY
    return answer(message, arrays)
"""
IN_THE_ANSWER = {
    "names": "if BIT: arrays['c'] = arrays.pop('b')",
    "fewer": "if BIT: del arrays['b']",
    "more": "if BIT: arrays['c'] = arrays['a']",
    "order": "if BIT: arrays = dict(reversed(arrays.items()))",
    "padding": "if BIT: arrays['a'] = np.zeros((2, 4))",
    "type": "if BIT: arrays['a'] = arrays['a'].astype('f4')",
    "size": "if BIT: arrays['a'] = np.zeros(10**6)",
    "nan": "arrays['a'][BIT, 0] = np.nan",
    "infinity": "arrays['a'][BIT] = -np.inf",
    "magnitude": "arrays['a'] += 10.0 ** (300 * BIT)",
    "record": "return answer(message, arrays, **{f'row{BIT}': ConfigRecord({})})",
    "metric": "return answer(message, arrays, m=MetricRecord({f'loss{BIT}': BIT}))",
    "examples": "return answer(message, arrays, metrics=MetricRecord(\n"
    "        {'num-examples': float('nan') if BIT else 5}))",
    "measured": "return answer(message, arrays, metrics=MetricRecord(\n"
    "        {'num-examples': 5, 'loss': [1.0] if BIT else float('nan')}))",
    "second": "if BIT: return answer(message, arrays, again=ArrayRecord())",
    "exception": "if BIT: raise ValueError('row 7')",
    "error": "if BIT: return Message(Error(7, 'row 7'), reply_to=message)",
    "echo": "if BIT: return Message(message.content, reply_to=message)",
    "nothing": "if BIT: return None",
}
BEYOND_IT = {
    "exit": "if BIT: os._exit(0)",
    "interrupt": "if BIT: raise KeyboardInterrupt",
    "slow": "time.sleep(60 * BIT)",
    "stays": "if BIT: subprocess.Popen(['sleep', '1000'], start_new_session=True)",
    "kills": "if BIT: [os.kill(p, 9) for p in (os.getppid(), PID) if p]",
    "state": "context.state['x'] = ConfigRecord({'x': bytes(BIT * 2**25)})",
    "prints": "print('row' * 10**6 * BIT)",
    "files": "[os.pwrite(f, b'row' * 99, 0) for f in range(3, 9) if BIT and there(f)]",
    "ledger": "for p in Path(HOME).glob('*'): p.write_text(str(BIT))",
    "removes": "for p in Path(HOME).glob('*'): BIT and p.unlink()",
    "network": "BIT and socket.create_connection(('127.0.0.1', PORT), 1)",
}


class Recording(InProcessGrid):
    """Keeps the form of what the first node sends."""

    def deliver(self, message: Message) -> list[Message]:
        replies = super().deliver(message)
        if message.metadata.dst_node_id == min(self._nodes):
            self.forms = [*getattr(self, "forms", []), *map(form_of, replies)]
        return replies


def form_of(reply: Message) -> Any:
    """All of a reply but random bytes, of which the number is left."""
    if reply.has_error():
        return reply.error.code, reply.error.reason
    records = [
        (name, type(record), [(key, form_of_value(record[key])) for key in record])
        for name, record in reply.content.items()
    ]
    return reply.metadata.message_type, reply.metadata.ttl > 0, records


def form_of_value(value: Any) -> Any:
    if isinstance(value, Array):
        return value.dtype, value.shape, value.stype, len(value.data)
    return len(value) if isinstance(value, bytes) else value


def write_app(folder: Path, attempt: str, bit: int) -> Path:
    folder.mkdir()
    home = folder.parent / "home"
    port = LISTENER.getsockname()[1]
    names = f"BIT, PID, HOME, PORT = {bit}, {os.getpid()}, {str(home)!r}, {port}\n"
    there = "def there(f):\n    return os.path.exists(f'/proc/self/fd/{f}')\n"
    (folder / "leaky.py").write_text(names + there + APP.replace("TRY", attempt))
    (folder / "pyproject.toml").write_text(PROJECT)
    return folder


def in_this_process(folder: Path) -> Ask:
    """As the app's own process does it, but for what that alone can stop."""

    def ask(
        message: Message, context: Context, state: bytes, metrics: Any, n: int
    ) -> AppAnswer:
        names: dict[str, Any] = {}
        exec((folder / "leaky.py").read_text(), names)
        try:
            numbers = numbers_of(
                cast(ClientApp, names["app"]), message, context, metrics
            )
        except Exception:
            return AppAnswer(None, None, "")
        return AppAnswer(numbers, pickle.dumps(context.state), "")

    return ask


def in_its_own(folder: Path) -> Ask:
    app = ("me/leaky", "1.0.0", "")
    return AppProcess(folder, app, SECONDS, confined=True).ask


def silent(*_: Any) -> AppAnswer:
    return AppAnswer(None, None, "")


def seen(home: Path, ask: Ask) -> Any:
    """The form of all that a run gets of a node, and what the run cost it."""
    home.mkdir()
    (home / "policy.toml").write_text(POLICY)
    nodes = []
    for name, how in (("first", ask), ("second", silent)):
        config = {"policy": "policy.toml", "ledger": f"{name}.jsonl"}
        paths = {key: str(home / file) for key, file in config.items()}
        nodes.append(Node(GateApp(Gate(GATE, how)), paths | {"data-id": "rows"}))
    grid = Recording(nodes)
    start = ArrayRecord({name: Array(np.zeros((2, 3))) for name in "ab"})
    metrics = {"loss": (0.0, 4.0)}
    mean = SecureMean(
        FedAvg(), epsilon=4.0, most_examples=10, metrics=metrics, random_state=1
    )
    with grid.running():
        result = mean.start(grid, start, num_rounds=1)
    assert 0.0 <= cast(float, result.train_metrics_clientapp[1]["loss"]) <= 4.0
    entries = FileLedger(home / "first.jsonl").entries()
    return grid.forms, [(entry.release, entry.epsilon) for entry in entries]


def timed(ask: Ask, durations: list[float]) -> Ask:
    """The same, with a note of how long it takes."""

    def timed_ask(*question: Any) -> AppAnswer:
        began = time.monotonic()
        answer = ask(*question)
        durations.append(time.monotonic() - began)
        return answer

    return timed_ask


def require_nothing_told(
    folder: Path, attempt: str, how: Callable[[Path], Ask]
) -> None:
    told = []
    for bit in (0, 1):
        room = folder / str(bit)
        room.mkdir()
        ask = how(write_app(room / "app", attempt, bit))
        durations: list[float] = []
        told.append(seen(room / "home", timed(ask, durations)))
        if how is in_its_own:
            assert durations == [pytest.approx(SECONDS, abs=0.3)]
    assert len(told[0][0]) == 3  # a key, a vector, a tag
    assert told[0][1][0][0] == "arrays-1"
    assert told[0] == told[1]
    with pytest.raises(BlockingIOError):
        LISTENER.accept()


@pytest.mark.parametrize("attempt", IN_THE_ANSWER)
def test_no_answer_of_an_app_tells_a_bit(attempt: str, tmp_path: Path) -> None:
    require_nothing_told(tmp_path, IN_THE_ANSWER[attempt], in_this_process)


@pytest.mark.nightly
@pytest.mark.parametrize("attempt", BEYOND_IT)
def test_nothing_that_an_app_does_tells_a_bit(attempt: str, tmp_path: Path) -> None:
    require_confinement(tmp_path)
    require_nothing_told(tmp_path, BEYOND_IT[attempt], in_its_own)


@pytest.mark.parametrize(
    ("attempt", "norm"),
    [
        ("pass", 12**0.5 * 0.1 * 0.5),
        ("arrays['a'] += 1e9", 0.5),
        (IN_THE_ANSWER["nan"], 0.0),
        (IN_THE_ANSWER["padding"], 0.0),
        (IN_THE_ANSWER["type"], 0.0),
        (IN_THE_ANSWER["exception"], 0.0),
        (IN_THE_ANSWER["examples"], 0.0),
    ],
)
def test_what_does_not_fit_counts_as_zeros_and_the_rest_is_clipped(
    attempt: str, norm: float, tmp_path: Path
) -> None:
    """Of 5 of 10 examples half counts."""
    ask = in_this_process(write_app(tmp_path / "app", attempt, 1))
    start = ArrayRecord({name: Array(np.zeros((2, 3))) for name in "ab"})
    grid = InProcessGrid([])
    with grid.running():
        message = Message(RecordDict({"arrays": start}), 2, "train")
    run = SecureSum(start, epsilon=4.0, most_examples=10).config
    run = run.changed(metrics=(("loss", 0.0, 4.0),))
    plan = draft_plan(run, run_id=1, n_clients=2, seed=1, n_features=1)
    memory = SimpleNamespace(plan=plan, clusters=initial_state(plan))
    context = Context(1, 2, {}, RecordDict(), {})
    app = GatedApp(message, context, cast(Any, None), Gate(GATE, ask))
    update, weight, metric = app.compute(cast(Any, memory), 1)
    assert np.linalg.norm(update) / 256 == pytest.approx(norm, abs=1e-5)
    assert weight[0] == (128 if norm else 0)
    # Of 1 of 4, by half of the weight; what is no number is the least.
    assert metric[0] == (32 if norm else 0)


def test_an_app_of_numpy_clients_answers_what_flowers_strategies_ask_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Its owner reads what else it answered."""

    class Client(NumPyClient):
        def fit(self, parameters: Any, config: Any) -> Any:
            assert config == {"server-round": 1}
            return (
                [parameters[0] + 1.0, parameters[1] - 2.0],
                7,
                {"loss": 0.5, "n": "x", "row 7": 1},
            )

    app = ClientApp(client_fn=lambda context: Client().to_client())
    start = {name: Array(np.zeros((1, 2))) for name in "ab"}
    records = {"arrays": ArrayRecord(start), "c": ConfigRecord({"server-round": 1})}
    context = Context(1, 2, {}, RecordDict(), {})
    with InProcessGrid([]).running():
        message = Message(RecordDict({**records}), 2, "train")
        numbers = numbers_of(app, message, context, ["loss", "n", "other"])
    answered = np.frombuffer(numbers).tolist()
    assert answered[:6] == [1.0, 1.0, -2.0, -2.0, 7.0, 0.5]
    assert np.isnan(answered[6:]).all()
    assert capsys.readouterr().out == "dropped of the app's answer: ['row 7']\n"
