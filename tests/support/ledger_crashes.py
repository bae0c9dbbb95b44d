"""A program that lets processes die while they charge one ledger, and says what was
left: run by `test_ledger_kill`.

It imports the ledger alone, so that a fork costs a millisecond, and prints one JSON
object. Processes are killed with SIGKILL: no handler, no ``finally``, no buffer of
Python's survives.
"""

from __future__ import annotations

import fcntl
import itertools
import json
import logging
import math
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from flwr_dpkmeans.deploy.owner.ledger_report import inspect_ledger
from flwr_dpkmeans.errors import BudgetError, ProtocolError
from flwr_dpkmeans.node import durable_files, ledger_file
from flwr_dpkmeans.node import ledger as ledger_module
from flwr_dpkmeans.node.ledger import Past
from flwr_dpkmeans.node.ledger_entries import LedgerEntry
from flwr_dpkmeans.node.ledger_file import FileLedger

WATCHED = (
    "open", "lseek", "read", "write", "ftruncate", "fsync", "fstat", "stat", "close",
    "flock",
)  # fmt: skip
TRACED = {module.__file__ for module in (durable_files, ledger_module, ledger_file)}


def entry(run_id: str, index: int, mu: float) -> LedgerEntry:
    numbers = {"mu": mu, "own_delta": 1e-30}
    return LedgerEntry(
        run_id, "ward-7", "ab12", index, 0, "sums", 5.0 * mu, 1e-6, "record", **numbers
    )


RUN = 0.005
"""mu of each run, which is charged with its first release."""


def within(total: float) -> Callable[[Past], None]:
    """What lets a run be charged if it fits into a total mu."""

    def admit(past: Past) -> None:
        if math.hypot(past.cost.mu, RUN) > total:
            raise BudgetError("nothing is left: stop.")

    return admit


def die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("still alive")


def in_child(work: Callable[[], object]) -> int:
    """Run in a forked process; return how it ended: 0, or minus the signal's number."""
    child = os.fork()
    if not child:
        code = 70
        try:
            work()
            code = 0
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            sys.stderr.flush()
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


# -- states of the two files that a charge may find ------------------------------------


def states(folder: Path) -> dict[str, Path]:
    """Folders with a ledger in every state that an earlier crash can leave, and a fresh
    one.
    """
    whole = folder / "three entries"
    whole.mkdir()
    for index in range(3):
        FileLedger(whole / "ledger").charge(entry("run-1", index, 0.75))
    ledger, head = ((whole / name).read_bytes() for name in ("ledger", "ledger.head"))
    two = ledger[: ledger[:-1].rfind(b"\n") + 1]
    behind = head[: head[:-1].rfind(b"\n") + 1]
    contents = {
        "fresh": (None, None),
        "empty file": (b"", None),
        "head at the start": (b"", head[: head.find(b"\n") + 1]),
        "torn line": (two + ledger[len(two) :][:100], behind),
        "line without its end": (ledger[:-1], behind),
        "head behind": (ledger, behind),
        "torn head": (ledger, head[:-30]),
    }
    for name, files in contents.items():
        (folder / name).mkdir()
        for place, content in zip(("ledger", "ledger.head"), files, strict=True):
            if content is not None:
                (folder / name / place).write_bytes(content)
    return {name: folder / name for name in ("three entries", *contents)}


# -- death before, within and after each call to the operating system ------------------


