"""What is private in Flower, for programs that may import nothing of this project."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING

__all__ = ["private"]

if TYPE_CHECKING or __name__.startswith("flwr_dpkmeans."):
    from flwr_dpkmeans.flower import _private as private
else:
    # By its path: the ``flwr_dpkmeans`` that an approved app brings must be the one
    # that runs, and would not be imported beside one that is there already.
    path = Path(__file__).parents[2] / "flower" / "_private.py"
    spec = spec_from_file_location(f"{__package__}.private", path)
    private = module_from_spec(spec)
    spec.loader.exec_module(private)
