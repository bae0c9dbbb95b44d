"""Small mutations, planted at random one at a time in a copy of the tree.

How many do the tests catch?

``python tests/mutants.py --number 100 --seed 1 --rooms privacy sums --jobs 2`` prints
each mutant, and per room how many of them made a test fail. The first run also runs all
tests once, to learn which of them call what (remembered in ``--work`` for each file of
tests as long as it, the package and what tests share stay as they are; the tree itself
is only read). Mutants that change nothing anybody could see stand in
``equivalent_mutants.txt`` with a reason, and are not counted.

A function's mutant takes milliseconds: a process that has collected all tests is
forked, and the child has the changed code instead of the function's own. Code that runs
when a module is imported is changed in a copy of the tree.
"""

from __future__ import annotations

import argparse
import ast
import collections
import contextlib
import copy
import cProfile
import functools
import gc
import hashlib
import inspect
import json
import math
import multiprocessing
import os
import queue
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "flwr_dpkmeans"
MUTATED = (PACKAGE, "simulations/flower")
"""The package, other private methods and operators' commands.

Names of files leave the first folder out.
"""
PAIRS = [
    (ast.Lt, ast.LtE),
    (ast.Gt, ast.GtE),
    (ast.Eq, ast.NotEq),
    (ast.In, ast.NotIn),
    (ast.Is, ast.IsNot),
]
PAIRS += [(ast.And, ast.Or), (ast.Add, ast.Sub), (ast.Mult, ast.Div)]
SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.FloorDiv: ast.Mult,
    **dict(PAIRS),
    **{b: a for a, b in PAIRS},
}
NAMES = {
    "any": "all",
    "all": "any",
    "min": "max",
    "max": "min",
    "minimum": "maximum",
    "maximum": "minimum",
}
# Words for people, and what cannot happen on the machine that runs the tests.
SKIPPED_CALLS = re.compile(
    r"^(logger\.|logging\.|warnings\.|log_|print$|\w*Error$|TypeVar$)"
)
SKIPPED_TESTS = re.compile(r"TYPE_CHECKING|__name__|sys\.platform")


class Mutant(NamedTuple):
    """One change: a node's place in its file, and the code that stands there instead."""

    file: str
    function: str
    line: int
    code: str
    before: str
    after: str
    begin: int
    end: int

    @property
    def room(self) -> str:
        """The folder, or `root`."""
        return self.file.split("/")[0] if "/" in self.file else "root"

    @property
    def path(self) -> Path:
        """Of the file."""
        return next(
            path
            for top in ("simulations", PACKAGE)
            if (path := ROOT / top / self.file).exists()
        )

    def written(self, source: bytes) -> bytes:
        """The file with the change in it, on as many lines."""
        new = (
            f"({self.after}".encode()
            + b"\n" * source[self.begin : self.end].count(b"\n")
            + b")"
        )
        return source[: self.begin] + new + source[self.end :]

    @property
    def sentence(self) -> str:
        """As it is printed and listed."""
        return (
            f"{self.file} :: {self.code} :: {self.before} ->"
            f" {' '.join(self.after.split())}"
        )

    @property
    def listed(self) -> tuple[str, str]:
        """How a list may name it: by itself, or with all changes of its line."""
        return self.sentence, f"{self.file} :: {self.code} :: *"


