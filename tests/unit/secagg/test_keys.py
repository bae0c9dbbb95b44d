"""Key agreement, derivation, streams, boxes and tags, against published vectors and
code of their own.
"""

from __future__ import annotations

import hashlib
import hmac
import itertools
import json
import runpy
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from support.crypto import speak_version

from flwr_dpkmeans.errors import ProtocolError
from flwr_dpkmeans.secagg import keys
from flwr_dpkmeans.secagg.ciphers import seal, stream, unseal
from flwr_dpkmeans.secagg.keys import (
    agree_pair_keys,
    derive_key,
    digest,
    generate_group_key,
    generate_private_key,
    keyed_tag,
    pack,
    public_key_of,
)

VECTORS = Path(__file__).parents[2] / "vectors"
PURPOSES = ("pair", "mask", "box", "blind", "tag")
LOW_ORDER_POINTS = [
    bytes(32),
    (1).to_bytes(32, "little"),
    (2**255 - 20).to_bytes(32, "little"),
    (2**255 - 19).to_bytes(32, "little"),
    (2**255 - 18).to_bytes(32, "little"),
]


def test_known_answers_are_those_of_this_package() -> None:
    generator = runpy.run_path(str(VECTORS / "generate_masks.py"))
    assert generator["build"]() == json.loads((VECTORS / "masks.json").read_text())


def test_packing_is_injective() -> None:
    parts = [
        (), ("",), (b"",), ("a",), (b"a",), ("a", "b"), ("ab",), ("a", "", "b"), (1,),
        (-1,), (256,), ("1",), (b"i",), (1, 2), (2, 1), (b"\x01",), (pack("a"),),
        (pack("a"), "b"), (2**64 - 1,), (-(2**64),),
    ]  # fmt: skip
    assert len({pack(*each) for each in parts}) == len(parts)


def test_derivation_is_hkdf_with_an_info_for_each_purpose() -> None:
    info = pack(
        b"flwr-dpkmeans secure aggregation", keys.PROTOCOL_VERSION, "mask", 1, b"x"
    )
    expected = HKDF(algorithm=SHA256(), length=32, salt=None, info=info).derive(
        b"secret"
    )
    assert derive_key(b"secret", "mask", 1, b"x") == expected
    derived = {
        derive_key(b"secret", purpose, *context)
        for purpose in PURPOSES
        for context in ((1,), (2,), (1, 1))
    }
    assert len(derived) == 3 * len(PURPOSES)


def test_the_version_of_the_protocol_is_in_every_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = derive_key(b"secret", "mask", 1)
    speak_version(monkeypatch, keys.PROTOCOL_VERSION + 1)
    assert derive_key(b"secret", "mask", 1) != before


def agree_pair_key(
    private_key: bytes, public_key: bytes, run_id: int, own_id: int, peer_id: int
) -> bytes:
    """The key that one node agrees with one peer."""
    return agree_pair_keys(private_key, {peer_id: public_key}, run_id, own_id)[peer_id]


def test_both_sides_agree_and_nobody_else() -> None:
    private = [generate_private_key() for _ in range(3)]
    public = [public_key_of(key) for key in private]
    key = agree_pair_key(private[0], public[1], 9, 5, 2**64 - 1)
    assert key == agree_pair_key(private[1], public[0], 9, 2**64 - 1, 5)
    assert agree_pair_keys(private[0], dict(enumerate(public[1:], 7)), 9, 5) == {
        peer: agree_pair_key(private[0], public[peer - 6], 9, 5, peer)
        for peer in (7, 8)
    }
    others = [
        agree_pair_key(private[2], public[1], 9, 5, 2**64 - 1),
        agree_pair_key(private[0], public[2], 9, 5, 2**64 - 1),
        agree_pair_key(private[0], public[1], 10, 5, 2**64 - 1),
        agree_pair_key(private[0], public[1], 9, 6, 2**64 - 1),
        agree_pair_key(private[0], public[1], 9, 5, 2**64 - 2),
    ]
    assert key not in others
    assert len(set(others)) == len(others)


@pytest.mark.parametrize("point", LOW_ORDER_POINTS)
def test_low_order_points_are_refused(point: bytes) -> None:
    with pytest.raises(ProtocolError, match="node 3 is not a usable X25519 key"):
        agree_pair_key(generate_private_key(), point, 1, 2, 3)


@pytest.mark.parametrize("length", [0, 31, 33])
def test_public_keys_of_another_length_are_refused(length: int) -> None:
    with pytest.raises(ProtocolError, match="node 3 is not a usable X25519 key"):
        agree_pair_key(generate_private_key(), b"\x09" * length, 1, 2, 3)


def test_fresh_keys_differ() -> None:
    drawn = [
        generate()
        for generate in (generate_private_key, generate_group_key)
        for _ in range(20)
    ]
    assert len(set(drawn)) == 40
    assert {len(key) for key in drawn} == {32}


def test_streams_are_the_cipher_of_a_counter() -> None:
    key = bytes(range(32))
    blocks = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
    nonce = (-3).to_bytes(8, "little", signed=True) + (2**31).to_bytes(4, "little")
    raw = b"".join(
        blocks.update(nonce + (i + 2).to_bytes(4, "big")) for i in range(300)
    )
    expected = [int.from_bytes(raw[i : i + 8], "little") for i in range(0, len(raw), 8)]
    assert stream(key, (-3, 2**31), 600).tolist() == expected
    assert stream(key, (-3, 2**31), 7).tolist() == expected[:7]
    assert stream(key, (-3, 2**31), 0).tolist() == []


def test_streams_look_uniform_in_every_bit() -> None:
    words = stream(bytes(range(1, 33)), (1, 0), 4096)
    ones = [int(((words >> bit) & 1).sum()) for bit in range(64)]
    # 4096 fair coins: 6 standard deviations are 192.
    assert all(abs(count - 2048) < 192 for count in ones)


def test_boxes_open_and_only_unchanged() -> None:
    key, secret = generate_group_key(), generate_group_key()
    box = seal(key, secret, b"context")
    assert unseal(key, box, b"context") == secret
    assert secret not in box
    for place in range(len(box)):
        torn = box[:place] + bytes([box[place] ^ 1]) + box[place + 1 :]
        with pytest.raises(ProtocolError, match="does not open"):
            unseal(key, torn, b"context")
        with pytest.raises(ProtocolError, match="does not open"):
            unseal(key, box[:place], b"context")
    for wrong_key, wrong_context in (
        (generate_group_key(), b"context"),
        (key, b"another"),
    ):
        with pytest.raises(ProtocolError, match="does not open"):
            unseal(wrong_key, box, wrong_context)


def test_boxes_never_repeat_a_nonce() -> None:
    boxes = [seal(bytes(32), b"same", b"same") for _ in range(200)]
    assert len({box[:12] for box in boxes}) == 200
    assert len(set(boxes)) == 200


def test_tags_are_hmac_and_digests_are_sha256() -> None:
    assert (
        keyed_tag(b"k", 1, b"x")
        == hmac.new(b"k", pack(1, b"x"), hashlib.sha256).digest()
    )
    assert digest(1, b"x") == hashlib.sha256(pack(1, b"x")).digest()
    tags = [
        keyed_tag(key, *parts)
        for key, parts in itertools.product((b"k", b"l"), ((1, 2), (12,), ("12",)))
    ]
    assert len(set(tags)) == len(tags)
