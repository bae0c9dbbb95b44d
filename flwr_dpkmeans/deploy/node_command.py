"""``flwr-dpkmeans node init|pin|check|start|status|dashboard|hash``.

a party's node, which runs approved apps only.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from flwr_dpkmeans.deploy.finding import Verdict
from flwr_dpkmeans.deploy.findings import (
    GUARDED,
    app_hash,
    flower_environment,
    guard_errors_as_mistakes,
    leave_no_core,
)
from flwr_dpkmeans.deploy.guard.app_guard import Guard
from flwr_dpkmeans.deploy.guard.guarded_programs import SUPEREXEC, write_programs
from flwr_dpkmeans.deploy.guard.private_folder import require_private
from flwr_dpkmeans.deploy.guard.refusal import GuardError
from flwr_dpkmeans.deploy.invitation import Invitation
from flwr_dpkmeans.deploy.last_message import forget
from flwr_dpkmeans.deploy.node_check import NodeCheck, check
from flwr_dpkmeans.deploy.node_options import Isolation, NodeOptions
from flwr_dpkmeans.deploy.node_setup import SETTINGS_FILE, NewNode, init, pin
from flwr_dpkmeans.deploy.owner.owner_commands import owner_sees, without_infinities
from flwr_dpkmeans.deploy.proxies import choose_proxy
from flwr_dpkmeans.deploy.superlink_answer import (
    MOST_CLOCK_SECONDS,
    UnansweredError,
    ask,
)
from flwr_dpkmeans.errors import ConfigurationError
from flwr_dpkmeans.flower._private import CLIENT_APP
from flwr_dpkmeans.node.identity import write_new
from flwr_dpkmeans.node.policy import DEPLOYED, ClientPolicy
from flwr_dpkmeans.results.rendering import CONSOLE, rendered

SUPERNODE = (
    sys.executable,
    "-I",
    str(Path(__file__).with_name("guard") / "supernode_program.py"),
)
"""Flower's SuperNode with what stands before it.

It parses approved apps only, and ends when it cannot answer.
"""
_CONFIG, _PREFIX = "node-config.toml", "flwr-dpkmeans-"
_GATE = "gate.json"
_LOOK_SECONDS = 0.05


@guard_errors_as_mistakes()
def make_node(
    new: NewNode,
    *,
    start: bool,
    patient: bool,
) -> int:
    """Make a party's folder, and start its node if that is asked for."""
    path = init(new)
    print(f"wrote {path}, and {new.name} into {new.invitation}")
    if not start:
        return 0
    return _node(path, start=True, patient=patient)


@guard_errors_as_mistakes()
def pin_parties(path: Path) -> int:
    """Write the other parties' identities into a node's policy, and print them."""
    options = NodeOptions.from_toml(settings_file(path))
    print("\n".join(pin(options)))
    return 0


@guard_errors_as_mistakes()
def check_node(path: Path, *, apps: bool) -> int:
    """Print a line for each thing that a node needs; 1 if one is wrong."""
    return _node(settings_file(path), start=False, apps=apps)


@guard_errors_as_mistakes()
def start_node(
    path: Path,
    *,
    apps: bool,
    patient: bool,
    dry_run: bool,
) -> int:
    """Become Flower's SuperNode if nothing is wrong; 1 if something is."""
    file = settings_file(path)
    return _node(
        file,
        start=True,
        apps=apps,
        patient=patient,
        dry=dry_run,
    )


@guard_errors_as_mistakes()
def accept_data(path: Path) -> int:
    """Let the owner say that the data are meant which a ledger does not know."""
    file = settings_file(path)
    looks = NodeCheck(file, NodeOptions.from_toml(file))
    facts = looks.row_facts
    ledger, problem = looks.options.ledger, looks.belonging.problem(facts)
    if not problem:
        print(f"{ledger} has nothing against these data: nothing is recorded.")
        return 0
    looks.belonging.accept(facts)
    print(
        f"{ledger} records that these data are meant, too; what was charged stays"
        " charged. It had said:"
    )
    print(problem)
    return 0


@guard_errors_as_mistakes()
def print_status(path: Path, *, as_json: bool) -> int:
    """Print what a node was asked, gave and refused; 1 if something is wrong."""
    file = settings_file(path)
    options = NodeOptions.from_toml(file)
    seen = owner_sees(options)
    belongs = NodeCheck(file, options).belongs
    if belongs.verdict is Verdict.WRONG and not seen["problems"]:
        seen["problems"] = [belongs.says]
    if as_json:
        finite = {key: without_infinities(seen[key]) for key in ("epsilon", "given")}
        print(json.dumps(seen | finite, indent=1))
    else:
        print(rendered("status.j2", CONSOLE, **seen))
    return 1 if seen["problems"] or seen["last"]["problem"] else 0


