"""Killed at any moment, a writer or collector leaves no manifest or a complete one, and loses none."""

from __future__ import annotations

import itertools
import random
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from holdfast.checkpoint import collect
from holdfast.checkpoint.errors import CheckpointCorrupt
from holdfast.checkpoint.load import listing, verify
from holdfast.checkpoint.save import publish
from holdfast.checkpoint.storage.store import Store
from tests.checkpoint.states import JOB, SMALL, arena_for, content, loaded, save, snapshot
from tests.checkpoint.writer import values

if TYPE_CHECKING:
    from pathlib import Path

KILLS = 40
LIVES_AT_ONCE = 2
LIFE_MAX_S = 0.5


def write_until_killed(store: Store, arena: Path, first: int, life_s: float, files: str) -> dict[str, str]:
    """What the writer had committed when it was killed: digest by id."""
    command = [sys.executable, "-m", "tests.checkpoint.writer", store.url, str(arena), str(first), files]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        try:
            process.wait(life_s)
        except subprocess.TimeoutExpired:
            process.kill()
        told = process.stdout.read()
    lines = [line.split() for line in told.splitlines(keepends=True) if line.endswith("\n")]
    return {checkpoint: digest for _, checkpoint, digest in lines}


def one_life(folder: Path, shm: Path, lineage: int, lives: int) -> None:
    """Kill writers of one storage again and again, and look after each what is there."""
    store, source = Store.open(f"file://{folder}/storage{lineage}"), random.Random(lineage)
    newest, files = -1, ("chunks", "bundles")[lineage % 2]
    for life in itertools.count():
        if life >= lives and newest >= 0:
            break
        life_s = source.uniform(0, LIFE_MAX_S) * (1 + life // lives)  # a slow machine's are longer
        committed = write_until_killed(store, shm / f"a{lineage}", newest + 1, life_s, files)
        for checkpoint, digest in list(committed.items())[-1:]:
            publish(store, JOB, checkpoint, digest)  # as a new leader would: the record is there
        for entry in listing(store, JOB):
            verify(store, JOB, entry.id)
        newest = max((entry.step for entry in listing(store, JOB)), default=-1)
        assert {place.split("/")[1] for place in chunk_files(store)} <= {files}
        assert newest >= max((int(checkpoint.split("-")[0]) for checkpoint in committed), default=-1)
        if newest >= 0:
            place = shm / f"b{lineage}"
            assert loaded(store, place, f"{newest}-1") == values(newest)
            place.unlink()
    age_out(store)
    assert loaded(store, shm / f"c{lineage}", f"{newest}-1") == values(newest)


def chunk_files(store: Store) -> list[str]:
    return [entry.name for entry in store.walk("jobs/job/bases")]


def age_out(store: Store) -> None:
    """In the end a collector finds everything that the dead have left, their lease too."""
    assert collect.run(store, JOB, [], [], [], now_s=time.time(), grace_s=-60).reason == ""
    folders = {entry.name.split("/")[0] for entry in store.walk("jobs/job")}
    assert folders == {"bases", "manifests"}


@pytest.mark.slow
def test_killed_at_random_moments(folder: Path, shm: Path) -> None:
    with ThreadPoolExecutor(LIVES_AT_ONCE) as pool:
        lives = [
            pool.submit(one_life, folder, shm, lineage, KILLS // LIVES_AT_ONCE)
            for lineage in range(LIVES_AT_ONCE)
        ]
        for life in lives:
            life.result()


def test_two_writers_of_one_id_have_one_winner(folder: Path, shm: Path) -> None:
    barrier = threading.Barrier(2)

    def race(seed: int, round_: int) -> str:
        store = Store.open(f"file://{folder}/storage")
        with arena_for(shm / f"a{seed}", SMALL) as arena:
            result = save(store, snapshot(arena, round_, seed=seed), show=False)
            barrier.wait(timeout=60)
            try:
                publish(store, JOB, f"{round_}-1", result.digest)
            except CheckpointCorrupt:
                return ""
            return result.digest

    with ThreadPoolExecutor(2) as pool:
        for round_ in range(10):
            digests = list(pool.map(race, (1, 2), (round_, round_)))
            (winner,) = (digest for digest in digests if digest)
            verify(Store.open(f"file://{folder}/storage"), JOB, f"{round_}-1", winner)


RACER = """
import sys
from pathlib import Path
from holdfast.checkpoint.errors import CheckpointCorrupt, CheckpointRefused
from holdfast.checkpoint.storage.store import Store
from tests.checkpoint.states import SMALL, arena_for, save, snapshot
url, arena, seed = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
with arena_for(arena, SMALL) as arena:
    print("ready", flush=True)
    sys.stdin.readline()
    for step in range(30):
        try:
            save(Store.open(url), snapshot(arena, step, seed=seed))
        except (CheckpointCorrupt, CheckpointRefused) as error:
            assert "the commit record says" in str(error) or "is already published" in str(error), error
            continue
        print(step, flush=True)
"""


def test_two_processes_race_for_the_same_ids(store: Store, shm: Path) -> None:
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", RACER, store.url, str(shm / f"r{seed}"), str(seed)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed in (1, 2)
    ]
    for racer in racers:
        assert racer.stdout is not None
        assert racer.stdout.readline() == "ready\n"
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    won = [set(map(int, racer.communicate(timeout=60)[0].split())) for racer in racers]
    assert [racer.returncode for racer in racers] == [0, 0]
    assert sorted(won[0] | won[1]) == list(range(30))
    assert won[0] & won[1] == set()
    for step in range(30):
        winner = 1 if step in won[0] else 2
        assert loaded(store, shm / "b", f"{step}-1") == content(SMALL, winner)
        (shm / "b").unlink()


@pytest.mark.parametrize("url", ["file://{folder}/storage", "memory://{name}"])
def test_of_many_who_create_one_name_one_succeeds(folder: Path, url: str) -> None:
    store = Store.open(url.format(folder=folder, name=folder.name))
    barrier = threading.Barrier(8)

    def create(number: int) -> bool:
        barrier.wait(timeout=60)
        return store.put("jobs/job/x", bytes([number]) * 1000)

    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(create, range(8)))
    assert won.count(True) == 1
    assert store.read("jobs/job/x", 5000) == bytes([won.index(True)]) * 1000
