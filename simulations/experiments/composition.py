"""Configurations composed by Hydra, once for each choice of groups, and copies with
other plain values.

Hydra composes one configuration per job, which takes longer than many a job here. So
values that nothing else refers to are put into copies of what it composed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, ValueType
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from flwr_dpkmeans.algorithms.lookup import clusterings
from flwr_dpkmeans.algorithms.one_place.not_federated import NOT_FEDERATED
from flwr_dpkmeans.errors import ConfigurationError, nearest
from flwr_dpkmeans.options import options_of
from flwr_dpkmeans.sums.trust import TRUST_MODELS

_LINK = re.compile(r"\$\{([A-Za-z_][\w.]*)\}")


@dataclass(frozen=True)
class Template:
    """A composed configuration, and which of its leaves are another one's value."""

    resolved: Mapping[str, Any]
    links: Mapping[str, str]

    def changed(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """A copy with other leaves, and what is linked to them; the rest is shared."""
        linked = {}
        for leaf in self.links:
            source = self._source(leaf, values)
            if source in values:
                linked[leaf] = values[source]
        return _changed(self.resolved, {**linked, **values})

    def _source(self, leaf: str, values: Mapping[str, Any]) -> str:
        """Where a leaf's value comes from, through links to links."""
        while leaf in self.links and leaf not in values:
            leaf = self.links[leaf]
        return leaf


def single_overrides(override: Override) -> list[str]:
    """An override's single values as overrides."""
    key = override.get_key_element()
    if not override.is_sweep_override():
        return [f"{key}={override.get_value_element_as_str()}"]
    return [f"{key}={value}" for value in override.sweep_string_iterator()]


def _changed(
    template: Mapping[str, Any], values: Mapping[str, Any]
) -> Mapping[str, Any]:
    """A copy with other leaves; what is not changed is shared."""
    copy = dict(template)
    for name, value in values.items():
        *groups, leaf = name.split(".")
        inner = copy
        for group in groups:
            inner[group] = dict(inner[group])
            inner = inner[group]
        inner[leaf] = deepcopy(value)
    return copy


def parse_overrides(overrides: Sequence[str]) -> dict[str, Override]:
    """Overrides by key; the last one of a key wins."""
    try:
        parsed = OverridesParser.create().parse_overrides(list(overrides))
        for override in parsed:
            if override.value_type in (
                ValueType.GLOB_CHOICE_SWEEP,
                ValueType.INTERVAL_SWEEP,
            ):
                raise ConfigurationError(
                    f"{override.input_line!r} has no finite list of values: give"
                    " choices or range(start,stop)."
                )
            if override.is_delete():
                raise ConfigurationError(
                    f"{override.input_line!r} takes a key away, but runs need all of"
                    " them: give it another value."
                )
            if override.is_sweep_override() and not any(
                True for _ in override.sweep_string_iterator()
            ):
                raise ConfigurationError(
                    f"{override.input_line!r} has no value: give at least one."
                )
            if (
                bare_key(override.get_key_element()).split(".")[0].split("/")[0]
                == "hydra"
            ):
                raise ConfigurationError(
                    f"{override.input_line!r} changes nothing here: the folder of"
                    " results is output=..., the number of processes workers=..."
                )
    except HydraException as error:
        raise ConfigurationError(
            f"an override cannot be read: {str(error).splitlines()[0]}"
        ) from error
    return {bare_key(override.get_key_element()): override for override in parsed}


def compose_template(overrides: Iterable[Override], folder: Path) -> Template:
    """Compose with Hydra and resolve; refuse what is unknown with the nearest name."""
    parsed = list(overrides)
    groups = groups_in(folder)
    chosen = [
        override
        for override in parsed
        if bare_key(override.get_key_element()) in groups
    ]
    for override in chosen:
        require_choice(override, groups)
    try:
        composed = compose("config", _lines(parsed))
        resolved = OmegaConf.to_container(composed, resolve=True, throw_on_missing=True)
        raw = OmegaConf.to_container(composed, resolve=False)
    except (HydraException, OmegaConfBaseException) as error:
        # Only now is it worth a second composition to find what Hydra did not know.
        with suppress(HydraException, OmegaConfBaseException):
            plain = OmegaConf.to_container(
                compose("config", _lines(chosen)), resolve=False
            )
            for override in parsed:
                if override not in chosen:
                    require_key(plain, bare_key(override.get_key_element()), groups)
        raise ConfigurationError(
            f"the configuration cannot be composed: {str(error).splitlines()[0]}"
        ) from error
    leaves = dict(_leaves(raw, ""))
    links = {}
    for name, value in leaves.items():
        match = _LINK.fullmatch(str(value))
        if match:
            links[name] = match[1]
    assert isinstance(resolved, dict)
    return Template({str(key): value for key, value in resolved.items()}, links)


def _lines(overrides: Iterable[Override]) -> list[str]:
    """Overrides as Hydra takes them."""
    return [
        f"{override.get_key_element()}={override.get_value_element_as_str()}"
        for override in overrides
    ]


def require_choice(override: Override, groups: Mapping[str, Sequence[str]]) -> None:
    """Refuse an option that a group does not have."""
    group, value = bare_key(override.get_key_element()), str(override.value())
    if value not in groups[group]:
        raise ConfigurationError(
            f"{group} is {value!r}, which conf/{group} has not:"
            f" {nearest(value, groups[group])}"
        )


def require_key(
    config: Any, name: str, groups: Mapping[str, Sequence[str]] | None = None
) -> None:
    """Refuse a key that the configuration does not have."""
    inner: Any = config
    for part in name.split("."):
        if not isinstance(inner, Mapping) or part not in inner:
            group, _, option = name.partition(".")
            owners = [
                repr(other)
                for other in (*clusterings(), *NOT_FEDERATED)
                if option in options_of(other)
            ]
            elsewhere = [
                key
                for key in dict(_leaves(config, ""))
                if key.rpartition(".")[2] == option
            ]
            if (
                group == "algorithm"
                and elsewhere
                and repr(config["algorithm"]["name"]) in owners
            ):
                raise ConfigurationError(
                    f"there is no key {name!r} in this configuration: give"
                    f" {elsewhere[0]!r}."
                )
            if group == "algorithm" and owners:
                raise ConfigurationError(
                    f"{name} was given, but the algorithm is"
                    f" {config['algorithm']['name']!r}, which has no such option: leave"
                    f" it out, or choose {' or '.join(owners)}."
                )
            keys = (*dict(_leaves(config, "")), *(groups or ()))
            raise ConfigurationError(
                f"there is no key {name!r} in this configuration: {nearest(name, keys)}"
            )
        inner = inner[part]


def _leaves(config: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    """Leaves by dotted names."""
    for name, value in config.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def groups_in(folder: Path) -> dict[str, list[str]]:
    """The configuration groups and their options.

    What installed packages brought needs no file.
    """
    groups = {}
    for group in sorted(folder.iterdir()):
        if group.is_dir():
            groups[group.name] = [option.stem for option in group.glob("*.yaml")]
    for name, brought in _of_packages().items():
        groups.setdefault(name, []).extend(brought)
    return {name: sorted(options) for name, options in groups.items()}


def _of_packages() -> dict[str, dict[str, Any]]:
    """Algorithms and trust models that other packages brought, by group and name.

    What a file of each would say.
    """
    algorithms = {
        name: {
            key: getattr(value, "value", value)
            for key, value in kind.option_class().defaults().items()
        }
        for name, kind in clusterings().items()
        if _is_brought(kind)
    }
    trust = {
        name: dict[str, Any]()
        for name, model in TRUST_MODELS.items()
        if _is_brought(type(model))
    }
    return {"algorithm": algorithms, "trust": trust}


def _is_brought(kind: type) -> bool:
    return kind.__module__.split(".")[0] != "flwr_dpkmeans"


def store_packages() -> None:
    """Make known to Hydra what other packages brought."""
    for group, brought in _of_packages().items():
        for name, options in brought.items():
            ConfigStore.instance().store(
                group=group, name=name, node={"name": name, **options}
            )


def referred_tokens(folder: Path, overrides: Iterable[Override]) -> set[str]:
    """Names inside interpolations, unless one name is the whole value.

    Their changes reach other keys.
    """
    whole = re.compile(r"[:=]\s*" + _LINK.pattern + r"\s*(?:#.*)?$", re.MULTILINE)
    texts = [path.read_text() for path in folder.rglob("*.yaml")]
    groups = groups_in(folder)
    lines = whole.sub(
        lambda match: match[0] if match[1] in groups else "",
        "\n".join([*texts, *(override.input_line or "" for override in overrides)]),
    )
    # From each "${" to the end of its line: more than it names, which costs time only.
    inside = " ".join(line.partition("${")[2] for line in lines.splitlines())
    return {token.strip(".") for token in re.findall(r"[\w.]+", inside)}


def is_referred(key: str, tokens: set[str]) -> bool:
    """Whether some interpolation names a key, a group around it, or its end (as seen
    from within its group).
    """
    parts = key.split(".")
    around = {".".join(parts[:end]) for end in range(1, len(parts) + 1)}
    ends = {".".join(parts[start:]) for start in range(1, len(parts))}
    return bool((around | ends) & tokens)


def bare_key(key: str) -> str:
    """A key without Hydra's signs."""
    return key.lstrip("+~").split("@")[0]


@contextmanager
def hydra_folder(folder: Path) -> Iterator[None]:
    """Hydra's global state for the duration."""
    store_packages()
    with initialize_config_dir(str(folder), version_base=None):
        yield
