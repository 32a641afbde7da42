"""What a certificate says of itself beyond its names: its serial number, and when it ends.

The standard library reads that of a connection's own certificate only, and grpc tells neither."""

from __future__ import annotations

from dataclasses import dataclass


class Unreadable(ValueError):
    """Bytes that are no certificate."""


@dataclass(frozen=True, slots=True)
class Facts:
    """`serial` as a number, `ends_s` as Unix time."""

    serial: int
    ends_s: float


def facts(pem: bytes) -> Facts:
    """Of the first certificate in these bytes. Raises Unreadable."""
    from cryptography import x509  # loaded only where certificates are asked for

    try:
        found = x509.load_pem_x509_certificate(pem)
        return Facts(found.serial_number, found.not_valid_after_utc.timestamp())
    except ValueError as error:
        raise Unreadable(f"no certificate in PEM: {error}") from error
