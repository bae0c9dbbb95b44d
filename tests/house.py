"""The house in numbers: how far the package is from its plan (``python
tests/house.py``), and the ceilings that a test holds it under.
"""

from __future__ import annotations

import ast
import collections
import functools
import inspect
import io
import json
import os
import re
import statistics
import subprocess
import sys
import tokenize
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "flwr_dpkmeans"
LAYERS: tuple[frozenset[str], ...] = (
    frozenset({"errors", "foreign_names", "resources", "threads"}),
    frozenset({"log"}),
    frozenset({"privacy", "secagg", "kernels", "data"}),
    frozenset({"kmeans"}),
    frozenset({"sums"}),
    frozenset({"node", "algorithms", "baselines"}),
    frozenset({"options", "results"}),
    frozenset({"flower", "planner"}),
    frozenset({"estimators", "deploy"}),
    frozenset({"cli"}),
    frozenset({"__main__", "__init__"}),
)
"""Imports point to lower layers or stay in their room; nothing points up or sideways.
"""
NEVER = {("sums", "kernels"), ("sums", "kmeans"), ("sums", "data")}
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


@functools.cache
def syntax_tree(path: Path) -> ast.Module:
    """A file of the package, parsed once in a process; nobody changes the tree."""
    return ast.parse(path.read_text())


@functools.cache
def pieces_of(path: Path) -> tuple[ast.AST, ...]:
    """Every piece of a file's code, in the order of `ast.walk`."""
    return tuple(ast.walk(syntax_tree(path)))


def imports_of(path: Path, known: Sequence[str]) -> Iterator[str]:
    """Names below the package of the modules that a file imports, wherever in it."""
    body = [node for node in syntax_tree(path).body if not is_program(node)]
    for node in statements_of(ast.Module(body, [])):
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

    Comprehensions, which Python calls up to 3.11, and generators, which it calls for
    each element, are no functions.
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
        code = frame.f_code
        is_function = (
            code.co_name[0] != "<" and not code.co_flags & inspect.CO_GENERATOR
        )
        if event == "call" and is_function and f"/{PACKAGE}/" in code.co_filename:
            count[code.co_filename] += 1

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


@functools.cache
def size_of_code(source: str) -> tuple[int, int]:
    """Tokens of code, and lines that hold some.

    Neither comments nor docstrings count.
    """
    n_tokens, lines = 0, set[int]()
    for token in whole_tokens(source):
        text = token.line.strip()
        is_docstring = token.type == tokenize.STRING and text.startswith('"""')
        if token.type not in _NO_CODE and not is_docstring:
            n_tokens += 1
            lines.update(range(token.start[0], token.end[0] + 1))
    return n_tokens, len(lines)


def whole_tokens(source: str) -> Iterator[tokenize.TokenInfo]:
    """A file's tokens, of which an f-string is one.

    Since Python 3.12 its parts are tokens, too, between its start and its end.
    """
    depth = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        kind = tokenize.tok_name[token.type]
        depth += (kind == "FSTRING_START") - (kind == "FSTRING_END")
        if depth == 0:
            yield token


def density(source: str) -> float:
    """Tokens for each line of code."""
    n_tokens, n_lines = size_of_code(source)
    return n_tokens / max(1, n_lines)


def fillers(path: Path) -> int:
    """How many variables, functions and arguments have names that say nothing."""
    return sum(bound_name(node).strip("_") in FILLERS for node in pieces_of(path))


def bound_name(node: ast.AST) -> str:
    """The name that a piece of code gives to something; empty if it gives none."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return node.id
    if isinstance(node, ast.FunctionDef):
        return node.name
    return node.arg if isinstance(node, ast.arg) else ""


ROW = 88
"""Columns of a line."""
CEILINGS = {
    "imports that point up or sideways": 0,
    "files in the largest circle of imports": 1,
    "tokens a code line, middle file": 6.5,
    "tokens a code line, densest file": 8.0,
    "names that say nothing": 0,
    "root modules besides __init__, __main__": 4,
    "constructor arguments of FederatedKMeans": 16,
    "questions for retry or recover": 0,
    "trust flags outside trust": 0,
    "questions whether a round is preliminary": 0,
    "base names that files share": 0,
    "README, words": 700,
    "walrus per 1,000 code lines": 0.9,
    "sequences times bool": 0,
    "Any": 100,
    "files with more than 3 public concepts": 0,
    "largest folder": 18,
    "imports of simulations by the package": 0,
    "files that import Flower's private modules": 0,
    "a node executes: tokens, lines of code, files": 121369,
    "rooms and files flat in simulations": 12,
    "test lines per package line": 1.4,
    "tests that reach a private name": 5,
    "places in tests that replace something": 35,
    "words on pages": 30000,
    "pages": 29,
    "lines over 88 columns, package and tests": 0,
    "functions more complex than 10": 0,
    "functions with more than 8 arguments": 0,
    "summaries of more than one line": 0,
    "docstrings against numpydoc": 0,
    "what is unsafe in other code": 3,
    "files opened and named without pathlib": 0,
}
"""What each figure may come to, at first a little more than it came to.

