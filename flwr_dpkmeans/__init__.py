"""Differentially private federated k-means for Flower.

An algorithm is a list of private sums, a trust model decides who may read a sum, Flower
carries the messages. ``docs/explanation/how_a_run_works.md`` draws the rooms of the
package; ``docs/index.md`` lists all pages.
"""

from __future__ import annotations

from importlib import import_module

__version__ = "0.1.0"

# Flower and scikit-learn take a second to import, so names are looked up when they are
# first used.
_EXPORTS = {
    "algorithms.lloyd_family.fastlloyd": "FastLloydOptions",
    "algorithms.lloyd_family.glloyd": "GLloydOptions",
    "algorithms.lloyd_family.absolute_sums": "LloydOptions",
    "algorithms.lloyd_family.sulloyd": "SuLloydOptions",
    "algorithms.feddp.feddp_kmeans": "FedDPKMeansOptions",
    "algorithms.feddp.packed_start": "SpherePackingOptions",
    "algorithms.feddp.public_start": "ServerKMeansPlusPlusOptions",
    "algorithms.feddp.server_lloyd": "ServerLloydOptions",
    "algorithms.one_place.optimal_task": "OptimalOptions",
    "algorithms.proxy.proxy_lloyd": "ProxyLloydOptions",
    "data.schema": "Schema",
    "estimators.dp_kmeans": "DPKMeans",
    "estimators.federated_kmeans": "FederatedKMeans",
    "flower.kmeans_client": "KMeansClient",
    "flower.client_app": "client_app",
    "flower.mod": "secure_aggregation_mod",
    "flower.client.wrapped_app": "secure_sum_mod",
    "estimators.federate": "federate",
    "estimators.budgets.fit_budget": "Budget",
    "estimators.bayes_classifiers": "DPNaiveBayes FederatedNaiveBayes",
    "estimators.statistics.federated_pca": "FederatedPCA",
    "estimators.statistics.federated_quantiles": "FederatedQuantiles",
    "flower.strategy": "PrivateKMeans",
    "flower.strategies.baseline_lloyd": "Lloyd",
    "flower.strategies.feddp": "FedDPKMeans",
    "flower.strategies.noisy_lloyd": "FastLloyd GLloyd SuLloyd",
    "flower.strategies.proxy_strategy": "ProxyLloyd",
    "flower.strategies.secure_mean": "SecureMean",
    "flower.strategies.secure_sum": "SecureSum",
    "flower.strategies.server_starts": (
        "ServerKMeansPlusPlus ServerLloyd SpherePacking"
    ),
    "options": (
        "Auto ClientLevel Cohort Evaluation ExactEvaluation PersonLevel PrivateBounds"
        " PrivateCount"
    ),
    "privacy.report": "PrivacyReport",
    "sums.task": "register",
}
_HOMES = {
    name: f"{__name__}.{module}"
    for module, names in _EXPORTS.items()
    for name in names.split()
}

__all__ = [*_HOMES, "__version__"]


def __getattr__(name: str) -> object:
    """Import a public name when it is first used."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    """List the public names."""
    return sorted(__all__)
