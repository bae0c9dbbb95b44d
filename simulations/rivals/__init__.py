"""Other people's methods, built here to be compared with.

Federated where they are sums over rows, else central.

The federated ones are known to the estimator, `flwr run` and sweeps where
`flwr-dpkmeans-rivals` is installed, the pyproject.toml in this folder, or after
`register_rivals`.
"""

from __future__ import annotations


def register_rivals() -> None:
    """Make the federated methods known in this process; again is no mistake."""
    from flwr_dpkmeans.sums.task import register
    from simulations.rivals.pe_means import HDPEMeansTask, PEMeansTask
    from simulations.rivals.uniform_grid import UniformGridTask

    for kind in (PEMeansTask, HDPEMeansTask, UniformGridTask):
        register(kind)
