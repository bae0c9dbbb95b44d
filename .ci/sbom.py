"""Puts a bill of materials into wheels, as ``.dist-info/sboms`` (PEP 770).

The build hook runs it where ``FLWR_DPKMEANS_SBOM=1``. The bill (CycloneDX 1.6) lists
the releases of .ci/runtime.txt, which ``.ci/lock`` writes: those that CI tests the
package with. It holds no time and no random number, so that two builds of a commit stay
equal.
"""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections import defaultdict
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
LINE = re.compile(r"(?P<name>[a-z0-9-]+)(\[.*\])?==(?P<version>[^ ]+)(?P<rest>.*)")


def purl(name: str, version: str) -> str:
    """Name a release as other tools do."""
    return f"pkg:pypi/{name}@{version}"


def component(name: str, version: str) -> dict[str, Any]:
    """Describe one release."""
    reference = purl(name, version)
    return {
        "type": "library",
        "bom-ref": reference,
        "name": name,
        "version": version,
        "purl": reference,
    }


def releases_in(lock: str) -> tuple[list[dict[str, Any]], dict[str, list[str]]]:
    """Read every release of a lock, and what each package brings.

    Parameters
    ----------
    lock : str
        Lines such as ``h11==0.16.0  # via httpcore, uvicorn``, some with a marker.

    Returns
    -------
    components : list of dict
        One for each release, as CycloneDX has them.
    brought : dict
        References of releases by the name of the package that asks for them.
    """
    components = []
    brought = defaultdict(list)
    for line in lock.splitlines():
        match = LINE.fullmatch(line)
        if match is None:
            continue
        condition, _, reasons = match["rest"].partition("# via ")
        entry = component(match["name"], match["version"])
        marker = condition.strip(" ;")
        if marker:
            entry["properties"] = [{"name": "python:marker", "value": marker}]
        components.append(entry)
        for reason in reasons.split(", "):
            brought[re.sub(r"\[.*\]| \(.*\)", "", reason)].append(entry["bom-ref"])
    return components, brought


def bill_of(name: str, version: str, lock: str) -> dict[str, Any]:
    """Make the bill of materials of a release of this package."""
    components, brought = releases_in(lock)
    itself = component(name, version)
    itself["licenses"] = [{"license": {"id": "Apache-2.0"}}]
    dependencies = [
        {"ref": entry["bom-ref"], "dependsOn": sorted(brought[entry["name"]])}
        for entry in [itself, *components]
    ]
    digest = hashlib.sha256(lock.encode()).hexdigest()
    serial = uuid.uuid5(uuid.NAMESPACE_URL, f"{itself['purl']}#{digest}")
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        "metadata": {"lifecycles": [{"phase": "build"}], "component": itself},
        "components": components,
        "dependencies": dependencies,
    }


def write_bill(name: str, version: str, folder: Path) -> Path:
    """Write the bill of a release into a folder, and return its file."""
    lock = (HERE / "runtime.txt").read_text()
    bill = bill_of(name, version, lock)
    path = folder / f"{name}.cdx.json"
    path.write_text(json.dumps(bill, indent=1, sort_keys=True) + "\n")
    return path
