"""Fifteen kinds of faults, planted one at a time in a sound party's folder.

`node check` names each, and its mend.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from fastapi import HTTPException
from flwr.proto.fleet_pb2 import (
    ActivateNodeRequest,
    DeactivateNodeRequest,
    PullMessagesRequest,
)
from flwr.proto.node_pb2 import Node
from flwr.supercore.date import now
from flwr.superlink.routers.fleet import node_auth
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor
from support.apps import app_files, packed
from support.machine import (
    install_flower,
    replace_call,
    replace_rights,
    replace_room,
    replace_sleep,
    replace_user,
)
from support.superlink_stand_in import UNKNOWN, StandIn, standing_in

from flwr_dpkmeans.__main__ import main
from flwr_dpkmeans.deploy import certificates, node_check
from flwr_dpkmeans.deploy.finding import Finding, Verdict
from flwr_dpkmeans.deploy.guard.approved_fab import digest_of
from flwr_dpkmeans.deploy.invitation import Invitation, Party
from flwr_dpkmeans.deploy.node_check import check
from flwr_dpkmeans.deploy.node_options import NodeOptions
from flwr_dpkmeans.deploy.superlink_answer import MOST_CLOCK_SECONDS, ask
from flwr_dpkmeans.flower import _private
from flwr_dpkmeans.node.identity import Identity
from flwr_dpkmeans.node.ledger_entries import LedgerEntry
from flwr_dpkmeans.node.ledger_file import FileLedger
from simulations.flower.credentials import make_credentials
from simulations.flower.flower_processes import free_ports

SCHEMA = (
    '[columns]\nage = { kind = "number", bounds = [0, 100] }\nheight = { kind ='
    ' "number", bounds = [100, 220] }\n'
)


@pytest.fixture(scope="module")
def superlink(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandIn]:
    made = make_credentials(tmp_path_factory.mktemp("certificates"), [])
    with standing_in(made.certificate, made.key) as server:
        server.authority = made.authority  # type: ignore[attr-defined]
        yield server


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory, superlink: StandIn) -> Path:
    """A folder in which the party ward-7 is ready, by its own two commands."""
    root = tmp_path_factory.mktemp("sound")
    root.chmod(0o755)
    (root / "app.fab").write_bytes(packed(app_files()))
    (root / "schema.toml").write_text(SCHEMA)
    (root / "rows.csv").write_text(
        "height,age\n" + "".join(f"{150 + row},{row}\n" for row in range(40))
    )
    parties = {name: Party() for name in ("ward-7", "ward-8", "ward-9")}
    app, certificate = (
        digest_of((root / "app.fab").read_bytes()),
        superlink.authority.read_text(),
    )  # type: ignore[attr-defined]
    invitation = Invitation(
        federation="wards",
        superlink=superlink.address,
        app=app,
        certificate=certificate,
        parties=parties,
    )
    for name in ("ward-8", "ward-9"):
        other = (
            make_credentials(root / name, [root / name])
            .node_keys[0]
            .with_name("key.pub")
            .read_text()
        )
        invitation = invitation.with_party(
            name, other, Identity.generate().public_key.hex()
        )
        shutil.rmtree(root / name)
    invitation.save(root / "invitation.toml")
    init = [
        "node",
        "init",
        "ward-7",
        "--invitation",
        f"{root}/invitation.toml",
        "--data",
        f"{root}/rows.csv",
    ]
    init += [
        "--schema",
        f"{root}/schema.toml",
        "--folder",
        str(root),
        "--app",
        f"{root}/app.fab",
    ]
    assert main(init) == main(["node", "pin", f"{root}/ward-7"]) == 0
    return root


@dataclass
class Place:
    """A copy of the sound folder."""

    root: Path
    superlink: StandIn
    patch: pytest.MonkeyPatch
    stack: contextlib.ExitStack

    @property
    def file(self) -> Path:
        return self.root / "ward-7" / "node.toml"

    def say(self, file: str, key: str, value: object) -> None:
        """Give one key of a file another value."""
        path = self.root / file
        text = re.sub(rf"^(# )?{key} = .*\n", "", path.read_text(), flags=re.MULTILINE)
        path.write_text(f"{key} = {json.dumps(value)}\n{text}")

    def found(self) -> dict[str, tuple[Verdict, str]]:
        findings = check(self.file, NodeOptions.from_toml(self.file), apps=False)
        return {one.item: (one.verdict, one.says) for one in findings}


@pytest.fixture
def place(
    tmp_path: Path, sound: Path, superlink: StandIn, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Place]:
    shutil.copytree(sound, tmp_path / "here")
    (tmp_path / "here").chmod(0o755)
    made = Place(tmp_path / "here", superlink, monkeypatch, contextlib.ExitStack())
    made.file.write_text(made.file.read_text().replace(str(sound), str(made.root)))
    made.say("ward-7/node.toml", "port", free_ports(1)[0])
    monkeypatch.delenv("FLWR_HOME", raising=False)
    with made.stack:
        yield made
    superlink.code, superlink.status = StandIn.code, StandIn.status
    superlink.ahead, superlink.is_online = 0.0, False
    superlink.next_statuses = ()


def _clock(place: Place, ahead: float) -> None:
    place.superlink.ahead = ahead


def _certificate(
    place: Place, *, from_days: int = 0, for_days: int = 7, authority: bool = True
) -> None:
    """Another SuperLink, whose certificate holds from so many days ago for so many days
    from now.
    """
    since = datetime.timedelta(days=from_days, minutes=5)
    (made := place.root / "other").mkdir()
    certificates.write_certificates(made, ["127.0.0.1"], for_days, since)
    server = place.stack.enter_context(
        standing_in(made / "server.pem", made / "server.key")
    )
    place.say("ward-7/node.toml", "superlink", server.address)
    if authority:
        shutil.copy(made / "ca.crt", place.root / "ward-7" / "ca.crt")
        _invite(place, "superlink", server.address)
        _invite(place, "certificate", (made / "ca.crt").read_text())


def _answering(status: int) -> Callable[[Place], None]:
    """What is no SuperLink: every status but 412 has no words of Flower's."""

    def plant(place: Place) -> None:
        place.superlink.status = status

    return plant


