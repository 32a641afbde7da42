"""Garbage on an object store: ages and leases by its own clock."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from holdfast.checkpoint import collect
from holdfast.checkpoint.load import listing
from holdfast.checkpoint.storage import lease
from tests.checkpoint.states import JOB, SMALL, content, loaded, save, snapshot

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast.ipc.arena import Arena
    from tests.checkpoint.s3 import Opened


def test_collected_by_the_stores_own_clock(s3: str, opened: Opened, arena: Arena, shm: Path) -> None:
    store = opened(s3)
    for step, base in ((10, ""), (20, ""), (30, "20-1")):
        save(store, snapshot(arena, step, seed=step), base=base)
    wrong_s = time.time() + 1e6  # our clock is far ahead: only the store's counts
    assert collect.run(store, JOB, [], [], [], now_s=wrong_s).files == 0
    with lease.held(opened(s3), JOB), pytest.raises(lease.LeaseHeldError):
        collect.run(store, JOB, ["10-1"], [], [], now_s=wrong_s)
    outcome = collect.run(store, JOB, ["10-1"], ["20-1", "30-1"], [], now_s=wrong_s, grace_s=-60)
    assert (outcome.reason, outcome.removed) == ("", ("10-1",))
    assert [found.id for found in listing(store, JOB)] == ["30-1", "20-1"]
    assert {entry.name.split("/")[0] for entry in store.walk("jobs/job/bases")} == {"20-1"}
    assert loaded(store, shm / "b", "30-1") == content(SMALL, 30)
