"""Offer a free port for a plain script's rendezvous, and find the address at which others reach this node."""

from __future__ import annotations

import socket
from urllib.parse import urlsplit


class OfferedPort:
    """A port that is bound but not listened on.

    The kernel gives it to nobody by chance, and a script that is started with it can still bind it
    (SO_REUSEADDR)."""

    def __init__(self) -> None:
        self._socket = _bind()

    @property
    def number(self) -> int:
        """The port on offer."""
        port: int = self._socket.getsockname()[1]
        return port

    def used(self, port: int) -> None:
        """Offer another port if this one was given to a job."""
        if port == self.number:
            taken, self._socket = self._socket, _bind()
            taken.close()

    def close(self) -> None:
        """Stop offering a port."""
        self._socket.close()


def _bind() -> socket.socket:
    offered = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    offered.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    offered.bind(("", 0))
    return offered


def route_address(coordinator: str) -> str:
    """The local address on the route to `coordinator` (host:port). Raises OSError when there is none."""
    target = urlsplit(f"//{coordinator}")
    found = socket.getaddrinfo(target.hostname, target.port or 1, type=socket.SOCK_DGRAM)
    family, kind, protocol, _, address = found[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.connect(address)
        host: str = probe.getsockname()[0]
        return host
