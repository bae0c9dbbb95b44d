"""One node's files, all of them right."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np

from flwr_dpkmeans.node.identity import Identity
from simulations.flower.flower_processes import free_ports
from simulations.flower.sites import default_policy

SOME_APP = "0123456789abcdef" * 4


def write_node(
    folder: Path, *, left_out: tuple[str, ...] = (), **changes: object
) -> Path:
    """Write NODE.toml with everything that it names.

    Changes are its keys, with underscores.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    np.save(folder / "rows.npy", np.arange(30.0).reshape(10, 3))
    (folder / "policy.toml").write_text(default_policy(1.0))
    if not (folder / "identity").exists():
        Identity.generate().save(folder / "identity")
    for name in ("rows.npy", "policy.toml"):
        os.chmod(folder / name, 0o600)
    values: dict[str, object] = {
        "allowed_apps": [SOME_APP],
        "superlink": "127.0.0.1:41999",
        "port": free_ports(1)[0],
        "insecure": True,
        "home": str(folder / "home"),
        "data_path": str(folder / "rows.npy"),
        "policy": str(folder / "policy.toml"),
        "ledger": str(folder / "ledger.jsonl"),
        "identity": str(folder / "identity"),
        "output": str(folder / "results"),
    }
    lines = [
        f"{key.replace('_', '-')} = {json.dumps(value)}"
        for key, value in (values | changes).items()
    ]
    path = folder / "node.toml"
    path.write_text(
        "\n".join(line for line in lines if line.split(" ")[0] not in left_out) + "\n"
    )
    os.chmod(path, 0o600)
    return path
