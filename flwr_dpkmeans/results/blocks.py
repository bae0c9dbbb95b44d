"""What a page says, as blocks, and the three ways to show them: HTML, Markdown and text.

Whatever a sentence, a name or a cell holds stays text in each of them.
"""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.box import SIMPLE_HEAD
from rich.console import Console, RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from flwr_dpkmeans.log import printable
from flwr_dpkmeans.privacy.report import html_table

TEXT_WIDTH = 110
_PAGE_WIDTH = 160
"""Characters of a table that fit across a printed page."""
_LONGEST_CELL = 2000
_STEPS = 3
"""Of shading, to either side."""
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~&!])")
_HEAD = (
    '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    # Nothing is loaded, whatever stands in the page.
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
    'img-src data:">'
)


@dataclass(frozen=True, eq=False)
class Table:
    """Rows of text, each with a head."""

    caption: str
    rows: Sequence[Sequence[str]]
    """The first cell of each is its head."""
    head: Sequence[str] = ()
    """Of each column."""
    shades: NDArray[np.float64] | None = None
    """(n_rows, n_columns), from -1 to 1, NaN for none: how cells are shaded, which only repeats what they say."""
    splits: bool = False
    """Whether a table that is too wide may become several."""

    def bands(self, width: int) -> Iterator[Table]:
        """The same, as tables that are at most so many characters wide, or have one column."""
        if not self.splits:
            yield self
            return
        first, *widths = (2 + max(map(len, column)) for column in zip(self.head, *self.rows, strict=True))
        start, stop = 1, 1
        while stop <= len(widths):
            room = width - first - widths[stop - 1]
            stop += 1
            while stop <= len(widths) and (room := room - widths[stop - 1]) >= 0:
                stop += 1
            head, *rows = ((row[0], *row[start:stop]) for row in (self.head, *self.rows))
            yield replace(self, head=head, rows=rows, shades=_columns(self.shades, start - 1, stop - 1))
            start = stop


def _columns(shades: NDArray[np.float64] | None, start: int, stop: int) -> NDArray[np.float64] | None:
    return None if shades is None else shades[:, start:stop]


@dataclass(frozen=True)
class Caution:
    """A warning."""

    sentence: str


@dataclass(frozen=True)
class Picture:
    """A PNG that is also a file beside the page."""

    name: str
    about: str
    """What it shows, for whoever does not see it."""
    content: bytes


Block = str | Table | Caution | Picture


@dataclass(frozen=True)
class Page:
    """A title, and sections with theirs."""

    title: str
    sections: Sequence[tuple[str, Sequence[Block]]]


def number_text(value: float) -> str:
    """Three digits, or all before the point."""
    return f"{value:,.0f}" if abs(value) >= 1000.0 else f"{value:.3g}"


def as_html(page: Page) -> bytes:
    """One page that loads nothing."""
    title, style = escape(printable(page.title)), Path(__file__).with_name("page.css").read_text(encoding="utf-8")
    sections = [f"<section><h2>{escape(name)}</h2>\n{blocks_html(blocks)}</section>" for name, blocks in page.sections]
    head = f"{_HEAD}<title>{title}</title>\n<style>\n{style}</style></head>\n"
    return f"{head}<body><main><h1>{title}</h1>\n{''.join(sections)}</main></body></html>\n".encode()


def blocks_html(blocks: Iterable[Block]) -> str:
    """Blocks for a page, or a notebook, which has no style of ours."""
    return "".join(f"{_block_html(block)}\n" for block in blocks)


def _block_html(block: Block) -> str:
    if isinstance(block, Table):
        return "".join(_table_html(band) for band in block.bands(_PAGE_WIDTH))
    if isinstance(block, Picture):
        content = base64.b64encode(block.content).decode()
        return f'<img alt="{escape(block.about)}" src="data:image/png;base64,{content}">'
    if isinstance(block, Caution):
        return f'<p class="caution"><strong>Warning:</strong> {escape(_told(block.sentence))}</p>'
    return f"<p>{escape(_told(block))}</p>"


def _table_html(table: Table) -> str:
    """A table in a region that scrolls, also by keys."""
    classes = [] if table.shades is None else [list(map(_class_of, row)) for row in table.shades]
    rows = [list(map(_told, row)) for row in table.rows]
    caption = table.caption + ("; orange is above the mean of all centres, blue below" if classes else "")
    inner = html_table(rows, list(map(_told, table.head)), caption, classes)
    kind = "facts" if not table.head else "numbers" if table.splits else "words"
    return f'<div class="{kind}" role="region" aria-label="{escape(table.caption)}" tabindex="0">{inner}</div>'


def _class_of(shade: float) -> str:
    step = 0 if np.isnan(shade) else round(_STEPS * shade)
    return "" if step == 0 else f"{'up' if step > 0 else 'down'}{abs(step)}"


def as_markdown(page: Page) -> bytes:
    """The same for whatever reads Markdown; pictures are the files beside it."""
    lines = [f"# {_marked(page.title)}"]
    for name, blocks in page.sections:
        lines += [f"## {_marked(name)}", *(_block_markdown(block) for block in blocks)]
    return ("\n\n".join(lines) + "\n").encode()


def _block_markdown(block: Block) -> str:
    if isinstance(block, Table):
        head = block.head or [""] * len(block.rows[0])
        rule = ["---"] * len(head)
        rows = [list(map(_marked, row)) for row in (head, *block.rows)]
        return f"{_marked(block.caption)}\n\n" + "\n".join(
            f"| {' | '.join(row)} |" for row in (rows[0], rule, *rows[1:])
        )
    if isinstance(block, Picture):
        return f"![{_marked(block.about)}]({block.name})"
    return f"> **Warning:** {_marked(block.sentence)}" if isinstance(block, Caution) else _marked(block)


def as_text(blocks: Iterable[Block]) -> str:
    """Blocks for a console, without colours; pictures are left out."""
    lines: list[str] = []
    for block in blocks:
        if isinstance(block, Table):
            lines += [block.caption, console_text(*map(_text_table, block.bands(TEXT_WIDTH)))]
        elif not isinstance(block, Picture):
            lines.append(_told(f"WARNING: {block.sentence}" if isinstance(block, Caution) else block))
    return "\n".join(lines)


def console_text(*shown: RenderableType) -> str:
    """The same as on a terminal, without colours."""
    console = Console(file=(buffer := io.StringIO()), width=TEXT_WIDTH, color_system=None)
    console.print(*shown)
    return "\n".join(line.rstrip() for line in buffer.getvalue().splitlines())


def _text_table(table: Table) -> RichTable:
    shown = RichTable(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 0))
    for place, head in enumerate(table.head):
        shown.add_column(Text(_told(head)), justify="right" if place else "left", overflow="fold")
    for row in table.rows:
        shown.add_row(*(Text(_told(cell)) for cell in row))
    return shown


def _told(text: str) -> str:
    """Text without control characters: names of columns are a file's."""
    return printable(text, _LONGEST_CELL)


def _marked(text: str) -> str:
    """Text that Markdown takes as it is."""
    return _SPECIAL.sub(r"\\\1", _told(text))
