"""How numbers are written."""

from __future__ import annotations

import re
from dataclasses import dataclass

_SPELLINGS_OF_A_MARK = {" ": " \u00a0\u202f", "'": "'\u2019"}


@dataclass(frozen=True)
class NumberFormat:
    """How numbers are written.

    Attributes
    ----------
    decimal : str
        The decimal mark, ``"."`` or ``","``.
    thousands : str
        The mark between groups of three digits; empty if there is none.
    """

    decimal: str = "."
    thousands: str = ""

    @property
    def is_plain(self) -> bool:
        """Whether numbers are written as Python writes them."""
        return self.decimal == "." and not self.thousands

    @property
    def marks(self) -> str:
        """Every spelling of the thousands mark, such as three kinds of space."""
        return _SPELLINGS_OF_A_MARK.get(self.thousands, self.thousands)

    @property
    def pattern(self) -> str:
        """Regular expression (RE2) of a whole number in this format.

        The last group has three digits: a decimal comma must not become a thousands
        mark. Those before it have three, or two as in India: 12,34,567.
        """
        decimal = re.escape(self.decimal)
        whole = r"\d+"
        if self.thousands:
            mark = f"[{re.escape(self.marks)}]"
            threes = rf"\d{{1,3}}({mark}\d{{3}})+"
            twos = rf"\d{{1,2}}({mark}\d{{2}})+{mark}\d{{3}}"
            whole = rf"({threes}|{twos}|\d+)"
        return rf"^[+-]?({whole}({decimal}\d*)?|{decimal}\d+)([eE][+-]?\d+)?$"


PLAIN = NumberFormat()
