"""Parts of the shell by themselves: effects' table, a link's bound, the loop's end, records, identity."""

from __future__ import annotations

import asyncio
import json
import math
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import grpc
import pytest

from controlplane.core.records import effects, events
from controlplane.core.records.effects import (
    STORES,
    Effect,
    ForgetCheckpoints,
    Note,
    StoreCheckpoint,
    StoreJob,
    StoreNode,
)
from controlplane.core.records.model import (
    CheckpointRecord,
    Generation,
    JobPhase,
    JobSpec,
    JobState,
    NodeMarks,
    NodePlace,
)
from controlplane.core.records.notes import NoteKind
from controlplane.core.records.timing import CoreSettings
from controlplane.daemon.coordinator import core_settings
from controlplane.daemon.etcd.errors import EtcdUnavailable, Fenced
from controlplane.daemon.etcd.keyspace import Keyspace
from controlplane.daemon.journal.journal import Journal
from controlplane.daemon.leadership.identity import Identity
from controlplane.daemon.leadership.recorder import StoreWriter
from controlplane.daemon.leadership.rows import RecordMapping
from controlplane.daemon.leadership.standby import why_over
from controlplane.daemon.loop.dispatch import CoordinatorDispatcher
from controlplane.daemon.loop.stepping import BACKLOG_MAX, Loop, TermOver
from controlplane.daemon.server.links import ORDERS_WAITING_MAX, AgentLink, Links
from controlplane.daemon.telemetry.metrics import Metrics
from controlplane.settings import CoordinatorSettings, SettingsError, host_port
from controlplane.wire import codec
from tests.wire.test_codec import sample

if TYPE_CHECKING:
    from collections.abc import Mapping

    from controlplane.core.records.events import Event


class Disk:
    """Keeps values, as etcd does; while `trouble` is set it takes none, while `gate` is closed it waits."""

    def __init__(self) -> None:
        self.values: dict[str, bytes | None] = {}
        self.commits: list[int] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.trouble: Exception | None = None

    async def commit(self, term: int, puts: Mapping[str, bytes | None]) -> int:
        await self.gate.wait()
        if self.trouble is not None:
            raise self.trouble
        self.values.update(puts)
        self.commits.append(len(puts))
        return len(self.commits)


def _store(ticket: int) -> StoreJob:
    state = JobState(f"j{ticket}", JobPhase.PENDING, "")
    return StoreJob(state.job, state, ticket=ticket, term=1)


async def _until_over(task: asyncio.Task[None]) -> BaseException | None:
    await asyncio.wait([task])
    return task.exception()


def _recorder(disk: Disk) -> tuple[StoreWriter, list[Event]]:
    said: list[Event] = []
    return StoreWriter(disk, RecordMapping(Keyspace("c")), said.append, 1, Metrics("0")), said


async def test_every_effect_has_someone_who_carries_it_out() -> None:
    metrics = Metrics("0")
    links = Links(metrics)
    recorder = StoreWriter(Disk(), RecordMapping(Keyspace("c")), lambda event: None, 1, metrics)
    performer = CoordinatorDispatcher(links, recorder, metrics, lambda term: codec.welcome("c", 1.0, term))
    assert set(performer.table) == set(get_args(Effect))
    for kind in get_args(Effect):
        performer.perform(sample(kind) if kind not in STORES else _store(1))


async def test_a_record_that_has_no_key_is_answered_and_ends_nothing() -> None:
    recorder, said = _recorder(Disk())
    recorder.add(StoreNode("no/slash", "up", "", "", "", ticket=5))
    assert [type(event).__name__ for event in said] == ["StoreFailed"]


async def test_an_order_that_cannot_be_told_ends_nothing() -> None:
    metrics = Metrics("0")
    links = Links(metrics)
    link = AgentLink("n1", 1)
    links.expect(link)
    links.admit("n1", 1, codec.welcome("c", 1.0, 1))
    links.send("n1", effects.Kill("n1", "j", "j.1", "\ud800"), 1)
    assert link.orders.qsize() == 1 and not link.cut.is_set()


