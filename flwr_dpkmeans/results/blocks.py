"""What a page says, as blocks, and how they are shown: as HTML, as Markdown, and as the same text on a console."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flwr_dpkmeans.log import printable
from flwr_dpkmeans.privacy.report import html_table

CAUTION = "WARNING: "
"""How a sentence begins that is one."""
_LONGEST = 2000
_STEPS = 3
"""Of shading, to either side."""
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~&!])")


class Table(NamedTuple):
    """Rows of text whose first cells are their heads."""

    caption: str
    rows: Sequence[Sequence[str]]
    head: Sequence[str] = ()
    """Of each column."""
    shades: NDArray[np.float64] | None = None
    """(n_rows, n_columns), from -1 to 1, NaN for none: how cells of numbers are shaded, which repeats what they say."""


class Picture(NamedTuple):
    """A PNG that is also a file beside the page; `about` is for whoever does not see it."""

    name: str
    about: str
    content: bytes


Block = str | Table | Picture
Section = tuple[str, Sequence[Block]]


def number_text(value: float) -> str:
    """Three digits, or all before the point."""
    return f"{value:,.0f}" if abs(value) >= 1000.0 else f"{value:.3g}"


def as_html(title: str, sections: Sequence[Section]) -> bytes:
    """One page that loads nothing, whatever stands in it."""
    frame, style = (Path(__file__).with_name(f"report.{kind}").read_text(encoding="utf-8") for kind in ("html", "css"))
    body = [f"<section><h2>{escape(name)}</h2>\n{blocks_html(blocks)}</section>\n" for name, blocks in sections]
    parts = {"TITLE": escape(_told(title)), "STYLE": style, "BODY": "".join(body)}
    return re.sub("{(TITLE|STYLE|BODY)}", lambda found: parts[found[1]], frame).encode()


def blocks_html(blocks: Sequence[Block]) -> str:
    """Blocks for a page, or for a notebook, which has no style of ours."""
    return "\n".join(map(_block_html, blocks))


def _block_html(block: Block) -> str:
    if isinstance(block, Picture):
        content = base64.b64encode(block.content).decode()
        return f'<img alt="{escape(block.about)}" src="data:image/png;base64,{content}">'
    if isinstance(block, str):
        kind = ' class="caution"' if block.startswith(CAUTION) else ""
        return f"<p{kind}>{escape(_told(block))}</p>"
    shades = () if block.shades is None else [list(map(_shade, row)) for row in block.shades]
    head, *rows = [list(map(_told, row)) for row in (block.head, *block.rows)]
    caption = block.caption + ("; orange is above the mean of all centres, blue below" if shades else "")
    kind = "numbers" if shades else "words" if head else "facts"
    region = f'<div class="{kind}" role="region" aria-label="{escape(caption)}" tabindex="0">'
    return f"{region}{html_table(rows, head, caption, shades)}</div>"


def _shade(value: float) -> str:
    """The class of a cell."""
    step = 0 if np.isnan(value) else round(_STEPS * value)
    return f"{'up' if step > 0 else 'down'}{abs(step)}" if step else ""


def as_markdown(title: str, sections: Sequence[Section]) -> bytes:
    """The same for whatever reads Markdown; pictures are the files beside it."""
    texts = [f"# {_marked(title)}", *(f"## {name}\n\n{as_text(blocks, _marked)}" for name, blocks in sections)]
    return ("\n\n".join(texts) + "\n").encode()


def _told(text: str) -> str:
    """Text without control characters: names of columns are a file's."""
    return printable(text, _LONGEST)


def _marked(text: str) -> str:
    """Text that Markdown takes as it is."""
    return _SPECIAL.sub(r"\\\1", _told(text))


def as_text(blocks: Sequence[Block], told: Callable[[str], str] = _told) -> str:
    """Blocks for a console; with ``told=_marked`` for Markdown."""
    texts = []
    for block in blocks:
        if isinstance(block, str):
            texts.append(told(block))
        elif isinstance(block, Table):
            texts += [told(block.caption), _table_text(block, told)]
        elif told is _marked:
            texts.append(f"![{told(block.about)}]({block.name})")
    return "\n\n".join(texts)


def _table_text(table: Table, told: Callable[[str], str]) -> str:
    rows = [list(map(told, row)) for row in (table.head or [""] * len(table.rows[0]), *table.rows)]
    aligned = table.shades is not None
    widths = [max(map(len, cells)) if aligned else 0 for cells in zip(*rows, strict=True)]
    head, *others = [[cell.ljust(widths[0]), *map(str.rjust, cells, widths[1:])] for cell, *cells in rows]
    rule = [":" + "-" * max(2, widths[0] - 1), *("-" * max(2, width - 1) + ":" * aligned for width in widths[1:])]
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, rule, *others))
