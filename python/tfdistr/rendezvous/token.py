"""The token of a job: only processes that know it take part in its rendezvous.

If tfdistr starts the workers, the launcher makes a token and passes it to them in their environment. In
processes that a user starts by hand, the user may set it. The token itself is never sent: both sides of a
connection prove that they know it, with numbers that are used once.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
from collections.abc import Mapping, Sequence

from tfdistr.errors import ClusterStartError
from tfdistr.utils.shared_names import START

TOKEN = "TFDISTR_TOKEN"
"""The environment variable with the token of a job."""


def with_token(environments: Sequence[Mapping[str, str]]) -> list[dict[str, str]]:
    """Give the processes of a job one token, one of theirs or a new one, and the same new ``START``."""
    token, start = os.environ.get(TOKEN) or secrets.token_hex(16), secrets.token_hex(16)
    return [{TOKEN: token, **environment, START: start} for environment in environments]


def other_token() -> ClusterStartError:
    """Return the error for a process that has another token than the first worker, or none."""
    return ClusterStartError(
        f"All workers of a cluster must have the same {TOKEN}.",
        received="a process that does not know the token of the first worker",
        fix=f"Set {TOKEN} to the same text in each process, or in none.",
    )


class Proofs:
    """The proofs that this process and its peers know the token."""

    def __init__(self, token: str | None = None) -> None:
        self._key = (os.environ.get(TOKEN, "") if token is None else token).encode()

    def __bool__(self) -> bool:
        return bool(self._key)

    @staticmethod
    def nonce() -> str:
        """Return a number for one connection, as text."""
        return secrets.token_hex(16)

    def of(self, *parts: object) -> str:
        """Return the proof for the parts of a message; empty without a token."""
        if not self._key:
            return ""
        text = json.dumps(parts, sort_keys=True).encode()
        return hmac.new(self._key, text, hashlib.sha256).hexdigest()

    def holds(self, proof: object, *parts: object) -> bool:
        """Return whether a peer has proved that it knows the token."""
        if not self._key:
            return True
        return isinstance(proof, str) and hmac.compare_digest(proof.encode(), self.of(*parts).encode())
