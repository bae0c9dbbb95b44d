"""The live pages: who may read them, what they say, and metrics in which no number
depends on rows.
"""

from __future__ import annotations

import base64
import hashlib
import math
import os
import re
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient
from support.asked_plans import gaussian_cost
from support.ledger_entries import entry
from support.node_files import write_node
from support.protocol_federation import grid_parts, make_federation, small_config

from flwr_dpkmeans.__main__ import main
from flwr_dpkmeans.deploy.dashboard import (
    node_metrics,
    node_page,
    read_token,
    server_metrics,
    server_page,
    site,
)
from flwr_dpkmeans.errors import ConfigurationError, DPKMeansError
from flwr_dpkmeans.flower.progress import recorded_progress
from flwr_dpkmeans.flower.round_trip import Notice
from flwr_dpkmeans.flower.run_progress import PROGRESS_FILE
from flwr_dpkmeans.flower.strategy import PrivateKMeans
from flwr_dpkmeans.node.ledger_file import FileLedger
from flwr_dpkmeans.node.policy import ClientPolicy
from flwr_dpkmeans.privacy.gaussian import gaussian_epsilon

ALLOWED = {
    "dpkmeans_runs": {
        "outcome": {"running", "completed", "stopped", "failed", "died", "unreadable"}
    },
    "dpkmeans_round_trips": {"stage": {"keys", "share", "sum", "unmask", "finish"}},
    "dpkmeans_round_trip_seconds": {
        "stage": {"keys", "share", "sum", "unmask", "finish"}
    },
    "dpkmeans_bytes": {"direction": {"sent", "received"}},
    "dpkmeans_silent_nodes": {"state": {"late", "left out"}},
    "dpkmeans_last_message_timestamp_seconds": {"node": {"2", "3", "4", "5"}},
    "dpkmeans_silent_runs": {"node": {"2", "3", "4", "5"}},
    "dpkmeans_events": {"event": {"retry", "left out", "no reply"}},
    "dpkmeans_refusals": {"kind": {"app", "other", "RefusalError", "ProtocolError"}},
    "dpkmeans_last_success_timestamp_seconds": {},
    "dpkmeans_disk_free_bytes": {"folder": {"results"}},
}
OF_NODE = {
    "dpkmeans_budget_epsilon": {
        "data_set": {"rows", "old"},
        "unit": {"record", "client"},
        "state": {"spent", "left"},
    },
    "dpkmeans_last_message_timestamp_seconds": {"state": {"received", "answered"}},
    "dpkmeans_unanswered_messages": {},
    "dpkmeans_ledger_problems": {},
    "dpkmeans_ledger_runs": {},
    "dpkmeans_refusals": {"kind": {"app"}},
    "dpkmeans_disk_free_bytes": {"folder": {"ledger", "results"}},
    "dpkmeans_certificate_days": {"file": {"ca.crt"}},
}


TOKEN = "a-token-of-the-owner-alone"
SHOWN = {"Authorization": f"Bearer {TOKEN}"}


def client(
    folder: Path, base: str = "http://127.0.0.1:8400", headers: dict[str, str] = SHOWN
) -> TestClient:
    app = site(partial(server_page, folder), partial(server_metrics, folder), TOKEN)
    return TestClient(app, base_url=base, headers=headers)


def numbers(
    text: str, allowed: dict[str, dict[str, set[str]]]
) -> dict[tuple[str, ...], float]:
    """Every sample, all of whose names and labels are allowed."""
    found = {}
    for family in text_string_to_metric_families(text):
        labels = allowed[family.name]
        for sample in family.samples:
            assert set(sample.labels) == set(labels)
            assert all(
                value in labels[label] for label, value in sample.labels.items()
            ), sample
            found[(family.name, *(sample.labels[label] for label in labels))] = (
                sample.value
            )
    return found


