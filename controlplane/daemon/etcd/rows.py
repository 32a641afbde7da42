"""Define what the etcd client takes and returns: rows, comparisons, writes, results, updates of watches."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from controlplane.daemon.etcd import rpc_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True, slots=True)
class EtcdRow:
    """One key as etcd holds it. `version`: number of writes since it was created; `lease` 0: none."""

    key: str
    value: bytes
    create_revision: int
    mod_revision: int
    version: int
    lease: int = 0


@dataclass(frozen=True, slots=True)
class Listing:
    """All rows below a prefix at one revision, by key."""

    rows: tuple[EtcdRow, ...]
    revision: int


@dataclass(frozen=True, slots=True)
class Compare:
    """A condition of a transaction. Exactly one of the fields beside `key` is set."""

    key: str
    create_revision: int | None = None
    mod_revision: int | None = None
    value: bytes | None = None

    def message(self) -> pb.Compare:
        """Return the condition as etcd's message."""
        key = encode(self.key)
        if self.create_revision is not None:
            return pb.Compare(key=key, target=pb.Compare.CREATE, create_revision=self.create_revision)
        if self.mod_revision is not None:
            return pb.Compare(key=key, target=pb.Compare.MOD, mod_revision=self.mod_revision)
        if self.value is not None:
            return pb.Compare(key=key, target=pb.Compare.VALUE, value=self.value)
        raise ValueError(f"a comparison of {self.key} compares nothing")


def absent(key: str) -> Compare:
    """Return the condition that the key does not exist."""
    return Compare(key, create_revision=0)


def created_at(key: str, revision: int) -> Compare:
    """Return the condition that the key has existed since `revision` and was never deleted in between."""
    return Compare(key, create_revision=revision)


def modified_at(key: str, revision: int) -> Compare:
    """Return the condition that the key was last written at `revision`; 0: that it does not exist."""
    return Compare(key, mod_revision=revision)


@dataclass(frozen=True, slots=True)
class Put:
    """A write within a transaction. `lease` 0: none."""

    key: str
    value: bytes
    lease: int = 0


@dataclass(frozen=True, slots=True)
class TxnResult:
    """The outcome of a transaction.

    `succeeded`: it is applied, exactly once. `read_back`: an answer was lost, and reading the keys showed
    that it was applied. `rows`: when it is not applied, every compared and written key that exists, as it was
    when the comparison failed."""

    succeeded: bool
    revision: int
    rows: Mapping[str, EtcdRow] = field(default_factory=dict)
    read_back: bool = False


@dataclass(frozen=True, slots=True)
class Lease:
    """A lease. `sent_at`: when its grant or renewal was sent, s on the client's clock; valid for
    `ttl_s` from then."""

    id: int
    ttl_s: float
    sent_at: float


@dataclass(frozen=True, slots=True)
class Change:
    """One key was written (`row`), or deleted (`row` None)."""

    key: str
    row: EtcdRow | None


@dataclass(frozen=True, slots=True)
class Changed:
    """An update of a watch: changes in order, complete up to `revision`."""

    revision: int
    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True)
class Listed:
    """An update of a watch: the whole state, at its start, and when history was compacted away under it.

    It replaces everything known before. `compacted`: up to this revision history is gone; 0 at the start."""

    revision: int
    rows: tuple[EtcdRow, ...]
    compacted: int = 0


def encode(key: str) -> bytes:
    """Return the bytes of a key; any bytes that etcd holds survive `decode` and `encode`."""
    return key.encode("utf-8", "surrogateescape")


def decode(key: bytes) -> str:
    """Return the key of these bytes."""
    return key.decode("utf-8", "surrogateescape")


def row_of(kv: pb.KeyValue) -> EtcdRow:
    """Return the row of etcd's own message."""
    return EtcdRow(decode(kv.key), kv.value, kv.create_revision, kv.mod_revision, kv.version, kv.lease)


def prefix_end(prefix: bytes) -> bytes:
    """Return the first key after all that start with `prefix`."""
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes([stem[-1] + 1]) if stem else b"\0"


def txn_message(compares: Sequence[Compare], puts: Sequence[Put], deletes: Sequence[str]) -> pb.TxnRequest:
    """Return the transaction. When its comparison fails, it reads every key that it names, in
    the same instant."""
    writes = [
        pb.RequestOp(request_put=pb.PutRequest(key=encode(put.key), value=put.value, lease=put.lease))
        for put in puts
    ]
    writes += [pb.RequestOp(request_delete_range=pb.DeleteRangeRequest(key=encode(key))) for key in deletes]
    named = dict.fromkeys([*(c.key for c in compares), *(p.key for p in puts), *deletes])
    reads = [pb.RequestOp(request_range=pb.RangeRequest(key=encode(key))) for key in named]
    return pb.TxnRequest(compare=[c.message() for c in compares], success=writes, failure=reads)


def applies_once(compares: Sequence[Compare], puts: Sequence[Put], deletes: Sequence[str]) -> bool:
    """Return whether applying the transaction makes its own comparison false, so that it can
    never apply twice."""
    values = {put.key: put.value for put in puts}
    return any(_spent(compare, values, deletes) for compare in compares)


def _spent(compare: Compare, puts: Mapping[str, bytes], deletes: Sequence[str]) -> bool:
    """Return whether these writes make this comparison false."""
    if compare.key in deletes:
        return compare.create_revision != 0 and compare.mod_revision != 0
    if compare.key not in puts:
        return False
    if compare.create_revision is not None:
        return compare.create_revision == 0
    return compare.mod_revision is not None or compare.value != puts[compare.key]
