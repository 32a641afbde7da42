"""The sums of a process's CPU time never go back, and say who waited while others ran."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

from agent.host.cpu_clock import CpuClock, CpuLook

CROWD_S = 0.5
WAITS = """
import json, os, sys, time
from agent.host.cpu_clock import CpuClock
os.sched_setaffinity(0, {int(sys.argv[1])})
clock = CpuClock()
before, ends = clock.look(), time.monotonic() + float(sys.argv[2])
while time.monotonic() < ends:
    pass
after = clock.look()
print(json.dumps([after.ran_s - before.ran_s, after.waited_s - before.waited_s]))
"""


def look(clock: CpuClock) -> CpuLook:
    found = clock.look()
    assert found is not None
    return found


def spin(cpu_s: float) -> None:
    """Compute for so much CPU time of this thread."""
    ends = time.thread_time() + cpu_s
    while time.thread_time() < ends:
        pass


def test_what_a_thread_ran_is_counted() -> None:
    clock = CpuClock()
    before = look(clock)
    spin(0.05)
    after = look(clock)
    assert after.at_s > before.at_s and after.waited_s >= before.waited_s
    assert after.ran_s - before.ran_s >= 0.045


def test_a_thread_that_ends_takes_nothing_away() -> None:
    clock, done = CpuClock(), threading.Event()

    def work() -> None:
        spin(0.1)
        done.wait()

    thread = threading.Thread(target=work)
    thread.start()
    spin(0.1)
    before = look(clock)
    done.set()
    thread.join()
    after = look(clock)
    assert after.ran_s >= before.ran_s and after.waited_s >= before.waited_s


def test_of_two_processes_on_one_cpu_each_waits_while_the_other_runs() -> None:
    cpu = str(min(os.sched_getaffinity(0)))
    pair = [
        subprocess.Popen([sys.executable, "-c", WAITS, cpu, str(CROWD_S)], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    waited = []
    for each in pair:
        out, _ = each.communicate()
        ran_s, waited_s = map(float, out.strip("[]\n").split(","))
        assert ran_s > 0.0
        waited.append(waited_s / (ran_s + waited_s))
    assert max(waited) > 0.1, waited  # of the one that began first; both had the CPU at the same time


def test_pressure_is_counted_where_the_kernel_does() -> None:
    clock = CpuClock()
    before, after = look(clock), look(clock)
    if before.pressed_s is not None:
        assert after.pressed_s is not None and after.pressed_s >= before.pressed_s
