"""What can be known of a node before a run: one finding for each item, and what is wrong is said with its mend."""

from __future__ import annotations

import datetime
import email.utils
import itertools
import math
import os
import shutil
import socket
import ssl
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.common.config import parse_config_args
from flwr.proto.fleet_pb2 import ActivateNodeRequest
from flwr.supercore.error import ApiErrorCode, FlowerError
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from flwr.supercore.version import package_version
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor
from packaging.version import Version

from flwr_dpkmeans.data.schema import MOST_OUTSIDE, Schema
from flwr_dpkmeans.data.tables import Layout, Table, load_by_schema, load_declared, look_by_schema
from flwr_dpkmeans.errors import ConfigurationError, DPKMeansError, PeerError, listed
from flwr_dpkmeans.flower import app_guard
from flwr_dpkmeans.flower.findings import (
    Finding,
    NoteError,
    app_digest,
    existing,
    found,
    is_this_machine,
    secret,
    unchangeable,
    writable,
)
from flwr_dpkmeans.flower.server_app import run_keys, strategy_from_run_config
from flwr_dpkmeans.flower.strategy import first_plan
from flwr_dpkmeans.node.guard import NodeGuard, NodeSettings, unfinished_sentence
from flwr_dpkmeans.node.invitation import Invitation
from flwr_dpkmeans.node.ledger import FileLedger, unfinished
from flwr_dpkmeans.node.node_settings import Identity, Isolation, NodeOptions
from flwr_dpkmeans.node.policy import DEPLOYED, ClientPolicy
from flwr_dpkmeans.privacy.release import PrivacyUnit

OLDEST_FLOWER = "1.41"
MOST_CLOCK_SECONDS = 2.0
"""Flower lets a node be 5 s ahead of its SuperLink, and 305 s behind: what drifts is mended long before."""
LEAST_DAYS = 30
"""Of a certificate, below which its owner is told to get a new one."""
LEAST_FREE = 100 * 2**20
"""Bytes on the disks of ledger, results and home: files and log of a run take some 5 MB, an unpacked app as much, and
a disk that fills up ends a run after it was charged."""


class UnansweredError(PeerError):
    """Nobody is there yet."""


def check(path: Path, options: NodeOptions, *, apps: bool) -> list[Finding]:
    """Look at everything that a node needs, one finding for each item; looks only, and changes nothing.

    Where isolation is "process", `apps` looks at what the user who runs the apps needs, else at the SuperNode's part.
    """
    both = options.isolation is Isolation.SUBPROCESS
    checks: dict[str, Callable[[], str]] = {
        "file": lambda: _file(path),
        "app": lambda: _app(options),
        "flower": _flower,
    }
    if both or not apps:
        checks |= {
            "port": lambda: require_free(options.host, options.port),
            "connection": lambda: _connection(options),
            "superlink": lambda: _superlink(options),
            "clock": lambda: _clock(options),
        }
    if both or apps:
        checks |= {
            "home": lambda: _home(options.home),
            "policy": lambda: _policy(options),
            "identity": lambda: _identity(options),
            "ledger": lambda: _ledger(options),
            "run": lambda: _run(options),
            "data": lambda: _data(options),
            "units": lambda: _units(options),
            "output": lambda: _output(options.output),
            "disk": lambda: require_room(options.ledger.parent, options.output, options.home),
            "user": lambda: _user(path, options),
        }
    return [found(item, look) for item, look in checks.items()]


# -- what runs ---------------------------------------------------------------------------------------------------------


def _file(path: Path) -> str:
    unchangeable(path)
    return f"only its owner and root can change {path}"


def _app(options: NodeOptions) -> str:
    if not all(app.strip("0") for app in options.allowed_apps):
        raise ConfigurationError("allowed-apps still has the example's zeros: put the hash of a reviewed app there.")
    invitation = _invitation(options)
    for whose, digest in (
        ("the own copy", app_digest(options.app) if options.app else ""),
        ("the invitation's app", invitation.app if invitation else ""),
    ):
        if digest and digest not in options.allowed_apps:
            raise ConfigurationError(f"allowed-apps lacks {digest}, the hash of {whose}: review it, and put it there.")
    return f"allows {len(options.allowed_apps)} app(s): {', '.join(app[:16] for app in options.allowed_apps)}"