Whoever lowers a figure lowers it here, too.
"""
LINTED = {
    "functions more complex than 10": ("C901",),
    "functions with more than 8 arguments": ("PLR0913",),
    "summaries of more than one line": ("D205",),
    "docstrings against numpydoc": ("D",),
    "what is unsafe in other code": ("S",),
    "files opened and named without pathlib": ("PTH",),
}
"""Ruff's rules that the package is not through with: pyproject.toml excepts it."""
SETTLED = ("D105", "D205", "D401", "D403", "S101", "S603")
"""Of these families: counted elsewhere, or no law, as pyproject.toml says."""
PUBLIC_FLOWER = (
    *("flwr.app", "flwr.client", "flwr.clientapp", "flwr.serverapp"),
    *("flwr.server", "flwr.simulation", "flwr", "flwr.serverapp.strategy"),
)
"""Modules of Flower that its documentation offers to apps."""


def nodes_of(kind: type[ast.AST]) -> Iterator[ast.AST]:
    """Every piece of the package's code of one kind."""
    for path in modules().values():
        yield from (node for node in pieces_of(path) if isinstance(node, kind))


def code_lines(source: str) -> int:
    """Lines that hold code, neither blank nor comment nor docstring."""
    return size_of_code(source)[1]


def multiplied_flags() -> int:
    """Texts, tuples and lists that are multiplied by a comparison or ``bool(...)``."""

    def is_sequence(node: ast.expr) -> bool:
        is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
        return is_text or isinstance(node, ast.Tuple | ast.List | ast.JoinedStr)

    def is_flag(node: ast.expr) -> bool:
        is_call = isinstance(node, ast.Call) and dotted(node.func) == "bool"
        return is_call or isinstance(node, ast.Compare | ast.BoolOp)

    return sum(
        isinstance(node.op, ast.Mult)
        and (
            (is_sequence(node.left) and is_flag(node.right))
            or (is_flag(node.left) and is_sequence(node.right))
        )
        for node in nodes_of(ast.BinOp)
        if isinstance(node, ast.BinOp)
    )


def public_names(tree: ast.Module) -> list[str]:
    """Public classes and functions that a module defines."""
    return [
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
        and not node.name.startswith("_")
    ]


FAMILY_OF_ERRORS = "errors"
"""The module whose exceptions are one family, and so one concept."""


def public_concepts(name: str, tree: ast.Module) -> int:
    """How many things a reader of a module has to know by name.

    Every public class counts, enumerations and the messages of one table as well; all
    public functions of a file together count as one, as they are what can be done with
    its classes. The exceptions in `errors` are one family and count as one.
    """
    classes = [
        node
        for node in tree.body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    ]
    n_classes = len(classes)
    if name == FAMILY_OF_ERRORS:
        n_classes = 1
    has_functions = len(public_names(tree)) > len(classes)
    return n_classes + has_functions


def crowded_modules() -> list[str]:
    """Modules with more than three public concepts, but for the doors of packages."""
    return [
        name
        for name, path in modules().items()
        if name.rpartition(".")[2] != "__init__"
        and public_concepts(name, syntax_tree(path)) > 3
    ]


def private_flower() -> list[str]:
    """Modules of the package that import what Flower does not offer to apps."""
    places = []
    for name, path in modules().items():
        for node in pieces_of(path):
            if isinstance(node, ast.ImportFrom) and node.module:
                sources = [node.module]
            elif isinstance(node, ast.Import):
                sources = [alias.name for alias in node.names]
            else:
                continue
            private = [
                source
                for source in sources
                if source.split(".")[0] == "flwr" and source not in PUBLIC_FLOWER
            ]
            if private and not name.startswith("flower._private"):
                places.append(name)
    return sorted(set(places))


@functools.cache
def executed_modules() -> tuple[str, ...]:
    """Modules of the package that a node's app imports before its first message."""
    script = (
        "import sys, flwr_dpkmeans.flower.client_app as app; app.app;"
        f"print(*[n for n in sys.modules if n.split('.')[0] == {PACKAGE!r}])"
    )
    printed = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    names = (name.partition(".")[2] or "__init__" for name in printed.split())
    known = modules()
    return tuple(sorted(name for name in names if name in known))


