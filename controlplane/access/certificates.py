"""Read the serial number of a certificate, and when it expires.

grpc's auth context has neither, and the standard library can read them only from a connection of its own."""

from __future__ import annotations

from dataclasses import dataclass


class Unreadable(ValueError):
    """The bytes hold no certificate."""


@dataclass(frozen=True, slots=True)
class CertificateFacts:
    """`serial` as a number, `ends_s`: when it expires, Unix time."""

    serial: int
    ends_s: float


def facts(pem: bytes) -> CertificateFacts:
    """Return the facts of the first certificate in these PEM bytes. Raises Unreadable."""
    from cryptography import x509  # imported only where callers have certificates

    try:
        found = x509.load_pem_x509_certificate(pem)
        return CertificateFacts(found.serial_number, found.not_valid_after_utc.timestamp())
    except ValueError as error:
        raise Unreadable(f"it is not a certificate in PEM: {error}") from error
