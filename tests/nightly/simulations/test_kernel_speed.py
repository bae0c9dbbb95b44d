"""The benchmark of noise and kernels: what it prints, on few rows."""

from __future__ import annotations

import pytest

from simulations.benchmarks import kernel_speed


def test_kernels_are_measured_beside_the_machines_rates(
    capsys: pytest.CaptureFixture[str],
) -> None:
    kernel_speed.wide_console().print(kernel_speed.kernel_table(2000, 1))
    printed = capsys.readouterr().out
    assert "GFlop/s" in printed
    assert all(
        name in printed
        for name in ("200 proxies, 12 axes", "clipped unit residuals", "outer products")
    )
