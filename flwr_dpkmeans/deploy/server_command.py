"""``flwr-dpkmeans server init|check|start|status|dashboard``, ``results``.

a SuperLink, and its parties by name.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import shlex
import shutil
import signal
import socket
import sqlite3
import ssl
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, NotRequired, TypedDict

import httpx
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_public_key
from pydantic import TypeAdapter, ValidationError

from flwr_dpkmeans.deploy import SERVER_PORTS
from flwr_dpkmeans.deploy.certificates import write_certificates
from flwr_dpkmeans.deploy.finding import Finding, NoteError, Verdict
from flwr_dpkmeans.deploy.findings import (
    HOST,
    app_hash,
    finding_of,
    guard_errors_as_mistakes,
    leave_no_core,
    program,
    require_days,
    require_free,
    require_outside_apps,
    require_proposed,
    require_room,
    require_secret,
    require_tried_flower,
    require_unchangeable,
    require_writable,
)
from flwr_dpkmeans.deploy.guard.private_folder import require_private
from flwr_dpkmeans.deploy.invitation import Invitation, Name, Party
from flwr_dpkmeans.deploy.last_message import answers_of
from flwr_dpkmeans.deploy.node_command import guarded_environment
from flwr_dpkmeans.deploy.node_options import NodeOptions
from flwr_dpkmeans.deploy.run_command import is_own, listed_runs, planned
from flwr_dpkmeans.deploy.run_folders import MOST_RUNS, read_progress, runs_below
from flwr_dpkmeans.deploy.server_options import FILE, ServerOptions
from flwr_dpkmeans.errors import ConfigurationError, DPKMeansError, PeerError, listed
from flwr_dpkmeans.flower._private import (
    SERVER_APP,
    TRIED,
    app_config,
    flower_version,
    key_bytes,
    missing_app_seams,
    register_node,
    registered_nodes,
)
from flwr_dpkmeans.log import printable
from flwr_dpkmeans.node.durable_files import lock
from flwr_dpkmeans.node.identity import write_new
from flwr_dpkmeans.options import AUTO
from flwr_dpkmeans.privacy.report import PrivacyReport
from flwr_dpkmeans.results.writer import PAGE_FILE, REPORT_FILE

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from flwr_dpkmeans.flower._private import NodeInfo

_VALID_DAYS, _LONGEST_NAME = 365, 80
_TIME_ERROR, _LONGEST_TIMEX = 5, 512
"""What Linux's adjtimex returns of a clock that nothing sets, and more than the bytes
that it writes.
"""
_PARENT_DEATH_SIGNAL = 1
"""What Linux's prctl sets."""
_START_SECONDS, _LOOK_SECONDS = 180.0, 1.0
"""The first one on a machine with much other work, where it was seen to take more than
60 s.
"""


# -- the commands ----------------------------------------------------------------------


@guard_errors_as_mistakes()
def propose(folder: Path, app: Path) -> int:
    """Change the app that runs, and print its hash and what the parties do."""
    from flwr_dpkmeans.deploy.owner.app_versions import propose_app

    digest = propose_app(folder, app)
    print(digest)
    print(
        "after a review each party types, in its own copy of that version:"
        f"\n  flwr-dpkmeans node approve {digest} NAME --app .\nand starts its node"
        " again; then start the server again"
    )
    return 0


@guard_errors_as_mistakes()
def check_server(folder: Path) -> int:
    """Print a line for each thing that a server needs; 1 if one is wrong."""
    findings = check(folder / FILE, ServerOptions.load(folder), starting=False)
    for finding in findings:
        print(finding, flush=True)
    return int(_is_any_wrong(findings))


@guard_errors_as_mistakes()
def start_server(
    folder: Path,
    *,
    background: bool,
    dry_run: bool,
) -> int:
    """Run a SuperLink and return its code; 1 if something is wrong before that."""
    options = ServerOptions.load(folder)
    findings = check(folder / FILE, options, starting=True)
    for finding in findings:
        print(finding, file=sys.stderr, flush=True)
    if _is_any_wrong(findings):
        return 1
    if dry_run:
        print(shlex.join(options.command))
        return 0
    options.write_connection()
    return _in_background(folder, options) if background else serve_superlink(options)


