"""What rows weigh in a fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from flwr_dpkmeans.data.files.formats.frames import frame_table
from flwr_dpkmeans.errors import ConfigurationError, DataError
from flwr_dpkmeans.sums.option_rules import Rule
from flwr_dpkmeans.sums.round import Array
from flwr_dpkmeans.sums.settings import Settings

_RULE: Rule = Settings.__dataclass_fields__["max_weight"].metadata["rule"]


def stated_maximum(max_weight: object) -> float:
    """The public maximum of weights, where there are some."""
    if max_weight is None:
        raise ConfigurationError(
            "sample_weight was given, but max_weight was not, which is public and"
            " bounds how far a row moves a sum: give the largest weight that a row may"
            " have, such as max_weight=20, not computed from the rows."
        )
    most: float = _RULE.take("max_weight", max_weight)
    return most


def weights_in(frame: object, name: str) -> object:
    """What a frame's column of that name says, (n_rows,)."""
    if not hasattr(frame, "columns") and not isinstance(frame, Mapping):
        raise DataError(
            f"the schema's weight_column is {name!r}, but a notebook reads it of data"
            " frames only: give sample_weight, or frames."
        )
    return frame_table(frame).numbers_of("weight_column", name)


def require_some_weight(weights: Sequence[Array]) -> None:
    """Refuse tables of which no row counts."""
    if not any(part.any() for part in weights):
        raise DataError(
            "sample_weight is zero for all rows, so that none counts: give one a weight"
            " above 0."
        )
