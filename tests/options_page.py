"""Renews the options on ``flwr_dpkmeans/docs/reference/options.md`` from ``pyproject.toml`` (``python
tests/options_page.py``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "flwr_dpkmeans" / "docs" / "reference" / "options.md"
TABLE = "[tool.flwr.app.config"
MARK = "<!-- options: made by `python tests/options_page.py` -->\n"


def declared() -> Iterator[str]:
    """Lines of the run configuration's tables, the head of each as a comment with its
    prefix.
    """
    inside = False
    for line in (ROOT / "pyproject.toml").read_text().splitlines():
        if line.startswith("["):
            inside = line.startswith(TABLE)
            line = line.removeprefix(TABLE).strip(".]")
            line = f"# Keys that begin with `{line}.`:" if line else ""
        if inside and line:
            yield line


def rows() -> Iterator[str]:
    """One block for each group of options: its comment, then a table."""
    prefix, was_comment = "", False
    for line in declared():
        is_comment = line.startswith("#")
        if is_comment:
            text = line.removeprefix("#").strip()
            named = re.fullmatch(r"Keys that begin with `(.+)`:", text)
            prefix = named[1] if named else prefix
            yield text if was_comment else f"\n{text}"
        else:
            if was_comment:
                yield "\n| option | default | |\n|---|---|---|"
            option = re.fullmatch(r'([\w-]+) = ("[^"]*"|[^#]*?)\s*(?:#\s*(.*))?', line)
            assert option is not None, line
            yield (
                f"| `{prefix}{option[1]}` | `{option[2]}` |"
                f" {(option[3] or '').replace('|', '&#124;')} |"
            )
        was_comment = is_comment


def page() -> str:
    """The page as it should be: what is above the mark, and the options below it."""
    return PAGE.read_text().partition(MARK)[0] + MARK + "\n".join(rows()) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
