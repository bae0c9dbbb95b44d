"""``python -m simulations.flower.soak FOLDER``.

A real federation of this machine, disturbed at random, run after run.

Each run is looked at afterwards: whether it ended with a sentence on both sides, what
ledgers hold, and what is left of it in processes, files, descriptors and memory.
Nothing is mended by hand in between.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import re
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from flwr_dpkmeans.deploy.findings import flower_environment, program, search_path
from flwr_dpkmeans.deploy.owner.ledger_report import inspect_ledger
from flwr_dpkmeans.deploy.run_command import listed_runs
from flwr_dpkmeans.deploy.server_command import is_healthy
from flwr_dpkmeans.deploy.server_options import ServerOptions
from flwr_dpkmeans.errors import ConfigurationError
from flwr_dpkmeans.node.ledger_entries import RESULT_TAKEN, LedgerEntry
from flwr_dpkmeans.results.writer import CENTROIDS_FILE
from simulations.flower.collected import digest
from simulations.flower.ray_processes import end_marked, marked_processes

_RUN = (
    "algorithm='fastlloyd' n-clusters=3 max-iter=1 bounds='0,8' n-features=2 delta=1e-5"
    " epsilon=0.05"
)
_STARTED = re.compile(r"started run (\d+)")
_RUN_SECONDS = 400.0
_BACK_SECONDS = 120.0
_QUIET_SECONDS = 30.0
_KINDS = (
    "kill_node",
    "end_node",
    "kill_superlink",
    "kill_server",
    "kill_serverapp",
    "kill_clientapp",
    "pause_node",
    "lose_node",
    "other_version",
    "stop",
    "two_at_once",
    "full_disk",
)
_SHARE_CALM = 3
"""One run in so many is not disturbed: it has to work whatever came before."""
_FEWEST_FOR_SLOPE = 4
_FEWEST_FOR_RECOVERY = 6
"""Parties, with whom half of the runs have ``cohort.dropout='recover'``.

