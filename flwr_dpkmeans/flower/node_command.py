"""``flwr-dpkmeans node start|check|hash``: a SuperNode that runs approved apps only."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from flwr_dpkmeans.errors import ConfigurationError
from flwr_dpkmeans.flower.app_guard import SUPEREXEC, Guard, GuardError, digest_of, require_private, write_programs
from flwr_dpkmeans.flower.node_checks import Verdict, check
from flwr_dpkmeans.node.node_settings import Isolation, NodeOptions

SUPERNODE = "flower-supernode"


def node(arguments: Sequence[str]) -> int:
    """Run the command: 1 if something is wrong; ``start`` does not return, but becomes Flower's program."""
    parser = argparse.ArgumentParser(prog="python -m flwr_dpkmeans node", description=__doc__)
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
            print(digest_of(options.file.read_bytes()))
            return 0
        return _node(options.file.absolute(), start=options.command == "start", apps=options.apps)
    except GuardError as error:
        raise ConfigurationError(str(error)) from error


def _node(path: Path, *, start: bool, apps: bool) -> int:
    """Look, and start if nothing is wrong."""
    options = NodeOptions.from_toml(path)
    if apps and options.isolation is Isolation.SUBPROCESS:
        raise GuardError("--apps is for isolation = 'process' only: leave it out.")
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
    command = [_program(SUPEREXEC), "--insecure", "--runtime-api-address", f"{options.host}:{options.port}"]
    return [*command, "--superexec-auth-secret-file", str(options.runtime_secret)]


def _environment(options: NodeOptions, *, apps: bool) -> Mapping[str, str]:
    """The own environment without Python's variables, and guarded programs as the only ones that are found."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    own |= {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "PYTHONUNBUFFERED": "1"}
    own.setdefault("FLWR_SUPEREXEC_TASK_POLL_INTERVAL", "0.2")
    if options.isolation is Isolation.PROCESS and not apps:
        return own | {"PATH": os.devnull}  # this half starts nothing
    options.home.mkdir(mode=0o700, parents=True, exist_ok=True)
    require_private(options.home)
    return own | {"FLWR_HOME": str(options.home)} | guarded_environment(options.home, frozenset(options.allowed_apps))


def guarded_environment(home: Path, allowed: frozenset[str]) -> dict[str, str]:
    """Write the guarded programs of a node into its home, and return the variables with which Flower uses them.

    Parameters
    ----------
    home : Path
        Private folder of the node.
    allowed : frozenset of str
        SHA-256 of the apps that may run.

    Returns
    -------
    dict
    """
    return write_programs(Guard(allowed, home / "guarded-apps", home / "alerts.log"), home / "guarded-programs")


def _program(name: str) -> str:
    """A command of the environment that this interpreter is in."""
    return str(Path(sys.executable).with_name(name))


def settings_text(settings: Mapping[str, str | int | float | bool]) -> str:
    """Write settings as Flower's command line takes them, for a node or a run: TOML, strings in quotes.

    Parameters
    ----------
    settings : mapping
        Names and scalars.

    Returns
    -------
    str

    Raises
    ------
    ConfigurationError
        If a string cannot be quoted.

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
