"""``python -m flwr_dpkmeans ...``: the same commands as ``flwr-dpkmeans ...``."""

from __future__ import annotations

import sys

from flwr_dpkmeans.cli.app import COMMANDS, main

__all__ = ["COMMANDS", "main"]

if __name__ == "__main__":
    sys.exit(main())
