"""The papers' own experiments and tables: one command for each paper."""

from __future__ import annotations

import argparse
import pkgutil
import sys
from collections.abc import Mapping, Sequence


def run_part(
    command: str,
    parts: Mapping[str, str],
    arguments: Sequence[str] | None = None,
) -> int:
    """Run the part of a paper's command that the command line begins with.

    Parameters
    ----------
    command : str
        The command, such as ``python -m simulations.papers.feddp``.
    parts : mapping of str to str
        What each part prints, in a sentence, by its name. A part is the module of
        that name beside the command, whose `main` takes the other arguments.
    arguments : sequence of str, optional
        The command line, by default that of this process.

    Returns
    -------
    int
        The part's code: 0 if its numbers are within their limits.
    """
    width = max(len(name) for name in parts)
    listed = [f"  {name.ljust(width)}  {about}" for name, about in parts.items()]
    parser = argparse.ArgumentParser(
        prog=command,
        description="\n".join(listed),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=f"{command} PART --help says what a part takes.",
        add_help=False,
    )
    parser.add_argument(
        "part",
        choices=list(parts),
        help=argparse.SUPPRESS,
    )
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] in (["-h"], ["--help"]):
        parser.print_help()
        return 0
    part = parser.parse_args(words[:1]).part
    package = command.rpartition(" ")[2]
    main = pkgutil.resolve_name(f"{package}.{part}:main")
    return int(main(words[1:]))
