"""What a node's operator writes down in NODE.toml, which no message can change."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field, ValidationInfo, model_validator

from flwr_dpkmeans.data.files.dialect import Dialect
from flwr_dpkmeans.data.files.sources import is_clustered
from flwr_dpkmeans.deploy.gate.gate_options import GateOptions
from flwr_dpkmeans.deploy.settings_file import (
    LocalPath,
    SettingsFile,
    Sha256,
    located,
)


class Isolation(StrEnum):
    """Who starts apps: the SuperNode itself.

    Or a second program, which may be another user's.
    """

    SUBPROCESS = "subprocess"
    PROCESS = "process"


_SQLITE = re.compile(r"(sqlite(?:\+\w+)?:///)((?!:memory:|file:)[^?]+)(.*)")


def located_source(source: str, folder: Path) -> str:
    """A file's path, or a database's URL.

    SQLite by itself looks in the folder that a program was started in.
    """
    if match := _SQLITE.fullmatch(source):
        scheme, path, options = match.groups()
        return f"{scheme}{located(path, folder)}{options}"
    if "://" in source:
        return source
    return str(located(source, folder))


def _source(source: str, info: ValidationInfo) -> str:
    return located_source(source, Path(info.context or ""))


def _separated(names: tuple[str, ...]) -> str:
    """Names as the app reads them; a single star means all and has no quotes."""
    if names == ("*",):
        return "*"
    return ",".join('"' + name.replace('"', '""') + '"' for name in names)


class NodeOptions(SettingsFile):
    """What NODE.toml says."""

    name: str = ""
    """This party's name in the invitation."""
    invitation: LocalPath | None = None
    """The invitation that goes around.

    Once it is complete, ``node pin`` writes its identities into the policy.
    """
    app: LocalPath | None = None
    """The own copy of the project (or its .fab file), which allowed-apps is held
    against.
    """
    allowed_apps: tuple[Sha256, ...] = Field(strict=False)
    """SHA-256 of every app (FAB) that may run, as ``python -m flwr_dpkmeans node hash``
    prints it after a review.
    """
    gate: GateOptions | None = None
    """An app of somebody else, and what of its answers may leave: a table [gate]."""
    superlink: str
    """Address of the SuperLink, such as "superlink.example.org:443"."""
    home: LocalPath
    """Private folder of the user who runs the apps (mode 700).

    Guarded programs, unpacked apps, ``alerts.log``.
    """
    data_path: Annotated[str, AfterValidator(_source)]
    """The rows: a file, a folder of .parquet files, the URL of a database (SQLAlchemy),
    or ray:///PATH or dask:///PATH: its cluster reads Parquet there.
    """
    policy: LocalPath
    """What this node allows (TOML)."""
    ledger: LocalPath
    """What its data have cost."""
    identity: LocalPath
    """Its long-term key, which the other parties pin."""
    output: LocalPath
    """Folder for results."""
    root_certificates: LocalPath | None = None
    """Certificate that the SuperLink is known by (PEM); left out: those of the system.
    """
    key: LocalPath | None = None
    """Private key that the SuperLink knows this SuperNode by."""
    insecure: bool = False
    """Without TLS, for a SuperLink on this machine only."""
    proxy: str = Field("", pattern="^(none|https?://[^/@]+(:[0-9]+)?/?)?$")
    """Proxy on the way to the SuperLink, http://HOST:PORT; "none": there is none.

    "": as https_proxy and no_proxy say. This machine is never asked through one.
    """
    host: str = "127.0.0.1"
    """Where this node's own programs find the SuperNode.

    An address of this machine alone.
    """
    port: int = Field(9094, ge=1, le=65535)
    """Port there."""
    isolation: Isolation = Field(Isolation.SUBPROCESS, strict=False)
    """With "process", apps are started by ``node start --apps``, as another user than
    the SuperNode's.
    """
    runtime_secret: LocalPath | None = None
    """With "process": a file of random bytes that both users read, so that nobody else
    on the machine gets tasks.
    """
    data_id: str = ""
    """Name of the data in the ledger; "": the path."""
    data_grows: bool = False
    """Whether the table gets more rows between runs, as weekly ones do.

    Otherwise a ledger that was charged for other rows stops this node.
    """
    query: str = ""
    """What the database is asked for (SQL)."""
    table_schema: LocalPath | None = Field(None, alias="schema")
    """The schema that all parties share (TOML): it says what is clustered."""
    schema_digest: str = Field("", pattern="^([0-9a-f]{64})?$")
    """SHA-256 of the schema that was agreed on; another one is refused."""
    columns: tuple[str, ...] = Field((), strict=False)
    """The columns that are clustered, by name: the file does not decide that.

    Empty for an array without names.
    """
    header: bool = True
    """Whether the first row of a .csv file holds names.

    Without one, `columns` names all columns in their order.
    """
    file: Mapping[str, object] = Field(default_factory=dict)
    """How the file is written, as a table [file].

    Separator, decimal, thousands, encoding, row-names, skip-lines, missing, comment,
    dates; what it leaves open is the schema's, or what the header shows.
    """
    label_column: str = ""
    """Column of classes, for a private evaluation; "": none."""
    person_column: str = ""
    """Column that says whose row it is, for runs with unit "person"; "": the schema's,
    or none.
    """
    weight_column: str = ""
    """Column that says what a row weighs, for runs with max-weight; "": none."""
    profile_columns: tuple[str, ...] = Field((), strict=False)
    """Columns that the local profile describes besides those that are clustered.

    ["*"]: all of the file's.
    """
    cache: str = ""
    """Folder for the rows of a table beyond memory while a run lasts.

    "no": all rows are in memory. "": the home's.
    """
    run_config: str = ""
    """What the server's operator will type after --run-config.

    ``node check`` says whether the policy allows it.
    """
    log_format: str = ""
    """Lines of the app's log: "text" or "json"."""
    log_file: LocalPath | None = None
    """Where they are written as well."""
    verbose: bool = False
    """Also sizes, timings and phases."""
    allow_untested_flower: bool = False
    """Start with a minor version of Flower that no federation was tried with."""

    @model_validator(mode="after")
    def _fits(self) -> NodeOptions:
        if (self.isolation is Isolation.PROCESS) != (self.runtime_secret is not None):
            raise ValueError(
                "runtime-secret and isolation='process' belong together: give both or"
                " neither"
            )
        if not self.runnable_apps:
            raise ValueError(
                "allowed-apps is [] without a [gate], so that no app may run: put the"
                " hash of a reviewed app there"
            )
        if self.gate and self.gate.app in self.allowed_apps:
            raise ValueError(
                "the gate's app is among allowed-apps, as which it would run without"
                " the gate: take it out there"
            )
        _ = self.dialect
        if self.insecure and (self.key or self.root_certificates):
            raise ValueError(
                "insecure is true beside key or root-certificates: leave it out"
            )
        is_database = "://" in self.data_path and not is_clustered(self.data_path)
        if is_database != bool(self.query) or (
            "://" in self.data_path and not self.data_id
        ):
            raise ValueError(
                "a database needs query, and it or a cluster data-id, its name in the"
                " ledger; others none"
            )
        if is_database and re.search("(?i):[^/@]+@|(password|pwd)=", self.data_path):
            raise ValueError(
                "data-path holds a password, which `ps` shows to all users here: see"
                " PGPASSFILE"
            )
        return self

    @property
    def dialect(self) -> Dialect:
        """How the file is written, as far as it is stated."""
        stated = {name.replace("-", "_"): value for name, value in self.file.items()}
        return (
            Dialect(**stated)
            if self.header
            else Dialect(header=False).over(Dialect(**stated))
        )

    @property
    def runnable_apps(self) -> tuple[str, ...]:
        """Those that are allowed, and the one behind the gate."""
        gated = (self.gate.app,) if self.gate else ()
        return (*self.allowed_apps, *gated)

    @property
    def data_file(self) -> Path | None:
        """The file or folder of this machine that has the rows, if one has them.

        Also that of an SQLite database.
        """
        match = _SQLITE.fullmatch(self.data_path)
        return (
            Path(match[2] if match else self.data_path)
            if match or "://" not in self.data_path
            else None
        )

    @property
    def data_name(self) -> str:
        """The data's name in the ledger."""
        return self.data_id or self.data_path

    @property
    def node_config(self) -> Mapping[str, str | bool]:
        """What the app is told of this node (Flower's ``--node-config``)."""
        config = self.model_dump(
            mode="json",
            by_alias=True,
            include={*_NODE_CONFIG},
            exclude_defaults=True,
        )
        for key, names in (
            ("columns", self.columns),
            ("profile-columns", self.profile_columns),
        ):
            if names:
                config[key] = _separated(names)
        if self.file:
            config["file"] = json.dumps(self.dialect.stated())
        if not self.header:
            config["header"] = "no"
        return config


_NODE_CONFIG = (
    "data_path",
    "data_id",
    "data_grows",
    "policy",
    "ledger",
    "identity",
    "output",
    "label_column",
    "person_column",
    "weight_column",
    "log_format",
    "log_file",
    "query",
    "table_schema",
    "verbose",
    "cache",
)
