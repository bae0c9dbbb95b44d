"""Templates and their forms: HTML, Markdown and a console's text."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from flwr_dpkmeans.log import printable

if TYPE_CHECKING:
    from jinja2 import Environment


HTML, MARKDOWN, CONSOLE = "html", "markdown", "console"
"""Forms; a console gets Markdown in which nothing is escaped."""


_LONGEST = 10_000


@lru_cache(maxsize=3)
def _environment(form: str) -> Environment:
    from jinja2 import DictLoader, Environment, StrictUndefined
    from markupsafe import Markup

    def finished(value: object) -> object:
        """Keep a value text: no control characters, and no marks of the form."""
        if isinstance(value, Markup):
            return value
        text = printable(value, _LONGEST)
        if form == HTML:
            return text
        if form == MARKDOWN:
            text = re.sub(r"([\\`*_{}\[\]<>#|~&!])", r"\\\1", text)
        return Markup(text)

    def turned(rows: Sequence[Sequence[str]]) -> list[list[str]]:
        """Rows as columns."""
        return [list(cells) for cells in zip(*rows, strict=True)]

    def widths(rows: Sequence[Sequence[str]]) -> list[int]:
        """Widths of columns whose cells stand below each other."""
        return [max(map(len, cells)) for cells in zip(*rows, strict=True)]

    file = Path(__file__).with_name("templates.toml")
    templates = tomllib.loads(file.read_text(encoding="utf-8"))
    environment = Environment(
        loader=DictLoader(templates),
        autoescape=True,
        finalize=finished,
        undefined=StrictUndefined,
    )
    environment.trim_blocks = True
    environment.lstrip_blocks = True
    environment.globals["turned"] = turned
    environment.globals["columns"] = widths
    return environment


def rendered(template: str, form: str, **values: object) -> str:
    """Fill a template in one of the forms, without lines that its tags leave empty."""
    environment = _environment(form)
    macros = environment.get_template("html.j2" if form == HTML else "markdown.j2")
    page_template = environment.get_template(template)
    text = page_template.render(values | {"format": macros})
    lines = re.sub(r"\n{3,}", "\n\n", str(text))
    return lines.strip("\n") + "\n"
