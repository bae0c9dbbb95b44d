"""The public names, for type checkers and editors.

`__init__.py` imports each when it is first used.
"""

from flwr_dpkmeans.algorithms.feddp.feddp_kmeans import (
    FedDPKMeansOptions as FedDPKMeansOptions,
)
from flwr_dpkmeans.algorithms.feddp.packed_start import (
    SpherePackingOptions as SpherePackingOptions,
)
from flwr_dpkmeans.algorithms.feddp.public_start import (
    ServerKMeansPlusPlusOptions as ServerKMeansPlusPlusOptions,
)
from flwr_dpkmeans.algorithms.feddp.server_lloyd import (
    ServerLloydOptions as ServerLloydOptions,
)
from flwr_dpkmeans.algorithms.lloyd_family.absolute_sums import (
    LloydOptions as LloydOptions,
)
from flwr_dpkmeans.algorithms.lloyd_family.fastlloyd import (
    FastLloydOptions as FastLloydOptions,
)
from flwr_dpkmeans.algorithms.lloyd_family.glloyd import GLloydOptions as GLloydOptions
from flwr_dpkmeans.algorithms.lloyd_family.sulloyd import (
    SuLloydOptions as SuLloydOptions,
)
from flwr_dpkmeans.algorithms.one_place.optimal_task import (
    OptimalOptions as OptimalOptions,
)
from flwr_dpkmeans.algorithms.proxy.proxy_lloyd import (
    ProxyLloydOptions as ProxyLloydOptions,
)
from flwr_dpkmeans.data.schema import Schema as Schema
from flwr_dpkmeans.estimators.bayes_classifiers import DPNaiveBayes as DPNaiveBayes
from flwr_dpkmeans.estimators.bayes_classifiers import (
    FederatedNaiveBayes as FederatedNaiveBayes,
)
from flwr_dpkmeans.estimators.budgets.fit_budget import Budget as Budget
from flwr_dpkmeans.estimators.dp_kmeans import DPKMeans as DPKMeans
from flwr_dpkmeans.estimators.federate import federate as federate
from flwr_dpkmeans.estimators.federated_kmeans import FederatedKMeans as FederatedKMeans
from flwr_dpkmeans.estimators.statistics.federated_pca import (
    FederatedPCA as FederatedPCA,
)
from flwr_dpkmeans.estimators.statistics.federated_quantiles import (
    FederatedQuantiles as FederatedQuantiles,
)
from flwr_dpkmeans.flower.client.wrapped_app import secure_sum_mod as secure_sum_mod
from flwr_dpkmeans.flower.client_app import client_app as client_app
from flwr_dpkmeans.flower.kmeans_client import KMeansClient as KMeansClient
from flwr_dpkmeans.flower.mod import secure_aggregation_mod as secure_aggregation_mod
from flwr_dpkmeans.flower.strategies.baseline_lloyd import Lloyd as Lloyd
from flwr_dpkmeans.flower.strategies.feddp import FedDPKMeans as FedDPKMeans
from flwr_dpkmeans.flower.strategies.noisy_lloyd import FastLloyd as FastLloyd
from flwr_dpkmeans.flower.strategies.noisy_lloyd import GLloyd as GLloyd
from flwr_dpkmeans.flower.strategies.noisy_lloyd import SuLloyd as SuLloyd
from flwr_dpkmeans.flower.strategies.proxy_strategy import ProxyLloyd as ProxyLloyd
from flwr_dpkmeans.flower.strategies.secure_mean import SecureMean as SecureMean
from flwr_dpkmeans.flower.strategies.secure_sum import SecureSum as SecureSum
from flwr_dpkmeans.flower.strategies.server_starts import (
    ServerKMeansPlusPlus as ServerKMeansPlusPlus,
)
from flwr_dpkmeans.flower.strategies.server_starts import ServerLloyd as ServerLloyd
from flwr_dpkmeans.flower.strategies.server_starts import SpherePacking as SpherePacking
from flwr_dpkmeans.flower.strategy import PrivateKMeans as PrivateKMeans
from flwr_dpkmeans.options import Auto as Auto
from flwr_dpkmeans.options import ClientLevel as ClientLevel
from flwr_dpkmeans.options import Cohort as Cohort
from flwr_dpkmeans.options import Evaluation as Evaluation
from flwr_dpkmeans.options import ExactEvaluation as ExactEvaluation
from flwr_dpkmeans.options import PersonLevel as PersonLevel
from flwr_dpkmeans.options import PrivateBounds as PrivateBounds
from flwr_dpkmeans.options import PrivateCount as PrivateCount
from flwr_dpkmeans.privacy.report import PrivacyReport as PrivacyReport
from flwr_dpkmeans.sums.task import register as register

__version__: str
