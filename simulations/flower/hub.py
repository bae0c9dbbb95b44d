"""The app as it goes to Flower's Hub: ``python -m simulations.flower.hub FOLDER``
writes it, then ``flwr build --app FOLDER``.

The Hub shows the README of an app alone, without the pictures and pages that the
project's own one leads to.
"""

from __future__ import annotations

import re
import shutil
import sys
import tomllib
from pathlib import Path

from flwr.cli.build import get_filtered_fab_paths
from flwr.cli.utils import collect_files, filter_paths_for_publish

PROJECT = Path(__file__).resolve().parents[2]
PAGE = Path(__file__).resolve().with_name("hub_readme.md")


def write_app(folder: Path, project: Path = PROJECT) -> list[Path]:
    """Copy what `flwr build` takes into a new or empty folder, with the Hub's README in
    the place of the project's.
    """
    if not (project / "pyproject.toml").is_file():
        raise SystemExit(
            f"{project} is no copy of the project, whose files these are: run this in"
            " the folder of one."
        )
    config = tomllib.loads((project / "pyproject.toml").read_text())
    names = get_filtered_fab_paths(
        filter_paths_for_publish(collect_files(project)), config
    )
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise SystemExit(f"{folder} is not empty: name a new folder.")
    written = []
    for name in names:
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        source = PAGE if name == "README.md" else project / name
        written.append(Path(shutil.copyfile(source, target)))
    target = folder / "pyproject.toml"
    target.write_text(_without_exclusions((project / "pyproject.toml").read_text()))
    return [*written, target]


def _without_exclusions(text: str) -> str:
    """Leave out the patterns of files that were not copied.

    Flower refuses to build an app with a pattern that matches no file.
    """
    return re.sub(r"^fab-exclude = .*\n", "", text, flags=re.MULTILINE)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit("usage: python -m simulations.flower.hub FOLDER")
    print(
        f"{len(write_app(Path(sys.argv[1])))} files in {Path(sys.argv[1]).absolute()}"
    )
