"""A model as JSON has it: what is written, and what is read back."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from flwr_dpkmeans.algorithms.profile.profile_reading import Figure
from flwr_dpkmeans.data.points import Bounds
from flwr_dpkmeans.data.schema import Schema
from flwr_dpkmeans.errors import DataError
from flwr_dpkmeans.privacy.released_counts import counts_deviation
from flwr_dpkmeans.privacy.report import PrivacyReport

if TYPE_CHECKING:
    from flwr_dpkmeans.results.model import Model

Array = NDArray[np.float64]
Plain = dict[str, Any]
"""What JSON holds."""
Figures = tuple[Figure, ...]
_ERRORS = frozenset(("cluster_centers_error", "deviations"))
"""Of what a file of an earlier version says nothing."""
_FIGURES: TypeAdapter[Figures] = TypeAdapter(Figures)
_REPORT: TypeAdapter[PrivacyReport] = TypeAdapter(PrivacyReport)


def plain_of(model: Model) -> Plain:
    """What the file holds; each number is read again as the same float64."""
    schema = model.schema
    bounds = model.bounds
    plain: Plain = {
        "version": 1,
        "feature_names": list(model.feature_names),
        "schema": None if schema is None else schema.to_dict(),
        "bounds": [list(bounds.lower), list(bounds.upper)],
        "centroids": model.centroids.tolist(),
    }
    if model.federated_profile:
        plain["version"] = 2
    if model.gaps.columns:
        plain["version"] = 3
        # JSON has no NaN.
        plain["cell_means"] = _finite_or_none(model.cell_means)
    deviations = model.deviations
    plain |= {
        "scaled": model.scaled.tolist(),
        "counts": model.counts.tolist(),
        "counts_deviation": counts_deviation(model.privacy),
        # JSON has no infinity.
        "cluster_centers_error": _finite_or_none(model.cluster_centers_error),
        "deviations": None if deviations is None else deviations.tolist(),
        "privacy": model.privacy.to_dict(),
    }
    if model.federated_profile:
        figures = map(asdict, model.federated_profile)
        plain["federated_profile"] = list(figures)
    return plain


def model_of(plain: Plain, kind: type[Model]) -> Model:
    """Undo `plain_of`: a file is sound if writing it again gives the same."""
    schema = plain["schema"]
    deviations = plain.get("deviations")
    report = PrivacyReport.from_dict(plain["privacy"])
    figures = plain.get("federated_profile", ())
    model = kind(
        np.array(plain["scaled"], dtype=np.float64),
        np.array(plain["counts"], dtype=np.float64),
        Bounds(*plain["bounds"]),
        report,
        tuple(plain["feature_names"]),
        None if schema is None else Schema(**schema),
        _FIGURES.validate_python(figures),
        None if deviations is None else np.array(deviations, dtype=np.float64),
    )
    again = plain_of(model)
    if _ERRORS.isdisjoint(plain):
        # A file of an earlier version says nothing of errors.
        for key in _ERRORS:
            del again[key]
    wrong = [key for key in again | plain if _differ(key, again, plain)]
    if not wrong and _REPORT.validate_python(asdict(report)) != report:
        wrong = ["privacy"]
    if wrong:
        raise DataError(
            f"its {' and '.join(wrong)} cannot stand in a model of this version"
        )
    json.dumps(again, allow_nan=False)
    return model


def _differ(
    key: str,
    first: Plain,
    second: Plain,
) -> bool:
    """Whether one of two files lacks a key, or they have different values of it."""
    if key not in first or key not in second:
        return True
    return bool(first[key] != second[key])


def _finite_or_none(values: Array) -> list[list[float | None]]:
    """Values, (n_rows, n_columns), as lists; None where they are not finite."""
    rows = []
    for row in values.tolist():
        cells = [cell if math.isfinite(cell) else None for cell in row]
        rows.append(cells)
    return rows
