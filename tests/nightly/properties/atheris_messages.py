"""Coverage-guided fuzzing of every parser, by hand.

``pip install atheris``, ``tests/protocol`` on PYTHONPATH.

``python tests/nightly/properties/atheris_messages.py -max_total_time=600``
(libFuzzer options). Anything but a value or a `ProtocolError` stops it with the input
that led there. The test suite runs `test_fuzz_messages` instead.
"""

from __future__ import annotations

import contextlib
import sys

import atheris

with atheris.instrument_imports(include=["flwr_dpkmeans"]):
    from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
    from support.messages import RECORD, VECTOR_LAYOUT, VECTOR_RECORD
    from test_fuzz_messages import BYTES, PARSERS

    from flwr_dpkmeans.errors import ProtocolError

FIELDS = (
    "roster",
    "boxes",
    "state",
    "tag",
    "public_key",
    "plan_digest",
    "survivors",
    "shares",
    "credentials",
    "cohort",
)


def parse_something(data: bytes) -> None:
    """The first byte chooses a parser, the rest is a blob or a whole message."""
    provider = atheris.FuzzedDataProvider(data)
    choice = provider.ConsumeIntInRange(0, len(BYTES) + len(PARSERS) - 1)
    with contextlib.suppress(ProtocolError):
        if choice < len(BYTES):
            list(BYTES.values())[choice][0](provider.ConsumeBytes(len(data)))
        else:
            list(PARSERS.values())[choice - len(BYTES)](a_message(provider))


def a_message(provider: atheris.FuzzedDataProvider) -> RecordDict:
    """Some fields of the protocol's record, and perhaps a vector."""
    fields: dict[str, str | bytes] = {"header": provider.ConsumeUnicode(200)}
    for name in FIELDS:
        if provider.ConsumeBool():
            fields[name] = provider.ConsumeBytes(provider.ConsumeIntInRange(0, 200))
    content = RecordDict({RECORD: ConfigRecord(fields)})
    if provider.ConsumeBool():
        words = provider.ConsumeBytes(provider.ConsumeIntInRange(0, 80))
        shape = (provider.ConsumeIntInRange(-1, 11),)
        array = Array(dtype="uint64", shape=shape, stype=VECTOR_LAYOUT, data=words)
        content[VECTOR_RECORD] = ArrayRecord({"vector": array})
    return content


if __name__ == "__main__":
    atheris.Setup(sys.argv, parse_something)
    atheris.Fuzz()
