"""What can go wrong with etcd. Every message names the endpoint, the cause and the mend."""

from __future__ import annotations


class EtcdError(Exception):
    """Anything etcd or the way to it refuses."""


class EtcdUnavailable(EtcdError):
    """No endpoint gave a usable answer in time. A read may be tried again at will."""


class EtcdUnknownOutcome(EtcdUnavailable):
    """A write was sent, no answer came, and reading back failed too: it may be applied, now or later.

    The same compare-and-swap may be sent again: it cannot be applied twice."""


class EtcdNotEtcd(EtcdError):
    """Something answers at the endpoint, but it does not speak etcd's v3 API (or TLS does not match)."""


class EtcdAuth(EtcdError):
    """User, password, certificate or role are not accepted."""


class EtcdVersion(EtcdError):
    """This version of etcd is not to be trusted with records."""


class EtcdRefused(EtcdError):
    """etcd answered that it will not do this (no space, a bad request)."""


class EtcdCompacted(EtcdRefused):
    """History up to the asked revision is gone; list anew."""


class LeaseLost(EtcdError):
    """The lease has expired or was revoked; its keys are gone."""


class ValueTooLarge(EtcdError):
    """A value, or one transaction's values together, is more than etcd should hold."""


class Fenced(EtcdError):
    """Another leader reigns: nothing was written, and nothing more may be."""


class Conflict(EtcdError):
    """A key was changed by someone else while this leader reigns; nothing was written."""


class PrivateEtcdError(EtcdError):
    """The private etcd could not be found or started."""
