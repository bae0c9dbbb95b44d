"""``python -m simulations.papers.fastlloyd --help``."""

from __future__ import annotations

import sys

from simulations.papers import run_part

PARTS = {
    "table3": "milliseconds and bytes of an iteration with two clients",
    "utility": "cost per point of the Lloyd family beside reference figures",
}

if __name__ == "__main__":
    sys.exit(run_part("python -m simulations.papers.fastlloyd", PARTS))