def tokens_of(source: str) -> int:
    """Tokens of code."""
    return size_of_code(source)[0]


def lines_of(folder: str) -> int:
    """Lines of all Python files below a folder of the project."""
    return sum(
        len(path.read_text().splitlines()) for path in (ROOT / folder).rglob("*.py")
    )


def folder_sizes() -> collections.Counter[str]:
    """Number of Python files in each folder of the package."""
    return collections.Counter(
        str(path.parent.relative_to(ROOT)) for path in modules().values()
    )


def uses_in(folder: str, pattern: str) -> int:
    """How often a pattern occurs in the Python files below a folder of the project."""
    return sum(
        len(re.findall(pattern, path.read_text()))
        for path in (ROOT / folder).rglob("*.py")
    )


def is_private(name: str) -> bool:
    """Whether a name is its module's or class's own.

    Those that end with an underscore, as ``__version__`` and IPython's ``_repr_html_``,
    are protocols; ``flower/_private.py`` is what the house calls it.
    """
    is_protocol = name.endswith("_") or name == "_private"
    return name.startswith("_") and not is_protocol


@functools.cache
def grips_of_tests() -> tuple[int, int]:
    """Places in tests that take hold of the package's inside.

    Those that import or call a private name, and those that replace something.
    """
    n_private = n_replaced = 0
    for path in (ROOT / "tests").rglob("*.py"):
        # Trees of all tests would take 200 MB: these do not stay.
        pieces = tuple(ast.walk(ast.parse(path.read_text())))
        imported = set().union(*map(imported_modules, pieces))
        n_private += sum(map(private_names, pieces))
        n_replaced += sum(is_replacement(node, imported) for node in pieces)
    return n_private, n_replaced


def private_names(node: ast.AST) -> int:
    """How many private names of the package a piece of a test imports or calls."""
    if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(PACKAGE):
        return sum(is_private(alias.name) for alias in node.names)
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return node.value.id in PACKAGE_MODULES and is_private(node.attr)
    return 0


def imported_modules(node: ast.AST) -> set[str]:
    """Names that a piece of code gives to modules, Python's or the package's."""
    if isinstance(node, ast.Import):
        return {alias.asname or alias.name.split(".")[0] for alias in node.names}
    if isinstance(node, ast.ImportFrom):
        return {
            alias.asname or alias.name
            for alias in node.names
            if alias.name in PACKAGE_MODULES
        }
    return set()


def is_replacement(node: ast.AST, imported: set[str]) -> bool:
    """Whether a piece of a test puts something in the place of the program's.

    By `setattr`, `mock.patch`, an item of a table or of `sys.modules` (variables of
    the environment are a user's), or an assignment to a module's name.
    """
    if isinstance(node, ast.Call):
        name = dotted(node.func)
        if name.endswith(("setattr", "delattr")):
            return True
        if name.endswith(("mock.patch", "patch.object", "patch.multiple")):
            return True
        is_item = name.endswith(("setitem", "delitem", "patch.dict"))
        return is_item and "environ" not in ast.unparse(node.args[0])
    targets = node.targets if isinstance(node, ast.Assign) else []
    return any(
        isinstance(target, ast.Attribute | ast.Subscript)
        and (
            dotted(target.value) == "sys.modules"
            or (isinstance(target, ast.Attribute) and dotted(target.value) in imported)
        )
        for target in targets
    )


PACKAGE_MODULES = frozenset(
    path.stem for path in (ROOT / PACKAGE).rglob("*.py") if path.stem != "__init__"
)


def pages_words() -> tuple[int, int]:
    """Words on all pages of the project besides changelogs, and number of pages."""
    pages = [
        path
        for folder in (PACKAGE, "simulations")
        for path in (ROOT / folder).rglob("*.md")
    ]
    pages.append(ROOT / "README.md")
    words = [word for path in pages for word in path.read_text().split()]
    # Bars of tables and marks of lists are no words.
    return sum(any(map(str.isalnum, word)) for word in words), len(pages)


