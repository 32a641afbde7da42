"""Define the errors of etcd. Every message names the endpoint, the cause and the remedy."""

from __future__ import annotations


class EtcdError(Exception):
    """The base of all errors of etcd, and of the way to it."""


class EtcdUnavailable(EtcdError):
    """No endpoint gave a usable answer in time. A read may be repeated at any time."""


class EtcdUnknownOutcome(EtcdUnavailable):
    """A write was sent, no answer came, and reading back failed too: it may take effect, now or later.

    The same compare-and-swap may be sent again: it cannot be applied twice."""


class EtcdNotEtcd(EtcdError):
    """What answers at the endpoint does not speak etcd's v3 API (or TLS does not match)."""


class EtcdAuth(EtcdError):
    """etcd does not accept the user, the password, the certificate or the role."""


class EtcdVersion(EtcdError):
    """This version of etcd can lose data, or lacks what Holdfast needs."""


class EtcdRefused(EtcdError):
    """etcd answered that it will not carry out the request (no space, a bad request)."""


class EtcdFull(EtcdRefused):
    """etcd takes no writes, of anybody, until somebody has made room in it."""


class EtcdCompacted(EtcdRefused):
    """etcd no longer has the history up to the requested revision: list again."""


class LeaseLost(EtcdError):
    """The lease has expired or was revoked; its keys are gone."""


class ValueTooLarge(EtcdError):
    """A value, or all values of one transaction together, are larger than etcd should hold."""


class Fenced(EtcdError):
    """Another coordinator leads: nothing was written, and this one may write nothing more."""


class Conflict(EtcdError):
    """Somebody else changed a key although this coordinator leads; nothing was written."""


class PrivateEtcdError(EtcdError):
    """The private etcd could not be found or started."""
