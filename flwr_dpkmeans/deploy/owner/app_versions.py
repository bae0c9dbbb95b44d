"""Which version of the app runs: an office proposes one, each party approves it.

A party that approves a new version still runs the old one, so that the office may go
back to it; a node reads its file when it starts.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

from flwr_dpkmeans.deploy.findings import app_hash
from flwr_dpkmeans.deploy.invitation import Invitation
from flwr_dpkmeans.deploy.node_options import NodeOptions
from flwr_dpkmeans.deploy.server_options import FILE, ServerOptions
from flwr_dpkmeans.errors import ConfigurationError
from flwr_dpkmeans.node.durable_files import locked
from flwr_dpkmeans.node.identity import write_new

_ALLOWED = re.compile(r"^allowed-apps\s*=\s*\[[^\]]*\]", re.MULTILINE)
_APP = re.compile(r"^app\s*=\s*(\"[^\"\n]*\"|'[^'\n]*')", re.MULTILINE)


def propose_app(folder: Path, app: Path) -> str:
    """Write an app's hash into the invitation, and its path into server.toml."""
    options = ServerOptions.load(folder)
    digest = app_hash(app)
    file = folder / FILE
    _rewrite(file, _APP, f"app = {json.dumps(str(app.absolute()))}")
    ServerOptions.load(folder)
    with locked(options.invitation, exclusive=True):
        invitation = Invitation.from_toml(options.invitation)
        invitation.model_copy(update={"app": digest}).save(options.invitation)
    return digest


def approve_app(path: Path, digest: str, app: Path | None) -> tuple[str, ...]:
    """Add an app's hash to those that a node may run, and return all of them.

    It must be that of the own copy, which somebody has reviewed.
    """
    options = NodeOptions.from_toml(path)
    copy = app or options.app
    if copy is None:
        raise ConfigurationError(
            f"nothing here has the hash {digest}: give the reviewed copy by --app."
        )
    found_digest = app_hash(copy)
    if found_digest != digest:
        raise ConfigurationError(
            f"{copy} has the hash {found_digest}, but {digest} is to be approved:"
            " review that version, and give its project or .fab file by --app."
        )
    others = [other for other in options.allowed_apps if other != digest]
    return _allow(path, [digest, *others])


def withdraw_app(path: Path, digest: str) -> tuple[str, ...]:
    """Take an app's hash from those that a node may run, and return the others."""
    allowed = NodeOptions.from_toml(path).allowed_apps
    others = [other for other in allowed if other != digest]
    if not others or len(others) == len(allowed):
        raise ConfigurationError(
            f"{digest} is {'the only' if not others else 'no'} app of allowed-apps in"
            f" {path}: approve another one first, or correct the hash."
        )
    return _allow(path, others)


def _allow(path: Path, digests: list[str]) -> tuple[str, ...]:
    _rewrite(path, _ALLOWED, f"allowed-apps = {json.dumps(digests)}")
    return NodeOptions.from_toml(path).allowed_apps


def _rewrite(path: Path, line: re.Pattern[str], text: str) -> None:
    """Put a key's line into a file, as a whole; the rest of it stays as it was."""
    path = path.resolve()
    before = path.read_text(encoding="utf-8")
    if len(line.findall(before)) != 1:
        raise ConfigurationError(
            f"{path} has no one line to be changed: write {text!r} there."
        )
    after = line.sub(lambda _: text, before)
    target = path.with_name(f".{path.name}.new")
    target.unlink(missing_ok=True)
    new = write_new(target, after.encode())
    shutil.copymode(path, new)
    shutil.chown(new, path.stat().st_uid, path.stat().st_gid)
    new.replace(path)
