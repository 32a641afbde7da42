"""Whom the ports of both daemons let in, beyond what proves who is who (docs/security.md)."""

from __future__ import annotations

from dataclasses import dataclass

from controlplane.setting import setting


@dataclass(frozen=True)  # without slots: it is a second base
class PortSettings:
    """Of the coordinator's port and of the agents' peer ports."""

    tls_own_authority: bool = setting(
        False,
        "the authority of --tls-ca signs for this cluster alone: certificates without a URI of ours are "
        "taken by their subject, too (OU the role, CN the name)",
    )
