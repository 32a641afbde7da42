"""Killed at any moment, a writer leaves no manifest or a complete one."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from agent.checkpoint.errors import CheckpointCorrupt
from agent.checkpoint.load import listing, verify
from agent.checkpoint.save import publish
from agent.checkpoint.store import Store
from tests.checkpoint.states import JOB, SMALL, arena_for, content, loaded, save, snapshot
from tests.checkpoint.writer import SHAPES

if TYPE_CHECKING:
    from pathlib import Path

KILLS = 12
LIFE_MAX_S = 0.35


def write_until_killed(store: Store, arena: Path, first: int, life_s: float) -> None:
    command = [sys.executable, "-m", "tests.checkpoint.writer", store.url, str(arena), str(first)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        try:
            process.wait(life_s)
        except subprocess.TimeoutExpired:
            process.kill()


def test_killed_at_random_moments(store: Store, shm: Path) -> None:
    source = random.Random(23)
    steps: list[int] = []
    for _ in range(KILLS):
        write_until_killed(store, shm / "a", len(steps) and max(steps) + 1, source.uniform(0, LIFE_MAX_S))
        found = listing(store, JOB)
        assert {entry.step for entry in found} >= set(steps)
        for entry in found:
            if entry.step not in steps:
                verify(store, JOB, entry.id)
        finish_pending(store)  # publishes: those ids are taken for the next writer as well
        steps = [entry.step for entry in listing(store, JOB)]
    assert steps
    for step in steps[:2]:
        assert loaded(store, shm / f"b{step}", f"{step}-1") == content(SHAPES, step)


def finish_pending(store: Store) -> None:
    """What waits for its commit is complete as well: it could be published now."""
    for name in store.list("jobs/job/pending"):
        checkpoint, digest, _ = name.split(".")
        verify(store, JOB, checkpoint, digest)
        publish(store, JOB, checkpoint, digest)


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
