"""Read and write etcd: lists, compare-and-swap transactions, leases, watches.

When the answer to a write is lost, nobody knows whether it took effect. So there are no blind writes: each
transaction must make its own comparison false. It may then be sent again without being applied twice."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import re
import secrets
from typing import TYPE_CHECKING, Self

from controlplane.daemon.etcd import rpc_pb2 as pb
from controlplane.daemon.etcd.errors import EtcdCompacted, EtcdRefused, EtcdVersion, LeaseLost
from controlplane.daemon.etcd.keyspace import check_values
from controlplane.daemon.etcd.lease_keeper import LeaseKeeper
from controlplane.daemon.etcd.link import (
    LEASE_GRANT,
    LEASE_KEEP_ALIVE,
    LEASE_REVOKE,
    RANGE,
    STATUS,
    TXN,
    EtcdLink,
    Failed,
)
from controlplane.daemon.etcd.rows import (
    EtcdRow,
    Lease,
    Listing,
    Put,
    TxnResult,
    applies_once,
    encode,
    prefix_end,
    row_of,
    txn_message,
)
from controlplane.daemon.etcd.target import EtcdTarget, boottime
from controlplane.daemon.etcd.watch import EtcdWatch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from controlplane.daemon.etcd.rows import Compare
    from controlplane.settings import EtcdSettings

log = logging.getLogger(__name__)

MAX_OPS = 128
"""etcd's own limit for the operations, and for the comparisons, of one transaction (--max-txn-ops)."""

PAGE = 500
"""Rows per request of a list: so many of the largest values fit into one message."""


class Etcd:
    """A client of one etcd cluster. Use it as an async context, or close it.

    `try_timeout_s`: for one attempt at one endpoint; `timeout_s`: for a call with all its attempts; `jitter`:
    numbers in [0, 1) that spread retries; `clock`: s, goes on while the machine is suspended. `observed` is
    called after each keepalive with the operation's name, its duration in s, and whether it failed."""

    def __init__(
        self,
        target: EtcdTarget,
        *,
        try_timeout_s: float = 1.5,
        timeout_s: float = 10.0,
        jitter: Callable[[], float] = random.random,
        clock: Callable[[], float] = boottime,
    ) -> None:
        self.target = target
        self.clock = clock
        self.observed: Callable[[str, float, bool], None] = _unobserved
        self._link = EtcdLink(
            target, try_timeout_s=try_timeout_s, timeout_s=timeout_s, jitter=jitter, clock=clock
        )

    @classmethod
    def of(cls, settings: EtcdSettings, *, private: bool = False) -> Etcd:
        """Return the client that settings describe. Raises SettingsError."""
        return cls(EtcdTarget.of(settings, private=private))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all channels; open watches end."""
        await self._link.close()

    async def check(self) -> str:
        """Return the lowest version among the endpoints that answer.

        Raises EtcdVersion when one of them can lose data (a private etcd gets a warning instead), and
        EtcdUnavailable, EtcdNotEtcd or EtcdAuth when none is usable."""
        reply = await self._link.call(STATUS, pb.StatusRequest())
        statuses = await asyncio.gather(*map(self._status, dict.fromkeys(self.target.endpoints)))
        versions = {endpoint: status.version for endpoint, status in statuses if status is not None}
        versions = versions or {self._link.endpoint: reply.message.version}
        for endpoint, version in versions.items():
            _check_version(endpoint, version, private=self.target.private)
        return min(versions.values(), key=_numbers)

    async def _status(self, endpoint: str) -> tuple[str, pb.StatusResponse | None]:
        try:
            status = await self._link.attempt(endpoint, STATUS, pb.StatusRequest(), self._link.try_timeout_s)
        except Failed as failed:
            log.warning("etcd at %s %s", endpoint, failed)
            return endpoint, None
        return endpoint, status

    async def get(self, key: str) -> EtcdRow | None:
        """Return the row of one key; None when it does not exist. The read sees every earlier
        write of the cluster."""
        reply = await self._link.call(RANGE, pb.RangeRequest(key=encode(key)))
        return row_of(reply.message.kvs[0]) if reply.message.kvs else None

    async def list(self, prefix: str, *, page: int = PAGE) -> Listing:
        """Return all rows whose key starts with `prefix`, at one revision, read by `page` rows per call.

        When etcd compacts that revision meanwhile, the list begins again; the last try reads
        everything in one call."""
        for _ in range(5):
            try:
                return await self._list(encode(prefix), page)
            except EtcdCompacted:
                log.info("history was compacted while %s was listed: listing it again", prefix)
        return await self._list(encode(prefix), page=0)

    async def _list(self, start: bytes, page: int) -> Listing:
        end, revision, rows = prefix_end(start), 0, list[EtcdRow]()
        while True:
            request = pb.RangeRequest(key=start, range_end=end, limit=page, revision=revision)
            answer = (await self._link.call(RANGE, request)).message
            revision = revision or answer.header.revision
            rows += map(row_of, answer.kvs)
            if not answer.more:
                return Listing(tuple(rows), revision)
            start = answer.kvs[-1].key + b"\0"

    async def txn(
        self, compares: Sequence[Compare], puts: Sequence[Put] = (), deletes: Sequence[str] = ()
    ) -> TxnResult:
        """Write, if all `compares` hold, exactly once. The result says whether they did.

        An attempt without an answer is sent again, because it cannot be applied twice (ValueError when
        `compares` do not ensure that). If its comparison fails then, the keys as they were in that instant
        show whether the earlier attempt wrote them. Raises EtcdUnknownOutcome when that stays unanswered too,
        ValueTooLarge, LeaseLost."""
        if (puts or deletes) and not applies_once(compares, puts, deletes):
            keys = ", ".join([*(put.key for put in puts), *deletes])
            raise ValueError(f"a blind write of {keys}: compare the revision of a key that it writes")
        check_values({put.key: put.value for put in puts})
        message = txn_message(compares, puts, deletes)
        operations = max(len(message.compare), len(message.success), len(message.failure))
        if operations > MAX_OPS:
            raise ValueError(f"{operations} operations in one transaction, {MAX_OPS} at most: write several")
        reply = await self._link.call(TXN, message)
        if reply.message.succeeded:
            return TxnResult(True, reply.message.header.revision)
        return _failed_txn(reply.message, puts, deletes, doubtful=reply.doubtful)

    async def grant(self, ttl_s: float) -> Lease:
        """Return a new lease. etcd may make a very short one longer."""
        lease_id = secrets.randbits(62) + 1  # chosen here, so that the request can be repeated
        request = pb.LeaseGrantRequest(TTL=max(1, round(ttl_s)), ID=lease_id)
        try:
            reply = await self._link.call(LEASE_GRANT, request)
        except EtcdRefused as error:
            if "lease already exists" not in str(error):
                raise
            return await self.keepalive(lease_id)
        return Lease(lease_id, float(reply.message.TTL), reply.sent_at)

    async def keepalive(self, lease_id: int) -> Lease:
        """Renew a lease; it is valid for its TTL from `sent_at` on. Raises LeaseLost when it is gone."""
        request = pb.LeaseKeepAliveRequest(ID=lease_id)
        begun, failed = self.clock(), True
        try:
            reply = await self._link.call(LEASE_KEEP_ALIVE, request)
            failed = False
        finally:
            self.observed("keepalive", self.clock() - begun, failed)
        if reply.message.TTL <= 0:
            raise LeaseLost(f"lease {lease_id:x} has expired or was revoked")
        return Lease(lease_id, float(reply.message.TTL), reply.sent_at)

    async def revoke(self, lease_id: int, *, timeout_s: float | None = None) -> None:
        """End a lease: its keys are deleted at once. No error when it is gone already."""
        try:
            await self._link.call(LEASE_REVOKE, pb.LeaseRevokeRequest(ID=lease_id), timeout_s=timeout_s)
        except LeaseLost:
            log.debug("lease %x had already ended", lease_id)

    def keeper(self, lease: Lease, over: Callable[[str], None]) -> LeaseKeeper:
        """Return what keeps a lease beside the event loop. `over` is called in this loop when it is lost."""
        loop = asyncio.get_running_loop()
        return LeaseKeeper(
            self.target,
            lease,
            try_timeout_s=self._link.try_timeout_s,
            clock=self.clock,
            observed=lambda *what: _in_loop(loop, self.observed, *what),
            over=lambda reason: _in_loop(loop, over, reason),
        )

    def watch(self, prefix: str, revision: int = 0) -> EtcdWatch:
        """Watch the keys that start with `prefix`, after `revision`; with 0 the watch begins with a `Listed`.

        `async with etcd.watch(...) as updates: async for update in updates:` gives `Listed` and `Changed`."""
        return EtcdWatch(self._link, self.list, prefix, revision)


def _in_loop(loop: asyncio.AbstractEventLoop, call: Callable[..., None], *arguments: object) -> None:
    """Have the event loop call this, from another thread. A loop that is closed needs nothing any more."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(call, *arguments)


