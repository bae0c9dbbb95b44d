"""Experiments have few rooms on few floors, and no room needs one that needs it."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

import house

ROOT = Path(__file__).resolve().parents[2]
SIMULATIONS = ROOT / "simulations"
MOST_ENTRIES = 14
MOST_FLOORS = 5


def modules_of(path: Path) -> Iterator[str]:
    """Dotted names that a file imports, imports within functions included."""
    for node in house.pieces_of(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def rooms_below() -> dict[str, set[str]]:
    """Each room (a folder, or a file beside the folders) with those that it imports."""
    below: dict[str, set[str]] = {}
    for path in SIMULATIONS.rglob("*.py"):
        room = path.relative_to(SIMULATIONS).with_suffix("").parts[0]
        imported = below.setdefault(room, set())
        for name in modules_of(path):
            package, _, rest = name.partition(".")
            if package == "simulations" and rest:
                imported.add(rest.partition(".")[0])
        imported.discard(room)
    return below


def height_of(room: str, below: dict[str, set[str]], above: frozenset[str]) -> int:
    """Floors from the ground to a room."""
    assert room not in above, f"{room} imports a room that imports it: {sorted(above)}"
    rooms = below[room] & set(below)
    climb = functools.partial(height_of, below=below, above=above | {room})
    return 1 + max(map(climb, rooms), default=0)


def test_experiments_have_few_rooms_on_few_floors_without_circles() -> None:
    entries = [
        entry.name
        for entry in SIMULATIONS.iterdir()
        if entry.suffix != ".md" and not entry.name.startswith((".", "__pycache__"))
    ]
    assert len(entries) <= MOST_ENTRIES, sorted(entries)
    below = rooms_below()
    heights = {room: height_of(room, below, frozenset()) for room in below}
    assert {"run", "experiments", "papers"} <= set(heights)
    assert max(heights.values()) <= MOST_FLOORS, heights
