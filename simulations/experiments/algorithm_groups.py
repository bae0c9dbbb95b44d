"""The group ``algorithm`` of experiments, conf/algorithm/*.yaml.

Generated from the options of each algorithm.

``python -m simulations.experiments.algorithm_groups`` writes the files.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from dataclasses import fields
from enum import Enum
from pathlib import Path
from typing import Any

from flwr_dpkmeans.algorithms.lookup import clusterings
from flwr_dpkmeans.algorithms.one_place.not_federated import NOT_FEDERATED
from flwr_dpkmeans.flower.run_keys import table_of
from flwr_dpkmeans.options import Auto, ClientLevel, Group
from flwr_dpkmeans.privacy.release import PrivacyUnit
from flwr_dpkmeans.sums.option_rules import Options, rule_of

FOLDER = Path(__file__).parents[2] / "conf" / "algorithm"
_HEAD = "# Generated: python -m simulations.experiments.algorithm_groups"
_FROM_DATA = {"examples_per_client": "${oc.select:data.rows_per_client,50}"}
"""What the data's own group says, where it does."""


def group_texts() -> dict[str, str]:
    """Each file's text by its name."""
    kinds = [*clusterings().values(), *NOT_FEDERATED.values()]
    # The choice of k alone is `FederatedKMeans.choose_k`, not an experiment.
    return {
        f"{table_of(kind.name)}.yaml": _text(kind)
        for kind in kinds
        if kind.name != "feddp_choose_k"
    }


def _text(kind: Any) -> str:
    """Name, number of rounds, and what else the algorithm has."""
    option_classes = [kind.option_class(), *((Auto,) if kind.chooses else ())]
    option_classes += [ClientLevel] if PrivacyUnit.CLIENT in kind.units else []
    about = f"# {inspect.getdoc(kind)}".partition("\n")[0]
    lines = (
        _HEAD,
        about,
        f"name: {kind.name}",
        *(line for options in option_classes for line in _lines(options)),
    )
    return "\n".join(lines) + "\n"


def _lines(options: type[Options]) -> Iterator[str]:
    """One line for each option, with its default and what it means."""
    for option in fields(options):
        name = (
            option.metadata.get("flat", option.name)
            if issubclass(options, Group)
            else option.name
        )
        value = (
            option.default.value if isinstance(option.default, Enum) else option.default
        )
        shown = value if isinstance(value, str) else json.dumps(value)
        rule = rule_of(option)
        about = (
            "" if rule is None else f"  # {rule.about.replace('automatic:', 'null:')}"
        )
        yield f"{name}: {_FROM_DATA.get(name, shown)}{about}"


def main() -> None:
    """Write the files."""
    for name, text in group_texts().items():
        (FOLDER / name).write_text(text)


if __name__ == "__main__":
    main()
