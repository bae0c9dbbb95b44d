"""Keys and certificates for TLS and for authenticated SuperNodes.

In files that nothing overwrites.
"""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Iterable
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from flwr_dpkmeans.node.identity import write_new

_CLOCK_SKEW = datetime.timedelta(minutes=5)


def write_node_key(path: Path) -> Path:
    """Make a SuperNode's key pair as Flower wants it (OpenSSH, P-384).

    The public one gets the ending ``.pub``.
    """
    key = ec.generate_private_key(ec.SECP384R1())
    write_new(
        path, key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    )
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    write_new(path.with_name(f"{path.name}.pub"), public + b"\n", mode=0o644)
    return path


def write_certificates(
    folder: Path,
    hosts: Iterable[str],
    days: int,
    skew: datetime.timedelta = _CLOCK_SKEW,
) -> None:
    """Write ``ca.crt``, and the SuperLink's ``server.pem`` and ``server.key``.

    For hosts by name or IP address.

    They hold from `skew` ago, so that clocks need not agree.

    The authority's private key is used once and never written: nobody can make another
    certificate with it.
    """
    authority_key, key = (
        ec.generate_private_key(ec.SECP384R1()),
        ec.generate_private_key(ec.SECP384R1()),
    )
    issuer, server = (
        x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        for name in ("flwr-dpkmeans authority", "SuperLink")
    )
    now, issuer_public = datetime.datetime.now(datetime.UTC), authority_key.public_key()

    def signed(
        subject: x509.Name,
        public: ec.EllipticCurvePublicKey,
        more: Iterable[x509.ExtensionType],
    ) -> bytes:
        is_authority = public == issuer_public
        usage = dict.fromkeys(
            (
                "content_commitment",
                "key_encipherment",
                "data_encipherment",
                "key_agreement",
            ),
            False,
        )
        usage |= {
            "key_cert_sign": is_authority,
            "crl_sign": is_authority,
            "digital_signature": not is_authority,
        }
        builder = x509.CertificateBuilder(
            issuer,
            subject,
            public,
            x509.random_serial_number(),
        )
        builder = builder.not_valid_before(now - skew).not_valid_after(
            now + datetime.timedelta(days=days)
        )
        for critical, extension in (
            (
                True,
                x509.BasicConstraints(
                    ca=is_authority, path_length=0 if is_authority else None
                ),
            ),
            (True, x509.KeyUsage(**usage, encipher_only=False, decipher_only=False)),
            (False, x509.SubjectKeyIdentifier.from_public_key(public)),
            (False, x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_public)),
            *((False, extension) for extension in more),
        ):
            builder = builder.add_extension(extension, critical=critical)
        return builder.sign(authority_key, hashes.SHA384()).public_bytes(Encoding.PEM)

    names = x509.SubjectAlternativeName(
        [_name_of(host) for host in dict.fromkeys(hosts)]
    )
    write_new(folder / "ca.crt", signed(issuer, issuer_public, ()), mode=0o644)
    for_server = signed(
        server,
        key.public_key(),
        (names, x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])),
    )
    write_new(folder / "server.pem", for_server, mode=0o644)
    write_new(
        folder / "server.key",
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
    )


def _name_of(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
