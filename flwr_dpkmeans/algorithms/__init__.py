"""Algorithms: each is one file with its options, its rounds and its task.

Importing this room offers them all by name. A file is imported when a run names its
task, so that a node executes no other.
"""

from __future__ import annotations

from flwr_dpkmeans.sums.task import TASKS

_TASKS = {
    "proxy_lloyd": "proxy.proxy_lloyd:ProxyLloydTask",
    "fastlloyd": "lloyd_family.fastlloyd:FastLloydTask",
    "glloyd": "lloyd_family.glloyd:GLloydTask",
    "sulloyd": "lloyd_family.sulloyd:SuLloydTask",
    "lloyd": "lloyd_family.absolute_sums:LloydTask",
    "feddp_kmeans": "feddp.feddp_kmeans:FedDPKMeansTask",
    "feddp_choose_k": "feddp.choose_k:FedDPChooseKTask",
    "server_kmeans++": "feddp.public_start:ServerKMeansPlusPlusTask",
    "server_lloyd": "feddp.server_lloyd:ServerLloydTask",
    "sphere_packing": "feddp.packed_start:SpherePackingTask",
    "naive_bayes": "statistics.naive_bayes:NaiveBayesTask",
    "moments": "statistics.moments_task:MomentsTask",
    "histograms": "statistics.histograms_task:HistogramsTask",
    "quantiles": "statistics.quantiles.quantiles_task:QuantilesTask",
    "pca": "statistics.components.components_task:PcaTask",
    "radii": "statistics.radii_task:RadiiTask",
    "array_sum": "statistics.array_sum:ArraySumTask",
    "exact_array_sum": "statistics.exact_array_sum:ExactArraySumTask",
}
"""File and class of each task."""
for _name, _place in _TASKS.items():
    TASKS.offer(_name, f"{__name__}.{_place}")
