"""Lets pages of the site point to files outside of its folder.

Pages there become pages of the site, below ``project/``; other files are copied.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from posixpath import dirname, relpath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "flwr_dpkmeans" / "docs"
LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)")
FENCE = re.compile(r"^(```\w+) [\w-]+$", re.MULTILINE)


def site_path(path: Path) -> str:
    """Path of a file of the project in the site."""
    if path.is_relative_to(DOCS):
        return path.relative_to(DOCS).as_posix()
    return f"project/{path.relative_to(ROOT).as_posix().lstrip('.')}"


def linked(page: Path) -> list[Path]:
    """Files that a page points to."""
    targets = LINK.findall(page.read_text())
    return [(page.parent / target).resolve() for target in targets]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add every file outside that a page, or a page that was added, points to."""
    waiting = sorted(DOCS.rglob("*.md"))
    seen = set(waiting)
    while waiting:
        for path in linked(waiting.pop()):
            if path in seen or not path.is_file():
                continue
            seen.add(path)
            if not path.is_relative_to(DOCS):
                added = File.generated(config, site_path(path), abs_src_path=str(path))
                files.append(added)
            if path.suffix == ".md":
                waiting.append(path)
    return files


def renamed(page: Page) -> Callable[[re.Match[str]], str]:
    """Point a page's links to where files lie in the site."""
    folder = Path(str(page.file.abs_src_path)).parent

    def rename(link: re.Match[str]) -> str:
        target = (folder / link[1]).resolve()
        if not target.is_relative_to(ROOT):
            return link[0]
        target_path = relpath(site_path(target), dirname(page.file.src_uri) or ".")
        return f"]({target_path}"

    return rename


def on_page_markdown(
    markdown: str, page: Page, config: MkDocsConfig, files: Files
) -> str:
    """Rename links, and leave out what tests know blocks of code by."""
    del config, files
    return FENCE.sub(r"\1", LINK.sub(renamed(page), markdown))
