"""Translate the core's records to keys and values of etcd, and back when a leader is elected."""

from __future__ import annotations

import dataclasses
import itertools
import json
import logging
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from controlplane.core.records.events import Elected
from controlplane.core.records.model import (
    CheckpointRecord,
    Generation,
    JobSpec,
    JobState,
    LemonRecord,
    NodeMarks,
    NodePlace,
)
from controlplane.core.records.node_checks import BadPart
from controlplane.core.records.stores import (
    ForgetCheckpoints,
    ForgetJob,
    ForgetNode,
    Store,
    StoreCheckpoint,
    StoreHistory,
    StoreJob,
    StoreNode,
    Unread,
)
from controlplane.core.state.cluster_state import LEFT
from controlplane.wire import bounds
from controlplane.wire.records import pack, plain, restore, unpack
from controlplane.wire.shape import WireError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from controlplane.daemon.etcd.keyspace import Keyspace

log = logging.getLogger(__name__)
R = TypeVar("R")

GONE_STATES = frozenset({"lost", LEFT})
"""States of a node, as the last leader recorded them, in which the next leader does not wait for it."""


PRUNED_MAX = 16
"""Keys of older generations that one write deletes at most: it has to fit into one transaction of etcd."""


@dataclass(slots=True)
class RecordMapping:
    """Makes the writes of one leader term. It remembers the checkpoints, because `latest` names the
    newest good one, and the generations that have a key of their own, so that older ones are deleted."""

    keys: Keyspace
    checkpoints: dict[str, dict[str, CheckpointRecord]] = field(default_factory=dict)
    formed: dict[str, dict[int, None]] = field(default_factory=dict)

    def puts(self, store: Store) -> dict[str, bytes | None]:
        """Return the keys and values of a write, all or none of which take effect; None: delete the key."""
        return _PUTS[type(store)](self, store)

    def _job(self, store: StoreJob) -> dict[str, bytes | None]:
        keys = self.keys
        puts: dict[str, bytes | None] = {keys.state(store.state.job): pack(store.state)}
        if store.spec is not None:
            puts[keys.spec(store.spec.job)] = pack(store.spec)
        if store.generation is not None:
            generation, packed = store.generation, pack(store.generation)
            puts[keys.generation(generation.job)] = packed
            puts[keys.rdzv(generation.job, generation.number)] = packed
            known = self.formed.setdefault(generation.job, {})
            known[generation.number] = None
            older = (number for number in known if number < generation.number)
            for number in itertools.islice(older, PRUNED_MAX):
                puts[keys.rdzv(generation.job, number)] = None
        return puts

    def taken(self, puts: Mapping[str, bytes | None]) -> None:
        """Etcd has taken this write: forget the generations whose keys it has deleted. Not before: a deletion
        that was refused is made again with the next generation, or with the job."""
        deleted = {key: b"" for key, value in puts.items() if value is None}
        for job, rows in _by_job(self.keys, deleted).items():
            for number in _numbers(rows):
                self.formed.get(job, {}).pop(number, None)

    def _no_job(self, store: ForgetJob) -> dict[str, bytes | None]:
        """Return the deletions of all that a job has, what no leader would miss first: when only some of
        them take effect, the job is still there, and whole."""
        keys, job = self.keys, store.job
        history = [keys.rdzv(job, number) for number in self.formed.get(job, ())]
        puts = dict.fromkeys((*history, keys.account(job), keys.findings(job)), None)
        puts |= self._forget(job, store.checkpoints) | {keys.latest(job): self._latest(job) or None}
        return puts | dict.fromkeys((keys.generation(job), keys.state(job), keys.spec(job)), None)

    def _node(self, store: StoreNode) -> dict[str, bytes | None]:
        document: dict[str, Any] = {"v": 1, "node": store.node}
        document |= {"state": store.state, "reason": store.reason}
        document |= {"address": store.address, "domain": store.domain}
        if store.marks is not None:
            document |= {"cordoned": store.marks.cordoned, "devices": dict(store.marks.devices)}
            document |= {"drain_by_s": store.marks.drain_by_s, "drain_forced": store.marks.drain_forced}
            if store.marks.bad_parts:
                document |= {"bad_parts": plain(store.marks.bad_parts)}
        return {self.keys.node(store.node): json.dumps(document).encode()}

    def _no_node(self, store: ForgetNode) -> dict[str, bytes | None]:
        history = self._history(store.history) if store.history is not None else {}
        return {self.keys.node(store.node): None} | history

    def _history(self, record: LemonRecord) -> dict[str, bytes | None]:
        return {self.keys.failure_history(record.node): pack(record) if record.score else None}

    def _checkpoint(self, record: CheckpointRecord) -> dict[str, bytes | None]:
        self.checkpoints.setdefault(record.job, {})[record.id] = record
        return {
            self.keys.checkpoint(record.job, record.step, record.generation): pack(record),
            self.keys.latest(record.job): self._latest(record.job),
        }

    def _forget(self, job: str, ids: Iterable[str]) -> dict[str, bytes | None]:
        """Return the deletions of these checkpoints' records. One that is not known is deleted already."""
        known = self.checkpoints.setdefault(job, {})
        gone = [known.pop(name) for name in ids if name in known]
        puts: dict[str, bytes | None] = {
            self.keys.checkpoint(job, record.step, record.generation): None for record in gone
        }
        return puts | {self.keys.latest(job): self._latest(job)}

    def _latest(self, job: str) -> bytes:
        known = self.checkpoints.get(job, {})
        good = [(each.step, each.generation, each.id) for each in known.values() if not each.bad]
        return max(good)[2].encode() if good else b""

    def elected(self, term: int, values: Mapping[str, bytes]) -> Elected:
        """Return the event that starts a leader term, made of everything below the cluster's prefix.

        What cannot be read is left out, logged, and listed in `unread`. When the spec, state or generation of
        a job cannot be read, the whole job is left out, and nothing of it is touched."""
        unread: list[Unread] = []
        jobs, nodes = _by_job(self.keys, values), _documents(self.keys, values, unread)
        self.formed = {job: _numbers(rows) for job, rows in jobs.items()}
        specs, states, generations, checkpoints = [], [], [], []
        for job, rows in sorted(jobs.items()):
            try:
                spec, state = _read(JobSpec, rows, "spec"), _read(JobState, rows, "state")
                generation = _read(Generation, rows, "generation")
            except WireError as error:
                unread.append(Unread(f"{self.keys.jobs}{job}/", str(error), job, whole=True))
                continue
            specs += [spec] if spec else []
            states += [state] if state else []
            generations += [generation] if generation else []
            checkpoints += _checkpoints(f"{self.keys.jobs}{job}/", job, rows, unread)
        for record in checkpoints:
            self.checkpoints.setdefault(record.job, {})[record.id] = record
        marks, histories = (
            tuple(_marks(self.keys, nodes, unread)),
            tuple(_histories(self.keys, values, unread)),
        )
        for row in unread:
            left = f", so job {row.job} is left alone" if row.whole else ""
            log.error("%s in etcd cannot be read%s: %s; fix it, or delete it", row.key, left, row.reason)
        return Elected(
            term=term,
            nodes=tuple(node for node, known in nodes.items() if str(known.get("state")) not in GONE_STATES),
            specs=tuple(specs),
            states=tuple(states),
            generations=tuple(generations),
            checkpoints=tuple(checkpoints),
            marks=marks,
            lemons=histories,
            wall_s=time.time(),
            places=tuple(_places(nodes)),
            unread=tuple(unread),
        )