_yielding = _answering(200)


def _online(place: Place) -> None:
    place.superlink.is_online = True


def _unknown(place: Place) -> None:
    place.superlink.code = UNKNOWN


def _without_tls(place: Place) -> None:
    place.say(
        "ward-7/node.toml",
        "superlink",
        place.stack.enter_context(standing_in()).address,
    )


def _listen(place: Place) -> None:
    taken = place.stack.enter_context(socket.create_server(("127.0.0.1", 0)))
    place.say("ward-7/node.toml", "port", taken.getsockname()[1])


def _spent(place: Place) -> Path:
    """A ledger with one entry; its head lies beside it."""
    ledger = place.root / "ward-7" / "ledger" / "ledger.jsonl"
    FileLedger(ledger).charge(
        LedgerEntry("1/2", "ward-7", "ab", 1, 0, "sums", 1.0, 1e-6, "record")
    )
    return ledger


def _pin(place: Place, name: str, identity: str) -> None:
    policy = place.root / "ward-7" / "policy.toml"
    policy.write_text(
        re.sub(
            rf"^{name} = .*$",
            f'{name} = "{identity}"',
            policy.read_text(),
            flags=re.MULTILINE,
        )
    )


def _unpin(place: Place, name: str) -> None:
    policy = place.root / "ward-7" / "policy.toml"
    policy.write_text(
        re.sub(rf"^{name} = .*\n", "", policy.read_text(), flags=re.MULTILINE)
    )


def _invite(place: Place, key: str, value: object) -> None:
    """Change the invitation after its parties were pinned."""
    path = place.root / "invitation.toml"
    invitation = Invitation.from_toml(path)
    changed = (
        {key: value}
        if key in Invitation.model_fields
        else {"parties": {**invitation.parties, key: value}}
    )
    invitation.model_copy(update=changed).save(path)


