"""What rows weigh, as a caller gives it."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from flwr_dpkmeans.errors import DataError


def validate_weights(
    weights: ArrayLike,
    n_rows: int,
    name: str = "sample_weight",
) -> NDArray[np.float64]:
    """Return weights, (n_rows,), as finite numbers of at least 0.

    Others are a `DataError`, before any budget is spent.
    """
    try:
        numbers = np.asarray(weights, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(
            f"{name} has entries that are no numbers: give one number of at least 0 for"
            " each row."
        ) from error
    if numbers.shape != (n_rows,):
        raise DataError(
            f"{name} has shape {numbers.shape}, but there are {n_rows} rows: give one"
            " number for each."
        )
    is_sound = np.isfinite(numbers) & (numbers >= 0.0)
    if not is_sound.all():
        row = int(np.argmin(is_sound))
        raise DataError(
            f"{name} is {numbers[row]:g} at row {row}, but a row weighs a finite number"
            " of at least 0: correct it, or leave the row out."
        )
    return numbers
