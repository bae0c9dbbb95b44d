"""What the guard says no by."""

from __future__ import annotations


class GuardError(Exception):
    """An app is not approved, or the guard cannot do its work.

    In both cases nothing runs.
    """
