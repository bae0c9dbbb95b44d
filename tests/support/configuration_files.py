"""Files of the experiments' configuration."""

from __future__ import annotations

import functools
import json

import yaml

from simulations.experiments.expansion import CONFIGURATION


@functools.cache
def text_of(group: str, option: str) -> str:
    """A file of the configuration as JSON, which is read faster than YAML."""
    return json.dumps(
        yaml.safe_load((CONFIGURATION / group / f"{option}.yaml").read_text())
    )
