"""Spell addresses of the PCI bus in one way."""

from __future__ import annotations


def pci_address(text: str) -> str:
    """Domain, bus and device of an address in any spelling: `00000000:3B:00.0` and `0000:3b:00` are one."""
    domain, _, rest = text.lower().partition(":")
    return f"{domain.lstrip('0') or '0'}:{rest.partition('.')[0]}"