def changed(node: ast.AST, returns: str) -> Iterator[ast.AST]:
    """Every small change of one node."""
    new: Any = copy.copy(node)
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        new.ops = [SWAPS[type(node.ops[0])]()]
        yield new
    elif isinstance(node, ast.BinOp | ast.BoolOp) and type(node.op) in SWAPS:
        # Texts are added and formatted with operators too; nobody reads them more
        # exactly than their tests.
        if not any(
            isinstance(getattr(part, "value", None), str) for part in ast.walk(node)
        ):
            new.op = SWAPS[type(node.op)]()
            yield new
    elif isinstance(node, ast.Constant) and type(node.value) is bool:
        yield ast.Constant(not node.value)
    elif isinstance(node, ast.Constant) and type(node.value) in (int, float):
        yield from (ast.Constant(node.value + step) for step in (1, -1))
    elif isinstance(node, ast.Name) and node.id in NAMES:
        new.id = NAMES[node.id]
        yield new
    elif isinstance(node, ast.Attribute) and node.attr in NAMES:
        new.attr = NAMES[node.attr]
        yield new
    elif isinstance(node, ast.If | ast.IfExp) and not SKIPPED_TESTS.search(
        ast.unparse(node.test)
    ):
        yield from (
            ast.copy_location(ast.Constant(value), node.test) for value in (True, False)
        )
    elif (
        isinstance(node, ast.Return)
        and node.value is not None
        and returns in ("bool", "float", "int")
    ):
        if returns != "bool" and getattr(node.value, "value", None) == 0:
            return  # -0 is 0
        negated = ast.Not() if returns == "bool" else ast.USub()
        yield ast.copy_location(ast.UnaryOp(negated, node.value), node.value)


def nodes(
    tree: ast.AST, function: str = "", returns: str = ""
) -> Iterator[tuple[ast.AST, str, str]]:
    """Nodes that run and are not words for people, with the function that they stand in
    and what it returns.
    """
    for child in ast.iter_child_nodes(tree):
        if isinstance(
            child, ast.Raise | ast.JoinedStr | ast.arguments | ast.Assert | ast.Slice
        ):
            if isinstance(child, ast.arguments):
                yield from (
                    (d, function, "")
                    for d in [*child.defaults, *child.kw_defaults]
                    if d is not None
                )
            continue
        if isinstance(child, ast.Call) and SKIPPED_CALLS.search(
            ast.unparse(child.func)
        ):
            continue
        if child in getattr(tree, "decorator_list", ()) or getattr(
            child, "arg", ""
        ) in ("strict", "indent", "maxsize"):
            continue
        if isinstance(child, ast.If) and SKIPPED_TESTS.search(ast.unparse(child.test)):
            continue
        if isinstance(tree, ast.AnnAssign) and child is tree.annotation:
            continue
        inside, told = function, returns
        if isinstance(child, ast.FunctionDef):
            inside, told = (
                child.name,
                "" if child.returns is None else ast.unparse(child.returns),
            )
        if child is not getattr(tree, "returns", None):
            yield child, inside, told
            yield from nodes(child, inside, told)


def sources() -> list[Path]:
    """Every file that is mutated."""
    return sorted(path for top in MUTATED for path in (ROOT / top).rglob("*.py"))


def name_of(path: Path, root: Path) -> str:
    """A file's path below the package, or below the folder of what stands beside it."""
    return "/".join(path.relative_to(root).parts[1:])


def mutants_of(path: Path, root: Path) -> list[Mutant]:
    """Every small change of one file that still is Python."""
    source, name = path.read_text(), name_of(path, root)
    lines, found = source.encode().splitlines(keepends=True), []
    starts = [sum(map(len, lines[:i])) for i in range(len(lines) + 1)]
    for node, function, returns in nodes(ast.parse(source)):
        for new in changed(node, returns):
            old: Any = (
                new if isinstance(node, ast.If | ast.IfExp | ast.Return) else node
            )
            begin, end = (
                starts[old.lineno - 1] + old.col_offset,
                starts[old.end_lineno - 1] + old.end_col_offset,
            )
            short = " ".join(
                ast.unparse(
                    node.test if isinstance(node, ast.If | ast.IfExp) else node
                ).split()
            )
            code = lines[old.lineno - 1].decode().strip()
            found.append(
                Mutant(
                    name,
                    function,
                    old.lineno,
                    code,
                    short,
                    ast.unparse(new),
                    begin,
                    end,
                )
            )
    return found