def _rename(place: Place, old: str, new: str) -> None:
    path = place.root / "invitation.toml"
    path.write_text(path.read_text().replace(f"[parties.{old}]", f"[parties.{new}]"))


def _changed_identity(place: Place) -> Party:
    return (
        Invitation.from_toml(place.root / "invitation.toml")
        .parties["ward-7"]
        .model_copy(update={"identity": OTHER})
    )


def _rows(place: Place, text: str) -> None:
    (place.root / "rows.csv").write_text(text)


def _set(name: str, value: object) -> Callable[[Place], None]:
    return lambda place: place.say("ward-7/node.toml", name, value)


def _policy(name: str, value: object) -> Callable[[Place], None]:
    return lambda place: place.say("ward-7/policy.toml", name, value)


def _new_key(text: bytes) -> Callable[[Place], None]:
    def plant(place: Place) -> None:
        (place.root / "ward-7" / "key").write_bytes(text)

    return plant


def _linked(place: Place) -> None:
    """A policy in a folder that everybody may write to."""
    (made := place.root / "open").mkdir()
    made.chmod(0o777)
    policy = place.root / "ward-7" / "policy.toml"
    shutil.move(policy, made / "policy.toml")
    policy.symlink_to(made / "policy.toml")


def _linked_key(place: Place) -> None:
    (made := place.root / "open").mkdir(mode=0o755)
    made.chmod(0o755)
    key = place.root / "ward-7" / "key"
    shutil.move(key, made / "key")
    (made / "key").chmod(0o644)
    key.symlink_to(made / "key")


def _mode(file: str, mode: int) -> Callable[[Place], None]:
    return lambda place: (place.root / file).chmod(mode)


_BLOCKS = {"f_frsize": 4096, "f_blocks": 10**9, "f_bfree": 10**9, "f_bavail": 10**9}
_FULL = SimpleNamespace(**_BLOCKS, f_files=9, f_favail=2, f_flag=0)
_NO_PROGRAMS = SimpleNamespace(**_BLOCKS, f_files=0, f_favail=0, f_flag=os.ST_NOEXEC)
WRONG, NOTE = Verdict.WRONG, Verdict.NOTE
OTHER = Identity.generate().public_key.hex()


class Fault(NamedTuple):
    """How a fault is planted, and what is said of which item."""

    plant: Callable[[Place], object]
    item: str
    verdict: Verdict
    words: str