@guard_errors_as_mistakes()
def show_page(
    path: Path,
    port: int,
    token_file: Path | None,
) -> int:
    """Show a node's live page until this process is ended."""
    from flwr_dpkmeans.deploy.dashboard import node_metrics, node_page, serve

    file = settings_file(path)
    return serve(
        partial(node_page, file),
        partial(node_metrics, file),
        port,
        token_file,
    )


@guard_errors_as_mistakes()
def print_hash(app: Path) -> int:
    """Print the hash that a policy names an app by."""
    print(app_hash(app))
    return 0


def settings_file(path: Path) -> Path:
    """Return NODE.toml of a node's folder, or the file itself, as a whole path."""
    if path.is_dir():
        return path.absolute() / SETTINGS_FILE
    return path.absolute()


def _node(
    path: Path,
    *,
    start: bool,
    apps: bool = False,
    patient: bool = False,
    dry: bool = False,
) -> int:
    """Look, and start if nothing is wrong."""
    options = NodeOptions.from_toml(path)
    # What this process asks, and what it becomes, goes the same way.
    choose_proxy(options.proxy, os.environ)
    if apps and options.isolation is Isolation.SUBPROCESS:
        raise GuardError("--apps is for isolation = 'process' only: leave it out.")
    if start and not dry:
        _wait(options, apps=apps)
    findings = check(
        path,
        options,
        apps=apps,
        starting=start,
        patient=patient,
    )
    wrong = [finding for finding in findings if finding.verdict is Verdict.WRONG]
    for finding in findings:
        print(finding, file=sys.stderr if start else sys.stdout, flush=True)
    if start and not wrong:
        environment = {} if dry else _environment(options, apps=apps)
        config = options.home / _CONFIG if dry or apps else config_file(options)
        command = (
            apps_command(options)
            if apps
            else supernode_command(options, config, patient=patient)
        )
        if dry:
            print(shlex.join(command))
            return 0
        leave_no_core()
        # No process in between: signals, exit codes and systemd meet Flower's program
        # itself.
        os.execve(command[0], command, environment)
    return 1 if wrong else 0


def _wait(options: NodeOptions, *, apps: bool) -> None:
    """Wait until nothing is missing, and say what for whenever that changes."""
    last_printed = ""
    while what := missing_for_start(options, apps=apps):
        if what != last_printed:
            print(f"waiting for {what}", file=sys.stderr, flush=True)
        last_printed = what
        time.sleep(1.0)


def missing_for_start(options: NodeOptions, *, apps: bool) -> str:
    """The other parties, who are pinned as soon as all are in the invitation.

    Then a SuperLink that knows this one.
    """
    both, path = options.isolation is Isolation.SUBPROCESS, options.invitation
    if (
        (both or apps)
        and path
        and ClientPolicy.from_toml(options.policy, base=DEPLOYED).pinned_peers is None
    ):
        if names := Invitation.from_toml(path).missing:
            return f"{', '.join(names)} in {path}"
        print("\n".join(pin(options)), file=sys.stderr, flush=True)
    if apps:
        return ""
    try:
        answer = ask(options)
    except UnansweredError as error:
        return str(error)
    waits = (
        options.key and not answer.knows_key and abs(answer.ahead) < MOST_CLOCK_SECONDS
    )
    return (
        f"superlink {options.superlink} to register the key {options.key}.pub"
        if waits
        else ""
    )


def config_file(options: NodeOptions) -> Path:
    """Write what the app is told of this node where nobody else reads it.

    `ps` would show a command line to all.
    """
    lines = [
        f"{key} = {json.dumps(value, ensure_ascii=False)}\n"
        for key, value in options.node_config.items()
    ]
    content = "".join(lines).encode()
    if options.isolation is Isolation.PROCESS:  # the home is the other user's
        return read_once(content)
    path = options.home / _CONFIG
    path.unlink(missing_ok=True)
    return write_new(path, content)


