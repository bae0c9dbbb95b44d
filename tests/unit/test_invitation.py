"""The file that goes around before a federation starts.

Who writes what into it, and what is refused.
"""

from __future__ import annotations

import hashlib
import stat
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from flwr_dpkmeans.deploy.invitation import Invitation
from flwr_dpkmeans.errors import ConfigurationError
from simulations.flower.credentials import make_credentials

NAMES = ("ward-7", "ward-8", "ward-9")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> str:
    return make_credentials(tmp_path_factory.mktemp("ca"), []).authority.read_text()


@pytest.fixture
def file(tmp_path: Path, certificate: str) -> Path:
    path = tmp_path / "invitation.toml"
    head = f'federation = "wards"\nsuperlink = "127.0.0.1:8000"\napp = "{"ab" * 32}"\n'
    parties = "".join(f"[parties.{name}]\n" for name in NAMES)
    path.write_text(f'{head}certificate = """{certificate}"""\n{parties}')
    return path


def node_key(curve: ec.EllipticCurve | None = None) -> str:
    public = ec.generate_private_key(curve or ec.SECP384R1()).public_key()
    return public.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()


KEYS = {name: node_key() for name in NAMES}
IDENTITIES = {name: hashlib.sha256(name.encode()).hexdigest() for name in NAMES}


def test_three_parties_write_at_once_and_nothing_is_lost(
    file: Path, certificate: str
) -> None:
    class Slow(Invitation):
        def save(self, path: Path) -> None:
            time.sleep(0.02)  # who does not wait for the lock has read the file by now
            super().save(path)

    file.chmod(0o664)
    assert (
        Invitation.from_toml(file).missing,
        dict(Invitation.from_toml(file).pins),
    ) == (NAMES, {})
    with ThreadPoolExecutor(len(NAMES)) as threads:
        list(
            threads.map(
                lambda name: Slow.add(
                    file, name, KEYS[name] + " x@y", IDENTITIES[name]
                ),
                NAMES,
            )
        )
    written = Invitation.from_toml(file)
    assert (written.missing, dict(written.pins)) == ((), IDENTITIES)
    assert {name: party.key for name, party in written.parties.items()} == KEYS
    assert (written.federation, written.superlink, written.app) == (
        "wards",
        "127.0.0.1:8000",
        "ab" * 32,
    )
    assert written.certificate == certificate
    assert [path.name for path in file.parent.iterdir()] == [file.name]
    assert stat.S_IMODE(file.stat().st_mode) == 0o664
    # The file is as its description says, to a reader that knows nothing of the class.
    assert tomllib.loads(file.read_text())["parties"]["ward-8"] == {
        "key": KEYS["ward-8"],
        "identity": IDENTITIES["ward-8"],
    }
    # The same party once more changes nothing.
    assert (
        Invitation.add(file, "ward-7", KEYS["ward-7"], IDENTITIES["ward-7"]) == written
    )


def test_a_name_is_nobody_elses(file: Path) -> None:
    Invitation.add(file, "ward-7", KEYS["ward-7"], IDENTITIES["ward-7"])
    before = file.read_text()
    for name, key, identity, sentence in (
        (
            "ward7",
            KEYS["ward-7"],
            IDENTITIES["ward-7"],
            r"names no party 'ward7': did you mean 'ward-7'\?",
        ),
        (
            "ward-7",
            KEYS["ward-8"],
            IDENTITIES["ward-7"],
            "'ward-7' is in the invitation with another key or identity",
        ),
        (
            "ward-7",
            KEYS["ward-7"],
            IDENTITIES["ward-8"],
            "'ward-7' is in the invitation with another key or identity",
        ),
        (
            "ward-8",
            KEYS["ward-7"],
            IDENTITIES["ward-8"],
            "ward-8 has the key of ward-7",
        ),
        (
            "ward-8",
            KEYS["ward-8"],
            IDENTITIES["ward-7"],
            "ward-8 has the identity of ward-7",
        ),
        (
            "ward-8",
            "ssh-ed25519 AAAA",
            IDENTITIES["ward-8"],
            "public key on a NIST curve",
        ),
        ("ward-8", KEYS["ward-8"], "AB" * 32, "identity is"),
    ):
        with pytest.raises(ConfigurationError, match=sentence):
            Invitation.add(file, name, key, identity)
    assert file.read_text() == before


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ('federation = "wards"', 'federaton = "wards"', "invitation.toml: the key"),
        ('app = "ab', 'secret = "x"\napp = "ab', "the key 'secret' is not known"),
        ('app = "ab', 'app = "AB', "app is 'AB"),
        ("127.0.0.1:8000", "127.0.0.1", "superlink is '127.0.0.1'"),
        ("127.0.0.1:8000", "a b:80", "superlink is"),
        ("-----BEGIN", "-----BEGUN", "certificate is"),
        ("[parties.ward-7]", '[parties."../ward-7"]', r"parties.../ward-7"),
        ("[parties.ward-7]", f'[parties.ward-7]\nidentity = "{"0" * 64}"',
         "key and identity belong together"),
        ("[parties.ward-8]\n[parties.ward-9]\n", "", "at least 2"),
    ],
)  # fmt: skip
def test_a_wrong_file_is_refused_with_its_key(
    file: Path, old: str, new: str, sentence: str
) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))
    with pytest.raises(ConfigurationError, match=sentence):
        Invitation.from_toml(file)


def test_keys_of_other_kinds_are_refused_and_no_file_is_made(
    tmp_path: Path, file: Path
) -> None:
    edwards = (
        ed25519.Ed25519PrivateKey.generate()
        .public_key()
        .public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    )
    with pytest.raises(ConfigurationError, match="NIST curve"):
        Invitation.from_toml(file).with_party("ward-7", edwards.decode(), "0" * 64)
    with pytest.raises(ConfigurationError, match=r"none\.toml cannot be read"):
        Invitation.add(tmp_path / "none.toml", "ward-7", KEYS["ward-7"], "0" * 64)
    assert not (tmp_path / "none.toml").exists()


def test_people_read_the_same_digits_to_each_other_only_if_everything_is_equal(
    file: Path,
) -> None:
    one = Invitation.from_toml(file)
    for name in NAMES:
        one = one.with_party(name, KEYS[name], IDENTITIES[name])
    other = Invitation.from_toml(file)
    for name in reversed(NAMES):
        other = other.with_party(name, KEYS[name], IDENTITIES[name])
    other = other.model_copy(update={"parties": dict(reversed(other.parties.items()))})
    assert one.fingerprint == other.fingerprint
    assert [len(word) for word in one.fingerprint.split()] == [4] * 10
    changed = Invitation.from_toml(file).with_party("ward-7", KEYS["ward-7"], "0" * 64)
    assert (
        len(
            {
                one.fingerprint,
                changed.fingerprint,
                Invitation.from_toml(file).fingerprint,
            }
        )
        == 3
    )
