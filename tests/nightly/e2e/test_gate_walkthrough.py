"""Somebody else's app, behind the gates of two nodes of a real SuperLink: a logistic
regression as in Flower's quickstart for scikit-learn, whose client code knows nothing
of this project.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from support.gates import require_confinement

from flwr_dpkmeans.deploy.findings import app_hash
from flwr_dpkmeans.deploy.gate.gate_options import GateOptions
from flwr_dpkmeans.node.ledger_file import FileLedger
from simulations.flower.deployment import PROJECT, deployed

CLIENT = """
import numpy as np
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

app = ClientApp()


def data_of(context):
    X, y = load_digits(return_X_y=True)
    rows = slice(context.node_config["partition-id"], None, 2)
    return X[rows] / 16.0, y[rows]


def model_of(arrays):
    model = LogisticRegression(max_iter=1, warm_start=True)
    model.classes_ = np.arange(10)
    model.coef_, model.intercept_ = arrays.to_numpy_ndarrays()
    return model


@app.train()
def train(message: Message, context: Context):
    X, y = data_of(context)
    model = model_of(message.content["arrays"])
    model.fit(X, y)
    print("trained on", len(X), "rows, of which the first is", X[0])
    metrics = {"num-examples": len(X), "loss": log_loss(y, model.predict_proba(X))}
    content = {
        "arrays": ArrayRecord([model.coef_, model.intercept_]),
        "metrics": MetricRecord(metrics),
    }
    return Message(RecordDict(content), reply_to=message)


@app.evaluate()
def evaluate(message: Message, context: Context):
    raise RuntimeError("no evaluation is asked for")
"""
SERVER = """
import numpy as np
from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr_dpkmeans import SecureMean

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context):
    start = ArrayRecord([np.zeros((10, 64)), np.zeros(10)])
    strategy = SecureMean(
        FedAvg(), epsilon=8.0, clip=1.0, n_clients=2, metrics={"loss": (0.0, 5.0)}
    )
    result = strategy.start(grid, start, num_rounds=2)
    print("shapes", *(array.shape for array in result.arrays.values()))
    print("loss of round 2", result.train_metrics_clientapp[2]["loss"])
    print("privacy", result.privacy.epsilon, result.privacy.unit)
"""
PROJECT_FILE = """
[project]
name = "quickstart"
version = "1.0.0"
license = "Apache-2.0"
dependencies = ["flwr"]
[tool.flwr.app]
publisher = "me"
[tool.flwr.app.components]
serverapp = "quickstart.server_app:app"
clientapp = "quickstart.client_app:app"
[tool.flwr.app.config]
"""
POLICY = """
max-epsilon-per-run = 20.0
max-epsilon-total = 40.0
max-delta = 1e-3
allowed-trust = ["distributed"]
allowed-units = ["client"]
min-cohort = 2
"""


def write_app(folder: Path) -> Path:
    """The app, with this project beside it for its server alone."""
    package = folder / "quickstart"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "client_app.py").write_text(CLIENT)
    (package / "server_app.py").write_text(SERVER)
    (folder / "pyproject.toml").write_text(PROJECT_FILE)
    shutil.copytree(
        PROJECT / "flwr_dpkmeans",
        folder / "flwr_dpkmeans",
        ignore=shutil.ignore_patterns("docs", "__pycache__"),
    )
    return folder


def gate_of(app: Path) -> GateOptions:
    return GateOptions.of(
        {
            "app": app_hash(app),
            "arrays": {
                "0": {"shape": [10, 64], "dtype": "float64"},
                "1": {"shape": [10], "dtype": "float64"},
            },
            "clip": 1.0,
            "noise-share": 0.3,
            "epsilon-per-round": 12.0,
            "delta-per-round": 1e-5,
            "epsilon-total": 40.0,
            "delta-total": 1e-3,
            "rounds": 2,
            "metrics": {"loss": [0.0, 5.0]},
            "seconds": 20.0,
            "node-config": {"partition-id": 0},
        },
        Path("NODE.toml"),
    )


def test_an_unchanged_app_trains_behind_the_gate(tmp_path: Path) -> None:
    require_confinement(tmp_path)
    app = write_app(tmp_path / "app")
    (tmp_path / "policy.toml").write_text(POLICY)
    nodes = []
    for name in ("first", "second"):
        node = {
            "policy": "policy.toml",
            "ledger": f"{name}.jsonl",
            "log-file": f"{name}.log",
        }
        nodes.append({key: str(tmp_path / file) for key, file in node.items()})
    with deployed(tmp_path / "homes", nodes, app=app, gate=gate_of(app)) as federation:
        lines = federation.run("", app=app)
        outputs = [
            path.read_text() for path in (tmp_path / "homes").rglob("app-output.log")
        ]
    text = "\n".join(line.text for line in lines)
    assert "shapes (10, 64) (10,)" in text
    assert "loss of round 2" in text
    assert "first is" not in text
    for name in ("first", "second"):
        entries = FileLedger(tmp_path / f"{name}.jsonl").entries()
        assert [entry.release for entry in entries][:2] == ["arrays-1", "arrays-2"]
        assert {entry.unit for entry in entries} == {"client"}
        assert "counts as zeros" not in (tmp_path / f"{name}.log").read_text()
    assert len(outputs) == 2
    assert all(output.count("trained on 899 rows") == 2 for output in outputs)
