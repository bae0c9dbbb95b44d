"""Who takes part, and whom the result protects."""

from __future__ import annotations

from dataclasses import dataclass

from flwr_dpkmeans.options.group import Group, setting
from flwr_dpkmeans.sums.settings import Dropout


@dataclass(frozen=True)
class ClientLevel(Group):
    """Protection of a client's whole table; ``"client"`` for short."""

    argument, short = "unit", "client"
    examples_per_client: int = setting("examples_per_client")
    sampling_rate: float = setting("client_sampling_rate")


@dataclass(frozen=True)
class PersonLevel(Group):
    """Protection of all rows of a person; ``"person"`` for short."""

    argument, short = "unit", "person"
    rows_per_person: int | None = setting("rows_per_person")


@dataclass(frozen=True)
class Cohort(Group):
    """Who takes part, and what happens when some fall silent."""

    argument, short = "cohort", None
    min_clients: int = setting("min_clients")
    max_silent: int | None = setting("max_silent")
    max_retries: int = setting("max_retries")
    max_epsilon: float | None = setting("max_epsilon")
    dropout: Dropout | None = setting("dropout")
    masking: bool = setting("masking")
