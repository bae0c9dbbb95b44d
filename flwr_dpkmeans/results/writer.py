"""Files of a run, whole or not at all: centroids, privacy report, metrics and picture.

The model is beside them.
"""

from __future__ import annotations

import errno
import io
import itertools
import json
import os
import secrets
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.algorithms.measure import COST_CURVE, EvaluationResult
from flwr_dpkmeans.algorithms.proxy_plan import RADIUS
from flwr_dpkmeans.algorithms.server_points import squared_unit
from flwr_dpkmeans.errors import LocalMisuseError
from flwr_dpkmeans.log import placed_logger, where_raised
from flwr_dpkmeans.node.ledger import sync_folder
from flwr_dpkmeans.privacy.report import CLOSING_ROUNDS, PrivacyReport, told
from flwr_dpkmeans.results.bounds_cautions import bound_cautions
from flwr_dpkmeans.results.page import HTML, MARKDOWN, page, registry_record
from flwr_dpkmeans.results.profile import as_frame
from flwr_dpkmeans.results.sureness import closeness_cautions, column_cautions

if TYPE_CHECKING:
    from flwr_dpkmeans.results.model import Model
    from flwr_dpkmeans.sums.round import State

_logger = placed_logger("flwr_dpkmeans.results")
_LEAST_FREE = 1 << 24  # bytes that a run's files may take

MODEL_FILE, REPORT_FILE, METRICS_FILE = (
    "model.json",
    "privacy_report.json",
    "metrics.json",
)
CENTROIDS_FILE, ARRAYS_FILE = "centroids.npz", "result.npz"
PICTURE_FILE, ROUNDS_FILE, CURVE_FILE = "summary.png", "rounds.png", "cost_curve.png"
PROFILE_FILE, FEDERATED_PROFILE_FILE = "profile.csv", "federated_profile.csv"
PAGE_FILE, TEXT_FILE = "report.html", "report.md"
RECORD_FILE = "deployment.json"
"""A draft for the public registry of deployments of differential privacy."""


@dataclass(frozen=True)
class RunResult:
    """A run's result where it may be known."""

    model: Model
    report: PrivacyReport
    """With what a party's own rows say, which the model leaves out."""
    movements: tuple[float, ...] = field(default=(), repr=False)
    """Largest step of a centroid in each iteration, in scaled units."""
    image_shape: tuple[int, ...] | None = None
    evaluation: EvaluationResult | None = None
    scaled_costs: NDArray[np.float64] | None = field(default=None, repr=False)
    """(largest k,): the cost curve of a run that chose k, in squared scaled units."""
    radius: NDArray[np.float64] | None = field(default=None, repr=False)
    """What the last released residuals were divided by, about, in scaled units.

    (k,) or (1,); None if they were not.
    """
    profile: Any = field(default=None, repr=False)
    """A data frame of the party's own rows by cluster, exact; None where there is none.
    """
    spent: str = field(default="", repr=False)

    @classmethod
    def of(
        cls, model: Model, report: PrivacyReport, state: State, **known: Any
    ) -> RunResult:
        """With what a run's last state tells, and warns of."""
        curve, found = state.extras.get(COST_CURVE), state.extras.get(RADIUS)
        radius = None if found is None else found[: len(model.scaled)]
        alone = (
            (told("one_cluster"),)
            if curve is not None and len(model.scaled) == 1
            else ()
        )
        warnings = (
            report.warnings
            + column_cautions(model, radius)
            + closeness_cautions(model, radius)
            + bound_cautions(model, radius)
            + model.dominated()
            + alone
            + model.gap_cautions()
        )
        report = replace(report, warnings=warnings)
        known |= {"scaled_costs": curve, "radius": radius}
        return cls(replace(model, privacy=report), report, state.movements, **known)

    @property
    def costs(self) -> NDArray[np.float64] | None:
        """The same in the caller's squared units where all features have one width."""
        unit = squared_unit((self.model.bounds.lower, self.model.bounds.upper)) or 1.0
        return None if self.scaled_costs is None else self.scaled_costs * unit


@dataclass(frozen=True)
class ClusterChoice:
    """The number of clusters that a run chose.

    The elbow of a private cost curve, which costs nothing more.
    """

    n_clusters: int
    costs: NDArray[np.float64]
    """k-means cost per unit of weight of the weighted server points for k = 1, 2, ...,
    in the projected space; squared units of the caller where all features have bounds
    of one width, else squared scaled units.
    """
    privacy: PrivacyReport
    """What the two releases behind the curve cost."""

    def plot(self, path: str | Path) -> Path:
        """Draw the curve with its elbow as a PNG, whole or not at all.

        Returns its absolute path.
        """
        from flwr_dpkmeans.results.picture import draw_cost_curve

        return write_whole(
            Path(path), draw_cost_curve(self.costs, self.n_clusters, self.privacy)
        )


