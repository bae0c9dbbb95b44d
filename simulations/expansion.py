"""From Hydra overrides to the configurations of all runs of a sweep, each complete and checked before the first is run.

Hydra composes one configuration per job, which takes longer than many a job here. So it composes once for each choice
of groups, and plain values that nothing else refers to are put into copies.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, ValueType
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from flwr_dpkmeans.errors import ConfigurationError, DataError, nearest
from simulations.configuration import job_key, require_valid
from simulations.datasets import require_source

CONFIGURATION = Path(__file__).resolve().parents[1] / "conf"
EXPERIMENT = "experiment"
_COMMON = (EXPERIMENT, "output", "workers", "data_dir")
"""Keys that say something of a sweep as a whole."""
_OF_ALL_DATA = ("data.name", "data.n_clusters", "data.bounds", "data.label_column", "data.server")
"""Keys that every option of conf/data has, so a sweep that sets them takes any other data set as well."""
_LINK = re.compile(r"\$\{([A-Za-z_][\w.]*)\}")


@dataclass(frozen=True)
class Sweep:
    """All runs of one command.

    Parameters
    ----------
    name : str or None
        Of the experiment in ``conf/experiment``, if there is one.
    settings : tuple of mapping
        One resolved configuration for each run, none twice.
    common : mapping
        The configuration without what the runs differ in: ``output``, ``workers``, and ``sweep`` with the figures.
    missing : tuple of str
        Data sets that the experiment names and whose files are not there.
    """

    name: str | None
    settings: tuple[Mapping[str, Any], ...]
    common: Mapping[str, Any]
    missing: tuple[str, ...] = ()


def expand(overrides: Sequence[str], folder: Path = CONFIGURATION) -> Sweep:
    """Compose every configuration that overrides ask for.

    Parameters
    ----------
    overrides : sequence of str
        As on Hydra's command line: ``algorithm=fastlloyd,glloyd``, ``seed=range(0,5)``, ``+experiment=NAME``.
    folder : Path
        With ``config.yaml`` and its groups.

    Returns
    -------
    Sweep

    Raises
    ------
    ConfigurationError, DataError
        One sentence: an unknown group, key, choice or value with the nearest valid one, or a missing data file.

    Examples
    --------
    >>> sweep = expand(["algorithm=fastlloyd,lloyd", "data=iris", "seed=range(0,3)"])
    >>> len(sweep.settings), sweep.settings[-1]["algorithm"]["name"], sweep.settings[-1]["seed"]
    (6, 'lloyd', 2)
    """
    given = _parsed([_with_plus(one) for one in overrides])
    name = _experiment(given, folder)
    with _hydra(folder):
        common = _composed(_of_all_runs(given), folder).resolved
        grids = [_parsed([f"{key}={_text(value)}" for key, value in grid.items()]) for grid in common["sweep"]["grids"]]
        found: dict[str, Mapping[str, Any]] = {}
        for asked in narrowed(grids, given) or [given]:
            for point in _points(asked, folder):
                found.setdefault(job_key(point), point)
    settings, missing = _with_their_data(tuple(found.values()), may_miss=name is not None and "data" not in given)
    for one in settings:
        require_valid(one)
    # Without an experiment even a folder that is named after the data is right.
    return Sweep(name, settings, common if grids else settings[0], missing)


def narrowed(grids: Sequence[Mapping[str, Override]], given: Mapping[str, Override]) -> list[dict[str, Override]]:
    """Change an experiment's sweeps as the command line says.

    Parameters
    ----------
    grids : sequence of mapping
        Overrides by key, one mapping for each sweep.
    given : mapping
        Of the command line. Most keys replace those of every sweep. Of ``algorithm`` and ``data`` each sweep keeps the
        values that are asked for; a value that no sweep has is added to the sweeps without options of their own for
        that group.

    Returns
    -------
    list of dict
        Sweeps that have something left.

    Raises
    ------
    ConfigurationError
        If a value that is asked for fits no sweep.
    """
    left: list[dict[str, Override]] = [{**grid, **given} for grid in grids]
    original = list(grids)
    for group in ("algorithm", "data"):
        if group not in given or not grids:
            continue
        asked = _values(given[group])
        everywhere = {value for grid in grids if group in grid for value in _values(grid[group])}
        kept = [_kept(group, asked, grid, everywhere) for grid in original]
        for value in asked:
            if not any(value in names for names in kept):
                raise ConfigurationError(
                    f"{group}={value} fits no sweep of this experiment, since each sets options of its own {group}: "
                    "leave it out, or sweep with -m without the experiment."
                )
        chosen = [place for place, names in enumerate(kept) if names]
        left = [{**left[place], **_parsed([f"{group}={','.join(kept[place])}"])} for place in chosen]
        original = [original[place] for place in chosen]
    return left


def _kept(group: str, asked: Sequence[str], grid: Mapping[str, Override], everywhere: set[str]) -> list[str]:
    """What one sweep keeps of the choices that are asked for."""
    own = any(key.startswith(f"{group}.") and key not in _OF_ALL_DATA for key in grid)
    listed = _values(grid[group]) if group in grid else []
    return [value for value in asked if value in listed or (value not in everywhere and not own)]


def _of_all_runs(given: Mapping[str, Override]) -> list[Override]:
    """Overrides that say what the runs have in common."""
    for key, override in given.items():
        if key in _COMMON and key != "data_dir" and override.is_sweep_override():
            raise ConfigurationError(f"{override.input_line!r} has several values: a sweep has one {key}.")
    return [one for key, one in given.items() if key in _COMMON and not one.is_sweep_override()]


def _text(value: Any) -> str:
    """A value of an experiment's file as an override has it."""
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _values(override: Override) -> list[str]:
    """Names that a choice of groups lists."""
    return [str(value) for value in _plain_values(override)]


