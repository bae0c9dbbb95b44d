"""Small mutations, planted at random one at a time in a copy of the tree: how many do the tests catch?

``python tests/mutants.py --number 100 --seed 1 --rooms privacy sums --jobs 2`` prints each mutant, and per room how
many of them made a test fail. The first run also runs all tests once, to learn which of them call what (remembered in
``--work`` for each file of tests as long as it, the package and what tests share stay as they are; the tree itself is
only read). Mutants that change nothing anybody could see stand in ``equivalent_mutants.txt`` with a reason, and are not
counted.
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
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "flwr_dpkmeans"
MUTATED = (PACKAGE, "simulations/baselines", "simulations/deploy")
"""The package, other private methods and operators' commands; names of files leave the first folder out."""
PAIRS = [(ast.Lt, ast.LtE), (ast.Gt, ast.GtE), (ast.Eq, ast.NotEq), (ast.In, ast.NotIn), (ast.Is, ast.IsNot)]
PAIRS += [(ast.And, ast.Or), (ast.Add, ast.Sub), (ast.Mult, ast.Div)]
SWAPS: dict[type[ast.AST], type[ast.AST]] = {ast.FloorDiv: ast.Mult, **dict(PAIRS), **{b: a for a, b in PAIRS}}
NAMES = {"any": "all", "all": "any", "min": "max", "max": "min", "minimum": "maximum", "maximum": "minimum"}
# Words for people, and what cannot happen on the machine that runs the tests.
SKIPPED_CALLS = re.compile(r"^(logger\.|logging\.|warnings\.|log_|print$|\w*Error$|TypeVar$)")
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
    def sentence(self) -> str:
        """As it is printed and listed."""
        return f"{self.file} :: {self.code} :: {self.before} -> {' '.join(self.after.split())}"


def changed(node: ast.AST, returns: str) -> Iterator[ast.AST]:
    """Every small change of one node."""
    new: Any = copy.copy(node)
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        new.ops = [SWAPS[type(node.ops[0])]()]
        yield new
    elif isinstance(node, ast.BinOp | ast.BoolOp) and type(node.op) in SWAPS:
        # Texts are added and formatted with operators too; nobody reads them more exactly than their tests.
        if not any(isinstance(getattr(part, "value", None), str) for part in ast.walk(node)):
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
    elif isinstance(node, ast.If | ast.IfExp) and not SKIPPED_TESTS.search(ast.unparse(node.test)):
        yield from (ast.copy_location(ast.Constant(value), node.test) for value in (True, False))
    elif isinstance(node, ast.Return) and node.value is not None and returns in ("bool", "float", "int"):
        if returns != "bool" and getattr(node.value, "value", None) == 0:
            return  # -0 is 0
        negated = ast.Not() if returns == "bool" else ast.USub()
        yield ast.copy_location(ast.UnaryOp(negated, node.value), node.value)


def nodes(tree: ast.AST, function: str = "", returns: str = "") -> Iterator[tuple[ast.AST, str, str]]:
    """Nodes that run and are not words for people, with the function that they stand in and what it returns."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.Raise | ast.JoinedStr | ast.arguments | ast.Assert | ast.Slice):
            if isinstance(child, ast.arguments):
                yield from ((d, function, "") for d in [*child.defaults, *child.kw_defaults] if d is not None)
            continue
        if isinstance(child, ast.Call) and SKIPPED_CALLS.search(ast.unparse(child.func)):
            continue
        if child in getattr(tree, "decorator_list", ()) or getattr(child, "arg", "") in ("strict", "indent", "maxsize"):
            continue
        if isinstance(child, ast.If) and SKIPPED_TESTS.search(ast.unparse(child.test)):
            continue
        if isinstance(tree, ast.AnnAssign) and child is tree.annotation:
            continue
        inside, told = function, returns
        if isinstance(child, ast.FunctionDef):
            inside, told = child.name, "" if child.returns is None else ast.unparse(child.returns)
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
            old: Any = new if isinstance(node, ast.If | ast.IfExp | ast.Return) else node
            begin, end = starts[old.lineno - 1] + old.col_offset, starts[old.end_lineno - 1] + old.end_col_offset
            short = " ".join(ast.unparse(node.test if isinstance(node, ast.If | ast.IfExp) else node).split())
            code = lines[old.lineno - 1].decode().strip()
            found.append(Mutant(name, function, old.lineno, code, short, ast.unparse(new), begin, end))
    return found


# ---------------------------------------------------------------- which tests call what: a plugin of pytest


def pytest_collection_modifyitems(config: Any, items: list[Any]) -> None:
    """Keep the tests of a list, in its order."""
    if chosen := os.environ.get("MUTANT_TESTS"):
        order = {name: place for place, name in enumerate(Path(chosen).read_text().splitlines())}
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in order])
        items[:] = sorted((item for item in items if item.nodeid in order), key=lambda item: order[item.nodeid])


def pytest_runtest_protocol(item: Any, nextitem: Any) -> None:
    """Begin to note a test's calls, with empty caches: what was remembered by an earlier test is called again."""
    if os.environ.get("MUTANT_MAP"):
        global _caches, _began
        if not _caches:
            gc.unfreeze()  # what conftest.py froze is not listed
            # Not `isinstance`: it asks a weak reference's proxy for the class of what may be gone.
            wrappers = (thing for thing in gc.get_objects() if type(thing) is functools._lru_cache_wrapper)
            _caches = [thing for thing in wrappers if (thing.__module__ or "").startswith((PACKAGE, "simulations."))]
        for cached in _caches:
            cached.cache_clear()
        _listening.clear()
        _began = _spent()
        threading.setprofile(_listen)
        _listen()


