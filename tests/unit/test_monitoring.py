"""What operators are woken by."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from prometheus_client.core import Metric

from flwr_dpkmeans.deploy.monitoring.gauges import (
    certificate_gauge,
    disk_gauge,
    last_success_gauge,
    presence_gauges,
)
from flwr_dpkmeans.flower.run_progress import Outcome, RunProgress

PACKAGE = Path(__file__).parents[2] / "flwr_dpkmeans"


def samples(metric: Metric) -> dict[tuple[str, ...], float]:
    return {tuple(each.labels.values()): each.value for each in metric.samples}


def write_certificate(path: Path, days: float) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([])
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1)
    builder = builder.not_valid_before(now - timedelta(days=900))
    certificate = builder.not_valid_after(now + timedelta(days=days)).sign(
        key, SHA256()
    )
    with path.open("ab") as file:
        file.write(certificate.public_bytes(Encoding.PEM))


def test_of_a_file_of_certificates_the_first_end_counts(tmp_path: Path) -> None:
    bundle, ended = tmp_path / "ca.crt", tmp_path / "server.pem"
    for days in (300.0, 20.5, 90.0):
        write_certificate(bundle, days)
    write_certificate(ended, -3.0)
    days_left = samples(certificate_gauge([bundle, ended]))
    assert days_left[("ca.crt",)] == pytest.approx(20.5, abs=0.01)
    assert days_left[("server.pem",)] == pytest.approx(-3.0, abs=0.01)


def test_parties_are_online_or_not() -> None:
    up, online = presence_gauges(is_up=True, parties={"ward-7": True, "ward-8": False})
    assert samples(up) == {(): 1.0}
    assert samples(online) == {("ward-7",): 1.0, ("ward-8",): 0.0}
    down, _ = presence_gauges(is_up=False, parties={})
    assert samples(down) == {(): 0.0}


def test_the_latest_of_completed_runs_is_the_last_success() -> None:
    def run(updated: str, outcome: Outcome) -> RunProgress:
        return RunProgress(run="1", started=updated, updated=updated, outcome=outcome)

    runs = [
        run("2026-11-01T08:00:00+00:00", Outcome.COMPLETED),
        run("2026-11-03T08:00:00+00:00", Outcome.COMPLETED),
        run("2026-11-09T08:00:00+00:00", Outcome.FAILED),
    ]
    third = datetime(2026, 11, 3, 8, tzinfo=UTC).timestamp()
    assert samples(last_success_gauge(runs)) == {(): third}
    assert samples(last_success_gauge(runs[2:])) == {}


def test_a_folder_that_is_not_made_yet_has_its_disk(tmp_path: Path) -> None:
    (free,) = samples(disk_gauge({"results": tmp_path / "a" / "b"})).values()
    assert free > 0.0
    assert free % 2**26 == 0.0


def test_alerts_speak_of_metrics_that_there_are() -> None:
    alerts = (PACKAGE / "deploy/host/alerts.yml").read_text()
    page = (PACKAGE / "docs/reference/files.md").read_text()
    names = set(re.findall(r"dpkmeans_[a-z_]+", alerts))
    assert len(names) >= 9
    assert names <= set(re.findall(r"dpkmeans_[a-z_]+", page))
