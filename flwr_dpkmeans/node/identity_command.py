"""Make a node's long-term identity, or show it: ``python -m flwr_dpkmeans identity new|show PATH``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from flwr_dpkmeans.errors import ConfigurationError
from flwr_dpkmeans.node.identity import Identity
from flwr_dpkmeans.secagg.signing import format_identity


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command: the public key goes to standard output, alone in its line; the private key stays in the file.

    Parameters
    ----------
    arguments : sequence of str, optional
        The command line without the program's name; that of the process by default.

    Returns
    -------
    int
        0, or 1 if the file exists already (``new``) or is none (``show``).

    Examples
    --------
    >>> main(["show", "no-such-identity"])
    1
    """
    parser = argparse.ArgumentParser(
        prog="python -m flwr_dpkmeans identity", description="Make or show a node's long-term identity."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    for name, text in (
        ("new", "make a key file, and print the public key that the other parties pin in their policies"),
        ("show", "print the public key of a key file"),
    ):
        commands.add_parser(name, help=text, description=text).add_argument("path", help="the key file")
    options = parser.parse_args(arguments)
    try:
        if options.command == "new":
            identity = Identity.generate()
            identity.save(options.path)
        else:
            identity = Identity.load(options.path)
    except ConfigurationError as error:
        print(error, file=sys.stderr)
        return 1
    print(format_identity(identity.public_key))
    return 0


if __name__ == "__main__":
    sys.exit(main())
