"""Room on disks that agents report reaches the diagnosis, and a disk that fills is named to the core."""

from __future__ import annotations

import os
import re
import subprocess
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from agent.host import disks
from controlplane.core.records.diagnosis import NodeDisks
from tests.daemon.diagnosis.stage import EVERY_S, STEPS, Stage
from tests.daemon.diagnosis.test_diagnosing import newest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from controlplane.core.records.diagnosis import OpenFinding

GIB, MIB = 1 << 30, 1 << 20
TOTAL = 64 * MIB
WATCHED_S = 2400.0


async def test_a_disk_that_fills_on_one_node_is_named() -> None:
    stage = Stage()
    free = 22.0 * GIB
    for _ in range(round(2400 / EVERY_S)):
        stage.wall_s += EVERY_S
        stage.step += STEPS
        free -= 0.005 * GIB * EVERY_S
        for times in stage.times({}):
            left = round(free) if times.node == "b" else 20 * GIB
            disks = NodeDisks(("/ckpt",), ("checkpoints",), (left,), (100 * GIB,))
            stage.diagnosis.take(replace(times, disks=disks))
        await stage.diagnosis.look()
    (found,) = [each for each in newest(stage) if each.kind == "disk_filling"]
    assert (found.subject, found.node) == ("disk /ckpt of node b", "b")
    assert found.level == "critical"
    assert re.search(r"it is full in [\d.]+ hours, at \d{4}-\d\d-\d\d \d\d:\d\d UTC$", found.reason)


@contextmanager
def mounted(folder: Path) -> Iterator[Path]:
    """A file system of 64 MiB of its own."""
    if os.geteuid() != 0:
        pytest.skip("needs root: a file system is mounted and filled")
    folder.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", f"size={TOTAL}", "holdfast-test", str(folder)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=30, check=False)
    if done.returncode != 0:
        pytest.skip(f"needs to mount a file system: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True, timeout=30)


async def found_while(stage: Stage, folder: Path, change: Callable[[int], None]) -> list[OpenFinding]:
    """What is open about disks after 40 minutes of the diagnosis's clock, in which `change(look)` was done to
    the files before each look. Node b reads its real file system, as its agent does."""
    for look in range(round(WATCHED_S / EVERY_S)):
        change(look)
        (path,), (use,), (free,), (total,) = (
            getattr(disks.read({folder: "checkpoints"}), name)
            for name in ("paths", "uses", "free_bytes", "total_bytes")
        )
        assert (path, use, total) == (str(folder), "checkpoints", TOTAL)
        stage.wall_s += EVERY_S
        stage.step += STEPS
        for times in stage.times({}):
            left = free if times.node == "b" else TOTAL // 2
            found = NodeDisks((path,), (use,), (left,), (total,))
            stage.diagnosis.take(replace(times, disks=found))
        await stage.diagnosis.look()
    open_now = newest(stage) if stage.posted else ()
    return [each for each in open_now if each.kind == "disk_filling"]


def full_in_hours(finding: OpenFinding) -> float:
    match = re.search(r"it is full in ([\d.]+) hours", finding.reason)
    assert match is not None, finding.reason
    return float(match[1])


async def test_a_real_file_system_that_fills_is_forecast_with_the_time_that_is_left(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk") as folder:
        looks = round(WATCHED_S / EVERY_S)
        each = TOTAL * 3 // 4 // looks // 4096 * 4096  # three quarters of it in all

        def write(look: int) -> None:
            (folder / str(look)).write_bytes(b"x" * each)

        (found,) = await found_while(Stage(), folder, write)
        left = os.statvfs(folder)
        left_h = left.f_bavail * left.f_frsize / each * EVERY_S / 3600.0
    assert (found.subject, found.node) == (f"disk {folder} of node b", "b")
    assert full_in_hours(found) == pytest.approx(left_h, rel=0.1)


async def test_a_real_file_system_whose_old_files_are_deleted_is_no_finding(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk") as folder:

        def write(look: int) -> None:
            (folder / str(look)).write_bytes(b"x" * MIB)
            (folder / str(look - 20)).unlink(missing_ok=True)

        assert await found_while(Stage(), folder, write) == []
