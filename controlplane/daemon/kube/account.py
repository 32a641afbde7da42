"""Find the API of this Kubernetes cluster, and the service account that every pod is given."""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from controlplane.settings import SettingsError

if TYPE_CHECKING:
    from collections.abc import Mapping

FOLDER = "/var/run/secrets/kubernetes.io/serviceaccount"
_PORT_MAX = 65535


@dataclass(frozen=True, slots=True)
class ServiceAccount:
    """A service account in its pod. The kubelet renews the token hourly, so it is read for each request."""

    host: str
    port: int
    folder: Path
    namespace: str

    @classmethod
    def here(cls, folder: str = FOLDER, env: Mapping[str, str] = os.environ) -> ServiceAccount:
        """Return the account of this pod. Raises SettingsError that says what to do when there is none."""
        host, port = env.get("KUBERNETES_SERVICE_HOST", ""), env.get("KUBERNETES_SERVICE_PORT", "443")
        if not host or not port.isdecimal() or not 0 < int(port) <= _PORT_MAX:
            raise SettingsError(
                "KUBERNETES_SERVICE_HOST or KUBERNETES_SERVICE_PORT is unset or invalid: this is not a pod. "
                "Leave out --replace-nodes, --cordon-hosts, --watch-hosts, --kube-events and --label-leader"
            )
        account = cls(host, int(port), Path(folder), "")
        account.token(), account.context()
        return cls(host, int(port), Path(folder), _read(Path(folder) / "namespace").strip())

    def token(self) -> str:
        """Return the bearer token as it is now. Raises SettingsError when it cannot be read."""
        token = _read(self.folder / "token").strip()
        if not token or not token.isprintable():
            raise SettingsError(f"{self.folder / 'token'} holds no token: is the service account mounted?")
        return token

    def context(self) -> ssl.SSLContext:
        """Return a TLS context that trusts this cluster's authority only. Raises SettingsError."""
        path = self.folder / "ca.crt"
        try:
            return ssl.create_default_context(cafile=str(path))
        except (OSError, ssl.SSLError) as error:
            raise SettingsError(
                f"{path} holds no certificate authority ({error}): is the service account mounted?"
            ) from error


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(
            f"{path} cannot be read ({error}): mount the token of a service account "
            "(the chart does, with kubernetes.*), or name its folder with --kube-account"
        ) from error