def _plain_values(override: Override) -> list[Any]:
    """An override's single values, as Hydra would set them."""
    key = _bare(override.get_key_element())
    return [_parsed([line])[key].value() for line in _each(override)]


def _with_their_data(
    settings: tuple[Mapping[str, Any], ...], *, may_miss: bool
) -> tuple[tuple[Mapping[str, Any], ...], tuple[str, ...]]:
    """Runs whose data are there; an experiment goes on without data sets whose files nobody has put there."""
    missing: dict[str, DataError] = {}
    for data in {repr(one["data"]): one["data"] for one in settings}.values():
        try:
            require_source(data)
        except DataError as error:
            missing[str(data["name"])] = error
    left = tuple(one for one in settings if str(one["data"]["name"]) not in missing)
    if missing and not (may_miss and left):
        raise next(iter(missing.values()))
    return left, tuple(missing)


def _points(asked: Mapping[str, Override], folder: Path) -> Iterator[Mapping[str, Any]]:
    """All points of one grid: composed for groups and for keys that others refer to, copied for the rest."""
    groups = set(_groups(folder))
    tokens = _tokens(folder, asked.values())
    fixed: list[Override] = []
    moving: dict[str, list[Any]] = {}
    first: list[str] = []
    for key, override in asked.items():
        values = _plain_values(override) if override.is_sweep_override() and key not in groups else []
        if not values or _is_referred(key, tokens) or not all(_is_plain(value) for value in values):
            fixed.append(override)
        else:
            moving[key] = values
            first.append(_each(override)[0])
    for choice in itertools.product(*(_each(override) for override in fixed)):
        # With the first of each value: some keys have none of their own, and Hydra refuses keys that it does not know.
        template = _composed(_parsed([*choice, *first]).values(), folder)
        for combination in itertools.product(*moving.values()):
            yield template.changed(dict(zip(moving, combination, strict=True)))


def _is_plain(value: Any) -> bool:
    """Whether a value can be put into a copy: neither resolved nor merged by Hydra."""
    if isinstance(value, list):
        return all(_is_plain(one) for one in value)
    return not isinstance(value, dict) and not (isinstance(value, str) and ("${" in value or value == "???"))