FAULTS: dict[str, Fault] = {
    "clock ahead": Fault(
        lambda place: _clock(place, -6), "clock", WRONG, "it is at least [45] s ahead"
    ),
    "clock for which Flower has a status alone": Fault(
        lambda place: (_clock(place, -6), _answering(401)(place)),
        "clock",
        WRONG,
        "it is at least [45] s ahead of",
    ),
    "clock behind": Fault(
        lambda place: _clock(place, 4), "clock", WRONG, "it is at least [34] s behind"
    ),
    "rights of the file": Fault(
        _mode("ward-7/node.toml", 0o620), "file", WRONG, "node.toml may be changed by"
    ),
    "rights of its folder": Fault(
        _mode("ward-7", 0o770), "file", WRONG, "ward-7 may be changed by others:"
    ),
    "rights above its folder": Fault(
        _mode(".", 0o777), "file", WRONG, "here may be changed by others: .*chmod go-w"
    ),
    "rights of what a link leads to": Fault(
        _linked, "policy", WRONG, "open may be changed by others: .*chmod go-w"
    ),
    "rights of the policy": Fault(
        _mode("ward-7/policy.toml", 0o602), "policy", WRONG, "chmod go-w"
    ),
    "rights of the key": Fault(
        lambda place: (
            _mode("ward-7/key", 0o644)(place),
            _mode("ward-7", 0o755)(place),
        ),
        "connection",
        WRONG,
        "key may be read or changed by everybody",
    ),
    "rights of a key that a link leads to": Fault(
        _linked_key, "connection", WRONG, "key may be read or changed by every"
    ),
    "rights of the identity": Fault(
        _mode("ward-7/identity", 0o640 | 0o4),
        "identity",
        WRONG,
        "mode 644, .*chmod 600",
    ),
    "rights of the rows": (_mode("rows.csv", 0o644), "data", WRONG, "chmod o-rw"),
    "rights of the home": Fault(
        _mode("ward-7/home", 0o755), "home", WRONG, "must be .*with mode 700"
    ),
    "rights of the results": Fault(
        lambda place: (
            _mode("ward-7/results", 0o755)(place),
            _mode("ward-7", 0o755)(place),
        ),
        "output",
        WRONG,
        "results may be read",
    ),
    "pins without oneself": Fault(
        lambda place: _pin(place, "ward-7", OTHER),
        "identity",
        WRONG,
        (
            f"ward-7 has the identity .* but {OTHER} by .*policy.toml: ask its owner by"
            " telephone"
        ),
    ),
    "pins that lack oneself": Fault(
        lambda place: _unpin(place, "ward-7"),
        "identity",
        WRONG,
        (
            "does not pin [0-9a-f]{64}: add the parties' lines to .pinned-peers., or"
            " have those who left taken out"
        ),
    ),
    "pins that lack a party": Fault(
        lambda place: _unpin(place, "ward-9"),
        "identity",
        WRONG,
        (
            "does not pin [0-9a-f]{64}: add the parties' lines to .pinned-peers., or"
            " have those who left taken out"
        ),
    ),
    "pins against the invitation": Fault(
        lambda place: _pin(place, "ward-8", OTHER),
        "identity",
        WRONG,
        f"ward-8 has .* by the invitation, but {OTHER} by .*policy.toml",
    ),
    "another self in the invitation": Fault(
        lambda place: _invite(place, "ward-7", _changed_identity(place)),
        "identity",
        WRONG,
        "ward-7 has the identity",
    ),
    "another SuperLink than the invitation's": Fault(
        lambda place: _invite(place, "superlink", "superlink.example.org:443"),
        "connection",
        WRONG,
        "not those of .*invitation.toml, which may have come in two versions",
    ),
    "another authority than the invitation's": Fault(
        lambda place: (place.root / "ward-7" / "ca.crt").write_text("no certificate"),
        "connection",
        WRONG,
        "not those of .*invitation.toml, which may have come in two versions",
    ),
    "a SuperLink that takes everything": Fault(
        _yielding, "superlink", WRONG, "is not the one that this node knows"
    ),
    "a web server": Fault(
        _answering(404), "superlink", WRONG, "not the one that .*HTTP 404, and nothing"
    ),
    "a proxy alone": Fault(
        _answering(502), "superlink", WRONG, "does not answer .HTTP 502.: have it"
    ),
    "hash of the invitation": Fault(
        lambda place: _invite(place, "app", "ab" * 32),
        "app",
        WRONG,
        f"lacks {'ab' * 32}, the hash of the invitation's app: review it",
    ),
    "hash of zeros": Fault(
        _set("allowed-apps", ["0" * 64]), "app", WRONG, "zeros: put the hash"
    ),
    "hash of the own copy": Fault(
        lambda place: (place.root / "app.fab").write_bytes(packed(app_files("0.2.0"))),
        "app",
        WRONG,
        "the hash of the own copy: review it",
    ),
    "policy incomplete": Fault(
        lambda place: _policy("allowed-units", [])(place),
        "policy",
        WRONG,
        "does not limit allowed-units",
    ),
    "policy against the defaults": Fault(
        _policy("max-epsilon-per-run", 1.0), "run", NOTE, "worst-case epsilon is"
    ),
    "policy against its command": Fault(
        _set("run-config", "epsilon=9.0"), "run", WRONG, "run-config: the plan's"
    ),
    "command misspelt": Fault(
        _set("run-config", "epsilom=2.0"), "run", WRONG, "no run-config key 'epsilom':"
    ),
    "no data": Fault(
        lambda place: (place.root / "rows.csv").unlink(),
        "data",
        WRONG,
        "rows.csv' does not exist",
    ),
    "empty data": Fault(
        lambda place: _rows(place, "height,age\n"),
        "data",
        WRONG,
        "no row with a finite number",
    ),
    "schema's columns": Fault(
        lambda place: _rows(place, "hight,age\n1,2\n"),
        "data",
        WRONG,
        "no columns named 'height', .*did you mean 'hight'",
    ),
    "schema's digest": Fault(
        lambda place: (place.root / "schema.toml").write_text(
            SCHEMA.replace("220", "230")
        ),
        "data",
        WRONG,
        "has the digest .* but schema-digest is .*put back",
    ),
    "disk": Fault(
        lambda place: replace_room(
            place.patch, lambda there: SimpleNamespace(free=99 * 2**20)
        ),
        "disk",
        WRONG,
        "has 99 MiB left, but 100 are needed: make room",
    ),
    "disk without inodes": Fault(
        lambda place: replace_call(place.patch, "statvfs", lambda _: _FULL),
        "disk",
        WRONG,
        "takes 2 more files, but 1000 are needed: remove some",
    ),
    "home on a disk without programs": Fault(
        lambda place: replace_call(place.patch, "statvfs", lambda _: _NO_PROGRAMS),
        "limits",
        WRONG,
        "home runs no programs .* choose another home",
    ),
    "home that cannot be written": Fault(
        lambda place: replace_rights(
            place.patch, lambda path, _: Path(path) != place.root / "ward-7" / "home"
        ),
        "home",
        WRONG,
        "this user cannot write into .*home",
    ),
    "TLS of another authority": Fault(
        lambda place: _certificate(place, authority=False),
        "superlink",
        WRONG,
        "not the one that this node knows .*verify failed.*: correct",
    ),
    "TLS for another name": Fault(
        lambda place: _set(
            "superlink", place.superlink.address.replace("127.0.0.1", "localhost")
        )(place),
        "superlink",
        WRONG,
        "not valid for 'localhost'",
    ),
    "TLS expired": Fault(
        lambda place: _certificate(place, from_days=3, for_days=-1),
        "superlink",
        WRONG,
        "certificate has expired",
    ),
    "TLS ends soon": Fault(
        lambda place: _certificate(place, from_days=355, for_days=10),
        "superlink",
        NOTE,
        "holds from .* so 9 days more: get a new one",
    ),
    "authority ends soon": Fault(
        lambda place: _certificate(place, from_days=355, for_days=10),
        "connection",
        NOTE,
        "ca.crt holds from .* so 9 days more",
    ),
    "own port": Fault(
        _listen, "port", WRONG, "cannot be had .*: give another port, or end what"
    ),
    "closed port": Fault(
        lambda place: _set("superlink", f"127.0.0.1:{free_ports(1)[0]}")(place),
        "superlink",
        WRONG,
        "does not answer .*refused.*have it started, or correct",
    ),
    "port without TLS": Fault(
        _without_tls, "superlink", WRONG, "not the one that this node knows .*SSL.*:"
    ),
    "key unknown": Fault(
        _unknown, "superlink", WRONG, "does not know the key .*key: have its operator"
    ),
    "key of a node that is online": Fault(
        _online,
        "online",
        WRONG,
        "this key is online already: another node uses it .*, or this node was killed",
    ),
    "clock by which no key is known": Fault(
        lambda place: (_clock(place, -3600), _unknown(place)),
        "superlink",
        NOTE,
        "knows no key by this clock",
    ),
    "version": Fault(
        lambda place: install_flower(place.patch, place.root, "1.43.0"),
        "flower",
        WRONG,
        "Flower 1.43.0 was not tried: 1.41 and 1.42 were: pip install .*, or say",
    ),
    "version without seams": Fault(
        lambda place: place.patch.setattr(
            _private, "missing_app_seams", lambda _: ["install_app"]
        ),
        "flower",
        WRONG,
        "has no install_app for the guard: pip install",
    ),
    "ledger of another party": Fault(
        lambda place: (_spent(place), _set("data-id", "ward-8")(place)),
        "belonging",
        WRONG,
        "knows nothing of 'ward-8', but of 'ward-7': give .* another party's",
    ),
    "key of another party": Fault(
        _new_key(
            ec.generate_private_key(ec.SECP384R1()).private_bytes(
                Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()
            )
        ),
        "connection",
        WRONG,
        "has the fingerprint SHA256:.*, but ward-7 has SHA256:.*put this party's",
    ),
    "party renamed in the invitation": Fault(
        lambda place: _rename(place, "ward-7", "ward-6"),
        "identity",
        WRONG,
        "is called ward-7 by its key file, but ward-6 by the invitation: ask",
    ),
    "ledger damaged": Fault(
        lambda place: _spent(place).write_text("no entry\n"),
        "ledger",
        WRONG,
        "is damaged at line 1 .*backup",
    ),
    "ledger without its head": Fault(
        lambda place: _spent(place).with_name("ledger.jsonl.head").unlink(),
        "ledger",
        WRONG,
        "counts them, is missing: restore",
    ),
    "ledger that was deleted, or put back from before a run": Fault(
        lambda place: (place.root / "ward-7/results/run-77").mkdir(),
        "ledger",
        NOTE,
        (
            "lacks 1 run.s. that .*results has results of, such as 77: put the newest"
            " copy of both files back"
        ),
    ),
    "ledger that cannot be written": Fault(
        lambda place: (place.root / "ward-7/ledger/ledger.jsonl.head").mkdir(),
        "ledger",
        WRONG,
        "cannot be used .Is a directory.",
    ),
    "ledger that is no file": Fault(
        lambda place: os.mkfifo(place.root / "ward-7/ledger/ledger.jsonl"),
        "ledger",
        WRONG,
        "ledger.jsonl is no file: give",
    ),
    "ledger in an open folder": Fault(
        _mode("ward-7/ledger", 0o777), "ledger", WRONG, "ward-7/ledger may be changed"
    ),
    "rights of the head of a ledger": Fault(
        lambda place: _spent(place).with_name("ledger.jsonl.head").chmod(0o666),
        "ledger",
        WRONG,
        "ledger.jsonl.head may be changed by others: .*chmod go-w",
    ),
    "key with a passphrase": Fault(
        _new_key(
            ec.generate_private_key(ec.SECP256R1()).private_bytes(
                Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")
            )
        ),
        "connection",
        WRONG,
        "key cannot be read as a .*",
    ),
    "key of another kind": Fault(
        _new_key(
            ed25519.Ed25519PrivateKey.generate().private_bytes(
                Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()
            )
        ),
        "superlink",
        WRONG,
        "no key on a NIST curve: ssh-keyg",
    ),
    "command that is none": Fault(
        _set("run-config", "n-clusters=="), "run", WRONG, "which cannot be read .*:"
    ),
    "command of mere words": Fault(
        _set("run-config", "a b"), "run", WRONG, "of which 'a b' is no KEY=VALUE"
    ),
    "log in no folder": Fault(
        _set("log-file", "/no/such/log"), "output", WRONG, "log-file is /no/such/log,"
    ),
    "log of no format": Fault(
        _set("log-format", "xml"), "output", WRONG, "log-format is 'xml', .* 'json',"
    ),
    "cache that is a file": Fault(
        _set("cache", __file__),
        "output",
        WRONG,
        "cannot write into .*test_node_faults.py: make",
    ),
    "schema of all, without a digest": Fault(
        lambda place: (
            _set("schema-digest", "")(place),
            _mode("schema.toml", 0o666)(place),
        ),
        "data",
        WRONG,
        "schema.toml may be changed by others",
    ),
    "FLWR_HOME elsewhere": Fault(
        lambda place: place.patch.setenv("FLWR_HOME", "/elsewhere"),
        "home",
        NOTE,
        "FLWR_HOME is '/elsewhere', but .*: unset it",
    ),
    "root": Fault(
        lambda place: replace_user(place.patch, lambda: 0), "user", NOTE, "this is root"
    ),
    "units": Fault(
        lambda place: _rows(place, "height,age\n" + "1.7,30\n" * 11 + "170,30\n" * 29),
        "units",
        NOTE,
        "over 25% of height lie outside .*another unit",
    ),
}