def pytest_runtest_logreport(report: Any) -> None:
    """Write down what a test called, if it passed."""
    if os.environ.get("MUTANT_MAP") and report.when == "call" and report.passed:
        sys.setprofile(None)
        bases = tuple(f"{ROOT / top}/" for top in MUTATED)
        codes = {
            entry.code for profile in _listening for entry in profile.getstats() if not isinstance(entry.code, str)
        }
        own = [code for code in codes if code.co_filename.startswith(bases)]
        calls = sorted({f"{name_of(Path(code.co_filename), ROOT)}:{code.co_name}" for code in own})
        with open(os.environ["MUTANT_MAP"], "a") as file:
            file.write(json.dumps([report.nodeid, _spent() - _began, calls]) + "\n")


_listening: list[cProfile.Profile] = []
_caches: list[Any] = []
_began = 0.0


def _spent() -> float:
    """Seconds that processors worked for this process and its children, which other programs do not prolong."""
    return sum(os.times()[:4])


def _listen(*_: object) -> None:
    """Note what this thread calls from now on; from Python 3.12 on, one profile hears all threads."""
    profile = cProfile.Profile(subcalls=False, builtins=False)
    with contextlib.suppress(ValueError):
        profile.enable()
        _listening.append(profile)


# ---------------------------------------------------------------- the run


