"""What a schema's file holds."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any


def read_toml(path: str | Path) -> dict[str, Any]:
    return tomllib.loads(Path(path).expanduser().read_text(encoding="utf-8-sig"))
