"""Name the files with which server and agents of a run prove who they are to each other."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from controlplane.access.tls import TlsFiles
from tests.security.authority import Authority

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Certificates:
    """Paths of PEM files. All agents have one certificate, as pods of one secret do."""

    ca: str
    server_cert: str
    server_key: str
    agents_cert: str
    agents_key: str

    @classmethod
    def made(cls, folder: Path, cluster: str) -> Certificates:
        """Make them in this folder, for agents whose names begin with `n`."""
        authority = Authority(folder)
        server = authority.of("coordinator", "c", cluster=cluster)
        agents = authority.issue("agents", f"holdfast://{cluster}/agent/n*")
        return cls(server.ca, server.cert, server.key, agents.cert, agents.key)

    @classmethod
    def of(cls, document: dict[str, Any] | None) -> Certificates | None:
        """From what JSON has of them; None: there are none."""
        return cls(**document) if document else None

    def flags(self) -> tuple[str, ...]:
        """What a coordinator is started with."""
        return f"--tls-cert={self.server_cert}", f"--tls-key={self.server_key}", f"--tls-ca={self.ca}"

    def server(self) -> TlsFiles:
        """What a server shows, and checks callers with, as a coordinator does."""
        return TlsFiles(self.server_cert, self.server_key, self.ca)

    def client(self) -> ssl.SSLContext:
        """What agents show, and check the server with."""
        context = ssl.create_default_context(cafile=self.ca)
        context.load_cert_chain(self.agents_cert, self.agents_key)
        context.set_alpn_protocols(["h2"])
        return context
