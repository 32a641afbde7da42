"""Read the cluster's records at one revision, and write them only as the current leader."""

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
"""Tries of one commit: an earlier write of our own may take effect late, between two of them."""


class RecordStore:
    """The records of one cluster, as bytes under the keys of its keyspace.

    It remembers the revision at which it last saw each key, and compares it in every write. So a write cannot
    be applied twice, and a late one of our own cannot undo a newer one."""

    def __init__(self, etcd: Etcd, keys: Keyspace) -> None:
        self._etcd = etcd
        self.keys = keys
        self._seen: dict[str, int] = {}  # by key; 0: it does not exist
        self._in_doubt: dict[str, set[bytes | None]] = {}  # by key: values of writes without an answer
        self._writing = asyncio.Lock()

    async def load(self) -> Listing:
        """Return every row of the cluster, the leader's included, at one revision. Raises EtcdUnavailable."""
        async with self._writing:
            listing = await self._etcd.list(self.keys.prefix)
            self._seen = {row.key: row.mod_revision for row in listing.rows}
            self._in_doubt.clear()
        return listing

    async def commit(
        self, term: int, puts: Mapping[str, bytes | None], compares: Sequence[Compare] = ()
    ) -> int:
        """Write all of `puts` (None: delete the key), or nothing, if `term` leads. Return the revision that
        holds them.

        Raises Fenced: another coordinator leads, or none. Conflict: somebody else changed one of the keys
        (its revision is known now: a repeated commit overwrites it knowingly), or one of `compares` does not
        hold. EtcdUnknownOutcome: no answer, commit again. EtcdUnavailable: not written. ValueTooLarge."""
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
        """Raise why the comparison failed; return when late writes of our own are the whole reason."""
        leader = result.rows.get(self.keys.leader)
        if leader is None or leader.create_revision != term:
            now_leads = f"term {leader.create_revision} leads" if leader else "nobody leads"
            raise Fenced(f"term {term} is over, {now_leads}: nothing of {', '.join(puts)} was written")
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
                raise ValueError(f"{key} is not a record of the cluster {self.keys.cluster}")