# ---------------------------------------------------------------- a process that has
# collected all tests, and its forks


class Collected:
    """A plugin of pytest: it runs no test itself, but waits for requests, each of which
    a child of its own answers.
    """

    def __init__(self, requests: Any, folder: Path) -> None:
        self.requests, self.folder = requests, folder
        self.functions: dict[str, list[FunctionType]] = collections.defaultdict(list)
        self.caches: list[Any] = []
        self.failed = False

    def pytest_runtestloop(self, session: Any) -> bool:
        """Answer requests until there are no more."""
        gc.unfreeze()  # what conftest.py froze is not listed
        # Not `isinstance`: it asks a weak reference's proxy for the class of what may
        # be gone.
        for thing in gc.get_objects():
            if type(thing) is FunctionType and thing.__code__.co_filename.startswith(
                _BASES
            ):
                self.functions[thing.__code__.co_filename].append(thing)
            elif type(thing) is functools._lru_cache_wrapper and (
                thing.__module__ or ""
            ).startswith(_MODULES):
                self.caches.append(thing)
        gc.collect()
        gc.freeze()
        items = {item.nodeid: item for item in session.items}
        self.requests.send(list(items))
        while (request := self.requests.recv()) is not None:
            mutant, names, seconds, log = request
            self.requests.send(
                self._answer([items[name] for name in names], mutant, seconds, log)
            )
        return True

    def _answer(
        self, items: list[Any], mutant: Mutant | None, seconds: float, log: str
    ) -> bool:
        """Whether tests pass in a child."""
        files = self.folder / "files"
        child = os.fork()
        if child == 0:
            with contextlib.suppress(BaseException):
                os.setsid()
                # Of work: a loop without end ends, however busy the machine is.
                resource.setrlimit(
                    resource.RLIMIT_CPU, (math.ceil(seconds), math.ceil(seconds))
                )
                items[0].config._tmp_path_factory._given_basetemp = files
                for cached in self.caches:
                    cached.cache_clear()
                if mutant is not None:
                    mutate(self.functions[str(mutant.path)], mutant)
                if log:
                    items[0].config.pluginmanager.register(Listener(log, self.caches))
                for item, after in zip(items, [*items[1:], None], strict=True):
                    item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
                    if self.failed and not log:
                        os._exit(1)
                os._exit(0)
            os._exit(1)
        passed = _wait(child, 10.0 * seconds) == 0
        shutil.rmtree(files, ignore_errors=True)
        return passed

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Remember that a test failed."""
        self.failed |= report.failed


def mutate(functions: list[FunctionType], mutant: Mutant) -> None:
    """Give the live functions of a file the code that they have where it is changed."""
    changed_codes = changed_functions(mutant)
    for function in functions:
        function.__code__ = changed_codes.get(function.__code__, function.__code__)


def changed_functions(mutant: Mutant) -> dict[CodeType, CodeType]:
    """What the code of functions becomes.

    Empty where what changes runs at import time, such as a default.
    """
    source, old = _as_it_is(mutant.path)
    new = _codes(
        compile(mutant.written(source), str(mutant.path), "exec", dont_inherit=True)
    )
    # The body of a class is code, too, but no function's.
    pairs = (
        (code, new.get(place, code))
        for place, code in old.items()
        if code.co_flags & inspect.CO_OPTIMIZED
    )
    return {code: other for code, other in pairs if code != other}


@functools.cache
def _as_it_is(path: Path) -> tuple[bytes, dict[tuple[str, int, int], CodeType]]:
    """A file and the codes in it, which all of its mutants are held against."""
    source = path.read_bytes()
    return source, _codes(compile(source, str(path), "exec", dont_inherit=True))


def _codes(code: CodeType) -> dict[tuple[str, int, int], CodeType]:
    """Every function's code in a file, by its name, its line and the place among those
    of one name and line.
    """
    found: dict[tuple[str, int, int], CodeType] = {}
    waiting = [code]
    while waiting:
        for inner in waiting.pop().co_consts:
            if isinstance(inner, CodeType):
                name, line = inner.co_qualname, inner.co_firstlineno
                found[name, line, sum(place[:2] == (name, line) for place in found)] = (
                    inner
                )
                waiting.append(inner)
    return found


def _wait(process: int, seconds: float) -> int | None:
    """Status of a child, which is ended with whatever it started.

    None where it did not end by itself in time.
    """
    until, status, pause = time.monotonic() + seconds, None, 0.001
    while status is None and time.monotonic() < until:
        done, ended = os.waitpid(process, os.WNOHANG)
        status = ended if done else None
        time.sleep(0.0 if done else pause)
        pause = min(0.05, 1.1 * pause)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process, signal.SIGKILL)
    if status is None:
        os.waitpid(process, 0)
    return status


class Listener:
    """A plugin of pytest that writes down what each test calls, if it passes."""

    def __init__(self, log: str, caches: list[Any]) -> None:
        self.log, self.caches, self.profiles, self.began = (
            log,
            caches,
            list[cProfile.Profile](),
            0.0,
        )

    def pytest_runtest_protocol(self) -> None:
        """Begin with empty caches: what was remembered by an earlier test is called
        again.
        """
        for cached in self.caches:
            cached.cache_clear()
        self.profiles.clear()
        self.began = _worked()
        threading.setprofile(self._listen)
        self._listen()

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Write one line."""
        if report.when == "call" and report.passed:
            sys.setprofile(None)
            codes = {
                one.code
                for profile in self.profiles
                for one in profile.getstats()
                if type(one.code) is CodeType
            }
            own = [code for code in codes if code.co_filename.startswith(_BASES)]
            calls = sorted(
                {
                    f"{name_of(Path(code.co_filename), ROOT)}:{code.co_name}"
                    for code in own
                }
            )
            with open(self.log, "a") as file:
                file.write(
                    json.dumps([report.nodeid, _worked() - self.began, calls]) + "\n"
                )

    def _listen(self, *_: object) -> None:
        """Note what this thread calls from now on.

        From Python 3.12 on, one profile hears all threads.
        """
        profile = cProfile.Profile(subcalls=False, builtins=False)
        with contextlib.suppress(ValueError):
            profile.enable()
            self.profiles.append(profile)


