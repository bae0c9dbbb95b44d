"""The sentences of the report, which stand in ``report.toml`` beside this module."""

from __future__ import annotations

import tomllib
from functools import lru_cache
from pathlib import Path


@lru_cache(maxsize=1)
def _sentences() -> dict[str, str]:
    path = Path(__file__).with_name("report.toml")
    text = path.read_text(encoding="utf-8")
    return tomllib.loads(text)


def report_sentence(name: str, /, **values: object) -> str:
    """Return one of the report's sentences, with its numbers and names.

    Parameters
    ----------
    name : str
        Its key in ``report.toml``.
    **values : object
        What stands in its gaps; `things` are rows unless it is said.

    Examples
    --------
    >>> report_sentence("public_rows", n=300)
    'The number of rows, 300, is public knowledge.'
    """
    template = _sentences()[name]
    values.setdefault("things", "rows")
    return template.format(**values)
