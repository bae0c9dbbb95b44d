"""Tasks and trust models by name: the package's own, those that were registered, and those of installed packages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.metadata import entry_points
from typing import TypeVar

from flwr_dpkmeans.errors import ConfigurationError

ItemT = TypeVar("ItemT")


class Registry(Mapping[str, ItemT]):
    """Things by name: those that were added, and those that installed packages offer by an entry point.

    Parameters
    ----------
    group : str
        Of entry points, which are loaded when somebody asks for a name that was not added, or for all.
    """

    def __init__(self, group: str) -> None:
        self._group, self._items, self._complete = group, dict[str, ItemT](), False

    def add(self, name: str, item: ItemT) -> None:
        """Make an item known; another one of the same name is refused, since plans name it."""
        if self._items.setdefault(name, item) is not item:
            raise ConfigurationError(f"{name!r} is registered already: choose another name.")

    def remove(self, name: str) -> None:
        """Forget an item, as tests do."""
        del self._items[name]

    def __getitem__(self, name: str) -> ItemT:
        if name not in self._items:
            self._load()
        return self._items[name]

    def __iter__(self) -> Iterator[str]:
        self._load()
        return iter(tuple(self._items))

    def __len__(self) -> int:
        self._load()
        return len(self._items)

    def _load(self) -> None:
        """Ask the installed packages, once."""
        if not self._complete:
            self._complete = True
            for point in entry_points(group=self._group):
                self._items.setdefault(point.name, point.load())
