"""The largest job there may be: what etcd, the wire and a rank's socket hold of it."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest

from agent.deciding.member import LocalMember
from agent.host.paths import Paths
from agent.ranks.forms import form_message
from controlplane.core.records.effects import Form
from controlplane.core.records.model import (
    CheckpointRecord,
    Generation,
    JobSpec,
    MemberPhase,
    MemberStatus,
    Placement,
    Resume,
    Source,
    Tier,
)
from controlplane.daemon.etcd.keyspace import MAX_VALUE_BYTES
from controlplane.daemon.server.admin import RANKS_MAX, check_spec
from controlplane.settings import SettingsError
from controlplane.wire import codec
from controlplane.wire.records import LARGE_BYTES, pack, spell, unpack
from controlplane.wire.shape import WireError
from holdfast.ipc.frames import FORM_BYTES_MAX, Decoder, FrameError, encode

NPROC = 8
JOB = "llama-405b-pretraining"


def generation(ranks: int = RANKS_MAX) -> Generation:
    """Every rank holds a shard of its own, and each is read from a partner's memory."""
    seats = tuple(
        Placement(rank, f"{JOB}.{rank}", f"gpu-pool-a-{rank // NPROC:05}.cluster.internal", rank % NPROC)
        for rank in range(ranks)
    )
    sources = tuple(
        Source(f"{rank:05}/{ranks}-{rank * 2654435761 % 2**32:08x}", Tier.PEER, rank, f"{JOB}.{rank}")
        for rank in range(ranks)
    )
    resume = Resume(Tier.PEER, 123_456, reason="a node is lost", sources=sources, born=41)
    return Generation(JOB, 42, 7, seats, "10.0.0.1:29400", "10.0.0.1:29401", resume, "node gpu is lost")


def test_its_generation_fits_into_one_value_of_etcd() -> None:
    found = generation()
    packed = pack(found)
    assert len(spell(found)) > MAX_VALUE_BYTES > len(packed)
    assert unpack(Generation, packed) == found


def test_its_checkpoint_fits_too() -> None:
    versions = tuple((rank, 123_456) for rank in range(RANKS_MAX))
    shards = tuple(source.shard for source in generation().resume.sources)
    record = CheckpointRecord(
        JOB, "123456-42", 123_456, 42, "full", "123456-42", "ab" * 32, 1 << 42, 1 << 42,
        versions, shards=shards,
    )  # fmt: skip
    assert len(pack(record)) < MAX_VALUE_BYTES
    assert unpack(CheckpointRecord, pack(record)) == record


def test_the_wire_and_the_ranks_socket_hold_it() -> None:
    found = generation()
    order = codec.to_agent(Form(found.seats[0].node, found), 7)
    assert order.ByteSize() < codec.MESSAGE_BYTES_MAX
    seat = found.seats[-1]
    member = LocalMember(MemberStatus(seat.member, JOB, MemberPhase.READY, elastic=True, rank=seat.rank))
    form = form_message(member, found, "job/1", Paths(Path("/run"), Path("/shm")))
    frame = encode(form.encode(), bytes_max=FORM_BYTES_MAX)
    (message,) = Decoder(bytes_max=FORM_BYTES_MAX).feed(frame)
    assert message["generation"]["world_size"] == RANKS_MAX
    with pytest.raises(FrameError, match="over the limit"):
        Decoder().feed(frame)  # a rank may not say so much


def test_one_rank_more_is_refused_when_it_is_submitted() -> None:
    nodes = RANKS_MAX // NPROC
    check_spec(JobSpec(JOB, ("t.py",), "/", (), nodes, nodes, NPROC))
    with pytest.raises(SettingsError, match=f"{RANKS_MAX} at most"):
        check_spec(JobSpec(JOB, ("t.py",), "/", (), nodes, nodes + 1, NPROC))


def test_small_records_stay_readable_and_spoilt_ones_are_named() -> None:
    small = generation(8)
    assert pack(small) == spell(small)
    large = pack(generation(LARGE_BYTES // 100))
    for spoilt in (large[:-9], large[:40] + b"\0" + large[41:], b"x", zlib.compress(b"[" * 10_000)):
        with pytest.raises(WireError, match="Generation"):
            unpack(Generation, spoilt)
