"""The house in numbers: how far the package is from its plan (``python
tests/house.py``); laws are tests elsewhere.
"""

from __future__ import annotations

import ast
import collections
import functools
import inspect
import io
import re
import statistics
import sys
import tokenize
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "flwr_dpkmeans"
LAYERS: tuple[frozenset[str], ...] = (
    frozenset({"errors", "foreign_names", "threads"}),
    frozenset({"log"}),
    frozenset({"privacy", "secagg", "kmeans", "data"}),
    frozenset({"sums"}),
    frozenset({"node", "algorithms"}),
    frozenset({"options", "results"}),
    frozenset({"flower"}),
    frozenset({"fitted"}),
    frozenset({"estimator", "naive_bayes"}),
    frozenset({"__main__", "__init__"}),
)
"""Imports point to lower layers or stay in their room; nothing points up or sideways.
"""
NEVER = {("sums", "kmeans"), ("sums", "data")}
"""Downwards, but private sums are of anything."""
ELSEWHERE = {"__version__": "errors"}
"""The version is a constant that every room may read."""


def modules() -> dict[str, Path]:
    """Every module of the package by its name below the package.

    The package itself is ``__init__``.
    """
    found = {}
    for path in sorted((ROOT / PACKAGE).rglob("*.py")):
        parts = path.relative_to(ROOT / PACKAGE).with_suffix("").parts
        parts = parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts
        found[".".join(parts)] = path
    return found


def room_of(name: str) -> str:
    """The room that a module belongs to."""
    first = name.partition(".")[0]
    return ELSEWHERE.get(first, first)


def layer_of(room: str) -> int:
    """Height of a room."""
    return next(height for height, rooms in enumerate(LAYERS) if room in rooms)


def is_program(node: ast.AST) -> bool:
    """Whether a statement is what a module does when it is run, or what only a type
    checker reads.
    """
    return isinstance(node, ast.If) and ast.unparse(node.test) in (
        "__name__ == '__main__'",
        "TYPE_CHECKING",
    )


def statements_of(node: ast.AST) -> Iterator[ast.AST]:
    """Every statement below a node.

    Expressions, of which there are ten times as many, hold none.
    """
    for name in ("body", "handlers", "orelse", "finalbody", "cases"):
        children = getattr(node, name, None)
        for child in children if isinstance(children, list) else ():
            yield child
            yield from statements_of(child)


def dotted(node: ast.expr) -> str:
    """An expression as it is written.

    Without Python's own printer, which takes long, if it is a name with dots.
    """
    names, inner = [], node
    while isinstance(inner, ast.Attribute):
        names.append(inner.attr)
        inner = inner.value
    return (
        ".".join([inner.id, *reversed(names)])
        if isinstance(inner, ast.Name)
        else ast.unparse(node)
    )


def imports_of(path: Path, known: Sequence[str]) -> Iterator[str]:
    """Names below the package of the modules that a file imports, wherever in it."""
    tree = ast.parse(path.read_text())
    tree.body = [node for node in tree.body if not is_program(node)]
    for node in statements_of(tree):
        if (
            isinstance(node, ast.ImportFrom)
            and (node.module or "").split(".")[0] == PACKAGE
        ):
            base = (node.module or "").partition(".")[2]
            for alias in node.names:
                full = f"{base}.{alias.name}".strip(".")
                yield full if full in known else base
        elif isinstance(node, ast.Import):
            yield from (
                alias.name.partition(".")[2]
                for alias in node.names
                if alias.name.startswith(PACKAGE + ".")
            )


def points_up(name: str, target: str) -> bool:
    """Whether an import from one module to another is against the law."""
    rooms = room_of(name), room_of(target)
    return rooms in NEVER or (
        rooms[0] != rooms[1] and layer_of(rooms[0]) <= layer_of(rooms[1])
    )


@functools.cache
def arrows() -> frozenset[tuple[str, str]]:
    """Every import from one module of the package to another."""
    known = modules()
    return frozenset(
        (name, target)
        for name, path in known.items()
        for target in imports_of(path, list(known))
        if target and target in known and target != name
    )


def unlawful() -> list[tuple[str, str]]:
    """Imports that point up or sideways."""
    return sorted(arrow for arrow in arrows() if points_up(*arrow))


def largest_circle() -> int:
    """Files in the largest group that all import each other, directly or not.

    1: there is no circle.
    """
    below = collections.defaultdict(set)
    for name, target in arrows():
        below[name].add(target)

    def reached(start: str) -> set[str]:
        seen: set[str] = set()
        waiting = [start]
        while waiting:
            new = below[waiting.pop()] - seen
            seen |= new
            waiting += new
        return seen

    reach = {name: reached(name) for name in modules()}
    return max(
        1 + sum(name in reach[other] for other in reach[name] if other != name)
        for name in reach
    )


