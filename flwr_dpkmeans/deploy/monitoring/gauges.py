"""What operators are woken by: who is there, certificates, disks and the last success.

No number depends on rows.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from flwr_dpkmeans.deploy.findings import existing
from flwr_dpkmeans.flower.run_progress import Outcome, RunProgress

_DAY_SECONDS = 86_400.0
_DISK_STEP = 2**26
"""Bytes: what results are like must not be seen by how long their files are."""


def presence_gauges(
    *,
    is_up: bool,
    parties: Mapping[str, bool],
) -> Iterator[Metric]:
    """Whether the SuperLink answers, and which invited parties are online."""
    yield GaugeMetricFamily(
        "dpkmeans_superlink_up",
        "Whether the SuperLink answers on this machine",
        float(is_up),
    )
    online = {party: float(is_online) for party, is_online in parties.items()}
    yield summed(
        GaugeMetricFamily,
        "node_online",
        "Whether an invited party's node is online",
        "party",
        online.items(),
    )


def certificate_gauge(files: Iterable[Path]) -> Metric:
    """Days until certificates end, by the names of their files."""
    now = datetime.now(UTC)
    days: dict[str, float] = {}
    for file in files:
        content = file.read_bytes()
        certificates = x509.load_pem_x509_certificates(content)
        ends = [certificate.not_valid_after_utc for certificate in certificates]
        left = min(ends) - now
        days[file.name] = left.total_seconds() / _DAY_SECONDS
    return summed(
        GaugeMetricFamily,
        "certificate_days",
        "Days until a certificate ends",
        "file",
        days.items(),
    )


def disk_gauge(folders: Mapping[str, Path]) -> Metric:
    """Bytes that are free where folders are, or would be made, in steps of 64 MiB."""
    free: dict[str, float] = {}
    for use, folder in folders.items():
        usage = shutil.disk_usage(existing(folder))
        steps = usage.free // _DISK_STEP
        free[use] = float(steps * _DISK_STEP)
    return summed(
        GaugeMetricFamily,
        "disk_free_bytes",
        "Bytes that are free",
        "folder",
        free.items(),
    )


def last_success_gauge(runs: Iterable[RunProgress]) -> Metric:
    """When a run was completed last; no sample if none was."""
    completed = [run.updated for run in runs if run.outcome is Outcome.COMPLETED]
    family = GaugeMetricFamily(
        "dpkmeans_last_success_timestamp_seconds",
        "When a run was completed last",
    )
    if completed:
        times = [datetime.fromisoformat(time) for time in completed]
        latest = max(times)
        family.add_metric([], latest.timestamp())
    return family


def summed(
    kind: type[CounterMetricFamily | GaugeMetricFamily],
    name: str,
    about: str,
    label: str,
    amounts: Iterable[tuple[str, float]],
) -> Metric:
    """A metric with one label, by whose values amounts are added up."""
    totals = Counter[str]()
    for value, amount in amounts:
        totals[value] += amount  # type: ignore[assignment]
    family = kind(f"dpkmeans_{name}", about, labels=[label])
    for value in sorted(totals):
        family.add_metric([value], totals[value])
    return family
