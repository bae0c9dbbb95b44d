"""What a user writes and the `RunConfig` that follows from it.

Settings that every run has, and a task with its own options.

Options that belong together are one small object (`ClientLevel`, `PrivateBounds`, an
algorithm's own), of which a string is the short form. `flwr run`, the estimator, the
strategies and Hydra all come through `read_config`, which takes flat names and plain
values.
"""

from __future__ import annotations

from flwr_dpkmeans.options.clusterings import clustering_names
from flwr_dpkmeans.options.clusters import resolve_n_clusters
from flwr_dpkmeans.options.configuration import build_config, parse_config, read_config
from flwr_dpkmeans.options.flat import FlatOptions, flat_options
from flwr_dpkmeans.options.group import Group, parameters_of
from flwr_dpkmeans.options.groups import GROUPS, in_objects, object_of, objects_options
from flwr_dpkmeans.options.kinds import DEFAULT_ALGORITHM, task_kind
from flwr_dpkmeans.options.measuring import Evaluation, ExactEvaluation
from flwr_dpkmeans.options.of_schema import SPREADS_SHARE, schema_settings
from flwr_dpkmeans.options.option_names import option_defaults, options_of, own_options
from flwr_dpkmeans.options.seeds import Seed, seed_of
from flwr_dpkmeans.options.sought import Auto, PrivateBounds, PrivateCount
from flwr_dpkmeans.options.taking_part import ClientLevel, Cohort, PersonLevel
from flwr_dpkmeans.options.unknown import unknown_argument
from flwr_dpkmeans.options.without_effect import foreign_option, foreign_table

AUTO = "auto"
"""What a file or a command line says where an option is left to the run."""

__all__ = [
    "AUTO",
    "DEFAULT_ALGORITHM",
    "GROUPS",
    "SPREADS_SHARE",
    "Auto",
    "ClientLevel",
    "Cohort",
    "Evaluation",
    "ExactEvaluation",
    "FlatOptions",
    "Group",
    "PersonLevel",
    "PrivateBounds",
    "PrivateCount",
    "Seed",
    "build_config",
    "clustering_names",
    "flat_options",
    "foreign_option",
    "foreign_table",
    "in_objects",
    "object_of",
    "objects_options",
    "option_defaults",
    "options_of",
    "own_options",
    "parameters_of",
    "parse_config",
    "read_config",
    "resolve_n_clusters",
    "schema_settings",
    "seed_of",
    "task_kind",
    "unknown_argument",
]
