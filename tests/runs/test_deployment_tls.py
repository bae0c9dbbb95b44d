"""A federation over TLS with authenticated SuperNodes.

Who takes part, what comes out, and that nothing is left.

Its nodes run the reviewed app, refuse a modified one, and let it read nothing.
"""

from __future__ import annotations

import hashlib
import re
import signal
import socket
import time
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from flwr.cli.build import build_fab_from_disk
from numpy.typing import NDArray
from support.apps import app_files, write_app

from flwr_dpkmeans import FederatedKMeans
from flwr_dpkmeans.data.bundled import load_bundled
from flwr_dpkmeans.data.simulated.partition import partition_indices
from flwr_dpkmeans.deploy.certificates import write_node_key
from flwr_dpkmeans.deploy.dashboard import server_page
from flwr_dpkmeans.deploy.run_folders import read_progress, runs_below
from flwr_dpkmeans.flower.client.result_folders import HOME_FOLDER
from flwr_dpkmeans.flower.messages.joining import TURN_FILE
from flwr_dpkmeans.flower.run_config import strategy_from_run_config
from flwr_dpkmeans.flower.run_progress import Outcome
from flwr_dpkmeans.node.durable_files import lock
from flwr_dpkmeans.node.guard import cost_of
from flwr_dpkmeans.node.ledger import Past
from flwr_dpkmeans.node.policy import DEPLOYED, ClientPolicy
from flwr_dpkmeans.node.proposal import Proposal
from flwr_dpkmeans.sums.draft import draft_plan
from simulations.flower.__main__ import main, run_settings
from simulations.flower.deployment import Deployment, LogLine
from simulations.flower.flower_commands import NodeConfig
from simulations.flower.flower_processes import flower_home
from simulations.flower.ray_processes import is_supported, marked_processes
from simulations.flower.relay import HOST
from simulations.flower.sites import Site
from simulations.papers.fastlloyd import superlink_cost
from simulations.papers.fastlloyd.round_cost import Problem

pytestmark = [
    pytest.mark.ray,
    pytest.mark.skipif(not is_supported(), reason="processes are found in /proc"),
]

# Equal results need equal noise, which a node refuses unless its own policy says
# otherwise.
POLICY = (
    "allow-anything = true\nrequire-secure-noise = false\nallow-non-private ="
    " true\nmax-delta = 0.005\n"
)
SETTINGS = (
    "algorithm='fastlloyd' n-clusters=3 epsilon=1.0 max-iter=2 noise='seeded'"
    " random-state=7"
)
TURNED_AWAY_TIMEOUT = 180.0
N_NODES = 2
ALL_ROWS = 'open(context.node_config["data-path"], "rb").read().hex()'
LEAVES_A_TRACE = '"; open(__import__("os").environ["FLWR_HOME"] + "/it-ran", "w"); "'


def rows(n_nodes: int) -> list[NDArray[np.float64]]:
    """What `make_sites` gives the nodes of the bundled irises."""
    points = load_bundled("iris").points
    return [
        points[partition_indices(len(points), n_nodes, part, seed=0)]
        for part in range(n_nodes)
    ]


def in_process(n_nodes: int) -> NDArray[np.float64]:
    """The same run without Flower's processes, over rows that lie between 0 and 8."""
    model = FederatedKMeans(
        3,
        algorithm="fastlloyd",
        epsilon=1.0,
        max_iter=2,
        noise="seeded",
        random_state=7,
        trust="oblivious",
        bounds=(0.0, 8.0),
    )
    return np.asarray(model.fit(rows(n_nodes)).cluster_centers_)


def ports_of(folder: Path) -> list[int]:
    """Ports that the SuperLink and the SuperNodes below a folder were told to listen
    on.
    """
    found = []
    for home in folder.iterdir():
        for process in marked_processes(flower_home(home)):
            words = Path(f"/proc/{process}/cmdline").read_text().split("\0")
            found += (
                [int(words[words.index("--port") + 1])] if "--port" in words else []
            )
    return found


def assert_nothing_is_left(folder: Path, ports: Collection[int]) -> None:
    """No process of a federation, and nobody who listens on its ports."""
    homes = [home for home in folder.iterdir() if home.is_dir()]
    assert {home.name: marked_processes(flower_home(home)) for home in homes} == {
        home.name: [] for home in homes
    }
    for port in ports:
        with (
            pytest.raises(OSError),
            socket.create_connection((HOST, port), timeout=1.0),
        ):
            pass