def run(
    folder: Path, parts: list[Any], *, run_id: int = 7, policies: Any = None,
    **values: Any,
) -> None:  # fmt: skip
    """A run whose folder is looked at afterwards."""
    federation = make_federation(parts, run_id=run_id, policies=policies)
    strategy = PrivateKMeans.from_config(
        small_config(**{"algorithm": "fastlloyd", "max_iter": 2} | values)
    )
    with (
        recorded_progress(run_id, folder / f"run-{run_id}") as strategy.progress,
        federation.grid.running(),
    ):
        strategy.start(federation.grid)


def test_only_this_machine_may_read_and_nothing_can_be_changed(tmp_path: Path) -> None:
    for address in ("/", "/metrics"):
        for base in ("http://127.0.0.1:8400", "http://localhost:17"):
            assert client(tmp_path, base).get(address).status_code == 200
        for base in ("http://evil.example:8400", "http://127.0.0.1.evil.example"):
            answer = client(tmp_path, base).get(address)
            assert (answer.status_code, "run" in answer.text) == (400, False)
        for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
            assert client(tmp_path).request(method, address).status_code == 405
    for address in ("/run-7/progress.json", "/../etc/passwd", "/docs", "/openapi.json"):
        assert client(tmp_path).get(address).status_code == 404


HOSTS = (
    "127.0.0.1:evil.com", "127.0.0.1:8400.evil.com", "localhost:80:evil.com",
    "127.0.0.1:8400@evil.com", "",
)  # fmt: skip


@pytest.mark.parametrize("host", HOSTS)
def test_a_host_is_no_host_with_another_one_behind_its_colon(
    tmp_path: Path, host: str
) -> None:
    for address in ("/", "/metrics"):
        answer = client(tmp_path).get(address, headers={"Host": host})
        assert (answer.status_code, "run" in answer.text) == (400, False)


def test_another_user_of_the_machine_reads_neither_page_nor_metrics(
    tmp_path: Path,
) -> None:
    wrong = (
        {},
        {"Authorization": "Bearer "},
        {"Authorization": f"Basic {TOKEN}"},
        {"Authorization": f"Bearer {TOKEN}x"},
    )
    for address in ("/", "/metrics"):
        for headers in wrong:
            answer = client(tmp_path, headers=headers).get(address)
            assert (
                answer.status_code,
                TOKEN in answer.text,
                "runs" in answer.text,
            ) == (403, False, False)
        for query, code in (
            ("", 403),
            ("?token=", 403),
            ("?token=a-token", 403),
            (f"?token={TOKEN}", 200),
        ):
            assert client(tmp_path, headers={}).get(address + query).status_code == code


def test_every_answer_forbids_scripts_guesses_copies_and_referrers(
    tmp_path: Path,
) -> None:
    answers = [
        client(tmp_path).get(address) for address in ("/", "/metrics", "/absent")
    ]
    answers += [
        client(tmp_path, headers={}).get("/metrics"),
        client(tmp_path, "http://evil.example").get("/metrics"),
    ]
    answers.append(client(tmp_path).post("/metrics"))
    assert [answer.status_code for answer in answers] == [200, 200, 404, 403, 400, 405]
    for answer in answers:
        assert answer.headers["content-security-policy"].startswith(
            "default-src 'none'"
        )
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["referrer-policy"] == "no-referrer"


def test_an_answer_to_an_error_has_the_headers_too() -> None:
    def page() -> str:
        raise OSError("a disk is gone")

    app = site(page, list, TOKEN)
    with TestClient(app, "http://127.0.0.1", headers=SHOWN) as asking:
        answer = asking.get("/")
    assert (answer.status_code, answer.text) == (500, "Internal Server Error")
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")


def test_a_token_is_new_or_that_of_a_file_of_the_owners_alone(tmp_path: Path) -> None:
    first, second = read_token(None), read_token(None)
    assert first != second
    assert len(first) >= 40
    made = read_token(tmp_path / "token")
    assert (tmp_path / "token").stat().st_mode & 0o777 == 0o600
    assert read_token(tmp_path / "token") == made
    (tmp_path / "token").write_text("short")
    with pytest.raises(ConfigurationError, match="but a token has at least 20"):
        read_token(tmp_path / "token")


