"""Every error of the package, in three families.

A caller who catches ``DPKMeansError`` catches everything that this package raises on
purpose:

* ``LocalMisuseError``: the person at this machine asked for something that cannot be
  done; nothing was sent and no budget was spent.
* ``PeerError``: a message from elsewhere was malformed, replayed or hostile, or too few
  peers answered.
* ``BudgetError``: what was asked would cost more privacy than this party allows.

Each message is one sentence with the value, the bound and the mend. Warnings are shown
at the caller's line.
"""

from __future__ import annotations

import difflib
import math
import numbers
import sys
import unicodedata
import warnings
from collections.abc import Iterable, Sequence
from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from pydantic import ValidationError

EnumT = TypeVar("EnumT", bound=Enum)
_LONGEST_NAME = 100
_SHOWN = 10


class DPKMeansError(Exception):
    """Base of every error that the package raises on purpose."""

    for_others = ""
    """What other parties read in the sentence's place, where it quotes one of them."""


class PrivacyWarning(UserWarning):
    """What a report says against its run, as one of Python's warnings.

    Each sentence of `PrivacyReport.warnings`.
    """


class InputWarning(UserWarning):
    """What is doubtful in what a caller of `fit` gives, for this caller alone.

    Exact rows may say so, no result.
    """


class LocalMisuseError(DPKMeansError, ValueError):
    """The request cannot be carried out as it was made on this machine."""


class ConfigurationError(LocalMisuseError):
    """A parameter is unknown, of the wrong type or out of its range."""


class DataError(LocalMisuseError):
    """The data on this machine cannot be used as they are."""


class ColumnError(DataError):
    """A table lacks a column of the schema.

    `position`, counted from 1, is for those that may not see its names.
    """

    def __init__(self, sentence: str, position: int, n_columns: int) -> None:
        super().__init__(sentence)
        self.public = (
            f"this client's table has not, or not once, column {position + 1} of the"
            f" schema's {n_columns} (its own log has the name): correct the table"
            " there, or the schema everywhere, then start a new run."
        )


class PlanError(LocalMisuseError):
    """The parameters are valid one by one, but no sound plan follows from them."""


class PeerError(DPKMeansError):
    """Something that another party sent (or did not send) stops the run."""


class ProtocolError(PeerError):
    """A message does not fit the protocol: malformed, late, or of another plan."""


class VersionError(ProtocolError):
    """A peer speaks another version of the protocol, or does not say which."""


class IdentityError(ProtocolError):
    """A peer is not who this party's policy pins, or its key is not what it signed."""


class CohortError(PeerError):
    """Too few clients are taking part."""


class DisagreementError(PeerError):
    """The clients' states differ although they must be equal."""


class RefusalError(PeerError):
    """A client refused the plan; its reason is in the message."""


class BudgetError(DPKMeansError):
    """The plan costs more than the policy or the ledger of this party allows."""


def nearest_name(value: object, valid: Iterable[str], cutoff: float = 0.5) -> str:
    """Return the valid name that is most like a value; "" where none is like it."""
    by_letters = {name.casefold(): name for name in sorted(valid)}
    # A name may come from another party, and the search takes time that grows with its
    # length.
    name = str(value)[:_LONGEST_NAME]
    close = difflib.get_close_matches(name.casefold(), by_letters, n=1, cutoff=cutoff)
    if not close:
        return ""
    return by_letters[close[0]]


def nearest(value: object, valid: Iterable[str]) -> str:
    """Say which valid name is most like a value, as the tail of an error sentence."""
    names = sorted(valid)
    if not names:
        return "add it; no name is left that could be meant."
    meant = nearest_name(value, names)
    if meant:
        name = str(value)[:_LONGEST_NAME]
        looks = unicodedata.normalize("NFC", name)
        if unicodedata.normalize("NFC", meant) == looks:
            return (
                f"copy {meant!r}, which looks the same but has other characters"
                f" ({meant!a})."
            )
        return f"did you mean {meant!r}?"
    return "choose one of " + ", ".join(repr(name) for name in names) + "."


