"""Every kind of object that stands for options of a run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from flwr_dpkmeans.errors import (
    ConfigurationError,
    LocalMisuseError,
)
from flwr_dpkmeans.options.group import Group, parameters_of
from flwr_dpkmeans.options.kinds import task_kind
from flwr_dpkmeans.options.measuring import Evaluation, ExactEvaluation
from flwr_dpkmeans.options.sought import Auto, PrivateBounds, PrivateCount
from flwr_dpkmeans.options.taking_part import ClientLevel, Cohort, PersonLevel
from flwr_dpkmeans.sums.option_rules import Options

GROUPS: tuple[type[Group], ...] = (
    Auto,
    PrivateBounds,
    PrivateCount,
    ClientLevel,
    PersonLevel,
    Evaluation,
    ExactEvaluation,
    Cohort,
)
"""Every kind of object besides algorithms' own options."""


for _kind in GROUPS:
    _kind.__doc__ = f"{_kind.__doc__}\n\n{parameters_of(_kind)}"


def object_of(argument: str, value: object) -> Options:
    """Build the object that an argument's short form stands for."""
    if isinstance(value, Options):
        return value
    if argument == "algorithm":
        return task_kind(value).option_class()()
    kinds = [kind for kind in GROUPS if kind.argument == argument]
    for kind in kinds:
        if isinstance(value, str | None) and kind.short == value:
            return kind()
    wanted = f"give one such as {kinds[0]()!r} first" if kinds else "leave them out"
    raise ConfigurationError(
        f"{argument} is {value!r}, which has no options of its own: {wanted}."
    )


@contextmanager
def objects_options() -> Iterator[None]:
    """Name options as an estimator takes them in what is refused within the block.

    There they are parts of objects, such as the share of PrivateBounds; elsewhere they
    have names of their own, as ``bounds_share``.
    """
    try:
        yield
    except LocalMisuseError as error:
        error.args = (in_objects(str(error)), *error.args[1:])
        raise


def in_objects(sentence: str) -> str:
    """A sentence in which parts of objects have the names that they have there.

    Examples
    --------
    >>> in_objects("bounds_share is 2, but it must be smaller")
    'share of PrivateBounds is 2, but it must be smaller'
    >>> in_objects("choose client_sampling_rate=1.0.")
    'choose ClientLevel(sampling_rate=1.0).'
    """
    for group in reversed(GROUPS):
        for name, flat_name in group.flat_names().items():
            if flat_name == name:
                continue
            words = f"{name} of {group.__name__}"
            call = rf"{group.__name__}({name}=\1)"
            sentence = re.sub(rf"\b{flat_name}=(\w+(?:\.\w+)*)", call, sentence)
            sentence = re.sub(rf"\b{flat_name}\b", words, sentence)
    return sentence
