"""From what was released, or what the server computed, to the next state."""

from __future__ import annotations

from functools import lru_cache

from flwr_dpkmeans.errors import ProtocolError
from flwr_dpkmeans.secagg import messages
from flwr_dpkmeans.secagg.party import changed
from flwr_dpkmeans.secagg.ring import Ring
from flwr_dpkmeans.sums.build import discoveries_after, initial_state, state_after
from flwr_dpkmeans.sums.checks.verify import require_server_state
from flwr_dpkmeans.sums.client.memory import Memory
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.round import State
from flwr_dpkmeans.sums.wire.packed_state import unpack_state


@lru_cache(maxsize=4)
def first_state(plan: Plan) -> State | None:
    """Make the data-independent start, once the plan is final.

    None where it comes from the server.

    Made once for all virtual clients of one process.
    """
    if not plan.is_final or plan.server_advances:
        return None
    return initial_state(plan)


def with_server_state(
    memory: Memory,
    index: int,
    blob: bytes,
    *,
    is_repeated: bool,
) -> Memory:
    """Take in what the server computed from released sums and its own points.

    A repeated request brings none.
    """
    what = ""
    if is_repeated and blob:
        what = "came a second time for one round"
    elif not is_repeated and not blob:
        what = "is missing"
    if what:
        raise ProtocolError(
            f"the server's state {what}: use the same version of flwr-dpkmeans"
            " everywhere."
        )
    if is_repeated:
        return memory
    state = _unpack_once(blob, memory.plan.last_round)
    require_server_state(memory.plan, index, state)
    return changed(memory, clusters=state)


# Once for all virtual clients of one process.
_unpack_once = lru_cache(maxsize=1)(unpack_state)


def readable_values(memory: Memory, release: messages.Release) -> Ring:
    """Unblind a release; one of another length than the plan's is a `ProtocolError`."""
    planned = memory.plan.round_at(release.round_index)
    if release.values.shape != (planned.length,):
        raise ProtocolError(
            f"the release of round {release.round_index} has {release.values.size}"
            f" entries, but the plan has {planned.length}: stop the run."
        )
    is_blinded = planned.trust_model.hides_sums()
    return memory.party.unblind(release, blinded=is_blinded).values


def with_discoveries(memory: Memory, release: messages.Release) -> Memory:
    """Add what a preliminary release tells."""
    discoveries = discoveries_after(
        memory.plan,
        release.round_index,
        memory.discoveries,
        readable_values(memory, release),
    )
    return changed(memory, discoveries=discoveries)


def next_state(memory: Memory, release: messages.Release) -> State:
    """The state after one of the task's own releases."""
    if memory.clusters is None:
        raise ProtocolError("a release came before the plan was final: stop the run.")
    values = readable_values(memory, release).tobytes()
    return state_after(memory.plan, release.round_index, memory.clusters, values)
