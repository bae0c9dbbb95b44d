"""Columns of Table 3's tables, and the page that explains them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Column:
    """One column as people read it.

    Parameters
    ----------
    header : str
        Its name.
    cell : callable
        ``cell(row)`` returns the text.
    title : str
        Of the whole table, on its first column.
    """

    header: str
    cell: Callable[[Row], str]
    title: str = ""


def _mean(row: Row, name: str) -> str:
    """A mean with its half width, if it has one."""
    half_width = row.get(f"{name}_half_width")
    return f"{row[name]:.2f}" + ("" if half_width is None else f" ± {half_width:.2f}")


def _load(row: Row) -> str:
    """The machine's load before and after."""
    return f"{row['load_before']:.1f}-{row['load_after']:.1f}"


def _rival(row: Row, name: str, unit: float) -> str:
    """MohLloyd's number, where the paper prints one."""
    return "-" if row.get(name) is None else f"{row[name] * unit:,.1f}"


def _bare(row: Row, name: str) -> str:
    """What was measured without messages, if it was."""
    return _mean(row, name) if name in row else "-"


SHARED_SEED = (
    "masks from one shared seed, as in the paper's figure 1, let every client unmask"
    " every other one's sums; they are timed here and built nowhere else."
)


def _sizes(title: str) -> tuple[Column, ...]:
    """What was clustered."""
    return (
        Column("set", lambda row: str(row["name"]), title),
        Column("N", lambda row: f"{row['n_rows']:,}"),
        Column("k", lambda row: str(row["n_clusters"])),
        Column("d", lambda row: str(row["n_features"])),
    )


IN_PROCESS = (
    *_sizes("One iteration in process, all clients together"),
    Column("ms", lambda row: _mean(row, "ms")),
    Column("CPU ms", lambda row: f"{row['cpu_ms']:.2f}"),
    Column("paper's ms", lambda row: _mean(row, "paper_ms")),
    Column("ratio", lambda row: f"{row['ms_ratio']:.2f}"),
    Column("MohLloyd's s", lambda row: _rival(row, "moh_ms", 1e-3)),
    Column("shared seed, bare CPU ms", lambda row: _bare(row, "shared_seed_cpu_ms")),
    Column("pairwise, bare CPU ms", lambda row: _bare(row, "pairwise_cpu_ms")),
    Column("bytes", lambda row: f"{row['bytes']:,}"),
    Column("paper's bytes", lambda row: f"{row['paper_bytes']:,}"),
    Column("ratio", lambda row: f"{row['bytes_ratio']:.2f}"),
    Column("MohLloyd's MB", lambda row: _rival(row, "moh_bytes", 1e-6)),
    Column("in Flower's messages", lambda row: f"{row['message_bytes']:,}"),
    Column("setup ms", lambda row: _mean(row, "setup_ms")),
    Column("setup bytes", lambda row: f"{row['setup_bytes']:,}"),
    Column("load", _load),
)
"""The first table."""

SUPERLINK = (
    *_sizes("One iteration over a SuperLink and SuperNodes on loopback, without TLS"),
    Column("T", lambda row: str(row["iterations"])),
    Column("s", lambda row: f"{row['seconds']:.1f}"),
    Column(
        "spread", lambda row: f"{row['least_seconds']:.1f}-{row['most_seconds']:.1f}"
    ),
    Column("paper's ms", lambda row: _mean(row, "paper_ms")),
    Column("ratio", lambda row: f"{row['ms_ratio']:,.0f}"),
    Column("bytes", lambda row: f"{row['bytes']:,}"),
    Column("paper's bytes", lambda row: f"{row['paper_bytes']:,}"),
    Column("on the wire", lambda row: f"{row['wire_bytes']:,}"),
    Column("up", lambda row: f"{row['wire_bytes_up']:,}"),
    Column("down", lambda row: f"{row['wire_bytes_down']:,}"),
    Column("to the plan s", lambda row: f"{row['start_seconds']:.1f}"),
    Column("keys s", lambda row: f"{row['keys_seconds']:.1f}"),
    Column("result s", lambda row: f"{row['end_seconds']:.1f}"),
    Column("load", _load),
)
"""The second table."""