def _is_any_wrong(findings: Sequence[Finding]) -> bool:
    return any(finding.verdict is Verdict.WRONG for finding in findings)


@guard_errors_as_mistakes()
def show_page(
    folder: Path,
    port: int,
    token_file: Path | None,
) -> int:
    """Show the live page of the runs below a folder until this process is ended."""
    from flwr_dpkmeans.deploy.dashboard import serve, server_metrics, server_page

    page = partial(server_page, folder)

    def metrics() -> Iterator[Metric]:
        yield from server_metrics(folder)
        if (folder / FILE).is_file():
            yield from machine_metrics(ServerOptions.load(folder))

    return serve(
        page,
        metrics,
        port,
        token_file,
    )


@guard_errors_as_mistakes()
def make_server(
    folder: Path,
    parties: Sequence[str],
    *,
    federation: str | None = None,
    address: str | None = None,
    port: int | None = None,
    app: Path = Path(),
) -> int:
    """Make everything that a server has, once, or nothing.

    Parameters
    ----------
    folder : Path
        A new one.
    parties : sequence of str
        Their names.
    federation : str, optional
        Its name; None: the folder's.
    address : str, optional
        HOST:PORT that nodes connect to; None: this machine.
    port : int, optional
        On this machine; None: one that is free.
    app : Path
        Project or .fab file that nodes are asked to approve.
    """
    typed_folder, folder = folder, folder.absolute()
    if port is None:
        port = free_port(folder)
    if not address:
        address = f"{HOST}:{port}"
    if not federation:
        federation = re.sub("[^A-Za-z0-9]+", "-", folder.name).strip("-")
    if not folder.exists():
        require_writable(folder)
    for name in parties:
        try:
            TypeAdapter(Name).validate_python(name)
        except ValidationError as error:
            raise ConfigurationError(
                f"parties has {name!r}: a name has letters, digits, '-' and '_', at"
                " most 60, and begins with one of the first two."
            ) from error
    if len({*parties}) < len(parties):
        raise ConfigurationError(
            f"the parties are {', '.join(parties)}, of which one is there twice: name"
            " each once."
        )
    require_outside_apps(folder)
    made: dict[str, object] = {
        "federation": federation,
        "superlink": address,
        "app": app_hash(app),
    }
    try:
        folder.mkdir(mode=0o700, parents=True)
    except FileExistsError as error:
        raise ConfigurationError(
            f"{folder} is there already and left alone: choose another folder."
        ) from error
    try:
        (folder / "certificates").mkdir(mode=0o700)
        write_new(
            folder / FILE,
            ServerOptions.to_toml({"app": str(app.absolute()), "port": port}).encode(),
        )
        # A copy of the project may hold the folder; no commit may hold keys.
        write_new(folder / ".gitignore", b"*\n")
        options = ServerOptions.load(folder)
        hosts = (address.rpartition(":")[0].strip("[]"), "localhost", HOST)
        write_certificates(options.certificates, hosts, _VALID_DAYS)
        made |= {
            "certificate": options.authority.read_text(),
            "parties": {name: Party() for name in parties},
        }
        Invitation.of(made, options.invitation).save(options.invitation)
        options.write_connection()
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    print(
        f"{folder} is made, for a SuperLink at {address}. Each party types, in its own"
        " copy of the project:"
    )
    print(
        "  flwr-dpkmeans node init NAME --invitation"
        f" {shlex.quote(str(options.invitation))} --data FILE --start"
    )
    print(
        f"and this machine: flwr-dpkmeans server start {shlex.quote(str(typed_folder))}"
        " --background"
    )
    return 0


