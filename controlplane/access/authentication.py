"""Authenticate the callers of a port: by certificate, by token, or not at all.

An accepted caller may lose its credentials later: a certificate expires, a line leaves the token file, the
deny list grows. `Authenticator.lost` judges a caller again; streams.py calls it while a stream is open."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from controlplane.access.callers import ANYONE, Caller, Unauthenticated, from_certificate
from controlplane.access.certificates import Unreadable, facts
from controlplane.access.denials import DenyList

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from controlplane.access.tokens import Tokens
    from controlplane.port_settings import PortSettings

_BEARER = "Bearer "


@dataclass(frozen=True, slots=True)
class Credentials:
    """An authenticated caller, and the credentials that prove who it is."""

    caller: Caller
    digest: bytes = b""  # SHA-256 of the token; b"": it showed none
    serial: int = -1  # of the certificate; -1: it showed none
    ends_s: float = math.inf  # when the certificate expires, Unix time; infinity: it showed none


UNAUTHENTICATED = Credentials(ANYONE)
"""What every caller gets where nobody is authenticated."""


@dataclass(frozen=True, slots=True)
class Authenticator:
    """What a port demands of its callers. Without `certificates` and `tokens` it accepts everybody.

    `certificates`: the connection must have one. `tokens`: a call may carry a token, which then says who
    calls; else the certificate says it. `subjects`: a certificate without a URI of ours names its caller in
    its subject. `deny`: refuses callers whose credentials are good."""

    cluster: str
    certificates: bool = False
    tokens: Tokens | None = None
    subjects: bool = False
    deny: DenyList | None = None

    def who(
        self, metadata: Sequence[tuple[str, Any]], peer: Mapping[str, Sequence[bytes]], now_s: float
    ) -> Credentials:
        """Return who calls, from the call's metadata and grpc's auth context of the connection (`peer`).

        Raises Unauthenticated when the credentials are missing or not accepted."""
        if not self.certificates and self.tokens is None:
            return UNAUTHENTICATED
        shown = self._shown(_token(metadata), peer)
        self.refresh()
        if lost := self.lost(shown, now_s):
            raise Unauthenticated(lost)
        return shown

    def refresh(self) -> int:
        """Read the token file and the deny list again if they have changed. Return a number that grows with
        each change."""
        return sum(each.refresh() for each in (self.tokens, self.deny) if each is not None)

    def lost(self, shown: Credentials, now_s: float) -> str:
        """Return why a caller that was accepted before may not stay, by the files as `refresh` read them
        last; "" when it may."""
        if now_s >= shown.ends_s:
            return f"the certificate of {shown.caller} has expired: connect again with a renewed one"
        if shown.digest and self.tokens is not None:
            now = self.tokens.still(shown.digest)
            if now is None:
                return f"the token of {shown.caller} is no longer valid here: ask an operator for another"
            if now != shown.caller:
                return f"the rights of {shown.caller} have changed: connect again"
        return self.deny.why(shown.caller, shown.serial) if self.deny is not None else ""

    def _shown(self, token: str | None, peer: Mapping[str, Sequence[bytes]]) -> Credentials:
        if token is not None and self.tokens is None:
            raise Unauthenticated("this port takes no tokens: use only a certificate (unset HOLDFAST_TOKEN)")
        if token is None and not self.certificates:
            raise Unauthenticated("no token was sent: give --token-file, or set HOLDFAST_TOKEN")
        if token is not None and self.tokens is not None:
            digest = self.tokens.digest(token)
            shown = Credentials(self.tokens.whose(digest), digest)
        else:
            shown = Credentials(from_certificate(self.cluster, peer, subjects=self.subjects))
        return self._certified(shown, peer) if self.certificates else shown

    def _certified(self, shown: Credentials, peer: Mapping[str, Sequence[bytes]]) -> Credentials:
        try:
            found = facts(b"".join(peer.get("x509_pem_cert", ())))
        except Unreadable as error:
            raise Unauthenticated(f"the certificate of {shown.caller} cannot be read: {error}") from error
        return replace(shown, serial=found.serial, ends_s=found.ends_s)


def authenticator_of(
    cluster: str, settings: PortSettings, *, certificates: bool, tokens: Tokens | None = None
) -> Authenticator:
    """Return what a daemon's ports demand, by its settings. Raises SettingsError on an invalid deny list."""
    deny = DenyList(settings.deny_list) if settings.deny_list else None
    return Authenticator(cluster, certificates, tokens, settings.tls_own_authority, deny)


def _token(metadata: Sequence[tuple[str, Any]]) -> str | None:
    """Return the token in the call's metadata: None without an authorization header, "" in one of another
    kind."""
    for key, value in metadata:
        if key == "authorization":
            text = value if isinstance(value, str) else ""
            return text.removeprefix(_BEARER) if text.startswith(_BEARER) else ""
    return None
