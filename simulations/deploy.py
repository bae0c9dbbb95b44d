"""Say where the federation on one machine is now, and run it.

The name goes with the next release.
"""

from __future__ import annotations

import sys

from simulations.flower.__main__ import main

if __name__ == "__main__":
    print(
        "python -m simulations.deploy is now python -m simulations.flower; this name"
        " goes with the next release",
        file=sys.stderr,
    )
    raise SystemExit(main())