def test_the_page_may_load_nothing_and_applies_its_own_style_only(
    tmp_path: Path,
) -> None:
    answer = client(tmp_path).get("/")
    policy = answer.headers["content-security-policy"]
    style = answer.text.split("<style>")[1].split("</style>")[0]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert policy.startswith("default-src 'none'; ")
    assert policy.endswith(f"; style-src 'sha256-{digest}'")
    assert "unsafe" not in policy
    assert answer.headers["cache-control"] == "no-store"
    assert not re.search(
        r"<script|<link|<img|src=|url\(|@import|https?://", answer.text
    )
    assert '<meta http-equiv="refresh" content="5">' in answer.text


def test_the_servers_page_says_who_is_there_and_why_a_run_ended(tmp_path: Path) -> None:
    run(tmp_path, grid_parts((20, 20, 20)), run_id=11)
    with pytest.raises(DPKMeansError):
        run(
            tmp_path,
            grid_parts((20, 20, 20)),
            run_id=12,
            policies={3: ClientPolicy(max_epsilon_per_run=0.5)},
        )
    with recorded_progress(13, tmp_path / "run-13") as progress:
        hostile = Notice(
            time="", event="refused", reason="", sentence="<script>x</script>"
        )
        progress.tell(
            nodes=("2", "3"), answered=("2",), late=("3",), notices=(hostile,)
        )
        text = client(tmp_path).get("/").text
    assert "Run 13: running" in text
    assert re.search(r"not heard yet</th><td>3</td>", text)
    assert "Run 12 stopped. RefusalError: node 3 refused" in text
    assert "max_epsilon_per_run is 0.5" in text
    cells = ("[^<]*", "completed", "fastlloyd", "1", "4", "0")
    assert re.search(
        '<th scope="row">11</th>' + "".join(f"<td>{cell}</td>" for cell in cells), text
    )
    assert "&lt;script&gt;" in text
    assert "<script>x" not in text
    (tmp_path / "run-11" / PROGRESS_FILE).write_text("{")
    assert "run-11/progress.json cannot be read" in client(tmp_path).get("/").text


def test_metrics_count_runs_round_trips_and_refusals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path, grid_parts((20, 20, 20)), run_id=11)
    with pytest.raises(DPKMeansError):
        run(
            tmp_path,
            grid_parts((20, 20)),
            run_id=12,
            policies={3: ClientPolicy(max_epsilon_per_run=0.5)},
        )
    with recorded_progress(13, tmp_path / "run-13") as progress:
        events = (
            ("no reply", "1"),
            ("no reply", "5"),
            ("refused", "what a client says"),
            ("retry", ""),
        )
        notices = [
            Notice(time="", event=event, reason=reason, sentence="")
            for event, reason in events
        ]
        progress.tell(late=("3",), missing=("4", "5"), notices=notices)
    found = numbers(client(tmp_path).get("/metrics").text, ALLOWED)
    assert {
        key[1] for key in found if key[0] == "dpkmeans_last_message_timestamp_seconds"
    } == {"2", "3", "4"}
    silent = {
        key[1]: value
        for key, value in found.items()
        if key[0] == "dpkmeans_silent_runs"
    }
    assert silent == {"2": 0, "3": 1, "4": 0}
    left_out = ("seconds", "bytes", "silent_runs")
    counts = {
        key: value for key, value in found.items() if not key[0].endswith(left_out)
    }
    assert counts == {
        ("dpkmeans_runs", "completed"): 2, ("dpkmeans_runs", "stopped"): 1,
        ("dpkmeans_round_trips", "keys"): 2, ("dpkmeans_round_trips", "sum"): 2,
        ("dpkmeans_round_trips", "finish"): 1, ("dpkmeans_silent_nodes", "late"): 1,
        ("dpkmeans_silent_nodes", "left out"): 2, ("dpkmeans_events", "no reply"): 2,
        ("dpkmeans_events", "retry"): 1, ("dpkmeans_refusals", "app"): 1,
        ("dpkmeans_refusals", "other"): 1, ("dpkmeans_refusals", "RefusalError"): 1,
    }  # fmt: skip
    assert found["dpkmeans_bytes", "received"] > 3 * 2 * 3 * 3 * 8
    # A counter that forgets the oldest runs falls, which is a restart to Prometheus.
    assert server_page(tmp_path).count('<th scope="row">1') == 3
    assert server_page(tmp_path, 1).count('<th scope="row">1') == 1
    assert numbers(client(tmp_path).get("/metrics").text, ALLOWED) == found


