"""What we show when we call: our certificate, our token, and whom we expect to answer."""

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
class Access:
    """Credentials for calls. The token's file is read anew for every channel."""

    files: TlsFiles
    token_file: str = ""
    name: str = ""  # in the certificate of whoever answers; "": the host we call
    insecure: bool = False
    private: bool = False

    @classmethod
    def of(cls, settings: CallerSettings) -> Access:
        """What these settings name. Raises SettingsError."""
        if settings.private:
            return plain()
        access = cls(TlsFiles.of(settings), settings.token_file, settings.tls_name, settings.insecure)
        access.metadata()
        return access

    def to(self, name: str) -> Access:
        """The same certificate for others, whose certificates carry `name`; the token is not for them."""
        return Access(self.files, "", name, self.insecure, True)

    def channel(self, address: str, options: Sequence[tuple[str, Any]]) -> grpc.aio.Channel:
        """A channel to host:port. Raises SettingsError when it would be plaintext to another machine."""
        if not self.files.given and not self.insecure and not is_loopback(address.rpartition(":")[0]):
            raise SettingsError(
                f"{address} would be called in plaintext: give --tls-ca (and --tls-cert, --tls-key), "
                "or say --insecure"
            )
        return self.files.channel(address, options, self.name)

    def metadata(self) -> tuple[tuple[str, str], ...]:
        """What a call carries. Raises SettingsError when the token's file cannot be read."""
        token = "" if self.private else read_token(self.token_file)
        return (("authorization", f"Bearer {token}"),) if token else ()


def plain() -> Access:
    """For a private cluster on loopback: nothing is shown."""
    return Access(TlsFiles(), private=True)
