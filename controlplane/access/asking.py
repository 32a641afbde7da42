"""What a port asks of those who call: a certificate, a token, or nothing."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from controlplane.access.callers import ANYONE, Caller, Unknown, from_certificate
from controlplane.access.certificates import Unreadable, facts
from controlplane.access.denials import DenyList

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from controlplane.access.tokens import Tokens
    from controlplane.port_settings import PortSettings

_BEARER = "Bearer "


@dataclass(frozen=True, slots=True)
class Shown:
    """Who a call has shown to be, and what that rests on."""

    caller: Caller
    digest: bytes = b""  # of its token
    serial: int = -1  # of its certificate
    ends_s: float = math.inf  # the certificate's end, Unix time


NOBODY_ASKED = Shown(ANYONE)


@dataclass(frozen=True, slots=True)
class Asks:
    """By certificate when the port demands one, by token when there are tokens, else nobody is asked.

    `subjects`: a certificate without our URI says by its subject who it is."""

    cluster: str
    certificates: bool = False
    tokens: Tokens | None = None
    subjects: bool = False
    deny: DenyList | None = None

    def who(
        self, metadata: Sequence[tuple[str, Any]], peer: Mapping[str, Sequence[bytes]], now_s: float
    ) -> Shown:
        """Who calls, by what the call carries and by the connection's certificate. Raises Unknown: what they
        showed will not do."""
        if not self.certificates and self.tokens is None:
            return NOBODY_ASKED
        shown = self._shown(_token(metadata), peer)
        self.refresh()
        if lost := self.lost(shown, now_s):
            raise Unknown(lost)
        return shown

    def refresh(self) -> int:
        """Look at the files; a number that grows when something in them has changed. Reads files."""
        return sum(each.refresh() for each in (self.tokens, self.deny) if each is not None)

    def lost(self, shown: Shown, now_s: float) -> str:
        """Why somebody who was let in may not stay, by what the files said when they were looked at last; "":
        they may."""
        if now_s >= shown.ends_s:
            return f"the certificate of {shown.caller} has expired: come again with a renewed one"
        if shown.digest and self.tokens is not None:
            now = self.tokens.still(shown.digest)
            if now is None:
                return f"the token of {shown.caller} is none of this cluster's any more: ask for another"
            if now != shown.caller:
                return f"the rights of {shown.caller} have changed: come again"
        return self.deny.why(shown.caller, shown.serial) if self.deny is not None else ""

    def _shown(self, token: str | None, peer: Mapping[str, Sequence[bytes]]) -> Shown:
        if token is not None and self.tokens is None:
            raise Unknown("no tokens are taken here: come with a certificate alone (unset HOLDFAST_TOKEN)")
        if token is None and not self.certificates:
            raise Unknown("no token was shown: give --token-file, or set HOLDFAST_TOKEN")
        if token is not None and self.tokens is not None:
            digest = self.tokens.digest(token)
            shown = Shown(self.tokens.whose(digest), digest)
        else:
            shown = Shown(from_certificate(self.cluster, peer, subjects=self.subjects))
        return self._certified(shown, peer) if self.certificates else shown

    def _certified(self, shown: Shown, peer: Mapping[str, Sequence[bytes]]) -> Shown:
        try:
            found = facts(b"".join(peer.get("x509_pem_cert", ())))
        except Unreadable as error:
            raise Unknown(f"the certificate of {shown.caller} cannot be read: {error}") from error
        return replace(shown, serial=found.serial, ends_s=found.ends_s)


def asks_of(
    cluster: str, settings: PortSettings, *, certificates: bool, tokens: Tokens | None = None
) -> Asks:
    """What a daemon's ports ask, by its settings. Raises SettingsError on a deny list that will not do."""
    deny = DenyList(settings.deny_list) if settings.deny_list else None
    return Asks(cluster, certificates, tokens, settings.tls_own_authority, deny)


def _token(metadata: Sequence[tuple[str, Any]]) -> str | None:
    """What the caller shows as a token; None when nothing."""
    for key, value in metadata:
        if key == "authorization":
            text = value if isinstance(value, str) else ""
            return text.removeprefix(_BEARER) if text.startswith(_BEARER) else ""
    return None
