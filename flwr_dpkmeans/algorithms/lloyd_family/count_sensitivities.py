"""What one unit adds to counts of clusters."""

from __future__ import annotations

from flwr_dpkmeans.privacy.release import Norm, PrivacyUnit, Sensitivity


def counts_sensitivity(norm: Norm = Norm.L2) -> Sensitivity:
    """Say how far one row moves the counts of clusters, in either norm."""
    return Sensitivity(
        norm,
        1.0,
        PrivacyUnit.RECORD,
        "S2: one row lies in at most one cluster",
        True,
    )
