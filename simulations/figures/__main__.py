"""``python -m simulations.figures TABLE --help``."""

from __future__ import annotations

import sys

from simulations.figures.plot import main

if __name__ == "__main__":
    sys.exit(main())
