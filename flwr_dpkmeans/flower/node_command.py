"""``flwr-dpkmeans node init|pin|check|start|status|hash``: a party's SuperNode, which runs approved apps only."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from flwr_dpkmeans.errors import CommandLine, ConfigurationError
from flwr_dpkmeans.flower import app_guard
from flwr_dpkmeans.flower.findings import Verdict, app_digest, flower_environment, program
from flwr_dpkmeans.flower.node_check import MOST_CLOCK_SECONDS, UnansweredError, ask, check
from flwr_dpkmeans.flower.node_setup import SETTINGS_FILE, init, pin
from flwr_dpkmeans.node.commands import status
from flwr_dpkmeans.node.invitation import Invitation
from flwr_dpkmeans.node.node_settings import Isolation, NodeOptions
from flwr_dpkmeans.node.policy import DEPLOYED, ClientPolicy

SUPERNODE = "flower-supernode"
_GUARDED = "guarded-programs"
_COMMANDS = {
    "init": "make this party's folder NAME with keys and strict files, and write it into the invitation",
    "pin": "write the identities of the complete invitation into the policy, and print them to be compared",
    "check": "look at everything, and print a line for each item",
    "start": "look at everything, then run flower-supernode with the guard, or say what is wrong",
    "status": "print what was asked, given and refused, and what is left",
    "hash": "print the hash of a reviewed app, for allowed-apps",
}
_INIT = (
    ("--invitation", Path, None, "invitation.toml of the office"),
    ("--data", str, None, "the rows: a file, or a database's URL"),
    ("--query", str, "", "what the database is asked for (SQL)"),
    ("--columns", str, "", "those that are clustered, such as age,height; left out: all that hold numbers"),
    ("--schema", Path, None, "the schema that all parties share, in place of columns"),
    ("--folder", Path, Path(), "where the folder is made"),
    ("--max-epsilon-total", float, 20.0, "what all runs together may cost"),
    ("--app", Path, Path(), "the own copy of the project, or its .fab file"),
)


def node(arguments: Sequence[str]) -> int:
    """Run the command: 1 if something is wrong; ``start`` does not return, but becomes Flower's program."""
    options = _parser().parse_args(arguments)
    try:
        if options.command == "hash":
            print(app_digest(options.file))
            return 0
        path = init(options) if options.command == "init" else options.file.absolute()
        if options.command == "init":
            print(f"wrote {path}, and {options.name} into {options.invitation}")
            return _node(path, start=True, apps=False) if options.start else 0
        path = path / SETTINGS_FILE if path.is_dir() else path
        if options.command == "pin":
            print("\n".join(pin(NodeOptions.from_toml(path))))
            return 0
        if options.command == "status":
            return status(NodeOptions.from_toml(path), as_json=options.json)
        return _node(path, start=options.command == "start", apps=options.apps)
    except app_guard.GuardError as error:
        raise ConfigurationError(str(error)) from error


def _parser() -> CommandLine:
    parser = CommandLine(prog="python -m flwr_dpkmeans node", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, text in _COMMANDS.items():
        command = commands.add_parser(name, help=text, description=text)
        if name == "init":
            command.add_argument("name", help="this party's name in the invitation")
            for flag, kind, default, about in _INIT:
                command.add_argument(
                    flag, type=kind, default=default, required=flag in ("--invitation", "--data"), help=about
                )
            command.add_argument(
                "--start", action="store_true", help="then wait for the others and the SuperLink, and start"
            )
        else:
            command.add_argument("file", type=Path, help="a .fab file or a project" if name == "hash" else "NODE.toml")
        if name in ("start", "check"):
            text = "isolation 'process': the part that runs the apps (flower-superexec), as its own user"
            command.add_argument("--apps", action="store_true", help=text)
        if name == "status":
            command.add_argument("--json", action="store_true")
    return parser


def _node(path: Path, *, start: bool, apps: bool) -> int:
    """Look, and start if nothing is wrong."""
    options = NodeOptions.from_toml(path)
    if apps and options.isolation is Isolation.SUBPROCESS:
        raise app_guard.GuardError("--apps is for isolation = 'process' only: leave it out.")
    if start:
        _wait(options, apps=apps)
    findings = check(path, options, apps=apps)
    wrong = [finding for finding in findings if finding.verdict is Verdict.WRONG]
    for finding in findings:
        print(finding, file=sys.stderr if start else sys.stdout, flush=True)
    if start and not wrong:
        command = apps_command(options) if apps else supernode_command(options)
        # No process in between: signals, exit codes and systemd meet Flower's program itself.
        os.execve(command[0], command, _environment(options, apps=apps))
    return 1 if wrong else 0


def _wait(options: NodeOptions, *, apps: bool) -> None:
    """Wait until the other parties are known, and pin them; then until the SuperLink is there and knows this one."""
    both = options.isolation is Isolation.SUBPROCESS
    if (
        (both or apps)
        and options.invitation
        and ClientPolicy.from_toml(options.policy, base=DEPLOYED).pinned_peers is None
    ):
        _until(partial(_missing_parties, options, options.invitation))
        print("\n".join(pin(options)), file=sys.stderr, flush=True)
    if both or not apps:
        _until(partial(_missing_superlink, options))


def _until(missing: Callable[[], str]) -> None:
    """Wait until nothing is missing, and say what for whenever that changes."""
    told = ""
    while what := missing():
        if what != told:
            print(f"waiting for {what}", file=sys.stderr, flush=True)
        told = what
        time.sleep(1.0)


def _missing_parties(options: NodeOptions, path: Path) -> str:
    return ", ".join(Invitation.load(path).missing) and f"{', '.join(Invitation.load(path).missing)} in {path}"


def _missing_superlink(options: NodeOptions) -> str:
    try:
        answer = ask(options)
    except UnansweredError as error:
        return str(error)
    waits = options.key and not answer.knows_key and abs(answer.ahead) < MOST_CLOCK_SECONDS
    return f"superlink {options.superlink} to register the key {options.key}.pub" if waits else ""


def supernode_command(options: NodeOptions) -> list[str]:
    """Flower's command line for a node."""
    command = [program(SUPERNODE), "--superlink", options.superlink, "--isolation", options.isolation.value]
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
    """That of Flower's programs, and guarded programs as the only ones that are found."""
    own = flower_environment()
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
