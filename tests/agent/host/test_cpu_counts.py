"""The kernel's counts of a real process: it runs, waits for a CPU, or does neither."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from agent.host import cpu_counts
from agent.host.cpu_counts import NOTHING, UNKNOWN, CpuCounts

if TYPE_CHECKING:
    from collections.abc import Iterator

BUSY = "while True: pass"
COUNTS = CpuCounts(born=9, at_s=10.0, main=7, threads={7: (1.0, 2.0)}, throttled_s=0.5, cpu_limit=2.0)


@pytest.fixture
def busy() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", BUSY])
    yield process
    process.kill()
    process.wait()


def counted(pid: int) -> CpuCounts:
    found = cpu_counts.read(pid)
    assert found is not None
    return found


def test_a_busy_process_is_ready_all_the_time(busy: subprocess.Popen[bytes]) -> None:
    before = counted(busy.pid)
    time.sleep(0.5)
    spent = cpu_counts.between(before, counted(busy.pid))
    assert spent.watched_s >= 0.5 and spent.ran_s > 0.0
    assert spent.ran_s + spent.queued_s > 0.5 * spent.watched_s


def test_a_stopped_process_neither_runs_nor_waits(busy: subprocess.Popen[bytes]) -> None:
    os.kill(busy.pid, signal.SIGSTOP)
    os.waitpid(busy.pid, os.WUNTRACED)
    before = counted(busy.pid)
    time.sleep(0.3)
    spent = cpu_counts.between(before, counted(busy.pid))
    assert (spent.ran_s, spent.queued_s) == (0.0, 0.0) and spent.watched_s >= 0.3


def test_no_process_has_no_counts(busy: subprocess.Popen[bytes]) -> None:
    busy.kill()
    busy.wait()
    assert cpu_counts.read(busy.pid) is None
    assert cpu_counts.read(0) is None


def test_a_thread_that_computes_counts_and_an_idle_one_does_not() -> None:
    threads = {7: (0.0, 0.0), 8: (0.0, 0.0), 9: (0.0, 0.0)}
    before = replace(COUNTS, threads=threads)
    now = replace(COUNTS, at_s=15.0, threads={7: (4.0, 0.5), 8: (3.0, 1.5), 9: (0.1, 4.0), 10: (9.0, 9.0)})
    spent = cpu_counts.between(before, now)
    assert (spent.watched_s, spent.ran_s, spent.queued_s) == (5.0, 4.0, 1.5)


@pytest.mark.parametrize(
    "now",
    [
        None,
        replace(COUNTS, at_s=15.0, born=10),  # another process has its number
        replace(COUNTS, at_s=15.0, threads={7: (0.5, 2.0)}),
        COUNTS,
    ],
)
def test_what_was_not_counted_is_unknown(now: CpuCounts | None) -> None:
    assert cpu_counts.between(COUNTS, now) == NOTHING
    assert cpu_counts.between(None, COUNTS) == NOTHING


def test_a_quota_that_was_not_readable_before_is_unknown() -> None:
    before = replace(COUNTS, throttled_s=0.0, cpu_limit=UNKNOWN)
    spent = cpu_counts.between(before, replace(COUNTS, at_s=15.0))
    assert (spent.watched_s, spent.cpu_limit) == (5.0, UNKNOWN)


@pytest.mark.skipif(
    os.geteuid() != 0 or not os.path.isdir("/sys/fs/cgroup/cpu"), reason="needs root and cgroups of version 1"
)
def test_a_quota_of_the_kernel_is_seen(busy: subprocess.Popen[bytes]) -> None:
    folder = f"/sys/fs/cgroup/cpu/holdfast-test-{os.getpid()}"
    os.mkdir(folder)
    try:
        put = {"cpu.cfs_period_us": 100000, "cpu.cfs_quota_us": 5000, "cgroup.procs": busy.pid}
        for name, value in put.items():
            with open(f"{folder}/{name}", "w") as file:
                file.write(str(value))
        before = counted(busy.pid)
        time.sleep(1.0)
        spent = cpu_counts.between(before, counted(busy.pid))
        assert spent.cpu_limit == 0.05
        assert spent.throttled_s > 0.0 and spent.queued_s > 0.0
    finally:
        busy.kill()
        busy.wait()
        os.rmdir(folder)
