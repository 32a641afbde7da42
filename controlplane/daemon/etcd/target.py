"""Say where etcd is, and with which credentials we call it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from controlplane.access.tls import TlsFiles
from controlplane.setting import SettingsError, check_dialled

if TYPE_CHECKING:
    from controlplane.settings import EtcdSettings


def boottime() -> float:
    """Return seconds that also pass while the machine is suspended, because leases run out then too."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(frozen=True, slots=True)
class EtcdTarget:
    """Endpoints as host:port, PEM files and credentials ("": none).

    `private`: it is the laptop's own etcd, where versions that production refuses only get a warning."""

    endpoints: tuple[str, ...]
    ca: str = ""
    cert: str = ""
    key: str = ""
    user: str = ""
    password: str = ""
    private: bool = False

    @classmethod
    def of(cls, settings: EtcdSettings, *, private: bool = False) -> EtcdTarget:
        """Return the target that settings name. Raises SettingsError."""
        endpoints = tuple(_endpoint(part) for part in settings.etcd.split(",") if part.strip())
        if not endpoints:
            raise SettingsError("--etcd names no endpoint: give host:port, comma separated")
        if settings.etcd_cert and not settings.etcd_ca:
            raise SettingsError("--etcd-cert needs --etcd-ca: without it the connection has no TLS")
        if bool(settings.etcd_user) != bool(settings.etcd_password_file):
            raise SettingsError("--etcd-user and --etcd-password-file go together: give both or none")
        password = _read("--etcd-password-file", settings.etcd_password_file).decode().rstrip("\r\n")
        ca, cert, key = settings.etcd_ca, settings.etcd_cert, settings.etcd_key
        target = cls(endpoints, ca, cert, key, settings.etcd_user, password, private)
        target.tls()  # a file that cannot be read is an error now, not at the first call
        return target

    def tls(self) -> TlsFiles:
        """Return the PEM files, which are read again when they change. Raises SettingsError."""
        return TlsFiles(self.cert, self.key, self.ca, "--etcd")


def _endpoint(text: str) -> str:
    endpoint = text.strip().removeprefix("http://").removeprefix("https://").rstrip("/")
    check_dialled("--etcd", endpoint)
    return endpoint


def _read(flag: str, path: str) -> bytes:
    if not path:
        return b""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise SettingsError(f"{flag} {path} cannot be read: {error.strerror}") from error
