"""How large messages are."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from flwr.app import Message


def bytes_of(messages: Iterable[Message]) -> int:
    """Bytes of the values in some messages, without Flower's own wrapping."""
    size = 0
    for content in [message.content for message in messages if message.has_content()]:
        for config in content.config_records.values():
            size += sum(
                len(value) if isinstance(value, bytes | str) else 8
                for value in config.values()
            )
        for arrays in content.array_records.values():
            size += sum(len(array.data) for array in arrays.values())
    return size


def log_size(
    log: logging.Logger,
    what: str,
    messages: Sequence[Message],
) -> None:
    """Log how large messages are, for whoever asks for details."""
    if log.isEnabledFor(logging.DEBUG):
        log.debug(
            "%s %d bytes in %d messages",
            what,
            bytes_of(messages),
            len(messages),
        )