def free_port(folder: Path, ports: range = SERVER_PORTS) -> int:
    """Choose a port that nothing listens on, the first one from where the folder says.

    Another federation may not listen yet.
    """
    start = zlib.crc32(os.fsencode(folder)) % len(ports)
    candidates: list[int] = [*ports[start:], *ports[:start]]
    for port in candidates:
        with suppress(ConfigurationError):
            require_free(HOST, port)
            return port
    return ports[start]


def serve_superlink(options: ServerOptions) -> int:
    """Run the SuperLink until it ends, or a signal ends this process.

    And let parties in meanwhile.

    One that is killed is started again: ServerApps outlive it, and their runs go on.
    """
    seen, stop = 0, threading.Event()
    with (options.state / "pid").open("a") as process_id:
        if not lock(process_id.fileno(), wait=False):
            raise ConfigurationError(
                f"a `server start` for {options.state} runs already: one is enough."
            )
        process_id.truncate(0)
        print(os.getpid(), file=process_id, flush=True)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: stop.set())
        leave_no_core()
        # In sessions of their own, so that Ctrl-C reaches each once.
        ends = _ends_with_parent()
        start = partial(subprocess.Popen, start_new_session=True, preexec_fn=ends)
        environment, allowed = (
            options.environment,
            frozenset({Invitation.from_toml(options.invitation).app}),
        )
        start_superlink = partial(start, options.command, env=environment)
        guarded = environment | guarded_environment(options.home, allowed, SERVER_APP)
        start_apps = partial(start, options.apps_command, env=guarded)
        superlink, apps = start_superlink(), None
        try:
            apps = start_apps()
            while superlink.poll() in (None, -signal.SIGKILL) and not stop.wait(
                _LOOK_SECONDS
            ):
                if apps.poll() is not None:
                    apps = start_apps()
                with suppress(OSError):
                    # A full disk, or a pipe that nobody reads, takes no line.
                    if superlink.poll() == -signal.SIGKILL:
                        superlink = start_superlink()
                        print(
                            "the SuperLink was killed and is started again; runs go on",
                            file=sys.stderr,
                            flush=True,
                        )
                    seen = let_in_if_changed(options, seen)
        finally:
            for process in filter(None, (apps, superlink)):
                process.terminate()
                process.wait()
        process_id.truncate(0)
    return superlink.returncode


def _ends_with_parent() -> Callable[[], object] | None:
    """What a new process calls.

    So that Linux ends it if its parent is killed, which can end nothing itself any
    more.

    At once, since a SuperLink that is asked to end waits for all whom it shows a log.
    """
    try:
        return partial(
            ctypes.CDLL(None).prctl, _PARENT_DEATH_SIGNAL, int(signal.SIGKILL)
        )
    except (OSError, AttributeError):  # not Linux
        return None


def let_in_if_changed(options: ServerOptions, seen: int) -> int:
    """Let new parties in if the invitation has changed since `seen`.

    And return when it did.
    """
    changed = (
        options.invitation.stat().st_mtime_ns if options.invitation.exists() else -1
    )
    try:
        for name in let_in(options) if changed != seen else ():
            print(f"{name} is registered", flush=True)
    except httpx.TransportError:
        return 0  # the SuperLink does not answer yet, or no longer
    except (DPKMeansError, httpx.HTTPError) as error:
        print(f"nobody new is let in: {error}", file=sys.stderr, flush=True)
    return changed


def let_in(options: ServerOptions) -> list[str]:
    """Register each invited party under its name, if its key was never registered.

    Return the names.

    So whom the operator has unregistered stays outside, and nobody takes another's
    name, whatever the invitation says.
    """
    invited = Invitation.from_toml(options.invitation).parties
    with options.client() as client:
        names_by_key = {node.public_key: node.name for node in registered_nodes(client)}
        new = {
            name: key
            for name, party in invited.items()
            if party.key and (key := _key(party)) not in names_by_key
        }
        for name in set(new) & set(names_by_key.values()):
            del new[name]
            print(
                f"{name} has another key than it was registered with: see 'flwr"
                " supernode register'",
                file=sys.stderr,
            )
        for name, key in new.items():
            register_node(client, key, name)
    return list(new)