def test_the_sound_folder_has_no_fault(place: Place) -> None:
    found = place.found()
    assert [one for one in found.items() if one[1][0] is WRONG] == []
    assert {item for item, (verdict, _) in found.items() if verdict is NOTE} <= {
        "user"
    }  # who may be root
    assert found["identity"][1].endswith("pinned: ward-7, ward-8, ward-9")
    words = r"a program needs [0-9.]+ s to start here, .* round-timeout .* least [0-9]+"
    assert re.fullmatch(words, found["pace"][1])


def test_a_node_that_runs_has_its_own_port_and_no_second_one_starts(
    place: Place,
) -> None:
    _listen(place)
    options = NodeOptions.from_toml(place.file)
    own = ["sh", "-c", "read _", "--port", str(options.port), str(options.key)]
    with subprocess.Popen(own, stdin=subprocess.PIPE) as process:
        # A process that was forked a moment ago has no words yet, or its parent's.
        while (
            str(options.key).encode()
            not in Path(f"/proc/{process.pid}/cmdline").read_bytes()
        ):
            time.sleep(0.01)
        place.superlink.is_online = True
        assert place.found()["port"][0] is place.found()["online"][0] is Verdict.OK
        assert (
            f"is this node's, which runs already as process {process.pid}"
            in place.found()["port"][1]
        )
        told = node_check.check(place.file, options, apps=False, starting=True)
        assert [
            (one.verdict, one.item) for one in told if "cannot be had" in one.says
        ] == [(WRONG, "port")]
        process.communicate(b"\n")
    assert place.found()["port"][0] is WRONG


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(place: Place, fault: str) -> None:
    plant, item, verdict, words = FAULTS[fault]
    plant(place)
    found = place.found()
    assert found[item][0] is verdict, found[item]
    assert re.search(words, found[item][1]), found[item]