def _worked() -> float:
    """Seconds that processors worked for this process and its children, which other
    programs do not prolong.
    """
    return sum(os.times()[:4])


def collect(requests: Any, folder: Path, tests: Sequence[str]) -> None:
    """Collect all tests in a process of its own and answer requests, without a word."""
    os.setsid()
    _quiet(str(folder / "collected.log"))
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    os.chdir(ROOT)
    sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
    pytest.main([*_OWN, "-m", "not ray", *tests], plugins=[Collected(requests, folder)])


# ---------------------------------------------------------------- code that runs when a
# module is imported


def pytest_collection_modifyitems(config: Any, items: list[Any]) -> None:
    """Keep the tests of a list, in its order."""
    if chosen := os.environ.get("MUTANT_TESTS"):
        order = {
            name: place
            for place, name in enumerate(Path(chosen).read_text().splitlines())
        }
        config.hook.pytest_deselected(
            items=[item for item in items if item.nodeid not in order]
        )
        items[:] = sorted(
            (item for item in items if item.nodeid in order),
            key=lambda item: order[item.nodeid],
        )


_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(
    [
        "numpy",
        "scipy.stats",
        "sklearn.cluster",
        "pandas",
        "flwr.serverapp",
        "hypothesis",
        "pytest",
    ]
)
"""Children begin with the libraries imported, which takes longer than most tests.

Never the package itself.
"""
_BASES = tuple(f"{ROOT / top}/" for top in MUTATED)
_MODULES = (PACKAGE, "simulations.")
_OWN = ["-p", "no:cacheprovider", "-n", "0", "--no-header"]