class Countdown:
    """Counts the points at which a process may die, and dies at one of them."""

    def __init__(self, die_at: int | None, stride: int = 1) -> None:
        self.points: list[str] = []
        self._die_at, self._stride = die_at, stride

    def pass_by(
        self, point: str, last_act: Callable[[], object] = lambda: None
    ) -> None:
        """Note a point, or do what comes last and die there."""
        if len(self.points) == self._die_at:
            last_act()
            die()
        self.points.append(point)

    def watch_calls(self) -> None:
        """Put a point before and after each call, and after each number of bytes of a
        write.
        """
        for name in WATCHED:
            owner: Any = fcntl if name == "flock" else os
            setattr(owner, name, self._watched(name, getattr(owner, name)))

    def _watched(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            self.pass_by(f"before {name}")
            if name == "write":
                descriptor, data = arguments
                for n_bytes in range(1, len(data), self._stride):
                    self.pass_by(
                        "within write",
                        lambda n_bytes=n_bytes: real(descriptor, data[:n_bytes]),
                    )
            result = (
                None if name == "fsync" else real(*arguments, **options)
            )  # kill -9 leaves the page cache alone
            self.pass_by(f"after {name}")
            return result

        return call

    def watch_instructions(self) -> None:
        """Put a point before each bytecode instruction of the ledger's modules (before
        every n-th, with a stride).
        """
        seen = itertools.count(1)

        def trace(frame: Any, event: str, _: Any) -> Any:
            if frame.f_code.co_filename not in TRACED:
                return None
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
            if event == "opcode" and next(seen) % self._stride == 0:
                self.pass_by(f"{frame.f_code.co_name}, line {frame.f_lineno}")
            return trace

        sys.settrace(trace)


def sweep(folder: Path, kind: str, stride: int) -> dict[str, Any]:
    """Die at every point of a charge, from every state, and look at what the next
    process finds and does.
    """
    found: dict[str, Any] = {
        "deaths": 0,
        "undercharged": 0,
        "overcharged": 0,
        "alarms": [],
        "states": {},
    }
    new, trial = entry("run-9", 0, 0.5), folder / "trial"
    place, sent = trial / "ledger", trial / "sent"

    def charge(die_at: int | None) -> None:
        ledger, countdown = FileLedger(place), Countdown(die_at, stride)
        getattr(countdown, f"watch_{kind}")()
        ledger.charge(new)
        sys.settrace(None)
        sent.touch()
        (folder / "points").write_text(json.dumps(countdown.points))

    for name, template in states(folder).items():
        before = inspect_ledger(template / "ledger").entries
        put(template, trial)
        assert in_child(lambda: charge(None)) == 0
        points = json.loads((folder / "points").read_text())
        found["states"][name] = len(points)
        for die_at, point in enumerate(points):
            put(template, trial)
            ended = in_child(lambda die_at=die_at: charge(die_at))
            assert ended == -signal.SIGKILL, (name, point, ended)
            found["deaths"] += 1
            problem = aftermath(place, before, new, sent.exists(), found)
            if problem:
                found["alarms"].append(f"{name}, {point} ({die_at}): {problem}")
    return found


def put(template: Path, trial: Path) -> None:
    """Make the trial's folder a copy of a state."""
    trial.mkdir(exist_ok=True)
    for place in trial.iterdir():
        place.unlink()
    for place in template.iterdir():
        (trial / place.name).write_bytes(place.read_bytes())


def aftermath(
    place: Path,
    before: tuple[LedgerEntry, ...],
    new: LedgerEntry,
    sent: bool,
    found: dict[str, Any],
) -> str | None:
    """Check the files after a death, and go on with them; return what is wrong."""
    report = inspect_ledger(place)
    after = report.entries if place.exists() else ()
    if place.exists() and report.problems:
        return report.problems[0]
    charged = len(after) > len(before)
    if [*after] != [*before, *([new] if charged else [])]:
        return "the entries are others"
    found["undercharged"] += sent and not charged
    found["overcharged"] += charged and not sent
    ledger = FileLedger(place)
    try:
        ledger.charge(new)
        again = True
    except ProtocolError:
        again = False
    if again == charged:
        return (
            "a release can be charged twice"
            if again
            else "a release that is not there is refused"
        )
    ledger.require_usable()
    ledger.charge(entry("run-10", 0, 0.5))
    report = inspect_ledger(place)
    if report.problems or len(report.entries) != len(before) + 2:
        return f"it does not go on: {report.problems}"
    return None


# -- death at random instants ----------------------------------------------------------


def release(place: Path, name: str, max_total: float) -> None:
    """What a client does for ever: charge, then send.

    "sending" is a line in the witness file.
    """
    ledger = FileLedger(place)
    witness = os.open(place.parent / "witness", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    while True:
        number, index = next_release(ledger, name)
        ledger.charge(entry(f"{name}-{number}", index, RUN), within(max_total))
        os.write(witness, f"{name}-{number} {index}\n".encode())


def next_release(ledger: FileLedger, name: str) -> tuple[int, int]:
    """Run and round of a client's next release, five rounds a run.

    a restarted client goes on after its ledger.
    """
    done = sum(1 for item in ledger.entries() if item.run_id.startswith(f"{name}-"))
    return divmod(done, 5)


def kills(folder: Path, n_trials: int, n_clients: int, seed: int) -> dict[str, Any]:
    """Kill all clients of one ledger at random instants, again and again."""
    generator, place = random.Random(seed), folder / "ledger"
    found: dict[str, Any] = dict.fromkeys(
        ("kills", "torn lines", "head behind", "torn heads", "most per kill"), 0
    )
    found |= {"undercharged": 0, "overcharged": 0, "alarms": []}
    over_before = 0
    for _ in range(n_trials):
        children = []
        for client in range(n_clients):
            child = os.fork()
            if not child:
                release(place, f"client{client}", 1e9)
            children.append(child)
        time.sleep(generator.uniform(0.0, 0.05))
        for child in children:
            os.kill(child, signal.SIGKILL)
        for child in children:
            ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            if ended != -signal.SIGKILL:
                found["alarms"].append(f"a client ended by itself with {ended}")
        found["kills"] += n_clients
        look(place, found)
        found["most per kill"] = max(
            found["most per kill"], (found["overcharged"] - over_before) / n_clients
        )
        over_before = found["overcharged"]
    return found


def look(place: Path, found: dict[str, Any]) -> None:
    """Compare the ledger with the witness."""
    if not place.exists():
        assert (
            not (place.parent / "witness").exists()
            or not (place.parent / "witness").read_bytes()
        )
        return
    report = inspect_ledger(place)
    found["alarms"] += report.problems
    found["torn lines"] += report.torn_bytes > 0
    head = place.with_name("ledger.head")
    if head.exists():
        lines = head.read_bytes().split(b"\n")
        found["torn heads"] += lines[-1] != b""
        complete = lines[:-1]
        found["head behind"] += bool(complete) and json.loads(complete[-1])[
            "entries"
        ] < len(report.entries)
    witness = place.parent / "witness"
    sent = (
        [tuple(line.split()) for line in witness.read_text().splitlines()]
        if witness.exists()
        else []
    )
    charged = {(item.run_id, str(item.round_index)) for item in report.entries}
    assert len(sent) == len(set(sent)), "sent twice"
    found["undercharged"] = len(set(sent) - charged)
    found["overcharged"] = len(charged - set(sent))
    found["charged"], found["sent"] = len(charged), len(sent)


def race(folder: Path, n_clients: int, total: float) -> dict[str, Any]:
    """Let clients spend one budget as fast as they can, until each is refused."""
    place = folder / "ledger"
    reading, writing = os.pipe()
    children = []
    for client in range(n_clients):
        child = os.fork()
        if not child:
            os.close(writing)
            os.read(reading, 1)  # returns when the parent closes the other end
            try:
                release(place, f"client{client}", total)
            except BudgetError:
                os._exit(3)
            os._exit(70)
        children.append(child)
    os.close(writing)
    ended = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    found: dict[str, Any] = {"alarms": []}
    found |= dict.fromkeys(("torn lines", "head behind", "torn heads"), 0)
    look(place, found)
    clients = {item.run_id.partition("-")[0] for item in inspect_ledger(place).entries}
    return found | {
        "ended": ended,
        "spent": FileLedger(place).past("ward-7", "record").cost.mu,
        "clients": len(clients),
    }


def main() -> None:
    """``ledger_crashes.py FOLDER TASK ARGUMENTS``."""
    folder, task, *numbers = sys.argv[1:]
    logging.disable(logging.WARNING)  # each torn line is one
    if task in ("calls", "instructions"):
        # What is tested is death, not power loss, and the disk's own time would be most
        # of the test's.
        memory = "/dev/shm" if Path("/dev/shm").is_dir() else folder
        with tempfile.TemporaryDirectory(dir=memory) as place:
            found = sweep(Path(place), task, int(numbers[0]))
    elif task == "kills":
        n_trials, n_clients, seed = (int(number) for number in numbers)
        found = kills(Path(folder), n_trials, n_clients, seed)
    else:
        found = race(Path(folder), int(numbers[0]), float(numbers[1]))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