def _invitation(options: NodeOptions) -> Invitation | None:
    """What goes around; a file that lay on a shared disk is needed until its identities are pinned only."""
    return Invitation.load(options.invitation) if options.invitation and options.invitation.exists() else None


def _flower() -> str:
    is_old = Version(package_version) < Version(OLDEST_FLOWER)
    if missing := ["is too old"] if is_old else [f"has no {seam} for the guard" for seam in app_guard.missing_seams()]:
        raise ConfigurationError(f"Flower {package_version} {missing[0]}: pip install 'flwr=={OLDEST_FLOWER}.0'.")
    return f"the guard stands before the installation of apps of Flower {package_version}; a SuperLink tells no version"


# -- the connection ----------------------------------------------------------------------------------------------------


def _connection(options: NodeOptions) -> str:
    if not is_this_machine(options.host):
        raise ConfigurationError(f"host is {options.host!r}, where others reach this node's tasks: give 127.0.0.1.")
    if options.insecure:
        if not is_this_machine(options.superlink.rpartition(":")[0].strip("[]")):
            raise ConfigurationError(f"superlink is {options.superlink!r} without TLS: leave 'insecure' out.")
        raise NoteError("no TLS and no authentication, with a SuperLink on this machine")
    if options.root_certificates:
        unchangeable(options.root_certificates)
        for known in x509.load_pem_x509_certificates(options.root_certificates.read_bytes()):
            require_days(str(options.root_certificates), known.not_valid_before_utc, known.not_valid_after_utc)
    if not options.key:
        raise NoteError("no key: whoever reaches the SuperLink can be a node, unless it takes known keys only")
    secret(options.key)
    if not isinstance(load_ssh_private_key(options.key.read_bytes(), None), ec.EllipticCurvePrivateKey):
        raise ConfigurationError(f"{options.key} is no key on a NIST curve: ssh-keygen -t ecdsa -b 384 makes one.")
    return f"TLS to {options.superlink}, authenticated by {options.key}"


def require_days(what: str, begins: datetime.datetime, ends: datetime.datetime) -> None:
    """Refuse a certificate outside of its time; note one that ends soon."""
    now, span = datetime.datetime.fromtimestamp(time.time(), datetime.UTC), f"{begins:%F} to {ends:%F}"
    if not begins <= now <= ends:
        mend = "set the clock, or get a new certificate."
        raise ConfigurationError(f"{what} holds from {span}, but this machine has {now:%F %T} UTC: {mend}")
    if (left := (ends - now).days) < min(LEAST_DAYS, (ends - begins).days / 3):
        raise NoteError(f"{what} holds from {span}, so {left} days more: get a new one before")


def require_free(host: str, port: int) -> str:
    """Refuse a port that something listens on."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            mend = "unless that is this node, end what listens there, or give another port"
            raise ConfigurationError(f"{host}:{port} cannot be had ({error.strerror}): {mend}.") from error
    return f"{host}:{port} is free"


@dataclass(frozen=True)
class Answer:
    """What a SuperLink tells whoever asks."""

    knows_key: bool
    ahead: float
    """Seconds that this machine's clock is ahead of its, give or take one: dates have whole seconds."""
    certificate: tuple[datetime.datetime, ...]
    """From when to when it holds; empty without TLS."""