def _quiet(log: str) -> None:
    with open(os.devnull) as nothing, open(log, "w") as words:
        for stream, file in enumerate((nothing, words, words)):
            os.dup2(file.fileno(), stream)


def _in_copy(tree: Path, files: list[str], chosen: str, seconds: float) -> None:
    """Run some tests in a copy of the tree, without a word.

    End with pytest's exit code.
    """
    os.setsid()
    os.chdir(tree)
    paths = [str(path) for path in (tree, tree / "tests", tree / "tests/unit")]
    os.environ.update(
        {
            "PYTHONPATH": os.pathsep.join(paths),
            "OPENBLAS_NUM_THREADS": "1",
            "MUTANT_TESTS": chosen,
        }
    )
    sys.dont_write_bytecode, os.environ["PYTHONDONTWRITEBYTECODE"] = True, "1"
    sys.path[:0] = paths
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(seconds), math.ceil(seconds)))
    _quiet(os.devnull)
    sys.exit(int(pytest.main([*_OWN, "-p", "mutants", "-x", *files])))


# ---------------------------------------------------------------- the run


class Job:
    """A process that has collected all tests, and a copy of the tree."""

    def __init__(self, folder: Path, tests: Sequence[str]) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.tree = folder / "tree"
        for old in (self.tree, folder / "files"):
            shutil.rmtree(old, ignore_errors=True)
        ignored = shutil.ignore_patterns(
            ".git", ".venv", "__pycache__", ".*_cache", ".hypothesis"
        )
        shutil.copytree(ROOT, self.tree, ignore=ignored, symlinks=True)
        self.requests, theirs = multiprocessing.Pipe()
        self.process = multiprocessing.get_context("spawn").Process(
            target=collect, args=(theirs, folder, tests)
        )
        self.process.start()
        assert self.process.pid is not None
        _running.add(self.process.pid)
        theirs.close()

    def collected(self) -> list[str]:
        """Names of all tests, once they are known."""
        try:
            return list(self.requests.recv())
        except EOFError:
            raise RuntimeError(
                f"No tests were collected; {self.folder / 'collected.log'} says why."
            ) from None

    def passes(
        self,
        names: Sequence[str],
        seconds: float,
        mutant: Mutant | None = None,
        log: Path | None = None,
    ) -> bool:
        """Whether tests pass, with a mutant in place of a function's code."""
        self.requests.send((mutant, names, seconds, "" if log is None else str(log)))
        return bool(self.requests.recv())

    def close(self) -> None:
        """End the process and remove the copy."""
        self.requests.send(None)
        self.process.join()
        _running.discard(self.process.pid or 0)
        shutil.rmtree(self.folder, ignore_errors=True)

    def passes_anew(self, names: Sequence[str], seconds: float, mutant: Mutant) -> bool:
        """Whether tests pass where modules are imported with a mutant in them."""
        target = self.tree / mutant.path.relative_to(ROOT)
        original = target.read_bytes()
        try:
            target.write_bytes(mutant.written(original))
            for cached in target.parent.glob(f"__pycache__/{target.stem}.*"):
                cached.unlink()
            chosen = self.folder / "chosen.txt"
            chosen.write_text("\n".join(names))
            files = sorted({name.split("::")[0] for name in names})
            process = _FORKS.Process(
                target=_in_copy, args=(self.tree, files, str(chosen), 60.0 + seconds)
            )
            process.start()
            assert process.pid is not None
            _running.add(process.pid)
            process.join(10.0 * (60.0 + seconds))
            _running.discard(process.pid)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.join()
            return process.exitcode == 0
        finally:
            target.write_bytes(original)


