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
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flwr_dpkmeans.algorithms.feddp_kmeans import FedDPKMeansOptions as FedDPKMeansOptions
    from flwr_dpkmeans.algorithms.feddp_kmeans import ServerKMeansPlusPlusOptions as ServerKMeansPlusPlusOptions
    from flwr_dpkmeans.algorithms.feddp_kmeans import ServerLloydOptions as ServerLloydOptions
    from flwr_dpkmeans.algorithms.feddp_kmeans import SpherePackingOptions as SpherePackingOptions
    from flwr_dpkmeans.algorithms.kmeans_task import OptimalOptions as OptimalOptions
    from flwr_dpkmeans.algorithms.lloyd_family import FastLloydOptions as FastLloydOptions
    from flwr_dpkmeans.algorithms.lloyd_family import GLloydOptions as GLloydOptions
    from flwr_dpkmeans.algorithms.lloyd_family import LloydOptions as LloydOptions
    from flwr_dpkmeans.algorithms.lloyd_family import SuLloydOptions as SuLloydOptions
    from flwr_dpkmeans.algorithms.proxy_rounds import ProxyLloydOptions as ProxyLloydOptions
    from flwr_dpkmeans.data.schema import Schema as Schema
    from flwr_dpkmeans.estimator import DPKMeans as DPKMeans
    from flwr_dpkmeans.estimator import FederatedKMeans as FederatedKMeans
    from flwr_dpkmeans.estimator import FederatedNaiveBayes as FederatedNaiveBayes
    from flwr_dpkmeans.flower.client_app import client_app as client_app
    from flwr_dpkmeans.flower.client_app import secure_aggregation_mod as secure_aggregation_mod
    from flwr_dpkmeans.flower.engines import federate as federate
    from flwr_dpkmeans.flower.kmeans_client import KMeansClient as KMeansClient
    from flwr_dpkmeans.flower.strategy import FastLloyd as FastLloyd
    from flwr_dpkmeans.flower.strategy import FedDPKMeans as FedDPKMeans
    from flwr_dpkmeans.flower.strategy import GLloyd as GLloyd
    from flwr_dpkmeans.flower.strategy import Lloyd as Lloyd
    from flwr_dpkmeans.flower.strategy import PrivateKMeans as PrivateKMeans
    from flwr_dpkmeans.flower.strategy import ProxyLloyd as ProxyLloyd
    from flwr_dpkmeans.flower.strategy import ServerKMeansPlusPlus as ServerKMeansPlusPlus
    from flwr_dpkmeans.flower.strategy import ServerLloyd as ServerLloyd
    from flwr_dpkmeans.flower.strategy import SpherePacking as SpherePacking
    from flwr_dpkmeans.flower.strategy import SuLloyd as SuLloyd
    from flwr_dpkmeans.options import Auto as Auto
    from flwr_dpkmeans.options import ClientLevel as ClientLevel
    from flwr_dpkmeans.options import Cohort as Cohort
    from flwr_dpkmeans.options import Evaluation as Evaluation
    from flwr_dpkmeans.options import ExactEvaluation as ExactEvaluation
    from flwr_dpkmeans.options import PrivateBounds as PrivateBounds
    from flwr_dpkmeans.options import PrivateCount as PrivateCount
    from flwr_dpkmeans.privacy.report import PrivacyReport as PrivacyReport
    from flwr_dpkmeans.sums.task import register as register

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