def _key(party: Party) -> bytes:
    """A party's key as Flower has it."""
    key = load_ssh_public_key((party.key or "").encode())
    assert isinstance(key, ec.EllipticCurvePublicKey)
    return key_bytes(key)


def _in_background(folder: Path, options: ServerOptions) -> int:
    """Start the command once more, as a process that outlives this one.

    And wait until the SuperLink answers.
    """
    command, log = (
        [program("flwr-dpkmeans"), "server", "start", str(folder)],
        options.state / "log",
    )
    with log.open("ab") as out:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    end, process_id = time.monotonic() + _START_SECONDS, options.state / "pid"
    while not (
        is_healthy(options.port, options.authority)
        and process_id.read_text() == f"{process.pid}\n"
    ):
        if process.poll() is not None or time.monotonic() > end:
            process.terminate()
            raise ConfigurationError(
                f"the SuperLink did not start within {_START_SECONDS:g} s: {log} says"
                " why."
            )
        time.sleep(0.1)
    print(
        f"the SuperLink answers at {HOST}:{options.port}; log: {log}; to end it: kill"
        f" {process.pid}"
    )
    return 0


def is_healthy(port: int, authority: Path | None) -> bool:
    """Whether a SuperLink on this machine answers, known by its authority.

    None: without TLS.
    """
    verify, scheme = (
        (False, "http")
        if authority is None
        else (ssl.create_default_context(cadata=authority.read_text()), "https")
    )
    try:
        return httpx.get(
            f"{scheme}://{HOST}:{port}/health",
            timeout=1.0,
            verify=verify,
            trust_env=False,
        ).is_success
    except (httpx.HTTPError, OSError):
        return False


# -- what it looks at ------------------------------------------------------------------


def check(
    path: Path,
    options: ServerOptions,
    *,
    starting: bool,
) -> list[Finding]:
    """Look at everything that a server needs, one finding for each item.

    Looks only, and changes nothing.
    """
    checks: dict[str, Callable[[], str]] = {
        "file": lambda: _file(path),
        "flower": lambda: _flower(options),
        "tls": lambda: _tls(options),
        "state": lambda: _state(options),
        "app": lambda: require_proposed(options.app, options.invitation),
        "parties": lambda: _parties(options),
        "run": lambda: _run(options),
        "port": lambda: _port(options, starting=starting),
        "address": lambda: _address(options),
        "clock": _clock,
        "user": _user,
    }
    return [finding_of(item, look) for item, look in checks.items()]


def _file(path: Path) -> str:
    require_unchangeable(path)
    return f"{path} is complete, and nobody else can change it"


def _flower(options: ServerOptions) -> str:
    missing = missing_app_seams(SERVER_APP)
    if missing:
        raise ConfigurationError(
            f"Flower {flower_version()} has no {missing[0]} for the guard: install"
            f" {TRIED[0]}.0."
        )
    return require_tried_flower(allow_untested=options.allow_untested_flower)


def _tls(options: ServerOptions) -> str:
    """Shake hands with the files themselves, as a node will."""
    invitation, key = (
        Invitation.from_toml(options.invitation),
        options.certificates / "server.key",
    )
    require_secret(key)
    certificate, client = (
        options.certificates / "server.pem",
        ssl.create_default_context(cadata=invitation.certificate),
    )
    hosts = dict.fromkeys((HOST, invitation.superlink.rpartition(":")[0].strip("[]")))
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate, key)
    for host in hosts:
        there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
        ends = (
            client.wrap_bio(back, there, server_hostname=host),
            server.wrap_bio(there, back, server_side=True),
        )
        try:
            for end in ends * 2:
                with suppress(ssl.SSLWantReadError):
                    end.do_handshake()
        except ssl.SSLCertVerificationError as error:
            raise ConfigurationError(
                f"nodes would refuse {certificate} for {host!r}"
                f" ({error.verify_message}): make one that the invitation's authority"
                " signs for it."
            ) from error
    for file in (certificate, options.authority):
        certificate_in_file = x509.load_pem_x509_certificate(file.read_bytes())
        require_days(
            str(file),
            certificate_in_file.not_valid_before_utc,
            certificate_in_file.not_valid_after_utc,
        )
    return f"nodes know {' and '.join(hosts)} by the invitation's authority"