def test_a_finding_is_one_line_whatever_a_file_says() -> None:
    finding = Finding("data", Verdict.OK, "has 2 columns\nwrong disk: \x1b[31mfull")
    assert str(finding) == "ok    data:       has 2 columns?wrong disk: ?[31mfull"


def test_units_are_told_by_a_share_of_rows_and_no_number(place: Place) -> None:
    _rows(place, "height,age\n" + "1.7,30\n" * 10 + "170,30\n" * 30)
    assert place.found()["units"][0] is Verdict.OK
    policy = place.root / "ward-7" / "policy.toml"
    for rows, verdict in ((11, NOTE), (10, Verdict.OK)):
        _rows(place, "height,age\n" + "1.7,30\n" * rows + "170,30\n" * 30)
        place.say("ward-7/node.toml", "columns", ["age", "height"])
        place.say(
            "ward-7/policy.toml", "allowed-bounds", [[0.0, 100.0], [100.0, 220.0]]
        )
        text = place.file.read_text()
        place.file.write_text(re.sub("^schema.*\n", "", text, flags=re.MULTILINE))
        assert place.found()["units"][0] is verdict, (rows, place.found()["units"])
    assert policy.exists()


@pytest.fixture
def waits(place: Place) -> list[float]:
    """How long the node has waited each time."""
    waits: list[float] = []
    replace_sleep(place.patch, waits.append)
    place.superlink.status = 200
    return waits