def own_calls() -> tuple[int, int]:
    """Calls of the package's own functions, and their files, in one in-process
    FastLloyd fit of three clients.
    """
    import numpy as np

    from flwr_dpkmeans import FederatedKMeans

    generator = np.random.default_rng(0)
    parts = [generator.uniform(-1, 1, (500, 2)) for _ in range(3)]

    def fit() -> None:
        FederatedKMeans(
            3, algorithm="fastlloyd", bounds=(-1.0, 1.0), random_state=0
        ).fit(parts)

    fit()
    count: collections.Counter[str] = collections.Counter()

    def profile(frame, event, argument) -> None:  # type: ignore[no-untyped-def]
        if event == "call" and f"/{PACKAGE}/" in frame.f_code.co_filename:
            count[frame.f_code.co_filename] += 1

    sys.setprofile(profile)
    try:
        fit()
    finally:
        sys.setprofile(None)
    return sum(count.values()), len(count)


def constructor_arguments() -> int:
    """Arguments of `FederatedKMeans` besides itself."""
    from flwr_dpkmeans import FederatedKMeans

    return len(inspect.signature(FederatedKMeans).parameters)


def counted(pattern: str, *, without: str = " ") -> int:
    """Lines of the package with a pattern, outside of some room."""
    return sum(
        bool(re.search(pattern, line))
        for name, path in modules().items()
        if not name.startswith(without)
        for line in path.read_text().splitlines()
    )


FILLERS = frozenset(
    [
        "told",
        "found",
        "given",
        "own",
        "known",
        "one",
        "kept",
        "held",
        "heard",
        "asked",
        "said",
    ]
)
"""Names that say nothing of what they name."""
_NO_CODE = (
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE),
    *(tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER),
)


def density(source: str) -> float:
    """Tokens for each line of code; comments and docstrings do not count."""
    n_tokens, lines = 0, set[int]()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        is_docstring = token.type == tokenize.STRING and token.line.strip().startswith(
            '"""'
        )
        if token.type in _NO_CODE or is_docstring:
            continue
        n_tokens += 1
        lines.update(range(token.start[0], token.end[0] + 1))
    return n_tokens / max(1, len(lines))


def fillers(source: str) -> int:
    """How many variables, functions and arguments have names that say nothing."""
    return sum(
        bound_name(node).strip("_") in FILLERS for node in ast.walk(ast.parse(source))
    )


def bound_name(node: ast.AST) -> str:
    """The name that a piece of code gives to something; empty if it gives none."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return node.id
    if isinstance(node, ast.FunctionDef):
        return node.name
    return node.arg if isinstance(node, ast.arg) else ""


def table() -> list[tuple[str, str, str]]:
    """What is measured: name, now, to reach."""
    known = modules()
    lines = [line for path in known.values() for line in path.read_text().splitlines()]
    stems = collections.Counter(
        path.stem for path in known.values() if not path.stem.startswith("__")
    )
    roots = [
        name
        for name in known
        if "." not in name and known[name].parent.name == PACKAGE and "__" not in name
    ]
    calls, files = own_calls()
    comments = sum(line.lstrip().startswith("#") for line in lines)
    sources = [path.read_text() for path in known.values()]
    densities = [density(source) for source in sources]
    words = len((ROOT / "README.md").read_text().split())
    return [
        ("imports that point up or sideways", str(len(unlawful())), "0"),
        ("files in the largest circle of imports", str(largest_circle()), "1"),
        ("package lines, files", f"{len(lines)} in {len(known)}", "-"),
        (
            "tokens a code line, middle file",
            f"{statistics.median(densities):.1f}",
            "6.5",
        ),
        ("tokens a code line, densest file", f"{max(densities):.1f}", "8"),
        ("names that say nothing", str(sum(map(fillers, sources))), "0"),
        ("root modules besides __init__, __main__", str(len(roots)), "5"),
        (
            "constructor arguments of FederatedKMeans",
            str(constructor_arguments()),
            "15",
        ),
        (
            "own calls of one in-process fit, files",
            f"{calls} in {files}",
            "8,000 in 40",
        ),
        (
            "questions for retry or recover",
            str(counted(r"isinstance\(.*Recovery|Dropout\.RE")),
            "0",
        ),
        (
            "trust flags outside trust",
            str(
                counted(
                    r"\.(shared_noise|server_reads|blinded)\b", without="sums.trust"
                )
            ),
            "0",
        ),
        (
            "questions whether a round is preliminary",
            str(counted(r"index <= 0|index > 0|_index <= 0|_index > 0")),
            "0",
        ),
        ("base names that files share", str(sum(n > 1 for n in stems.values())), "0"),
        ("comments, share of lines", f"{100 * comments / len(lines):.1f}%", "-"),
        ("README, words", str(words), "1,000"),
    ]


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    rows = [("", "now", "to reach"), *table()]
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    for row in rows:
        print(
            "  ".join(
                cell.ljust(width) for cell, width in zip(row, widths, strict=True)
            ).rstrip()
        )