def finding(error: ValidationError, field_names: Iterable[str]) -> str:
    """Write the first of pydantic's findings as a sentence.

    Parameters
    ----------
    error : ValidationError
        What pydantic raised.
    field_names : iterable of str
        The fields that there are.
    """
    first = error.errors()[0]
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, ConfigurationError):
        return str(cause)
    key = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        keys = [name.replace("_", "-") for name in field_names]
        return f"the key {key!r} is not known: {nearest(key, keys)}"
    if first["type"] == "missing":
        return f"the key {key!r} is not there, but it is needed: add it."
    reason = str(first["msg"]).removeprefix("Value error, ").removesuffix(".")
    if not key:
        return f"{reason}."
    return f"{key} is {first['input']!r}: {reason}."


def distinct_texts(value: float, bound: float) -> tuple[str, str]:
    """Print two numbers with so many digits that they differ.

    "4 against 4" tells nobody what is wrong.
    """
    for digits in range(6, 18):
        value_text = f"{value:.{digits}g}"
        bound_text = f"{bound:.{digits}g}"
        if value_text != bound_text:
            break
    return value_text, bound_text


def column_names(columns: Sequence[int], names: Sequence[str]) -> str:
    """Name some columns, by position where they have no names."""
    word = "column" if len(columns) == 1 else "columns"
    if not names:
        positions = listed(str(column) for column in columns)
        return f"{word} {positions} (counted from 0)"
    return f"{word} {listed(repr(names[column]) for column in columns)}"


def listed(values: Iterable[str]) -> str:
    """Join the first few of some words."""
    words = list(values)
    text = ", ".join(words[:_SHOWN])
    if len(words) > _SHOWN:
        text += f", ... ({len(words)} in all)"
    return text


def member(name: str, value: object, kind: type[EnumT]) -> EnumT:
    """Turn a string into a member of an enumeration, or say which one is nearest."""
    try:
        return kind(value)
    except ValueError:
        valid = [item.value for item in kind]
        raise ConfigurationError(
            f"{name} is {value!r}, which is not known: {nearest(value, valid)}"
        ) from None


def invalid(name: str, value: object, bound: str, mend: str) -> ConfigurationError:
    """Make the error of a value that will not do."""
    return ConfigurationError(f"{name} is {value!r}, but it must be {bound}: {mend}.")


def require_real(name: str, value: object, mend: str) -> float:
    """Return a value as a float, or raise if it is not a finite number.

    The `ConfigurationError` ends with `mend`.
    """
    number = math.nan
    if isinstance(value, numbers.Real) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:
            # Of an integer.
            value = math.inf
    if not math.isfinite(number):
        raise invalid(name, value, "a finite number", mend)
    return number


def require_positive(name: str, value: object) -> float:
    """Return a value as a float, or raise if it is not finite and greater than 0."""
    if type(value) is float and 0.0 < value < math.inf:
        return value
    mend = "give a positive number such as 1.0"
    number = require_real(name, value, mend)
    if not number > 0.0:
        raise invalid(name, value, "greater than 0", mend)
    return number


def require_delta(value: object) -> float:
    """Return a value as a float, or raise if it is not strictly between 0 and 1."""
    mend = "give a small number such as 1e-6"
    number = require_real("delta", value, mend)
    if not 0.0 < number < 1.0:
        raise invalid("delta", value, "greater than 0 and less than 1", mend)
    return number


def require_whole(
    name: str, value: object, least: int, mend: str = "", most: int | None = None
) -> int:
    """Return a value as an int, or raise if it is no integer from least to most."""
    if type(value) is int and most is None and value >= least:
        # As nearly all are; what follows takes longer than drawing a little noise.
        return value
    largest = math.inf if most is None else most
    if isinstance(value, numbers.Integral) and not isinstance(value, bool):
        whole = int(value)
        if least <= whole <= largest:
            return whole
    bound = f"of at least {least}" if most is None else f"from {least} to {most}"
    if not mend:
        mend = f"give for example {least}"
    raise invalid(name, value, f"an integer {bound}", mend)


