"""Elect a leader: the candidate that creates the leader key under its own lease.

The key's create_revision is the term: it grows with every election, and every privileged write compares it
(store.py). So a former leader can write nothing. By its own clock a leader also steps down before etcd
would replace it."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Self

from controlplane.daemon.etcd.errors import (
    EtcdError,
    EtcdFull,
    EtcdUnavailable,
    EtcdUnknownOutcome,
    LeaseLost,
)
from controlplane.daemon.etcd.lease_keeper import BEATS_PER_TTL
from controlplane.daemon.etcd.refusals import Refusals
from controlplane.daemon.etcd.rows import Changed, Listed, Put, absent

if TYPE_CHECKING:
    from controlplane.daemon.etcd.client import Etcd
    from controlplane.daemon.etcd.keyspace import Keyspace
    from controlplane.daemon.etcd.rows import EtcdRow, Lease

log = logging.getLogger(__name__)

TTL_S = 10.0
"""A leader is replaced when etcd has not heard from it for this long."""

MARGIN = 0.1
"""The share of the TTL by which a leader steps down before etcd would replace it, because clocks drift."""

TURNS_PER_TTL = 20
"""How often within one TTL the event loop says that it turns."""

RETRY_S = 1.0
"""Seconds between attempts to become leader while etcd is away."""


class Election:
    """One candidate for the leadership of a cluster. `candidate` is its identity, the value
    of the leader key."""

    def __init__(self, etcd: Etcd, keys: Keyspace, candidate: bytes, *, ttl_s: float = TTL_S) -> None:
        self._etcd = etcd
        self._keys = keys
        self._candidate = candidate
        self.ttl_s = ttl_s
        self.trouble = ""  # why this candidate cannot be elected now; "": nothing is in its way
        self._refusals = Refusals(log, "the candidacy of this coordinator")

    async def leader(self) -> EtcdRow | None:
        """Return the leader's row: its value is the leader's identity, its create_revision the term. None:
        nobody leads. Raises EtcdUnavailable."""
        return await self._etcd.get(self._keys.leader)

    async def campaign(self) -> Leadership:
        """Wait until this candidate leads. While etcd is away or full it tries on; it never leads without.

        Raises what no further try can change: EtcdAuth, EtcdNotEtcd, EtcdRefused."""
        while True:
            try:
                row = await self.leader()
                leadership = await self._campaign() if row is None else None
                self.trouble = ""
                self._refusals.taken((self._keys.leader,))
                if leadership is not None:
                    return leadership
                if row is not None:
                    await self._vacancy(row)
            except (EtcdUnavailable, EtcdFull, LeaseLost) as error:
                self.trouble = str(error)
                self._refusals.refused((self._keys.leader,), error)
                await asyncio.sleep(RETRY_S)

    async def _campaign(self) -> Leadership | None:
        lease = await self._etcd.grant(self.ttl_s)
        key = self._keys.leader
        try:
            result = await self._etcd.txn([absent(key)], [Put(key, self._candidate, lease.id)])
        except EtcdUnknownOutcome:
            # If the write takes effect late, nobody leads by its key: the key must not stay.
            await self._etcd.revoke(lease.id)
            raise
        if result.succeeded:
            return Leadership(self._etcd, key, lease, result.revision)
        await self._etcd.revoke(lease.id)
        return None

    async def _vacancy(self, leader: EtcdRow) -> None:
        """Wait until the leader key is gone."""
        async with self._etcd.watch(leader.key, leader.mod_revision) as updates:
            async for update in updates:
                if isinstance(update, Listed) and all(row.key != leader.key for row in update.rows):
                    return
                if isinstance(update, Changed) and _deleted(update, leader.key):
                    return


def _deleted(update: Changed, key: str) -> bool:
    return any(change.key == key and change.row is None for change in update.changes)


class Leadership:
    """One term of leadership. `lost` is set when it is over; `reason` says why.

    It ends before etcd would let another begin: when keepalives stay unanswered for 0.9 TTL, when etcd says
    that the lease or the key is gone, or by `resign`. Keepalives come from a thread, so that no work of the
    event loop delays them; the thread ends them when the loop turns no more. A process that was stopped may
    wake up when its term is long over: look at `held` before each act of a leader."""

    def __init__(self, etcd: Etcd, key: str, lease: Lease, term: int) -> None:
        self.term = term
        self.lost = asyncio.Event()
        self.reason = ""
        self._etcd = etcd
        self._key = key
        self._keeper = etcd.keeper(lease, self._lose)
        self._tasks = [
            asyncio.create_task(watchman, name=f"leadership-{term}-{name}")
            for name, watchman in (("turn", self._turn()), ("fence", self._fence()), ("look", self._look()))
        ]
        for task in self._tasks:
            task.add_done_callback(self._ended)
        self._keeper.start()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.resign()

    @property
    def trouble(self) -> str:
        """Why the last keepalive failed; "": it was answered."""
        return self._keeper.trouble

    @property
    def _lease(self) -> Lease:
        return self._keeper.lease

    def valid_until(self) -> float:
        """Return when etcd may give the leadership away, s on the client's clock (`Etcd.clock`)."""
        return self._lease.sent_at + self._lease.ttl_s

    def remaining_s(self) -> float:
        """Return how long this process may still lead without another keepalive; 0 or less: no longer."""
        return self.valid_until() - MARGIN * self._lease.ttl_s - self._etcd.clock()

    @property
    def held(self) -> bool:
        """Whether this process may act as leader now."""
        return not self.lost.is_set() and self.remaining_s() > 0

    async def resign(self) -> None:
        """Step down: the key is deleted at once, so that a standby can take over at once."""
        self._lose("resigned")
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.to_thread(self._keeper.stop)
        try:
            await self._etcd.revoke(self._lease.id, timeout_s=self._lease.ttl_s / BEATS_PER_TTL)
        except EtcdError as error:
            log.warning(
                "the lease of term %d could not be revoked and will expire by itself: %s", self.term, error
            )

    def _lose(self, reason: str) -> None:
        if not self.lost.is_set():
            if stood_s := self._keeper.stood_s():  # else etcd would be blamed
                still = f"this coordinator stood still for {stood_s:.0f} s, stopped or without a CPU"
                reason = f"{still}; {reason}"
            self.reason = reason
            log.info("term %d is over: %s", self.term, reason)
            self._keeper.halt()
            self.lost.set()

    def _ended(self, task: asyncio.Task[None]) -> None:
        """End the term when one of its tasks fails: without it, nobody would notice a lost leadership."""
        if not task.cancelled() and task.exception() is not None:
            log.error("%s failed", task.get_name(), exc_info=task.exception())
            self._lose(f"{task.get_name()} failed: {task.exception()!r}")

    async def _turn(self) -> None:
        """Prove to the thread that keeps the lease that this event loop turns."""
        while not self.lost.is_set():
            self._keeper.alive()
            await asyncio.sleep(self._lease.ttl_s / TURNS_PER_TTL)

    async def _fence(self) -> None:
        remaining_s = self.remaining_s()
        while remaining_s > 0:
            await asyncio.sleep(min(remaining_s, 1.0))  # 1 s at most: the loop's clock stops while suspended
            remaining_s = self.remaining_s()
        self._lose(f"etcd answered no keepalive for {self._lease.ttl_s * (1 - MARGIN):.1f} s")

    async def _look(self) -> None:
        """Watch the leader key: an operator may delete it, or an etcd that was frozen for too long."""
        try:
            async with self._etcd.watch(self._key, self.term) as updates:
                async for update in updates:
                    if not self._still_ours(update):
                        self._lose("the leader key was deleted or taken")
                        return
        except EtcdError as error:
            self._lose(f"the leader key can no longer be watched: {error}")

    def _still_ours(self, update: Listed | Changed) -> bool:
        if isinstance(update, Listed):
            return any(row.key == self._key and row.create_revision == self.term for row in update.rows)
        ours = [change.row for change in update.changes if change.key == self._key]
        return all(row is not None and row.create_revision == self.term for row in ours)