_IN_PROCESS_NOTES = """\
**Time.** An iteration is one aggregation of FastLloyd with masks: every client takes
the last masked sum in (unmask, divide, clip the step, fold), assigns its rows, makes
its k d relative sums and k counts, charges its ledger, masks and answers; the server
adds the vectors and its noise. All goes through Flower's messages, which are copied,
but through no transport. Clients work one after the other in one process and thread, so
`ms` is the work of all of them; the paper's two ran side by side, and its times include
two simulated latencies of 0.25 ms. Mean and 95% confidence (Student's t) over {repeats}
runs after two that are not timed; of each run the mean over the third to the last of
its {iterations} iterations. `CPU ms` is the same in time of this process. `setup` is
everything else in a run: drawing up and checking the plan, key exchange, key agreement
of pairs (in the first iteration), sealing and opening of group keys (in the first and
second), first scaling of the rows, the last release, the report. `MohLloyd's` are the
seconds and megabytes of an iteration of the secure two-party protocol without noise
(Mohassel, Rosulek and Trieu 2020) that the paper prints beside its own; other machines,
other years.

**Masks.** `shared seed` (with --shared-seed) is an iteration under the paper's masks,
which all follow from one seed that every client knows, and `pairwise` one under the
package's, both bare: statistics, grid, masks, noise, unmasking and step, without
messages, plan and ledger. With a shared seed any client that sees what another sends,
or works with the server, reads that one's exact sums; pairwise masks keep them from
everybody but the two of a pair. So the former is timed here and built nowhere else.

**Bytes.** `bytes` are the masked vectors that are really sent in an iteration: from
each of {clients} clients to the server, and the masked sum back to each. k d sums and k
counts are k (d + 1) numbers of 8 bytes (the ring has 2^64 elements), so two clients
make 2 x 2 x 8 k (d + 1) = 32 k (d + 1) bytes: 32 x 6 = 192 for k = 2 and d = 2. The
paper's ten figures are 32 k (d + 1) too. It says that its ring has 2^32 elements, but
its public code sends 64-bit integers, and counts what each client sends and what each
gets back. So the ratio is 1 with two clients; had the paper sent 4 bytes for a number,
it would be 2. `in Flower's messages` is the size of the same requests and replies as
Flower serialises them, records and metadata included, without HTTP: an envelope of
about 0.9 kB for each message, whatever k and d are. `setup bytes` are those of all
other messages; the plan in them names every iteration.
"""

_SUPERLINK_NOTES = """\
**Over a SuperLink.** `s` is the mean time between two lines of the ServerApp's log, one
for each iteration: one round trip each. It is polling and starting of processes, not
bytes. A SuperNode asks for messages every 3 s and its SuperExec for tasks every 0.2 s,
each message starts a Python process that loads Flower and this package, the node looks
for the reply every 0.5 s, and the ServerApp every 0.25 s. So `s` follows the machine's
load but not N, k or d, and how many times the paper's it is says nothing about the
protocol. `bytes` are the masked vectors, as in process. `on the wire` is what a relay
between SuperNodes and SuperLink counted in an iteration: the vectors in Flower's
messages, which are fetched object by object over HTTP, and the requests that find
nothing. `keys` are two round trips (keys, first masked vector) and the app's way to the
nodes; `result` is the last one, with the clients' files and pictures.
"""


def page(
    tables: Sequence[tuple[Sequence[Column], Sequence[Row]]], options: Mapping[str, Any]
) -> str:
    """Write the tables and what they mean as Markdown.

    Parameters
    ----------
    tables : sequence of (columns, rows)
        One or both of the tables.
    options : mapping
        What they were made with.

    Returns
    -------
    str
    """
    parts = ["# FastLloyd, Table 3: time and bytes of one iteration"]
    parts.append(
        f"{options['clients']} clients, epsilon {options['epsilon']:g},"
        f" {options['noise']} noise in process; {options['machine']}. Times mean"
        " something only on an idle machine: see the load average of each row."
    )
    for columns, rows in tables:
        parts.append(f"## {columns[0].title}")
        parts.append(_markdown(columns, rows))
        notes = _IN_PROCESS_NOTES if columns is IN_PROCESS else _SUPERLINK_NOTES
        parts.append(notes.format(**options))
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _markdown(columns: Sequence[Column], rows: Sequence[Row]) -> str:
    """One table in Markdown."""
    lines = [[column.header for column in columns], ["---"] * len(columns)]
    lines += [[column.cell(row) for column in columns] for row in rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)
