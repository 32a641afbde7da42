"""Judge a failed call: a table from the words and codes of etcd and grpc to what follows."""

from __future__ import annotations

from dataclasses import dataclass, replace

from grpc import StatusCode

from controlplane.daemon.etcd.errors import (
    EtcdAuth,
    EtcdCompacted,
    EtcdError,
    EtcdFull,
    EtcdNotEtcd,
    EtcdRefused,
    EtcdUnavailable,
    LeaseLost,
)


@dataclass(frozen=True, slots=True)
class ErrorClass:
    """A failed call, judged. `error` is raised when no other endpoint helps.

    `again`: try again, here or elsewhere. `sent`: the request may have been carried out. `fresh_token`:
    log in again first."""

    error: type[EtcdError]
    text: str
    again: bool = True
    sent: bool = False
    fresh_token: bool = False


def _away(text: str) -> ErrorClass:
    """Nothing was carried out; another endpoint, or this one later, may answer."""
    return ErrorClass(EtcdUnavailable, text)


def _login(text: str) -> ErrorClass:
    return ErrorClass(EtcdAuth, text, fresh_token=True)


def _final(error: type[EtcdError], text: str) -> ErrorClass:
    return ErrorClass(error, text, again=False)


_NOT_ETCD = ErrorClass(EtcdNotEtcd, "does not speak etcd's API: is the port right?")
_NO_TLS = ErrorClass(EtcdNotEtcd, "has no TLS: leave --etcd-ca out, or name its TLS port")
_BAD_CERT = ErrorClass(EtcdAuth, "has a certificate not signed by --etcd-ca, or for another host")
_BAD_FILES = _final(
    EtcdAuth, "could not be called: --etcd-ca, --etcd-cert or --etcd-key holds no PEM that fits"
)
_NO_USER = _final(EtcdAuth, "requires a login: give --etcd-user and --etcd-password-file")
_BAD_USER = _final(EtcdAuth, "does not accept this user and password")
_NO_ROLE = _final(EtcdAuth, "does not let this user touch the key: grant it readwrite on /holdfast/v1/")
_FULL = _final(EtcdFull, "is full: compact and defragment it, or raise its quota; then disarm the alarm")
_REFUSED = _final(EtcdRefused, "refuses the request")

# Phrases of grpcio 1.66-1.85 and of etcd 3.4-3.5; the first one that is part of the details counts.
BY_WORDS: tuple[tuple[str, ErrorClass], ...] = (
    ("Connection refused", _away("cannot be reached, nothing listens there: is etcd running?")),
    ("errors resolving", _away("cannot be reached, its name has no address")),
    ("DNS resolution failed", _away("cannot be reached, its name has no address")),
    ("Failed parsing HTTP/2", _NOT_ETCD),
    (
        "before receiving SETTINGS",
        _away("accepts connections but sends nothing: it is not etcd, or is stopped"),
    ),
    ("WRONG_VERSION_NUMBER", _NO_TLS),
    ("CERTIFICATE_VERIFY_FAILED", _BAD_CERT),
    ("create security handshaker", _BAD_FILES),
    ("Handshake read failed", _away("ends the TLS handshake: if it has no TLS, leave --etcd-ca out")),
    (
        "failed to connect",
        _away("cannot be reached, or closes connections: does it require TLS (--etcd-ca)?"),
    ),
    ("not a primary lessor", _away("is not the lessor yet")),
    ("no leader", _away("has no leader: is the quorum lost?")),
    ("too many requests", _away("is overloaded")),
    ("invalid auth token", _login("says that the login has expired")),
    ("auth store is old", _login("says that the login is outdated")),
    ("revision in header is old", _login("says that the login is outdated")),
    ("user name is empty", _NO_USER),
    ("authentication failed", _BAD_USER),
    ("permission denied", _NO_ROLE),
    ("lease not found", _final(LeaseLost, "says that the lease has expired or was revoked")),
    ("has been compacted", _final(EtcdCompacted, "no longer has this revision")),
    ("space exceeded", _FULL),
)

BY_STATUS: dict[StatusCode, ErrorClass] = {
    StatusCode.UNIMPLEMENTED: _NOT_ETCD,
    StatusCode.PERMISSION_DENIED: _NO_ROLE,
    StatusCode.UNAUTHENTICATED: _final(EtcdAuth, "does not accept the login"),
    StatusCode.INVALID_ARGUMENT: _REFUSED,
    StatusCode.FAILED_PRECONDITION: _REFUSED,
    StatusCode.NOT_FOUND: _REFUSED,
    StatusCode.ALREADY_EXISTS: _REFUSED,
    StatusCode.OUT_OF_RANGE: _REFUSED,
    StatusCode.RESOURCE_EXHAUSTED: _REFUSED,
}

SILENT = ErrorClass(EtcdUnavailable, "did not answer in time", sent=True)
"""No answer within the try timeout."""

BROKEN = ErrorClass(EtcdUnavailable, "broke off", sent=True)
"""Every other failure: the connection or the member died during the call, or its quorum moved."""


def judge(code: StatusCode, details: str) -> ErrorClass:
    """Return what a failed call means; the server's own words stay in the text."""
    trouble = next((trouble for words, trouble in BY_WORDS if words in details), None)
    if trouble is None:
        trouble = SILENT if code == StatusCode.DEADLINE_EXCEEDED else BY_STATUS.get(code, BROKEN)
    return replace(trouble, text=f"{trouble.text} ({details})" if details else trouble.text)
