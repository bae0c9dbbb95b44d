"""What the owner of a file states about how it is written."""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Self

from pydantic import (
    BaseModel,
    ConfigDict,
    ValidationError,
    field_validator,
    model_validator,
)

from flwr_dpkmeans.data.files.number_format import NumberFormat
from flwr_dpkmeans.errors import ConfigurationError, finding

_NAMED_SEPARATORS = {"tab": "\t", "\\t": "\t", "space": " "}
_UNSTATED = ("", "auto", None)
# A character, or an escape, of one line would decide how others are read.
_NOT_LINE_BY_LINE = (
    "hz",
    "iso2022",
    "utf-7",
    "unicode-escape",
    "raw-unicode-escape",
    "punycode",
    "idna",
    "undefined",
)
_TRUTH = {"yes": True, "true": True, "no": False, "false": False}


class Dialect(BaseModel):
    r"""How a table's file is written, as far as its owner states it.

    What is not stated (None) is taken from the file's first line, or is the usual:
    UTF-8, decimal points, a header.

    Examples
    --------
    >>> german = Dialect(separator=";", decimal=",", thousands=".", dates="%d.%m.%Y")
    >>> Dialect(header=False).over(german).decimal
    ','
    """

    # Its validators are built for the first file.
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    separator: str | None = None
    """What stands between cells: one character, or "tab"."""
    decimal: str | None = None
    """The decimal mark: "." or ","."""
    thousands: str | None = None
    """The mark between groups of three digits, such as "." or "'"; unstated: none."""
    encoding: str | None = None
    """The text's encoding, such as "utf-8", "utf-16" or "latin-1"."""
    header: bool | None = None
    """Whether the first record has the columns' names."""
    row_names: bool | None = None
    """Whether records begin with a name that the header has no cell for, as R writes.
    """
    skip_lines: int | None = None
    """Lines before the header, or before the first record."""
    missing: tuple[str, ...] | None = None
    """Texts that are missing cells beside the usual ones, such as "?" or "-999"."""
    comment: str | None = None
    """What lines of comments begin with, such as "#"."""
    dates: str | None = None
    """How dates are written beside ISO 8601, as "%d.%m.%Y" (Python's strptime)."""

    def __init__(self, **stated: object) -> None:
        try:
            super().__init__(**stated)
        except ValidationError as error:
            names = type(self).model_fields
            raise ConfigurationError(f"the file's {finding(error, names)}") from None

    @field_validator(
        "separator",
        "decimal",
        "thousands",
        "comment",
        mode="before",
    )
    @classmethod
    def _marks(cls, value: object) -> object:
        """Read a mark, which may be named since configurations lose a lone tab."""
        return _NAMED_SEPARATORS.get(value, value) if isinstance(value, str) else value

    @field_validator("separator", "thousands")
    @classmethod
    def _single(cls, value: str | None) -> str | None:
        if value is None or (len(value) == 1 and value not in '"\n\r\0'):
            return value
        raise ValueError(
            'it must be one character that is no quote and ends no line: give ";", or'
            ' "tab"'
        )

    @field_validator("decimal")
    @classmethod
    def _decimal_mark(cls, value: str | None) -> str | None:
        if value in (None, ".", ","):
            return value
        raise ValueError('it must be "." or ",": give one of these')

    @field_validator("encoding")
    @classmethod
    def _encoding_exists(cls, value: str | None) -> str | None:
        """Require one of text, each line of which can be read by itself."""
        if value is None:
            return None
        try:
            name = codecs.lookup(value).name
            "".encode(name)  # which refuses encodings of other things than text
        except (LookupError, UnicodeError):
            raise ValueError(
                'Python has no such encoding of text: give "utf-8", "utf-16" or'
                ' "latin-1"'
            ) from None
        if name.replace("_", "-").startswith(_NOT_LINE_BY_LINE):
            raise ValueError(
                "its lines cannot be read one by one: save the file as UTF-8"
            )
        return name

    @field_validator("dates")
    @classmethod
    def _dates_are_read(cls, value: str | None) -> str | None:
        """Require a format that tells moments apart, and reads what it writes.

        Else a cell may be an error, or each cell the same date.
        """
        if value is None:
            return None
        moment = datetime(2020, 1, 31, 13, 45, 7, tzinfo=UTC)
        later = datetime(2021, 2, 28, 2, 46, 8, tzinfo=UTC)
        with suppress(ValueError, re.error):
            written = moment.strftime(value)
            datetime.strptime(written, value)
            if written != later.strftime(value):
                return value
        raise ValueError('no date can be read by it: give one such as "%d.%m.%Y"')

    @field_validator("skip_lines")
    @classmethod
    def _not_negative(cls, value: int | None) -> int | None:
        if value is None or value >= 0:
            return value
        raise ValueError("lines are counted from 0: give 0 or more")

    @model_validator(mode="after")
    def _marks_differ(self) -> Self:
        if self.separator and not self.separator.isascii():
            raise ValueError(
                f"separator is {self.separator!r}, but it must be an ASCII character:"
                " write the file with another one"
            )
        decimal = self.decimal or "."
        if decimal in (self.separator, self.thousands):
            which = "separator" if decimal == self.separator else "thousands"
            raise ValueError(
                f"{which} and decimal are both {decimal!r}, but they must differ: state"
                " both as the file has them"
            )
        return self

    @property
    def number_format(self) -> NumberFormat:
        """How numbers are written."""
        return NumberFormat(self.decimal or ".", self.thousands or "")

    @property
    def markers(self) -> frozenset[str]:
        """Stated texts of missing cells."""
        return frozenset(text.strip() for text in self.missing or ())

    def over(self, other: Dialect) -> Dialect:
        """Return the same, with what it leaves open taken from another one."""
        stated = self.model_dump(exclude_none=True)
        return Dialect(**(other.model_dump(exclude_none=True) | stated))

    def stated(self) -> dict[str, object]:
        """Return what is stated, in plain values of JSON and TOML."""
        return self.model_dump(mode="json", exclude_none=True)

    @classmethod
    def of_scalars(cls, values: Mapping[str, object]) -> Dialect:
        """Read it from a run's configuration, whose values are scalars.

        Names may have hyphens; several markers of missing cells are separated by
        commas.
        """
        stated = {
            name.replace("-", "_"): value
            for name, value in values.items()
            if value not in _UNSTATED
        }
        for name in ("header", "row_names"):
            truth = stated.get(name)
            if isinstance(truth, str):
                stated[name] = _truth(name, truth)
        missing = stated.get("missing")
        if isinstance(missing, str):
            stated["missing"] = tuple(missing.split(","))
        return cls(**stated)


UNSTATED = Dialect.model_construct()
"""Nothing is stated."""


def _truth(name: str, value: str) -> bool:
    truth = _TRUTH.get(value.lower())
    if truth is None:
        raise ConfigurationError(
            f"{name.replace('_', '-')} is {value!r}, but it is a fact about a file:"
            " give 'yes' or 'no'."
        )
    return truth
