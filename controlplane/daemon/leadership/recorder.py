"""Carry the core's writes to etcd in order, without delaying the loop, and post Stored or StoreFailed."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from typing import TYPE_CHECKING, Protocol

from controlplane.core.records.events import Stored, StoreFailed
from controlplane.daemon.etcd.errors import EtcdError, EtcdFull, EtcdUnavailable, Fenced
from controlplane.daemon.etcd.refusals import Refusals
from controlplane.daemon.leadership.rows import check
from controlplane.settings import SettingsError
from controlplane.wire.shape import WireError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from controlplane.core.records.effects import Store
    from controlplane.core.records.events import Event
    from controlplane.daemon.leadership.rows import RecordMapping
    from controlplane.daemon.telemetry.metrics import Metrics

log = logging.getLogger(__name__)

TXN_VALUES_MAX = 48
TXN_BYTES_MAX = 512 * 1024
"""Limits of one transaction. The writes that arrive while one is under way go into the next together. A
write of deletions alone that is larger is done in several, in order."""

NO_WRITE_HELPS = (Fenced, EtcdUnavailable, EtcdFull)
"""Errors that each other write would meet as well."""

ANSWERS_KEPT = 256
OVER = "this coordinator no longer leads; ask the leader"


Write = tuple[int, dict[str, bytes | None]]
"""A ticket, and its keys and values; None: the key is deleted."""


class Commit(Protocol):
    """Writes all values in one transaction that compares the leader's term, or none of them."""

    async def commit(self, term: int, puts: Mapping[str, bytes | None]) -> int:
        """Raise Fenced when another coordinator leads, another EtcdError when the values are not written."""
        ...


class StoreWriter:
    """The only writer of a leader term. It repeats no failed write: after a StoreFailed the core sends the
    write again, if it still wants it."""

    def __init__(
        self,
        store: Commit,
        records: RecordMapping,
        post: Callable[[Event], None],
        term: int,
        metrics: Metrics,
    ) -> None:
        self._store, self._records, self._post = store, records, post
        self._term, self._metrics = term, metrics
        self._waiting: deque[Write] = deque()
        self._wake = asyncio.Event()
        self._asked: dict[int, asyncio.Future[str]] = {}  # by ticket, as is the next
        self._answered: dict[int, str] = {}  # "", or why etcd does not hold it
        self._over = False
        self._refusals = Refusals(log, "what was decided")

    def add(self, effect: Store) -> None:
        """Queue a write, behind all that were queued before."""
        try:
            check(effect)
            puts = self._records.puts(effect)
        except (SettingsError, WireError) as error:  # a name that cannot be a key, a number out of bounds
            self._answer(effect.ticket, str(error))
            self._post(StoreFailed(effect.ticket, str(error)))
            return
        self._waiting.append((effect.ticket, puts))
        self._wake.set()

    def outcome(self, ticket: int) -> asyncio.Future[str]:
        """Return a future: "" once etcd holds what the ticket stands for, else why not.

        Ask soon after `add`: only the last ANSWERS_KEPT outcomes are remembered."""
        answer = self._asked.setdefault(ticket, asyncio.get_running_loop().create_future())
        if ticket in self._answered or self._over:
            self._answer(ticket, self._answered.get(ticket, OVER))
        return answer

    async def run(self) -> None:
        """Write what is queued, for ever. Raises Fenced when another coordinator leads."""
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                while self._waiting:
                    await self._write(self._batch())
        finally:
            self._over = True
            for ticket in list(self._asked):
                self._answer(ticket, OVER)

    def _batch(self) -> list[Write]:
        """Take the oldest write, and those after it that fit into the same transaction."""
        batch = [self._waiting.popleft()]
        count, size = len(batch[0][1]), _size(batch[0])
        while self._waiting:
            count += len(self._waiting[0][1])
            size += _size(self._waiting[0])
            if size > TXN_BYTES_MAX or count > TXN_VALUES_MAX:
                break
            batch.append(self._waiting.popleft())
        return batch

    async def _write(self, batch: list[Write]) -> None:
        """Write a batch in one transaction. If etcd refuses it, write each by itself: one value that etcd
        never accepts must not hold up the others."""
        tickets = [ticket for ticket, _ in batch]
        puts = {key: value for _, values in batch for key, value in values.items()}
        begun = time.perf_counter()
        try:
            for part in _parts(puts):
                await self._store.commit(self._term, part)
        except EtcdError as error:
            self._metrics.etcd_errors_total.labels("commit").inc()
            self._refusals.refused(puts, error)
            if len(batch) > 1 and not isinstance(error, NO_WRITE_HELPS):
                for each in batch:
                    await self._write([each])
            else:
                self._failed(tickets, error)
            return
        finally:
            self._metrics.etcd_request_seconds.labels("commit").observe(time.perf_counter() - begun)
        self._refusals.taken(puts)
        self._records.taken(puts)
        for ticket in tickets:
            self._answer(ticket, "")
            self._post(Stored(ticket))

    def _failed(self, tickets: list[int], error: EtcdError) -> None:
        """Post the failure of these tickets. When etcd is away or full, or another coordinator leads,
        everything that waits fails with them."""
        fenced = isinstance(error, Fenced)
        if isinstance(error, NO_WRITE_HELPS):
            tickets = [*tickets, *(ticket for ticket, _ in self._waiting)]
            self._waiting.clear()
        for ticket in tickets:
            self._answer(ticket, str(error))
            self._post(StoreFailed(ticket, str(error), fenced))
        if fenced:
            raise error

    def _answer(self, ticket: int, reason: str) -> None:
        self._answered[ticket] = reason
        if len(self._answered) > ANSWERS_KEPT:
            del self._answered[next(iter(self._answered))]
        answer = self._asked.pop(ticket, None)
        if answer is not None and not answer.done():
            answer.set_result(reason)


def _parts(puts: dict[str, bytes | None]) -> Iterator[dict[str, bytes | None]]:
    """Yield what goes into one transaction each: everything, but deletions in portions."""
    keys = list(puts)
    size = TXN_VALUES_MAX if all(value is None for value in puts.values()) else max(1, len(keys))
    for first in range(0, len(keys), size):
        yield {key: puts[key] for key in keys[first : first + size]}


def _size(write: Write) -> int:
    return sum(len(value) for value in write[1].values() if value is not None)
