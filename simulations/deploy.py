"""The federation on this machine under the name that it had before.

``python -m simulations.flower`` is the command now; this name goes with the next
release.
"""

from __future__ import annotations

import sys

from simulations.flower.__main__ import main

if __name__ == "__main__":
    print(
        "simulations.deploy is simulations.flower now: this name goes soon.",
        file=sys.stderr,
    )
    raise SystemExit(main())
