"""One leader at a time: candidates are killed, stopped, resign, and lose their etcd."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from controlplane.daemon.etcd.election import Election, Leadership
from controlplane.daemon.etcd.errors import Fenced
from controlplane.daemon.etcd.lease_keeper import Act, next_act
from controlplane.daemon.etcd.rows import modified_at
from controlplane.daemon.etcd.store import RecordStore
from tests.daemon.etcd_fixtures import client_of, first, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from controlplane.daemon.etcd.client import Etcd
    from controlplane.daemon.etcd.keyspace import Keyspace
    from controlplane.daemon.etcd.server import PrivateEtcd


@asynccontextmanager
async def candidate(
    endpoint: str, keys: Keyspace, name: str, ttl_s: float
) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.daemon.etcd.etcd_candidate", endpoint, keys.cluster, name, str(ttl_s)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert await says(process) == "standing"
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        assert process.stdin is not None and process.stdout is not None
        process.stdin.close()
        await process.stdout.read()
        await process.wait()


async def says(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    return (await first(process.stdout.readline(), 30.0)).decode().strip()


async def test_the_term_is_where_the_leader_key_was_created(etcd: Etcd, keys: Keyspace) -> None:
    election = Election(etcd, keys, b"here:7070")
    assert await election.leader() is None
    async with await first(election.campaign()) as leadership:
        row = await election.leader()
        assert row is not None and row.value == b"here:7070"
        assert (leadership.term, leadership.held) == (row.create_revision, True)
        assert 0 < leadership.remaining_s() < 9.01
        assert leadership.valid_until() - etcd.clock() <= 10
    assert await election.leader() is None
    assert leadership.lost.is_set() and leadership.reason == "resigned" and not leadership.held


async def test_of_many_candidates_one_leads_and_each_resign_passes_it_on(etcd: Etcd, keys: Keyspace) -> None:
    waiting = {asyncio.create_task(Election(etcd, keys, b"%d" % n).campaign()) for n in range(5)}
    terms: list[int] = []
    while waiting:
        done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED, timeout=20)
        assert len(done) == 1, "one winner at a time"
        leadership = done.pop().result()
        terms.append(leadership.term)
        await leadership.resign()
    assert terms == sorted(set(terms)) and len(terms) == 5


async def test_a_leader_process_killed_is_replaced_when_its_lease_runs_out(
    etcd_server: PrivateEtcd, keys: Keyspace
) -> None:
    async with (
        candidate(etcd_server.endpoint, keys, "first", 2) as leader,
        candidate(etcd_server.endpoint, keys, "second", 2) as standby,
    ):
        terms = {leader: asyncio.create_task(says(leader)), standby: asyncio.create_task(says(standby))}
        await asyncio.wait(terms.values(), return_when=asyncio.FIRST_COMPLETED)
        (winner,) = [process for process, term in terms.items() if term.done()]
        (other,) = terms.keys() - {winner}
        winner.kill()
        old, new = await terms[winner], await terms[other]
        assert old.startswith("term ") and int(new.split()[1]) > int(old.split()[1])


async def test_a_resigned_leader_is_replaced_long_before_its_lease_would_run_out(
    etcd: Etcd, etcd_server: PrivateEtcd, keys: Keyspace
) -> None:
    async with candidate(etcd_server.endpoint, keys, "first", 60) as leader:
        old = await says(leader)
        waiting = asyncio.create_task(Election(etcd, keys, b"second").campaign())
        assert leader.stdin is not None
        leader.stdin.write(b"resign\n")
        async with await first(waiting, timeout_s=20) as leadership:
            assert leadership.term > int(old.split()[1])
        assert await says(leader) == "lost resigned"


async def test_a_stopped_leader_is_replaced_and_learns_it_when_it_wakes(
    etcd: Etcd, etcd_server: PrivateEtcd, keys: Keyspace
) -> None:
    async with candidate(etcd_server.endpoint, keys, "first", 2) as leader:
        old = int((await says(leader)).split()[1])
        os.kill(leader.pid, signal.SIGSTOP)
        async with await first(Election(etcd, keys, b"second", ttl_s=30).campaign()) as leadership:
            os.kill(leader.pid, signal.SIGCONT)
            told = await says(leader)
            assert told.startswith("lost this coordinator stood still for "), told
            assert leadership.held and leadership.term > old


async def test_a_leader_without_etcd_steps_down_before_its_lease_runs_out(
    own_server: PrivateEtcd, keys: Keyspace
) -> None:
    async with client_of(own_server.endpoint) as etcd:
        leadership = await first(Election(etcd, keys, b"me", ttl_s=2).campaign())
        os.kill(own_server.pid, signal.SIGSTOP)
        try:
            await first(leadership.lost.wait())
            assert etcd.clock() < leadership.valid_until() + 0.5
            assert leadership.reason == "etcd answered no keepalive for 1.8 s"
        finally:
            os.kill(own_server.pid, signal.SIGCONT)
        await leadership.resign()


async def test_a_loop_with_too_much_to_do_loses_no_lease(etcd: Etcd, keys: Keyspace) -> None:
    """Its turns take longer than etcd may take for an answer, for several TTLs."""
    async with await first(Election(etcd, keys, b"me", ttl_s=2).campaign()) as leadership:
        granted = leadership.valid_until()
        while etcd.clock() < granted + 4:
            time.sleep(0.7)  # noqa: ASYNC251 - that is what is tested
            await asyncio.sleep(0)
        assert leadership.held and not leadership.lost.is_set()
        await RecordStore(etcd, keys).commit(leadership.term, {keys.meta: b"1"})


async def test_a_loop_that_turns_no_more_is_replaced_and_learns_it(
    etcd: Etcd, etcd_server: PrivateEtcd, keys: Keyspace
) -> None:
    leadership = await first(Election(etcd, keys, b"me", ttl_s=2).campaign())
    async with candidate(etcd_server.endpoint, keys, "second", 60) as standby:
        told = threading.Thread(target=_wait_for_leader, args=(etcd_server.endpoint, keys))
        told.start()
        told.join(20)  # the whole loop waits
        assert not leadership.held
        assert int((await says(standby)).split()[1]) > leadership.term
        await first(leadership.lost.wait())
    await leadership.resign()


def _wait_for_leader(endpoint: str, keys: Keyspace) -> None:
    """Wait until the key belongs to the candidate `second`."""

    async def changed() -> None:
        async with client_of(endpoint) as other:
            row = None
            while row is None or row.value != b"second":
                row = await other.get(keys.leader)

    asyncio.run(changed())


@pytest.mark.parametrize(
    ("now", "sent_at", "turned_at", "act"),
    [
        (100.0, 100.0, 100.0, Act.WAIT),
        (103.2, 100.0, 103.0, Act.WAIT),
        (103.4, 100.0, 103.0, Act.KEEP),
        (109.9, 100.0, 100.0, Act.KEEP),  # the loop is slow: it has not turned for a TTL
        (119.9, 117.0, 100.0, Act.WAIT),
        (120.1, 116.0, 100.0, Act.WITHHOLD),  # it turns no more
        (120.1, 120.0, 100.0, Act.WITHHOLD),
        (130.0, 107.0, 129.9, Act.KEEP),  # it turns again: etcd says whether the lease is still there
    ],
)
def test_when_a_lease_is_kept(now: float, sent_at: float, turned_at: float, act: Act) -> None:
    assert next_act(now, sent_at, turned_at, ttl_s=10.0) is act


async def test_a_short_absence_of_etcd_ends_no_leader_term(own_server: PrivateEtcd, keys: Keyspace) -> None:
    async with (
        client_of(own_server.endpoint) as etcd,
        await first(Election(etcd, keys, b"me", ttl_s=6).campaign()) as leadership,
    ):
        granted = leadership.valid_until()
        os.kill(own_server.pid, signal.SIGKILL)
        await until(lambda: not own_server.alive, "etcd is dead")
        await own_server.start()
        await until(lambda: leadership.valid_until() > granted + 1, "keepalives go on")
        assert leadership.held
        await RecordStore(etcd, keys).commit(leadership.term, {keys.meta: b"1"})


async def test_a_leader_whose_key_is_deleted_steps_down_at_once(etcd: Etcd, keys: Keyspace) -> None:
    leadership = await first(Election(etcd, keys, b"me", ttl_s=60).campaign())
    await etcd.txn([modified_at(keys.leader, leadership.term)], deletes=[keys.leader])
    await first(leadership.lost.wait())
    assert leadership.reason == "the leader key was deleted or taken"
    with pytest.raises(Fenced, match=f"term {leadership.term} is over, nobody leads"):
        await RecordStore(etcd, keys).commit(leadership.term, {keys.meta: b"1"})
    await leadership.resign()


async def test_nobody_leads_without_etcd(own_server: PrivateEtcd, keys: Keyspace) -> None:
    await own_server.stop()
    async with client_of(own_server.endpoint, timeout_s=0.5) as etcd:
        standing = asyncio.create_task(Election(etcd, keys, b"me").campaign())
        done, _ = await asyncio.wait([standing], timeout=0.7)
        assert not done
        await own_server.start()
        async with await first(standing) as leadership:
            assert isinstance(leadership, Leadership) and leadership.held
