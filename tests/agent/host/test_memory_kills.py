"""Kills for want of memory, by the counters of cgroups of both versions, and where they cannot be read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from agent.host.kernel_log import KernelLog
from agent.host.memory_kills import LOOKS_KEPT, MemoryKillCounter, cgroup_of

if TYPE_CHECKING:
    from pathlib import Path


class Kernel:
    """Folders like /proc and /sys/fs/cgroup, of one version, with one process in one cgroup."""

    def __init__(self, folder: Path, unified: bool, line: str = "") -> None:
        self.proc, self.root, self.unified = folder / "proc", folder / "cgroup", unified
        self.cgroup = self.root / ("job" if unified else "memory/job")
        self.cgroup.mkdir(parents=True)
        (self.proc / "7").mkdir(parents=True)
        (self.proc / "7" / "cgroup").write_text(line or ("0::/job\n" if unified else "4:memory:/job\n0::/\n"))
        if unified:
            (self.root / "cgroup.controllers").touch()
        self.counter = MemoryKillCounter(self.proc, self.root)

    def kills(self, count: int) -> None:
        name = "memory.events" if self.unified else "memory.oom_control"
        (self.cgroup / name).write_text(f"low 0\noom {count}\noom_kill {count}\n")

    def limit(self, text: str) -> None:
        (self.cgroup / ("memory.max" if self.unified else "memory.limit_in_bytes")).write_text(text)


@pytest.fixture(params=[True, False], ids=["v2", "v1"])
def kernel(request: pytest.FixtureRequest, tmp_path: Path) -> Kernel:
    return Kernel(tmp_path, request.param)


def test_a_kill_since_the_last_looks_is_counted_with_the_limit(kernel: Kernel) -> None:
    kernel.kills(3)
    kernel.limit("1048576\n")
    kernel.counter.look([7])
    kernel.kills(4)
    found = kernel.counter.at_end(7)
    assert (found.kills, found.limit_bytes, found.cgroup) == (1, 1 << 20, str(kernel.cgroup))
    assert kernel.counter.at_end(7).kills is None, "it was told already"


def test_a_kill_that_the_process_outlived_for_long_is_not_its_own(kernel: Kernel) -> None:
    kernel.kills(0)
    kernel.counter.look([7])
    kernel.kills(1)
    for _ in range(LOOKS_KEPT):
        kernel.counter.look([7])
    assert kernel.counter.at_end(7).kills == 0


@pytest.mark.parametrize("limit", ["max\n", "9223372036854771712\n", "", "-1\n", "junk"])
def test_without_a_limit_of_its_own_there_is_none(kernel: Kernel, limit: str) -> None:
    kernel.kills(0)
    kernel.limit(limit)
    kernel.counter.look([7])
    assert kernel.counter.at_end(7).limit_bytes == 0


def test_what_cannot_be_read_is_not_known(kernel: Kernel) -> None:
    kernel.counter.look([7, 8])
    assert kernel.counter.at_end(7).kills is None and kernel.counter.at_end(8).kills is None
    kernel.kills(2)
    assert kernel.counter.at_end(7).kills is None, "it was never read while the process lived"
    kernel.counter.look([7])
    (kernel.cgroup / ("memory.events" if kernel.unified else "memory.oom_control")).write_bytes(
        b"\xff\x00oom_kill"
    )
    assert kernel.counter.at_end(7).kills is None


@pytest.mark.parametrize("line", ["0::/../elsewhere\n", "4:memory:/gone\n", "\xff\n", "nonsense\n", ""])
def test_a_cgroup_outside_of_this_container_is_not_guessed(tmp_path: Path, line: str) -> None:
    kernel = Kernel(tmp_path, unified=False, line=line or "\n")
    assert cgroup_of(7, kernel.proc, kernel.root) is None


def test_the_kernels_log_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    log = KernelLog(tmp_path / "kmsg", namespace=tmp_path / "none")
    assert log.reason and log.naming(7) == ""
    namespace = tmp_path / "ns"
    namespace.symlink_to("pid:[4026539999]")
    assert "numbers processes by itself" in KernelLog(tmp_path / "kmsg", namespace).reason
    log.close()
