"""What benchmarks change in a process is put back.

The tests run them where their workers would.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    """Benchmarks silence logging for good, since their workers end with them."""
    before = logging.root.manager.disable
    yield
    logging.disable(before)
