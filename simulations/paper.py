"""ProxyLloyd as a paper: `python -m simulations.paper proxy_lloyd.pdf` (Chromium prints
it; `.html` needs none).

Nothing is written twice: the text is PROXY_LLOYD.md, the theorem the rows of the
proofs' page that it rests on, the experiments are those of RESULTS.md, references those
of CITATION.cff. Pictures are the ones that their commands drew.
"""

from __future__ import annotations

import argparse
import html
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

import yaml
from markdown_it import MarkdownIt

from flwr_dpkmeans.errors import ConfigurationError, DPKMeansError
from flwr_dpkmeans.results.writer import write_whole

PROJECT = Path(__file__).parents[1]
METHOD = PROJECT / "flwr_dpkmeans" / "algorithms" / "PROXY_LLOYD.md"
PROOFS = PROJECT / "flwr_dpkmeans" / "privacy" / "README.md"
RESULTS = PROJECT / "simulations" / "RESULTS.md"
ROWS = ("S11", "S12", "S13", "S14", "S15", "C1", "C2", "C8", "M1", "M3", "M9")
"""Of the proofs' page: sensitivities of the releases, their composition, and their
noise.
"""
EXPERIMENTS = ("Excess cost over the optimum", "ProxyLloyd")
"""Sections of the results' page."""
_SECONDS = 120
_STYLE = """
@page {size: A4; margin: 22mm 20mm}
body {font: 10.5pt/1.4 serif; max-width: 46em; margin: auto; color: #111}
h1 {font-size: 20pt; text-align: center; margin-bottom: 0} h2 {font-size: 14pt} h3 {font-size: 11.5pt}
.authors {text-align: center; margin: .5em 0 2em} .abstract {margin: 0 2.5em 2em}
pre, code {font: 9pt/1.35 monospace} pre {background: #f4f4f4; padding: .5em; white-space: pre-wrap}
table {border-collapse: collapse; font-size: 8.5pt; margin: 1em 0; overflow-wrap: anywhere} tr {break-inside: avoid}
th, td {border-top: 1px solid #999; padding: .2em .4em; text-align: left; vertical-align: top}
td:first-child {white-space: nowrap} img {max-width: 100%} figure, pre {break-inside: avoid} h2, h3 {break-after: avoid}
"""


def paper() -> str:
    """The paper as one HTML page, whose pictures are files of this project.

    Returns
    -------
    str

    Examples
    --------
    >>> text = paper()
    >>> [part in text for part in ("1 Problem", "2 Algorithm", "3 Privacy", "4 Experiments", "References")]
    [True, True, True, True, True]
    """
    citation = yaml.safe_load((PROJECT / "CITATION.cff").read_text())
    title, *sections = _sections(METHOD)
    lead = title[1].partition("**The idea in six sentences.**")[2]
    problem, *algorithm = sections
    chosen = [section for section in _sections(RESULTS) if section[0] in EXPERIMENTS]
    authors = ", ".join(_name(one) for one in citation["authors"])
    parts = [
        f"<h1>{title[0]}: private k-means over many parties, from proxies</h1>",
        f'<p class="authors">{html.escape(authors)}, version {citation["version"]}</p>',
        f'<div class="abstract">{_html(lead, METHOD)}</div>',
        f"<h2>1 Problem</h2>{_html(problem[1], METHOD)}",
        "<h2>2 Algorithm</h2>",
        *(f"<h3>{name}</h3>{_html(text, METHOD)}" for name, text in algorithm),
        f"<h2>3 Privacy</h2>{_html(_theorem(), PROOFS)}",
        "<h2>4 Experiments</h2>",
        *(f"<h3>{name}</h3>{_html(text, RESULTS)}" for name, text in chosen),
        "<h2>References</h2><ol>",
        *(f"<li>{html.escape(_reference(one))}</li>" for one in citation["references"]),
        "</ol>",
    ]
    head = (
        '<!doctype html><html lang="en"><meta'
        f' charset="utf-8"><title>{title[0]}</title><style>{_STYLE}</style>'
    )
    return head + "\n".join(parts) + "</html>\n"


