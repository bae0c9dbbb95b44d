"""How an option is declared, once: a field with its range and its description."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from enum import Enum
from functools import lru_cache, partial
from typing import Any, ClassVar, TypeVar

from flwr_dpkmeans.errors import (
    ConfigurationError,
    invalid,
    member,
    nearest,
    require_whole,
)

OptionsT = TypeVar("OptionsT", bound="Options")


def require_integer(
    name: str,
    value: object,
    low: int,
    example: int,
    most: int | None = None,
) -> int:
    """A count as an integer, also from NumPy or a whole float (a TOML or Hydra number),
    from `low` to `most`.
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
    """Any real number as a float, None of what is no number.

    An integer beyond their range becomes infinite.
    """
    if not isinstance(value, numbers.Real) or isinstance(value, bool):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf


def as_numbers(value: Any) -> Any:
    """A tuple of floats from numbers, or from text with commas.

    What is neither stays, for a check to refuse.
    """
    parts = value.split(",") if isinstance(value, str) else value
    try:
        return tuple(float(part) for part in parts)
    except (TypeError, ValueError):
        return value


@dataclass(frozen=True)
class Rule:
    """How one option is read and checked."""

    take: Callable[[str, Any], Any]
    """``take(name, value) -> value``, from what a person or a file may give (such as a
    string for a choice), or one `ConfigurationError` with value, bound and mend.
    """
    about: str
    optional: bool = False
    """Whether None stands for "automatic": left to the run."""


def whole(
    default: Any,
    low: int,
    example: int,
    about: str,
    *,
    most: int | None = None,
) -> Any:
    """Declare an option that is an integer of at least `low` and at most `most`.

    Optional if its default is None.
    """
    return _declared(
        default,
        partial(
            require_integer,
            low=low,
            example=example,
            most=most,
        ),
        about,
    )


def real(
    default: Any,
    low: float,
    high: float,
    example: str,
    about: str,
) -> Any:
    """Declare an option that is a number in the open interval (low, high).

    Optional if its default is None.
    """

    def take(name: str, value: Any) -> float:
        number = _as_float(value)
        if number is None or not low < number < high:
            given = value if number is None else number
            least = f"greater than {low:g}" if low >= 0.0 else "of at least 0"
            both = (
                f"strictly between {low:g} and {high:g}"
                if low >= 0.0
                else f"{least} and below {high:g}"
            )
            bound = least if math.isinf(high) else both
            raise invalid(
                name,
                given,
                f"a finite number {bound}",
                f"give {example}",
            )
        return number

    return _declared(default, take, about)


def choice(
    kind: type[Enum],
    default: Enum | None,
    about: str,
) -> Any:
    """Declare an option that is a member of an enumeration.

    Optional if its default is None.
    """
    names = ", ".join(str(one.value) for one in kind)
    return _declared(
        default, lambda name, value: member(name, value, kind), f"{about} ({names})"
    )


def flag(default: bool, about: str) -> Any:
    """Declare an option that is True or False."""

    def take(name: str, value: Any) -> bool:
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
    default: Any,
    check: Callable[[str, Any], None],
    about: str,
    read: Callable[..., Any] | None = None,
) -> Any:
    """Declare an option with a check of its own, of what `read` makes of the value."""

    def take(name: str, value: Any) -> Any:
        value = value if read is None else read(value)
        check(name, value)
        return value

    return _declared(default, take, about)


def _declared(
    default: Any,
    take: Callable[[str, Any], Any],
    about: str,
) -> Any:
    """A field with its rule.

    One whose default is None may be left to the run, another default is taken now.
    """
    ready = (
        default
        if default is None or default is MISSING
        else take("the default", default)
    )
    return field(
        default=ready, metadata={"rule": Rule(take, about, optional=default is None)}
    )


@dataclass(frozen=True)
class Options:
    """Options that belong together: frozen, each read and checked by its own field's
    rule.

    Plain values will do: strings for choices, whole floats for integers, any real for a
    float.
    """

    # A plan with options that its task does not have is malformed: a client would
    # ignore what others may not.
    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    def __post_init__(self) -> None:
        for name, rule, default in _rules(type(self)):  # type: ignore[arg-type]
            given = getattr(self, name)
            if given is default or (given is None and rule.optional):
                continue
            value = rule.take(name, given)
            # What is equal stays the same object, which scikit-learn's `clone` looks
            # for.
            if type(value) is not type(given) or value != given:
                object.__setattr__(self, name, value)

    def __getstate__(self) -> dict[str, Any]:
        """What a file of any format keeps: plain values, the text of an enumeration's
        member.
        """
        values = self.get_params()
        members = {
            name: value.value
            for name, value in values.items()
            if isinstance(value, Enum)
        }
        return values | members

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore what was stored, read and checked as when it was stated."""
        for name, value in state.items():
            object.__setattr__(self, name, value)
        self.__post_init__()

    @classmethod
    def defaults(cls) -> dict[str, Any]:
        """Every option that may be left out, with its default."""
        return {
            one.name: one.default for one in fields(cls) if one.default is not MISSING
        }

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Options by name, as scikit-learn's `clone` and nested parameters ask for
        them.
        """
        return {one.name: getattr(self, one.name) for one in fields(self)}

    def set_params(self: OptionsT, **values: Any) -> OptionsT:
        """The same options with other values of some.

        Unlike scikit-learn's, this leaves the object as it is.
        """
        known = self.get_params()
        for name in values:
            if name not in known:
                raise ConfigurationError(
                    f"{type(self).__name__} has no option {name!r}:"
                    f" {nearest(name, known)}"
                )
        return replace(self, **values)


def rule_of(one: Field[Any]) -> Rule | None:
    """The rule of an option's field."""
    return one.metadata.get("rule")


@lru_cache(maxsize=256)
def _rules(kind: type[Options]) -> tuple[tuple[str, Rule, Any], ...]:
    return tuple(
        [
            (one.name, rule, one.default)
            for one in fields(kind)
            if (rule := rule_of(one)) is not None
        ]
    )