class Trial:
    """Copies of the tree, and what is known of its tests."""

    def __init__(self, work: Path, jobs: int, seconds: float, tests: list[str]) -> None:
        self.seconds = seconds
        shared = [
            path for top in (PACKAGE, "tests/support", "simulations", "conf") for path in (ROOT / top).rglob("*.py")
        ]
        self.folder = work / _digest(*sorted(shared), *sorted((ROOT / "tests").rglob("conftest.py")))
        first = self.folder / "tree-0"
        ignored = shutil.ignore_patterns(".git", ".venv", "__pycache__", ".pytest_cache", ".mypy_cache", ".hypothesis")
        if not first.exists():
            shutil.copytree(ROOT, first, ignore=ignored, symlinks=True)
        self.trees: queue.Queue[Path] = queue.Queue()
        for job in range(jobs):
            tree = self.folder / f"tree-{job}"
            if not tree.exists():
                shutil.copytree(first, tree, symlinks=True)
            for path in [*sources(), *(ROOT / "tests").rglob("*.*")]:  # what an interrupted run left, and new tests
                if path.is_file() and "__pycache__" not in path.parts:
                    shutil.copy2(path, tree / path.relative_to(ROOT))
            self.trees.put(tree)
        found = {path for name in tests for path in [ROOT / name, *(ROOT / name).rglob("test_*.py")] if path.is_file()}
        maps = {path: self.folder / f"{path.stem}-{_digest(path)}.jsonl" for path in sorted(found)}
        new = [pair for pair in maps.items() if not pair[1].exists()]
        with ThreadPoolExecutor(jobs) as pool:
            list(pool.map(self._learn, [dict(new[at : at + 10]) for at in range(0, len(new), 10)]))
        self.calls = [json.loads(line) for file in maps.values() for line in file.read_text().splitlines()]
        print(f"{len(self.calls)} tests of {len(maps)} files passed and are known", flush=True)

    def _learn(self, maps: dict[Path, Path]) -> None:
        """Run the tests of some files once, to learn what they call; their output stays where that ends badly."""
        tree, part = self.trees.get(), next(iter(maps.values())).with_suffix(".part")
        log, names = part.with_suffix(".log"), [str(tests.relative_to(ROOT)) for tests in maps]
        part.write_text("")
        code = self._pytest(tree, ["-m", "not ray", *names], None, MUTANT_MAP=str(part), MUTANT_LOG=str(log))
        self.trees.put(tree)
        if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED):
            raise RuntimeError(f"Learning what tests call ended with {code}, not 0, 1 or 5; {log} says why: {names}.")
        if code == pytest.ExitCode.TESTS_FAILED:
            print(f"tests that fail when they are traced catch nothing; {log} names them", flush=True)
        rows = part.read_text().splitlines(keepends=True)
        for name, known in zip(names, maps.values(), strict=True):
            known.write_text("".join(row for row in rows if row.startswith(f'["{name}::')))

    def _pytest(self, tree: Path, arguments: list[str], limit: float | None, **more: str) -> int | None:
        """Exit code of pytest in a copy; None if it took too long and was ended, with whatever it started."""
        process = _FORKS.Process(target=_in_copy, args=(tree, arguments, more))
        process.start()
        assert process.pid is not None
        _running.add(process.pid)
        process.join(limit)
        _running.discard(process.pid)
        if process.is_alive():
            os.killpg(process.pid, signal.SIGKILL)
            process.join()
            return None
        return process.exitcode

    def tiers(self, mutant: Mutant) -> list[list[Any]]:
        """Tests that call the mutated function, nearest first; then whole files of such tests, as time allows."""
        key = f"{mutant.file}:{mutant.function}"
        hits = [row for row in self.calls if key in row[2]]
        direct = bool(hits)
        if not direct:  # code that runs at import time, or that is reached another way
            hits = [row for row in self.calls if any(call.startswith(mutant.file + ":") for call in row[2])]
        hits.sort(key=lambda row: (len(row[2]), row[1]))
        near = hits[:25]
        files = {row[0].split("::")[0] for row in hits}
        known = {row[0] for row in hits}
        if not direct:  # a test that reads a constant may call nothing: those beside the nearest ones are tried as well
            beside = {row[0].split("::")[0] for row in near}
            near += [row for row in self.calls if row[0] not in known and row[0].split("::")[0] in beside]
            known |= {row[0] for row in near}
        rest = sorted(hits[25:], key=lambda row: row[1])
        rest += sorted(
            (r for r in self.calls if r[0] not in known and r[0].split("::")[0] in files), key=lambda r: r[1]
        )
        wide, spent = [], 0.0
        for row in rest:
            spent += row[1]
            if spent < self.seconds:
                wide.append(row)
        return [tier for tier in (near, wide) if tier]

    def survives(self, mutant: Mutant) -> bool:
        """Whether every test that could see the mutant passes with it."""
        tree = self.trees.get()
        target = next(path for top in ("simulations", PACKAGE) if (path := tree / top / mutant.file).exists())
        original = target.read_bytes()
        try:
            target.write_bytes(original[: mutant.begin] + f"({mutant.after})".encode() + original[mutant.end :])
            for cached in target.parent.glob(f"__pycache__/{target.stem}.*"):
                cached.unlink()
            return all(self._passes(tree, rows) for rows in self.tiers(mutant))
        finally:
            target.write_bytes(original)
            self.trees.put(tree)

    def _passes(self, tree: Path, rows: list[Any]) -> bool:
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
            file.write("\n".join(row[0] for row in rows))
            file.flush()
            files = sorted({row[0].split("::")[0] for row in rows})
            worked = 60 + 3 * math.ceil(sum(row[1] for row in rows))
            more = {"MUTANT_TESTS": file.name, "MUTANT_SECONDS": str(worked), "PYTHONDONTWRITEBYTECODE": "1"}
            return self._pytest(tree, ["-x", *files], 20.0 * worked, **more) == 0


