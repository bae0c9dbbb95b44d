"""How an option is declared, once: a field with its range and its description."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Iterable
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from enum import Enum
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from flwr_dpkmeans.errors import (
    ConfigurationError,
    invalid,
    member,
    nearest,
    require_ranges,
    require_whole,
)

if TYPE_CHECKING:
    from dataclasses import _MISSING_TYPE

OptionsT = TypeVar("OptionsT", bound="Options")
ValueT = TypeVar("ValueT")


def require_integer(
    name: str,
    value: object,
    low: int,
    example: int,
    most: int | None = None,
) -> int:
    """Read a count as an integer from `low` to `most`.

    Also from NumPy or a whole float (a TOML or Hydra number).
    """
    if name in ("max_iter", "max-iter") and value == -1:
        # What other libraries take for rounds without an end.
        raise ConfigurationError(
            f"{name} is -1, but each round costs a part of the budget, so that no"
            " run goes on without a limit: give 5, or leave it out for the"
            " algorithm's own number."
        )
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if type(value) is not int or value < low:
        value = require_whole(
            name,
            value,
            low,
            f"give {example}",
        )
    if most is not None and value > most:
        raise ConfigurationError(
            f"{name} is {value}, but it must be at most {most}: give a smaller one."
        )
    return value


def _as_float(value: object) -> float | None:
    """A real number as a float, None of what is no number.

    An integer beyond their range becomes infinite.
    """
    if not isinstance(value, numbers.Real) or isinstance(value, bool):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf


def as_numbers(value: object) -> object:
    """A tuple of floats from numbers, or from text with commas.

    What is neither stays, for a check to refuse.
    """
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, Iterable):
        return value
    try:
        return tuple(float(part) for part in parts)
    except (TypeError, ValueError):
        return value


def require_bounds(bounds: object) -> None:
    """Refuse bounds that are no pair of finite, ordered numbers for each feature."""
    sides = bounds if isinstance(bounds, tuple) else ()
    if len(sides) != 2 or not all(_are_numbers(side) for side in sides):
        raise ConfigurationError(
            f"bounds are {bounds!r}, but they must be a pair (lower, upper): give"
            " (-1.0, 1.0)."
        )
    lower, upper = sides
    require_ranges(lower, upper)


def _are_numbers(values: object) -> bool:
    """Whether this is a tuple of numbers."""
    if not isinstance(values, tuple):
        return False
    return all(_as_float(value) is not None for value in values)


Take = Callable[[str, object], Any]
"""Reads and checks the value of an option of a name."""


@dataclass(frozen=True)
class Rule:
    """How one option is read and checked."""

    take: Take
    """``take(name, value) -> value``, from what a person or a file may give (such as a
    string for a choice), or one `ConfigurationError` with value, bound and mend.
    """
    about: str
    optional: bool = False
    """Whether None stands for "automatic": left to the run."""


def whole(
    default: ValueT | _MISSING_TYPE,
    low: int,
    example: int,
    about: str,
    *,
    most: int | None = None,
) -> ValueT:
    """Declare an option that is an integer of at least `low` and at most `most`.

    Optional if its default is None.
    """
    take = partial(require_integer, low=low, example=example, most=most)
    return _declared(default, take, about)


def real(
    default: ValueT | _MISSING_TYPE,
    low: float,
    high: float,
    example: str,
    about: str,
) -> ValueT:
    """Declare an option that is a number in the open interval (low, high).

    Optional if its default is None.
    """
    bound = _interval_words(low, high)

    def take(name: str, value: object) -> float:
        number = _as_float(value)
        if number is None:
            raise invalid(name, value, f"a finite number {bound}", f"give {example}")
        if not low < number < high:
            raise invalid(name, number, f"a finite number {bound}", f"give {example}")
        return number

    return _declared(default, take, about)


def _interval_words(low: float, high: float) -> str:
    """How a sentence calls the open interval (low, high)."""
    if low < 0.0:
        least = "of at least 0"
        return least if math.isinf(high) else f"{least} and below {high:g}"
    if math.isinf(high):
        return f"greater than {low:g}"
    return f"strictly between {low:g} and {high:g}"


def choice(kind: type[Enum], default: ValueT, about: str) -> ValueT:
    """Declare an option that is a member of an enumeration.

    Optional if its default is None.
    """
    names = ", ".join(str(item.value) for item in kind)

    def take(name: str, value: object) -> Enum:
        return member(name, value, kind)

    return _declared(default, take, f"{about} ({names})")


def flag(default: bool, about: str) -> bool:
    """Declare an option that is True or False."""

    def take(name: str, value: object) -> bool:
        if not isinstance(value, bool):
            raise invalid(
                name,
                value,
                "a boolean",
                "give True or False",
            )
        return value

    return _declared(default, take, about)


def option(
    default: ValueT | _MISSING_TYPE,
    check: Callable[..., None],
    about: str,
    read: Callable[..., object] | None = None,
) -> ValueT:
    """Declare an option with a check of its own, of what `read` makes of the value."""

    def take(name: str, value: object) -> object:
        if read is not None:
            value = read(value)
        check(name, value)
        return value

    return _declared(default, take, about)


def _declared(default: ValueT | _MISSING_TYPE, take: Take, about: str) -> ValueT:
    """A field with its rule; without a default it must be stated.

    One whose default is None may be left to the run, another default is taken now.
    """
    is_optional = default is None
    if not is_optional and default is not MISSING:
        default = take("the default", default)
    rule = Rule(take, about, optional=is_optional)
    return field(default=default, metadata={"rule": rule})  # type: ignore[return-value]


@dataclass(frozen=True)
class Options:
    """Options that belong together, each read and checked by its field's rule.

    They are frozen.

    Plain values will do: strings for choices, whole floats for integers, any real for a
    float.
    """

    # A plan with options that its task does not have is malformed: a client would
    # ignore what others may not.
    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    def __post_init__(self) -> None:
        for name, rule, default in _rules(type(self)):  # type: ignore[arg-type]
            stated = getattr(self, name)
            is_automatic = stated is None and rule.optional
            if stated is default or is_automatic:
                continue
            value = rule.take(name, stated)
            # What is equal stays the same object, which scikit-learn's `clone` looks
            # for.
            if type(value) is not type(stated) or value != stated:
                object.__setattr__(self, name, value)

    def __getstate__(self) -> dict[str, object]:
        """Return what a file of any format stores.

        Plain values, the text of an enumeration's member.
        """
        values = self.get_params()
        for name, value in values.items():
            if isinstance(value, Enum):
                values[name] = value.value
        return values

    def __setstate__(self, state: dict[str, object]) -> None:
        """Restore what was stored, read and checked as when it was stated."""
        for name, value in state.items():
            object.__setattr__(self, name, value)
        self.__post_init__()

    @classmethod
    def defaults(cls) -> dict[str, object]:
        """Every option that may be left out, with its default."""
        return {
            declared.name: declared.default
            for declared in fields(cls)
            if declared.default is not MISSING
        }

    def get_params(self, deep: bool = True) -> dict[str, object]:
        """Return options by name.

        As scikit-learn's `clone` and nested parameters ask for them.
        """
        names = [declared.name for declared in fields(self)]
        return {name: getattr(self, name) for name in names}

    def set_params(self: OptionsT, **values: object) -> OptionsT:
        """The same options with other values of some.

        Unlike scikit-learn's, this leaves the object as it is.
        """
        parameters = self.get_params()
        for name in values:
            if name not in parameters:
                raise ConfigurationError(
                    f"{type(self).__name__} has no option {name!r}:"
                    f" {nearest(name, parameters)}"
                )
        return replace(self, **values)


def rule_of(declared: Field[object]) -> Rule | None:
    """The rule of an option's field."""
    return declared.metadata.get("rule")


@lru_cache(maxsize=256)
def _rules(kind: type[Options]) -> tuple[tuple[str, Rule, object], ...]:
    """Name, rule and default of each option that has a rule."""
    rules = []
    for declared in fields(kind):
        rule = rule_of(declared)
        if rule is not None:
            rules.append((declared.name, rule, declared.default))
    return tuple(rules)
