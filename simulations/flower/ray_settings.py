"""What a Ray simulation may use, and how Flower and Ray are told.

Command lines, environment, the app's folder.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import site
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import flwr_dpkmeans
from flwr_dpkmeans.deploy.findings import search_path
from flwr_dpkmeans.errors import ConfigurationError
from simulations.flower.ray_processes import HOME_VARIABLE

Scalar = str | int | float | bool

LEAST_STORE_BYTES = 75 * 1024**2
"""Ray refuses a smaller object store."""


@dataclass(frozen=True)
class RayBackend:
    """Resources of a simulation.

    Parameters
    ----------
    client_resources_num_cpus : int
        CPUs that one virtual client takes; so many fit at a time as the cluster has
        CPUs for.
    client_resources_num_gpus : float
        GPUs, likewise.
    init_args_num_cpus, init_args_num_gpus : int, optional
        What the local cluster may take; None: all. Not with `address`.
    object_store_bytes : int
        Largest object store of the local cluster, in shared memory. Messages and states
        pass through it one by one, so it need not grow with the number of clients.
    max_bytes : int, optional
        Memory of all processes together at which a run is ended with an error; None: no
        limit.
    address : str
        ``host:port`` of a running Ray cluster to use, "" for a local one that lives as
        long as a run.
    timeout : float
        Seconds after which a run is ended with an error.

    Raises
    ------
    ConfigurationError
        At once.

    Examples
    --------
    >>> RayBackend(timeout=60.0).timeout
    60.0
    """

    client_resources_num_cpus: int = 1
    client_resources_num_gpus: float = 0.0
    init_args_num_cpus: int | None = None
    init_args_num_gpus: int | None = None
    object_store_bytes: int = 200 * 1024**2
    max_bytes: int | None = None
    address: str = ""
    timeout: float = 3600.0

    def __post_init__(self) -> None:
        for name, least in (
            ("client_resources_num_cpus", 1),
            ("init_args_num_cpus", 1),
            ("init_args_num_gpus", 0),
        ):
            value = getattr(self, name)
            if value is not None and (
                not isinstance(value, int) or isinstance(value, bool) or value < least
            ):
                raise ConfigurationError(
                    f"{name} is {value!r}, but it must be an integer of at least"
                    f" {least}."
                )
        if (
            not math.isfinite(self.client_resources_num_gpus)
            or self.client_resources_num_gpus < 0.0
        ):
            raise ConfigurationError(
                f"client_resources_num_gpus is {self.client_resources_num_gpus!r}, but"
                " it must be 0 or more: give 0."
            )
        if self.object_store_bytes < LEAST_STORE_BYTES:
            raise ConfigurationError(
                f"object_store_bytes is {self.object_store_bytes!r}, but Ray needs at"
                f" least {LEAST_STORE_BYTES}: give 200_000_000."
            )
        if not math.isfinite(self.timeout) or self.timeout <= 0.0:
            raise ConfigurationError(
                f"timeout is {self.timeout!r} s, but it must be positive and finite:"
                " give 3600."
            )
        if self.max_bytes is not None and self.max_bytes <= 0:
            raise ConfigurationError(
                f"max_bytes is {self.max_bytes!r}, but it must be positive: give"
                " 4_000_000_000."
            )
        if self.address and (
            self.init_args_num_cpus is not None or self.init_args_num_gpus is not None
        ):
            raise ConfigurationError(
                f"address is {self.address!r}, but a running cluster has its own CPUs"
                " and GPUs: leave init_args out."
            )
        if "://" in self.address:
            raise ConfigurationError(
                f"address is {self.address!r}, but clients and server must share files:"
                " give 'host:port' of the cluster's head and start from one of its"
                " machines."
            )


CROSS_SILO = RayBackend(max_bytes=8 * 1000**3)
"""10 to 100 nodes."""
CROSS_DEVICE = RayBackend(max_bytes=8 * 1000**3, timeout=4 * 3600.0)
"""1,000 virtual nodes and more; only so many as there are CPUs are in memory at a time.
"""


def federation_config(n_nodes: int, backend: RayBackend) -> str:
    """Write the value of ``flwr run --federation-config``.

    Examples
    --------
    >>> federation_config(3, RayBackend(init_args_num_cpus=2)).split()[::3]
    ['num-supernodes=3', 'init-args-num-cpus=2']
    """
    if not isinstance(n_nodes, int) or isinstance(n_nodes, bool) or n_nodes < 2:
        raise ConfigurationError(
            f"n_nodes is {n_nodes!r}, but masks need at least 2 clients: give 2 or"
            " more."
        )
    values: dict[str, int | float | None] = {
        "num-supernodes": n_nodes,
        "client-resources-num-cpus": backend.client_resources_num_cpus,
        "client-resources-num-gpus": float(backend.client_resources_num_gpus),
        "init-args-num-cpus": backend.init_args_num_cpus,
        "init-args-num-gpus": backend.init_args_num_gpus,
    }
    return " ".join(
        f"{name}={value}" for name, value in values.items() if value is not None
    )


def app_file(run_config: Mapping[str, Scalar]) -> str:
    """Write the ``pyproject.toml`` of an app that holds nothing but this run
    configuration.

    Its two components are those of the installed package, so it works from a checkout
    and from a wheel, and no value has to survive a command line.

    Examples
    --------
    >>> text = app_file({"data": "here", "epsilon": 1e-7, "verbose": True})
    >>> text.splitlines()[-3:]
    ['"data" = "here"', '"epsilon" = 1e-07', '"verbose" = true']
    """
    lines = [
        "[project]",
        'name = "dpkmeans-run"',
        f'version = "{flwr_dpkmeans.__version__}"',
        'description = "One run of flwr-dpkmeans"',
        'license = "Apache-2.0"',
        "[tool.flwr.app]",
        'publisher = "flwr-dpkmeans"',
        "[tool.flwr.app.components]",
        'serverapp = "flwr_dpkmeans.flower.server_app:app"',
        'clientapp = "flwr_dpkmeans.flower.client_app:app"',
        "[tool.flwr.app.config]",
    ]
    lines += [
        f"{json.dumps(key)} = {_toml(key, value)}" for key, value in run_config.items()
    ]
    return "\n".join(lines) + "\n"


def _toml(key: str, value: Scalar) -> str:
    """One scalar as TOML writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        # JSON strings are TOML strings, except that TOML knows no escapes of
        # surrogates.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    raise ConfigurationError(
        f"{key} is {value!r} of type {type(value).__name__}, but Flower's run"
        " configuration holds text, numbers and truth values only."
    )


