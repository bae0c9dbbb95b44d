"""Reports priced a second time, by Rényi composition.

`python -m simulations.audit.renyi report.json ...`.

A report's own price is that of exact Gaussian composition and of privacy-loss
distributions. Rényi divergences (Mironov 2017, by ``dp_accounting``) are an independent
road to an upper bound: some 10% above it for Gaussian noise. A report further below it,
or above it, deserves a question; Laplace noise alone is priced at delta = 0, by adding
up, and lies above the bound at its delta.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from flwr_dpkmeans.errors import ConfigurationError, DPKMeansError
from flwr_dpkmeans.privacy.release import NoiseShape
from flwr_dpkmeans.privacy.report import PrivacyReport

ORDERS = (
    tuple(1.0 + x / 10.0 for x in range(1, 100))
    + tuple(range(11, 128))
    + (160, 256, 512, 1024, 4096)
)
"""Of the divergences."""


def renyi_epsilon(report: PrivacyReport, sampling_rate: float = 1.0) -> float:
    """What a report's releases cost by Rényi composition at its delta, without what
    discrete noise costs.

    Parameters
    ----------
    report : PrivacyReport
        Of a run; each of its lines counts.
    sampling_rate : float
        ``client_sampling_rate`` of the run, which reports say in words only.

    Returns
    -------
    float
        Infinity if a release has no noise.

    Raises
    ------
    ConfigurationError
        If Laplace noise is sampled: of that Rényi composition says nothing here.

    Examples
    --------
    >>> from flwr_dpkmeans import FederatedKMeans
    >>> rows = np.linspace(-1.0, 1.0, 200).reshape(100, 2)
    >>> km = FederatedKMeans(2, bounds=(-1.0, 1.0), algorithm="glloyd", random_state=0)
    >>> report = km.fit([rows, rows]).privacy_
    >>> 1.0 < renyi_epsilon(report) / report.epsilon < 1.3
    True
    """
    from dp_accounting import (
        GaussianDpEvent,
        NeighboringRelation,
        PoissonSampledDpEvent,
        rdp,
    )

    accountant, orders = (
        rdp.RdpAccountant(ORDERS, NeighboringRelation.ADD_OR_REMOVE_ONE),
        np.array(ORDERS),
    )
    pure = np.zeros(len(orders))
    for line in report.releases:
        if line.noise == NoiseShape.NONE.value or line.noise_multiplier == 0.0:
            return math.inf
        if line.noise == NoiseShape.GAUSSIAN.value:
            event = GaussianDpEvent(line.noise_multiplier)
            accountant.compose(
                event
                if sampling_rate == 1.0
                else PoissonSampledDpEvent(sampling_rate, event)
            )
            continue
        if sampling_rate < 1.0:
            raise ConfigurationError(
                f"the sampling rate is {sampling_rate:g} and {line.array!r} has Laplace"
                " noise, of whose samples no Rényi divergence is known here: give 1.0,"
                " which is an upper bound."
            )
        # Of all mechanisms with this pure epsilon, randomised response is the worst
        # (Kairouz, Oh, Viswanath 2015).
        epsilon = 1.0 / line.noise_multiplier
        yes, no = -math.log1p(math.exp(-epsilon)), -math.log1p(math.exp(epsilon))
        pure += np.logaddexp(
            orders * yes + (1.0 - orders) * no, orders * no + (1.0 - orders) * yes
        ) / (orders - 1.0)
    # The accountant keeps its divergences to itself; at delta = 0 nothing but pure
    # noise has a price.
    divergences = np.asarray(accountant._rdp, dtype=np.float64) + pure
    return float(rdp.compute_epsilon(orders, divergences, report.delta)[0])


def main(arguments: Sequence[str] | None = None) -> int:
    """Print both prices of each report; 1 if a file cannot be read."""
    parser = argparse.ArgumentParser(
        prog="python -m simulations.audit.renyi", description="prices of reports"
    )
    parser.add_argument(
        "reports",
        nargs="+",
        type=Path,
        help="privacy_report.json files, as runs write them",
    )
    parser.add_argument(
        "--sampling-rate",
        type=float,
        default=1.0,
        help="client_sampling_rate of the runs",
    )
    options = parser.parse_args(arguments)
    table = Table("report", "epsilon", "by Rényi composition", "ratio", "delta")
    try:
        for path in options.reports:
            report = PrivacyReport.from_dict(json.loads(path.read_text()))
            bound = renyi_epsilon(report, options.sampling_rate)
            ratio = "" if math.isinf(bound) else f"{bound / report.epsilon:.3f}"
            table.add_row(
                str(path),
                f"{report.epsilon:.6g}",
                f"{bound:.6g}",
                ratio,
                f"{report.delta:.3g}",
            )
    except (DPKMeansError, OSError, ValueError, KeyError, TypeError) as error:
        print(f"{path}: {error}", file=sys.stderr)
        return 1
    Console().print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
