"""A certificate authority of the tests' own, on real files."""

from __future__ import annotations

import datetime
import hashlib
import ipaddress
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from controlplane.access.client_credentials import ClientCredentials
from controlplane.access.tls import TlsFiles

if TYPE_CHECKING:
    from pathlib import Path

CLUSTER = "c1"
_HOUR = datetime.timedelta(hours=1)


@dataclass(frozen=True)
class Files:
    """The three files of one party."""

    cert: str
    key: str
    ca: str

    def tls(self) -> TlsFiles:
        return TlsFiles(self.cert, self.key, self.ca)

    def access(self, token_file: str = "", name: str = "") -> ClientCredentials:
        return ClientCredentials(self.tls(), token_file, name)

    def settings(self) -> dict[str, str]:
        return {"tls_cert": self.cert, "tls_key": self.key, "tls_ca": self.ca}

    def flags(self) -> list[str]:
        return [f"--{name.replace('_', '-')}={value}" for name, value in self.settings().items()]


class Authority:
    """Signs certificates and writes them below a folder."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self.folder, self.name = folder, name
        self._key = ec.generate_private_key(ec.SECP256R1())
        basic = x509.BasicConstraints(ca=True, path_length=None)
        self._cert = (
            _builder(name, name, self._key).add_extension(basic, critical=True).sign(self._key, _HASH)
        )
        self.ca = folder / f"{name}.pem"
        self.ca.write_bytes(self._cert.public_bytes(serialization.Encoding.PEM))

    def issue(
        self,
        file: str,
        *uris: str,
        unit: str = "",
        common: str = "someone",
        dns: str = "localhost",
        ends_in: datetime.timedelta = _HOUR,
    ) -> Files:
        """A certificate for 127.0.0.1 with these URIs; the files named `file` are replaced."""
        key = ec.generate_private_key(ec.SECP256R1())
        names: list[x509.GeneralName] = [x509.DNSName(dns)]
        names += [x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        names += [x509.UniformResourceIdentifier(uri) for uri in uris]
        builder = _builder(common, self.name, key, unit, ends_in)
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        paths = [self.folder / f"{file}.{kind}" for kind in ("crt", "key")]
        pem = builder.sign(self._key, _HASH).public_bytes(serialization.Encoding.PEM)
        for path, data in zip(paths, (pem, _pem(key)), strict=True):
            path.write_bytes(data)
        return Files(str(paths[0]), str(paths[1]), str(self.ca))

    def of(self, role: str, name: str, *, jobs: tuple[str, ...] = (), cluster: str = CLUSTER) -> Files:
        """The certificate of a caller."""
        query = "?" + "&".join(f"job={job}" for job in jobs) if jobs else ""
        return self.issue(f"{role}-{name}", f"holdfast://{cluster}/{role}/{name}{query}")


_HASH = hashes.SHA256()


def _builder(
    common: str,
    issuer: str,
    key: ec.EllipticCurvePrivateKey,
    unit: str = "",
    ends_in: datetime.timedelta = _HOUR,
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(_name(common, unit))
        .issuer_name(_name(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - 2 * _HOUR)
        .not_valid_after(now + ends_in)
    )


def _name(common: str, unit: str = "") -> x509.Name:
    units = [x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, unit)] if unit else []
    return x509.Name([*units, x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    plain = serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)


def token_line(role: str, name: str, jobs: str = "") -> tuple[str, str]:
    """A fresh token, and its line in the coordinator's file."""
    token = secrets.token_urlsafe(32)
    digest = hashlib.sha256(token.encode()).hexdigest()
    return token, f"{role} {name} sha256:{digest} {jobs}".strip()
