"""A job's account of its time outlives its leader: goodput does not jump when another one takes over."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from controlplane.cli.questions.documents import shown
from controlplane.cli.questions.tables import JOBS
from controlplane.core.records import effects, events
from controlplane.core.records.model import JobPhase, JobSpec, JobState
from controlplane.daemon.etcd.keyspace import Keyspace
from controlplane.daemon.leadership import accounts
from controlplane.daemon.telemetry.metrics import Metrics
from controlplane.daemon.telemetry.observer import Observer
from controlplane.wire import codec
from controlplane.wire import control_pb2 as pb
from tests.daemon.rig import until
from tests.security.authority import CLUSTER
from tests.security.serving import Kept, asked, leading, serving

if TYPE_CHECKING:
    from collections.abc import Mapping

    from controlplane.daemon.telemetry.job_time import Account

KEYS = Keyspace("c")


class Disk:
    """Keeps what is committed, as etcd would."""

    def __init__(self) -> None:
        self.rows: dict[str, bytes] = {}
        self.commits = 0

    async def commit(self, term: int, puts: Mapping[str, bytes | None]) -> int:
        self.commits += 1
        self.rows |= {key: value for key, value in puts.items() if value is not None}
        return term


def trained(observer: Observer, clock: list[float]) -> Account:
    """A job that waited for 100 s and trained for 300 s."""
    observer.event(events.JobSubmitted(JobSpec("j", ("train.py",), "/")))
    clock[0] += 100.0
    observer.effect(effects.JobChanged(JobState("j", JobPhase.RUNNING, "")))
    clock[0] += 300.0
    seen = observer._jobs["j"]
    seen.account.add(clock[0], seen.times.take(clock[0]))
    return seen.account


async def test_the_next_leader_goes_on_with_the_account() -> None:
    clock, disk = [1000.0], Disk()
    first = Observer(Metrics("0"), lambda: clock[0], lambda: clock[0])
    account = trained(first, clock)
    assert (account.total.productive_s, account.total.lost_s) == (300.0, {"waiting": 100.0})
    keeper = accounts.saver(disk, KEYS, 1, first)
    await keeper.keep()
    await keeper.keep()
    assert disk.commits == 1, "what has not changed is not written again"

    found = accounts.read(KEYS, disk.rows | {KEYS.spec("j"): b"no matter"})
    second = Observer(Metrics("0"), lambda: clock[0], lambda: clock[0], found)
    spec, state = JobSpec("j", ("train.py",), "/"), JobState("j", JobPhase.RUNNING, "")
    second.event(events.Elected(2, specs=(spec,), states=(state,)))
    taken = second.account("j")
    assert taken is not None and taken.row() == account.row()


async def test_a_job_without_a_saved_account_is_not_taken_for_a_young_one() -> None:
    """The leader that took it died before it saved anything: how old it is, no leader knows any more."""
    clock, disk = [1000.0], Disk()
    spec, state = JobSpec("j", ("train.py",), "/"), JobState("j", JobPhase.RUNNING, "")
    found: dict[str, Account] = {}
    for term in (2, 3):
        observer = Observer(Metrics("0"), lambda: clock[0], lambda: clock[0], found)
        observer.event(events.Elected(term, specs=(spec,), states=(state,)))
        account = observer.account("j")
        assert account is not None and account.late
        await accounts.saver(disk, KEYS, term, observer).keep()
        found = accounts.read(KEYS, disk.rows | {KEYS.spec("j"): b"no matter"})
        assert found["j"].late
    observer.event(events.JobSubmitted(JobSpec("k", ("train.py",), "/")))
    young = observer.account("k")
    assert young is not None and not young.late
    async with serving() as served, leading(served.front, events.Elected(1, specs=(spec,))) as leads:
        await until(lambda: leads.core.term)
        (row,) = leads.status("").jobs
        assert row.age_s == 0 and shown("table", JOBS, leads.status("")).splitlines()[1].count(" -  ")


async def test_the_account_of_a_new_job_is_saved_with_it() -> None:
    async with serving(leads=True) as served:
        leads = served.front.leader_term
        assert leads is not None
        spec = JobSpec("j", ("train.py",), "/")
        await asked(served.address, "Submit", pb.SubmitRequest(spec=codec.spec_message(spec)))
        kept = leads._savers[0]._store
        assert isinstance(kept, Kept)
        keys = Keyspace(CLUSTER)
        assert not accounts.unpacked(kept.values[keys.account("j")]).late
        (row,) = leads.status("").jobs
        assert row.age_s > 0


@pytest.mark.parametrize(
    "value",
    [b"", b"[]", b"{}", b'{"since_s":1,"productive_s":-1,"lost_s":{}}',
     b'{"since_s":1,"productive_s":1,"lost_s":{"x":NaN}}', b'{"since_s":1,"productive_s":1,"lost_s":7}'],
)  # fmt: skip
def test_an_account_that_cannot_be_read_begins_anew(value: bytes) -> None:
    rows = {KEYS.account("j"): value, KEYS.spec("j"): b"no matter", KEYS.account("k"): _good()}
    rows[KEYS.spec("k")] = b"no matter"
    assert list(accounts.read(KEYS, rows)) == ["k"]


def _good() -> bytes:
    return b'{"v":1,"since_s":1.0,"productive_s":2.0,"lost_s":{"waiting":3.0}}'
