"""Tables of other programs: databases, spreadsheets, statistics packages, Arrow files.

What is read by pandas or SQLAlchemy is read cell by cell: a type for a whole column
would let one cell decide about others.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from flwr_dpkmeans.data.files.formats.frames import arrow_table, frame_table
from flwr_dpkmeans.data.files.raw_table import RawTable, block_rows
from flwr_dpkmeans.errors import DataError

if TYPE_CHECKING:
    from sqlalchemy import Connection


def query_blocks(url: str, query: str) -> Iterator[RawTable]:
    """Yield what a database answers (SQLAlchemy).

    The URL, which may hold a password, is in no sentence.
    """
    problem = "'query' does not say what to ask it for: add it"
    if query:
        try:
            yield from _answered(url, query)
            return
        except ImportError:
            problem = (
                "SQLAlchemy, or the database's driver, is not there: pip install"
                " 'flwr-dpkmeans[database]'"
            )
        except Exception as error:  # of any driver; its text may quote cells
            problem = (
                f"it fails with {type(error).__name__}: try URL and query on this"
                " machine"
            )
    raise DataError(f"the table is a database, but {problem}.")


def _answered(url: str, query: str) -> Iterator[RawTable]:
    import pandas as pd
    import sqlalchemy

    # A colon is no parameter, as SQLAlchemy has it: there is nothing to put in.
    query = re.sub(r"(?<![:\w\\]):(?=\w)", r"\\:", query)
    engine = sqlalchemy.create_engine(url)
    dialect = engine.dialect.name
    file = engine.url.database if dialect == "sqlite" else None
    if file and not file.startswith((":memory:", "file:")):
        Path(file).stat()  # SQLite would make it, and a node leave an empty one behind
    with ExitStack() as stack:
        stack.callback(engine.dispose)
        connection = stack.enter_context(engine.connect())
        if dialect == "sqlite":  # which else fails for one text that is no UTF-8
            raw = connection.connection.driver_connection
            raw.text_factory = partial(str, encoding="utf-8", errors="replace")
        if dialect == "postgresql":
            # Whose drivers fail for one date such as 'infinity'.
            query = as_text_query(connection, query)
        options = {"stream_results": True}
        answer = connection.execute(sqlalchemy.text(query), execution_options=options)
        names = list(answer.keys())
        for rows in chain([[]], answer.partitions(block_rows(len(names)))):
            frame = pd.DataFrame(rows, columns=names, dtype=object)
            yield replace(frame_table(frame), path=Path("database"))


def as_text_query(connection: Connection, query: str) -> str:
    """The query that asks PostgreSQL for the same columns as text."""
    import sqlalchemy

    connection.exec_driver_sql("SET datestyle TO ISO")
    table = f"FROM ({query.strip().rstrip(';')}\n) AS answer"
    names = connection.execute(sqlalchemy.text(f"SELECT * {table} LIMIT 0")).keys()
    quoted = ['"' + name.replace('"', '""').replace(":", "\\:") + '"' for name in names]
    columns = ", ".join(f"CAST({name} AS text) AS {name}" for name in quoted)
    return f"SELECT {columns} {table}"


def sheet_rows(path: Path) -> tuple[list[list[object]], list[str]]:
    """Return the cells of a workbook's first sheet, row by row.

    And the names of the others.
    """
    import pandas as pd

    with pd.ExcelFile(path) as book:
        # NA may be a name; in a row it is found missing later, as in text.
        frame = pd.read_excel(
            book,
            header=None,
            dtype=object,
            keep_default_na=False,
            na_values=[""],
        )
        others = list(map(str, book.sheet_names[1:]))
    rows = frame.astype(object).where(frame.notna(), None).to_numpy().tolist()
    return rows, others


def _stata_blocks(path: Path) -> Iterator[RawTable]:
    import pandas as pd

    with pd.read_stata(path, chunksize=block_rows(1)) as chunks:
        for frame in chunks:
            yield replace(frame_table(frame), path=path)


def _sas_blocks(path: Path) -> Iterator[RawTable]:
    import pandas as pd

    kind = "xport" if path.suffix.lower() == ".xpt" else "sas7bdat"
    with pd.read_sas(
        path,
        format=kind,
        encoding="utf-8",
        chunksize=block_rows(1),
    ) as chunks:
        for frame in chunks:
            yield replace(frame_table(frame), path=path)


def _arrow_blocks(path: Path) -> Iterator[RawTable]:
    from pyarrow import feather

    yield arrow_table(feather.read_table(path), path)


NAMED_READERS: Mapping[str, Callable[[Path], Iterator[RawTable]]] = MappingProxyType(
    {
        ".dta": _stata_blocks,
        ".sas7bdat": _sas_blocks,
        ".xpt": _sas_blocks,
        ".feather": _arrow_blocks,
        ".arrow": _arrow_blocks,
    }
)
"""What reads files whose columns have names, by suffix."""
WORKBOOKS = (".xlsx", ".xlsm", ".xls", ".ods")
