"""What other packages import from `flwr_dpkmeans.sums`."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from flwr_dpkmeans import sums

PAGE = Path(sums.__file__).parents[1] / "docs" / "reference" / "api.md"


@pytest.mark.parametrize("name", sums.__all__)
def test_public_names_are_there_documented_and_on_the_page(name: str) -> None:
    assert getattr(sums, name).__doc__
    described = rf"^::: flwr_dpkmeans\..*\.{name}$|^`{name}` is "
    assert re.search(described, PAGE.read_text(), re.MULTILINE)


def test_other_names_are_not() -> None:
    assert set(dir(sums)) >= set(sums.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'PrivateSums'"):
        sums.PrivateSums  # noqa: B018


def test_the_room_itself_loads_nothing() -> None:
    program = (
        "import sys, flwr_dpkmeans.sums; sys.exit(any(name.startswith('numpy') for name"
        " in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
