"""Masks under which a party's vector travels."""

from __future__ import annotations

from flwr_dpkmeans.secagg import ciphers, keys


class MaskExpansion:
    """From a shared secret to as many words as a vector has."""

    params = (1_000, 1_000_000)
    param_names = ("words",)

    def setup(self, length: int) -> None:
        """Make a secret."""
        self.secret = keys.generate_private_key()

    def time_expand(self, length: int) -> None:
        """Derive the key of one aggregation and expand it."""
        ciphers.mask(self.secret, (1, 0), length, "benchmark")


class KeyAgreement:
    """What each party computes before the first masked vector."""

    n_peers = 20

    def setup(self) -> None:
        """Make a private key, and the public ones of the peers."""
        self.private_key = keys.generate_private_key()
        peers = (keys.generate_private_key() for _ in range(self.n_peers))
        self.public_keys = {
            index: keys.public_key_of(key) for index, key in enumerate(peers, 1)
        }

    def time_agree(self) -> None:
        """Agree with all peers on pairwise keys."""
        keys.agree_pair_keys(self.private_key, self.public_keys, 1, 0)