def test_the_core_gets_its_share_of_the_settings() -> None:
    settings = CoordinatorSettings(node_timeout_s=11, retry_s=0.5, join_grace_s=3)
    core = core_settings(settings)
    assert (core.node_timeout_s, core.retry_s, core.join_grace_s) == (11, 0.5, 3)
    assert core.long_retry_s == CoreSettings().long_retry_s


@pytest.mark.parametrize("text", ["", "7070", ":7070", "host:", "host:x", "host:70700", "host:-1", "host:٣"])
def test_addresses_that_are_none(text: str) -> None:
    with pytest.raises(SettingsError, match="--listen"):
        host_port("--listen", text)
    assert host_port("--listen", "[::1]:7") == ("::1", 7)


async def test_an_agent_that_takes_nothing_is_cut_off() -> None:
    link = AgentLink("n1", 1)
    message = codec.to_agent(effects.Release("n1", "j", 1), 1)
    assert all(link.send(message) for _ in range(ORDERS_WAITING_MAX))
    assert not link.send(message)
    assert link.cut.is_set() and link.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    link.finish(message)
    assert link.orders.qsize() == ORDERS_WAITING_MAX + 2


async def test_what_waits_goes_into_one_transaction_in_order() -> None:
    disk = Disk()
    recorder, said = _recorder(disk)
    task = asyncio.create_task(recorder.run())
    disk.gate.clear()
    for ticket in range(1, 101):
        recorder.add(_store(ticket))
        await asyncio.sleep(0)
    answer = recorder.outcome(100)
    disk.gate.set()
    assert await answer == ""
    assert said == [events.Stored(ticket) for ticket in range(1, 101)]
    assert disk.commits[0] == 1 and len(disk.commits) == 4
    assert await recorder.outcome(100) == ""  # asked after it was written
    task.cancel()
    await _until_over_cancelled(task)


async def _until_over_cancelled(task: asyncio.Task[None]) -> None:
    await asyncio.wait([task])
    assert task.cancelled()


async def test_an_etcd_that_is_away_is_told_for_each_ticket() -> None:
    disk = Disk()
    disk.trouble = EtcdUnavailable("no answer")
    recorder, said = _recorder(disk)
    task = asyncio.create_task(recorder.run())
    answers = [recorder.outcome(ticket) for ticket in (1, 2)]
    for ticket in (1, 2):
        recorder.add(_store(ticket))
    assert [await answer for answer in answers] == ["no answer", "no answer"]
    disk.trouble = None
    recorder.add(_store(3))
    assert await recorder.outcome(3) == ""
    kinds = [type(event).__name__ for event in said]
    assert kinds == ["StoreFailed", "StoreFailed", "Stored"]
    task.cancel()
    await _until_over_cancelled(task)


async def test_fenced_ends_the_recorder_and_what_waits() -> None:
    disk = Disk()
    disk.trouble = Fenced("another leads")
    recorder, said = _recorder(disk)
    for ticket in (1, 2):
        recorder.add(_store(ticket))
    asked = recorder.outcome(2)
    task = asyncio.create_task(recorder.run())
    assert isinstance(await _until_over(task), Fenced)
    assert said == [events.StoreFailed(n, "another leads", fenced=True) for n in (1, 2)]
    assert await asked == "another leads"
    assert "no longer leads" in await recorder.outcome(77)


class Brittle:
    """A core that breaks at a job's submission."""

    settings = CoreSettings()

    def step(self, now: float, event: Event) -> list[Effect]:
        if isinstance(event, events.JobSubmitted):
            raise AssertionError("decisions do not settle")
        return [Note(NoteKind.ADOPTED, "x", type(event).__name__)]

    def next_deadline(self) -> float:
        return math.inf