class Trial:
    """Jobs, and what each test calls."""

    def __init__(
        self, work: Path, jobs: int, seconds: float, tests: Sequence[str]
    ) -> None:
        self.seconds = seconds
        own = work / str(os.getpid())
        every = [Job(own / str(job), tests) for job in range(jobs)]
        names = {tuple(job.collected()) for job in every}
        by_file: dict[str, list[str]] = collections.defaultdict(list)
        for name in sorted(names)[0]:
            by_file[name.split("::")[0]].append(name)
        self.jobs: queue.Queue[Job] = queue.Queue()
        for job in every:
            self.jobs.put(job)
        tops = (PACKAGE, "tests/support", "simulations", "conf")
        shared = [path for top in tops for path in (ROOT / top).rglob("*.py")]
        known = work / _digest(
            *sorted(shared), *sorted((ROOT / "tests").rglob("conftest.py"))
        )
        known.mkdir(exist_ok=True)
        maps = {
            file: known / f"{Path(file).stem}-{_digest(ROOT / file)}.jsonl"
            for file in by_file
        }
        with ThreadPoolExecutor(jobs) as pool:
            list(pool.map(lambda file: self._learn(by_file[file], maps[file]), maps))
        self.calls = [
            json.loads(line)
            for file in maps.values()
            for line in file.read_text().splitlines()
        ]
        self.callers: dict[str, list[Any]] = collections.defaultdict(list)
        for row in self.calls:
            for call in row[2]:
                self.callers[call].append(row)
        print(
            f"{len(self.calls)} tests of {len(maps)} files passed and are known",
            flush=True,
        )

    def _learn(self, names: Sequence[str], known: Path) -> None:
        """Run the tests of a file once, to learn what they call."""
        if not known.exists():
            job = self.jobs.get()
            part = job.folder / "part.jsonl"
            part.write_text("")
            if not job.passes(names, 3600.0, log=part):
                print(f"{names[0].split('::')[0]} did not run to its end", flush=True)
            part.replace(known)
            self.jobs.put(job)

    def close(self) -> None:
        """End all jobs."""
        while not self.jobs.empty():
            self.jobs.get().close()

    def tiers(self, mutant: Mutant) -> list[list[Any]]:
        """Tests that call the mutated function, nearest first.

        Then whole files of such tests, as time allows.
        """
        hits = list(self.callers.get(f"{mutant.file}:{mutant.function}", ()))
        direct = bool(hits)
        if not direct:  # code that runs at import time, or that is reached another way
            rows = [
                row
                for call, rows in self.callers.items()
                if call.startswith(mutant.file + ":")
                for row in rows
            ]
            hits = list({row[0]: row for row in rows}.values())
        hits.sort(key=lambda row: (len(row[2]), row[1]))
        near = hits[:25]
        files = {row[0].split("::")[0] for row in hits}
        known = {row[0] for row in hits}
        # a test that reads a constant may call nothing: those beside the nearest ones
        # are tried as well
        if not direct:
            beside = {row[0].split("::")[0] for row in near}
            near += [
                row
                for row in self.calls
                if row[0] not in known and row[0].split("::")[0] in beside
            ]
            known |= {row[0] for row in near}
        rest = sorted(hits[25:], key=lambda row: row[1])
        rest += sorted(
            (
                r
                for r in self.calls
                if r[0] not in known and r[0].split("::")[0] in files
            ),
            key=lambda r: r[1],
        )
        wide, spent = [], 0.0
        for row in rest:
            spent += row[1]
            if spent < self.seconds:
                wide.append(row)
        return [tier for tier in (near, wide) if tier]

    def survives(self, mutant: Mutant) -> bool:
        """Whether every test that could see the mutant passes with it."""
        job = self.jobs.get()
        passes = job.passes if changed_functions(mutant) else job.passes_anew
        try:
            return all(
                passes(
                    [row[0] for row in rows],
                    10.0 + 3.0 * sum(row[1] for row in rows),
                    mutant=mutant,
                )
                for rows in self.tiers(mutant)
            )
        finally:
            self.jobs.put(job)