BYTES = "dpkmeans_bytes"


@pytest.mark.parametrize(
    ("trust", "algorithm"), [("oblivious", "fastlloyd"), ("central", "glloyd")]
)
def test_no_metric_depends_on_rows(tmp_path: Path, trust: str, algorithm: str) -> None:
    """Two tables that differ in one row, and two with nothing in common."""
    one = [np.array(part) for part in grid_parts((60, 50, 40))]
    neighbour = [one[0][1:], *one[1:]]
    other = [np.full((300, 2), 0.875), np.zeros((0, 2)), np.full((90, 2), -0.5)]
    seen = []
    for index, parts in enumerate((one, neighbour, other)):
        run(tmp_path / str(index), parts, trust=trust, algorithm=algorithm)
        found = numbers(client(tmp_path / str(index)).get("/metrics").text, ALLOWED)
        seen.append(
            {
                key: value
                for key, value in found.items()
                # Clocks, and a disk that all programs share.
                if not key[0].endswith(("_seconds", "_bytes")) or key[0] == BYTES
            }
        )
    assert seen[0]["dpkmeans_runs", "completed"] == 1
    assert seen[0] == seen[1] == seen[2]


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """A node that gave three runs, one on other data, and refused an app."""
    file = write_node(
        tmp_path / "ward", data_id="rows", log_file=str(tmp_path / "node.log")
    )
    ledger = FileLedger(tmp_path / "ward" / "ledger.jsonl")
    for run_id, data_set, epsilon in (
        ("5/2", "rows", 0.5),
        ("6/2", "rows", 0.25),
        ("7/2", "old", 1.0),
    ):
        for index in (1, 2):
            ledger.charge(entry(run_id, index, epsilon, data_id=data_set))
    (tmp_path / "ward" / "home").mkdir()
    (tmp_path / "ward" / "home" / "alerts.log").write_text(
        "ALERT app refused: SHA-256 77\n"
    )
    (tmp_path / "node.log").write_text(
        "2026-01-01T00:00:00 INFO run 5 node 2: refused: <b>why</b>\n"
    )
    (tmp_path / "ward" / "results" / "run-5" / "client-2").mkdir(parents=True)
    (tmp_path / "ward" / "results" / "run-5" / "client-2" / "report.html").touch()
    return file


def budget_of(node: Path) -> tuple[float, float]:
    """Two Gaussian runs as one whose squared parameters are added, and what is left."""
    delta = ClientPolicy.from_toml(node.parent / "policy.toml").total.delta
    both = math.hypot(gaussian_cost(0.5).mu, gaussian_cost(0.25).mu)
    whole = gaussian_cost(10.0, 0.99 * delta).mu
    rest = math.sqrt(whole**2 - both**2)
    return gaussian_epsilon(both, delta), gaussian_epsilon(rest, 0.99 * delta)


