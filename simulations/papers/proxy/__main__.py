"""``python -m simulations.papers.proxy --help``."""

from __future__ import annotations

import sys

from simulations.papers import run_part

PARTS = {
    "ablation": "what each ingredient is worth, beside FastLloyd",
    "utility": "cost above the optimum on the synthetic sets, beside limits",
    "pictures": "draws the pictures of the page proxy_lloyd.md again",
}

if __name__ == "__main__":
    sys.exit(run_part("python -m simulations.papers.proxy", PARTS))
