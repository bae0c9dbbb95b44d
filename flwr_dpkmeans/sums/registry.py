"""Things by name: those that were added, and those that installed packages offer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, MutableMapping
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import TypeVar

from flwr_dpkmeans.errors import ConfigurationError, nearest
from flwr_dpkmeans.log import placed_logger

_logger = placed_logger("flwr_dpkmeans.plugins")
ItemT = TypeVar("ItemT")


class Registry(MutableMapping[str, ItemT]):
    """Things by name: those that were added, and those that packages offer.

    Installed packages offer them by an entry point of a group.

    Items that were offered by their place are imported when somebody asks for their
    name, or for all; entry points when somebody asks for a name that is neither offered
    nor added, or for all.
    """

    def __init__(
        self,
        group: str,
        option: str = "the name",
        require: Callable[[str, ItemT], None] | None = None,
        installed: Callable[..., Iterable[EntryPoint]] = entry_points,
    ) -> None:
        self._installed = installed
        self._group = group
        self._option = option
        self._require = require
        self._complete = False
        self._places: dict[str, str] = {}
        self._items: dict[str, ItemT] = {}
        self._unusable: dict[str, str] = {}

    def add(
        self,
        name: str,
        item: ItemT,
    ) -> None:
        """Make an item known.

        Another one of the same name is refused, since plans name it.
        """
        if self._require is not None:
            self._require(name, item)
        self._import(name)
        if self._items.setdefault(name, item) is not item:
            raise ConfigurationError(
                f"{name!r} is registered already: choose another name."
            )

    def offer(self, name: str, place: str) -> None:
        """Make an item known by its place, ``module:name``."""
        self._places[name] = place

    def _import(self, name: str) -> None:
        """Import an item that was offered."""
        place = self._places.get(name)
        if place is None or name in self._items:
            return
        module, attribute = place.split(":")
        item: ItemT = getattr(import_module(module), attribute)
        if self._require is not None:
            self._require(name, item)
        self._items[name] = item

    def find(self, name: str, *others: str) -> ItemT:
        """Return the item of a name.

        Another name is a `ConfigurationError` with the nearest that is known, or of
        `others`.
        """
        # Asking whether a name is there loads the entry points, which costs time.
        if name not in self._items and name not in self:
            if name in self._unusable:
                raise ConfigurationError(
                    f"{self._option} is {name!r}, but {self._unusable[name]}."
                )
            # What is made by a class of its own has a name for plans only.
            offered = [
                key for key, item in self.items() if not getattr(item, "door", "")
            ]
            suggestion = nearest(name, (*offered, *others))
            raise ConfigurationError(
                f"{self._option} is {name!r}, which is not known: {suggestion}"
            )
        return self._items[name]

    def __getitem__(self, name: str) -> ItemT:
        self._import(name)
        if name not in self._items:
            self._load()
        return self._items[name]

    def __setitem__(self, name: str, item: ItemT) -> None:
        """Let a name stand for an item, whatever it stood for; `add` asks first."""
        self._items[name] = item

    def __delitem__(self, name: str) -> None:
        self._places.pop(name, None)
        self._items.pop(name, None)

    def __iter__(self) -> Iterator[str]:
        self._load()
        added = [name for name in self._items if name not in self._places]
        return iter((*self._places, *added))

    def __len__(self) -> int:
        return len(tuple(iter(self)))

    def _load(self) -> None:
        for name in self._places:
            self._import(name)
        if self._complete:
            return
        self._complete = True
        for point in self._installed(group=self._group):
            # One that cannot be used costs nobody the others.
            try:
                self.add(point.name, point.load())
            except Exception as error:
                self._note_unusable(point, error)

    def _note_unusable(
        self,
        point: EntryPoint,
        error: Exception,
    ) -> None:
        """Say so where an installed package's item cannot be used."""
        if isinstance(error, ConfigurationError):
            why = str(error).rstrip(".")
        else:
            why = f"{type(error).__name__}: {error}"
        sentence = f"what is installed as {point.value!r} cannot be used ({why})"
        self._unusable[point.name] = sentence
        _logger.warning("%s %r: %s", self._group, point.name, sentence)