The plan refuses it for fewer.
"""


@dataclass
class Run:
    """What was done to a run, and what was seen of it."""

    number: int
    kind: str
    done: list[str] = field(default_factory=list)
    run_ids: list[str] = field(default_factory=list)
    statuses: list[str] = field(default_factory=list)
    says: list[str] = field(default_factory=list)
    seconds: float = 0.0
    faults: list[str] = field(default_factory=list)


class Federation:
    """A SuperLink over TLS, and parties of its own, all below one folder."""

    def __init__(
        self, folder: Path, app: Path, n_nodes: int, seed: int, other: Path | None
    ) -> None:
        self.folder = folder.absolute()
        self.app = app.absolute()
        self.other = other
        self.rng = random.Random(seed)
        self.names = [f"ward-{number}" for number in range(n_nodes)]
        self.office = self.folder / "office"
        self.nodes: dict[str, subprocess.Popen[bytes]] = {}
        self.commands = dict.fromkeys(self.names, Path(program("flwr-dpkmeans")))
        self.temporary = self.folder / "tmp"
        self.moment = 30.0
        self.epsilon = 0.0
        self.looked = 0
        self.runs: list[Run] = []
        self.seen: list[dict[str, Any]] = []
        self.environment = flower_environment() | {"TMPDIR": str(self.temporary)}
        self.environment.pop("FLWR_HOME", None)

    # -- its processes -----------------------------------------------------------------

    @property
    def home(self) -> Path:
        """That of Flower's programs at the office."""
        return self.office / "superlink" / "home"

    def command(self, *words: str) -> None:
        """Type one of this package's commands, and wait for it."""
        with (self.folder / "commands.log").open("ab") as log:
            done = [program("flwr-dpkmeans"), *words]
            subprocess.run(
                done,
                cwd=self.folder,
                env=self.environment,
                stdout=log,
                stderr=log,
                check=True,
            )

    def begin(self) -> None:
        """Make all files, and start all programs."""
        self.temporary.mkdir(parents=True)
        self.command(
            "server",
            "init",
            str(self.office),
            "--parties",
            *self.names,
            "--app",
            str(self.app),
        )
        self.command("server", "start", str(self.office), "--background")
        centers = np.array([[1.0, 1.0], [6.0, 2.0], [3.0, 7.0]])
        for number, name in enumerate(self.names):
            rng = np.random.default_rng(number)
            points = centers[rng.integers(3, size=300)] + rng.normal(
                scale=0.4, size=(300, 2)
            )
            np.savetxt(
                self.folder / f"{name}.csv",
                points.clip(0, 8),
                delimiter=",",
                header="a,b",
                comments="",
            )
            words = [
                "--invitation",
                str(self.office / "invitation.toml"),
                "--data",
                f"{name}.csv",
            ]
            self.command(
                "node",
                "init",
                name,
                *words,
                "--app",
                str(self.app),
                "--max-epsilon-total",
                "1000",
            )
            policy = self.folder / name / "policy.toml"
            text = re.sub("(?m)^min-cohort = .*", "min-cohort = 2", policy.read_text())
            policy.write_text(
                re.sub("(?m)^(runs|plans)-per-day = .*", r"\1-per-day = 10000", text)
            )
        for name in self.names:
            self.start(name)
        for name in self.names:
            self.wait_for(name)

    def start(self, name: str) -> None:
        """Start a node as its owner would."""
        log = self.folder / f"{name}.log"
        words = [
            str(self.commands[name]),
            "node",
            "start",
            str(self.folder / name),
            "--wait",
        ]
        with log.open("ab") as out:
            self.nodes[name] = subprocess.Popen(
                words,
                cwd=self.folder,
                env=self.environment,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )

    def wait_for(self, name: str) -> None:
        """Wait until a started node has been let in."""
        end, log = time.monotonic() + _BACK_SECONDS, self.folder / f"{name}.log"
        while b"SuperNode ID:" not in log.read_bytes().rpartition(b"superlink:")[2]:
            if time.monotonic() > end or self.nodes[name].poll() is not None:
                raise ConfigurationError(f"{name} did not come back: {log} says why.")
            time.sleep(0.2)

    def end(self) -> None:
        """End what was started."""
        with contextlib.suppress(OSError, ValueError):
            os.kill(self.server, signal.SIGTERM)
        for node in self.nodes.values():
            node.terminate()
        for home in (self.home, *(self.folder / name / "home" for name in self.names)):
            end_marked(home)

    @property
    def server(self) -> int:
        """The process of ``server start``."""
        return int((self.office / "superlink" / "pid").read_text())

    def processes(self) -> dict[str, list[int]]:
        """All of them, by what they are."""
        ids_by_name: dict[str, list[int]] = {"server start": [self.server]}
        parts = ("server start", "superexec", "twin", "stands by", "serverapp")
        for process in marked_processes(self.home):
            words = _words(process)
            if "flower-superlink" in words:
                ids_by_name.setdefault("superlink", []).append(process)
            elif "flower-superexec" in words:
                ids_by_name.setdefault(parts[_steps(process, self.server)], []).append(
                    process
                )
        for name, node in self.nodes.items():
            parts = (name, f"{name} apps", f"{name} twin", "stands by", "clientapp")
            for process in marked_processes(self.folder / name / "home"):
                ids_by_name.setdefault(parts[_steps(process, node.pid)], []).append(
                    process
                )
        return ids_by_name

    # -- what happens to a run ---------------------------------------------------------

    def calm(self, run: Run) -> None:
        """Nothing."""

    def kill_node(self, run: Run, number: int = signal.SIGKILL) -> None:
        """Its owner starts it again some seconds later."""
        name = self.rng.choice(self.names)
        run.done.append(f"{signal.Signals(number).name} {name}")
        node = self.nodes[name]
        node.send_signal(number)
        node.wait()
        time.sleep(self.rng.uniform(0.0, 5.0))
        self.start(name)
        self.wait_for(name)

    def lose_node(self, run: Run) -> None:
        """As soon as it is charged, so that the others recover its masks.

        It comes back after the run.
        """
        name, end = self.rng.choice(self.names), time.monotonic() + _BACK_SECONDS
        ledger = self.folder / name / "ledger" / "ledger.jsonl"
        while (
            not (ledger.exists() and f"{run.run_ids[-1]}/" in ledger.read_text())
            and time.monotonic() < end
        ):
            time.sleep(0.05)
        run.done.append(f"SIGKILL {name}, which stays away")
        self.nodes[name].kill()
        self.nodes[name].wait()

    def end_node(self, run: Run) -> None:
        """As systemd restarts it."""
        self.kill_node(run, signal.SIGTERM)

    def kill_superlink(self, run: Run) -> None:
        """`server start` starts it again."""
        self._kill(run, "superlink")

    def kill_server(self, run: Run) -> None:
        """The whole of `server start`, which is typed again some seconds later."""
        os.kill(self.server, signal.SIGKILL)
        run.done.append("SIGKILL server start")
        time.sleep(self.rng.uniform(0.0, 5.0))
        self.command("server", "start", str(self.office), "--background")

    def kill_serverapp(self, run: Run) -> None:
        """What runs at the office."""
        self._kill(run, "serverapp")

    def kill_clientapp(self, run: Run) -> None:
        """What a message is answered by."""
        self._kill(run, "clientapp")

    def _kill(self, run: Run, what: str) -> None:
        end = time.monotonic() + 20.0
        ids = self.processes().get(what, [])
        while not ids and time.monotonic() < end:
            time.sleep(0.05)
            ids = self.processes().get(what, [])
        for process in self.rng.sample(ids, min(1, len(ids))):
            time.sleep(self.rng.uniform(0.0, 0.5))
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
                run.done.append(f"SIGKILL {what}")

    def pause_node(self, run: Run) -> None:
        """All of its processes stand still, as a laptop's whose lid is closed."""
        name, seconds = self.rng.choice(self.names), self.rng.uniform(2.0, 40.0)
        stopped = [self.nodes[name].pid, *marked_processes(self.folder / name / "home")]
        run.done.append(f"SIGSTOP {name} for {seconds:.0f} s")
        for number, wait in ((signal.SIGSTOP, seconds), (signal.SIGCONT, 0.0)):
            for process in stopped:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, number)
            time.sleep(wait)

    def other_version(self, run: Run) -> None:
        """A party goes to another version of the package, and back at the next time."""
        name, installed = self.names[1], Path(program("flwr-dpkmeans"))
        self.commands[name] = (
            installed
            if self.commands[name] != installed or self.other is None
            else self.other
        )
        run.done.append(f"{name} runs {self.commands[name]}")
        self.nodes[name].terminate()
        self.nodes[name].wait()
        self.start(name)
        self.wait_for(name)

    def stop(self, run: Run) -> None:
        """`flwr stop`."""
        words = [sys.executable, "-m", "flwr.cli.app", "stop", *run.run_ids[:1]]
        options = ServerOptions.load(self.office)
        done = subprocess.run(
            words, env=options.environment, capture_output=True, check=False
        )
        run.done.append(f"flwr stop: {done.returncode}")

    def two_at_once(self, run: Run) -> None:
        """A second run is asked for meanwhile."""
        with self._requested(run, ""):
            pass

    def full_disk(self, run: Run) -> None:
        """No file of a node grows beyond a size until the run ends, as with a quota."""
        name = self.rng.choice(self.names)
        ledger = self.folder / name / "ledger" / "ledger.jsonl"
        size = ledger.stat().st_size if ledger.exists() else 0
        most = self.rng.choice((size + 100, size + 700, 100_000))
        self._limit(name, most)
        run.done.append(f"files of {name} have {most} bytes at most")

    def _limit(self, name: str, most: int) -> None:
        for process in marked_processes(self.folder / name / "home"):
            with contextlib.suppress(ProcessLookupError):
                resource.prlimit(
                    process, resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY)
                )

    # -- a run -------------------------------------------------------------------------

    @contextlib.contextmanager
    def _requested(self, run: Run, more: str) -> Iterator[None]:
        """One `run`, whose end is waited for, and looked at."""
        log = self.folder / "runs" / f"{run.number}-{len(run.statuses)}.log"
        log.parent.mkdir(exist_ok=True)
        text = f"{_RUN} n-examples={300 * len(self.names)} round-timeout=45.0 {more}"
        words = [
            program("flwr-dpkmeans"),
            "run",
            str(self.app),
            "--server",
            str(self.office),
            "--run-config",
            text,
        ]
        place = len(run.statuses)
        code: int | None
        run.statuses.append("")
        run.says.append("")
        with log.open("wb") as out:
            command = subprocess.Popen(
                words, cwd=self.folder, env=self.environment, stdout=out, stderr=out
            )
        try:
            started = _STARTED.search(log.read_text(errors="replace"))
            while started is None and command.poll() is None:
                time.sleep(0.1)
                started = _STARTED.search(log.read_text(errors="replace"))
            if started is not None:
                run.run_ids.append(started.group(1))
            yield
            code = command.wait(_RUN_SECONDS)
        except subprocess.TimeoutExpired:
            run.faults.append(f"the command did not end within {_RUN_SECONDS:g} s")
            code = None
        finally:
            command.kill()
        lines = log.read_text(errors="replace").splitlines()
        run.says[place] = next(
            (
                line
                for line in reversed(lines)
                if line.startswith(("run ", str(self.office)))
            ),
            "",
        )
        run.statuses[place] = "completed" if code == 0 else f"failed ({code})"
        if code and len(run.says[place].split()) < 8:
            run.faults.append(
                f"`run` ended with {code} and without a sentence: {lines[-1:]}"
            )

    def disturbed_run(self, number: int, kind: str) -> Run:
        """One run, disturbed at a random moment, and all that was seen of it."""
        run = Run(number, kind)
        self.runs.append(run)
        start = time.monotonic()
        more = self.rng.choice(("", "cohort.min-clients=2"))
        if len(self.names) >= _FEWEST_FOR_RECOVERY:
            recover = " cohort.dropout='recover'"
            more += (
                recover
                if kind == "lose_node"
                else self.rng.choice((recover, " cohort.dropout='retry'"))
            )
        run.done += more.split()
        if kind == "other_version":
            self.other_version(run)
        with self._requested(run, more):
            if kind != "other_version" and run.run_ids:
                time.sleep(
                    0.0
                    if kind in ("full_disk", "calm", "lose_node")
                    else self.rng.uniform(0.0, self.moment)
                )
                getattr(self, kind)(run)
        for name, node in [*self.nodes.items()]:
            self._limit(name, resource.RLIM_INFINITY)
            if node.poll() is not None:
                # Its unit starts a node again that has ended.
                run.done.append(f"{name} ended with {node.returncode}")
                self.start(name)
                self.wait_for(name)
        run.seconds = time.monotonic() - start
        if kind == "calm":
            self.moment = 0.8 * run.seconds
        self._look_at_runs(run)
        self._look_at_ledgers(run)
        self._look_at_results(run)
        self._look_at_rest(run)
        return run

    # -- what is looked at -------------------------------------------------------------

    def _look_at_runs(self, run: Run) -> None:
        options = ServerOptions.load(self.office)
        end = time.monotonic() + _BACK_SECONDS
        while (
            not is_healthy(options.port, options.authority) and time.monotonic() < end
        ):
            time.sleep(0.5)
        listed = {
            run_line["run-id"]: run_line
            for run_line in listed_runs(options.environment)
        }
        for run_id, status in zip(run.run_ids, run.statuses, strict=False):
            line = listed.get(run_id, {"status": "unknown", "status-details": ""})
            if (line["status"] == "finished:completed") != (status == "completed"):
                run.faults.append(f"`run` says {status}, `flwr list` {line['status']}")
            details = line["status-details"]
            if status != "completed" and len(details.split()) < 8:
                run.faults.append(f"`flwr list` has no sentence: {details!r}")
        if run.kind in ("calm", "two_at_once", "other_version") and {*run.statuses} != {
            "completed"
        }:
            run.faults.append("a run that was not disturbed did not complete")

    def _look_at_ledgers(self, run: Run) -> None:
        for name in self.names:
            report = inspect_ledger(self.folder / name / "ledger" / "ledger.jsonl")
            entries = report.entries
            run.faults += [
                f"{name}: {problem}" for problem in report.problems if entries
            ]
            for run_id, status in zip(run.run_ids, run.statuses, strict=False):
                own = [
                    entry for entry in entries if entry.run_id.startswith(f"{run_id}/")
                ]
                run.faults += [
                    f"{name}: {fault}"
                    for fault in self._look_at_entries(own, status, run)
                ]
            log = (
                (self.folder / name / "results" / "log")
                .read_text(errors="replace")
                .splitlines()
            )
            for earlier in self.runs[self.looked :] if run.kind == "calm" else ():
                for run_id in earlier.run_ids:
                    charged = [
                        entry
                        for entry in entries
                        if entry.run_id.startswith(f"{run_id}/") and entry.is_release
                    ]
                    lines = [line for line in log if run_id in line]
                    if len(charged) < sum(": gave: " in line for line in lines):
                        earlier.faults.append(
                            f"{name} gave more than stands in its ledger"
                        )
                    if charged and not any(map(_ENDS.search, lines)):
                        earlier.faults.append(
                            f"{name} was charged for {run_id}, and its log has no end"
                            " of it"
                        )
        self.looked = len(self.runs) - 1 if run.kind == "calm" else self.looked

    def _look_at_entries(
        self, entries: Sequence[LedgerEntry], status: str, run: Run
    ) -> Iterator[str]:
        attempts = Counter((entry.round_index, entry.attempt) for entry in entries)
        if any(n > 1 for n in attempts.values()):
            yield "one attempt was charged twice"
        self.epsilon = self.epsilon or (entries[0].epsilon if entries else 0.0)
        for one in entries:
            if one.epsilon != self.epsilon:
                yield f"epsilon {one.epsilon} was charged, not {self.epsilon}"
        has_result = any(entry.attempt == RESULT_TAKEN for entry in entries)
        if (
            status == "completed"
            and run.kind in ("calm", "two_at_once", "other_version")
            and not has_result
        ):
            yield "the run completed, and the ledger has no result of it"

    def _look_at_results(self, run: Run) -> None:
        """Whoever has a result has the same one, bit by bit, however many were lost on
        its way.
        """
        for run_id, status in zip(run.run_ids, run.statuses, strict=False):
            results = [
                *self.folder.glob(f"*/results/run-{run_id}/client-*/{CENTROIDS_FILE}")
            ]
            if len({digest(path)[1] for path in results}) != (
                1 if results or status == "completed" else 0
            ):
                run.faults.append(
                    f"{len(results)} results of {run_id}, which {status}, are not the"
                    " same"
                )

    def _look_at_rest(self, run: Run) -> None:
        """Processes, files, descriptors, memory, once what ends by itself has ended."""
        end, wanted = time.monotonic() + _QUIET_SECONDS, 4 + 3 * len(self.names)
        # Where Flower drops a message of a run that has ended, its process is there
        # until the next message comes.
        idle = _WAITING if {*run.statuses} != {"completed"} else ()
        while True:
            processes = {
                what: ids for what, ids in self.processes().items() if what not in idle
            }
            left = {
                what: len(ids)
                for what, ids in processes.items()
                if what in _PASSING or len(ids) != 1
            }
            if (not left and len(processes) == wanted) or time.monotonic() > end:
                break
            time.sleep(0.5)
        if left or len(processes) != wanted:
            run.faults.append(f"processes: {left or sorted(processes)}")
        for what, (process, *_) in (
            (what, ids) for what, ids in processes.items() if ids
        ):
            with contextlib.suppress(OSError):
                n_open = sum(1 for _ in Path(f"/proc/{process}/fd").iterdir())
                memory = int(
                    Path(f"/proc/{process}/statm").read_text().split()[1]
                ) * os.sysconf("SC_PAGE_SIZE")
                self.seen.append(
                    {
                        "run": run.number,
                        "what": what,
                        "id": process,
                        "open": n_open,
                        "bytes": memory,
                    }
                )
        left_files = [
            *self.temporary.iterdir(),
            *self.folder.glob("ward-*/.??*"),
            *self.home.glob(".config*"),
        ]
        if run.kind != "kill_clientapp":
            # The next message clears up what that one left.
            left_files += self.folder.glob("ward-*/home/guarded-apps/*")
        left_files = [path for path in left_files if path.name != ".gitignore"]
        if left_files:
            run.faults.append(
                "files:"
                f" {[str(path.relative_to(self.folder)) for path in left_files[:5]]}"
            )
            for path in left_files:
                shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)

    def slopes(self) -> list[dict[str, Any]]:
        """How descriptors and memory of each kind of process grew with the runs that
        one process saw.
        """
        slopes = []
        for what in sorted({sample["what"] for sample in self.seen}):
            samples = [sample for sample in self.seen if sample["what"] == what]
            lives = [
                [sample for sample in samples if sample["id"] == process]
                for process in {sample["id"] for sample in samples}
            ]
            grown = [_slopes(life) for life in lives if len(life) >= _FEWEST_FOR_SLOPE]
            last = {
                "open": max(sample["open"] for sample in samples),
                "megabytes": max(sample["bytes"] for sample in samples) / 2**20,
            }
            n_seen = max(map(len, lives))
            means = [float(np.mean(column)) for column in zip(*grown, strict=True)] or [
                float("nan")
            ] * 2
            slopes.append(
                {
                    "what": what,
                    "lives": len(lives),
                    "longest": n_seen,
                    **last,
                    "files a run": means[0],
                    "KiB a run": means[1],
                }
            )
        return slopes


