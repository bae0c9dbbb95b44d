"""What a schema's file holds."""

from __future__ import annotations

import tomllib
from pathlib import Path


def read_toml(path: str | Path) -> dict[str, object]:
    """Read a schema's file; an OSError or ValueError if there is none."""
    file = Path(path)
    file = file.expanduser()
    text = file.read_text(encoding="utf-8-sig")
    return tomllib.loads(text)
