"""Classes that have names: which ones labels have, and their numbers from 0 on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.errors import ConfigurationError, DataError


def distinct_labels(labels: object) -> NDArray[np.generic]:
    """Sort the different labels of one table, (n_rows,), or of several.

    Several tables are a list, or a mapping by name.
    """
    arrays = [np.asarray(part) for part in _parts(labels)]
    try:
        each = [np.unique(array) for array in arrays if array.size]
        return np.unique(np.concatenate(each)) if each else np.zeros(0, dtype=np.int64)
    except (TypeError, ValueError):
        raise DataError(
            "labels must be all numbers or all texts, but some are missing or of"
            " another type: leave such rows out."
        ) from None


def named_classes(labels: object, n_classes: int) -> list[object]:
    """Names of the classes of labels that are texts, sorted.

    None where they are numbers.

    Who has not stated the names takes which ones occur for public, so that all must.
    """
    if not _has_texts(labels):
        return []
    names = list(distinct_labels(labels).tolist())
    if len(names) != n_classes:
        raise ConfigurationError(
            f"labels have {len(names)} different names, but {n_classes} classes were"
            " stated: state as many classes as there are names."
        )
    return names


def codes_of(
    labels: object,
    n_rows: int,
    *,
    names: Sequence[object],
) -> NDArray[np.int64]:
    """The number of each label's class, (n_rows,).

    Its index among the classes' `names`.
    """
    array = np.asarray(labels)
    if array.shape != (n_rows,):
        raise DataError(
            f"labels have shape {array.shape}, but the table has {n_rows} rows: give"
            " one for each row."
        )
    numbers = {name: number for number, name in enumerate(names)}
    labels_of_rows = array.tolist()
    foreign = [label for label in labels_of_rows if label not in numbers]
    if foreign:
        raise DataError(
            f"labels have {foreign[0]!r}, which is none of the classes {list(names)}:"
            " name it there, or leave such rows out."
        )
    return np.array([numbers[label] for label in labels_of_rows], dtype=np.int64)


def _parts(labels: object) -> list[object]:
    """Labels of each table, where there are several."""
    parts = list(labels.values()) if isinstance(labels, Mapping) else labels
    if not isinstance(parts, list | tuple) or not parts:
        return [parts]
    return list(parts) if np.ndim(parts[0]) == 1 else [parts]


def _has_texts(labels: object) -> bool:
    """Whether some label is a text."""
    if not isinstance(labels, Iterable):
        return False
    try:
        arrays = [np.asarray(part) for part in _parts(labels)]
    except ValueError:
        return False
    return any(array.dtype.kind == "U" or _is_text(array) for array in arrays)


def _is_text(array: NDArray[np.generic]) -> bool:
    """Whether an array of objects begins with a text."""
    return array.dtype.kind == "O" and array.size > 0 and isinstance(array.flat[0], str)
