"""``flwr-dpkmeans node start|check|hash``: a SuperNode that runs approved apps only, after a look at everything."""

from __future__ import annotations

import datetime
import ipaddress
import math
import os
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key

from flwr_dpkmeans.data.schema import Schema
from flwr_dpkmeans.data.tables import Layout, load_by_schema, load_declared
from flwr_dpkmeans.errors import CommandLine, ConfigurationError, DPKMeansError
from flwr_dpkmeans.flower import app_guard
from flwr_dpkmeans.node.guard import NodeSettings
from flwr_dpkmeans.node.ledger import FileLedger
from flwr_dpkmeans.node.node_settings import Identity, Isolation, NodeOptions
from flwr_dpkmeans.node.policy import DEPLOYED, ClientPolicy
from flwr_dpkmeans.privacy.release import PrivacyUnit

SUPERNODE = "flower-supernode"
CLOCK_AHEAD_SECONDS = 5.0
"""A SuperLink turns requests away that are signed so far in its future, or 305 s in its past (Flower 1.41)."""
_ANSWER_SECONDS = 5.0
_GUARDED = "guarded-programs"


def node(arguments: Sequence[str]) -> int:
    """Run the command: 1 if something is wrong; ``start`` does not return, but becomes Flower's program."""
    parser = CommandLine(prog="python -m flwr_dpkmeans node", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, text in (
        ("start", "look at everything, then run flower-supernode with the guard, or say what is wrong"),
        ("check", "look at everything, and print a line for each item"),
    ):
        command = commands.add_parser(name, help=text, description=text)
        command.add_argument("file", type=Path, help="NODE.toml")
        text = "isolation 'process': the part that runs the apps (flower-superexec), as its own user"
        command.add_argument("--apps", action="store_true", help=text)
    text = "print the hash of a reviewed app, for allowed-apps"
    commands.add_parser("hash", help=text, description=text).add_argument("file", type=Path, help="by flwr build")
    options = parser.parse_args(arguments)
    try:
        if options.command == "hash":
            print(app_guard.digest_of(options.file.read_bytes()))
            return 0
        return _node(options.file.absolute(), start=options.command == "start", apps=options.apps)
    except app_guard.GuardError as error:
        raise ConfigurationError(str(error)) from error


def _node(path: Path, *, start: bool, apps: bool) -> int:
    """Look, and start if nothing is wrong."""
    options = NodeOptions.from_toml(path)
    if apps and options.isolation is Isolation.SUBPROCESS:
        raise app_guard.GuardError("--apps is for isolation = 'process' only: leave it out.")
    findings = check(path, options, apps=apps)
    wrong = [finding for finding in findings if finding.verdict is Verdict.WRONG]
    for finding in findings:
        print(finding, file=sys.stderr if start else sys.stdout, flush=True)
    if start and not wrong:
        command = apps_command(options) if apps else supernode_command(options)
        # No process in between: signals, exit codes and systemd meet Flower's program itself.
        os.execve(command[0], command, _environment(options, apps=apps))
    return 1 if wrong else 0


def supernode_command(options: NodeOptions) -> list[str]:
    """Flower's command line for a node."""
    command = [_program(SUPERNODE), "--superlink", options.superlink, "--isolation", options.isolation.value]
    command += ["--host", options.host, "--port", str(options.port), *(["--insecure"] if options.insecure else [])]
    for flag, value in (
        ("--root-certificates", options.root_certificates),
        ("--auth-supernode-private-key", options.key),
        ("--superexec-auth-secret-file", options.runtime_secret),
    ):
        command += [flag, str(value)] if value else []
    return [*command, "--node-config", settings_text(options.node_config)]


def apps_command(options: NodeOptions) -> list[str]:
    """Flower's command line for the program that starts apps, where it is not the SuperNode that does."""
    guarded = options.home / _GUARDED / app_guard.SUPEREXEC
    command = [str(guarded), "--insecure", "--runtime-api-address", f"{options.host}:{options.port}"]
    return [*command, "--superexec-auth-secret-file", str(options.runtime_secret)]


def _environment(options: NodeOptions, *, apps: bool) -> Mapping[str, str]:
    """The own environment without Python's variables, and guarded programs as the only ones that are found."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    own |= {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "PYTHONUNBUFFERED": "1"}
    own.setdefault("FLWR_SUPEREXEC_TASK_POLL_INTERVAL", "0.2")
    if options.isolation is Isolation.PROCESS and not apps:
        return own | {"PATH": os.devnull}  # this half starts nothing
    options.home.mkdir(mode=0o700, parents=True, exist_ok=True)
    app_guard.require_private(options.home)
    return own | {"FLWR_HOME": str(options.home)} | guarded_environment(options.home, frozenset(options.allowed_apps))


def guarded_environment(home: Path, allowed: frozenset[str]) -> dict[str, str]:
    """Write a node's guarded programs into its private home, and return the variables with which Flower uses them."""
    return app_guard.write_programs(
        app_guard.Guard(allowed, home / "guarded-apps", home / "alerts.log"), home / _GUARDED
    )


def _program(name: str) -> str:
    return str(Path(sys.executable).with_name(name))


def settings_text(settings: Mapping[str, str | int | float | bool]) -> str:
    """Write settings as Flower's command line takes them, for a node or a run: TOML, strings in quotes.

    Examples
    --------
    >>> settings_text({"data-path": "/a b/rows.npy", "n-clusters": 3, "verbose": True})
    "data-path='/a b/rows.npy' n-clusters=3 verbose=true"
    """
    words = []
    for key, value in settings.items():
        if isinstance(value, str) and {"'", "\n"} & set(value):
            raise ConfigurationError(f"the setting {key!r} is {value!r}: use a value without ' and line breaks.")
        text = str(value).lower() if isinstance(value, bool) else repr(value)
        words.append(f"{key}='{value}'" if isinstance(value, str) else f"{key}={text}")
    return " ".join(words)


class Verdict(StrEnum):
    """How an item is."""

    OK = "ok"
    NOTE = "note"
    WRONG = "wrong"


@dataclass(frozen=True)
class Finding:
    """What was seen of one item, as one sentence."""

    item: str
    verdict: Verdict
    says: str

    def __str__(self) -> str:
        return f"{self.verdict:<6}{self.item + ':':<12}{self.says}"


class _NoteError(Exception):
    """Not wrong, but the operator should know."""


def check(path: Path, options: NodeOptions, *, apps: bool) -> list[Finding]:
    """Look at everything that a node needs, one finding for each item; looks only, and changes nothing.

    Where isolation is "process", `apps` looks at what the user who runs the apps needs, else at the SuperNode's part.
    """
    both = options.isolation is Isolation.SUBPROCESS
    checks: dict[str, Callable[[], str]] = {"file": lambda: _file(path, options), "flower": _flower}
    if both or not apps:
        checks["connection"] = lambda: _connection(options)
        checks["clock"] = lambda: _clock(path, options)
    if both or apps:
        checks |= {
            "home": lambda: _home(options.home),
            "policy": lambda: _policy(options),
            "identity": lambda: _identity(options),
            "ledger": lambda: _ledger(options),
            "data": lambda: _data(options),
            "output": lambda: _writable(options.output),
            "user": lambda: _user(path, options),
        }
    return [_found(item, look) for item, look in checks.items()]


def _found(item: str, look: Callable[[], str]) -> Finding:
    """The result of one look; an exception's text is for the operator, who may read all of the node's files."""
    try:
        return Finding(item, Verdict.OK, look())
    except _NoteError as note:
        return Finding(item, Verdict.NOTE, str(note))
    except (DPKMeansError, app_guard.GuardError) as error:
        return Finding(item, Verdict.WRONG, str(error))
    except (OSError, ValueError) as error:
        return Finding(item, Verdict.WRONG, f"{error}: correct the path, its rights or its content.")


def _file(path: Path, options: NodeOptions) -> str:
    _unchangeable(path)
    if not all(app.strip("0") for app in options.allowed_apps):
        raise ConfigurationError("allowed-apps still has the example's zeros: put the hash of a reviewed app there.")
    return f"{path} allows {len(options.allowed_apps)} app(s): {', '.join(app[:16] for app in options.allowed_apps)}"


def _flower() -> str:
    from flwr.supercore.version import package_version

    if missing := app_guard.missing_seams():
        raise ConfigurationError(f"Flower {package_version} has no {missing[0]} for the guard: use 1.41.")
    return f"the guard stands before the installation of apps of Flower {package_version}"


def _connection(options: NodeOptions) -> str:
    if not _is_this_machine(options.host):
        raise ConfigurationError(f"host is {options.host!r}, where others reach this node's tasks: give 127.0.0.1.")
    if options.insecure:
        if not _is_this_machine(options.superlink.rpartition(":")[0].strip("[]")):
            raise ConfigurationError(f"superlink is {options.superlink!r} without TLS: leave 'insecure' out.")
        raise _NoteError("no TLS and no authentication, with a SuperLink on this machine")
    if not options.key:
        raise _NoteError("no key: whoever reaches the SuperLink can be a node, unless it takes known keys only")
    _secret(options.key)
    if not isinstance(load_ssh_private_key(options.key.read_bytes(), None), ec.EllipticCurvePrivateKey):
        raise ConfigurationError(f"{options.key} is no key on a NIST curve: ssh-keygen -t ecdsa -b 384 makes one.")
    return f"TLS to {options.superlink}, authenticated by {options.key}"


def _clock(path: Path, options: NodeOptions) -> str:
    now = time.time()
    for written in (path, options.policy, options.ledger):
        # With two users, the other one's files are not seen.
        if os.access(written, os.R_OK) and written.stat().st_mtime > now + CLOCK_AHEAD_SECONDS:
            raise ConfigurationError(f"this machine's clock is before {written} was written: set it, or mend the file.")
    if options.root_certificates:
        today = datetime.datetime.fromtimestamp(now, datetime.UTC)
        for known in x509.load_pem_x509_certificates(options.root_certificates.read_bytes()):
            if not known.not_valid_before_utc <= today <= known.not_valid_after_utc:
                span = f"{known.not_valid_before_utc:%F} to {known.not_valid_after_utc:%F}"
                raise ConfigurationError(
                    f"{options.root_certificates} holds from {span}, but this machine has {today:%F %T} UTC: set the "
                    "clock, or get a new certificate."
                )
    unknown = f"not known: the SuperLink's clock, which refuses nodes {CLOCK_AHEAD_SECONDS:g} s ahead of it"
    if not _is_kept():
        raise _NoteError(f"nothing says that NTP keeps it; {unknown}")
    return f"NTP keeps it, says timedatectl; {unknown}"


def _is_kept() -> bool:
    """Whether systemd says so; the kernel's own call (adjtimex) would end a service with a filter of system calls."""
    program = shutil.which("timedatectl", path=os.defpath)
    if program is None:
        return False
    command = [program, "show", "--property=NTPSynchronized", "--value"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_ANSWER_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.stdout.strip() == "yes"


def _home(home: Path) -> str:
    if not os.path.lexists(home):
        return _writable(home)
    app_guard.require_private(home)
    return f"{home} is this user's alone"


def _policy(options: NodeOptions) -> str:
    _unchangeable(options.policy)
    policy = ClientPolicy.from_toml(options.policy, base=DEPLOYED)
    policy.require_complete()
    schema = None if options.table_schema is None else Schema.load(options.table_schema)
    policy.check_columns([name for one in schema.columns for name in one.features] if schema else options.columns)
    if policy.allow_anything and math.inf in (policy.max_epsilon_per_run, policy.max_epsilon_total):
        raise _NoteError(f"{options.policy} allows anything and leaves epsilon open")
    return f"at most epsilon {policy.max_epsilon_per_run:g} for a run, {policy.max_epsilon_total:g} in all"


def _identity(options: NodeOptions) -> str:
    identity = Identity.load(options.identity)
    NodeSettings(ClientPolicy.from_toml(options.policy), FileLedger(options.ledger), options.data_id, identity=identity)
    return f"public key {identity.public_key.hex()}"


def _ledger(options: NodeOptions) -> str:
    if options.ledger.exists():
        _unchangeable(options.ledger)
    ledger = FileLedger(options.ledger)
    ledger.require_usable()
    data_id = options.data_id or str(options.data_path)
    spent = {unit.value: ledger.past(data_id, unit.value).epsilon for unit in PrivacyUnit}
    says = "; ".join(f"epsilon {epsilon:g} per {unit}" for unit, epsilon in spent.items())
    others = sorted({entry.data_id for entry in ledger.entries()} - {data_id})
    if others and not any(spent.values()):
        # A renamed file is another data set to the ledger, and would have its whole budget again.
        raise _NoteError(
            f"{options.ledger} knows nothing of {data_id!r}, but of {others[0]!r}: give data-id={others[0]!r} if the "
            "rows are the same"
        )
    return f"{options.ledger} can be charged; {data_id!r} has cost {says}"


def _data(options: NodeOptions) -> str:
    layout = Layout(options.columns, options.label_column, options.header, options.query)
    if options.table_schema is None:
        table = load_declared(options.data_path, layout)
    else:
        table = load_by_schema(options.data_path, Schema.load(options.table_schema), layout)
    if not options.query:
        _secret(Path(options.data_path))
    source = "the database" if options.query else options.data_path  # a URL may hold a password
    if not len(table.points):
        raise ConfigurationError(
            f"{source} has no row with a finite number in each of {', '.join(map(repr, table.names))}, so "
            "this node would give nothing: correct columns, header or the file."
        )
    width = len(table.names) or table.points.shape[1]
    return f"{source} has {width} columns to cluster by, and {len(table.points)} rows"


def _writable(folder: Path) -> str:
    there = next(place for place in (folder, *folder.parents) if place.exists())
    if not (there.is_dir() and os.access(there, os.W_OK)):
        raise ConfigurationError(f"this user cannot write into {there}: make {folder}, and chown it to the user.")
    return f"{folder} can be written"


def _user(path: Path, options: NodeOptions) -> str:
    """Which of the two lines of defence holds: the guard alone, or the system's users as well."""
    if os.geteuid() == 0:
        raise _NoteError("this is root, so an approved app may do anything: run apps as a user of their own")
    fixed = (path, options.policy, Path(__file__), Path(sys.executable).resolve())
    mine = [str(file) for file in fixed if os.access(file, os.W_OK) or file.stat().st_uid == os.geteuid()]
    if mine:
        raise _NoteError(f"apps run as a user who could change {', '.join(mine)}: the guard is the only defence")
    if options.key and os.access(options.key, os.R_OK):
        raise _NoteError("apps can read the SuperNode's key, but not change policy or programs (see isolation)")
    return "apps can neither change policy or programs nor read a SuperNode's key; ledger and identity are theirs"


def _unchangeable(path: Path) -> None:
    facts = path.stat()
    if facts.st_uid not in (0, os.geteuid()) or facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise ConfigurationError(f"{path} may be changed by others: chown it to root, or chmod go-w it.")


def _secret(path: Path) -> None:
    if path.stat().st_mode & (stat.S_IROTH | stat.S_IWOTH) and path.parent.stat().st_mode & stat.S_IXOTH:
        raise ConfigurationError(f"{path} may be read or changed by everybody: chmod o-rw it.")


def _is_this_machine(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