def read_once(content: bytes) -> Path:
    """Make a pipe that what this process becomes reads as a file.

    Nothing of it stays, also if nobody reads it.
    """
    for left in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        # Its writer was killed, too.
        process = left.name.removeprefix(_PREFIX).partition("-")[0]
        if (
            process.isdecimal()
            and left.lstat().st_uid == os.geteuid()
            and not _is_alive(int(process))
        ):
            shutil.rmtree(left, ignore_errors=True)
    reader, folder = (
        os.getpid(),
        Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-")),
    )
    os.mkfifo(folder / _CONFIG, 0o600)
    if first := os.fork():
        os.waitpid(first, 0)
        return folder / _CONFIG
    try:
        # a child that Flower's program would have to wait for would stay behind as a
        # zombie
        if not os.fork():
            os.setsid()
            write_once(folder / _CONFIG, content, reader)
    finally:
        os._exit(0)


def write_once(
    path: Path,
    content: bytes,
    reader: int,
) -> None:
    """Write as soon as there is a reader, and remove the pipe with its folder."""
    try:
        while _is_alive(reader):
            with contextlib.suppress(OSError):  # nobody reads yet
                with os.fdopen(
                    os.open(path, os.O_WRONLY | os.O_NONBLOCK), "wb"
                ) as pipe:
                    os.set_blocking(pipe.fileno(), True)
                    pipe.write(content)
                return
            time.sleep(_LOOK_SECONDS)
    finally:
        shutil.rmtree(path.parent, ignore_errors=True)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it has become another user's
        return True
    return True


def supernode_command(
    options: NodeOptions,
    config: Path,
    *,
    patient: bool = False,
) -> list[str]:
    """Flower's command line for a node."""
    command = [
        *SUPERNODE,
        *(["--wait"] if patient else []),
        "--allowed-apps",
        ",".join(options.runnable_apps),
        "--superlink",
        options.superlink,
        "--isolation",
        options.isolation.value,
    ]
    command += [
        "--host",
        options.host,
        "--port",
        str(options.port),
        *(["--insecure"] if options.insecure else []),
    ]
    for flag, value in (
        ("--root-certificates", options.root_certificates),
        ("--auth-supernode-private-key", options.key),
        ("--superexec-auth-secret-file", options.runtime_secret),
    ):
        command += [flag, str(value)] if value else []
    return [*command, "--node-config", str(config)]


def apps_command(options: NodeOptions) -> list[str]:
    """Flower's command line for the program that starts apps.

    Where it is not the SuperNode that does.
    """
    guarded = options.home / GUARDED / SUPEREXEC
    command = [
        str(guarded),
        "--insecure",
        "--runtime-api-address",
        f"{options.host}:{options.port}",
    ]
    return [*command, "--superexec-auth-secret-file", str(options.runtime_secret)]


def _environment(options: NodeOptions, *, apps: bool) -> Mapping[str, str]:
    """Variables of Flower's programs, which find guarded programs only."""
    environment = flower_environment()
    if options.isolation is Isolation.PROCESS and not apps:
        return environment | {"PATH": os.devnull}  # this half starts nothing
    options.home.mkdir(mode=0o700, parents=True, exist_ok=True)
    require_private(options.home)
    forget(options.home)
    return (
        environment
        | {"FLWR_HOME": str(options.home)}
        | guarded_environment(
            options.home,
            frozenset(options.runnable_apps),
            gate=gate_file(options),
        )
    )


def gate_file(options: NodeOptions) -> Path | None:
    """Write the table [gate] where the guard's programs read it, if there is one."""
    path = options.home / _GATE
    path.unlink(missing_ok=True)
    if options.gate is None:
        return None
    return write_new(path, options.gate.model_dump_json(by_alias=True).encode())


def guarded_environment(
    home: Path,
    allowed: frozenset[str],
    app: str = CLIENT_APP,
    gate: Path | None = None,
) -> dict[str, str]:
    """Write guarded programs for apps into a private home.

    And return the variables with which Flower uses them.
    """
    guard = Guard(
        allowed,
        home / "guarded-apps",
        home / "alerts.log",
        gate,
    )
    return write_programs(guard, home / GUARDED, app)


def settings_text(settings: Mapping[str, str | int | float | bool]) -> str:
    """Write settings as Flower's command line takes them, for a node or a run.

    TOML, strings in quotes.

    Examples
    --------
    >>> settings_text({"data-path": "/a b/rows.npy", "n-clusters": 3, "verbose": True})
    "data-path='/a b/rows.npy' n-clusters=3 verbose=true"
    """
    words = []
    for key, value in settings.items():
        if isinstance(value, str) and {"'", "\n"} & set(value):
            raise ConfigurationError(
                f"the setting {key!r} is {value!r}: use a value without ' and line"
                " breaks."
            )
        text = str(value).lower() if isinstance(value, bool) else repr(value)
        words.append(f"{key}='{value}'" if isinstance(value, str) else f"{key}={text}")
    return " ".join(words)
