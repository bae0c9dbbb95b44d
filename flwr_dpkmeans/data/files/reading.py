"""What the reader of a file took it for, and what became of its records.

All doors show it to the owner of the rows. It is for nobody else: how many records are
no rows is as private as the rows.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import NamedTuple

from flwr_dpkmeans.data.files.dialect import UNSTATED, Dialect
from flwr_dpkmeans.data.files.text.tally import PassedOver, Tally
from flwr_dpkmeans.errors import listed

NAMES_OF_SEPARATORS = {
    ",": "commas",
    ";": "semicolons",
    "\t": "tabs",
    "|": "bars",
    " ": "spaces",
}


class Doubt(NamedTuple):
    """A sentence for the owner of the rows, and its level of `logging`."""

    level: int
    sentence: str


@dataclass
class Reading:
    """What a file was taken for.

    Attributes
    ----------
    source : str
        What sentences call the file.
    dialect : Dialect
        How the file is written: what was stated, and what its first line showed.
    is_text : bool
        Whether it is delimited text.
    names : tuple of str
        Of its columns; empty for a file without names.
    why_header : str
        Why the first record was taken for names, or for data; empty where it was
        stated.
    is_guessed : bool
        Whether the header was guessed by looking at rows.
    unnamed : tuple of int
        Columns that are left out since the header has no name for them, counted from 1.
    hint : str
        What may be wrong with the line that was taken for the header; empty if nothing
        is.
    passed_over : tuple of str
        Files of a folder, folders' names, or sheets, that were not read, with reasons.
    why_passed_over : str
        What is read instead, and how to change it; empty if the reasons say it.
    tally : Tally
        What became of the records that were read so far.
    """

    source: str
    dialect: Dialect = UNSTATED
    is_text: bool = False
    names: tuple[str, ...] = ()
    why_header: str = ""
    is_guessed: bool = False
    unnamed: tuple[int, ...] = ()
    hint: str = ""
    passed_over: tuple[str, ...] = ()
    why_passed_over: str = ""
    tally: Tally = field(default_factory=Tally)

    def __str__(self) -> str:
        """Describe what was taken, in one line."""
        facts = []
        if self.is_text:
            separator = str(self.dialect.separator)
            cells = NAMES_OF_SEPARATORS.get(separator, repr(separator))
            header = "a header" if self.dialect.header else "no header"
            facts += [f"cells between {cells}", header, f"{self.dialect.encoding}"]
        if self.names:
            facts.append(f"{len(self.names)} named columns")
        if self.is_text or self.tally.n_records:
            rows = self.tally.n_records - self.tally.n_passed_over
            facts.append(f"{rows} of {self.tally.n_records} records are rows")
        if not facts:  # as of Parquet, in which nobody looks for records
            facts.append("its columns say their names and types themselves")
        return f"{self.source}: {', '.join(facts)}"

    def doubts(self) -> list[Doubt]:
        """Return what the owner should know of it; complete once all rows are read."""
        doubts = [*self._header_doubts(), *self._record_doubts()]
        if self.passed_over:
            shown = listed(self.passed_over)
            doubts.append(
                Doubt(logging.WARNING, f"passed over {shown}{self.why_passed_over}")
            )
        return [
            Doubt(level, f"{self.source}: {sentence}.") for level, sentence in doubts
        ]

    def loudest_doubt(self) -> Doubt:
        """Return the first of those that matter most, where there are `doubts`."""
        return max(self.doubts(), key=lambda doubt: doubt.level)

    def _header_doubts(self) -> list[Doubt]:
        doubts = []
        if self.hint:
            doubts.append(Doubt(logging.WARNING, self.hint))
        if self.is_guessed:
            doubts.append(Doubt(logging.WARNING, self.why_header))
        if self.unnamed:
            numbers = listed(map(str, self.unnamed))
            sentence = f"column {numbers} has no name in the header, and is left out"
            if len(self.unnamed) > 1:
                sentence = (
                    f"columns {numbers} have no name in the header, and are left out"
                )
            level = logging.INFO if self.unnamed == (1,) else logging.WARNING
            doubts.append(Doubt(level, sentence))
        return doubts

    def _record_doubts(self) -> list[Doubt]:
        doubts, tally = [], self.tally
        if tally.n_row_names:
            sentence = (
                f"{tally.n_row_names} records have one cell more than the header, and"
                " begin with it: it was taken for their name (row-names = false if it"
                " is none)"
            )
            doubts.append(Doubt(logging.WARNING, sentence))
        if tally.n_trailing:
            sentence = (
                f"{tally.n_trailing} records end with a separator that the header does"
                " not have: the cell behind it is left out"
            )
            doubts.append(Doubt(logging.INFO, sentence))
        if tally.has_bad_bytes:
            sentence = (
                f"it has bytes that are no {self.dialect.encoding}, whose cells are"
                " read with other characters in their place: state the encoding, such"
                " as latin-1"
            )
            doubts.append(Doubt(logging.WARNING, sentence))
        for reason in PassedOver:
            n_records = tally.passed_over[reason]
            if n_records:
                doubts.append(Doubt(logging.ERROR, self._passed(n_records, reason)))
        return doubts

    def _passed(
        self,
        n_records: int,
        reason: PassedOver,
    ) -> str:
        """A sentence on records that are no rows."""
        of_all = (
            f"{n_records} of {self.tally.n_records} records are left out: they {reason}"
        )
        if n_records == self.tally.n_records:
            of_all = f"ALL {n_records} records are left out: they {reason}"
            if self.hint:
                return f"{of_all}; {self.hint}"
        return of_all + _MENDS[reason]


_MENDS = {
    PassedOver.UNCLOSED: "; double the quotes within quoted cells",
    PassedOver.TOO_LONG: "; look for a quote that does not close",
    PassedOver.TOO_FEW: (
        "; state the separator if they are cut at another one, or skip_lines if a title"
        " stands above the header"
    ),
    PassedOver.TOO_MANY: "; quote cells that have the separator in them",
    PassedOver.ONE_MORE: (
        "; state row-names = true if the first is a record's name, or quote cells that"
        " have the separator in them"
    ),
}
