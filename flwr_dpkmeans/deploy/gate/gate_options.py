"""What a site states about an app of somebody else: the table [gate] of NODE.toml."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from flwr_dpkmeans.deploy.settings_file import SettingsFile, Sha256

_Size = Annotated[
    int,
    Field(ge=1, le=2**31),
]
_Amount = Annotated[
    int | float,
    Field(gt=0.0, allow_inf_nan=False),
    AfterValidator(float),
]
_Bounds = Annotated[
    tuple[int | float, int | float],
    Field(strict=False),
]
_Delta = Annotated[
    float,
    Field(ge=0.0, lt=1.0),
]

MOST_NUMBERS = 2**27
"""In all arrays together: a gibibyte of doubles."""
MOST_METRIC = 1e30
"""Largest magnitude of a metric's bound."""
MOST_NAME = 200
"""Characters in the name of an array."""


class GatedArray(SettingsFile):
    """One array that may leave, and how large it is, whatever the rows are."""

    shape: tuple[_Size, ...] = Field(strict=False)
    """Length of each axis; [] for a number."""
    dtype: Literal[
        "float16",
        "float32",
        "float64",
        "int32",
        "int64",
    ] = "float32"
    """Type of its numbers, which the app must answer."""


class GateOptions(SettingsFile):
    """What leaves the node when the app of somebody else answers, and what it costs."""

    app: Sha256
    """SHA-256 of the app (FAB) that runs behind the gate; not among allowed-apps."""
    arrays: Mapping[str, GatedArray] = Field(min_length=1)
    """Arrays that may leave, by name: a table [gate.arrays] with a line
    NAME = { shape = [10, 64], dtype = "float32" } for each.
    """
    metrics: Mapping[str, _Bounds] = Field(
        default_factory=dict,
    )
    """Metrics whose noisy means may leave: a table [gate.metrics] with NAME = [LEAST,
    MOST] for each.
    """
    clip: _Amount
    """Largest L2 norm, of all arrays together, of what this node adds in a round."""
    noise_share: _Amount
    """Least standard deviation of this node's own noise on each entry, over `clip`."""
    epsilon_per_round: _Amount
    """Largest epsilon of one round, at `delta_per_round`, of this node's whole part."""
    delta_per_round: _Delta
    """In [0, 1)."""
    epsilon_total: _Amount
    """Total epsilon of all runs on the data, which the ledger adds up."""
    delta_total: _Delta
    """Total delta of all of them."""
    rounds: int = Field(
        ge=1,
        le=1000,
    )
    """Most rounds of a run."""
    most_examples: int = Field(
        0,
        ge=0,
        le=1_000_000,
    )
    """Most examples that a node counts with in a mean.

    0: numbers of examples do not leave.
    """
    seconds: float = Field(
        60.0,
        gt=0.0,
        le=86400.0,
    )
    """The answer leaves when they are over, so that its time tells nothing.

    The app is ended a quarter earlier, and at most 5 s.
    """

    confined: bool = True
    """The app's process has no network, sees no other process, and writes no file but
    in a folder that is removed. false: where this system cannot do so (it is no Linux,
    or a container forbids it), so that the container must.
    """
    node_config: Mapping[str, bool | int | float | str] = Field(default_factory=dict)
    """What the app reads as its node's configuration: a table [gate.node-config]."""

    @model_validator(mode="after")
    def _fits(self) -> GateOptions:
        for name in self.arrays:
            if not 0 < len(name) <= MOST_NAME:
                raise ValueError(
                    f"an array's name has {len(name)} characters: from 1 to"
                    f" {MOST_NAME} are allowed"
                )
        for name, (least, most) in self.metrics.items():
            if not -MOST_METRIC <= least < most <= MOST_METRIC:
                raise ValueError(
                    f"metric {name!r} has the bounds {least!r} and {most!r}: the first"
                    f" must be below the second, both within {MOST_METRIC:g}"
                )
        if self.size > MOST_NUMBERS:
            raise ValueError(
                f"arrays have {self.size} numbers, but at most {MOST_NUMBERS} may"
                " leave: list fewer"
            )
        return self

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes by name."""
        shapes = {}
        for name, array in self.arrays.items():
            shapes[name] = array.shape
        return shapes

    @property
    def size(self) -> int:
        """Numbers in all arrays together."""
        sizes = map(math.prod, self.shapes.values())
        return sum(sizes)
