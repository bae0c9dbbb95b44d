"""The public file that goes around before a federation starts.

Where it is, what runs, and who takes part.
"""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Self

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_ssh_public_key,
)
from pydantic import AfterValidator, Field, ValidationError, model_validator

from flwr_dpkmeans.deploy.settings_file import SettingsFile, Sha256
from flwr_dpkmeans.errors import ConfigurationError, finding, nearest
from flwr_dpkmeans.node.durable_files import locked
from flwr_dpkmeans.node.identity import write_new

_DIGITS_READ_ALOUD = 40


def _node_key(line: str) -> str:
    """The type and the key alone: what follows them is a comment."""
    try:
        key = load_ssh_public_key(line.encode())
    except (ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise ValueError(
            "give a public key on a NIST curve, such as ssh-keygen -t ecdsa -b 384"
            " makes"
        )
    return key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()


def key_fingerprint(key: str | ec.EllipticCurvePublicKey) -> str:
    """Return what `ssh-keygen -l` prints of a public key, without its name."""
    if isinstance(key, str):
        blob = base64.b64decode(key.split()[1])
    else:
        line = key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
        blob = base64.b64decode(line.split()[1])
    digest = base64.b64encode(hashlib.sha256(blob).digest()).decode()
    return f"SHA256:{digest.rstrip('=')}"


def plain_certificates(text: str) -> str:
    """One certificate or more, without what may stand between them."""
    certificates = x509.load_pem_x509_certificates(text.encode())
    return "".join(
        certificate.public_bytes(Encoding.PEM).decode() for certificate in certificates
    )


Name = Annotated[str, Field(pattern="^[A-Za-z0-9][A-Za-z0-9_-]{0,59}$")]
"""A federation's or a party's.

It is a name in policies, on the SuperLink and of folders.
"""
Address = Annotated[
    str, Field(pattern=r"^([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):[1-9][0-9]{0,4}$")
]
"""HOST:PORT."""


class Party(SettingsFile):
    """What a party has written of itself; before that, nothing."""

    key: Annotated[str, AfterValidator(_node_key)] | None = None
    """Public key by which the SuperLink knows its SuperNode (OpenSSH, NIST curve)."""
    identity: Sha256 | None = None
    """Public key of its long-term identity, which the other parties pin (Ed25519)."""

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if (self.key is None) != (self.identity is None):
            raise ValueError("key and identity belong together: give both or neither")
        return self


class Invitation(SettingsFile):
    """What invitation.toml says.

    Nothing in it is secret, and whoever may change the file decides who takes part.

    So each party holds the app's hash against its own copy of the project, and compares
    `fingerprint` with the others.
    """

    federation: Name
    """Its name."""
    superlink: Address
    """Address that nodes connect to."""
    app: Sha256
    """SHA-256 of the app (FAB) that the office proposes."""
    certificate: Annotated[str, AfterValidator(plain_certificates)]
    """That by which the nodes know the SuperLink's authority (PEM)."""
    parties: Annotated[Mapping[Name, Party], Field(min_length=2)]
    """Who takes part, by name: the office writes the names, each party its own values.
    """

    @model_validator(mode="after")
    def _has_nobody_twice(self) -> Self:
        for kind in Party.model_fields:
            owners: dict[str, str] = {}
            for name, party in self.parties.items():
                value = getattr(party, kind)
                if value is not None and owners.setdefault(value, name) != name:
                    raise ValueError(
                        f"{name} has the {kind} of {owners[value]}, but each party has"
                        " its own"
                    )
        return self

    @property
    def missing(self) -> tuple[str, ...]:
        """Names of the parties that have not written their values."""
        return tuple(name for name, party in self.parties.items() if party.key is None)

    @property
    def pins(self) -> Mapping[str, str]:
        """Identity of each party that has one, by name."""
        return {
            name: party.identity
            for name, party in self.parties.items()
            if party.identity is not None
        }

    @property
    def fingerprint(self) -> str:
        """What people compare by telephone.

        Equal only if everything is, in whatever order the parties stand.
        """
        ordered = self.model_copy(
            update={"parties": dict(sorted(self.parties.items()))}
        )
        digits = hashlib.sha256(ordered.text.encode()).hexdigest()[:_DIGITS_READ_ALOUD]
        return " ".join(digits[place : place + 4] for place in range(0, len(digits), 4))

    def with_party(
        self,
        name: str,
        key: str,
        identity: str,
    ) -> Self:
        """Return the invitation with a party's values.

        a ConfigurationError if the name is unknown or another's.
        """
        if name not in self.parties:
            raise ConfigurationError(
                f"the invitation names no party {name!r}: {nearest(name, self.parties)}"
            )
        try:
            party = Party(key=key, identity=identity)
            if self.parties[name] not in (party, Party()):
                raise ConfigurationError(
                    f"the party {name!r} is in the invitation with another key or"
                    " identity: take the name that the office gave you, or have the"
                    " office remove the two lines there if this party made new ones."
                )
            return self.model_validate(
                {**dict(self), "parties": {**self.parties, name: party}}
            )
        except ValidationError as error:
            raise ConfigurationError(
                f"the party {name!r}: {finding(error, Party.model_fields)}"
            ) from error

    @classmethod
    def add(
        cls,
        path: Path,
        name: str,
        key: str,
        identity: str,
    ) -> Self:
        """Write a party's values into the file, and return what it says now.

        Several parties may do so at once.
        """
        # A missing file is not made, nor a link replaced.
        cls.from_toml(path := path.resolve())
        try:
            with locked(path, exclusive=True):
                changed = cls.from_toml(path).with_party(name, key, identity)
                changed.save(path)
                return changed
        except OSError as error:
            raise ConfigurationError(
                f"{path} cannot be changed ({error.strerror or error}): ask whom it"
                " belongs to for the right to write into its folder, or to write the"
                " two lines there."
            ) from error

    def save(self, path: Path) -> None:
        """Write the file, as a whole: who reads it meanwhile gets the old one."""
        new = write_new(
            path.with_name(f".{path.name}.{os.getpid()}"),
            self.text.encode(),
            mode=0o644,
        )
        if path.exists():
            shutil.copymode(path, new)
        new.replace(path)

    @property
    def text(self) -> str:
        """The file's text; no value can hold a quote or a backslash."""
        plain = self.model_dump(exclude={"certificate", "parties"})
        lines = [
            *(f'{key} = "{value}"' for key, value in plain.items()),
            f'certificate = """\n{self.certificate}"""',
        ]
        for name, party in self.parties.items():
            values = party.model_dump(exclude_none=True)
            lines += [
                "",
                f"[parties.{name}]",
                *(f'{key} = "{value}"' for key, value in values.items()),
            ]
        return "\n".join(lines) + "\n"