def ask(options: NodeOptions) -> Answer:
    """Ask for what a SuperLink refuses even to nodes that it knows, so that nothing changes there.

    An `UnansweredError` if nobody is there yet, a ConfigurationError if it is not the one that the node knows.
    """
    key: Any = ec.generate_private_key(ec.SECP384R1())
    key = load_ssh_private_key(options.key.read_bytes(), None) if options.key else key
    request = ActivateNodeRequest(public_key=public_key_to_bytes(key.public_key()), heartbeat_interval=0.0)
    where, authority = f"superlink {options.superlink}", str(options.root_certificates or "") or None
    connect, signs = FleetHttpClient.from_server_address, [NodeAuthHttpInterceptor(key, key.public_key())]
    try:
        with connect(options.superlink, options.insecure, authority, signs) as client:
            try:
                client.ActivateNode(request)
            except httpx.HTTPStatusError as error:
                said, refusal = error.response, FlowerError.from_json(error.response.text)
                sent = email.utils.parsedate_to_datetime(said.headers.get("date", "")).timestamp()
                line = said.extensions["network_stream"].get_extra_info("ssl_object")
                certificate = {} if line is None else line.getpeercert()
    except (httpx.HTTPError, ValueError) as error:
        if "SSL" in str(error) or not isinstance(error, httpx.ConnectError | httpx.TimeoutException):
            mend = "correct superlink and root-certificates, as its operator says on a way that you trust"
            raise ConfigurationError(f"{where} is not the one that this node knows ({error}): {mend}.") from error
        raise UnansweredError(f"{where} does not answer ({error}): have it started, or correct superlink.") from error
    times = [ssl.cert_time_to_seconds(certificate[side]) for side in ("notBefore", "notAfter") if certificate]
    return Answer(
        refusal is not None and refusal.code == ApiErrorCode.FLEET_INVALID_HEARTBEAT_INTERVAL,
        time.time() - said.elapsed.total_seconds() / 2 - sent - 1.0,
        tuple(datetime.datetime.fromtimestamp(one, datetime.UTC) for one in times),
    )


def _superlink(options: NodeOptions) -> str:
    answer = ask(options)
    if options.key and not answer.knows_key:
        mend = "have its operator register its public half, and look at the clock"
        raise ConfigurationError(f"{options.superlink} does not know the key {options.key}: {mend}.")
    if answer.certificate:
        require_days(f"the certificate of {options.superlink}", *answer.certificate)
    return f"{options.superlink} answers" + (", with a certificate that holds" if answer.certificate else "")


def _clock(options: NodeOptions) -> str:
    allowed = "which refuses nodes whose clock is 5 s ahead, or 305 s behind"
    try:
        ahead = ask(options).ahead
    except DPKMeansError:
        raise NoteError(f"not known without an answer of the SuperLink, {allowed}") from None
    if abs(ahead) > MOST_CLOCK_SECONDS:
        side = "ahead of" if ahead > 0 else "behind"
        raise ConfigurationError(f"it is {abs(ahead):.0f} s {side} that of the SuperLink, {allowed}: set it by NTP.")
    return f"it is within {MOST_CLOCK_SECONDS:g} s of the SuperLink's, to the second that an answer's date tells"


# -- what the node has -------------------------------------------------------------------------------------------------


def _home(home: Path) -> str:
    stated = os.environ.get("FLWR_HOME", "")
    if stated and Path(stated).absolute() != home:
        raise ConfigurationError(f"FLWR_HOME is {stated!r}, but this node's home is {home}: unset it, or correct home.")
    if not os.path.lexists(home):
        return writable(home)
    app_guard.require_private(home)
    return f"{home} is this user's alone"


def _policy(options: NodeOptions) -> str:
    unchangeable(options.policy)
    policy = ClientPolicy.from_toml(options.policy, base=DEPLOYED)
    policy.require_complete()
    policy.check_columns(_used_columns(options))
    if policy.allow_anything and math.inf in (policy.max_epsilon_per_run, policy.max_epsilon_total):
        raise NoteError(f"{options.policy} allows anything and leaves epsilon open")
    return f"at most epsilon {policy.max_epsilon_per_run:g} for a run, {policy.max_epsilon_total:g} in all"


def _used_columns(options: NodeOptions) -> tuple[str, ...]:
    schema = None if options.table_schema is None else Schema.load(options.table_schema)
    return tuple(name for one in schema.columns for name in one.features) if schema else options.columns