def assert_a_modified_app_reads_nothing(deployment: Deployment, folder: Path) -> None:
    """Its ServerApp is the same file, and does run where it was sent from."""
    thief = write_app(
        folder.parent / "thief", app_files(answer=ALL_ROWS, mark=LEAVES_A_TRACE)
    )
    said = text_of(RUN(deployment, "", app=thief, timeout=120.0))
    assert said.count("SAID") == N_NODES, said
    homes = [folder / f"node-{index}" for index in range(N_NODES)]
    digest = hashlib.sha256(build_fab_from_disk(thief)).hexdigest()
    for home in homes:
        (data,) = home.glob("rows.*")
        assert data.read_bytes()[-100:].hex() not in said
        alerts = (flower_home(home) / "alerts.log").read_text()
        assert alerts.count("ALERT app refused") == 1
        assert digest in alerts
        assert digest in (home / "log").read_text()
        assert list((flower_home(home) / "guarded-apps").iterdir()) == []
    traces = [
        (flower_home(home) / "it-ran").exists()
        for home in (folder / "superlink", *homes)
    ]
    assert traces == [True, *[False] * N_NODES]


def assert_strangers_are_turned_away(
    deployment: Deployment, folder: Path, node: NodeConfig
) -> None:
    """One has a key that nobody registered, the other none.

    It would register itself if it could.
    """
    (folder / "unknown").mkdir(mode=0o700)
    unknown = write_node_key(folder / "unknown" / "key")
    with (
        deployment.supernode(folder / "unknown", node, unknown) as first,
        deployment.supernode(folder / "nameless", node) as second,
    ):
        assert first.wait(TURNED_AWAY_TIMEOUT) != 0
        assert second.wait(TURNED_AWAY_TIMEOUT) != 0
    for home in ("unknown", "nameless"):
        log = (folder / home / "log").read_text()
        assert "Failed to initialize the connection" in log
        assert "SuperNode ID:" not in log


def n_that_opened(path: Path, home: Path) -> int:
    """How many of a home's processes have a file open."""
    found = 0
    for process in marked_processes(flower_home(home)):
        with suppress(OSError):
            found += any(
                link.resolve() == path for link in Path(f"/proc/{process}/fd").iterdir()
            )
    return found


def text_of(lines: Sequence[LogLine]) -> str:
    """A run's log."""
    return "\n".join(line.text for line in lines)


def assert_costs_are_read(lines: list[LogLine]) -> None:
    """`measure_over_superlink` reads times and bytes off these lines, as if they were
    those of the run it asks for.
    """
    problem = Problem(
        np.random.default_rng(0).uniform(-1.0, 1.0, (3000, 2)), n_clusters=2
    )
    policies: list[ClientPolicy] = []

    @contextmanager
    def there(folder: Path, nodes: Sequence[NodeConfig]) -> Iterator[SimpleNamespace]:
        for node, part in zip(nodes, problem.parts, strict=True):
            np.testing.assert_array_equal(np.load(str(node["data-path"])), part)
            policies.append(
                ClientPolicy.from_toml(Path(str(node["policy"])), base=DEPLOYED)
            )
            assert len(node) == 2
        yield SimpleNamespace(run=answer)

    def answer(text: str) -> list[LogLine]:
        config = strategy_from_run_config(settings := run_settings([text])).config
        plan = draft_plan(
            config,
            run_id=1,
            n_clients=settings["num-clients"],
            seed=0,
            n_features=config.n_features,
        )
        assert plan.is_final
        assert [planned.name for planned in plan.rounds] == ["lloyd-1", "lloyd-2"]
        for policy in policies:
            policy.check(Proposal(plan, *cost_of(plan), Past()))
        return lines

    found = superlink_cost.measure_over_superlink(problem, n_rounds=2, deploy=there)
    assert len(policies) == 2
    (trip,) = found.trips
    # Flower looks for replies every 3 s, so that a trip may take from nothing to as
    # long as the machine is busy.
    assert 0.0 < trip < 120.0
    assert found.bytes_up > 2 * 48
    assert found.bytes_down > 2 * 48
    # The nodes fetch the app.
    assert found.other_bytes > 100_000