def connection_file(port: int) -> str:
    """Write Flower's ``config.toml``: one SuperLink, at a port below loopback that is
    not Flower's own default.
    """
    return (
        '[superlink]\ndefault = "local"\n\n[superlink.local]\naddress ='
        f' "127.0.0.1:{port}"\ninsecure = true\n'
    )


def environment(home: Path, backend: RayBackend) -> dict[str, str]:
    """The own environment, with what makes Flower and Ray keep to themselves.

    Parameters
    ----------
    home : Path
        Flower's home and Ray's files; its path is the mark of all processes.
    backend : RayBackend
        For the address and the object store.

    Returns
    -------
    dict
    """
    environment = dict(os.environ)
    environment |= {
        HOME_VARIABLE: str(home),
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "PATH": search_path(),
        "PYTHONUNBUFFERED": "1",
        # Another cluster of this user, started by `ray start`, is used only when asked
        # for.
        "RAY_ADDRESS": backend.address or "local",
        "RAY_TMPDIR": str(home),
        "RAY_DEFAULT_OBJECT_STORE_MAX_MEMORY_BYTES": str(backend.object_store_bytes),
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    }
    for name in ("FLWR_TELEMETRY_ENABLED", "RAY_USAGE_STATS_ENABLED"):
        environment.setdefault(name, "0")
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        # A client's matrices are small, and there is a worker for each core.
        environment.setdefault(name, "1")
    package = Path(flwr_dpkmeans.__file__).resolve().parents[1]
    if str(package) not in site.getsitepackages():
        environment["PYTHONPATH"] = os.pathsep.join(
            part for part in (str(package), environment.get("PYTHONPATH", "")) if part
        )
    return environment


def program(name: str) -> str:
    """Path of one of Flower's commands, that of this Python first."""
    beside = Path(sys.executable).with_name(name)
    path = str(beside) if beside.is_file() else shutil.which(name)
    if path is None:
        raise ConfigurationError(
            f"the command {name} was not found beside {sys.executable}: install the"
            " package with its dependencies."
        )
    return path
