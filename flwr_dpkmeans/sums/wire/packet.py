"""One message between encoding and transport, of which nothing is trusted."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from types import MappingProxyType
from typing import Any

from flwr_dpkmeans.errors import (
    EnumT,
    ProtocolError,
)
from flwr_dpkmeans.secagg.ring import Ring
from flwr_dpkmeans.sums.wire.failure import Failure, Status, shown_text

MAX_BLOB_BYTES = 2**28
"""Longest blob or vector that is parsed at all."""
MAX_LIST_BYTES = 2**22
"""Longest blob of equal entries that are taken apart one by one.

a roster of 100,000 clients.
"""
LIST_BLOBS = frozenset(("roster", "cohort", "survivors", "marks"))
MAX_HEADER_CHARACTERS = 10_000
MAX_INTEGER = 2**31


@dataclass(frozen=True)
class Packet:
    """One message between encoding and transport."""

    fields: Mapping[str, Any]
    """``header`` (JSON), ``wait`` (seconds), and blobs by name.

    Whatever else a transport let through.
    """
    vector: Ring | None = field(default=None, repr=False)

    @cached_property
    def header(self) -> Mapping[str, Any]:
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
        if (
            not isinstance(value, int)
            or isinstance(value, bool)
            or abs(value) > MAX_INTEGER
        ):
            raise ProtocolError(
                f"field {name!r} is missing or is not a small integer: message"
                " discarded."
            )
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
        # The code is told to other parties, whom no party's own words are to reach in
        # the server's.
        code = shown_text(self.header.get("code"), 100)
        code = code if code.isascii() and code.isidentifier() else "unknown"
        return Failure(status, code, shown_text(self.header.get("sentence"), 1000))

    @property
    def wait(self) -> float | None:
        """For how many seconds the sender of a request waits for the answer.

        None if it does not say.
        """
        seconds = self.fields.get("wait")
        if seconds is None:
            return None
        if (
            not isinstance(seconds, int | float)
            or isinstance(seconds, bool)
            or not 0.0 < seconds < 1e300
        ):
            raise ProtocolError(
                "field 'wait' is not a positive, finite number of seconds: message"
                " discarded."
            )
        return float(seconds)


@lru_cache(maxsize=16)
def _parsed_header(text: str) -> Mapping[str, Any]:
    """A header is looked at several times while one message is handled, so the last few
    are kept.
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