def _state(options: ServerOptions) -> str:
    database = options.state / "state.db"
    require_writable(options.state)
    if options.state.exists():
        require_private(options.state)
    if database.exists():
        try:
            with closing(
                sqlite3.connect(f"file:{database}?mode=rw", uri=True)
            ) as state:
                state.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            raise ConfigurationError(
                f"{database} cannot be used ({error}): mend its rights, or put a backup"
                " back."
            ) from error
    return (
        f"{options.state} can be written;"
        f" {require_room(options.state, options.results)}"
    )


def _parties(options: ServerOptions) -> str:
    invitation = Invitation.from_toml(options.invitation)
    if missing := invitation.missing:
        n_all = len(invitation.parties)
        raise NoteError(
            f"{n_all - len(missing)} of {n_all} have written their keys; not yet:"
            f" {listed(missing)}"
        )
    return (
        f"{listed(invitation.parties)}; every party should read this fingerprint:"
        f" {invitation.fingerprint}"
    )


def _run(options: ServerOptions) -> str:
    """Whether a run of the app as it is could be planned among all parties.

    Its own configuration may say otherwise.
    """
    if not (options.app.is_dir() and is_own(str(options.app))):
        return (
            "not looked at: only an app of this package in its own folder says what it"
            " runs"
        )
    app_settings = app_config(options.app, {})
    try:
        _, plan = planned(
            options,
            options.app,
            {"bounds": "private"} if app_settings.get("bounds", AUTO) == AUTO else {},
        )
    except DPKMeansError as error:
        raise NoteError(
            f"without a --run-config it would end at once: {error}"
        ) from error
    return (
        f"as the app is, {plan.n_clients} parties can run it at epsilon"
        f" {plan.config.epsilon:g}"
    )


def _port(options: ServerOptions, *, starting: bool) -> str:
    if is_healthy(options.port, options.authority):
        if starting:
            raise ConfigurationError(
                f"the SuperLink at {HOST}:{options.port} runs already: it needs no"
                " other one."
            )
        return f"our SuperLink answers at {HOST}:{options.port}"
    return require_free(HOST, options.port)


def _address(options: ServerOptions) -> str:
    invitation = Invitation.from_toml(options.invitation)
    address, context = (
        invitation.superlink,
        ssl.create_default_context(cadata=invitation.certificate),
    )
    host, port = address.rpartition(":")[0].strip("[]"), address.rpartition(":")[2]
    try:
        with (
            socket.create_connection((host, int(port)), timeout=_LOOK_SECONDS) as line,
            context.wrap_socket(line, server_hostname=host),
        ):
            return (
                f"what nodes know this server by answers at {address}, where they"
                " will ask"
            )
    except ssl.SSLError as error:
        raise ConfigurationError(
            f"what answers at {address}, where nodes will ask, is not this server"
            f" ({error.reason}): correct superlink in the invitation, or end what"
            " listens there."
        ) from error
    except socket.gaierror as error:
        raise ConfigurationError(
            f"nodes cannot find {host!r} ({error.strerror}): correct superlink in the"
            " invitation."
        ) from error
    except OSError as error:
        if (host, port) == (HOST, str(options.port)):
            return f"{address} is this machine alone: nodes elsewhere need another one"
        raise NoteError(f"nothing answers at {address} yet ({error})") from error


