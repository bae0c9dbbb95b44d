"""All commands: ``python -m flwr_dpkmeans plan | ledger | identity | node | options``."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

COMMANDS = {
    "plan": "flwr_dpkmeans.planner.cli",
    "ledger": "flwr_dpkmeans.node.ledger_command",
    "identity": "flwr_dpkmeans.node.identity_command",
    "node": "flwr_dpkmeans.flower.node_command",
    "options": "flwr_dpkmeans.flower.run_config",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Hand the rest of the command line to the command that it begins with.

    Parameters
    ----------
    arguments : sequence of str, optional
        The command line without the program's name; that of the process by default.

    Returns
    -------
    int
        The command's own code, or 2 without a command.

    Examples
    --------
    >>> main(["ledger", "verify", "no-such-ledger"])
    1
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    if not given or given[0] not in COMMANDS:
        wanted = not given or given[0] not in ("-h", "--help")
        print(
            f"python -m flwr_dpkmeans {' | '.join(COMMANDS)} (each has --help)",
            file=sys.stderr if wanted else sys.stdout,
        )
        return 2 if wanted else 0
    # Only the chosen command is imported: planning takes SciPy, a node takes Flower.
    command = importlib.import_module(COMMANDS[given[0]])
    return int(command.main(given[1:]))


if __name__ == "__main__":
    sys.exit(main())