_LEAST_WIDTH = 2.0**-900
"""Of a much narrower range the steps are subnormal numbers, so coarse that rows would
leave the box and their bound.
"""


def require_ranges(
    lower: Sequence[float], upper: Sequence[float], names: Sequence[str] = ()
) -> None:
    """Refuse lengths that differ, and ranges that are not finite, reversed or empty."""
    if len(lower) != len(upper):
        raise ConfigurationError(
            f"the bounds have {len(lower)} lower and {len(upper)} upper values, but"
            " each feature needs one of both: give two sequences of the same length."
        )
    if not lower:
        raise ConfigurationError(
            "the bounds have 0 ranges, but at least 1 is needed: give a pair such as"
            " (0, 100)."
        )
    for index, (low, high) in enumerate(zip(lower, upper, strict=True)):
        if _LEAST_WIDTH <= high - low < math.inf:
            continue
        who = "every feature"
        if names:
            who = f"feature {names[index]!r}"
        elif len(lower) > 1:
            who = f"feature {index}"
        raise ConfigurationError(
            f"{who} has lower bound {low} and upper bound {high}, but"
            f" {_problem_of_range(low, high)}."
        )


def _problem_of_range(low: float, high: float) -> str:
    """Say what is wrong with a range."""
    if not (math.isfinite(low) and math.isfinite(high)):
        return "both must be finite: give the public range of the feature"
    if low > high:
        return "the lower one must be smaller: exchange the two"
    if low == high:
        return (
            "the lower one must be smaller: widen the range around a constant value,"
            " or leave the feature out"
        )
    if high - low < _LEAST_WIDTH:
        return (
            f"their distance must be at least {_LEAST_WIDTH:.3g}: give another"
            " unit, or a wider range"
        )
    return "their distance must be a finite number: give a narrower range"


def frames_to_caller() -> int:
    """Count the frames up from the caller to the first one outside of the package.

    As `warnings` counts.
    """
    frame = sys._getframe(1)
    n_frames = 1
    while frame.f_back is not None:
        if not frame.f_globals["__name__"].startswith("flwr_dpkmeans"):
            break
        frame = frame.f_back
        n_frames += 1
    return n_frames


def warn(sentences: Sequence[str], category: type[Warning] = PrivacyWarning) -> None:
    """Warn once for each line with a `fit`, in a notebook each time a cell runs.

    Or always, if Python's filters say so.
    """
    if not sentences:
        return
    caller = sys._getframe(frames_to_caller() - 1)
    cell = 0
    shell = sys.modules.get("IPython")
    if shell is not None:
        cell = getattr(shell.get_ipython(), "execution_count", 0)
    place = (caller.f_code.co_filename, caller.f_lineno, cell)
    for sentence in dict.fromkeys(sentences):
        if _warns_always(category):
            warn_once.__wrapped__(sentence, place, category)
        else:
            # A class can be hashed, whatever its stub says.
            warn_once(sentence, place, category)  # type: ignore[arg-type]


def _warns_always(category: type[Warning]) -> bool:
    """Tell whether the first of Python's filters for a warning shows it always."""
    for action, _, filtered, *_ in warnings.filters:
        if issubclass(category, filtered):
            return action == "always"
    return False


@lru_cache(maxsize=1024)
def warn_once(
    sentence: str,
    _place: tuple[str, int, int],
    category: type[Warning] = PrivacyWarning,
) -> None:
    """Warn the caller of `fit` once at a place.

    Scikit-learn empties Python's own memory of that in each fit.
    """
    warnings.warn(sentence, category, stacklevel=frames_to_caller())
