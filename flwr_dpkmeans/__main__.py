"""All commands: ``flwr-dpkmeans plan`` and so on (`COMMANDS`), or ``python -m
flwr_dpkmeans ...``.
"""

from __future__ import annotations

import os
import pkgutil
import sys
from collections.abc import Sequence

from flwr_dpkmeans import __version__
from flwr_dpkmeans.errors import DPKMeansError, nearest

COMMANDS = {
    "plan": "flwr_dpkmeans.cli.plan_command:main",
    "predict": "flwr_dpkmeans.cli.app_commands:predict",
    "run": "flwr_dpkmeans.deploy.run_command:run",
    "ledger": "flwr_dpkmeans.deploy.owner_commands:ledger",
    "identity": "flwr_dpkmeans.deploy.owner_commands:identity",
    "schema": "flwr_dpkmeans.deploy.owner_commands:schema",
    "node": "flwr_dpkmeans.deploy.node_command:node",
    "server": "flwr_dpkmeans.deploy.server_command:server",
    "results": "flwr_dpkmeans.deploy.server_command:results",
    "options": "flwr_dpkmeans.cli.app_commands:options",
}
"""Where each command's function is: it takes the rest of the command line, and returns
the process's code.
"""
_PIPE_CLOSED = 141
"""What shells say of a program that SIGPIPE has ended."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Hand the rest of the command line to the command that it begins with.

    Its code, 1 if it fails, 2 without one.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given == ["--version"]:
        print(f"flwr-dpkmeans {__version__}")
        return 0
    if not given or given[0] not in COMMANDS:
        wanted = not given or given[0] not in ("-h", "--help")
        if wanted and given:
            print(
                f"there is no command {given[0]!r}: {nearest(given[0], COMMANDS)}",
                file=sys.stderr,
            )
        usage = f"python -m flwr_dpkmeans {' | '.join(COMMANDS)} (each has --help)"
        print(usage, file=sys.stderr if wanted else sys.stdout)
        return 2 if wanted else 0
    try:
        if {"-h", "--help"} & {*given[1:]}:
            pkgutil.resolve_name("flwr_dpkmeans.deploy.command_lines:parse")(
                *given[:1], given[1:]
            )
        # Only the chosen command is imported: planning takes SciPy, a node takes
        # Flower.
        code = int(pkgutil.resolve_name(COMMANDS[given[0]])(given[1:]))
        # what a pipe does not take is told now, not at the end of Python
        sys.stdout.flush()
        return code
    except (
        BrokenPipeError
    ):  # whoever read has enough, as `head` has: no mistake, and nobody to tell
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _PIPE_CLOSED
    except (DPKMeansError, OSError, OverflowError) as error:  # the last one of a port
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