_WAITING = ("clientapp", "stands by")
_PASSING = ("serverapp", *_WAITING)
_ENDS = re.compile(
    "the result is here|has had no result|refused: |cannot answer: |is stopped"
)


def _slopes(life: Sequence[dict[str, Any]]) -> tuple[float, float]:
    """Descriptors, and KiB, a run.

    The first look is left out, since what is loaded late is no leak.
    """
    runs = [sample["run"] for sample in life[1:]]
    return (
        float(np.polyfit(runs, [sample["open"] for sample in life[1:]], 1)[0]),
        float(np.polyfit(runs, [sample["bytes"] / 1024 for sample in life[1:]], 1)[0]),
    )


def _words(process: int) -> str:
    with contextlib.suppress(OSError):
        return (
            Path(f"/proc/{process}/cmdline")
            .read_bytes()
            .replace(b"\0", b" ")
            .decode(errors="replace")
        )
    return ""


def _steps(process: int, root: int) -> int:
    """How far a process is below another; 4: an app, or what lost its parents."""
    for steps in range(4):
        if process == root:
            return steps
        process = _parent(process)
    return 4


def _parent(process: int) -> int:
    with contextlib.suppress(OSError):
        return int(
            Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1]
        )
    return 0


def schedule(n_runs: int, kinds: Sequence[str], rng: random.Random) -> list[str]:
    """What happens in each run: all kinds about equally often, and a calm one in
    between and at the end.
    """
    n_calm = max(1, n_runs // _SHARE_CALM)
    disturbed = [kinds[number % len(kinds)] for number in range(n_runs - n_calm)]
    rng.shuffle(disturbed)
    order: list[str] = []
    for number in range(n_runs - 1):
        order.append(
            "calm" if number % _SHARE_CALM == 0 or not disturbed else disturbed.pop()
        )
    return [*order, "calm"]


def report(federation: Federation) -> str:
    """The table, and where it is as JSON."""
    runs = federation.runs
    names = ("what was done", "runs", "completed", "failed", "median s", "faults")
    lines = ["{:<18}{:>5}{:>11}{:>8}{:>10}{:>8}".format(*names)]
    for kind in sorted({run.kind for run in runs}):
        of_kind = [run for run in runs if run.kind == kind]
        ended = Counter(
            status.partition(" ")[0] for run in of_kind for status in run.statuses
        )
        values = (
            kind,
            len(of_kind),
            ended["completed"],
            ended["failed"],
            statistics.median(run.seconds for run in of_kind),
            sum(len(run.faults) for run in of_kind),
        )
        lines.append("{:<18}{:>5}{:>11}{:>8}{:>10.0f}{:>8}".format(*values))
    heads = ["process", "lives", "longest", "files open", "MiB"]
    heads += ["files a run", "KiB a run"]
    lines.append("{:<18}{:>6}{:>8}{:>11}{:>7}{:>12}{:>10}".format(*heads))
    slopes = federation.slopes()
    for slope in slopes:
        form = "{:<18}{:>6}{:>8}{:>11}{:>7.0f}{:>12.2f}{:>10.1f}"
        lines.append(form.format(*slope.values()))
    faults = [
        f"run {run.number} ({run.kind}): {fault}"
        for run in runs
        for fault in run.faults
    ]
    content = {
        "runs": [vars(run) for run in runs],
        "processes": slopes,
        "seen": federation.seen,
    }
    (federation.folder / "soak.json").write_text(json.dumps(content, indent=1))
    return "\n".join([*lines, *faults, f"{len(runs)} runs, {len(faults)} faults"])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command: 1 if there was a fault."""
    parser = argparse.ArgumentParser(
        prog="python -m simulations.flower.soak", description=__doc__
    )
    parser.add_argument("folder", type=Path, help="new")
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument(
        "--app", type=Path, default=Path(), help="project (default: here)"
    )
    parser.add_argument(
        "--other", type=Path, help="flwr-dpkmeans of another version of this package"
    )
    parser.add_argument(
        "--kinds", nargs="+", help="what may happen (default: everything)"
    )
    options = parser.parse_args(arguments)
    federation = Federation(
        options.folder, options.app, options.nodes, options.seed, options.other
    )
    kinds = list(_KINDS)
    if options.nodes < _FEWEST_FOR_RECOVERY:
        kinds.remove("lose_node")
    if options.kinds:
        kinds = options.kinds
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    os.environ["PATH"] = search_path()
    try:
        federation.begin()
        for number, kind in enumerate(schedule(options.runs, kinds, federation.rng)):
            run = federation.disturbed_run(number, kind)
            print(
                f"run {number} {kind} {run.done}: {run.statuses} in"
                f" {run.seconds:.0f} s",
                *run.says,
                flush=True,
            )
            for fault in run.faults:
                print("  FAULT", fault, flush=True)
            report(federation)
    finally:
        federation.end()
        print(report(federation))
    return int(any(run.faults for run in federation.runs))


if __name__ == "__main__":
    raise SystemExit(main())