@dataclass(frozen=True)
class _Template:
    """A composed configuration, and which of its leaves are another one's value."""

    resolved: Mapping[str, Any]
    links: Mapping[str, str]

    def changed(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """A copy with other leaves, and what is linked to them; the rest is shared."""
        linked = {leaf: values[source] for leaf in self.links if (source := self._source(leaf, values)) in values}
        return _changed(self.resolved, {**linked, **values})

    def _source(self, leaf: str, values: Mapping[str, Any]) -> str:
        """Where a leaf's value comes from, through links to links."""
        while leaf in self.links and leaf not in values:
            leaf = self.links[leaf]
        return leaf


def _each(override: Override) -> list[str]:
    """An override's single values as overrides."""
    key = override.get_key_element()
    if not override.is_sweep_override():
        return [f"{key}={override.get_value_element_as_str()}"]
    return [f"{key}={value}" for value in override.sweep_string_iterator()]


def _changed(template: Mapping[str, Any], values: Mapping[str, Any]) -> Mapping[str, Any]:
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


def _parsed(overrides: Sequence[str]) -> dict[str, Override]:
    """Overrides by key; the last one of a key wins."""
    try:
        parsed = OverridesParser.create().parse_overrides(list(overrides))
        for override in parsed:
            if override.value_type in (ValueType.GLOB_CHOICE_SWEEP, ValueType.INTERVAL_SWEEP):
                raise ConfigurationError(
                    f"{override.input_line!r} has no finite list of values: give choices or range(start,stop)."
                )
            if override.is_delete():
                raise ConfigurationError(
                    f"{override.input_line!r} takes a key away, but runs need all of them: give it another value."
                )
            if override.is_sweep_override() and not any(True for _ in override.sweep_string_iterator()):
                raise ConfigurationError(f"{override.input_line!r} has no value: give at least one.")
            if _bare(override.get_key_element()).split(".")[0].split("/")[0] == "hydra":
                raise ConfigurationError(
                    f"{override.input_line!r} changes nothing here: the folder of results is output=..., the number "
                    "of processes workers=..."
                )
    except HydraException as error:
        raise ConfigurationError(f"an override cannot be read: {str(error).splitlines()[0]}") from error
    return {_bare(override.get_key_element()): override for override in parsed}


def _composed(overrides: Iterable[Override], folder: Path) -> _Template:
    """Compose with Hydra and resolve; what is unknown is refused with the nearest name."""
    given = list(overrides)
    groups = _groups(folder)
    chosen = [one for one in given if _bare(one.get_key_element()) in groups]
    for one in chosen:
        _require_choice(one, groups)
    try:
        composed = compose("config", _lines(given))
        resolved = OmegaConf.to_container(composed, resolve=True, throw_on_missing=True)
        raw = OmegaConf.to_container(composed, resolve=False)
    except (HydraException, OmegaConfBaseException) as error:
        # Only now is it worth a second composition to find what Hydra did not know.
        with suppress(HydraException, OmegaConfBaseException):
            plain = OmegaConf.to_container(compose("config", _lines(chosen)), resolve=False)
            for one in given:
                if one not in chosen:
                    _require_key(plain, _bare(one.get_key_element()), groups)
        raise ConfigurationError(f"the configuration cannot be composed: {str(error).splitlines()[0]}") from error
    leaves = dict(_leaves(raw, ""))
    links = {name: match[1] for name, value in leaves.items() if (match := _LINK.fullmatch(str(value)))}
    assert isinstance(resolved, dict)
    return _Template({str(key): value for key, value in resolved.items()}, links)


def _lines(overrides: Iterable[Override]) -> list[str]:
    """Overrides as Hydra takes them."""
    return [f"{one.get_key_element()}={one.get_value_element_as_str()}" for one in overrides]


def _require_choice(override: Override, groups: Mapping[str, Sequence[str]]) -> None:
    """Refuse an option that a group does not have."""
    group, value = _bare(override.get_key_element()), str(override.value())
    if value not in groups[group]:
        raise ConfigurationError(f"{group} is {value!r}, which conf/{group} has not: {nearest(value, groups[group])}")


def _require_key(config: Any, name: str, groups: Mapping[str, Sequence[str]] | None = None) -> None:
    """Refuse a key that the configuration does not have."""
    inner: Any = config
    for part in name.split("."):
        if not isinstance(inner, Mapping) or part not in inner:
            known = (*dict(_leaves(config, "")), *(groups or ()))
            raise ConfigurationError(f"there is no key {name!r} in this configuration: {nearest(name, known)}")
        inner = inner[part]


def _leaves(config: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    """Leaves by dotted names."""
    for name, value in config.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _groups(folder: Path) -> dict[str, list[str]]:
    """The configuration groups and their options."""
    return {
        group.name: sorted(option.stem for option in group.glob("*.yaml"))
        for group in sorted(folder.iterdir())
        if group.is_dir()
    }


def _tokens(folder: Path, overrides: Iterable[Override]) -> set[str]:
    """Names inside interpolations, unless one name is the whole value: their changes reach other keys."""
    whole = re.compile(r"[:=]\s*" + _LINK.pattern + r"\s*(?:#.*)?$", re.MULTILINE)
    texts = [path.read_text() for path in folder.rglob("*.yaml")]
    groups = _groups(folder)
    lines = whole.sub(
        lambda found: found[0] if found[1] in groups else "",
        "\n".join([*texts, *(override.input_line or "" for override in overrides)]),
    )
    # From each "${" to the end of its line: more than it names, which costs time only.
    inside = " ".join(line.partition("${")[2] for line in lines.splitlines())
    return {token.strip(".") for token in re.findall(r"[\w.]+", inside)}


def _is_referred(key: str, tokens: set[str]) -> bool:
    """Whether some interpolation names a key, a group around it, or its end (as seen from within its group)."""
    parts = key.split(".")
    around = {".".join(parts[:end]) for end in range(1, len(parts) + 1)}
    ends = {".".join(parts[start:]) for start in range(1, len(parts))}
    return bool((around | ends) & tokens)


def _with_plus(override: str) -> str:
    """Keys that there are need none of Hydra's plus signs; an experiment is appended by one."""
    bare = override.lstrip("+")
    return f"+{bare}" if bare.startswith(f"{EXPERIMENT}=") else bare


def _experiment(given: Mapping[str, Override], folder: Path) -> str | None:
    """Name of the experiment; only one at a time."""
    if EXPERIMENT not in given:
        return None
    override = given[EXPERIMENT]
    if override.is_sweep_override():
        raise ConfigurationError(f"{override.input_line!r} names several experiments: run one at a time.")
    _require_choice(override, _groups(folder))
    return str(override.value())


def _bare(key: str) -> str:
    """A key without Hydra's signs."""
    return key.lstrip("+~").split("@")[0]


@contextmanager
def _hydra(folder: Path) -> Iterator[None]:
    """Hydra's global state for the duration."""
    with initialize_config_dir(str(folder), version_base=None):
        yield
