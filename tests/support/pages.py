"""The project's pages and their headings."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
DOCS = ROOT / "flwr_dpkmeans" / "docs"
INDEX = DOCS / "index.md"
PAGES = (
    README,
    *sorted((ROOT / ".github").glob("[!P]*.md")),  # not the form of a pull request
    *sorted((ROOT / "flwr_dpkmeans").rglob("*.md")),
    *sorted((ROOT / "simulations").rglob("*.md")),
)


def name_of(page: Path) -> str:
    """A page's path from the project's folder."""
    return page.relative_to(ROOT).as_posix()


NAMES = tuple(name_of(page) for page in PAGES)


def without_code(text: str) -> str:
    """A page without its blocks of code."""
    return re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)


def anchors_of(page: Path) -> set[str]:
    """Anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", without_code(page.read_text()), re.MULTILINE)
    plain = [
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        for heading in headings
    ]
    earlier: Counter[str] = Counter()
    anchors = set()
    for anchor in plain:
        anchors.add(f"{anchor}-{earlier[anchor]}" if earlier[anchor] else anchor)
        earlier[anchor] += 1
    return anchors