def result_files(result: RunResult) -> dict[str, bytes]:
    """Contents of a run's files, by name.

    If it chose k, with the cost curve as a picture and as numbers.
    """
    from flwr_dpkmeans.results.picture import draw_cost_curve, draw_rounds, draw_summary

    report, costs, model = result.report, result.costs, result.model
    arrays: dict[str, Any] = {
        "centroids": model.centroids,
        "cluster_centers_error": model.cluster_centers_error,
        "counts": model.counts,
        "feature_names": np.asarray(model.feature_names, dtype=np.str_),
        "scaled": model.scaled,
        "bounds": np.array((model.bounds.lower, model.bounds.upper)),
    }
    if model.gaps.columns:
        arrays["cell_means"] = model.cell_means
    if report.provenance is not None:
        arrays["provenance"] = np.str_(json.dumps(report.provenance.to_dict()))
    metrics = metrics_of(report, model.counts, result.movements, result.evaluation)
    files = {
        MODEL_FILE: model.to_json(),
        CENTROIDS_FILE: _archive(arrays),
        PICTURE_FILE: _drawn(draw_summary, result),
    }
    files[ROUNDS_FILE] = _drawn(draw_rounds, result)
    if costs is not None:
        metrics |= {
            "n_clusters": len(model.scaled),
            "costs": [float(cost) for cost in costs],
        }
        files[CURVE_FILE] = _drawn(draw_cost_curve, costs, len(model.scaled), report)
    if result.profile is not None:
        files[PROFILE_FILE] = str(result.profile.to_csv(index=False)).encode()
    if model.federated_profile:
        files[FEDERATED_PROFILE_FILE] = str(
            as_frame(model.federated_profile).to_csv(index=False)
        ).encode()
    files |= _report_files(report, metrics, result, files[PICTURE_FILE])
    return {name: content for name, content in files.items() if content}


def add_profile(folder: Path, result: RunResult) -> list[Path]:
    """Add the party's own profile to the files of a run that are there, and its tables
    to the pages.
    """
    picture = folder / PICTURE_FILE
    drawn = picture.read_bytes() if picture.exists() else b""
    files = {
        PROFILE_FILE: str(result.profile.to_csv(index=False)).encode(),
        PAGE_FILE: page(HTML, result.report, result, drawn),
        TEXT_FILE: page(MARKDOWN, result.report, result, drawn),
    }
    return [write_whole(folder / name, content) for name, content in files.items()]


def _drawn(draw: Callable[..., bytes], *what: Any) -> bytes:
    """A picture; none where it fails, which costs nobody the model."""
    try:
        return draw(*what)
    except Exception as error:
        _logger.warning("a picture was not drawn: %s", where_raised(error))
        return b""


def _archive(arrays: Mapping[str, Any]) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def _report_files(
    report: PrivacyReport,
    metrics: dict[str, Any],
    result: RunResult | None = None,
    picture: bytes = b"",
) -> dict[str, bytes]:
    """What every party may have; a run that is not private is none of the registry's."""
    files = {
        REPORT_FILE: report.to_json().encode(),
        METRICS_FILE: (json.dumps(metrics, indent=2, allow_nan=False) + "\n").encode(),
        PAGE_FILE: page(HTML, report, result, picture),
        TEXT_FILE: page(MARKDOWN, report, result, picture),
    }
    return files | (
        {RECORD_FILE: registry_record(report, result)} if report.is_private else {}
    )


def write_report(
    folder: Path, report: PrivacyReport, arrays: Mapping[str, Any] | None = None
) -> list[Path]:
    """Write the report and its metrics, which every party may have, with the arrays of
    a task that is no clustering.
    """
    files = {} if arrays is None else {ARRAYS_FILE: _archive(arrays)}
    return write_folder(folder, files | _report_files(report, metrics_of(report)))


