"""``python -m simulations.papers.feddp --help``."""

from __future__ import annotations

import sys

from simulations.papers import run_part

PARTS = {
    "utility": "cost above the non-private optimum, beside limits",
    "cost": "seconds and peak memory of whole runs, beside limits",
}

if __name__ == "__main__":
    sys.exit(run_part("python -m simulations.papers.feddp", PARTS))
