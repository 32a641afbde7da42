"""Room on real file systems: each once, with what is kept there."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from agent.host.disks import DiskWatch, local_folders, read
from controlplane.core.records.diagnosis import NodeDisks


def test_folders_of_one_file_system_are_one_row(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    found = read({tmp_path: "checkpoints", tmp_path / "logs": "logs", tmp_path / "gone": "snapshots"})
    assert (found.paths, found.uses) == ((str(tmp_path),), ("checkpoints, logs",))
    space = os.statvfs(tmp_path)
    assert found.total_bytes == (space.f_blocks * space.f_frsize,)
    assert 0 <= found.free_bytes[0] <= found.total_bytes[0]


def test_a_file_system_without_a_size_is_left_out() -> None:
    assert read({Path("/proc"): "logs"}) == NodeDisks((), (), (), ())


def test_only_storages_that_are_folders_here_are_read() -> None:
    assert local_folders(["/a", "file:///b/c", "s3://d/e", "memory://f"]) == ["/a", "/b/c"]


async def test_the_watch_has_a_reading_once_it_has_read(tmp_path: Path) -> None:
    looked = asyncio.Event()

    def folders() -> dict[Path, str]:
        if watch.newest() is not None:
            looked.set()
        return {tmp_path: "logs"}

    watch = DiskWatch(folders, every_s=0.01)
    assert watch.newest() is None
    task = asyncio.create_task(watch.run())
    async with asyncio.timeout(20):
        await looked.wait()
    task.cancel()
    found = watch.newest()
    assert found is not None and found.uses == ("logs",)
