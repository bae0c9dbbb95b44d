"""Differentially private federated k-means for Flower.

An algorithm is a list of private sums, a trust model decides who may read a sum, Flower carries the messages.

==============  ========================================================================
room            what it does
==============  ========================================================================
``estimator``   `FederatedKMeans`, and `DPKMeans` for one table: scikit-learn conventions
``flower``      strategies, `KMeansClient`, `client_app`, `secure_aggregation_mod`, logs
``planner``     what to expect of a run, before any data are touched
``results``     files and picture of a run
``algorithms``  ProxyLloyd, FastLloyd, FedDP-KMeans, ...: each a list of private sums
``node``        what one party allows and remembers: policy, ledger, identity
``sums``        plans, rounds and trust models; how a client checks what it is asked for
``privacy``     sensitivities, noise, accounting, report
``secagg``      masked sums over Z_2^64 without I/O
``kmeans``      numerics on clean arrays
``data``        tables, public bounds, partitions
``errors``      three families: local misuse, peers, budget
==============  ========================================================================

A room imports from rooms below it only. ``README.md`` beside this file draws them and lists all pages.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

# Flower and scikit-learn take a second to import, so names are looked up when they are first used.
_EXPORTS = {
    "algorithms.lloyd_family": "FastLloydOptions GLloydOptions LloydOptions SuLloydOptions",
    "algorithms.feddp_kmeans": "FedDPKMeansOptions ServerKMeansPlusPlusOptions ServerLloydOptions SpherePackingOptions",
    "algorithms.kmeans_task": "OptimalOptions",
    "algorithms.proxy_rounds": "ProxyLloydOptions",
    "data.schema": "Schema",
    "estimator": "DPKMeans FederatedKMeans FederatedNaiveBayes",
    "flower.kmeans_client": "KMeansClient",
    "flower.client_app": "client_app secure_aggregation_mod",
    "flower.engines": "federate",
    "flower.strategy": "FastLloyd FedDPKMeans GLloyd Lloyd PrivateKMeans ProxyLloyd ServerKMeansPlusPlus ServerLloyd "
    "SpherePacking SuLloyd",
    "options": "Auto ClientLevel Cohort Evaluation ExactEvaluation PrivateBounds PrivateCount",
    "privacy.report": "PrivacyReport",
    "sums.task": "register",
}
_HOMES = {name: f"{__name__}.{module}" for module, names in _EXPORTS.items() for name in names.split()}

__all__ = [*_HOMES, "__version__"]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    """List the public names."""
    return sorted(__all__)