def _digest(*paths: Path) -> str:
    return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()[:12]


_running: set[int] = set()
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(
    ["numpy", "scipy.stats", "sklearn.cluster", "pandas", "flwr.serverapp", "hypothesis", "pytest"]
)
"""Children begin with the libraries imported, which takes longer than most tests; never the package itself."""


def _in_copy(tree: Path, arguments: list[str], more: dict[str, str]) -> None:
    """Run pytest in a copy of the tree, without a word; end with its exit code."""
    os.setsid()
    os.chdir(tree)
    paths = [str(path) for path in (tree, tree / "tests", tree / "tests/unit")]
    os.environ.update({"PYTHONPATH": os.pathsep.join(paths), "OPENBLAS_NUM_THREADS": "1", **more})
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = "MUTANT_TESTS" in more
    sys.path[:0] = paths
    if limit := int(more.get("MUTANT_SECONDS", 0)):  # of work: a loop without end ends, however busy the machine is
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
    with open(os.devnull) as nothing, open(more.get("MUTANT_LOG", os.devnull), "w") as words:
        for stream, file in enumerate((nothing, words, words)):
            os.dup2(file.fileno(), stream)
    own = ["-p", "mutants", "-p", "no:cacheprovider", "-n", "0", "--no-header"]
    sys.exit(int(pytest.main([*own, *arguments])))


def stop(*_: object) -> None:
    """End what this process started, and itself."""
    for pid in _running:
        os.killpg(pid, signal.SIGKILL)
    os._exit(1)


def main() -> int:
    """Run a number of mutants and print what the tests caught."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--number", type=int, default=100, help="mutants, at random (100)")
    parser.add_argument("--seed", type=int, default=0, help="which ones (0)")
    parser.add_argument("--rooms", nargs="*", help="folders, or parts of file names (all)")
    parser.add_argument("--jobs", type=int, default=2, help="mutants tried at the same time (2)")
    parser.add_argument("--seconds", type=float, default=120.0, help="of further tests, once the nearest passed (120)")
    parser.add_argument("--tests", nargs="*", default=["tests"], help="tests that may catch them (all but Ray's)")
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "mutants", help="folder for copies")
    parser.add_argument("--list", action="store_true", help="only say which mutants would be tried")
    options = parser.parse_args()
    rooms = options.rooms or [""]
    wanted = [path for path in sources() if any(room in name_of(path, ROOT) for room in rooms)]
    everything = [mutant for path in wanted for mutant in mutants_of(path, ROOT)]
    lines = Path(__file__).with_name("equivalent_mutants.txt").read_text().splitlines()
    equivalent = {" :: ".join(line.split(" :: ")[:3]) for line in lines if line and not line.startswith("#")}
    real = [mutant for mutant in everything if mutant.sentence not in equivalent]
    names = {name_of(path, ROOT) for path in sources()} - {name_of(path, ROOT) for path in wanted}
    for line in sorted(equivalent - {mutant.sentence for mutant in everything}):
        if line.split(" :: ")[0] not in names:
            print(f"no mutant any more, strike it out of equivalent_mutants.txt: {line}", flush=True)
    chosen = random.Random(options.seed).sample(real, min(options.number, len(real)))
    print(f"{len(chosen)} of {len(real)} mutants in {len(wanted)} files, seed {options.seed}", flush=True)
    if options.list:
        print("\n".join(f"{mutant.sentence}  (line {mutant.line})" for mutant in chosen))
        return 0
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    trial = Trial(options.work, options.jobs, options.seconds, options.tests)
    score: dict[str, collections.Counter[bool]] = collections.defaultdict(collections.Counter)
    with ThreadPoolExecutor(options.jobs) as pool:
        for mutant, survived in zip(chosen, pool.map(trial.survives, chosen), strict=True):
            score[mutant.room][survived] += 1
            print(f"{'SURVIVED' if survived else 'caught  '} {mutant.sentence}  (line {mutant.line})", flush=True)
    for room, count in sorted(score.items()):
        print(f"{room:12} {count[False]:4} of {count.total():4} caught, {100 * count[False] / count.total():.0f}%")
    return 0


if __name__ == "__main__":
    sys.exit(main())
