"""Keep documents in etcd that are not the core's records, for the next leader.

They are written from time to time, those that have changed: what was added since the last save is missing
after a change of leader."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from controlplane.daemon.etcd.errors import EtcdError, Fenced
from controlplane.daemon.etcd.refusals import Refusals

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from controlplane.daemon.etcd.keyspace import Keyspace
    from controlplane.daemon.leadership.recorder import Commit

log = logging.getLogger(__name__)

ALL = "all of them"
VALUES_MAX = 48
"""Documents in one transaction."""


def of_jobs(keys: Keyspace, values: Mapping[str, bytes], name: str) -> Iterator[tuple[str, bytes]]:
    """Yield each job that has a document of this name below its prefix, and the document."""
    for key, value in values.items():
        if not key.startswith(keys.jobs):
            continue
        job, _, rest = key[len(keys.jobs) :].partition("/")
        if rest == name:
            yield job, value


class DocumentSaver:
    """Keeps documents of one leader term in etcd.

    `documents` makes them, by key; None deletes one that was saved. `what` names them in the log."""

    def __init__(
        self,
        store: Commit,
        term: int,
        documents: Callable[[], Mapping[str, bytes | None]],
        *,
        every_s: float,
        what: str,
    ) -> None:
        self._store, self._term, self._documents = store, term, documents
        self._every_s, self._refusals = every_s, Refusals(log, what)
        self._kept: dict[str, bytes | None] = {}

    async def run(self) -> None:
        """Save them again and again. Raises Fenced when another coordinator leads."""
        while True:
            await asyncio.sleep(self._every_s)
            await self.try_to_keep()

    async def try_to_keep(self) -> None:
        """Save those that have changed, if etcd answers: the next round saves the others. Raises Fenced."""
        try:
            await self.keep()
        except Fenced:
            raise
        except EtcdError as error:
            self._refusals.refused((ALL,), error)

    async def keep(self) -> None:
        """Save those that have changed. Raises EtcdError."""
        made = self._documents()
        news = [key for key, value in made.items() if self._kept.get(key) != value]
        for first in range(0, len(news), VALUES_MAX):
            batch = {key: made[key] for key in news[first : first + VALUES_MAX]}
            await self._store.commit(self._term, batch)
            self._kept |= batch
        self._refusals.taken((ALL,))
