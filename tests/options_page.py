"""Renews the options on ``docs/reference/options.md`` from ``pyproject.toml`` (``python
tests/options_page.py``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "flwr_dpkmeans" / "docs" / "reference" / "options.md"
FILE_KEYS = "../how-to/your_table.md#2-how-the-file-is-written"
TABLE = "[tool.flwr.app.config"
MARK = "<!-- options: made by `python tests/options_page.py` -->\n"
LINE = re.compile(r'([\w-]+) = ("[^"]*"|[^#]*?)\s*(?:#\s*(.*))?')
UNITS = ", in the caller's units; auto: from server data"
"""How many texts end; the page says it once."""
OF_EVERY_RUN = ("", "file", "cohort")
"""Tables of options that no algorithm has for itself."""
FAMILIES = {
    "Lloyd": ["fastlloyd", "glloyd", "sulloyd", "lloyd"],
    "FedDP": [
        *("feddp_kmeans", "server_kmeans_plus_plus"),
        *("server_lloyd", "sphere_packing"),
    ],
}
"""Algorithms that share most of their options, by the word that stands for them."""


@dataclass(frozen=True)
class Declared:
    """One option of the run configuration, as ``pyproject.toml`` declares it."""

    table: str
    name: str
    default: str
    text: str

    @property
    def key(self) -> str:
        """Its key after ``--run-config``."""
        return f"{self.table}.{self.name}" if self.table else self.name


def declared() -> list[Declared]:
    """All options, in their order."""
    options = []
    table = None
    for line in (ROOT / "pyproject.toml").read_text().splitlines():
        if line.startswith("["):
            is_config = line.startswith(TABLE)
            table = line.removeprefix(TABLE).strip(".]") if is_config else None
        elif table is not None and line and not line.startswith("#"):
            parts = LINE.fullmatch(line)
            assert parts is not None, line
            text = (parts[3] or "").replace("|", "&#124;")
            options.append(Declared(table, parts[1], parts[2], text))
    return options


def shared() -> dict[Declared, list[str]]:
    """Options of single algorithms, equal ones once, with the algorithms that have
    them.
    """
    algorithms: dict[Declared, list[str]] = {}
    for option in declared():
        if option.table not in OF_EVERY_RUN:
            alike = Declared("", option.name, option.default, option.text)
            algorithms.setdefault(alike, []).append(option.table)
    return algorithms


def table_of(options: Iterable[Declared]) -> Iterator[str]:
    """Lines of a table of options."""
    yield "\n| option | default | |\n|---|---|---|"
    for option in options:
        yield f"| `{option.key}` | `{option.default}` | {option.text} |"


def families_of(algorithms: list[str]) -> str:
    """Names of algorithms, whole families by their word."""
    names = list(algorithms)
    for word, members in FAMILIES.items():
        if set(members) <= set(names):
            index = names.index(members[0])
            names.insert(index, word)
            names = [name for name in names if name not in members]
    return ", ".join(names)


def meaning_of_families() -> str:
    """The sentence that says what the words stand for."""
    parts = [f"*{word}* is {', '.join(names)}" for word, names in FAMILIES.items()]
    return "; ".join(parts) + "."


def rows() -> Iterator[str]:
    """All that stands below the mark."""
    options = declared()
    yield "\n## Of every run"
    yield from table_of(option for option in options if not option.table)
    yield "\n## How a text file is written, in simulation"
    yield f"\n[What each says]({FILE_KEYS})."
    yield "\n| option | default |\n|---|---|"
    for option in options:
        if option.table == "file":
            yield f"| `{option.key}` | `{option.default}` |"
    yield "\n## The cohort"
    yield from table_of(option for option in options if option.table == "cohort")
    yield "\n## Of single algorithms"
    yield "\nThe key is the algorithm's name, a dot, and the option: `fastlloyd.alpha`."
    yield meaning_of_families() + f" (u) is{UNITS.removeprefix(',')}."
    yield "\n| option | default | of | |\n|---|---|---|---|"
    for option, algorithms in shared().items():
        names = families_of(algorithms)
        text = option.text.replace(UNITS, " (u)")
        yield f"| `{option.name}` | `{option.default}` | {names} | {text} |"


def page() -> str:
    """The page as it should be: what is above the mark, and the options below it."""
    return PAGE.read_text().partition(MARK)[0] + MARK + "\n".join(rows()) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
