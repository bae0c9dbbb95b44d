"""What a schema says of a run."""

from __future__ import annotations

from flwr_dpkmeans.data.schema import Schema

SPREADS_SHARE = 0.05
"""Of the budget, for the private deviations of a schema's standard scale."""


def schema_settings(bounds: object) -> dict[str, object]:
    """What a schema that stands where bounds may says of a run besides."""
    if not isinstance(bounds, Schema):
        return {}
    settings: dict[str, object] = {
        "schema_digest": bounds.digest,
        "standard_columns": bounds.standard_columns,
        "profile_widths": bounds.profile_widths,
        "profile_share": bounds.describing_share,
    }
    if bounds.gappy:
        settings["gap_columns"] = bounds.gap_columns
    if bounds.standard_columns:
        settings["private_bounds"] = True
        settings["bounds_share"] = SPREADS_SHARE
    return settings
