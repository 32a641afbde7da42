"""Collecting garbage: what a kept manifest names never goes, whatever else happens; the rest does."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from holdfast.checkpoint import collect, suspect
from holdfast.checkpoint.errors import CheckpointError
from holdfast.checkpoint.format import names
from holdfast.checkpoint.load import listing, verify
from holdfast.checkpoint.save import publish
from holdfast.checkpoint.storage import lease
from holdfast.checkpoint.storage.store import Store
from tests.checkpoint.states import JOB, SMALL, Order, content, loaded, save, save_part, snapshot

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast.ipc.arena import Arena

HOUR_S = 3600.0


def age(root: Path, by_s: float = 2 * HOUR_S) -> None:
    """All that lies there now was written that long ago."""
    then = time.time() - by_s
    for path in root.rglob("*"):
        if path.is_file():
            os.utime(path, (then, then))


def files(root: Path) -> set[str]:
    return {
        str(path.relative_to(root / "jobs/job")) for path in root.rglob("jobs/job/*/**/*") if path.is_file()
    }


@pytest.fixture
def root(folder: Path) -> Path:
    return folder / "storage"


@pytest.fixture
def saved(store: Store, arena: Arena, root: Path) -> Store:
    """Bases 10-1 and 40-1, with two incremental checkpoints each; written long ago."""
    for step, base in ((10, ""), (20, "10-1"), (30, "10-1"), (40, ""), (50, "40-1"), (60, "40-1")):
        save(store, snapshot(arena, step, seed=step), base=base)
    age(root)
    return store


def run(store: Store, remove: list[str], *, keep: tuple[str, ...] = (), busy: tuple[str, ...] = ()) -> int:
    return collect.run(store, JOB, remove, keep, busy, now_s=time.time()).bytes_freed


def test_a_base_that_no_manifest_names_goes_whole(saved: Store, root: Path, shm: Path) -> None:
    planned = collect.plan(saved, JOB, ["10-1", "20-1", "30-1"], ["40-1"], [], now_s=time.time())
    before = files(root)
    assert planned.bases == ("10-1",)
    freed = run(saved, ["10-1", "20-1", "30-1"])
    assert freed == planned.nbytes > 3 * sum(map(len, content(SMALL, 0).values()))
    assert not (root / "jobs/job/bases/10-1").exists()
    assert {name for name in before - files(root) if "40-1" in name} == set()
    assert [found.id for found in listing(saved, JOB)] == ["60-1", "50-1", "40-1"]
    for step in (40, 50, 60):
        assert loaded(saved, shm / f"{step}", f"{step}-1") == content(SMALL, step)


def test_of_a_kept_base_only_what_nobody_names_goes(saved: Store, root: Path, shm: Path) -> None:
    run(saved, ["10-1", "30-1"])
    assert loaded(saved, shm / "b", "20-1") == content(SMALL, 20)
    named = {chunk.blake3 for chunk in verify(saved, JOB, "20-1").chunks}
    assert {path.name for path in (root / "jobs/job/bases/10-1/chunks").rglob("*/*")} == named


def test_a_dry_run_tells_and_touches_nothing(saved: Store, root: Path) -> None:
    before = files(root)
    planned = collect.plan(saved, JOB, ["10-1"], [], [], now_s=time.time())
    assert [doomed.name for doomed in planned.manifests] == ["jobs/job/manifests/10-1.json"]
    assert planned.nbytes == sum(
        (root / one.name).stat().st_size for one in (*planned.manifests, *planned.chunks)
    )
    assert planned.kept == ("20-1", "30-1", "40-1", "50-1", "60-1")
    assert files(root) == before


def test_a_busy_base_is_not_touched(saved: Store, root: Path) -> None:
    before = {name for name in files(root) if name.startswith("bases/10-1")}
    run(saved, ["10-1", "20-1", "30-1"], busy=("10-1",))
    assert {name for name in files(root) if name.startswith("bases/10-1")} == before
    assert [found.id for found in listing(saved, JOB)] == ["60-1", "50-1", "40-1"]


def test_what_is_young_stays(store: Store, arena: Arena, root: Path) -> None:
    save(store, snapshot(arena, 10, seed=1), show=False)
    before = files(root)
    assert run(store, []) == 0
    assert files(root) == before


def test_with_the_clock_set_back_an_hour_nothing_goes_that_should_not(saved: Store, root: Path) -> None:
    age(root, -HOUR_S)
    assert run(saved, []) == 0
    assert len(listing(saved, JOB)) == 6


def test_what_saves_left_behind_goes_when_it_is_old(
    saved: Store, arena: Arena, root: Path, shm: Path
) -> None:
    slot = snapshot(arena, 70, seed=70)
    save_part(saved, slot, Order.of(slot, "40-1"))
    save(saved, snapshot(arena, 80, seed=80), base="40-1", show=False)
    age(root)
    assert {name.split("/")[0] for name in files(root)} == {"bases", "manifests", "parts", "pending"}
    run(saved, [], busy=("40-1",))
    assert {name.split("/")[0] for name in files(root)} == {"bases", "manifests", "parts", "pending"}
    run(saved, [])
    assert {name.split("/")[0] for name in files(root)} == {"bases", "manifests"}
    assert len(list((root / "jobs/job/bases/40-1").rglob("*/*/*"))) == 6
    assert loaded(saved, shm / "b", "60-1") == content(SMALL, 60)


def test_a_committed_checkpoint_that_is_not_published_yet_is_kept(
    saved: Store, arena: Arena, root: Path, shm: Path
) -> None:
    result = save(saved, snapshot(arena, 70, seed=70), base="40-1", show=False)
    age(root)
    run(saved, ["40-1", "50-1", "60-1"], keep=("70-1",))
    publish(saved, JOB, "70-1", result.digest)
    assert loaded(saved, shm / "b", "70-1") == content(SMALL, 70)


def test_while_a_manifest_cannot_be_read_no_chunk_goes(saved: Store, root: Path) -> None:
    bad = root / "jobs/job/manifests/20-1.json"
    bad.write_bytes(bad.read_bytes().replace(b"10-1", b"10-2"))
    chunks = {name for name in files(root) if name.startswith("bases")}
    outcome = collect.run(saved, JOB, ["10-1"], [], [], now_s=time.time())
    assert "manifests/20-1.json" in outcome.reason
    assert {name for name in files(root) if name.startswith("bases")} == chunks
    assert run(saved, ["10-1", "20-1"]) > 0


def test_removed_and_kept_at_once_is_refused(saved: Store) -> None:
    with pytest.raises(CheckpointError, match="10-1 are listed both as to be removed and as to be kept"):
        collect.plan(saved, JOB, ["10-1"], ["10-1"], [], now_s=0)


def test_one_collector_at_a_time_and_a_dead_ones_lease_is_taken_over(saved: Store, root: Path) -> None:
    with (
        lease.held(Store.open(saved.url), JOB),
        pytest.raises(lease.LeaseHeldError, match="being collected by"),
    ):
        run(saved, ["10-1"])
    assert len(listing(saved, JOB)) == 6
    left = lease.CollectorLease(Store.open(saved.url), JOB)
    left.take()
    age(root / "jobs/job/leases", lease.LEASE_S + 1)
    run(saved, ["10-1"])
    assert len(listing(saved, JOB)) == 5
    with pytest.raises(lease.LeaseHeldError, match="nobody"):
        left.renew()
    assert saved.list(names.leases(JOB)) == []


def test_what_a_process_killed_while_it_took_a_lease_has_left_goes(saved: Store) -> None:
    saved.put(f"{names.leases(JOB)}/{'0' * 32}", b"now")
    with lease.held(Store.open(saved.url), JOB) as held:
        assert held.now_s is not None
        assert saved.list(names.leases(JOB)) == ["collector.json"]
    assert saved.list(names.leases(JOB)) == []


HOLDER = """
import sys, time
from holdfast.checkpoint.storage.lease import CollectorLease
from holdfast.checkpoint.storage.store import Store
CollectorLease(Store.open(sys.argv[1]), sys.argv[2]).take()
print("taken", flush=True)
time.sleep(60)
"""


def test_the_lease_of_a_process_killed_on_this_machine_is_not_waited_for(saved: Store) -> None:
    command = [sys.executable, "-c", HOLDER, saved.url, JOB]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == "taken\n"
        with pytest.raises(lease.LeaseHeldError, match=f'"pid":{holder.pid}'):
            run(saved, ["10-1"])
        holder.kill()
    run(saved, ["10-1"])
    assert len(listing(saved, JOB)) == 5


def test_many_collectors_at_once(saved: Store, shm: Path) -> None:
    def one(_: int) -> str:
        try:
            return collect.run(Store.open(saved.url), JOB, ["10-1", "30-1"], [], [], now_s=time.time()).reason
        except lease.LeaseHeldError:
            return "held"

    with ThreadPoolExecutor(4) as pool:
        told = list(pool.map(one, range(4)))
    assert "" in told
    assert set(told) <= {"", "held"}
    for step in (20, 40, 50, 60):
        assert loaded(saved, shm / f"{step}", f"{step}-1") == content(SMALL, step)


def test_collecting_while_saves_go_on(saved: Store, arena: Arena, root: Path, shm: Path) -> None:
    """A save that is not told busy is protected by the grace: all that it writes is young."""
    with ThreadPoolExecutor(1) as pool:
        store = Store.open(saved.url)
        for step in range(70, 90, 2):
            collecting = pool.submit(run, store, [f"{step - 60}-1"], busy=("40-1",))
            save(saved, snapshot(arena, step, seed=step), base="40-1")
            collecting.result()
        for found in listing(saved, JOB):
            assert loaded(saved, shm / "b", found.id) == content(SMALL, found.step)


def test_memory_storage_collects_too(arena: Arena, shm: Path) -> None:
    store = Store.open(f"memory://{shm.name}")
    for step in (10, 20):
        save(store, snapshot(arena, step, seed=step))
    outcome = collect.run(store, JOB, ["10-1"], ["20-1"], [], now_s=time.time() + 2 * HOUR_S, grace_s=-1)
    assert outcome.reason == ""
    assert {entry.name.split("/")[0] for entry in store.walk("jobs/job/bases")} == {"20-1"}
    assert loaded(store, shm / "b", "20-1") == content(SMALL, 20)


def test_the_mark_of_a_suspect_checkpoint_goes_with_it_and_no_other(saved: Store, root: Path) -> None:
    for checkpoint in ("20-1", "30-1"):
        suspect.mark(saved, JOB, checkpoint, "replicas differed")
    run(saved, ["20-1"])
    assert suspect.reasons(saved, JOB) == {"30-1": "replicas differed"}
    assert {each.id: each.suspect for each in listing(saved, JOB)} == {
        "60-1": "", "50-1": "", "40-1": "", "30-1": "replicas differed", "10-1": "",
    }  # fmt: skip


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff" * 70_000])
def test_a_mark_that_cannot_be_read_marks_all_the_same(saved: Store, root: Path, content: bytes) -> None:
    folder = root / "jobs" / JOB / "suspect"
    folder.mkdir()
    (folder / "20-1.json").write_bytes(content)
    (folder / "strange.json").write_bytes(content)
    (reason,) = [each.suspect for each in listing(saved, JOB) if each.suspect]
    assert reason.startswith("it is marked as suspect, and the mark cannot be read: ")
    verify(saved, JOB, "20-1")
