"""The command lines of all commands: ``--help`` imports nothing that a command's work
takes.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from flwr_dpkmeans.errors import nearest

if TYPE_CHECKING:
    from flwr_dpkmeans.data.files.dialect import Dialect

Actions = Mapping[str, tuple[str, Mapping[str, Mapping[str, Any]]]]
"""A command's actions by name: what each does, and its own arguments with how argparse
takes them.
"""

PLAN_FILE, PICTURE_FILE = "plan.json", "plan.png"
QUICK_SEEDS = 5
FIRST_PORT, N_PORTS = 8000, 1000
"""Among which a server looks for a free one."""


class CommandLine(argparse.ArgumentParser):
    """A command's options: one that does not exist is told together with the nearest
    that does.
    """

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As its base; the options of a command's actions are looked at by those
        actions' own parsers.
        """
        for word in (
            () if self._subparsers else itertools.takewhile("--".__ne__, args or ())
        ):
            name = word.partition("=")[0]
            if name.startswith("--") and not any(
                one.startswith(name) for one in self._option_string_actions
            ):
                self.error(
                    f"there is no option {name}:"
                    f" {nearest(name, self._option_string_actions)}"
                )
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        """One sentence, where to read more, and code 2."""
        self.exit(2, f"{message} (see {self.prog} --help)\n")