def structure() -> list[tuple[str, str, str]]:
    """What the laws of the house speak of: name, now, to reach."""
    sources = {name: path.read_text() for name, path in modules().items()}
    n_code = sum(map(code_lines, sources.values()))
    walruses = sum(1 for _ in nodes_of(ast.NamedExpr))
    executed = [sources[name] for name in executed_modules()]
    n_simulation_rooms = sum(
        path.is_dir() or path.suffix == ".py"
        for path in (ROOT / "simulations").iterdir()
        if path.name not in ("__pycache__", "__init__.py")
    )
    words, pages = pages_words()
    n_private, n_replaced = grips_of_tests()
    package = lines_of(PACKAGE)
    largest, size = folder_sizes().most_common(1)[0]
    return [
        ("walrus per 1,000 code lines", f"{1000 * walruses / n_code:.1f}", "1"),
        ("sequences times bool", str(multiplied_flags()), "0"),
        ("Any", str(uses_in(PACKAGE, r"\bAny\b")), "100"),
        (
            "files with more than 3 public concepts",
            str(len(crowded_modules())),
            "0",
        ),
        ("largest folder", f"{size} in {largest}", "18"),
        (
            "imports of simulations by the package",
            str(uses_in(PACKAGE, r"(?m)^\s*(from|import) simulations")),
            "0",
        ),
        ("files that import Flower's private modules", str(len(private_flower())), "1"),
        (
            "a node executes: tokens, lines of code, files",
            f"{sum(map(tokens_of, executed))}, {sum(map(code_lines, executed))},"
            f" {len(executed)}",
            "60%",
        ),
        ("rooms and files flat in simulations", str(n_simulation_rooms), "14"),
        (
            "test lines per package line",
            f"{lines_of('tests') / package:.1f}",
            "1.3",
        ),
        ("tests that reach a private name", str(n_private), "10"),
        ("places in tests that replace something", str(n_replaced), "20"),
        ("words on pages", str(words), "30,000"),
        ("pages", str(pages), "30"),
    ]


@functools.cache
def lint_counts(*folders: str) -> collections.Counter[str]:
    """Count what ruff finds below folders, by rule, whatever files are excepted."""
    rules = sorted({rule for family in LINTED.values() for rule in family} | {"E501"})
    settings = (
        "line-length = 88",
        "lint.mccabe.max-complexity = 10",
        "lint.pylint.max-args = 8",
        "lint.pydocstyle.convention = 'numpy'",
    )
    options = [word for setting in settings for word in ("--config", setting)]
    command = ["ruff", "check", "--isolated", "--exit-zero"]
    command += ["--select", ",".join(rules), "--output-format", "json"]
    done = subprocess.run(
        [sys.executable, "-m", *command, *options, *folders],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return collections.Counter(str(item["code"]) for item in json.loads(done.stdout))


def linted() -> list[tuple[str, str, str]]:
    """What ruff counts in the package: name, now, to reach."""
    counts = lint_counts(PACKAGE)
    rows = []
    for name, families in LINTED.items():
        number = sum(
            count
            for rule, count in counts.items()
            if rule.startswith(families) and (rule in families or rule not in SETTLED)
        )
        rows.append((name, str(number), "0"))
    wide = counts["E501"] + lint_counts("tests")["E501"]
    return [(f"lines over {ROW} columns, package and tests", str(wide), "0"), *rows]


def number_in(text: str) -> float:
    """The first number of a figure such as ``9901 in 96``."""
    match = re.match(r"[\d.]+", text)
    assert match is not None, text
    return float(match[0])


def measured() -> list[tuple[str, str, str]]:
    """Every figure: name, now, to reach."""
    return [*table(), *structure(), *linted()]


def exceeded(rows: Sequence[tuple[str, str, str]]) -> list[str]:
    """Figures above their ceilings, as sentences."""
    figures = {name: now for name, now, _ in rows}
    return [
        f"{name}: {figures[name]}, at most {ceiling}"
        for name, ceiling in CEILINGS.items()
        if number_in(figures[name]) > ceiling
    ]


def print_files() -> None:
    """Print density, lines over the limit, fillers and public concepts of each file."""
    print("tokens  over  fillers  concepts  file")
    for name, path in modules().items():
        source = path.read_text()
        over = sum(len(line) > ROW for line in source.splitlines())
        n_concepts = public_concepts(name, syntax_tree(path))
        print(
            f"{density(source):6.1f}  {over:4}  {fillers(path):7}  {n_concepts:8}"
            f"  {name}"
        )


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
        ("names that say nothing", str(sum(map(fillers, known.values()))), "0"),
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
        ("README, words", str(words), "700"),
    ]


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    if "--files" in sys.argv:
        print_files()
        sys.exit()
    rows = [("", "now", "at most", "to reach")]
    for name, now, goal in measured():
        rows.append((name, now, str(CEILINGS.get(name, "-")), goal))
    widths = [max(len(row[i]) for row in rows) for i in range(4)]
    for row in rows:
        print(
            "  ".join(
                cell.ljust(width) for cell, width in zip(row, widths, strict=True)
            ).rstrip()
        )
