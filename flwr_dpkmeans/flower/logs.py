"""Plain log lines on standard output, for this project's own apps."""

from __future__ import annotations

import logging
import sys


def show_logs() -> None:
    """Print the package's log lines from INFO up, once: Flower streams a ServerApp's, a SuperNode shows its own."""
    root = logging.getLogger("flwr_dpkmeans")
    root.setLevel(logging.INFO)
    if not root.handlers:
        handler = logging.StreamHandler(sys.stdout)
        handler.setFormatter(logging.Formatter("%(message)s"))
        root.addHandler(handler)
        root.propagate = False
