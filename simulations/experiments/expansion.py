"""From Hydra overrides to the configurations of all runs of a sweep, each complete and
checked before any is run.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

try:
    from hydra.core.override_parser.types import Override
except ModuleNotFoundError as error:
    raise SystemExit(
        f"{error.name} is not installed: pip install -e '.[simulations]'"
    ) from error

from flwr_dpkmeans.errors import ConfigurationError, DataError
from flwr_dpkmeans.sums.public_facts import ServerData
from flwr_dpkmeans.sums.task import TASKS
from simulations.experiments.composition import (
    bare_key,
    compose_template,
    groups_in,
    hydra_folder,
    is_referred,
    parse_overrides,
    referred_tokens,
    require_choice,
    single_overrides,
)
from simulations.experiments.configuration import job_key, require_valid
from simulations.experiments.datasets import OWN, require_source

CONFIGURATION = Path(__file__).resolve().parents[2] / "conf"
EXPERIMENT, EPSILON = "experiment", "privacy.epsilon"
_COMMON = (EXPERIMENT, "output", "workers", "data_dir", "other_code", "sweep.figures")
"""Keys that say something of a sweep as a whole."""
_OF_ALL_DATA = (
    "data.name",
    "data.n_clusters",
    "data.bounds",
    "data.label_column",
    "data.server",
)
"""Keys that every option of conf/data has, so a sweep that sets them takes any other
data set as well.
"""


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
        The configuration without what the runs differ in: ``output``, ``workers``, and
        ``sweep`` with the figures.
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
        As on Hydra's command line: ``algorithm=fastlloyd,glloyd``, ``seed=range(0,5)``,
        ``+experiment=NAME``.
    folder : Path
        With ``config.yaml`` and its groups.

    Returns
    -------
    Sweep

    Raises
    ------
    ConfigurationError, DataError
        One sentence: an unknown group, key, choice or value with the nearest valid one,
        or a missing data file.

    Examples
    --------
    >>> sweep = expand(["algorithm=fastlloyd,lloyd", "data=iris", "seed=range(0,3)"])
    >>> last = sweep.settings[-1]
    >>> len(sweep.settings), last["algorithm"]["name"], last["seed"]
    (6, 'lloyd', 2)
    """
    command_line = parse_overrides([_with_plus(override) for override in overrides])
    name = _experiment(command_line, folder)
    with hydra_folder(folder):
        common = compose_template(_of_all_runs(command_line), folder).resolved
        grids = [
            parse_overrides([f"{key}={_text(value)}" for key, value in grid.items()])
            for grid in common["sweep"]["grids"]
        ]
        runs: dict[str, Mapping[str, Any]] = {}
        for sweep_grid in narrowed(grids, command_line) or [command_line]:
            for point in _points(sweep_grid, folder):
                runs.setdefault(job_key(point), point)
    settings, missing = _with_their_data(
        tuple(runs.values()), may_miss=name is not None and "data" not in command_line
    )
    for run in settings:
        require_valid(run)
    # Without an experiment even a folder that is named after the data is right.
    return Sweep(name, settings, common if grids else settings[0], missing)


def narrowed(
    grids: Sequence[Mapping[str, Override]], command_line: Mapping[str, Override]
) -> list[dict[str, Override]]:
    """Change an experiment's sweeps as the command line says.

    Parameters
    ----------
    grids : sequence of mapping
        Overrides by key, one mapping for each sweep.
    command_line : mapping
        Overrides by key. Most keys replace those of every sweep; an algorithm's
        option that some sweeps set replaces theirs alone, as the others' algorithms may
        not have it. Of ``algorithm`` and ``data`` each sweep keeps the values that are
        asked for; a value that no sweep has is added to the sweeps without options of
        their own for that group, an algorithm with the epsilons of the experiment and
        once for the same data.

    Returns
    -------
    list of dict
        Sweeps that have something left.

    Raises
    ------
    ConfigurationError
        If a value that is asked for fits no sweep.
    """
    swept = {key for grid in grids for key in grid if key.startswith("algorithm.")}
    left = []
    for grid in grids:
        changed = dict(grid)
        for key, override in command_line.items():
            if key in grid or key not in swept:
                changed[key] = override
        left.append(changed)
    original = list(grids)
    swept_epsilon = next(
        ({EPSILON: grid[EPSILON]} for grid in grids if EPSILON in grid), {}
    )
    for group in ("algorithm", "data"):
        if group not in command_line or not grids:
            continue
        wanted = _values(command_line[group])
        listed = [_values(grid[group]) if group in grid else [] for grid in original]
        # Values that no sweep has, with the sweeps that they are added to.
        joined = {
            value: _joined(group, value, original)
            for value in set(wanted).difference(*listed)
        }
        values_of_grids = []
        for index, names in enumerate(listed):
            values_of_grids.append(
                [
                    value
                    for value in wanted
                    if value in names or index in joined.get(value, ())
                ]
            )
        for value in wanted:
            if not any(value in values for values in values_of_grids):
                raise ConfigurationError(
                    f"{group}={value} fits no sweep of this experiment, since each sets"
                    f" options of its own {group}: leave it out, or sweep with -m"
                    " without the experiment."
                )
        chosen = [index for index, values in enumerate(values_of_grids) if values]
        epsilons: dict[int, dict[str, Override]] = {}
        if group == "algorithm":
            # Those without privacy are one run for any epsilon.
            epsilons = dict.fromkeys(itertools.chain(*joined.values()), swept_epsilon)
        narrower = []
        for index in chosen:
            text = ",".join(values_of_grids[index])
            of_group = parse_overrides([f"{group}={text}"])
            narrower.append({**epsilons.get(index, {}), **left[index], **of_group})
        left = narrower
        original = [original[place] for place in chosen]
    return left


