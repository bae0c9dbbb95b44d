"""Which nodes take part in a run, by name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from flwr_dpkmeans.errors import (
    CohortError,
    ConfigurationError,
    invalid,
    listed,
    nearest,
)


@dataclass(frozen=True)
class Parties:
    """Nodes by the names that the SuperLink's operator registered their keys under.

    Nobody else gets a message of the run.

    Examples
    --------
    >>> parties = Parties.of_texts("ward-7, ward-9")
    >>> parties.among({2: "ward-7", 3: "ward-8"}), parties.missing({2: "ward-7"})
    ({2: 'ward-7'}, ('ward-9',))
    """

    names: tuple[str, ...] = ()
    """Those that take part, all of them; empty: whoever joins."""
    without: tuple[str, ...] = ()
    """Those of whoever joins that do not."""

    def __post_init__(self) -> None:
        """Refuse names that are written twice, and those that exclude each other."""
        for option in ("names", "without"):
            names: object = getattr(self, option)
            if not isinstance(names, tuple) or not all(map(_is_name, names)):
                raise invalid(option, names, "a tuple of names", "correct it")
        twice = [name for name, times in Counter(self.names).items() if times > 1]
        if twice:
            raise ConfigurationError(
                f"parties name {listed(twice)} more than once: name each once."
            )
        if self.names and self.without:
            raise ConfigurationError(
                f"parties are {listed(self.names)}, and without is"
                f" {listed(self.without)}: give one of them, as the first says it all."
            )

    @classmethod
    def of_texts(cls, names: str = "", without: str = "") -> Parties:
        """Read names that stand between commas."""
        return cls(_split(names), _split(without))

    @classmethod
    def stated(cls, names: object) -> Parties:
        """What a caller gives as ``parties``: names, a text of them, or these."""
        if isinstance(names, Parties):
            return names
        if names is None or isinstance(names, str):
            return cls.of_texts(names or "")
        if not isinstance(names, Sequence):
            raise invalid(
                "parties", names, "names", 'give such as ["ward-7", "ward-9"]'
            )
        return cls(tuple(names))

    def expected(self, n_clients: int | None) -> int | None:
        """How many are waited for, where that is stated, or follows from the names."""
        if not self.names:
            return n_clients
        if n_clients not in (None, len(self.names)):
            raise ConfigurationError(
                f"num-clients is {n_clients}, but {len(self.names)} parties are named"
                f" ({listed(self.names)}): leave num-clients out."
            )
        return len(self.names)

    def chosen(self, invited: Iterable[str]) -> tuple[str, ...]:
        """Of those that are invited, those that take part.

        Raises
        ------
        ConfigurationError
            If one that is named is not invited: nobody waits for a misspelt name.
        """
        all_of_them = tuple(invited)
        for name in (*self.names, *self.without):
            if name not in all_of_them:
                raise ConfigurationError(
                    f"no party {name!r} is invited: {nearest(name, all_of_them)}"
                )
        if self.names:
            return self.names
        return tuple(name for name in all_of_them if name not in self.without)

    def among(self, nodes: Mapping[int, str]) -> dict[int, str]:
        """Of the nodes that are there, by id, those that may take part.

        Raises
        ------
        CohortError
            If two of them have the name of one party: one would stand for the other.
        """
        taking_part: dict[int, str] = {}
        for node, name in sorted(nodes.items()):
            is_named = name in self.names if self.names else name not in self.without
            if is_named:
                taking_part[node] = name
        times = Counter(taking_part.values())
        twice = [name for name in self.names if times[name] > 1]
        if twice:
            raise CohortError(
                f"{times[twice[0]]} nodes are named {twice[0]!r}: have the SuperLink's"
                " operator register each key under a name of its own."
            )
        return taking_part

    def missing(self, nodes: Mapping[int, str]) -> tuple[str, ...]:
        """Parties that are named and not there."""
        there = set(nodes.values())
        return tuple(name for name in self.names if name not in there)


def _split(text: str) -> tuple[str, ...]:
    names = [name.strip() for name in text.split(",")]
    return tuple(name for name in names if name)


def _is_name(name: object) -> bool:
    return isinstance(name, str) and name.strip() != ""


ANYBODY = Parties()
"""Whoever joins."""