def _digest(*paths: Path) -> str:
    return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()[
        :12
    ]


_running: set[int] = set()


def stop(*_: object) -> None:
    """End what this process started, and itself."""
    for pid in _running:
        os.killpg(pid, signal.SIGKILL)
    os._exit(1)


def main() -> int:
    """Run a number of mutants and print what the tests caught."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--number", type=int, default=100, help="mutants, at random (100)"
    )
    parser.add_argument("--seed", type=int, default=0, help="which ones (0)")
    parser.add_argument(
        "--rooms", nargs="*", help="folders, or parts of file names (all)"
    )
    parser.add_argument(
        "--jobs", type=int, default=2, help="mutants tried at the same time (2)"
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=120.0,
        help="of further tests, once the nearest passed (120)",
    )
    parser.add_argument(
        "--tests",
        nargs="*",
        default=["tests"],
        help="tests that may catch them (all but Ray's)",
    )
    parser.add_argument(
        "--work",
        type=Path,
        default=Path(tempfile.gettempdir()) / "mutants",
        help="folder for copies",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="leave out code that runs when a module is imported",
    )
    parser.add_argument(
        "--again", type=Path, help="only those that this earlier output says SURVIVED"
    )
    parser.add_argument(
        "--list", action="store_true", help="only say which mutants would be tried"
    )
    options = parser.parse_args()
    rooms = options.rooms or [""]
    wanted = [
        path for path in sources() if any(room in name_of(path, ROOT) for room in rooms)
    ]
    everything = [mutant for path in wanted for mutant in mutants_of(path, ROOT)]
    lines = Path(__file__).with_name("equivalent_mutants.txt").read_text().splitlines()
    equivalent = {
        " :: ".join(line.split(" :: ")[:3])
        for line in lines
        if line and not line.startswith("#")
    }
    real = [mutant for mutant in everything if equivalent.isdisjoint(mutant.listed)]
    if options.quick:
        real = [mutant for mutant in real if changed_functions(mutant)]
    if options.again:
        # Without the line, which other changes of the file may have moved.
        earlier = {
            line.rpartition("  (line ")[0]
            for line in options.again.read_text().splitlines()
        }
        real = [mutant for mutant in real if f"SURVIVED {mutant.sentence}" in earlier]
    names = {name_of(path, ROOT) for path in sources()} - {
        name_of(path, ROOT) for path in wanted
    }
    for line in sorted(
        equivalent - {listed for mutant in everything for listed in mutant.listed}
    ):
        if line.split(" :: ")[0] not in names:
            print(
                f"no mutant any more, strike it out of equivalent_mutants.txt: {line}",
                flush=True,
            )
    chosen = random.Random(options.seed).sample(real, min(options.number, len(real)))
    print(
        f"{len(chosen)} of {len(real)} mutants in {len(wanted)} files, seed"
        f" {options.seed}",
        flush=True,
    )
    if options.list:
        print(
            "\n".join(f"{mutant.sentence}  (line {mutant.line})" for mutant in chosen)
        )
        return 0
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    trial = Trial(options.work, options.jobs, options.seconds, options.tests)
    score: dict[str, collections.Counter[bool]] = collections.defaultdict(
        collections.Counter
    )
    with ThreadPoolExecutor(options.jobs) as pool:
        for mutant, survived in zip(
            chosen, pool.map(trial.survives, chosen), strict=True
        ):
            score[mutant.room][survived] += 1
            print(
                f"{'SURVIVED' if survived else 'caught  '} {mutant.sentence}  (line"
                f" {mutant.line})",
                flush=True,
            )
    trial.close()
    for room, count in sorted(score.items()):
        print(
            f"{room:12} {count[False]:4} of {count.total():4} caught,"
            f" {100 * count[False] / count.total():.0f}%"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
