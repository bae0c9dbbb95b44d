"""Each client's result, read from its own folder and held against the others'."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.errors import DisagreementError
from flwr_dpkmeans.results.writer import CENTROIDS_FILE, REPORT_FILE
from simulations.flower.flower_processes import DeploymentError
from simulations.flower.sites import Site


@dataclass(frozen=True)
class ClientResult:
    """What one client ended with.

    Parameters
    ----------
    site : Site
        Whose.
    centroids : ndarray, (n_clusters, n_features)
        In the data's units.
    report : dict
        Its privacy report.
    digest : str
        SHA-256 of the centroids' numbers, to compare by eye.
    """

    site: Site
    centroids: NDArray[np.float64]
    report: dict[str, Any]
    digest: str


def collect(sites: Sequence[Site]) -> list[ClientResult]:
    """Read every client's centroids and report, and check that all are the same, bit by
    bit.

    Parameters
    ----------
    sites : sequence of Site
        After a run.

    Returns
    -------
    list of ClientResult
        In the sites' order.

    Raises
    ------
    DeploymentError
        If a client has no result.
    DisagreementError
        If two clients' centroids or reports differ.
    """
    results = [_read(site) for site in sites]
    first = results[0]
    for other in results[1:]:
        if (
            other.digest != first.digest
            or other.centroids.shape != first.centroids.shape
        ):
            raise DisagreementError(
                f"the centroids of {other.site.folder.name} ({other.digest[:16]}) are"
                f" not those of {first.site.folder.name} ({first.digest[:16]}): throw"
                " the result away, and compare both nodes' logs."
            )
        if other.report != first.report:
            names = sorted(
                key
                for key in first.report | other.report
                if first.report.get(key) != other.report.get(key)
            )
            raise DisagreementError(
                f"the privacy reports of {other.site.folder.name} and"
                f" {first.site.folder.name} differ in {', '.join(names)}: compare the"
                f" files {REPORT_FILE} in their folders 'results'."
            )
    return results


def _read(site: Site) -> ClientResult:
    """One client's files."""
    # One run writes into one folder of its own; a rehearsal has one run.
    path = next(
        iter(sorted(site.results.glob(f"run-*/client-*/{CENTROIDS_FILE}"))), None
    )
    if path is None:
        raise DeploymentError(
            f"{site.folder.name} has no result (nothing is below {site.results}): look"
            f" at the server's lines above and at {site.folder / 'log'}."
        )
    centroids, digest_text = digest(path)
    report = json.loads((path.parent / REPORT_FILE).read_text())
    # Each says of itself who it is and when it was done.
    report.pop("provenance", None)
    return ClientResult(site, centroids, report, digest_text)


def digest(path: Path) -> tuple[NDArray[np.float64], str]:
    """A file's centroids, and the SHA-256 of the numbers alone: files hold times."""
    with np.load(path) as arrays:
        centroids = np.array(arrays["centroids"], dtype=np.float64)
    if centroids.ndim != 2 or not np.isfinite(centroids).all():
        raise DeploymentError(
            f"{path} holds no centroids (its shape is {centroids.shape}): look at the"
            " node's log."
        )
    return (
        centroids,
        hashlib.sha256(
            np.ascontiguousarray(centroids, dtype="<f8").tobytes()
        ).hexdigest(),
    )
