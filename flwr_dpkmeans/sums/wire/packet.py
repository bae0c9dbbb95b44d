"""One message between encoding and transport, of which nothing is trusted."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from types import MappingProxyType
from typing import Any, TypeGuard

from flwr_dpkmeans.errors import EnumT, ProtocolError
from flwr_dpkmeans.secagg.ring import Ring
from flwr_dpkmeans.sums.wire.failure import Failure, Status, shown_text

MAX_BLOB_BYTES = 2**28
"""Longest blob or vector that is parsed at all."""
MAX_LIST_BYTES = 2**22
"""Longest blob of equal entries that are taken apart one by one.

As long as a roster of 100,000 clients.
"""
LIST_BLOBS = frozenset(("roster", "cohort", "survivors", "marks"))
"""Blobs of equal entries."""
MAX_HEADER_CHARACTERS = 10_000
MAX_INTEGER = 2**31
"""Largest magnitude of an integer in a header."""
_LONGEST_CODE = 100
_LONGEST_SHOWN_SENTENCE = 1000
_LONGEST_WAIT = 1e300
"""In seconds: every finite number that a sender may mean is below."""


@dataclass(frozen=True)
class Packet:
    """One message between encoding and transport."""

    fields: Mapping[str, Any]
    """``header`` (JSON), ``wait`` (seconds), and blobs by name.

    Whatever else a transport let through.
    """
    vector: Ring | None = field(default=None, repr=False)

    @cached_property
    def header(self) -> Mapping[str, object]:
        """Scalars by name; whoever reads one checks its type."""
        text = self.fields.get("header")
        if not isinstance(text, str) or len(text) > MAX_HEADER_CHARACTERS:
            raise ProtocolError(
                "a message's header is missing or too long: message discarded."
            )
        return _parsed_header(text)

    def choice(
        self,
        name: str,
        kind: type[EnumT],
    ) -> EnumT:
        """A member of an enumeration in the header."""
        try:
            return kind(self.header.get(name))
        except ValueError as error:
            raise ProtocolError(
                f"field {name!r} has an unknown value: message discarded."
            ) from error

    def integer(self, name: str) -> int:
        """An integer of the header."""
        value = self.header.get(name)
        if not _is_small_integer(value):
            raise ProtocolError(
                f"field {name!r} is missing or is not a small integer: message"
                " discarded."
            )
        return value

    def text(self, name: str) -> str:
        """A text of the header; empty if it is missing."""
        value = self.header.get(name, "")
        if not isinstance(value, str):
            raise ProtocolError(f"field {name!r} is no text: message discarded.")
        return value

    def blob(self, name: str) -> bytes:
        """A bytes field of bounded length."""
        value = self.fields.get(name)
        most = MAX_LIST_BYTES if name in LIST_BLOBS else MAX_BLOB_BYTES
        if not isinstance(value, bytes) or len(value) > most:
            raise ProtocolError(
                f"field {name!r} is missing, too long or is not bytes: message"
                " discarded."
            )
        return value

    @property
    def failure(self) -> Failure | None:
        """What is wrong on the client's side; None if all is well."""
        status = self.choice("status", Status)
        if status is Status.OK:
            return None
        code = shown_text(self.header.get("code"), _LONGEST_CODE)
        if not (code.isascii() and code.isidentifier()):
            # The code is told to other parties, whom no party's own words are to reach
            # in the server's.
            code = "unknown"
        sentence = shown_text(self.header.get("sentence"), _LONGEST_SHOWN_SENTENCE)
        return Failure(status, code, sentence)

    @property
    def wait(self) -> float | None:
        """For how many seconds the sender of a request waits for the answer.

        None if it does not say.
        """
        seconds = self.fields.get("wait")
        if seconds is None:
            return None
        if not _is_duration(seconds):
            raise ProtocolError(
                "field 'wait' is not a positive, finite number of seconds: message"
                " discarded."
            )
        return float(seconds)


def _is_small_integer(value: object) -> TypeGuard[int]:
    """Whether something that came from elsewhere is an integer that may be used."""
    if not isinstance(value, int) or isinstance(value, bool):
        return False
    return abs(value) <= MAX_INTEGER


def _is_duration(value: object) -> TypeGuard[float]:
    """Whether something that came from elsewhere is a positive, finite number."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return 0.0 < value < _LONGEST_WAIT


@lru_cache(maxsize=16)
def _parsed_header(text: str) -> Mapping[str, object]:
    """Parse a header; the last few are cached.

    Each is looked at several times while one message is handled.
    """
    try:
        header = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(
            "a message's header is not JSON: message discarded."
        ) from error
    if not isinstance(header, dict):
        raise ProtocolError("a message's header is not a mapping: message discarded.")
    return MappingProxyType(header)
