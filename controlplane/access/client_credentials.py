"""Hold our own credentials as a client: certificate, token, and the server that we expect."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from controlplane.access.tls import TlsFiles
from controlplane.access.tokens import read_token
from controlplane.settings import SettingsError, is_loopback

if TYPE_CHECKING:
    from collections.abc import Sequence

    import grpc.aio

    from controlplane.settings import CallerSettings


@dataclass(frozen=True, slots=True)
class ClientCredentials:
    """Credentials for calls. The token's file is read again for every call."""

    files: TlsFiles
    token_file: str = ""
    name: str = ""  # expected in the server's certificate; "": the host we call
    insecure: bool = False  # plaintext to other machines is allowed
    private: bool = False  # no token is sent

    @classmethod
    def of(cls, settings: CallerSettings) -> ClientCredentials:
        """Return the credentials that settings name. Raises SettingsError when a file cannot be read."""
        if settings.private:
            return plain()
        access = cls(TlsFiles.of(settings), settings.token_file, settings.tls_name, settings.insecure)
        access.metadata()
        return access

    def to(self, name: str) -> ClientCredentials:
        """Return credentials for servers whose certificates carry `name`: our certificate, no token."""
        return ClientCredentials(self.files, "", name, self.insecure, True)

    def channel(self, address: str, options: Sequence[tuple[str, Any]]) -> grpc.aio.Channel:
        """Return a channel to host:port. SettingsError when it would be plaintext to another machine."""
        if not self.files.given and not self.insecure and not is_loopback(address.rpartition(":")[0]):
            raise SettingsError(
                f"{address} would be called in plaintext: give --tls-ca (and --tls-cert, --tls-key), "
                "or --insecure"
            )
        return self.files.channel(address, options, self.name)

    def metadata(self) -> tuple[tuple[str, str], ...]:
        """Return the metadata of a call. Raises SettingsError when the token's file cannot be read."""
        token = "" if self.private else read_token(self.token_file)
        return (("authorization", f"Bearer {token}"),) if token else ()


def plain() -> ClientCredentials:
    """Return no credentials: for a private cluster on loopback."""
    return ClientCredentials(TlsFiles(), private=True)