def _joined(
    group: str, value: str, grids: Sequence[Mapping[str, Override]]
) -> list[int]:
    """Places of the sweeps that a choice joins which none of them lists."""
    places = [
        place
        for place, grid in enumerate(grids)
        if not any(
            key.startswith(f"{group}.") and key not in _OF_ALL_DATA for key in grid
        )
    ]
    if group != "algorithm":
        return places
    places = [place for place in places if EPSILON in grids[place]] or places
    if getattr(TASKS.get(value), "server_data", None) is ServerData.OPTIONAL:
        return places
    # To others it is one whether the data's own server points are given.
    alike: dict[frozenset[str | None], int] = {}
    for place in places:
        others = {
            key: override
            for key, override in grids[place].items()
            if key not in ("algorithm", "variant")
        }
        if "data.server" in others and others["data.server"].value() in (None, OWN):
            del others["data.server"]
        alike.setdefault(
            frozenset(override.input_line for override in others.values()), place
        )
    return list(alike.values())


def _of_all_runs(command_line: Mapping[str, Override]) -> list[Override]:
    """Overrides that say what the runs have in common."""
    for key, override in command_line.items():
        if key in _COMMON and key != "data_dir" and override.is_sweep_override():
            raise ConfigurationError(
                f"{override.input_line!r} has several values: a sweep has one {key}."
            )
    return [
        override
        for key, override in command_line.items()
        if key in _COMMON and not override.is_sweep_override()
    ]


def _text(value: Any) -> str:
    """A value of an experiment's file as an override has it."""
    return (
        "null"
        if value is None
        else str(value).lower()
        if isinstance(value, bool)
        else str(value)
    )


def _values(override: Override) -> list[str]:
    """Names that a choice of groups lists."""
    return [str(value) for value in _plain_values(override)]


def _plain_values(override: Override) -> list[Any]:
    """An override's single values, as Hydra would set them."""
    key = bare_key(override.get_key_element())
    return [parse_overrides([line])[key].value() for line in single_overrides(override)]


def _with_their_data(
    settings: tuple[Mapping[str, Any], ...], *, may_miss: bool
) -> tuple[tuple[Mapping[str, Any], ...], tuple[str, ...]]:
    """Runs whose data are there.

    An experiment goes on without data sets whose files nobody has put there.
    """
    missing: dict[str, DataError] = {}
    for data in {repr(run["data"]): run["data"] for run in settings}.values():
        try:
            require_source(data)
        except DataError as error:
            missing[str(data["name"])] = error
    left = tuple(run for run in settings if str(run["data"]["name"]) not in missing)
    if missing and not (may_miss and left):
        raise next(iter(missing.values()))
    return left, tuple(missing)


def _points(grid: Mapping[str, Override], folder: Path) -> Iterator[Mapping[str, Any]]:
    """All points of one grid: composed for groups and for keys that others refer to,
    copied for the rest.
    """
    groups = set(groups_in(folder))
    tokens = referred_tokens(folder, grid.values())
    fixed: list[Override] = []
    moving: dict[str, list[Any]] = {}
    first: list[str] = []
    for key, override in grid.items():
        values = (
            _plain_values(override)
            if override.is_sweep_override() and key not in groups
            else []
        )
        if (
            not values
            or is_referred(key, tokens)
            or not all(_is_plain(value) for value in values)
        ):
            fixed.append(override)
        else:
            moving[key] = values
            first.append(single_overrides(override)[0])
    for choice in itertools.product(
        *(single_overrides(override) for override in fixed)
    ):
        # With the first of each value: some keys have none of their own, and Hydra
        # refuses keys that it does not know.
        template = compose_template(parse_overrides([*choice, *first]).values(), folder)
        for combination in itertools.product(*moving.values()):
            yield template.changed(dict(zip(moving, combination, strict=True)))


def _is_plain(value: Any) -> bool:
    """Whether a value can be put into a copy: neither resolved nor merged by Hydra."""
    if isinstance(value, list):
        return all(_is_plain(item) for item in value)
    return not isinstance(value, dict) and not (
        isinstance(value, str) and ("${" in value or value == "???")
    )


def _with_plus(override: str) -> str:
    """Keys that there are need none of Hydra's plus signs.

    An experiment is appended by one.
    """
    bare = override.lstrip("+")
    return f"+{bare}" if bare.startswith(f"{EXPERIMENT}=") else bare


def _experiment(command_line: Mapping[str, Override], folder: Path) -> str | None:
    """Name of the experiment; only one at a time."""
    if EXPERIMENT not in command_line:
        return None
    override = command_line[EXPERIMENT]
    if override.is_sweep_override():
        raise ConfigurationError(
            f"{override.input_line!r} names several experiments: run one at a time."
        )
    require_choice(override, groups_in(folder))
    return str(override.value())