async def test_a_core_that_breaks_ends_its_term_and_the_journal_says_by_what() -> None:
    journal, done = Journal(), list[Effect]()
    loop = Loop(Brittle(), 7, done.append, journal, Metrics("0"))
    task = asyncio.create_task(loop.run())
    assert await loop.ask(events.Tick()) == [Note(NoteKind.ADOPTED, "x", "Tick")]
    waiting = asyncio.create_task(loop.ask(events.JobSubmitted(JobSpec("j", ("t.py",), "/"))))
    behind = asyncio.create_task(loop.ask(events.Tick()))
    assert isinstance(await _until_over(task), AssertionError)
    for lost in (waiting, behind):
        with pytest.raises(TermOver):
            await lost
    with pytest.raises(TermOver):
        await loop.ask(events.Tick())
    assert [line.text.count("decisions do not settle") for line in journal.lines()][-1] == 1
    assert '"JobSubmitted"' in journal.lines()[-2].text


class Releasing:
    """A core of two ranks on two nodes that each tell of their snapshots."""

    settings = CoreSettings()

    def step(self, now: float, event: Event) -> list[Effect]:
        if isinstance(event, events.SnapshotReady) and event.member == "j.1":
            return [effects.Release(node, "j", event.step) for node in ("a", "b")]
        return []

    def next_deadline(self) -> float:
        return math.inf


async def test_of_a_snapshot_that_all_ranks_have_the_journal_says_so_once() -> None:
    journal, done = Journal(), list[Effect]()
    loop = Loop(Releasing(), 7, done.append, journal, Metrics("0"))
    task = asyncio.create_task(loop.run())
    for step in (10, 20):
        for rank, node in enumerate(("a", "b")):
            await loop.ask(events.SnapshotReady(node, 1, f"j.{rank}", "j", 1, step, 0.0))
    task.cancel()
    told = [json.loads(line.text) for line in journal.lines()]
    assert [(line["type"], line["skipped"], line["body"]["step"]) for line in told] == [
        ("SnapshotReady", 1, 10), ("Release", 0, 10), ("SnapshotReady", 1, 20), ("Release", 0, 20),
    ]  # fmt: skip
    assert len(done) == 4, "each node is told all the same"


async def test_whoever_asked_hears_when_what_was_decided_cannot_be_carried_out() -> None:
    def perform(effect: Effect) -> None:
        raise KeyError(effect)

    loop = Loop(Brittle(), 7, perform, Journal(), Metrics("0"))
    asked = asyncio.create_task(loop.ask(events.Tick()))
    assert isinstance(await _until_over(asyncio.create_task(loop.run())), KeyError)
    with pytest.raises(TermOver):
        async with asyncio.timeout(10):
            await asked


async def test_events_that_wait_are_bounded_however_many_streams_there_are() -> None:
    loop, most, streams = Loop(Brittle(), 7, lambda effect: None, Journal(), Metrics("0")), 0, 300
    for _ in range(BACKLOG_MAX):
        loop.post(events.Tick())

    async def stream() -> None:
        nonlocal most
        for _ in range(20):
            loop.post(events.Tick())
            most = max(most, loop.waiting)
            await loop.room()

    running = asyncio.create_task(loop.run())
    await asyncio.gather(*(stream() for _ in range(streams)))
    running.cancel()
    await _until_over_cancelled(running)
    assert BACKLOG_MAX < most <= BACKLOG_MAX + streams


async def test_a_leader_whose_time_is_over_does_nothing_more() -> None:
    done = list[Effect]()
    loop = Loop(Brittle(), 7, done.append, Journal(), Metrics("0"))
    loop.held = lambda: False
    loop.post(events.Tick())
    assert isinstance(await _until_over(asyncio.create_task(loop.run())), TermOver)
    assert done == []


