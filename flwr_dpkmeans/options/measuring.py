"""Another round that measures a result."""

from __future__ import annotations

from dataclasses import dataclass

from flwr_dpkmeans.options.group import Group, setting


@dataclass(frozen=True)
class Evaluation(Group):
    """One more round that measures the result with noise, within the same budget.

    ``"private"`` for short.
    """

    argument, short = "evaluation", "private"
    share: float = setting("evaluation_share")
    n_classes: int = setting("n_classes")
    radius: float | None = setting("evaluation_radius")


@dataclass(frozen=True)
class ExactEvaluation(Group):
    """The same without noise, after which the run is not private: in simulation only.

    ``"exact"`` for short.
    """

    argument, short = "evaluation", "exact"
    n_classes: int = setting("n_classes")
    radius: float | None = setting("evaluation_radius")