@contextlib.contextmanager
def patient_node(place: Place) -> Iterator[FleetHttpClient]:
    options = NodeOptions.from_toml(place.file)
    authority = str(options.root_certificates)
    with _private.patient_client().from_server_address(
        options.superlink, False, authority, []
    ) as client:
        yield client


ACTIVATE = ActivateNodeRequest(public_key=b"key", heartbeat_interval=30.0)


def test_a_node_that_was_killed_waits_until_the_superlink_has_missed_it(
    place: Place, waits: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    """Until then the SuperLink lets no node of the same key in."""
    with patient_node(place) as client:
        place.superlink.next_statuses = (412,) * 3
        client.ActivateNode(ACTIVATE)
        assert waits == [1.0] * 3
        place.superlink.next_statuses = (503,) * 76
        with pytest.raises(httpx.HTTPStatusError):
            client.ActivateNode(ACTIVATE)
    told = capsys.readouterr().err
    assert told.count("waiting for the SuperLink to miss this node's last process") == 2
    assert told.splitlines()[-1].startswith("this key is online already: another node")


def test_a_node_whose_clock_jumps_says_so_and_waits_until_it_is_set(
    place: Place, waits: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    """Flower's own client ends the node at the first refusal."""
    superlink = place.superlink
    with patient_node(place) as client:
        client.ActivateNode(ACTIVATE)
        superlink.next_statuses = (401,) * 3
        client.PullMessages(PullMessagesRequest())
        assert waits == [1.0] * 3
        assert (
            "its clock is 5 s ahead or 305 s behind (set it, such as by NTP)"
            in capsys.readouterr().err
        )
        for code, n_waits in ((401, 78), (503, 78)):
            superlink.next_statuses = (code,) * 76
            with pytest.raises(httpx.HTTPStatusError):
                client.PullMessages(PullMessagesRequest())
            assert len(waits) == n_waits
        superlink.next_statuses = (401,)
        with pytest.raises(httpx.HTTPStatusError):
            client.DeactivateNode(DeactivateNodeRequest(node_id=1))
        assert len(waits) == 78


@pytest.mark.parametrize("seconds", [6.0, -6.0])
def test_an_answer_that_takes_long_is_no_wrong_clock(
    place: Place, seconds: float
) -> None:
    """On a busy machine it is seconds until a date is sent, or looked at."""
    calls = iter([min(0.0, seconds)])
    options = NodeOptions.from_toml(place.file)
    found = ask(options, lambda: time.time() + next(calls, max(0.0, seconds)))
    assert abs(found.ahead) <= MOST_CLOCK_SECONDS


def test_without_a_superlink_the_rest_is_looked_at(place: Place) -> None:
    """And what could not be known is said."""
    nobody = f"127.0.0.1:{free_ports(1)[0]}"
    _set("superlink", nobody)(place)
    _invite(place, "superlink", nobody)
    found = place.found()
    assert found["clock"] == (NOTE, found["clock"][1])
    assert "not known" in found["clock"][1]
    assert {item for item, (verdict, _) in found.items() if verdict is WRONG} == {
        "superlink"
    }


def test_flower_signs_the_time_of_a_request_and_not_what_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What THREATS says of recorded headers."""
    key, later = (
        ec.generate_private_key(ec.SECP384R1()),
        now() + datetime.timedelta(seconds=310),
    )
    sent = httpx.Request("POST", "https://127.0.0.1/v1/fleet/send-node-heartbeat")
    NodeAuthHttpInterceptor(key, key.public_key()).intercept(
        SimpleNamespace(request=sent), lambda _: None
    )  # type: ignore[arg-type,return-value]
    state = SimpleNamespace(get_node_id_by_public_key=lambda _: 5)
    monkeypatch.setattr(node_auth, "get_linkstate", lambda _: state)

    def again(node: int) -> None:
        asked = PullMessagesRequest(node=Node(node_id=node))
        node_auth.authenticate_node(
            SimpleNamespace(
                headers=sent.headers, state=SimpleNamespace(protobuf_request=asked)
            )
        )  # type: ignore[arg-type]

    again(5)
    with pytest.raises(HTTPException):
        again(6)
    monkeypatch.setattr(node_auth, "now", lambda: later)
    with pytest.raises(HTTPException):
        again(5)
