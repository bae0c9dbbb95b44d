"""How the limits of a policy are read: each as its type, without guesses.

A reader takes the name of a limit and a value, and returns a valid one or raises a
ConfigurationError that says what would do.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    InstanceOf,
    StringConstraints,
    TypeAdapter,
    ValidationError,
)

from flwr_dpkmeans.errors import ConfigurationError, invalid

Read = Callable[[str, object], object]
"""``read(name, value)`` returns a valid limit, or raises."""
LONGEST_QUOTE = 60
"""Characters that a sentence repeats of a name.

Names in a plan come from the server, so they are bounded.
"""
_KEY = "[0-9a-fA-F]{64}"
"""A SHA-256 digest or an Ed25519 key, as people copy it."""


def quote(value: object) -> str:
    """Repeat a name from a plan, escaped and cut to a bounded length."""
    text = ascii(value)
    if len(text) <= LONGEST_QUOTE:
        return text
    return text[:LONGEST_QUOTE] + "..."


def valid(
    kind: Any,
    bound: str,
    mend: str,
) -> Read:
    """Make a reader of a type as pydantic knows it.

    Parameters
    ----------
    kind : type
        Nothing is converted but what the type itself allows.
    bound, mend : str
        What a value must be, and what to do about one that is not.
    """
    adapter: TypeAdapter[object] = TypeAdapter(kind, config=ConfigDict(strict=True))

    def read(name: str, value: object) -> object:
        """Return a valid limit, or raise a ConfigurationError that says what would."""
        try:
            return adapter.validate_python(value)
        except ValidationError as error:
            raise invalid(
                name,
                value,
                bound,
                mend,
            ) from error

    return read


def whole_number(least: int, *, optional: bool = False) -> Read:
    """Make a reader of whole numbers of at least so much."""
    kind: Any = Annotated[int, Field(ge=least)]
    if optional:
        kind = kind | None
    bound = f"a whole number of at least {least}"
    return valid(kind, bound, "give one such as 3")


def _require_increasing(pair: tuple[float, float]) -> tuple[float, float]:
    lowest, highest = pair
    # Written so that NaN fails as well.
    if not lowest < highest:
        raise ValueError("the pair is not increasing")
    return pair


_TAKES_LISTS = Field(strict=False)
"""For TOML's lists, and tuples."""
_Digest = Annotated[str, StringConstraints(pattern=f"^{_KEY}$", to_lower=True)]
_Digests = Annotated[tuple[_Digest, ...], _TAKES_LISTS]
_Names = Annotated[tuple[InstanceOf[str], ...], _TAKES_LISTS]
_Pair = Annotated[
    tuple[float, float], _TAKES_LISTS, AfterValidator(_require_increasing)
]
_Pairs = Annotated[tuple[_Pair, ...], Field(strict=False, min_length=1)]

read_switch = valid(bool, "a boolean", "give true or false")
read_amount = valid(
    Annotated[float, Field(ge=0)],
    "a number of at least 0",
    "give a limit such as 1.0",
)
read_delta = valid(
    Annotated[float, Field(ge=0, lt=1)],
    "a number of at least 0 and below 1",
    "give one such as 1e-6",
)
read_names = valid(
    _Names,
    "a list of names",
    "put the names in brackets, or leave it empty to allow all",
)
read_digests = valid(
    _Digests,
    "a list of digests of 64 hexadecimal digits",
    "copy each of them wholly",
)
read_bounds = valid(
    _Pairs | None,
    "a list of increasing pairs",
    "give one such as [[0.0, 1.0]]",
)


def read_peers(name: str, value: object) -> tuple[tuple[str, str], ...] | None:
    """Read the pinned peers, as pairs of a name (perhaps empty) and a key.

    Taken are a table of names and keys, a list of keys, or pairs as this returns them;
    None pins nobody.
    """
    if value is None:
        return None
    entries: list[object] = []
    if isinstance(value, Mapping):
        entries = list(value.items())
    elif isinstance(value, (list, tuple)):
        entries = list(value)
    if not entries:
        # An empty list is refused, too: it would look like pins, and whether it allows
        # all or none is anybody's guess.
        bound = "a table of names and keys or a list of keys, of at least one party"
        raise invalid(
            name,
            value,
            bound,
            "list the other parties' keys, or leave it out",
        )
    pairs = tuple([_read_peer(entry) for entry in entries])
    _require_distinct("key", [key for _, key in pairs])
    _require_distinct("name", [name for name, _ in pairs if name])
    return pairs


def _read_peer(entry: object) -> tuple[str, str]:
    """Read one pinned peer: a key, or a pair of name and key (in small letters)."""
    name: object = ""
    key = entry
    if isinstance(entry, (list, tuple)) and len(entry) == 2:
        name, key = entry
    is_text = isinstance(name, str) and name.isprintable()
    if not isinstance(name, str) or not is_text or len(name) > LONGEST_QUOTE:
        raise ConfigurationError(
            f"pinned_peers has the name {quote(name)}, but a name has at most"
            f" {LONGEST_QUOTE} printable characters: shorten it."
        )
    if not isinstance(key, str) or not re.fullmatch(_KEY, key):
        raise ConfigurationError(
            f"pinned_peers has the key {quote(key)}, but a key has 64 hexadecimal"
            " digits: copy what 'python -m flwr_dpkmeans identity show PATH' prints on"
            " that party's machine."
        )
    return name, key.lower()


def _require_distinct(what: str, items: list[str]) -> None:
    for item in items:
        if items.count(item) > 1:
            raise ConfigurationError(
                f"pinned_peers has the {what} {quote(item)} twice, but each party"
                " has one of its own: remove one."
            )
