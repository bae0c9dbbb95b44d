"""A certificate authority, the SuperLink's certificate, and the SuperNodes' keys, as files that only their owner reads.

For hosts of their own, the README beside this file has the same by `openssl` and `ssh-keygen`.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from flwr_dpkmeans.errors import ConfigurationError
from simulations.flower_commands import Credentials
from simulations.relay import HOST

_VALID_DAYS = 7
_CLOCK_SKEW = datetime.timedelta(minutes=5)


def make_credentials(folder: Path, node_folders: Sequence[Path], address: str = HOST) -> Credentials:
    """Make an authority, the SuperLink's certificate for one address, and a key pair for each SuperNode.

    The authority's private key is used once and never written, so that no other certificate can be made with it.

    Parameters
    ----------
    folder : Path
        For the certificates and the SuperLink's key; made with mode 0700.
    node_folders : sequence of Path
        Where each SuperNode's ``key`` (0600) and ``key.pub`` go; made with mode 0700.
    address : str
        IP address at which the SuperLink is reached.

    Returns
    -------
    Credentials

    Raises
    ------
    ConfigurationError
        If a file is there already: a key is never overwritten.
    """
    authority_key, server_key = ec.generate_private_key(ec.SECP384R1()), ec.generate_private_key(ec.SECP384R1())
    authority = _authority(authority_key)
    server = _server(server_key, authority, authority_key, address)
    written = Credentials(folder / "ca.crt", folder / "server.pem", folder / "server.key", ())
    _write(written.authority, authority.public_bytes(Encoding.PEM), mode=0o644)
    _write(written.certificate, server.public_bytes(Encoding.PEM), mode=0o644)
    _write(written.key, server_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    keys = tuple(write_node_key(node / "key") for node in node_folders)
    return Credentials(written.authority, written.certificate, written.key, keys)


def write_node_key(path: Path) -> Path:
    """Make one SuperNode's key pair, as Flower 1.41 wants it: OpenSSH, on the curve P-384.

    Parameters
    ----------
    path : Path
        Of the private key; the public one gets the ending ``.pub``.

    Returns
    -------
    Path
        As given.

    Raises
    ------
    ConfigurationError
        If one of the files is there already.
    """
    key = ec.generate_private_key(ec.SECP384R1())
    _write(path, key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    _write(path.with_name(f"{path.name}.pub"), public + b"\n", mode=0o644)
    return path


def _write(path: Path, content: bytes, *, mode: int = 0o600) -> None:
    """Write a new file that nobody else could read even for a moment."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    except FileExistsError as error:
        raise ConfigurationError(
            f"{path} is there already, and keys are not overwritten: choose a new folder."
        ) from error
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)


def _authority(key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    """A certificate that may sign others, and these nothing."""
    name = _name("flwr-dpkmeans loopback authority")
    usage = _usage(sign_certificates=True)
    builder = _builder(name, name, key.public_key(), key.public_key())
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    return builder.add_extension(usage, critical=True).sign(key, hashes.SHA384())


def _server(
    key: ec.EllipticCurvePrivateKey,
    authority: x509.Certificate,
    authority_key: ec.EllipticCurvePrivateKey,
    address: str,
) -> x509.Certificate:
    """The SuperLink's certificate, for one address only."""
    builder = _builder(_name("SuperLink"), authority.subject, key.public_key(), authority_key.public_key())
    alternatives = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))])
    builder = builder.add_extension(alternatives, critical=False)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(_usage(sign_certificates=False), critical=True)
    builder = builder.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    return builder.sign(authority_key, hashes.SHA384())


def _builder(
    subject: x509.Name, issuer: x509.Name, public: ec.EllipticCurvePublicKey, issuer_public: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    """What both certificates have."""
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + datetime.timedelta(days=_VALID_DAYS))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_public), critical=False)
    )


def _name(common: str) -> x509.Name:
    """A name with nothing but a common name."""
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _usage(*, sign_certificates: bool) -> x509.KeyUsage:
    """What a key may be used for: signing certificates, or TLS."""
    return x509.KeyUsage(
        digital_signature=not sign_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=sign_certificates,
        crl_sign=sign_certificates,
        encipher_only=False,
        decipher_only=False,
    )
