"""Differentially private federated k-means for Flower.

An algorithm is a list of private sums, a trust model decides who may read a sum, Flower carries the messages.

==============  ========================================================================
room            what it does
==============  ========================================================================
``estimator``   `FederatedKMeans`: scikit-learn conventions, no Flower knowledge needed
``flower``      strategies, `KMeansClient`, `client_app`, `secure_aggregation_mod`, logs
``planner``     what to expect of a run, before any data are touched
``results``     files and picture of a run
``baselines``   methods that need all rows in one place, to compare with
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
    from flwr_dpkmeans.algorithms.dplloyd import GLloydOptions as GLloydOptions
    from flwr_dpkmeans.algorithms.dplloyd import LloydOptions as LloydOptions
    from flwr_dpkmeans.algorithms.dplloyd import SuLloydOptions as SuLloydOptions
    from flwr_dpkmeans.algorithms.fastlloyd import FastLloydOptions as FastLloydOptions
    from flwr_dpkmeans.algorithms.feddp_kmeans import FedDPKMeansOptions as FedDPKMeansOptions
    from flwr_dpkmeans.algorithms.kmeans_task import OptimalOptions as OptimalOptions
    from flwr_dpkmeans.algorithms.proxy_lloyd import ProxyLloydOptions as ProxyLloydOptions
    from flwr_dpkmeans.algorithms.server_starts import ServerKMeansPlusPlusOptions as ServerKMeansPlusPlusOptions
    from flwr_dpkmeans.algorithms.server_starts import ServerLloydOptions as ServerLloydOptions
    from flwr_dpkmeans.algorithms.server_starts import SpherePackingOptions as SpherePackingOptions
    from flwr_dpkmeans.estimator import FederatedKMeans as FederatedKMeans
    from flwr_dpkmeans.estimator import FederatedNaiveBayes as FederatedNaiveBayes
    from flwr_dpkmeans.flower.client_app import client_app as client_app
    from flwr_dpkmeans.flower.engines import federate as federate
    from flwr_dpkmeans.flower.kmeans_client import KMeansClient as KMeansClient
    from flwr_dpkmeans.flower.mod import secure_aggregation_mod as secure_aggregation_mod
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
_HOMES = {
    "FederatedKMeans": "flwr_dpkmeans.estimator",
    "KMeansClient": "flwr_dpkmeans.flower.kmeans_client",
    "client_app": "flwr_dpkmeans.flower.client_app",
    "secure_aggregation_mod": "flwr_dpkmeans.flower.mod",
    "FastLloyd": "flwr_dpkmeans.flower.strategy",
    "FedDPKMeans": "flwr_dpkmeans.flower.strategy",
    "GLloyd": "flwr_dpkmeans.flower.strategy",
    "Lloyd": "flwr_dpkmeans.flower.strategy",
    "PrivateKMeans": "flwr_dpkmeans.flower.strategy",
    "ProxyLloyd": "flwr_dpkmeans.flower.strategy",
    "ServerKMeansPlusPlus": "flwr_dpkmeans.flower.strategy",
    "ServerLloyd": "flwr_dpkmeans.flower.strategy",
    "SpherePacking": "flwr_dpkmeans.flower.strategy",
    "SuLloyd": "flwr_dpkmeans.flower.strategy",
    "Auto": "flwr_dpkmeans.options",
    "ClientLevel": "flwr_dpkmeans.options",
    "Cohort": "flwr_dpkmeans.options",
    "Evaluation": "flwr_dpkmeans.options",
    "ExactEvaluation": "flwr_dpkmeans.options",
    "PrivateBounds": "flwr_dpkmeans.options",
    "PrivateCount": "flwr_dpkmeans.options",
    "FastLloydOptions": "flwr_dpkmeans.algorithms.fastlloyd",
    "GLloydOptions": "flwr_dpkmeans.algorithms.dplloyd",
    "LloydOptions": "flwr_dpkmeans.algorithms.dplloyd",
    "SuLloydOptions": "flwr_dpkmeans.algorithms.dplloyd",
    "FedDPKMeansOptions": "flwr_dpkmeans.algorithms.feddp_kmeans",
    "ProxyLloydOptions": "flwr_dpkmeans.algorithms.proxy_lloyd",
    "ServerKMeansPlusPlusOptions": "flwr_dpkmeans.algorithms.server_starts",
    "ServerLloydOptions": "flwr_dpkmeans.algorithms.server_starts",
    "SpherePackingOptions": "flwr_dpkmeans.algorithms.server_starts",
    "OptimalOptions": "flwr_dpkmeans.algorithms.kmeans_task",
    "register": "flwr_dpkmeans.sums.task",
    "PrivacyReport": "flwr_dpkmeans.privacy.report",
    "FederatedNaiveBayes": "flwr_dpkmeans.estimator",
    "federate": "flwr_dpkmeans.flower.engines",
}

__all__ = [*_HOMES, "__version__"]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    """List the public names."""
    return sorted(__all__)
