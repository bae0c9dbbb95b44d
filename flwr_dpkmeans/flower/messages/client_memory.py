"""A client's memory: one `ConfigRecord` in ``context.state``."""

from __future__ import annotations

from flwr.app import ConfigRecord, Context

from flwr_dpkmeans.secagg.party import Phase, changed
from flwr_dpkmeans.sums.client import Memory

_MEMORY = "dpkmeans.client"


def recall(context: Context) -> Memory | None:
    """The memory of this run, None before its first message.

    Flower's context may still hold that of an earlier run.
    """
    record = context.state.get(_MEMORY)
    if record is None:
        return None
    fields = dict(record)
    return Memory.unpack(
        fields,
        context.run_id,
    )


def remember(context: Context, memory: Memory) -> None:
    """Replace the memory of this run, or of one before it, all of it at once.

    At the run's end, its keys go.
    """
    party = memory.party
    if party.phase is Phase.FINISHED:
        party = party.forgotten()
        memory = changed(memory, party=party)
    record = ConfigRecord(memory.pack())
    # One record, put in place by one assignment, so that a crash leaves the old or the
    # new memory.
    context.state[_MEMORY] = record
