"""Every number that comes from outside, or goes into etcd, has its bounds; what breaks them is named."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from controlplane.core import view
from controlplane.core.checkpoint.adopting import GENERATION_ADOPTED_MAX, STEP_ADOPTED_MAX
from controlplane.core.records import model
from controlplane.core.records.effects import StoreCheckpoint
from controlplane.core.records.events import JobSubmitted, StoreFailed
from controlplane.core.rows import HealthRow
from controlplane.daemon.etcd.keyspace import Keyspace
from controlplane.daemon.leadership.recorder import StoreWriter
from controlplane.daemon.leadership.rows import RecordMapping
from controlplane.daemon.telemetry.metrics import Metrics
from controlplane.wire import bounds, codec
from controlplane.wire import control_pb2 as pb
from controlplane.wire.control_pb2_grpc import AdminStub
from controlplane.wire.records import pack
from controlplane.wire.shape import WireError, shapes_of
from tests.core.make import record, spec
from tests.daemon.rig import until
from tests.security.serving import Kept
from tests.transcripts.language import Play
from tests.wire.test_codec import FROM_AGENTS, sample

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.daemon.rig import Coordinator

HUGE = (1 << 63) - 1
STORED = [
    model.JobSpec, model.JobState, model.Generation, model.CheckpointRecord, model.LemonRecord,
    model.NodeMarks,
]  # fmt: skip


def _numbers(kind: type) -> list[tuple[type, str]]:
    """Every number in a record, however deep: the record that has it, and its name."""
    found = []
    for shape in shapes_of(kind):
        if shape.is_record:
            found += _numbers(shape.kind)
        elif shape.kind in (int, float) or (shape.is_pair and {int, float} & set(shape.kind)):
            found.append((kind, shape.name))
    return found


EVERY = sorted(
    {(kind.__name__, name) for record_ in (*FROM_AGENTS, *STORED) for kind, name in _numbers(record_)}
)


@pytest.mark.parametrize(("kind", "name"), EVERY)
def test_every_number_has_its_bounds(kind: str, name: str) -> None:
    """A new field without a row fails here."""
    found = bounds.of(kind, name)
    for bound in (found,) if isinstance(found, bounds.Bound) else found:
        assert bound is None or (bound.least <= bound.most and math.isfinite(bound.most))


@pytest.mark.parametrize("kind", STORED)
def test_no_record_goes_into_etcd_with_a_number_out_of_bounds(kind: type) -> None:
    for field in dataclasses.fields(kind):
        if type(value := getattr(sample(kind), field.name)) in (int, float):
            for wrong in (HUGE, -HUGE, math.nan, math.inf):
                changed = dataclasses.replace(sample(kind), **{field.name: wrong})
                with pytest.raises(WireError, match=rf"{kind.__name__}\.{field.name} .* is invalid: give"):
                    bounds.check(changed)
                assert value != wrong


def test_what_no_leader_to_come_would_read_is_not_written_and_is_told() -> None:
    kept, said = Kept(), list[Any]()
    recorder = StoreWriter(kept, RecordMapping(Keyspace("c")), said.append, 1, Metrics("0"))
    recorder.add(StoreCheckpoint("j", record(100, HUGE), ticket=7, term=1))
    reason = f"CheckpointRecord.generation {HUGE} is invalid: give 0 to 2000000000"
    assert said == [StoreFailed(7, reason)]
    assert not kept.values


def test_a_number_of_a_seat_of_a_generation_is_looked_at_too() -> None:
    stage = Play()
    stage.do("elect", "hello a", "submit nodes=1 nproc=1", "stored")
    generation = stage.etcd.generations["j"]
    seat = dataclasses.replace(generation.seats[0], rank=HUGE)
    with pytest.raises(WireError, match=r"Placement\.rank"):
        bounds.check(dataclasses.replace(generation, seats=(seat,)))


def test_what_is_taken_up_from_a_storage_leaves_a_job_room_to_count_on() -> None:
    stage = Play()
    stage.do("elect", "hello a")
    for step, number in ((STEP_ADOPTED_MAX + 1, 1), (100, GENERATION_ADOPTED_MAX + 1)):
        found = record(step, number)
        with pytest.raises(WireError, match="is invalid"):
            codec.found_from(codec.row_message(found))
        lines = stage.do(f"found {found.id}")
        assert [line for line in lines if "runs out of numbers" in line]
    assert not stage.etcd.checkpoints


def test_a_row_that_no_message_can_hold_hides_no_other() -> None:
    stage = Play()
    stage.do("elect", "hello a", "hello b", "submit nodes=2 nproc=1", "stored")
    good = view.jobs(stage.cluster, 0.0)[0]
    bad = dataclasses.replace(good, job="other", generation=1 << 63)
    rows = {"jobs": (good, bad), "nodes": view.nodes(stage.cluster, 0.0)}
    reply = codec.status_message("c", 1, "h:1", rows | {"health": HealthRow("healthy", (), ())})
    assert [row.job for row in reply.jobs] == ["j"] and len(reply.nodes) == 2
    assert reply.health.level == "degraded"
    (told,) = reply.health.reasons
    assert told.startswith("jobs: other cannot be shown: JobRow cannot hold generation 9223372036854775808")
    assert list(reply.health.jobs) == ["other"]


def _poisoned() -> tuple[Keyspace, dict[str, bytes]]:
    """Two jobs in etcd; one checkpoint of the first, and the generation of the second, cannot be."""
    keys = Keyspace("c")
    values: dict[str, bytes] = {}
    for name in ("mine", "other"):
        values[keys.spec(name)] = pack(spec(job=name))
        values[keys.state(name)] = pack(model.JobState(name, model.JobPhase.RUNNING, "it trains"))
    resume = model.Resume(model.Tier.FRESH, 0)
    values[keys.checkpoint("mine", 100, 1)] = pack(record(100, job="mine"))
    values[keys.checkpoint("mine", 100, HUGE)] = pack(record(100, HUGE, job="mine"))
    values[keys.generation("other")] = pack(model.Generation("other", HUGE, 1, (), "", "", resume, ""))
    values[keys.node("n1")] = b'{"v": 1, "node": "n1", "state": "up", "cordoned": "x", "drain_by_s": NaN}'
    values[keys.node("n2")] = b"no JSON"
    return keys, values


def test_what_a_leader_cannot_read_it_names_and_goes_on_with_the_rest() -> None:
    keys, values = _poisoned()
    elected = RecordMapping(keys).elected(1, values)
    assert [each.job for each in elected.specs] == ["mine"]
    assert [each.id for each in elected.checkpoints] == ["100-1"]
    unread = {row.key: row for row in elected.unread}
    assert set(unread) == {
        keys.checkpoint("mine", 100, HUGE), f"{keys.jobs}other/", keys.node("n1"), keys.node("n2"),
    }  # fmt: skip
    assert [row.job for row in elected.unread if row.whole] == ["other"]
    stage = Play()
    stage.feed(elected)
    stage.do("wait 5")
    health = view.health(stage.cluster, stage.now)
    assert health.level == "degraded"
    for key, row in unread.items():
        (told,) = [reason for reason in health.reasons if reason.startswith(f"{key}: ")]
        assert row.reason in told and "repair the row, or delete it" in told
    (refused,) = [line for line in _submitted(stage, "other") if "submission_refused" in line]
    assert "cannot be read" in refused
    assert not [line for line in _submitted(stage, "third") if "submission_refused" in line]


def test_what_a_spec_holds_is_not_told_when_it_cannot_be_read() -> None:
    """A value of its environment may be a secret."""
    keys = Keyspace("c")
    torn = pack(spec(job="j", env=(("TOKEN", "hunter2hunter2"),))).replace(b'["TOKEN",', b"[")
    (row,) = RecordMapping(keys).elected(1, {keys.spec("j"): torn}).unread
    assert row.reason.startswith("spec: JobSpec.env") and "hunter2" not in row.reason


def _submitted(stage: Play, name: str) -> list[str]:
    stage.lines = []
    stage.feed(JobSubmitted(spec(job=name)))
    return stage.lines


async def _asked(address: str, method: str, request: Any) -> Any:
    async with grpc.aio.insecure_channel(address) as channel:
        return await getattr(AdminStub(channel), method)(request, timeout=20)  # type: ignore[no-untyped-call]


@pytest.mark.process
async def test_an_adopted_checkpoint_of_a_nonsense_generation_breaks_nobodys_status(
    make: Callable[..., Coordinator], cluster: str
) -> None:
    """An operator of one job broke Status for the whole cluster by it, for good."""
    one = await make().start()
    await one.leads()
    wrong = codec.row_message(record(100, job="mine"))
    wrong.generation, wrong.id, wrong.base = HUGE, f"100-{HUGE}", f"100-{HUGE}"
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await _asked(one.listen, "Adopt", pb.AdoptRequest(job="mine", records=[wrong]))
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "CheckpointRecord.generation 9223372036854775807 is invalid" in (refused.value.details() or "")
    mine = codec.spec_message(spec(job="mine", cwd="/"))
    await _asked(one.listen, "Submit", pb.SubmitRequest(spec=mine))
    reply = await _asked(one.listen, "Status", pb.StatusRequest())
    assert [row.job for row in reply.jobs] == ["mine"] and not reply.checkpoints
    two = await make(name="b").start()
    one.kill()
    await two.leads()
    await until(lambda: two.samples()["holdfast_leader"] == 1)
    reply = await _asked(two.listen, "Status", pb.StatusRequest())
    assert [row.job for row in reply.jobs] == ["mine"]