def _sections(page: Path) -> list[tuple[str, str]]:
    """Titles and texts of a page, from its first on."""
    found = re.split(r"^#{1,2} (.+)$", page.read_text(), flags=re.MULTILINE)[1:]
    return list(zip(found[::2], found[1::2], strict=True))


_THEOREM = """**Theorem.** With noise of the scales of section 2, all that ProxyLloyd releases together is
(epsilon, delta)-differentially private for the chosen unit, under adaptive composition and whatever state a server
sends. Each release moves by its bound at most (S), noise of that scale hides it (M), and the costs add up (C):

| row | of what | why |
|---|---|---|
"""


def _theorem() -> str:
    """The statement, and what each part rests on.

    The proofs' rows without the tests that hold them.
    """
    lines = (
        line.strip("| ").split(" | ")
        for line in PROOFS.read_text().splitlines()
        if line.startswith("| ")
    )
    rows = {name: cells[:-1] for name, *cells in lines}
    missing = sorted(set(ROWS) - rows.keys())
    if missing:
        raise ConfigurationError(
            f"rows {missing} are not in {PROOFS.name}: correct ROWS of this module."
        )
    return _THEOREM + "\n".join(
        f"| {name} | {rows[name][0]} | {': '.join(rows[name][1:])} |" for name in ROWS
    )


def _html(text: str, page: Path) -> str:
    """Markdown as HTML: pictures by their files, links to other pages as plain words."""
    rendered = MarkdownIt("commonmark", {"html": True}).enable("table").render(text)

    def picture(match: re.Match[str]) -> str:
        return f'src="{(page.parent / unquote(match[1])).resolve().as_uri()}"'

    rendered = re.sub(r'src="([^":]+)"', picture, rendered)
    return re.sub(
        r'<a href="([^"]*)">(.*?)</a>',
        lambda m: m[0] if urlsplit(m[1]).scheme else m[2],
        rendered,
    )


def _name(person: dict[str, str]) -> str:
    return person.get("name") or f"{person['given-names']} {person['family-names']}"


def _reference(entry: dict[str, object]) -> str:
    authors = entry["authors"]
    assert isinstance(authors, list)
    return f"{', '.join(map(_name, authors))}. {entry['title']}. {entry['year']}."


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the paper."""
    parser = argparse.ArgumentParser(
        prog="python -m simulations.paper", description="ProxyLloyd as a paper"
    )
    parser.add_argument(
        "file", type=Path, help="a new file that ends with .pdf or .html"
    )
    file = parser.parse_args(arguments).file
    try:
        if file.suffix == ".html":
            write_whole(file, paper().encode())
        elif file.suffix == ".pdf":
            print_page(paper(), file)
        else:
            raise ConfigurationError(
                f"the file is {file.name!r}: let it end with .pdf or .html."
            )
    except (DPKMeansError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    print(f"wrote {file}", file=sys.stderr)
    return 0


def print_page(text: str, file: Path) -> None:
    """Have Chromium print a page into a file.

    Parameters
    ----------
    text : str
        Of the page.
    file : Path
        Written whole, or not at all.

    Raises
    ------
    ConfigurationError
        If there is no Chromium, or it does not print.
    """
    browser = shutil.which(os.environ.get("CHROMIUM", "chromium") or "none")
    if browser is None:
        raise ConfigurationError(
            "there is no Chromium to print with: install Debian's package, or write"
            " .html."
        )
    with tempfile.TemporaryDirectory() as folder:
        source, printed = Path(folder, "paper.html"), Path(folder, "paper.pdf")
        source.write_text(text)
        # Its sandbox needs rights that containers lack; the page is this project's own
        # and loads nothing else.
        options = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            f"--user-data-dir={folder}/profile",
        ]
        command = [
            browser,
            *options,
            "--no-pdf-header-footer",
            f"--print-to-pdf={printed}",
            source.as_uri(),
        ]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
        if done.returncode or not printed.exists():
            raise ConfigurationError(
                f"Chromium ended with {done.returncode} and printed nothing:"
                f" {done.stderr[-300:]}"
            )
        write_whole(file, printed.read_bytes())


if __name__ == "__main__":
    sys.exit(main())
