"""Threads share heaps: counted by glibc itself, in a process of its own."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys

import pytest

from agent.host.heap import HEAPS

THREADS = 6
SCRIPT = f"""
import ctypes, sys, threading
from agent.host.heap import share_heaps
print(share_heaps(), flush=True)
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
together = threading.Barrier({THREADS})
def allocate():
    together.wait()
    libc.malloc(50_000)
    together.wait()
threads = [threading.Thread(target=allocate) for _ in range({THREADS})]
for thread in threads: thread.start()
for thread in threads: thread.join()
libc.malloc_info(0, ctypes.c_void_p.in_dll(libc, "stdout"))
libc.fflush(None)
"""
pytestmark = pytest.mark.skipif(
    not hasattr(ctypes.CDLL(None), "mallopt"), reason="the C library has no mallopt: not glibc"
)


def heaps(**environment: str) -> tuple[str, int]:
    """What `share_heaps` answers, and how many heaps six threads have used."""
    own = {name: value for name, value in os.environ.items() if name != "MALLOC_ARENA_MAX"}
    found = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=own | environment, capture_output=True, text=True, check=True
    ).stdout
    return found.split()[0], found.count("<heap nr=")


def test_all_threads_share_two_heaps() -> None:
    assert heaps() == ("True", HEAPS)


def test_an_administrator_says_how_many() -> None:
    assert heaps(MALLOC_ARENA_MAX="4") == ("False", 4)