def metrics_of(
    report: PrivacyReport,
    counts: NDArray[np.float64] | None = None,
    movements: tuple[float, ...] | None = None,
    evaluation: EvaluationResult | None = None,
) -> dict[str, Any]:
    """Numbers of a run that follow from the plan and the releases.

    Counts, movements and metrics where known.
    """
    plain = report.to_dict()
    rounds: dict[int, dict[str, Any]] = {}
    for line, shown in zip(report.releases, plain["releases"], strict=True):
        first = {
            "round": line.round_index,
            "name": line.round_name,
            "epsilon": 0.0,
            "radius": line.radius,
        }
        entry = rounds.setdefault(line.round_index, first)
        entry["epsilon"] = shown["epsilon_so_far"]
        entry[f"noise_{line.array}"] = line.released_scale
    listed = [rounds[index] for index in sorted(rounds)]
    # Steps before the first Lloyd round, and what closes the run, move nothing.
    moving = [
        entry
        for entry in listed
        if entry["round"] > 0 and entry["name"] not in CLOSING_ROUNDS
    ]
    for entry, movement in zip(
        moving[-len(movements or moving) :], movements or (), strict=False
    ):
        entry["movement"] = movement
    metrics: dict[str, Any] = {
        name: plain[name] for name in ("epsilon", "delta", "is_private")
    }
    metrics |= {"n_rounds": sum(1 for e in listed if e["round"] > 0), "rounds": listed}
    if movements is not None:
        metrics["n_iterations"] = len(movements)
    if counts is not None:
        metrics["noisy_counts"] = [float(count) for count in counts]
    if evaluation is not None:
        metrics["evaluation"] = evaluation.to_dict()
    if report.provenance is not None:
        metrics["provenance"] = report.provenance.to_dict()
    return metrics


def write_folder(folder: Path, files: Mapping[str, bytes]) -> list[Path]:
    """Write a folder that appears with all of its files or not at all, and never
    replaces another result.

    If something is at its place already, the same name with ``-2``, ``-3``, ... is
    taken. Returns the absolute paths of the files, in their order; a folder that cannot
    be written is a LocalMisuseError.
    """
    folder = folder.absolute()
    temporary = folder.parent / f".{folder.name}.{secrets.token_hex(8)}"
    try:
        temporary.mkdir(parents=True)
        for name, content in files.items():
            _write_synced(temporary / name, content)
        placed = _renamed(temporary, folder)
    except BaseException as error:
        shutil.rmtree(temporary, ignore_errors=True)
        if not isinstance(error, OSError):
            raise
        raise LocalMisuseError(
            f"the folder {folder} cannot be written ({error.strerror}): choose another"
            " output folder."
        ) from error
    return [placed / name for name in files]


def require_writable(folder: Path) -> None:
    """Refuse a place for results that cannot be written, before they are paid for.

    Nothing is made yet.
    """
    above = next(parent for parent in folder.absolute().parents if parent.exists())
    if not above.is_dir() or not os.access(above, os.W_OK | os.X_OK):
        raise LocalMisuseError(
            f"the folder {folder.absolute()} cannot be written ({above} is no folder"
            " that this user may write into): choose another output folder."
        )
    # No error: what is left may depend on the table, which may be kept on the same
    # disk, and an error would be seen.
    if (free := shutil.disk_usage(above).free) < _LEAST_FREE:
        _logger.warning(
            "%s: %.0f MiB are left, too few for a result: make room now",
            folder,
            free / 2**20,
        )


def _write_synced(place: Path, content: bytes | Iterable[bytes]) -> None:
    """Write a new file, onto the disk, that only this user may read."""
    with os.fdopen(
        os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb"
    ) as file:
        file.writelines([content] if isinstance(content, bytes) else content)
        file.flush()
        os.fsync(file.fileno())


def _renamed(temporary: Path, folder: Path) -> Path:
    """Give a complete folder its name, or the first one like it that is free, and sync
    that.
    """
    for number in itertools.count(1):
        place = folder if number == 1 else folder.with_name(f"{folder.name}-{number}")
        try:
            # A folder is never renamed onto a file or onto one that holds anything,
            # whoever else writes here.
            os.rename(temporary, place)
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
                raise
            continue
        sync_folder(place.parent)
        return place
    raise AssertionError(folder)


def write_whole(path: Path, content: bytes | Iterable[bytes]) -> Path:
    """Write a file that is either complete or absent.

    a temporary file beside it, synced, then renamed.

    What is raised where `content` is made, piece by piece, leaves no file.
    """
    folder, temporary = (
        path.parent.absolute(),
        path.with_name(f".{path.name}.{secrets.token_hex(8)}"),
    )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _write_synced(temporary, content)
        os.replace(temporary, path)
    except BaseException as error:
        what, mend = f"folder {folder}", "choose another output folder"
        if temporary.exists():
            what, mend = f"file {path.absolute()}", f"free space or {mend}"
            temporary.unlink()
        if not isinstance(error, OSError):
            raise
        raise LocalMisuseError(
            f"the {what} cannot be written ({error.strerror}): {mend}."
        ) from error
    return path.absolute()