def _settings(options: NodeOptions) -> NodeSettings:
    policy, ledger = ClientPolicy.from_toml(options.policy, base=DEPLOYED), FileLedger(options.ledger)
    return NodeSettings(policy, ledger, data_of(options), identity=Identity.load(options.identity))


def data_of(options: NodeOptions) -> str:
    """The data's name in the ledger."""
    return options.data_id or str(options.data_path)


def _run(options: NodeOptions) -> str:
    """Whether the expected run would be let through: the stated one, or the app's defaults with all that are pinned."""
    settings, stated = _settings(options), parse_config_args([options.run_config]) if options.run_config else {}
    assumed = {key.name: key.default for key in run_keys()} | {
        "num-clients": max(len(settings.policy.pinned_peers or ()), settings.policy.min_cohort),
        "cohort.min-clients": settings.policy.min_cohort,
        "bounds": str(options.table_schema or "private"),
    }
    try:
        strategy = strategy_from_run_config({**assumed, **stated}, simulated=False)
        config = strategy.config
        plan, _ = first_plan(config, strategy._server_points, run_id=1, n_clients=config.n_clients or 0)
        guard = NodeGuard(settings, plan.run_id, 0, 0, 0.0)
        guard.require_allowed(plan)
        guard.require_names(plan, plan.config.feature_names)
    except DPKMeansError as error:
        if stated:
            raise ConfigurationError(f"run-config: {error}") from error
        raise NoteError(f"a run with the app's defaults would be refused: {error}") from error
    return f"epsilon {config.epsilon:g}, {'as run-config says' if stated else 'by default'}, would be allowed"


def _identity(options: NodeOptions) -> str:
    """Whether the own key, the invitation and the policy say the same of this party and of the others."""
    pins = require_same_parties(options)
    own = Identity.load(options.identity).public_key.hex()
    if not pins:
        raise NoteError(f"public key {own}; the policy pins nobody, so a server may invent parties: see node pin")
    if own not in pins.values():
        raise ConfigurationError(f"{options.policy} does not pin the own identity {own}: add it to [pinned-peers].")
    return f"public key {own}; pinned: {listed(pins)}"


def require_same_parties(options: NodeOptions) -> Mapping[str, str]:
    """The policy's pins, by name, if own key, invitation and policy do not contradict each other."""
    pins, invitation = _settings(options).policy.pinned_peers or (), _invitation(options)
    pinned, invited = {name or key: key for name, key in pins}, invitation.pins if invitation else {}
    own = {options.name: Identity.load(options.identity).public_key.hex()}
    known = {str(options.identity): own, str(options.invitation): invited, str(options.policy): pinned}
    for (one, first), (two, second) in itertools.combinations(known.items(), 2):
        for name in [name for name in first if first[name] != second.get(name, first[name])]:
            raise ConfigurationError(
                f"{name} has the identity {first[name]} by {one}, but {second[name]} by {two}: ask its owner by "
                "telephone which one holds, and correct the other."
            )
    if new := [name for name, key in invited.items() if pins and key not in pinned.values()]:
        raise ConfigurationError(f"{options.policy} does not pin {listed(new)} of {options.invitation}: add the lines.")
    return pinned


def _ledger(options: NodeOptions) -> str:
    if options.ledger.exists():
        unchangeable(options.ledger)
    ledger = FileLedger(options.ledger)
    ledger.require_usable()
    data_id = data_of(options)
    spent = {unit.value: ledger.past(data_id, unit.value).epsilon for unit in PrivacyUnit}
    says = "; ".join(f"epsilon {epsilon:g} per {unit}" for unit, epsilon in spent.items())
    others = sorted({entry.data_id for entry in ledger.entries()} - {data_id})
    if others and not any(spent.values()):
        # A renamed file is another data set to the ledger, and would have its whole budget again.
        raise NoteError(
            f"{options.ledger} knows nothing of {data_id!r}, but of {others[0]!r}: give data-id={others[0]!r} if the "
            "rows are the same"
        )
    says = f"{options.ledger} can be charged; {data_id!r} has cost {says}"
    if last := unfinished(ledger, data_id):
        raise NoteError(f"{says}; {unfinished_sentence(last)}")
    return says


