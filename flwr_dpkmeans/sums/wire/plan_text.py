"""A plan as text, and its digests."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from flwr_dpkmeans.errors import ProtocolError
from flwr_dpkmeans.sums.plan import Plan
from flwr_dpkmeans.sums.price import resolve_delta
from flwr_dpkmeans.sums.task import adapter
from flwr_dpkmeans.sums.wire.failure import shown_text

if TYPE_CHECKING:
    from pydantic_core import ValidationError

MAX_PLAN_BYTES = 2**26
"""Longest plan that is parsed: server points are the only long part of one."""
MAX_PLAN_ENTRIES = 200_000
"""Most commas in a plan that is parsed, since every entry costs time.

Server points have none.
"""
_LISTED_ERRORS = 100


def dump_plan(plan: Plan) -> bytes:
    """Serialise a plan as JSON."""
    return bytes(adapter(Plan).dump_json(plan))


def plan_digest(blob: bytes) -> bytes:
    """SHA-256 of a plan as it travelled."""
    return hashlib.sha256(blob).digest()


def terms_digest(plan: Plan) -> str:
    """Hash what a plan's runs have in common, with SHA-256.

    All but run id, seeds, and what is counted, found or answered.

    Rounds follow from the rest, as does the delta that a count leads to, so that a
    preliminary plan has the digest of the final one. The digest of columns is another
    one in every run; names that are given stand in the configuration.
    """
    config = plan.config.changed(random_state=None)
    common = replace(
        plan,
        run_id=0,
        seed=0,
        config=config,
        preliminary=(),
        rounds=(),
        box=None,
        columns_digest="",
    )
    declared = replace(
        common,
        n_examples=config.n_examples,
        n_features=config.n_features,
        delta=resolve_delta(config, plan.n_clients),
    )
    return plan_digest(dump_plan(declared)).hex()


@lru_cache(maxsize=4)
def load_plan(blob: bytes) -> Plan:
    """Parse a plan; anything but a well-formed plan is a `ProtocolError`.

    The last few are cached, of which one or two are in force: a plan from elsewhere may
    have 64 MiB.
    """
    from pydantic_core import ValidationError, from_json

    if len(blob) > MAX_PLAN_BYTES or blob.count(b",") > MAX_PLAN_ENTRIES:
        raise ProtocolError(
            f"the plan has {len(blob)} bytes and {blob.count(b',')} commas, but at most"
            f" {MAX_PLAN_BYTES} and {MAX_PLAN_ENTRIES} are looked at: use fewer server"
            " points, features or rounds."
        )
    try:
        plan: Plan = adapter(Plan).validate_json(blob, strict=True)
    except ValidationError as error:
        place = _first_error(error)
        raise ProtocolError(
            f"the plan is malformed at {place!r}: use the same version of"
            " flwr-dpkmeans."
        ) from error
    # The parser skips what it does not know, fills in what is left out, and takes the
    # last of what is there twice: two sides might read two plans.
    if from_json(dump_plan(plan)) != _unrepeated(blob):
        raise ProtocolError(
            "the plan says more or less than one does: use the same version of"
            " flwr-dpkmeans."
        )
    return plan


def _unrepeated(blob: bytes) -> object:
    """Parse JSON; None where a name stands twice in one object."""
    try:
        return json.loads(blob, object_pairs_hook=_as_object)
    except (ValueError, RecursionError):
        return None


def _as_object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Make an object of its names and values."""
    values = dict(pairs)
    if len(values) != len(pairs):
        raise ValueError("a name stands twice")
    return values


def _first_error(error: ValidationError) -> str:
    """Where a plan is malformed first.

    Asking where costs time for each error, so it is asked of a few only.
    """
    if error.error_count() > _LISTED_ERRORS:
        return "many places"
    listed = error.errors(
        include_url=False,
        include_context=False,
        include_input=False,
    )
    location = ".".join(str(part) for part in listed[0]["loc"])
    return shown_text(location, 200)
