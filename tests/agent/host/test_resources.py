"""What a node has left for its ranks, as its kernel says, or does not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.host.resources import read
from controlplane.core.records.diagnosis import NodeDisks

if TYPE_CHECKING:
    from pathlib import Path


def test_memory_and_the_file_system_with_the_smallest_free_share_are_read(tmp_path: Path) -> None:
    disks = NodeDisks(("/logs", "/checkpoints"), ("logs", "checkpoints"), (50, 400), (100, 10_000))
    found = read(disks, tmp_path / "absent")
    assert (found.disk, found.disk_free_bytes) == ("/checkpoints", 400)
    assert found.memory_free_bytes > 0
    assert found.cpu_waiting == -1.0


def test_the_kernels_cpu_pressure_is_a_share(tmp_path: Path) -> None:
    pressure = tmp_path / "cpu"
    pressure.write_text("some avg10=12.50 avg60=3.00 avg300=0.10 total=7\nfull avg10=0.00 avg60=0.00\n")
    assert read(None, pressure).cpu_waiting == 0.125
    for broken in ("", "some\n", "some avg10=much\n"):
        pressure.write_text(broken)
        assert read(None, pressure).cpu_waiting == -1.0
