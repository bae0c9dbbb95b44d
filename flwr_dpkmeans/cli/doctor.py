"""``flwr-dpkmeans doctor``: whether this machine can run what the package does."""

from __future__ import annotations


def doctor() -> int:
    """Say which versions are here and which were tried together.

    Also where files can be written, and which ports are free; the exit code is 1 if
    something would fail.
    """
    from flwr_dpkmeans.cli.doctor_command import print_findings

    return print_findings()
