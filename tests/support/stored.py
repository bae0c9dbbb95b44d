"""Models that were written and read again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import joblib


def joblib_file(model: Any, folder: Path) -> Any:
    """Through joblib."""
    joblib.dump(model, folder / "model.joblib")
    return joblib.load(folder / "model.joblib")