_PUTS: dict[type, Callable[[RecordMapping, Any], dict[str, bytes | None]]] = {
    StoreJob: RecordMapping._job,
    ForgetJob: RecordMapping._no_job,
    StoreCheckpoint: lambda records, store: records._checkpoint(store.checkpoint),
    ForgetCheckpoints: lambda records, store: records._forget(store.job, store.forget),
    StoreNode: RecordMapping._node,
    ForgetNode: RecordMapping._no_node,
    StoreHistory: lambda records, store: records._history(store.history),
}


def check(store: Store) -> None:
    """Raise WireError that names a number which no later leader could read."""
    for each in dataclasses.fields(store):
        record = getattr(store, each.name)
        if dataclasses.is_dataclass(record):
            bounds.check(record)


def _by_job(keys: Keyspace, values: Mapping[str, bytes]) -> dict[str, dict[str, bytes]]:
    """Return the values by job, and by the rest of their key."""
    jobs: dict[str, dict[str, bytes]] = {}
    for key, value in values.items():
        if key.startswith(keys.jobs):
            job, _, rest = key[len(keys.jobs) :].partition("/")
            jobs.setdefault(job, {})[rest] = value
    return jobs


def _numbers(rows: Iterable[str]) -> dict[int, None]:
    """Return the numbers of a job's generations that have a key, in the order of the keys."""
    names = [name.removeprefix("rdzv/") for name in rows if name.startswith("rdzv/")]
    return {int(name): None for name in names if name.isascii() and name.isdigit()}


