"""Identities: files, signatures, and rosters held against pins."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from support.machine import replace_sync

from flwr_dpkmeans.__main__ import main
from flwr_dpkmeans.errors import ConfigurationError, IdentityError, ProtocolError
from flwr_dpkmeans.node.identity import Identity
from flwr_dpkmeans.secagg.credentials import Credential, verify
from flwr_dpkmeans.secagg.pins import (
    fingerprints,
    name_of,
    pin_mark,
    require_known_peers,
    require_pinned,
)
from flwr_dpkmeans.secagg.retry_session import RetrySession
from flwr_dpkmeans.secagg.roster import Roster

ALICE, BOB, CAROL = (Identity(letter * 32) for letter in (b"a", b"b", b"c"))
PLAN = b"p" * 32
NODES = {2: ALICE, 3: BOB, 4: CAROL}
ROSTER = Roster.of(0, {node: bytes([node]) * 32 for node in NODES})
PINNED = {ALICE.public_key: "alice", BOB.public_key: "bob", CAROL.public_key: ""}


# -- files -----------------------------------------------------------------------------


def test_a_saved_identity_is_read_back_and_readable_by_its_owner_only(
    tmp_path: Path,
) -> None:
    old = os.umask(0)
    try:
        ALICE.save(tmp_path / "key")
    finally:
        os.umask(old)
    assert Identity.load(tmp_path / "key") == ALICE
    assert stat.S_IMODE((tmp_path / "key").stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["key"]
    # It is an ordinary PEM file, so other tools read it too.
    assert (
        load_pem_private_key((tmp_path / "key").read_bytes(), None).private_bytes_raw()
        == b"a" * 32
    )  # type: ignore[union-attr]


@pytest.mark.parametrize("kind", ["file", "link to nowhere", "folder"])
def test_nothing_is_overwritten(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "key"
    if kind == "file":
        path.write_text("something else")
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to(tmp_path / "nowhere")
    with pytest.raises(ConfigurationError, match="exists and is left alone: choose"):
        ALICE.save(path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["key"]
    assert kind != "file" or path.read_text() == "something else"


def test_a_file_that_cannot_be_written_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigurationError, match="cannot be written"):
        ALICE.save(tmp_path / "missing" / "key")

    def no_space(_: int) -> None:
        raise OSError(28, "No space left on device")

    replace_sync(monkeypatch, no_space)
    with pytest.raises(ConfigurationError, match="No space left on device"):
        ALICE.save(tmp_path / "key")
    assert list(tmp_path.iterdir()) == []

    def taken_away(_: int) -> None:
        (tmp_path / "key").unlink()
        no_space(_)

    replace_sync(monkeypatch, taken_away)
    with pytest.raises(ConfigurationError, match="No space left on device"):
        ALICE.save(tmp_path / "key")


def pem(key: Any, encryption: Any = None) -> bytes:
    content: bytes = key.private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, encryption or NoEncryption()
    )
    return content


def test_a_file_is_read_up_to_10_000_bytes(tmp_path: Path) -> None:
    """What stands before a key is a comment, which nobody makes so long."""
    ALICE.save(path := tmp_path / "key")
    key = path.read_bytes().strip()
    path.write_bytes(key.rjust(10_000))
    assert Identity.load(path).public_key == ALICE.public_key
    path.write_bytes(key.rjust(10_001))
    with pytest.raises(ConfigurationError, match="holds no unencrypted Ed25519"):
        Identity.load(path)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not a key",
        b"\x00" * 100_000,
        ALICE.public_key,
        pem(X25519PrivateKey.generate()),
        pem(
            load_pem_private_key(pem(X25519PrivateKey.generate()), None),
            BestAvailableEncryption(b"password"),
        ),
    ],
    ids=["empty", "text", "zeros", "public", "X25519", "encrypted"],
)
def test_a_file_that_is_no_identity_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "key"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(ConfigurationError, match="no unencrypted Ed25519") as caught:
        Identity.load(path)
    assert str(path) in str(caught.value)


def test_a_missing_file_and_a_folder_are_named(tmp_path: Path) -> None:
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(ConfigurationError, match=r"cannot be read .*correct"):
            Identity.load(path)


@pytest.mark.skipif(os.name != "posix", reason="modes")
@pytest.mark.parametrize(
    ("mode", "good"),
    [(0o600, True), (0o400, True), (0o440, True), (0o620, False), (0o604, False)],
)
def test_others_may_not_read_or_change_it(
    tmp_path: Path, mode: int, good: bool
) -> None:
    path = tmp_path / "key"
    ALICE.save(path)
    path.chmod(mode)
    if good:
        assert Identity.load(path) == ALICE
    else:
        with pytest.raises(
            ConfigurationError,
            match=f"has mode {mode:o}, so others may read or change it",
        ):
            Identity.load(path)


def test_the_private_key_is_not_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["identity", "new", str(tmp_path / "key")]) == 0
    printed = capsys.readouterr()
    identity = Identity.load(tmp_path / "key")
    assert printed.out == identity.public_key.hex() + "\n"
    assert printed.err == ""
    assert main(["identity", "show", str(tmp_path / "key")]) == 0
    assert capsys.readouterr().out == printed.out
    for text in (repr(identity), str(identity), printed.out, f"{identity}"):
        assert identity.private_key.hex() not in text
        assert repr(identity.private_key)[2:-1] not in text


def test_the_command_says_in_a_sentence_what_is_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["identity", "show", str(tmp_path / "none")]) == 1
    assert "cannot be read" in capsys.readouterr().err
    (tmp_path / "key").write_text("x")
    assert main(["identity", "new", str(tmp_path / "key")]) == 1
    said = capsys.readouterr()
    assert "exists and is left alone" in said.err
    assert said.out == ""


def test_two_identities_differ() -> None:
    assert Identity.generate() != Identity.generate()


# -- text ------------------------------------------------------------------------------


def test_identities_have_names() -> None:
    assert name_of(ALICE.public_key, PINNED) == "alice"
    assert name_of(CAROL.public_key, PINNED) == CAROL.public_key.hex()[:12] + "..."
    assert name_of(CAROL.public_key) == CAROL.public_key.hex()[:12] + "..."


# -- signatures ------------------------------------------------------------------------

KEYS: dict[str, Any] = {
    "run_id": 7, "node_id": 2, "plan_digest": PLAN, "public_key": b"k" * 32,
}  # fmt: skip
SURVIVORS: dict[str, Any] = {
    "run_id": 7, "node_id": 2, "round_index": 3, "attempt": 1, "survivors": b"s" * 32,
}  # fmt: skip


@pytest.mark.parametrize("name", KEYS)
def test_a_signature_of_a_key_binds_every_fact(name: str) -> None:
    signature = ALICE.sign_keys(**KEYS)
    assert verify(ALICE.public_key, signature, "keys", *KEYS.values())
    assert not verify(BOB.public_key, signature, "keys", *KEYS.values())
    other = KEYS[name] + 1 if isinstance(KEYS[name], int) else KEYS[name][:-1] + b"?"
    assert not verify(
        ALICE.public_key, signature, "keys", *(KEYS | {name: other}).values()
    )


@pytest.mark.parametrize("name", SURVIVORS)
def test_a_signature_of_survivors_binds_every_fact(name: str) -> None:
    signature = ALICE.sign_survivors(**SURVIVORS)
    assert verify(ALICE.public_key, signature, "survivors", *SURVIVORS.values())
    assert not verify(BOB.public_key, signature, "survivors", *SURVIVORS.values())
    other = (
        SURVIVORS[name] + 1
        if isinstance(SURVIVORS[name], int)
        else SURVIVORS[name][:-1] + b"?"
    )
    assert not verify(
        ALICE.public_key, signature, "survivors", *(SURVIVORS | {name: other}).values()
    )


def test_negative_rounds_can_be_signed() -> None:
    signature = ALICE.sign_survivors(1, 2**64 - 1, -1, 0, bytes(32))
    assert verify(
        ALICE.public_key, signature, "survivors", 1, 2**64 - 1, -1, 0, bytes(32)
    )


def test_malformed_keys_and_signatures_verify_nothing() -> None:
    signature = ALICE.sign_keys(**KEYS)
    for key in (b"", bytes(31), bytes(33), bytes(32), b"\xff" * 32):
        assert not verify(key, signature, "keys", *KEYS.values())
    flipped = [
        signature[:i] + bytes([signature[i] ^ 1]) + signature[i + 1 :]
        for i in (0, 31, 32, 63)
    ]
    for wrong in (b"", signature[:-1], signature + b"\0", bytes(64), *flipped):
        assert not verify(ALICE.public_key, wrong, "keys", *KEYS.values())
    # S plus the group's order is the same signature to a verifier that does not check
    # its range (RFC 8032, 5.1.7).
    order = 2**252 + 27742317777372353535851937790883648493
    large = int.from_bytes(signature[32:], "little") + order
    assert not verify(
        ALICE.public_key,
        signature[:32] + large.to_bytes(32, "little"),
        "keys",
        *KEYS.values(),
    )


def test_the_known_answers_are_what_the_generator_writes() -> None:
    folder = Path(__file__).parents[2] / "vectors"
    spec = importlib.util.spec_from_file_location(
        "generate_identities", folder / "generate_identities.py"
    )
    assert spec is not None
    assert spec.loader is not None
    generator = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generator)
    assert generator.build() == json.loads((folder / "identities.json").read_text())


# -- rosters ---------------------------------------------------------------------------


def signed() -> dict[int, Credential]:
    """What all three nodes sign."""
    return {
        node: Credential(
            identity.public_key,
            PLAN,
            identity.sign_keys(7, node, PLAN, ROSTER.keys[node]),
        )
        for node, identity in NODES.items()
    }


def check(
    credentials: dict[int, Credential], roster: Roster = ROSTER, **values: Any
) -> int:
    """Node 2 looks at a roster."""
    here: dict[str, Any] = {
        "run_id": 7,
        "node_id": 2,
        "plan_digest": PLAN,
        "own_identity": ALICE.public_key,
    }
    return require_pinned(roster, credentials, **(here | {"pinned": PINNED} | values))


def test_a_roster_of_pinned_parties_is_accepted() -> None:
    assert check(signed()) == 2
    everybody_else = {
        key: name for key, name in PINNED.items() if key != ALICE.public_key
    }
    assert check(signed(), pinned=everybody_else) == 2
    others = {node: credential for node, credential in signed().items() if node != 2}
    assert check(others) == 2
    assert check(signed(), ROSTER.without(1, [4])) == 1


@pytest.mark.parametrize("run_id", [0, 7, 2**64 - 1])
def test_a_mark_hashes_label_run_and_identity(run_id: int) -> None:
    number = bytes(run_id >> 8 * place & 255 for place in range(8))
    expected = hashlib.sha256(b"flwr-dpkmeans pin" + number + ALICE.public_key).digest()
    assert pin_mark(ALICE.public_key, run_id) == expected


def test_the_server_sees_whom_a_client_would_refuse() -> None:
    """Node 2 knows 3 and itself, node 3 all three."""
    alice, bob, carol = (pin_mark(who.public_key, 7) for who in (ALICE, BOB, CAROL))
    marks = {3: {alice, bob, carol}, 2: {alice, bob}}
    present: dict[int, Credential | None] = dict(signed())
    require_known_peers(present, {3: marks[3]}, 7)
    require_known_peers({node: present[node] for node in (2, 3)}, marks, 7)
    require_known_peers(
        {node: present[node] for node in (2, 3)}, {2: {bob}, 3: {alice}}, 7
    )
    for credentials, lack in (
        (
            present,
            f"has the identity {CAROL.public_key.hex()[:12]}..., not one of them",
        ),
        (present | {4: None}, "signed nothing"),
    ):
        with pytest.raises(IdentityError) as caught:
            require_known_peers(credentials, {2: marks[2]}, 7)
        said = (
            f"node 2 takes part with pinned identities only, but node 4 {lack}: have"
            " node 2 pin node 4's identity"
        )
        assert str(caught.value).startswith(said)
    with pytest.raises(IdentityError, match=r"node 3 takes part .* but node 2"):
        require_known_peers(present, {3: marks[3]}, 8)


def test_a_fingerprint_is_of_an_identity_or_else_of_a_key() -> None:
    identity = ALICE.public_key.hex()[:16]
    shown = fingerprints(ROSTER, {2: signed()[2]})
    assert shown == (f"2 identity {identity}", f"3 key {'03' * 8}", f"4 key {'04' * 8}")


def test_credentials_of_strangers_to_the_roster_change_nothing() -> None:
    assert check(signed() | {99: signed()[3]}) == 2


WRONG: dict[str, tuple[dict[int, Credential] | None, dict[str, Any], str]] = {
    "unsigned": ({}, {}, "node 4 signed nothing"),
    "unknown": (
        None,
        {"pinned": {BOB.public_key: ""}},
        f"node 4 has the identity {CAROL.public_key.hex()[:12]}",
    ),
    "nobody pinned": (
        None,
        {"pinned": {}},
        f"node 3 has the identity {BOB.public_key.hex()[:12]}",
    ),
    "other run": (
        None,
        {"run_id": 8},
        "node 3 (bob) did not sign the public key that the server announces for it",
    ),
    "other plan": (
        None,
        {"plan_digest": b"q" * 32},
        "node 3 (bob) agreed to another plan (707070707070...)",
    ),
    "another's": ({4: signed()[3]}, {}, "node 4 (bob) did not sign"),
    "own": ({4: signed()[2]}, {}, "node 4 (alice) did not sign"),
    "twice": (
        {
            4: Credential(
                BOB.public_key, PLAN, BOB.sign_keys(7, 4, PLAN, ROSTER.keys[4])
            )
        },
        {},
        "nodes 3 and 4 both have the identity bob",
    ),
    "own twice": (
        {
            4: Credential(
                ALICE.public_key, PLAN, ALICE.sign_keys(7, 4, PLAN, ROSTER.keys[4])
            )
        },
        {"pinned": {BOB.public_key: ""}},
        f"nodes 2 and 4 both have the identity {ALICE.public_key.hex()[:12]}",
    ),
}


@pytest.mark.parametrize("kind", WRONG)
def test_a_roster_with_one_wrong_member_is_refused(kind: str) -> None:
    change, values, sentence = WRONG[kind]
    credentials = (
        signed() if change is None else {2: signed()[2], 3: signed()[3]} | change
    )
    with pytest.raises(IdentityError) as caught:
        check(credentials, **values)
    assert sentence in str(caught.value)
    assert str(caught.value).endswith(".")


def test_an_exchanged_key_is_noticed() -> None:
    roster = Roster.of(0, ROSTER.keys | {3: b"?" * 32})
    with pytest.raises(IdentityError, match=r"node 3 \(bob\) did not sign"):
        check(signed(), roster)


def test_a_credential_has_fixed_lengths() -> None:
    for lengths in ((31, 32, 64), (32, 31, 64), (32, 32, 63), (0, 0, 0)):
        identity, plan, signature = (bytes(length) for length in lengths)
        with pytest.raises(
            ProtocolError, match="have {}, {} and {} bytes".format(*lengths)
        ):
            Credential(identity, plan, signature)


class Unanswered(RetrySession):
    """Node 4 has not answered."""

    def missing(self) -> tuple[int, ...]:
        return (4,)


def test_what_clients_signed_is_sent_once() -> None:
    """Keys of later rosters are known, which can only be smaller."""
    credentials = {
        node: Credential(who.public_key, PLAN, bytes(64)) for node, who in NODES.items()
    }
    session = Unanswered(
        ROSTER, min_cohort=2, max_retries=1, max_silent=0, authored=False,
        credentials=credentials,
    )  # fmt: skip
    session.open_round(1, 4)
    assert session.request(2, None, b"").credentials == credentials
    session.retry()
    again = session.request(2, None, b"")
    assert again.roster is not None
    assert again.credentials == {}
