"""What each party of a rehearsed federation has on its own machine.

Data, policy, ledger, keys and results.
"""

from __future__ import annotations

import csv
import io
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from flwr_dpkmeans.data.bundled import BUNDLED, load_bundled
from flwr_dpkmeans.data.loading.source import load_source
from flwr_dpkmeans.data.simulated.partition import partition_indices
from flwr_dpkmeans.errors import ConfigurationError, DataError
from flwr_dpkmeans.node.identity import Identity
from flwr_dpkmeans.node.policy import DEPLOYED, ClientPolicy
from simulations.flower.flower_commands import NodeConfig

DATA_ENDINGS = (".csv", ".npy", ".npz", ".parquet")
DEFAULT_NODES = 3
_SIDES = "lower,upper"


@dataclass(frozen=True)
class Site:
    """One party.

    Parameters
    ----------
    folder : Path
        Home of its SuperNode (mode 0700); its log is there, too.
    data : Path
        Its rows.
    """

    folder: Path
    data: Path

    @property
    def policy(self) -> Path:
        """What it allows (TOML)."""
        return self.folder / "policy.toml"

    @property
    def identity(self) -> Path:
        """The long-term key that signs its keys in every run."""
        return self.folder / "identity"

    @property
    def ledger(self) -> Path:
        """What it has spent."""
        return self.folder / "ledger.jsonl"

    @property
    def results(self) -> Path:
        """Where its SuperNode writes centroids and report."""
        return self.folder / "results"

    @property
    def node_config(self) -> NodeConfig:
        """What its SuperNode is started with; no message of the server changes it."""
        return {
            "data-path": str(self.data),
            "data-id": self.data.stem,
            "policy": str(self.policy),
            "ledger": str(self.ledger),
            "output": str(self.results),
            "identity": str(self.identity),
            **_schema(self.data),
        }


def make_sites(
    folder: Path, source: str, n_nodes: int, policy: str, *, seed: int = 0
) -> list[Site]:
    """Give every party a folder of its own with its rows, its identity and its policy,
    which pins all identities.

    Parameters
    ----------
    folder : Path
        Of the federation.
    source : str
        A bundled data set, split at random, or a folder with one file for each party
        (in the order of their names).
    n_nodes : int
        Parties; 0: as many as there are files.
    policy : str
        TOML, the same for all, without pins.
    seed : int
        Of the split.

    Returns
    -------
    list of Site

    Raises
    ------
    ConfigurationError, DataError
        If there are no such data, too few parties, or another policy than a node could
        read.
    """
    files = [] if source in BUNDLED else _files(source)
    count = n_nodes or len(files) or DEFAULT_NODES
    if count < 2:
        raise ConfigurationError(
            f"the number of nodes is {count}, but masks need at least 2: give one such"
            " as 3."
        )
    if files and count != len(files):
        raise ConfigurationError(
            f"{source} has {len(files)} data files for {count} nodes: give each node"
            " one."
        )
    homes = [folder / f"node-{index}" for index in range(count)]
    sites = [
        Site(home, home / (files[index].name if files else "rows.npy"))
        for index, home in enumerate(homes)
    ]
    points = None if files else load_bundled(source).points
    for index, site in enumerate(sites):
        site.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if points is None:
            shutil.copyfile(files[index], site.data)
        else:
            np.save(
                site.data,
                points[partition_indices(len(points), count, index, seed=seed)],
            )
    policy = f"{policy.rstrip()}\n{_pins(sites)}"
    for site in sites:
        site.policy.write_text(policy)
        for path in (site.data, site.policy):
            path.chmod(0o600)
    # What a node could not read would stop the run only after a minute.
    ClientPolicy.from_toml(sites[0].policy, base=DEPLOYED).require_complete()
    return sites


def known_facts(
    folder: Path, source: str, sites: Sequence[Site]
) -> dict[str, str | int]:
    """What is public of the data, as a run configuration.

    Size and bounds of bundled data, else the width alone.

    Parameters
    ----------
    folder : Path
        For a file of bounds.
    source : str
        As in `make_sites`.
    sites : sequence of Site
        Its result.

    Returns
    -------
    dict
    """
    if source not in BUNDLED:
        return {
            "data": "",
            "n-features": load_source(str(sites[0].data)).points.shape[1],
        }
    described = BUNDLED[source]
    bounds = folder / "bounds.csv"
    rows = zip(described.bounds.lower, described.bounds.upper, strict=True)
    bounds.write_text(
        "\n".join([_SIDES, *(f"{low!r},{up!r}" for low, up in rows)]) + "\n"
    )
    return {
        "data": "",
        "n-examples": described.n_examples,
        "n-features": described.n_features,
        "n-clusters": described.n_clusters,
        "bounds": str(bounds),
    }


def _schema(path: Path) -> dict[str, str]:
    """What the owner of a file says of it: here all of its columns of numbers.

    An array needs no word.
    """
    if path.suffix.lower() not in (".csv", ".parquet"):
        return {}
    table, text = load_source(str(path)), io.StringIO()
    csv.writer(text).writerow(
        table.names or [f"x{place}" for place in range(table.points.shape[1])]
    )
    return {
        "columns": text.getvalue().strip(),
        "header": "yes" if table.names else "no",
    }


def default_policy(epsilon: float) -> str:
    """Write a policy that allows some private runs with real noise, and nothing else.

    Parameters
    ----------
    epsilon : float
        Of a run.

    Returns
    -------
    str
        TOML.

    Examples
    --------
    >>> print(default_policy(1.0).splitlines()[1])
    max-epsilon-per-run = 2.0
    """
    return (
        "# Worst case of one run, all retries used, and of all runs on these data.\n"
        f"max-epsilon-per-run = {2 * epsilon!r}\n"
        f"max-epsilon-total = {10 * epsilon!r}\n"
        "max-delta = 0.01\n"
        'allowed-trust = ["oblivious", "distributed", "central"]\n'
        'allowed-units = ["record", "client"]\n'
        "min-cohort = 2\n"
        "require-secure-noise = true\n"
        "allow-non-private = false\n"
    )


def _pins(sites: Sequence[Site]) -> str:
    """Make every party's identity, and what all policies say of them."""
    lines = ["[pinned-peers]"]
    for site in sites:
        identity = Identity.generate()
        identity.save(site.identity)
        lines.append(f'{site.folder.name} = "{identity.public_key.hex()}"')
    return "\n".join(lines) + "\n"


def _files(source: str) -> list[Path]:
    """The data files of a folder, by name."""
    folder = Path(source).expanduser().absolute()
    if not folder.is_dir():
        names = ", ".join(BUNDLED)
        raise DataError(
            f"the data are {source!r}, which is neither a folder nor one of {names}:"
            " correct it."
        )
    files = sorted(path for path in folder.iterdir() if path.suffix in DATA_ENDINGS)
    if not files:
        raise DataError(
            f"{folder} has no file that ends with {', '.join(DATA_ENDINGS)}: put one"
            " for each node there."
        )
    return files