def _clock() -> str:
    """By the system's own word.

    There is nobody to ask before the nodes come, each of which then compares its own.
    """
    why = "a node whose clock is 5 s ahead of this one, or 305 s behind it, is refused"
    try:
        is_set = (
            ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(_LONGEST_TIMEX))
            != _TIME_ERROR
        )
    except (OSError, AttributeError):  # not Linux
        raise NoteError(f"not known; {why}") from None
    if not is_set:
        raise NoteError(f"nothing keeps it right, such as NTP does, and {why}")
    return "the system keeps it right"


def _user() -> str:
    if os.geteuid() == 0:
        raise NoteError(
            "this is root, so the invitation's app may do anything here: take another"
            " user"
        )
    return "apps that are run here do so as a user who is not root"


# -- what it sees ----------------------------------------------------------------------


def machine_metrics(options: ServerOptions) -> Iterator[Metric]:
    """Who is there, and what this machine has left, for Prometheus."""
    from flwr_dpkmeans.deploy.monitoring.gauges import (
        certificate_gauge,
        presence_gauges,
    )

    seen = _presence(options)
    online = {party["name"]: _is_online(party) for party in seen.invited}
    yield from presence_gauges(is_up=seen.superlink, parties=online)
    yield certificate_gauge([options.certificates / "server.pem", options.authority])


class PartyStatus(TypedDict):
    """What is seen of one party."""

    name: str
    node: str
    status: str
    since: str
    answered: NotRequired[str]
    silent: NotRequired[int]


class ServerStatus(TypedDict):
    """What is seen of a server: whether it answers, who is there, and runs."""

    superlink: bool
    parties: list[PartyStatus]
    runs: list[dict[str, str]]


class _Presence(NamedTuple):
    """Who is there, as the SuperLink knows nodes."""

    superlink: bool
    """Whether it answers."""
    invited: list[PartyStatus]
    strangers: list[PartyStatus]
    """Such as a party's old key, until the operator unregisters it."""

    @property
    def is_complete(self) -> bool:
        """Whether it answers, and everybody who is invited is online."""
        return self.superlink and all(map(_is_online, self.invited))


def _presence(options: ServerOptions) -> _Presence:
    """Ask the SuperLink who is there; nobody else is asked, and no program started."""
    is_up, nodes = (
        is_healthy(options.port, options.authority),
        dict[bytes, "NodeInfo"](),
    )
    if is_up:
        try:
            with options.client() as client:
                nodes = {node.public_key: node for node in registered_nodes(client)}
        except httpx.TransportError:  # killed at this moment
            is_up = False
    invited: list[PartyStatus] = []
    for name, party in Invitation.from_toml(options.invitation).parties.items():
        unknown = (
            ("not registered" if is_up else "not known")
            if party.key
            else "has not written its keys"
        )
        invited.append(
            _party(name, nodes.pop(_key(party), None) if party.key else None, unknown)
        )
    strangers = [
        _party(f"{node.name or node.node_id} (key not invited)", node)
        for node in nodes.values()
        if node.status != "unregistered"
    ]
    return _Presence(is_up, invited, strangers)


def status(options: ServerOptions, seen: _Presence) -> ServerStatus:
    """Who is there, by name, and each run with its sentence."""
    parties = [*seen.invited, *seen.strangers]
    runs = [read_progress(place) for place in runs_below(options.results)[:MOST_RUNS]]
    for line in parties:
        answers = answers_of(runs, {line["name"], line["node"]} - {""})
        line["answered"], line["silent"] = answers.last, answers.n_silent
    return {
        "superlink": seen.superlink,
        "parties": parties,
        "runs": _runs(options) if seen.superlink else [],
    }


def _is_online(party: PartyStatus) -> bool:
    return party["status"] == "online"


