"""A federation on this machine as on many.

TLS, authenticated SuperNodes, own data, policy and ledger for each.

Makes certificates and keys, starts one SuperLink and the SuperNodes on loopback, runs
the app, checks that all clients have the same centroids and report, and ends exactly
what it started, also after Ctrl-C or if it is killed.
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import time
import tomllib
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Any

from flwr.common.config import flatten_dict

from flwr_dpkmeans.deploy.node_command import settings_text
from flwr_dpkmeans.errors import ConfigurationError
from flwr_dpkmeans.flower.run_config import strategy_from_run_config
from flwr_dpkmeans.sums.draft import draft_plan
from flwr_dpkmeans.sums.plan import SECONDS_PER_ROUND_TRIP, round_trips
from simulations.commands import exit_code
from simulations.flower.collected import ClientResult, collect
from simulations.flower.credentials import make_credentials
from simulations.flower.deployment import RUN_TIMEOUT, Deployment, LogLine, deployed
from simulations.flower.flower_commands import NodeConfig
from simulations.flower.sites import default_policy, known_facts, make_sites

SUMMARY_FILE = "summary.json"
START_UP_SECONDS = 20.0
"""From the command to the first message, and from the last one to the end of all
processes, with 3 nodes.
"""
_WORD = re.compile(r"([\w.-]+)\s*=\s*('[^']*'|\"[^\"]*\"|\S+)")
_SHORTCUTS = ("algorithm", "trust", "epsilon", "n-clusters", "max-iter", "random-state")


def main(arguments: list[str] | None = None) -> int:
    """Run the command."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _leave)
    options = _parser().parse_args(arguments)
    return exit_code(lambda: _rehearse(options))


def _rehearse(options: argparse.Namespace) -> None:
    """Everything, from keys to the comparison of results."""
    folder = _new_folder(Path(options.output).expanduser().absolute())
    shortcuts = {key: getattr(options, key.replace("-", "_")) for key in _SHORTCUTS}
    chosen = {
        key: value for key, value in shortcuts.items() if value is not None
    } | run_settings(options.run_config)
    epsilon = float(chosen.get("epsilon", 2.0))
    policy = (
        Path(options.policy).expanduser().read_text()
        if options.policy
        else default_policy(epsilon)
    )
    sites = make_sites(
        folder, options.data, options.nodes, policy, seed=options.partition_seed
    )
    settings: dict[str, Any] = {
        "epsilon": epsilon,
        **known_facts(folder, options.data, sites),
    }
    settings |= {"num-clients": len(sites)} | chosen
    expected = expected_duration(settings)
    print(f"federation of {len(sites)} nodes in {folder}", flush=True)
    print(f"run configuration: {settings_text(settings)}", flush=True)
    print(f"expected duration: {expected}", flush=True)
    start = time.monotonic()
    credentials = make_credentials(
        folder / "certificates", [site.folder for site in sites]
    )
    nodes: list[NodeConfig] = [site.node_config for site in sites]
    with deployed(folder, nodes, credentials) as deployment:
        print(
            f"[{time.monotonic() - start:5.1f} s] SuperLink and {len(sites)} SuperNodes"
            " are up",
            flush=True,
        )
        print(f"each runs this app only: SHA-256 {deployment.allowed_app}", flush=True)
        seconds = _run(deployment, settings, options.timeout)
        results = collect(sites)
    _report(folder, results, seconds, time.monotonic() - start)


def _run(deployment: Deployment, settings: NodeConfig, timeout: float) -> float:
    """Run the app, with the server's lines on the screen; return its seconds."""
    start = time.monotonic()

    def show(line: LogLine) -> None:
        print(f"[{line.seconds:5.1f} s] {line.text}", flush=True)

    deployment.run(settings_text(settings), timeout=timeout, on_line=show)
    return time.monotonic() - start


def _report(
    folder: Path, results: list[ClientResult], run_seconds: float, seconds: float
) -> None:
    """Say where everything is, and that all clients have the same."""
    for result in results:
        print(
            f"{result.site.folder.name}: centroids {result.centroids.shape}, sha256"
            f" {result.digest[:16]}"
        )
        print(f"  {result.site.results}")
    summary = {
        "n_nodes": len(results),
        "centroids_sha256": results[0].digest,
        "epsilon": results[0].report["epsilon"],
        "run_seconds": round(run_seconds, 1),
        "seconds": round(seconds, 1),
    }
    (folder / SUMMARY_FILE).write_text(json.dumps(summary, indent=2) + "\n")
    print(f"all {len(results)} clients have the same centroids and report")
    print(
        f"flwr run took {run_seconds:.1f} s; everything, from keys to the end of all"
        f" processes, {seconds:.1f} s"
    )