def test_a_nodes_page_says_what_was_given_and_what_is_left(node: Path) -> None:
    text = node_page(node)
    spent, left = budget_of(node)
    assert f"Data set rows, per record: epsilon {spent:.4g} at delta" in text
    assert "spent of 10." in text
    assert f"{left:.4g} left for one more run" in text
    assert re.search(
        r'<th scope="row">6</th><td>[^<]*</td><td>rows</td>'
        r"<td>record</td><td>0.25</td>",
        text,
    )
    given = text.partition("What was given")[2]
    assert given.index(">7<") < given.index(">6<") < given.index(">5<")
    assert "/2<" not in given
    assert "SHA-256 77" in text
    assert "<td>5</td><td>refused: &lt;b&gt;why" in text
    assert str(node.parent / "results" / "run-5" / "client-2" / "report.html") in text
    (node.parent / "ledger.jsonl").write_text("{}\n")
    damaged = node_page(node)
    assert "is damaged at line 1" in damaged
    assert "nobody knows what is left" in damaged
    assert not re.search(r"[0-9] left", damaged)
    states = [
        line.labels.get("state")
        for family in node_metrics(node)
        for line in family.samples
    ]
    assert ("spent" in states, "left" in states) == (True, False)


def test_a_nodes_metrics_are_its_budget_by_data_set(node: Path) -> None:
    app = site(partial(node_page, node), partial(node_metrics, node), TOKEN)
    owner = TestClient(app, base_url="http://localhost", headers=SHOWN)
    found = numbers(owner.get("/metrics").text, OF_NODE)
    spent, left = budget_of(node)
    budget = "dpkmeans_budget_epsilon", "rows", "record"
    assert found[(*budget, "spent")] == pytest.approx(spent)
    assert found[(*budget, "left")] == pytest.approx(left)
    assert (found["dpkmeans_ledger_runs",], found["dpkmeans_ledger_problems",]) == (
        3,
        0,
    )
    assert found["dpkmeans_refusals", "app"] == 1
    node.write_text("x = 1\n")
    answer = owner.get("/metrics")
    assert (
        answer.status_code,
        "the key 'allowed-apps' is not there" in answer.text,
    ) == (500, True)


def test_a_message_without_an_answer_is_alerted_on(
    node: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a node that is dead inside everything else looks as it should."""
    home = node.parent / "home"
    app = site(partial(node_page, node), partial(node_metrics, node), TOKEN)
    owner = TestClient(app, base_url="http://localhost", headers=SHOWN)

    def alerts() -> float:
        return numbers(owner.get("/metrics").text, OF_NODE)[
            "dpkmeans_unanswered_messages",
        ]

    assert alerts() == 0
    now = time.time()
    for name, seconds in (("received", 700.0), ("answered", 690.0)):
        (home / name).touch()
        os.utime(home / name, (now - seconds, now - seconds))
    assert alerts() == 0
    assert main(["node", "status", str(node)]) == 0
    assert "and was answered at 20" in capsys.readouterr().out
    # Of ten minutes, none has gone by yet; then all have.
    os.utime(home / "received", (now - 10.0, now - 10.0))
    assert alerts() == 0
    os.utime(home / "answered", (now - 800.0, now - 800.0))
    os.utime(home / "received", (now - 700.0, now - 700.0))
    assert alerts() == 1
    text = owner.get("/").text
    assert re.search("has had no answer for 70[0-9] s, but a server waits 600 s", text)
    assert main(["node", "status", str(node)]) == 1
    assert "ALERT the message of 20" in capsys.readouterr().out
    main(["node", "check", str(node)])
    assert re.search(
        "note  answers: .* has had no answer for 70[0-9] s", capsys.readouterr().out
    )


def test_the_command_says_what_it_cannot_show(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["server", "dashboard", str(tmp_path / "absent")]) == 1
    assert (
        "absent is no folder: give a server's, or that of its runs"
        in capsys.readouterr().err
    )
    assert main(["server", "dashboard", str(tmp_path), "--port", "65536"]) == 1
    assert "port must be 0-65535" in capsys.readouterr().err
    (tmp_path / "node.toml").write_text("x = 1\n")
    assert main(["node", "dashboard", str(tmp_path / "node.toml")]) == 1
    assert "the key 'allowed-apps' is not there" in capsys.readouterr().err