@pytest.mark.parametrize(
    ("failed", "told", "level"),
    [
        (Fenced("term 7 is over, term 9 leads"), "term 7 is over, term 9 leads", "WARNING"),
        (TermOver(), "this coordinator no longer leads; ask the leader", "WARNING"),
        (KeyError("x"), "failure: KeyError: 'x'", "ERROR"),
    ],
)
def test_only_what_is_our_failure_is_told_as_one(
    failed: Exception, told: str, level: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert why_over(7, ExceptionGroup("", [ExceptionGroup("", [failed])]), "") == told
    (line,) = caplog.records
    assert (line.levelname, line.exc_info is None) == (level, level == "WARNING")


async def test_the_same_note_is_journalled_once_in_a_while() -> None:
    journal = Journal()
    loop = Loop(Brittle(), 7, lambda effect: None, journal, Metrics("0"))
    task = asyncio.create_task(loop.run())
    for _ in range(50):
        await loop.ask(events.Tick())
    assert len(journal.lines()) == 2
    task.cancel()
    await _until_over_cancelled(task)


def test_records_survive_etcd() -> None:
    keys = Keyspace("c")
    spec, state = replace(sample(JobSpec), job="j"), replace(sample(JobState), job="j")
    generation = replace(sample(Generation), job="j")
    old, new = (
        CheckpointRecord("j", f"{step}-1", step, 1, "full", "", "d", 1, 1, ((0, step),)) for step in (5, 9)
    )
    records, values = RecordMapping(keys), dict[str, bytes | None]()
    values |= records.puts(StoreJob("j", state, spec, generation))
    for record in (new, old):
        values |= records.puts(StoreCheckpoint("j", record))
    assert values[keys.latest("j")] == b"9-1"
    values |= records.puts(StoreCheckpoint("j", replace(new, bad="rotten")))
    assert values[keys.latest("j")] == b"5-1"
    forgotten = records.puts(ForgetCheckpoints("j", ("5-1", "7-7")))
    assert forgotten == {keys.checkpoint("j", 5, 1): None, keys.latest("j"): b""}
    assert records.puts(StoreCheckpoint("j", old))[keys.latest("j")] == b"5-1"
    values |= records.puts(StoreNode("n1", "up", "", "h", "r"))
    values |= records.puts(StoreNode("n2", "lost", "silent", "", ""))
    elected = RecordMapping(keys).elected(
        4, {key: value for key, value in values.items() if value is not None}
    )
    assert abs(elected.wall_s - time.time()) < 60
    assert replace(elected, wall_s=0.0) == events.Elected(
        4, ("n1",), (spec,), (state,), (generation,), (old, replace(new, bad="rotten")),
        places=(NodePlace("n1", "up", "", "h", "r"), NodePlace("n2", "lost", "silent")),
    )  # fmt: skip


def test_a_node_record_that_cannot_be_read_is_waited_for_and_told_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    keys, records = Keyspace("c"), RecordMapping(Keyspace("c"))
    marks = NodeMarks("n2", "by hand", (("gpu0", "hot"),))
    store = StoreNode("n2", "up", "", "", "", marks)
    values: dict[str, bytes] = {key: value for key, value in records.puts(store).items() if value is not None}
    bad = {"n0": b"{torn", "n1": b"[1]", "n3": b'{"state": "up", "cordoned": "x", "devices": 7}'}
    elected = records.elected(4, values | {keys.node(name): value for name, value in bad.items()})
    assert elected.nodes == ("n0", "n1", "n2", "n3")
    assert elected.marks == (marks,)
    assert elected.places == (NodePlace("n2", "up"), NodePlace("n3", "up"))
    told = [line.getMessage().split(": ")[:2] for line in caplog.records]
    waited = [
        [f"{keys.node(name)} in etcd cannot be read", "a record of a node that is not a JSON object"]
        for name in ("n0", "n1")
    ]
    assert told == [*waited, [f"{keys.node('n3')} in etcd cannot be read", "its marks"]]
    assert [row.key for row in elected.unread] == [keys.node(name) for name in bad]


def test_who_is_dead() -> None:
    own = Identity.own("h:1", "", CoordinatorSettings(retry_s=2.0))
    assert Identity.of(own.to_bytes()) == own
    assert own.unlike(Identity.own("h:2", "", CoordinatorSettings())) == ["--retry-s 2.0 (there 1.0)"]
    assert own.unlike(replace(own, settings=())) == [], "an earlier version does not say its settings"
    assert not own.is_dead()
    assert replace(own, born=own.born + 1).is_dead()  # the pid is someone else's now
    assert not replace(own, boot="another machine", born=0).is_dead()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        fields = Path(f"/proc/{child.pid}/stat").read_text().rsplit(")", 1)[1].split()
        other = replace(own, pid=child.pid, born=int(fields[19]))
        assert not other.is_dead()
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert other.is_dead()  # only its remains are there
    assert Identity.of(b"host:1") is None
