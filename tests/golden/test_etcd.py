"""Rows of etcd are read as they were meant, and still written as they were."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

import pytest

from controlplane.core.records import effects, model
from controlplane.daemon.etcd.keyspace import Keyspace
from controlplane.daemon.journal import older
from controlplane.daemon.leadership import accounts
from controlplane.daemon.leadership.identity import Identity
from controlplane.daemon.leadership.rows import RecordMapping
from controlplane.daemon.telemetry.job_time import Account
from controlplane.wire import records
from tests.golden import samples

if TYPE_CHECKING:
    from collections.abc import Iterator

    from controlplane.core.records.stores import Store
    from tests.golden.commit import Sample

KEYS = Keyspace("prod")
RECORDS: dict[str, type] = {
    "JobSpec": model.JobSpec,
    "JobState": model.JobState,
    "Generation": model.Generation,
    "CheckpointRecord": model.CheckpointRecord,
    "LemonRecord": model.LemonRecord,
}


def rows(*commits: str) -> list[Sample]:
    """Samples of single records."""
    return [sample for sample in samples.read("etcd", *commits) if "stored" in sample]


def stores(*commits: str) -> list[Sample]:
    """Samples of transactions."""
    return [sample for sample in samples.read("etcd", *commits) if "puts" in sample]


def transactions(sample: Sample) -> Iterator[Store]:
    """Today's effects for one sample: what older commits put with one effect may take several."""
    if sample["kind"] != older.Store.__name__:
        effect = records.restore(getattr(effects, sample["kind"]), sample["values"])
        assert samples.differs(effect, sample["values"]) == []
        yield effect
        return
    old = records.restore(older.Store, sample["values"])
    assert samples.differs(old, sample["values"]) == []
    if old.state is not None:
        yield effects.StoreJob(old.job, old.state, old.spec, old.generation)
    if old.checkpoint is not None:
        yield effects.StoreCheckpoint(old.job, old.checkpoint)
    if old.node:
        place = (old.node_address, old.node_domain)
        yield effects.StoreNode(old.node, old.node_state, old.node_reason, *place, old.marks)
    if old.lemon is not None:
        yield effects.StoreHistory(old.lemon)


def decoded(sample: Sample) -> Any:
    """What today's code reads."""
    data, kind = samples.raw(sample["stored"]), sample["kind"]
    if kind == "Identity":
        return Identity.of(data)
    if kind == "Account":
        return accounts.unpacked(data)
    return records.unpack(RECORDS[kind], data)


def encoded(record: Any) -> bytes:
    """What today's code keeps in etcd."""
    if isinstance(record, Identity):
        return record.to_bytes()
    return accounts.packed(record) if isinstance(record, Account) else records.pack(record)


def _plain(data: bytes) -> bytes:
    """Without the compression, whose bytes may differ between versions of zlib."""
    return zlib.decompress(data) if data.startswith(b"x") else data


@pytest.mark.parametrize("sample", rows(), ids=lambda sample: sample["kind"])
def test_a_row_is_read(sample: Sample) -> None:
    assert samples.differs(decoded(sample), sample["values"]) == []


@pytest.mark.parametrize("sample", rows(samples.NEWEST), ids=lambda sample: sample["kind"])
def test_a_row_is_written_as_it_was(sample: Sample) -> None:
    stored, again = samples.raw(sample["stored"]), encoded(decoded(sample))
    assert _plain(again) == _plain(stored)
    assert again.startswith(b"x") == stored.startswith(b"x")


def test_a_large_row_is_among_them() -> None:
    assert any(samples.raw(sample["stored"]).startswith(b"x") for sample in rows(samples.NEWEST))
    assert {sample["kind"] for sample in rows(samples.NEWEST)} == {*RECORDS, "Identity", "Account"}


@pytest.mark.parametrize("sample", stores(samples.NEWEST), ids=lambda sample: str(sample["values"]["ticket"]))
def test_a_transaction_puts_what_it_put(sample: Sample) -> None:
    stated = {key: None if value is None else samples.raw(value) for key, value in sample["puts"].items()}
    made: dict[str, bytes | None] = {}
    for effect in transactions(sample):
        made |= RecordMapping(KEYS).puts(effect)
    assert made == stated


@pytest.mark.parametrize("commit", samples.DIGESTS)
def test_the_next_leader_takes_up_all_of_it(commit: str) -> None:
    values: dict[str, bytes] = {}
    said: dict[str, Any] = {}
    for sample in stores(commit):
        values |= {key: samples.raw(value) for key, value in sample["puts"].items() if value is not None}
        said |= {name: value for name, value in sample["values"].items() if isinstance(value, dict)}
    elected = RecordMapping(KEYS).elected(10, values)
    assert elected.unread == ()
    found = {
        "spec": elected.specs,
        "state": elected.states,
        "generation": elected.generations,
        "checkpoint": elected.checkpoints,
        "marks": elected.marks,
        "lemon" if "lemon" in said else "history": elected.lemons,  # the field's name since writes are apart
    }
    assert {name: [samples.differs(each, said[name]) for each in some] for name, some in found.items()} == {
        name: [[]] for name in found
    }
    assert elected.nodes == ("n2",)  # n1 was lost
    assert values[KEYS.latest("j")] == b"8-2"
    places = {
        place.node: (place.state, place.reason, place.address, place.domain) for place in elected.places
    }
    assert places == {"n1": ("lost", "it is silent", "h", "r1"), "n2": ("up", "", "", "")}