def _unobserved(operation: str, duration_s: float, failed: bool) -> None:
    """Ignore a keepalive; stands for `observed` until somebody wants to count."""


def _failed_txn(
    message: pb.TxnResponse, puts: Sequence[Put], deletes: Sequence[str], *, doubtful: bool
) -> TxnResult:
    rows = {row.key: row for answer in message.responses for row in map(row_of, answer.response_range.kvs)}
    if doubtful and _is_ours(rows, puts, deletes):
        revision = rows[puts[0].key].mod_revision if puts else message.header.revision
        return TxnResult(True, revision, read_back=True)
    return TxnResult(False, message.header.revision, rows)


def _is_ours(rows: dict[str, EtcdRow], puts: Sequence[Put], deletes: Sequence[str]) -> bool:
    """Return whether the keys are as this transaction leaves them: same values and leases, one revision."""
    found = [rows.get(put.key) for put in puts]
    same = all(
        row is not None and (row.value, row.lease) == (put.value, put.lease)
        for row, put in zip(found, puts, strict=True)
    )
    one_revision = len({row.mod_revision for row in found if row}) <= 1
    return same and one_revision and not any(key in rows for key in deletes)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


_INSTEAD = (
    "upgrade it to 3.5.3 or newer, or use a 3.4 (Debian: apt-get install etcd-server). The 3.5.1 that "
    "`pip install 'holdfast[local]'` brings is for `holdfast run` and `holdfast demo`, which start it "
    "themselves; to try a coordinator with it, give --etcd-private"
)


def _check_version(endpoint: str, version: str, *, private: bool) -> None:
    """Raise EtcdVersion for a version that can lose data, or that lacks what we use."""
    numbers = _numbers(version)
    if numbers < (3, 4, 0):
        raise EtcdVersion(f"etcd at {endpoint} is {version}: Holdfast needs 3.4 or newer")
    if (3, 5, 0) <= numbers <= (3, 5, 2):
        text = f"etcd at {endpoint} is {version}, and 3.5.0 to 3.5.2 can lose writes when killed"
        if not private:
            raise EtcdVersion(f"{text}: {_INSTEAD}")
        log.warning("%s: good enough for a laptop, never for production", text)