def _layout(options: NodeOptions) -> Layout:
    return Layout(options.columns, options.label_column, options.header, options.query)


def load_rows(options: NodeOptions) -> Table:
    """The rows, as the node's app reads them."""
    if options.table_schema is None:
        return load_declared(options.data_path, _layout(options))
    schema = Schema.load(options.table_schema)
    if options.schema_digest not in ("", schema.digest):
        raise ConfigurationError(
            f"{options.table_schema} has the digest {schema.digest}, but schema-digest is {options.schema_digest}: put "
            "back the schema that was agreed on, or agree on this one."
        )
    return load_by_schema(options.data_path, schema, _layout(options))


def _data(options: NodeOptions) -> str:
    table = load_rows(options)
    if not options.query:
        secret(Path(options.data_path))
    source = "the database" if options.query else options.data_path  # a URL may hold a password
    if not len(table.points):
        raise ConfigurationError(
            f"{source} has no row with a finite number in each of {', '.join(map(repr, table.names))}, so "
            "this node would give nothing: correct columns, header or the file."
        )
    width = len(table.names) or table.points.shape[1]
    return f"{source} has {width} columns to cluster by, and {len(table.points)} rows"


def _units(options: NodeOptions) -> str:
    """Never wrong: what rows say must not decide whether a node takes part, and no number of them is told."""
    bounds = ClientPolicy.from_toml(options.policy, base=DEPLOYED).allowed_bounds
    if options.table_schema is not None:
        seen = look_by_schema(options.data_path, Schema.load(options.table_schema), _layout(options))
        foreign = [one.name for one in seen if one.looks_foreign]
    elif bounds is not None:
        table = load_declared(options.data_path, _layout(options))
        low, high = np.broadcast_to(np.array(bounds), (table.points.shape[1], 2)).T
        parts = ((table.points < low) | (table.points > high)).sum(axis=0) / max(1, len(table.points))
        names = table.names or [f"column {place}" for place in range(len(parts))]
        foreign = [name for name, part in zip(names, parts, strict=True) if part > MOST_OUTSIDE]
    else:
        return "not known: neither a schema nor the policy's allowed-bounds says what the columns lie between"
    if foreign:
        raise NoteError(f"over {MOST_OUTSIDE:.0%} of {listed(foreign)} lie outside the stated bounds: another unit?")
    return f"at most {MOST_OUTSIDE:.0%} of each column lie outside the stated bounds"


def _output(folder: Path) -> str:
    if folder.exists():
        secret(folder)
    return writable(folder)


def require_room(*folders: Path) -> str:
    """Refuse disks that a run could fill up."""
    for folder in folders:
        if (free := shutil.disk_usage(existing(folder)).free) < LEAST_FREE:
            raise ConfigurationError(
                f"the disk of {folder} has {free / 2**20:.0f} MiB left, but {LEAST_FREE / 2**20:.0f} are needed: make "
                "room, since one that is full in the middle of a run ends it after it was charged."
            )
    return f"over {LEAST_FREE / 2**20:.0f} MiB are free"


def _user(path: Path, options: NodeOptions) -> str:
    """Which of the two lines of defence holds: the guard alone, or the system's users as well."""
    if os.geteuid() == 0:
        raise NoteError("this is root, so an approved app may do anything: run apps as a user of their own")
    fixed = (path, options.policy, Path(__file__), Path(sys.executable).resolve())
    mine = [str(file) for file in fixed if os.access(file, os.W_OK) or file.stat().st_uid == os.geteuid()]
    if mine:
        raise NoteError(f"apps run as a user who could change {', '.join(mine)}: the guard is the only defence")
    if options.key and os.access(options.key, os.R_OK):
        raise NoteError("apps can read the SuperNode's key, but not change policy or programs (see isolation)")
    return "apps can neither change policy or programs nor read a SuperNode's key; ledger and identity are theirs"
