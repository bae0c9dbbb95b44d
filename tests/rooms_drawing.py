"""Draws the rooms on ``explanation/how_a_run_works.md`` by the law of imports.

``python tests/rooms_drawing.py`` renews the drawing.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from house import LAYERS

ROOT = Path(__file__).resolve().parents[1]
DRAWING = ROOT / "flwr_dpkmeans" / "docs" / "explanation" / "rooms.svg"
WIDTH = 640
ROOM_WIDTH = 130
ROOM_HEIGHT = 34
GAP = 16
FLOOR_HEIGHT = ROOM_HEIGHT + GAP
HEAD = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"'
    ' font-family="sans-serif" font-size="15" text-anchor="middle">'
)
BOX = (
    '<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="6"'
    ' fill="#e8eef4" stroke="#37628a"/>'
)
LABEL = '<text x="{x}" y="{y}" fill="#12263a">{name}</text>'


def floor(rooms: list[str], top: int) -> Iterator[str]:
    """Boxes of the rooms of one floor, side by side, in the middle."""
    width = len(rooms) * ROOM_WIDTH + (len(rooms) - 1) * GAP
    left = (WIDTH - width) // 2
    for name in rooms:
        yield BOX.format(x=left, y=top, width=ROOM_WIDTH, height=ROOM_HEIGHT)
        middle = left + ROOM_WIDTH // 2
        yield LABEL.format(x=middle, y=top + 22, name=name)
        left += ROOM_WIDTH + GAP


def drawing() -> str:
    """The drawing as SVG, from the highest floor down."""
    height = len(LAYERS) * FLOOR_HEIGHT + GAP
    lines = [HEAD.format(width=WIDTH, height=height)]
    for index, rooms in enumerate(reversed(LAYERS)):
        lines += floor(sorted(rooms), GAP + index * FLOOR_HEIGHT)
    return "\n".join([*lines, "</svg>"]) + "\n"


if __name__ == "__main__":
    DRAWING.write_text(drawing())
