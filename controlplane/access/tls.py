"""Make TLS credentials for every gRPC port from PEM files, which are read again when they change.

A renewed certificate needs no restart: a server looks at its files at each handshake, a client at each new
channel. Files that do not fit together (a renewal half written) are ignored until they do."""

from __future__ import annotations

import logging
import os
import ssl
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio

from controlplane.access.file_watch import signature
from controlplane.settings import SettingsError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from controlplane.settings import TlsSettings

log = logging.getLogger(__name__)

HANDSHAKE_TIMEOUT_S = 20.0
"""Long enough for a whole cluster that reconnects at once: each handshake takes 3 ms of CPU."""
CONNECTIONS_MAX = 16_384
"""Connections of one listening port; a cluster of 10,000 nodes fits. One more is closed at once."""
STREAMS_MAX = 64
"""Calls at a time on one connection."""
LIMITS = (
    ("grpc.server_handshake_timeout_ms", int(HANDSHAKE_TIMEOUT_S * 1000)),
    ("grpc.max_allowed_incoming_connections", CONNECTIONS_MAX),
    ("grpc.max_concurrent_streams", STREAMS_MAX),
    ("grpc.max_metadata_size", 16 << 10),
    ("grpc.max_connection_idle_ms", 300_000),
    ("grpc.http2.max_ping_strikes", 2),
)
"""Options that bound what clients can cost a server before it knows who they are."""


@dataclass(frozen=True, slots=True)
class Material:
    """The content of the files; empty: the file is not given."""

    cert: bytes
    key: bytes
    ca: bytes


class TlsFiles:
    """The PEM files of one process; without any, connections are plaintext. `flags` is how the flags that
    name them begin."""

    def __init__(self, cert: str = "", key: str = "", ca: str = "", flags: str = "--tls") -> None:
        """Read the files. Raises SettingsError that names the flag of an invalid one."""
        self._cert, self._key, self._ca = (f"{flags}-{each}" for each in ("cert", "key", "ca"))
        self._paths = {self._cert: cert, self._key: key, self._ca: ca}
        if bool(cert) != bool(key):
            raise SettingsError(f"{self._cert} and {self._key} belong together: give both, or neither")
        self._seen = self._signature()
        self._material = self._read()

    @classmethod
    def of(cls, settings: TlsSettings) -> TlsFiles:
        """Return the files that these settings name."""
        return cls(settings.tls_cert, settings.tls_key, settings.tls_ca)

    @property
    def serves(self) -> bool:
        """Whether a server can prove who it is: there is a certificate."""
        return bool(self._paths[self._cert])

    @property
    def given(self) -> bool:
        """Whether connections are encrypted: there is any file."""
        return any(self._paths.values())

    @property
    def verifies(self) -> bool:
        """Whether callers must show a certificate: there is an authority to check it with."""
        return self.serves and bool(self._paths[self._ca])

    def material(self) -> Material:
        """Return what the files hold; while they do not fit together, what they held before."""
        seen = self._signature()
        if seen != self._seen:
            self._seen = seen
            try:
                self._material = self._read()
                log.info("loaded the renewed certificate: %s", self._paths[self._cert] or "authority only")
            except SettingsError as error:
                log.error("the changed TLS files cannot be used, the previous ones stay in use: %s", error)
        return self._material

    def server_credentials(self) -> grpc.ServerCredentials:
        """Return credentials for a listening port. With an authority, only its certificates get past the
        handshake.

        grpc asks for the certificate at each handshake. It is given one only when the files have changed:
        grpc then rebuilds all of its TLS state, which it must not do while others shake hands."""
        given = self.material()

        def renewed() -> grpc.ServerCertificateConfiguration | None:
            nonlocal given
            before, given = given, self.material()
            return None if given is before else _configuration(given)

        return grpc.dynamic_ssl_server_credentials(_configuration(given), renewed, self.verifies)

    def channel_credentials(self) -> grpc.ChannelCredentials:
        """Return credentials for calls."""
        now = self.material()
        return grpc.ssl_channel_credentials(now.ca or None, now.key or None, now.cert or None)

    def channel(self, address: str, options: Sequence[tuple[str, Any]], name: str = "") -> grpc.aio.Channel:
        """Return a channel to host:port. `name` is what the server's certificate must carry when that is not
        the host."""
        if not self.given:
            return grpc.aio.insecure_channel(address, options=options)
        named = (("grpc.ssl_target_name_override", name),) if name else ()
        return grpc.aio.secure_channel(address, self.channel_credentials(), options=(*options, *named))

    def blocking_channel(self, address: str, options: Sequence[tuple[str, Any]]) -> grpc.Channel:
        """Return a channel to host:port for calls of a thread, beside the event loop."""
        if not self.given:
            return grpc.insecure_channel(address, options=options)
        return grpc.secure_channel(address, self.channel_credentials(), options=options)

    def _signature(self) -> tuple[object, ...]:
        return tuple(signature(path) for path in self._paths.values() if path)

    def _read(self) -> Material:
        parts = [_pem(flag, path) for flag, path in self._paths.items()]
        material = Material(*parts)
        if material.cert:
            names = [f"{flag} {self._paths[flag]}" for flag in (self._cert, self._key)]
            _check_pair(material, " and ".join(names))
        if material.ca:
            _check_authority(material.ca, f"{self._ca} {self._paths[self._ca]}")
        return material


def _configuration(now: Material) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration([(now.key, now.cert)], root_certificates=now.ca or None)


def listen(server: grpc.aio.Server, address: str, files: TlsFiles) -> int:
    """Bind a server's port, encrypted when there is a certificate. Return the port. Raises RuntimeError."""
    if files.serves:
        return int(server.add_secure_port(address, files.server_credentials()))
    return int(server.add_insecure_port(address))


def _pem(flag: str, path: str) -> bytes:
    if not path:
        return b""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise SettingsError(f"{flag} {path} cannot be read: {error.strerror}; name a PEM file") from error
    if b"-----BEGIN " not in data:
        raise SettingsError(f"{flag} {path} holds no PEM: name a file that begins with -----BEGIN")
    return data


def _check_pair(material: Material, names: str) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with in_memory(material.cert) as chain, in_memory(material.key) as private:
        try:
            context.load_cert_chain(chain, private, password=lambda: "")
        except (ssl.SSLError, ValueError) as error:
            raise SettingsError(
                f"{names} do not fit together ({error}): give a certificate and its own key, unencrypted"
            ) from error


def _check_authority(data: bytes, name: str) -> None:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=data.decode("ascii", "replace"))
    except ssl.SSLError as error:
        raise SettingsError(f"{name} holds no certificate ({error}): name the authority's") from error


@contextmanager
def in_memory(data: bytes) -> Iterator[str]:
    """Yield a path at which these bytes can be read, without a file on disk. The ssl module loads from paths
    only."""
    descriptor = os.memfd_create("pem", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, data)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