class Played:
    """What one federation did, which the command made, with more than its own run while
    it was there.
    """

    def __init__(self) -> None:
        self.lines: dict[str, list[LogLine]] = {}
        self.ports: list[int] = []
        self.listed = self.runs = ""

    def play(
        self, deployment: Deployment, settings: str, **options: Any
    ) -> list[LogLine]:
        """In the stead of the command's one run.

        Strangers, its run, and one that is refused at the same time.
        """
        folder = deployment._folder
        (data,) = (folder / "node-0").glob("rows.*")
        with ThreadPoolExecutor() as pool:
            stolen = pool.submit(
                assert_a_modified_app_reads_nothing, deployment, folder
            )
            assert_strangers_are_turned_away(
                deployment, folder, Site(folder / "node-0", data).node_config
            )
            stolen.result()
        self.ports = ports_of(folder)
        superlink = folder / "superlink"
        turn = flower_home(superlink) / TURN_FILE
        with ThreadPoolExecutor() as pool:
            # Nobody's turn before both ask for theirs: the first may be over before the
            # second has started.
            with turn.open("a") as file:
                assert lock(file.fileno(), wait=False)
                first = pool.submit(RUN, deployment, settings, **options)
                # Flower installs an app in place: a second run of the same second may
                # find half of it, and end.
                while not (first.done() or runs_below(superlink / HOME_FOLDER)):
                    time.sleep(0.1)
                second = pool.submit(RUN, deployment, f"{settings} delta=0.006")
                while not (
                    first.done() or second.done() or n_that_opened(turn, superlink) == 2
                ):
                    time.sleep(0.1)
            self.lines = {"said": first.result(), "refused": second.result()}
        self.listed, self.runs = deployment.listed(), deployment.runs()
        return self.lines["said"]


RUN = Deployment.run


@pytest.fixture
def handlers() -> Iterator[None]:
    """The command has its own for signals."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


@pytest.mark.usefixtures("handlers")
def test_the_commands_nodes_agree_and_turn_strangers_and_modified_apps_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, policy = tmp_path / "federation", tmp_path / "policy.toml"
    policy.write_text(POLICY)
    played = Played()
    monkeypatch.setattr(
        Deployment, "run", lambda *given, **options: played.play(*given, **options)
    )
    command = [
        "--nodes",
        str(N_NODES),
        "--data",
        "iris",
        "--policy",
        str(policy),
        "--run-config",
        f"{SETTINGS} bounds='0,8'",
    ]
    code = main([*command, "--output", str(folder)])
    printed = "".join(capsys.readouterr())
    assert code == 0, printed
    assert f"all {N_NODES} clients have the same centroids and report" in printed
    # What the command tells, and what it told its processes.
    told = [int(port) for port in re.findall(rf"{HOST}:(\d+)", printed)]
    assert told
    assert len(played.ports) == 1 + N_NODES
    assert_nothing_is_left(folder, {*told, *played.ports})
    assert played.listed.count('"status": "online"') == N_NODES
    assert played.listed.count('"node-id"') == N_NODES
    said, refused = text_of(played.lines["said"]), text_of(played.lines["refused"])
    assert "about 24 s, 4 round trips" in said
    assert (
        len(re.findall(rf"^round \d/2 .* {N_NODES} clients", said, re.MULTILINE)) == 2
    )
    for index in range(N_NODES):
        (path,) = (folder / f"node-{index}" / "results").glob(
            "run-*/client-*/centroids.npz"
        )
        with np.load(path) as arrays:
            np.testing.assert_array_equal(arrays["centroids"], in_process(N_NODES))
    for name in ("centroids.npz", "model.json", "profile.csv"):
        assert not list((folder / "superlink").rglob(name))
    # Runs at once wait; one may come just as it is nobody's turn any more.
    assert (said + refused).count("waiting for another run's end, for 0 s so far") in (
        1,
        2,
    )
    # The operator reads what a node does not allow.
    assert "the plan's delta is 0.006, but this client's max_delta is 0.005" in refused
    assert "round 1/2" not in refused
    assert "unhandled exception" not in refused
    assert "Traceback" not in refused
    # The owners read that it is over, and what it cost them.
    for index in range(N_NODES):
        (end,) = re.findall(
            "the server has stopped this run, and (.*)",
            (folder / f"node-{index}" / "log").read_text(),
        )
        assert re.match(
            r"it has cost nothing here; it says: RefusalError: node \S+ refused"
            r" \(RefusalError\)\.$",
            end,
        )
    # And what the live page shows of both runs.
    runs_folder = folder / "superlink" / HOME_FOLDER
    # Which of the two has its turn first is the scheduler's.
    ended = map(read_progress, runs_below(runs_folder))
    stopped, completed = sorted(ended, key=lambda run: run.outcome is Outcome.COMPLETED)
    assert (completed.outcome, completed.stage, len(completed.nodes)) == (
        Outcome.COMPLETED,
        "finish",
        N_NODES,
    )
    assert [(trip.n_asked, trip.n_answered) for trip in completed.trips] == [
        (N_NODES, N_NODES)
    ] * 4
    assert "this client's max_delta is 0.005" in stopped.sentence
    assert "max_delta is 0.005" in server_page(runs_folder)
    # So does who looks at the list of runs later.
    assert (
        "the plan's delta is 0.006, but this client's max_delta is 0.005" in played.runs
    )
    # What it cost can be measured.
    assert_costs_are_read(played.lines["said"])