def _party(
    name: str,
    node: NodeInfo | None,
    unknown: str = "",
) -> PartyStatus:
    if node is None:
        return {"name": name, "node": "", "status": unknown, "since": ""}
    # Whoever reaches the port may have registered it.
    name = printable(name, _LONGEST_NAME)
    since = {"online": node.last_activated_at, "offline": node.last_deactivated_at}.get(
        node.status, node.registered_at
    )
    return {
        "name": name,
        "node": str(node.node_id),
        "status": node.status,
        "since": since,
    }


def _runs(options: ServerOptions) -> list[dict[str, str]]:
    """Each run's id, when it was last heard of, its status, and why it ended.

    The first one first.
    """
    lines = []
    for run in sorted(
        listed_runs(options.environment), key=lambda run: str(run["pending-at"])
    ):
        when = next(
            run[at]
            for at in ("finished-at", "running-at", "starting-at", "pending-at")
            if run[at] != "N/A"
        )
        why = (
            run["status-details"]
            .removeprefix("ServerApp failed with exception: ")
            .removesuffix("N/A")
        )
        lines.append(
            {
                "run": run["run-id"],
                "when": when,
                "status": run["status"],
                "why": printable(why),
            }
        )
    return lines


def _party_line(party: PartyStatus) -> str:
    """A party in one line, and whether it is online and silent.

    Such a node may be dead inside.
    """
    since = f" since {party['since'][:19]}" if party["since"] else ""
    answered = (
        f", answered last at {party['answered'][:19]}" if party["answered"] else ""
    )
    line = f"{party['name']:<19} {party['status']}{since}{answered}"
    if party["silent"]:
        line += (
            f"; ALERT: silent in its last {party['silent']} run(s), so its owner should"
            " look at 'node status'"
        )
    return line


@guard_errors_as_mistakes()
def print_status(folder: Path, *, as_json: bool) -> int:
    """Print who is there and how runs are; 1 if anybody who is invited is missing.

    Also if no SuperLink answers.
    """
    options = ServerOptions.load(folder)
    seen = _presence(options)
    now = status(options, seen)
    if as_json:
        print(json.dumps(now, indent=1))
    else:
        answers = "answers" if now["superlink"] else "does not answer"
        print(f"the SuperLink {answers} at {HOST}:{options.port}")
        for party in now["parties"]:
            print(_party_line(party))
        for run in now["runs"]:
            print(*run.values())
    return 0 if seen.is_complete else 1


def print_results(folder: Path) -> int:
    """Print a line for each party's result.

    Its run, when it ended, what it cost or why it failed, its page.
    """
    failed = []
    if not folder.exists():
        raise ConfigurationError(f"{folder} does not exist: correct its path.")
    if (folder / FILE).is_file():
        options = ServerOptions.load(folder)
        folder = options.results
        if is_healthy(options.port, options.authority):
            try:
                failed = [run for run in _runs(options) if run["why"]]
            except PeerError as error:  # what lies in the folder is told all the same
                print(f"runs that failed are not told: {error}", file=sys.stderr)
    elif folder.suffix == ".toml" or (folder / "node.toml").is_file():
        file = folder if folder.is_file() else folder / "node.toml"
        folder = NodeOptions.from_toml(file).output
    lines = [(run["when"][:19], " ".join(run.values())) for run in failed]
    for file in folder.rglob(f"run-*/*/{REPORT_FILE}"):
        try:
            report, page = (
                PrivacyReport.from_dict(json.loads(file.read_text())),
                (file.parent / PAGE_FILE).absolute(),
            )
        except (KeyError, TypeError, ValueError) as error:
            lines.append(("", f"{file} is no report ({type(error).__name__})"))
            continue
        when = (
            report.provenance.finished.replace("T", " ").replace("+00:00", "Z")
            if report.provenance
            else ""
        )
        lines.append(
            (
                when[:19],
                (
                    f"{file.parent.parent.name.removeprefix('run-')} {when}"
                    f" {report.line} {page}"
                ),
            )
        )
    print(
        *(
            line
            for _, line in sorted(
                lines or [("", f"no run has left anything in {folder}")]
            )
        ),
        sep="\n",
    )
    return 0
