"""The cluster's records in etcd: read at one revision, written only by the leader that reigns."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from controlplane.daemon.etcd.errors import Conflict, EtcdUnknownOutcome, Fenced
from controlplane.daemon.etcd.rows import Compare, Put, created_at, modified_at

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from controlplane.daemon.etcd.client import Etcd
    from controlplane.daemon.etcd.keyspace import Keyspace
    from controlplane.daemon.etcd.rows import Listing, TxnResult

ATTEMPTS = 4
"""A commit is repeated so often when late writes of our own turn up under it."""


class Records:
    """The records of one cluster, as bytes under the keys of its keyspace.

    It remembers the revision at which it last saw each key and compares it in every write: so a write cannot
    apply twice, and a late one of its own cannot undo a newer one."""

    def __init__(self, etcd: Etcd, keys: Keyspace) -> None:
        self._etcd = etcd
        self.keys = keys
        self._seen: dict[str, int] = {}
        self._in_doubt: dict[str, set[bytes | None]] = {}
        self._writing = asyncio.Lock()

    async def load(self) -> Listing:
        """Every row of the cluster, the leader's included, in one consistent read. EtcdUnavailable."""
        async with self._writing:
            listing = await self._etcd.list(self.keys.prefix)
            self._seen = {row.key: row.mod_revision for row in listing.rows}
            self._in_doubt.clear()
        return listing

    async def commit(
        self, term: int, puts: Mapping[str, bytes | None], compares: Sequence[Compare] = ()
    ) -> int:
        """Write (None: delete) all or nothing while `term` reigns; returns the revision that holds it.

        Fenced: another leader reigns, or none. Conflict: someone else changed one of the keys (it is seen
        now: a further commit overwrites it knowingly), or one of `compares` does not hold.
        EtcdUnknownOutcome: no answer, commit it again. EtcdUnavailable: not written. ValueTooLarge."""
        self._check_keys(puts)
        async with self._writing:
            for _ in range(ATTEMPTS):
                result = await self._try(term, puts, compares)
                if result.succeeded:
                    return self._committed(puts, result.revision)
                self._judge(term, puts, compares, result)
        raise Conflict(f"late writes keep changing {', '.join(puts)}: commit again")

    async def _try(
        self, term: int, puts: Mapping[str, bytes | None], compares: Sequence[Compare]
    ) -> TxnResult:
        seen = {key: self._seen.get(key, 0) for key in puts}
        fence = created_at(self.keys.leader, term)
        try:
            return await self._etcd.txn(
                [fence, *(modified_at(key, revision) for key, revision in seen.items()), *compares],
                [Put(key, value) for key, value in puts.items() if value is not None],
                [key for key, value in puts.items() if value is None and seen[key]],
            )
        except (EtcdUnknownOutcome, asyncio.CancelledError):
            for key, value in puts.items():
                self._in_doubt.setdefault(key, set()).add(value)
            raise

    def _committed(self, puts: Mapping[str, bytes | None], revision: int) -> int:
        for key, value in puts.items():
            self._seen[key] = revision if value is not None else 0
            self._in_doubt.pop(key, None)
        return revision

    def _judge(
        self, term: int, puts: Mapping[str, bytes | None], compares: Sequence[Compare], result: TxnResult
    ) -> None:
        """Why the comparison failed: raises, unless late writes of our own are all there is to it."""
        leader = result.rows.get(self.keys.leader)
        if leader is None or leader.create_revision != term:
            reigns = f"term {leader.create_revision} reigns" if leader else "nobody reigns"
            raise Fenced(f"term {term} is over, {reigns}: nothing of {', '.join(puts)} was written")
        moved = foreign = 0
        for key in puts:
            row = result.rows.get(key)
            if (row.mod_revision if row else 0) == self._seen.get(key, 0):
                continue
            moved += 1
            foreign += (row.value if row else None) not in self._in_doubt.get(key, ())
            self._seen[key] = row.mod_revision if row else 0
        if foreign:
            raise Conflict(f"someone else changed one of {', '.join(puts)}: nothing was written")
        if not moved:
            named = ", ".join(compare.key for compare in compares)
            raise Conflict(f"a condition on {named} does not hold: nothing was written")

    def _check_keys(self, puts: Mapping[str, bytes | None]) -> None:
        for key in puts:
            if not key.startswith(self.keys.prefix) or key == self.keys.leader:
                raise ValueError(f"{key} is no record of the cluster {self.keys.cluster}")
