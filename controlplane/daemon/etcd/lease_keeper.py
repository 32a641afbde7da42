"""Keep a leader's lease from a thread of its own, for as long as the leader's event loop lives.

A keepalive that waits in the event loop waits behind everything else there: a thousand hellos of agents at
once have cost leaders their lease, although etcd was well. So the thread calls etcd by blocking calls, beside
the loop. But a lease must not outlive what it stands for: the loop has to prove again and again that it turns
(`alive`), and when it has not for two TTLs, the thread keeps the lease no longer
(docs/decisions/0011-the-lease-has-a-thread.md)."""

from __future__ import annotations

import logging
import threading
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import grpc

from controlplane.daemon.etcd import rpc_pb2 as pb
from controlplane.daemon.etcd.error_class import ErrorClass, judge
from controlplane.daemon.etcd.errors import LeaseLost
from controlplane.daemon.etcd.link import (
    AUTHENTICATE,
    LEASE_KEEP_ALIVE,
    NO_LOGIN_WORDS,
    OPTIONS,
    Failed,
    given_up,
    hopeless,
)
from controlplane.daemon.etcd.rows import Lease

if TYPE_CHECKING:
    from collections.abc import Callable

    from google.protobuf.message import Message

    from controlplane.daemon.etcd.link import Method
    from controlplane.daemon.etcd.target import EtcdTarget

log = logging.getLogger(__name__)

BEATS_PER_TTL = 3
"""Keepalives within one TTL: one may be lost."""

WEDGED_TTLS = 2.0
"""The lease of a loop that has not turned for so many TTLs is kept no longer: a leader that does nothing any
more is replaced after three. On a machine that was starved of CPU, a healthy loop was seen to need 13 s for
one turn."""

PAUSES_S = (0.05, 0.5)
"""The first and the longest pause after an attempt that has failed."""


class Act(StrEnum):
    """What the thread does next."""

    KEEP = "keep"
    WAIT = "wait"
    WITHHOLD = "withhold"  # the loop does not turn: the lease is left to run out


def next_act(now: float, sent_at: float, turned_at: float, ttl_s: float) -> Act:
    """What is to be done with a lease that was renewed at `sent_at`, by a loop that last turned at
    `turned_at`; all in s on one clock."""
    if now - turned_at > WEDGED_TTLS * ttl_s:
        return Act.WITHHOLD
    return Act.KEEP if now >= sent_at + ttl_s / BEATS_PER_TTL else Act.WAIT


class LeaseKeeper:
    """Renews one lease until `stop`, or until it is lost: then `over` is called, in the thread.

    `lease` is as it was renewed last, `trouble` why the last keepalive failed; "": it was answered.
    `observed` is called in the thread, too, as `Etcd.observed` says."""

    def __init__(
        self,
        target: EtcdTarget,
        lease: Lease,
        *,
        try_timeout_s: float,
        clock: Callable[[], float],
        observed: Callable[[str, float, bool], None],
        over: Callable[[str], None],
    ) -> None:
        self.lease, self.trouble = lease, ""
        self._calls = _Calls(target, min(try_timeout_s, lease.ttl_s / BEATS_PER_TTL))
        self._clock, self._observed, self._over = clock, observed, over
        self._turned_at = clock()
        self._stood_s, self._stood_until = 0.0, clock()  # the newest turn that took longer than half of a TTL
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lease", daemon=True)

    def start(self) -> None:
        """Begin to keep the lease."""
        self._thread.start()

    def alive(self) -> None:
        """Say that the event loop turns. To be called by nothing but a task of that loop."""
        now = self._clock()
        if now - self._turned_at > self.lease.ttl_s / 2:
            self._stood_s, self._stood_until = now - self._turned_at, now
        self._turned_at = now

    def stood_s(self) -> float:
        """How long the loop has not turned, now or within the last TTL; 0: less than half of a TTL."""
        now, ttl_s = self._clock(), self.lease.ttl_s
        lately_s = self._stood_s if now - self._stood_until < ttl_s else 0.0
        present_s = now - self._turned_at
        return max(lately_s, present_s if present_s > ttl_s / 2 else 0.0)

    def halt(self) -> None:
        """Keep the lease no longer; a call under way is cut off."""
        self._stopped.set()
        self._calls.cut()

    def stop(self) -> None:
        """Do the same, and wait for the end of the thread."""
        self.halt()
        self._thread.join()

    def _run(self) -> None:
        try:
            self._keep_on()
        finally:
            self._calls.close()

    def _keep_on(self) -> None:
        interval_s = self.lease.ttl_s / BEATS_PER_TTL
        while not self._stopped.is_set():
            act = next_act(self._clock(), self.lease.sent_at, self._turned_at, self.lease.ttl_s)
            if act is Act.KEEP:
                if reason := self._keep(interval_s):
                    self._over(reason)
                    return
            else:
                self._stopped.wait(interval_s / 10)

    def _keep(self, interval_s: float) -> str:
        """Renew the lease, with as many attempts as fit into the interval. Return why it is lost; ""."""
        begun, troubles = self._clock(), dict[str, ErrorClass]()
        pause_s, doubtful = PAUSES_S[0], False
        while not self._stopped.is_set():
            endpoint, sent_at = self._calls.endpoint, self._clock()
            try:
                ttl_s = self._calls.renew(self.lease.id)
            except Failed as failed:
                trouble = troubles[endpoint] = failed.trouble
                doubtful = doubtful or trouble.sent
            else:
                return self._answered(ttl_s, sent_at, begun)
            if not trouble.again:
                return f"etcd at {endpoint}: {trouble.text}"
            if hopeless(self._calls.endpoints, troubles):
                return str(given_up(troubles, doubtful))
            if self._clock() >= begun + interval_s:
                self._failed(str(given_up(troubles, doubtful)), begun)
                return ""
            self._stopped.wait(pause_s)
            pause_s = min(2 * pause_s, PAUSES_S[1])
        return ""

    def _answered(self, ttl_s: float, sent_at: float, begun: float) -> str:
        self._observed("keepalive", self._clock() - begun, False)
        if ttl_s <= 0:
            return str(LeaseLost(f"lease {self.lease.id:x} has expired or was revoked"))
        self.lease, self.trouble = Lease(self.lease.id, ttl_s, sent_at), ""
        return ""

    def _failed(self, why: str, begun: float) -> None:
        if self._stopped.is_set():
            return
        self._observed("keepalive", self._clock() - begun, True)
        log.warning("a keepalive of lease %x failed: %s", self.lease.id, why)
        self.trouble = why


