"""Flower's SuperNode as a party runs it.

In its process always replaced are what reads the configuration of an app, and what
waits for a reply (``flower/_private.py`` says why); a version of Flower that does not
call them ends the program before it connects. With ``--wait`` the node waits to be let
in.

`node start` runs this file as a program in Python's isolated mode, so it imports
nothing of this project but by its place.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

if __name__ == "__main__":
    # As a file, this has no package: its folder becomes one.
    from importlib.util import module_from_spec, spec_from_file_location

    __package__ = "_guard_of_this_machine"
    _SPEC = spec_from_file_location(
        __package__, Path(__file__).with_name("__init__.py")
    )
    assert _SPEC is not None
    sys.modules[__package__] = module_from_spec(_SPEC)

from .approved_config import guarded_config
from .flower_seams import private
from .node_watch import Watch


def main(arguments: Sequence[str]) -> None:
    """Run the SuperNode; what is not an argument of this program is one of Flower's."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument(
        "--allowed-apps", help="SHA-256 of each, with commas; left out: all"
    )
    parser.add_argument("--wait", action="store_true", help="wait to be let in again")
    options, words = parser.parse_known_args(list(arguments))
    missing = private.missing_node_seams()
    if missing:
        sys.exit(
            f"this version of Flower does not call {missing[0]}, which the guard stands"
            " before: update it"
        )
    allowed = None
    if options.allowed_apps is not None:
        allowed = frozenset(options.allowed_apps.split(","))
    private.replace_config_reader(partial(guarded_config, allowed=allowed))
    private.replace_wait_for_reply(Watch().around)
    if options.wait:
        private.replace_fleet_client()
    sys.argv = ["flower-supernode", *words]
    private.supernode_program()()


if __name__ == "__main__":
    main(sys.argv[1:])
