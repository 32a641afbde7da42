"""What a port asks of those who call: a certificate, a token, or nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from controlplane.access.callers import ANYONE, Caller, Unknown, from_certificate

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from controlplane.access.tokens import Tokens

_BEARER = "Bearer "


@dataclass(frozen=True, slots=True)
class Asks:
    """By certificate when the port demands one, by token when there are tokens, else nobody is asked.

    `subjects`: a certificate without our URI says by its subject who it is."""

    cluster: str
    certificates: bool = False
    tokens: Tokens | None = None
    subjects: bool = False

    def who(self, metadata: Sequence[tuple[str, Any]], peer: Mapping[str, Sequence[bytes]]) -> Caller:
        """Who calls, by what the call carries and by the connection's certificate. Raises Unknown: what they
        showed will not do."""
        if not self.certificates and self.tokens is None:
            return ANYONE
        token = _token(metadata)
        if token is not None:
            if self.tokens is None:
                raise Unknown(
                    "no tokens are taken here: come with a certificate alone (unset HOLDFAST_TOKEN)"
                )
            return self.tokens.who(token)
        if self.certificates:
            return from_certificate(self.cluster, peer, subjects=self.subjects)
        raise Unknown("no token was shown: give --token-file, or set HOLDFAST_TOKEN")


def _token(metadata: Sequence[tuple[str, Any]]) -> str | None:
    """What the caller shows as a token; None when nothing."""
    for key, value in metadata:
        if key == "authorization":
            text = value if isinstance(value, str) else ""
            return text.removeprefix(_BEARER) if text.startswith(_BEARER) else ""
    return None