class _Calls:
    """Blocking calls to one endpoint after the other, each on a channel of its own thread."""

    def __init__(self, target: EtcdTarget, timeout_s: float) -> None:
        self.endpoints = target.endpoints
        self._target, self._timeout_s = target, timeout_s
        self._tls, self._at = target.tls(), 0
        self._channel: grpc.Channel | None = None
        self._token = ""
        self._under_way: grpc.Future | None = None

    @property
    def endpoint(self) -> str:
        """The endpoint of the next attempt."""
        return self.endpoints[self._at % len(self.endpoints)]

    def renew(self, lease: int) -> float:
        """Renew the lease. Return its TTL; 0: it is gone. Raises Failed, after which the next endpoint is
        tried, on a new channel."""
        try:
            answer = self._call(LEASE_KEEP_ALIVE, pb.LeaseKeepAliveRequest(ID=lease), self._login())
        except grpc.RpcError as error:
            raise self._failed(error) from error
        except grpc.FutureCancelledError as error:
            raise Failed(judge(grpc.StatusCode.CANCELLED, "the lease is kept no longer")) from error
        return float(answer.TTL)

    def cut(self) -> None:
        """End the call under way. Called in another thread."""
        under_way = self._under_way
        if under_way is not None:
            under_way.cancel()

    def close(self) -> None:
        """Close the channel; the next call makes another one."""
        if self._channel is not None:
            self._channel.close()
        self._channel = None

    def _failed(self, error: grpc.RpcError) -> Failed:
        trouble = judge(error.code(), error.details() or "")
        if trouble.fresh_token:
            self._token = ""
        self._at += 1
        self.close()
        return Failed(trouble)

    def _login(self) -> tuple[tuple[str, str], ...]:
        """The metadata of a call: a member without its quorum fails instead of hanging; and the login."""
        metadata: tuple[tuple[str, str], ...] = (("hasleader", "true"),)
        if not self._target.user:
            return metadata
        if not self._token:
            request = pb.AuthenticateRequest(name=self._target.user, password=self._target.password)
            try:
                self._token = str(self._call(AUTHENTICATE, request, ()).token)
            except grpc.RpcError as error:
                if NO_LOGIN_WORDS not in (error.details() or ""):
                    raise
                return metadata
        return (*metadata, ("token", self._token))

    def _call(self, method: Method[Any], request: Message, metadata: tuple[tuple[str, str], ...]) -> Any:
        """One request and one answer. To etcd, a stream that is closed after its first request is no other
        thing."""
        if self._channel is None:
            self._channel = self._tls.blocking_channel(self.endpoint, OPTIONS)
        stub = self._channel.unary_unary(
            method.path, type(request).SerializeToString, method.answer.FromString
        )
        self._under_way = stub.future(request, timeout=self._timeout_s, metadata=metadata or None)
        return self._under_way.result()