def parse(command: str, arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the arguments of a command.

    Of ``--help``, or of what cannot be read, it does not return.
    """
    if command == "run":
        return run_line().parse_known_intermixed_args(arguments)[0]
    parser = CommandLine(
        prog=f"python -m flwr_dpkmeans {command}", description=_ABOUT[command]
    )
    if command == "plan":
        _plan(parser)
    elif command == "results":
        text = (
            "the server's folder, NODE.toml or its folder, or a folder of results"
            " (default: here)"
        )
        parser.add_argument("place", type=Path, nargs="?", default=Path(), help=text)
    elif command in _FLAT:
        for argument, how in _FLAT[command].items():
            parser.add_argument(*argument.split(), **how)
    else:
        commands = parser.add_subparsers(dest="action", required=True)
        first, actions = _ACTIONS[command]
        for name, (text, flags) in actions.items():
            action = commands.add_parser(name, help=text, description=text)
            for argument, taken in {**first, **flags}.items():
                action.add_argument(argument, **taken)
    return parser.parse_args(arguments)


def run_line() -> argparse.ArgumentParser:
    """What the checks before a run need of Flower's arguments, all of which it takes."""
    about = (
        "Check the configuration and the table, run `flwr run --stream`, and return how"
        " the run ended."
    )
    prog, others = (
        "python -m flwr_dpkmeans run",
        "Every argument of `flwr run` will do: see flwr run --help.",
    )
    parser = argparse.ArgumentParser(
        prog=prog, description=about, epilog=others, allow_abbrev=False
    )
    parser.add_argument("app", nargs="?", default=".")
    parser.add_argument("superlink", nargs="?")
    parser.add_argument("--run-config", "-c", action="append")
    parser.add_argument(
        "--server",
        type=Path,
        help="folder of `server init`: where to run, and among whom",
    )
    parser.add_argument("--federation-config", action="append")
    for flag in ("--federation", "--format"):
        parser.add_argument(flag)
    return parser


def _plan(parser: CommandLine) -> None:
    add = parser.add_argument
    size = parser.add_mutually_exclusive_group(required=True).add_argument
    size(
        "--n-examples",
        "--n",
        type=int,
        help="rows of all clients together; a guess is enough",
    )
    size(
        "--count-rows",
        action="store_true",
        help="their number is public, and that of the file of --like",
    )
    add(
        "--n-features",
        "--d",
        type=int,
        default=0,
        help="columns; default: those of a schema, of bounds, or of --like",
    )
    add(
        "--like",
        metavar="FILE",
        help="a table whose columns' names and kinds are read, and nothing else",
    )
    add("--n-clusters", "--k", type=int, default=10, help="clusters (10)")
    add(
        "--n-clients",
        "--clients",
        "--num-clients",
        type=int,
        default=2,
        help="clients (2)",
    )
    add("--epsilon", type=float, default=1.0, help="total over the run (1)")
    add("--delta", type=float, help="default: 1/(N ln N)")
    add("--unit", help="record (default) or client")
    add(
        "--trust",
        help="oblivious, central or distributed; default: each algorithm's own",
    )
    add(
        "--algorithm",
        nargs="+",
        default=[],
        help="candidates; default: all private ones without server data",
    )
    add(
        *("--bounds", "--schema"),
        help=(
            "public bounds, 'low,high' or a file, or a schema: noise is in their units"
            " (default: a fraction of half their range); or 'private'"
        ),
    )
    add("--bounds-domain", help="with private bounds: a public range that they lie in")
    goal = parser.add_mutually_exclusive_group().add_argument
    text = (
        "cost that is wanted, over the non-private optimum's: 1.05 is 5%% above, and"
        " which epsilon takes it is said"
    )
    goal("--accuracy", type=float, metavar="RATIO", help=text)
    goal("--target-excess", type=float, default=0.1, help="the same, less 1 (0.1)")
    add(
        "--spread",
        type=float,
        default=0.15,
        help="clusters' deviation over half the range (0.15)",
    )
    add(
        "--private-count",
        action="store_true",
        help="N is a guess that the run counts privately",
    )
    add(
        "--evaluation",
        help="none (default) or private: one more round with its share of the budget",
    )
    for name in (
        "--max-iter",
        "--max-silent",
        "--max-retries",
        "--examples-per-client",
        "--random-state",
    ):
        add(name, type=int, help="as in a run")
    add("--seeds", type=int, default=20, help="synthetic data sets per point (20)")
    add(
        "--quick",
        action="store_true",
        help=f"{QUICK_SEEDS} synthetic data sets per point",
    )
    add("--json", action="store_true", help="print JSON instead of a table")
    add(
        "--output", metavar="FOLDER", help=f"write {PLAN_FILE} and {PICTURE_FILE} there"
    )


DIALECT: dict[str, dict[str, Any]] = {
    "--separator": {
        "help": "what stands between cells of a text file: one character, or tab"
    },
    "--decimal": {"help": "its decimal mark: . or ,"},
    "--thousands": {"help": "its mark between groups of three digits"},
    "--encoding": {"help": "its encoding, such as utf-8, utf-16, latin-1"},
    "--header": {
        "choices": ("yes", "no"),
        "help": "whether its first record has names",
    },
    "--row-names": {
        "choices": ("yes", "no"),
        "help": "whether records begin with a name, as R writes them",
    },
    "--skip-lines": {"type": int, "help": "lines before the header"},
    "--missing": {"help": "texts that are missing cells too, such as '?,-999'"},
    "--comment": {"help": "what lines of comments begin with"},
    "--dates": {"help": "how dates are written beside ISO 8601, such as %%d.%%m.%%Y"},
}
"""How a file of delimited text is written."""


def stated_dialect(options: argparse.Namespace) -> Dialect:
    """Return what a command's options state of a file."""
    from flwr_dpkmeans.data.files.dialect import Dialect

    names = [flag.removeprefix("--").replace("-", "_") for flag in DIALECT]
    return Dialect.of_scalars({name: getattr(options, name) for name in names})


_FILE: dict[str, Any] = {"file": {"type": Path, "help": "NODE.toml, or its folder"}}
PAGE_PORT: dict[str, dict[str, Any]] = {
    "--port": {"type": int, "default": 8400, "help": "0: any that is free"},
    "--token-file": {
        "type": Path,
        "help": (
            "the token of the page's address; made if absent (default: a new token)"
        ),
    },
}
_JSON = {"--json": {"action": "store_true", "help": "the same for programs"}}
_APPS = {
    "--apps": {
        "action": "store_true",
        "help": "isolation 'process': the part that runs apps, as its own user",
    }
}
_DRY_RUN = {
    "--dry-run": {
        "action": "store_true",
        "help": "print Flower's own command line, and start nothing",
    }
}
_EAGER = {
    "--eager": {
        "action": "store_true",
        "help": "look every second instead of every 3; wait to be let in again",
    }
}
_NODE: Actions = {
    "init": (
        (
            "make this party's folder NAME with keys and strict files, and write it"
            " into the invitation"
        ),
        {
            "name": {"help": "in the invitation"},
            "--invitation": {
                "type": Path,
                "required": True,
                "help": "invitation.toml, as it goes around",
            },
            "--data": {
                "required": True,
                "help": (
                    "the rows: a file, a database's URL, or ray:///PATH, dask:///PATH"
                ),
            },
            "--query": {"default": "", "help": "what the database is asked for (SQL)"},
            "--columns": {
                "default": "",
                "help": (
                    "clustered ones, such as age,height; left out: all that hold"
                    " numbers"
                ),
            },
            "--schema": {
                "type": Path,
                "help": "in place of columns: the schema that all parties share",
            },
            **DIALECT,
            "--folder": {
                "type": Path,
                "default": Path(),
                "help": "where the folder is made",
            },
            "--max-epsilon-total": {
                "type": float,
                "default": 20.0,
                "help": "what all runs together may cost",
            },
            "--app": {
                "type": Path,
                "default": Path(),
                "help": "the own copy of the project, or its .fab file",
            },
            "--start": {
                "action": "store_true",
                "help": "then wait for all others, and start",
            },
            **_EAGER,
        },
    ),
    "pin": (
        (
            "write the identities of the complete invitation into the policy, and print"
            " them to be compared"
        ),
        _FILE,
    ),
    "check": ("look at everything, and print a line for each item", _FILE | _APPS),
    "start": (
        (
            "look at everything, then run flower-supernode with the guard, or say what"
            " is wrong"
        ),
        _FILE | _APPS | _EAGER | _DRY_RUN,
    ),
    "status": (
        "print what was asked, given and refused, and what is left",
        _FILE | _JSON,
    ),
    "dashboard": (
        "show the same as a live page on this machine, with numbers for Prometheus",
        _FILE | PAGE_PORT,
    ),
    "hash": (
        "print the hash of a reviewed app, for allowed-apps",
        {"app": {"type": Path, "help": "project or .fab"}},
    ),
}
_INIT: dict[str, dict[str, Any]] = {
    "--parties": {
        "nargs": "+",
        "required": True,
        "metavar": "NAME",
        "help": "at least two",
    },
    "--federation": {"help": "its name (default: the folder's)"},
    "--address": {"help": "HOST:PORT that nodes connect to (default: this machine)"},
    "--port": {
        "type": int,
        "help": (
            f"on this machine (default: a free one from {FIRST_PORT} to"
            f" {FIRST_PORT + N_PORTS - 1})"
        ),
    },
    "--app": {
        "type": Path,
        "default": Path(),
        "help": "project or .fab file (default: here)",
    },
}
_SERVER: Actions = {
    "init": (
        "make a folder: certificates, server.toml, and the invitation that goes around",
        _INIT,
    ),
    "check": ("look at everything, and print a line for each item", {}),
    "start": (
        (
            "look at everything, then run flower-superlink and let the invited parties"
            " in as they appear"
        ),
        {
            "--background": {
                "action": "store_true",
                "help": "return as soon as it answers",
            },
            **_DRY_RUN,
        },
    ),
    "status": (
        "say who is there, and how each run is or ended",
        {"--json": {"action": "store_true", "help": "the same for programs"}},
    ),
    "dashboard": (
        (
            "show the runs below a folder as a live page on this machine, with numbers"
            " for Prometheus"
        ),
        PAGE_PORT,
    ),
}
_LEDGER: Actions = {
    "show": (
        "print what was spent, by data set, unit of privacy and run",
        {
            "--json": {
                "action": "store_true",
                "help": "a list; a run is Flower's run id / node id",
            }
        },
    ),
    "verify": ("check every line, and the head file beside the ledger", {}),
    "accept": (
        (
            "go on with the ledger as it stands: for its owner, after looking at what"
            " is missing from it"
        ),
        {},
    ),
}
_SCHEMA: Actions = {
    "draft": (
        (
            "write names and kinds of a table's columns into a .toml file beside it;"
            " the rest is yours"
        ),
        DIALECT,
    ),
    "check": (
        (
            "say how an own table reads by a schema: what is missing, misspelt, or"
            " outside the bounds, and which values"
        ),
        {
            "table": {"help": "a file, or a database's URL"},
            "--query": {"default": "", "help": "what the database is asked for (SQL)"},
            **DIALECT,
        },
    ),
}
_IDENTITY: Actions = {
    "new": (
        (
            "make a key file, and print the public key that the other parties pin in"
            " their policies"
        ),
        {},
    ),
    "show": ("print the public key of a key file", {}),
}
_FLAT: dict[str, dict[str, dict[str, Any]]] = {
    "predict": {
        "model": {
            "metavar": "MODEL",
            "help": "model.json of a run, or what FederatedKMeans.save wrote",
        },
        "table": {
            "metavar": "TABLE",
            "help": "a table's file, or a folder of .parquet",
        },
        "-o --output": {
            "required": True,
            "help": "the .csv file to write; one that is there is replaced",
        },
        **DIALECT,
    },
    "options": {
        "--toml": {
            "action": "store_true",
            "help": "the block [tool.flwr.app.config] of pyproject.toml",
        }
    },
}
"""Arguments of commands that are one action."""
_ABOUT = {
    "predict": (
        "Label the rows of a table by a model; columns are found by name, in any order"
        " and among others."
    ),
    "options": "List the keys of flwr run.",
    "plan": (
        "Forecast noise, accuracy, messages and minutes of a run from its public shape."
    ),
    "node": "A party's node, which runs approved apps only.",
    "server": "A SuperLink, and its parties by name.",
    "results": (
        "Print a line for each party's result: its run, when it ended, what it cost or"
        " why it failed, its page."
    ),
    "ledger": "Look at a privacy ledger.",
    "identity": "Make or show a node's long-term identity.",
    "schema": "Draft the schema that all parties share, or try it.",
}
_ACTIONS: dict[str, tuple[dict[str, dict[str, Any]], Actions]] = {
    "node": ({}, _NODE),
    "server": ({"folder": {"type": Path}}, _SERVER),
    "ledger": ({"path": {"help": "the ledger file"}}, _LEDGER),
    "identity": ({"path": {"help": "the key file"}}, _IDENTITY),
    "schema": ({"path": {"help": "the file"}}, _SCHEMA),
}
"""Of commands with actions: what each action takes first, and the actions."""