def _bounded(record: type[R], data: bytes) -> R:
    found = unpack(record, data)
    bounds.check(found)
    return found


def _read(record: type[R], rows: Mapping[str, bytes], name: str) -> R | None:
    if name not in rows:
        return None
    try:
        return _bounded(record, rows[name])
    except WireError as error:
        trouble = (
            str(error).partition(": ")[0] if record is JobSpec else str(error)
        )  # the rest may be a secret
        raise WireError(f"{name}: {trouble}") from error


def _checkpoints(
    prefix: str, job: str, rows: Mapping[str, bytes], unread: list[Unread]
) -> list[CheckpointRecord]:
    """Return the readable checkpoint records of a job, oldest first."""
    found = []
    for name, value in rows.items():
        if not name.startswith("checkpoints/m/"):
            continue
        try:
            found.append(_bounded(CheckpointRecord, value))
        except WireError as error:
            unread.append(Unread(prefix + name, str(error), job))
    return sorted(found, key=lambda record: (record.step, record.generation))


def _histories(keys: Keyspace, values: Mapping[str, bytes], unread: list[Unread]) -> Iterable[LemonRecord]:
    """Yield the readable failure histories, by node. Where one is unreadable, the node begins without any."""
    for key in sorted(values):
        if not key.startswith(keys.quarantine):
            continue
        try:
            yield _bounded(LemonRecord, values[key])
        except WireError as error:
            unread.append(Unread(key, str(error)))


def _documents(
    keys: Keyspace, values: Mapping[str, bytes], unread: list[Unread]
) -> dict[str, dict[str, Any]]:
    """Return the nodes' records, by name. A node whose record is unreadable is waited for:
    nothing is known of it."""
    found: dict[str, dict[str, Any]] = {}
    for key in sorted(key for key in values if key.startswith(keys.nodes)):
        document: dict[str, Any] = {}
        try:
            document = {**json.loads(values[key])}
        except (ValueError, TypeError, RecursionError) as error:
            unread.append(Unread(key, f"a record of a node that is not a JSON object: {error}"))
        found[key[len(keys.nodes) :]] = document
    return found


def _marks(
    keys: Keyspace, documents: Mapping[str, Mapping[str, Any]], unread: list[Unread]
) -> Iterable[NodeMarks]:
    """Yield the marks of nodes. Unreadable marks count as none."""
    for node, document in documents.items():
        try:
            devices = tuple((str(name), str(why)) for name, why in dict(document.get("devices", {})).items())
            drain = float(document.get("drain_by_s", 0.0)), bool(document.get("drain_forced", False))
            bad = tuple(restore(BadPart, dict(each)) for each in document.get("bad_parts", ()))
            found = NodeMarks(node, str(document.get("cordoned", "")), devices, *drain, bad)
            bounds.check(found)
        except (ValueError, TypeError) as error:  # a WireError is a ValueError
            unread.append(Unread(keys.nodes + node, f"its marks: {error}"))
            continue
        if found.cordoned or found.devices or found.bad_parts:
            yield found


def _places(documents: Mapping[str, Mapping[str, Any]]) -> Iterable[NodePlace]:
    """Yield where nodes were, as far as that is known."""
    for node, document in documents.items():
        if document:
            values = (str(document.get(name, "")) for name in ("state", "reason", "address", "domain"))
            yield NodePlace(node, *values)
