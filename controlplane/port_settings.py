"""Declare which callers the ports of both daemons accept or refuse, beyond plain TLS (docs/security.md)."""

from __future__ import annotations

from dataclasses import dataclass

from controlplane.setting import SettingsError, setting


@dataclass(frozen=True)  # no slots: two bases with slots cannot be combined
class PortSettings:
    """Settings that the coordinator's port and the agents' peer ports share."""

    tls_own_authority: bool = setting(
        False,
        "the authority of --tls-ca signs for this cluster only: also accept certificates without a "
        "holdfast:// URI, by their subject (OU is the role, CN the name)",
    )
    deny_list: str = setting(
        "",
        "file of callers to refuse, one line each: `serial HEX` (a certificate) or `caller ROLE/NAME`; read "
        "again when it changes; empty: none",
    )


def check_port(settings: PortSettings, *, asks: bool) -> None:
    """Raise SettingsError on a deny list for a port that does not authenticate its callers (`asks` false)."""
    if settings.deny_list and not asks:
        raise SettingsError(
            f"--deny-list {settings.deny_list} has no effect where callers are not authenticated: give "
            "--tls-cert, --tls-key and --tls-ca (a coordinator: or --tokens), or leave it out"
        )
