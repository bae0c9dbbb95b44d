"""What a SuperLink tells a node that asks."""

from __future__ import annotations

import datetime
import email.utils
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import httpx
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key

from flwr_dpkmeans.deploy.node_options import NodeOptions
from flwr_dpkmeans.deploy.proxies import proxy_before
from flwr_dpkmeans.errors import ConfigurationError, PeerError
from flwr_dpkmeans.flower import _private

MOST_CLOCK_SECONDS = 2.0
"""Flower lets a node be 5 s ahead of its SuperLink, and 305 s behind.

What drifts is mended long before.
"""

_KEY_MEND = "ssh-keygen -t ecdsa -b 384 -N '' makes one"

_WITHOUT_PROXY = (
    "leave the proxy out of this way by proxy = 'none' in NODE.toml or by no_proxy"
)
_DATE_SECONDS = 2.0
"""How old the date in an answer may be.

It has whole seconds, and Flower's web server makes one every second.
"""


class UnansweredError(PeerError):
    """Nobody is there yet."""


@dataclass(frozen=True)
class Answer:
    """What a SuperLink tells whoever asks."""

    knows_key: bool
    ahead: float
    """Seconds that this machine's clock is ahead of its, at least; behind, if negative.

    Its date was made at some time between request and reply, which a busy machine
    delays, or a little before.
    """
    certificate: tuple[datetime.datetime, ...]
    """From when to when it holds; empty without TLS."""
    is_online: bool = False
    """Whether a node with this key, which it knows, is connected."""


def ask(options: NodeOptions, clock: Callable[[], float] = time.time) -> Answer:
    """Ask for what a SuperLink refuses even to nodes that it knows.

    So that nothing changes there, but that one whose key it knows is let in for a
    moment.

    An `UnansweredError` if nobody is there yet, a ConfigurationError if it is not the
    one that the node knows.
    """
    key = (
        private_key(options.key)
        if options.key
        else ec.generate_private_key(ec.SECP384R1())
    )
    request = _private.impossible_activation(key.public_key())
    proxy = proxy_before(options.superlink, insecure=options.insecure)
    where = f"superlink {options.superlink}"
    proxy_first = proxy_last = ""
    if proxy is not None:
        where += f" through {proxy}"
        # What does not answer is rather the proxy; what answers is rather not.
        proxy_first = f"correct {proxy.variable}, or {_WITHOUT_PROXY}, or "
        proxy_last = f", or {_WITHOUT_PROXY}"
    authority = str(options.root_certificates) if options.root_certificates else None
    try:
        with _private.fleet_client(
            options.superlink, authority, key, insecure=options.insecure
        ) as client:
            before = clock()
            try:
                client.ActivateNode(request)
                raise ValueError("it takes what Flower refuses")
            except httpx.HTTPStatusError as error:
                after, response = clock(), error.response
                is_flowers, knows_key = _private.refusal_in(response.text)
                date = response.headers.get("date", "")
                sent = email.utils.parsedate_to_datetime(date).timestamp()
                stream = response.extensions["network_stream"]
                line = stream.get_extra_info("ssl_object")
                certificate = {} if line is None else line.getpeercert()
                if not is_flowers and response.is_server_error:
                    # It is of what stands before the SuperLink.
                    raise UnansweredError(
                        f"{where} does not answer (HTTP {response.status_code}): have"
                        " it started."
                    ) from error
                is_unauthorized = response.status_code == httpx.codes.UNAUTHORIZED
                if not is_flowers and not is_unauthorized:
                    # To a clock that is wrong.
                    raise ValueError(
                        f"it says HTTP {response.status_code}, and nothing of Flower's"
                    ) from error
            is_online = False
            if options.key and knows_key:
                is_online = _private.is_online(client, key.public_key())
    except (httpx.HTTPError, ValueError) as error:
        if "SSL" in str(error) or not isinstance(
            error, httpx.ConnectError | httpx.TimeoutException
        ):
            mend = (
                "correct superlink and root-certificates, as its operator says on a way"
                f" that you trust{proxy_last}"
            )
            raise ConfigurationError(
                f"{where} is not the one that this node knows ({error}): {mend}."
            ) from error
        raise UnansweredError(
            f"{where} does not answer ({error}): {proxy_first}have it started, or"
            " correct superlink."
        ) from error
    times = [
        ssl.cert_time_to_seconds(certificate[side])
        for side in ("notBefore", "notAfter")
        if certificate
    ]
    return Answer(
        knows_key,
        max(0.0, before - sent - _DATE_SECONDS) + min(0.0, after - sent),
        tuple(
            datetime.datetime.fromtimestamp(seconds, datetime.UTC) for seconds in times
        ),
        is_online,
    )


def private_key(path: Path) -> ec.EllipticCurvePrivateKey:
    """Read the key that a SuperLink knows a node by.

    a ConfigurationError if it is none that Flower can sign with.
    """
    try:
        key = load_ssh_private_key(path.read_bytes(), None)
    except (
        ValueError,
        TypeError,
        UnsupportedAlgorithm,
    ) as error:  # such as a passphrase that nobody would type
        raise ConfigurationError(
            f"{path} cannot be read as a private key ({error}): {_KEY_MEND}."
        ) from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ConfigurationError(f"{path} is no key on a NIST curve: {_KEY_MEND}.")
    return key
