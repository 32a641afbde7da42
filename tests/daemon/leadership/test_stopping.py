"""The end of a server and of a leader term, and what callers at that moment get."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from controlplane.cli.client import AdminClient
from controlplane.cli.orders.follow import until_end
from controlplane.core.records import events
from controlplane.core.records.effects import StoreJob
from controlplane.core.records.model import JobPhase, JobSpec, JobState
from controlplane.core.records.timing import CoreSettings
from controlplane.daemon.etcd.errors import EtcdUnavailable, ValueTooLarge
from controlplane.daemon.etcd.keyspace import Keyspace
from controlplane.daemon.journal.journal import Journal
from controlplane.daemon.leadership.leader_term import LeaderTerm
from controlplane.daemon.leadership.recorder import StoreWriter
from controlplane.daemon.leadership.rows import RecordMapping
from controlplane.daemon.server.admin import check_spec
from controlplane.daemon.server.ports import stop_within
from controlplane.daemon.telemetry.metrics import Metrics
from controlplane.settings import SettingsError
from tests.daemon.rig import until
from tests.daemon.test_parts import Disk

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.daemon.rig import Coordinator

SPEC = JobSpec("job", ("train.py",), "/")


class Picky(Disk):
    """Takes no value of more than 500 bytes."""

    async def commit(self, term: int, puts: Mapping[str, bytes | None]) -> int:
        if any(len(value or b"") > 500 for value in puts.values()):
            raise ValueTooLarge("the value has too many bytes")
        return await super().commit(term, puts)


async def test_a_server_whose_stop_hangs_does_not_hold_up_the_end() -> None:
    asked: list[float | None] = []
    freed = asyncio.Event()

    async def stop(grace_s: float | None) -> None:
        asked.append(grace_s)
        await freed.wait()

    async with asyncio.timeout(30):
        assert not await stop_within(stop, 0.1)
    assert asked == [0.1, None]
    freed.set()
    assert await stop_within(stop, 0.1)


async def _leader_term(disk: Disk) -> tuple[LeaderTerm, asyncio.Task[None]]:
    leader_term = LeaderTerm(
        "c", CoreSettings(), events.Elected(1), store=disk, records=RecordMapping(Keyspace("c")),
        journal=Journal(), metrics=Metrics("0"), held=lambda: True,
    )  # fmt: skip
    return leader_term, asyncio.create_task(leader_term.run())


async def _end(running: asyncio.Task[None]) -> None:
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_nobody_is_told_that_a_fenced_leader_took_the_job() -> None:
    disk = Disk()
    leader_term, running = await _leader_term(disk)
    leader_term.post(events.NodeJoined("a", 1, "l", "a", 8, 1))
    await until(lambda: disk.commits)
    leader_term.post(events.StoreFailed(99, "another leads", fenced=True))
    assert "no longer leads" in await leader_term.settle(events.JobSubmitted(SPEC))
    await _end(running)


async def test_a_job_submitted_again_is_acknowledged_only_once_etcd_holds_it() -> None:
    disk = Disk()
    disk.gate.clear()
    leader_term, running = await _leader_term(disk)
    first = asyncio.create_task(leader_term.settle(events.JobSubmitted(SPEC)))
    await asyncio.sleep(0)
    second = asyncio.create_task(leader_term.settle(events.JobSubmitted(SPEC)))
    done, _ = await asyncio.wait([first, second], timeout=0.3)
    assert not done
    disk.gate.set()
    assert [await first, await second] == ["", ""]
    await _end(running)


async def test_an_etcd_that_is_away_is_told_at_once_although_more_waits_behind() -> None:
    disk = Disk()
    disk.trouble = EtcdUnavailable("etcd is away")
    leader_term, running = await _leader_term(disk)
    leader_term.post(events.NodeJoined("a", 1, "l", "a", 8, 1))
    async with asyncio.timeout(20):
        assert await leader_term.settle(events.JobSubmitted(SPEC)) == "etcd is away"
    assert len(leader_term.core.unstored("job")) == 2
    await _end(running)


async def test_one_value_that_etcd_never_takes_does_not_hold_up_the_others() -> None:
    disk = Picky()
    metrics = Metrics("0")
    said: list[events.Event] = []
    recorder = StoreWriter(disk, RecordMapping(Keyspace("c")), said.append, 1, metrics)
    for ticket in (1, 2, 3):
        reason = "x" * 1000 if ticket == 1 else ""
        state = JobState(f"j{ticket}", JobPhase.PENDING, reason)
        recorder.add(StoreJob(state.job, state, ticket=ticket, term=1))
    running = asyncio.create_task(recorder.run())
    await until(lambda: len(said) == 3)
    assert [type(event) for event in said] == [events.StoreFailed, events.Stored, events.Stored]
    await _end(running)


def test_a_job_too_large_for_etcd_is_refused() -> None:
    check_spec(SPEC)
    with pytest.raises(SettingsError, match="put long values into a file"):
        check_spec(replace(SPEC, env=(("A", "x" * 200_000),)))


async def test_an_end_that_the_journal_does_not_tell_is_seen_all_the_same(
    shared_coordinator: Coordinator,
) -> None:
    async with AdminClient(shared_coordinator.listen) as admin:
        await admin.submit(SPEC)
        await admin.stop(SPEC.job, "enough")
        async with asyncio.timeout(30):
            ending = await until_end(admin, SPEC.job, time.time() + 1000.0, lambda line: None)
    assert (ending.phase, ending.reason) == ("stopped", "enough")