def expected_duration(settings: Mapping[str, Any]) -> str:
    """Say how long a run will take, as far as its configuration tells.

    Parameters
    ----------
    settings : mapping
        Run configuration, without keys that may be left out.

    Returns
    -------
    str

    Raises
    ------
    DPKMeansError
        If it is no run configuration, in the sentence that the server would say.

    Examples
    --------
    >>> settings = {
    ...     "algorithm": "fastlloyd",
    ...     "n-clusters": 3,
    ...     "bounds": "0,1",
    ...     "num-clients": 3,
    ...     "max-iter": 5,
    ...     "n-features": 2,
    ...     "n-examples": 1000,
    ... }
    >>> expected_duration(settings)
    'about 62 s: 20 s to start and end, 7 round trips of 6 s'
    """
    config = strategy_from_run_config({"n-clusters": 10, **settings}).config
    if not settings.get("server-data"):
        plan = draft_plan(
            config,
            run_id=1,
            n_clients=int(settings["num-clients"]),
            seed=0,
            n_features=config.n_features,
        )
        if plan.is_final:
            trips = round_trips(plan)
            total = START_UP_SECONDS + trips * SECONDS_PER_ROUND_TRIP
            return (
                f"about {total:.0f} s: {START_UP_SECONDS:.0f} s to start and end,"
                f" {trips} round trips of {SECONDS_PER_ROUND_TRIP:.0f} s"
            )
    return (
        f"{START_UP_SECONDS:.0f} s to start and end, and {SECONDS_PER_ROUND_TRIP:.0f} s"
        " for each round trip, whose number the server says when it knows the rounds"
    )


def run_settings(texts: list[str]) -> dict[str, Any]:
    """Read run configurations as they stand on Flower's command line; later ones win.

    Parameters
    ----------
    texts : list of str
        Such as ``"n-clusters=3 bounds='0,1'"``.

    Returns
    -------
    dict

    Raises
    ------
    ConfigurationError
        If something in it is not NAME=VALUE with a TOML value.

    Examples
    --------
    >>> run_settings(["epsilon=1.0 bounds='0, 1'", "epsilon=2.0"])
    {'epsilon': 2.0, 'bounds': '0, 1'}
    """
    settings: dict[str, Any] = {}
    for text in texts:
        rest = _WORD.sub("", text).strip()
        lines = "\n".join(f"{key} = {value}" for key, value in _WORD.findall(text))
        try:
            parsed = tomllib.loads(lines)
        except tomllib.TOMLDecodeError:
            rest = rest or text
        if rest:
            raise ConfigurationError(
                f"the run configuration has {rest!r}, which is no NAME=VALUE: write"
                " strings in quotes, such as --run-config \"trust='central'"
                ' epsilon=1.0".'
            )
        settings |= flatten_dict(parsed)
    return settings


def _new_folder(folder: Path) -> Path:
    """Make a folder that nobody else can look into; one with files is left alone."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigurationError(
            f"{folder} is there already and not empty: give another one by --output."
        )
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)
    return folder


def _leave(number: int, frame: FrameType | None) -> None:
    """End as if by exit, so that blocks are left in order."""
    del frame
    raise SystemExit(128 + number)


def _parser() -> argparse.ArgumentParser:
    """Command-line options."""
    parser = argparse.ArgumentParser(
        prog="python -m simulations.flower", description=__doc__
    )
    parser.add_argument(
        "--nodes",
        type=int,
        default=0,
        help="SuperNodes (default: one for each file, or 3)",
    )
    parser.add_argument(
        "--data",
        default="digits",
        help=(
            "bundled data set, split at random, or a folder with one data file for each"
            " node"
        ),
    )
    parser.add_argument(
        "--partition-seed", type=int, default=0, help="of the split of bundled data"
    )
    parser.add_argument(
        "--policy",
        default="",
        help="TOML file, every node's policy; without it one for private runs",
    )
    parser.add_argument(
        "--algorithm", help="as in the run configuration, like the next five"
    )
    parser.add_argument("--trust")
    parser.add_argument("--epsilon", type=float)
    parser.add_argument("--n-clusters", type=int)
    parser.add_argument("--max-iter", type=int, help="number of iterations")
    parser.add_argument("--random-state", type=int, help="seed of the public start")
    parser.add_argument(
        "--run-config",
        action="append",
        default=[],
        help="any other keys, as for `flwr run`; may be repeated",
    )
    parser.add_argument(
        "--timeout",
        type=float,
        default=RUN_TIMEOUT,
        help="seconds for `flwr run` (default: 900)",
    )
    parser.add_argument(
        "--output",
        default=f"outputs/deploy-{time.strftime('%Y%m%d-%H%M%S')}",
        help=(
            "new folder for keys, homes, logs and results (default:"
            " outputs/deploy-TIME)"
        ),
    )
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
