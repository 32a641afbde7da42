"""The small parts: ports, paths, sensors."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from agent.host.paths import FolderLock, Paths, own_folder
from agent.host.ports import OfferedPort, route_address
from agent.sensors.found import slots_here
from agent.sensors.host import HostSensor
from controlplane.settings import AgentSettings, SettingsError
from holdfast.pids import fields
from tests.agent.support import folder, until_sync
from tests.leashed import leashed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def here() -> Iterator[Path]:
    with folder() as path:
        yield path


def test_an_offered_port_is_kept_until_used_and_a_store_can_have_it() -> None:
    offer = OfferedPort()
    port = offer.number
    script = (
        "import sys; from datetime import timedelta; from torch.distributed import TCPStore\n"
        "s = TCPStore('127.0.0.1', int(sys.argv[1]), 1, True, timedelta(seconds=20)); s.set('a', 'b')\n"
        "print(s.get('a').decode())"
    )
    found = subprocess.run(
        [sys.executable, "-c", script, str(port)], capture_output=True, text=True, check=False
    )
    assert found.stdout.strip() == "b", found.stderr
    offer.used(port + 1)
    assert offer.number == port
    offer.used(port)
    assert offer.number != port
    offer.close()


def test_the_address_is_that_of_the_route() -> None:
    assert route_address("127.0.0.1:7070") == "127.0.0.1"
    with pytest.raises(OSError):
        route_address("no.such.host.invalid:1")


def test_only_one_agent_per_folder(here: Path) -> None:
    lock = FolderLock(here)
    with pytest.raises(SettingsError, match=f"agent of process {os.getpid()} already uses .*--run-dir"):
        FolderLock(here)
    lock.release()
    FolderLock(here).release()


def test_the_next_agent_is_the_newer_one_though_the_clock_was_set_back(here: Path) -> None:
    """Else the leader would take it for an older one, and refuse it until the node counts as lost."""
    hour_ns = 3600 * 10**9
    ahead = time.time_ns() + hour_ns
    (here / "agent.lock").write_text(f"4711 {ahead}\n")
    for number in (1, 2):
        lock = FolderLock(here)
        assert lock.incarnation == ahead + number
        lock.release()
    for left in ("", "4711\n", "4711 x\n", f"4711 {ahead + 48 * hour_ns}\n"):  # no leader took the last one
        (here / "agent.lock").write_text(left)
        lock = FolderLock(here)
        assert 0 <= time.time_ns() - lock.incarnation < hour_ns
        lock.release()


HOLDS = """
import ctypes, pathlib, sys, threading, time
from agent.host.paths import FolderLock
lock = FolderLock(pathlib.Path(sys.argv[1]))
threading.Thread(target=time.sleep, args=(60,)).start()
print("held", flush=True)
if sys.argv[2] == "ends":
    ctypes.CDLL(None).pthread_exit(None)
time.sleep(60)
"""


@pytest.mark.parametrize(
    ("what", "way"),
    [("ends", "it was killed, and a thread of it still waits"), ("stops", "it is stopped; .*kill -CONT")],
)
def test_an_agent_that_cannot_be_stopped_is_told_as_what_it_is(here: Path, what: str, way: str) -> None:
    """One that was killed while a storage hangs is a zombie with a thread in the kernel."""
    command = leashed([sys.executable, "-c", HOLDS, str(here), what])
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None and process.stdout.readline()
            if what == "stops":
                process.send_signal(signal.SIGSTOP)
            until_sync(lambda: fields(process.pid)[0] in "ZT", "it is so")
            with pytest.raises(SettingsError, match=f"agent of process {process.pid} already uses .*{way}"):
                FolderLock(here)
        finally:
            process.kill()
    FolderLock(here).release()


def test_folders_that_are_not_ours_are_refused(here: Path) -> None:
    (here / "elsewhere").mkdir()
    (here / "link").symlink_to(here / "elsewhere")
    with pytest.raises(SettingsError, match="give another --shm-dir"):
        own_folder(here / "link", "--shm-dir")
    (here / "file").write_text("")
    with pytest.raises(SettingsError, match="--run-dir"):
        own_folder(here / "file" / "sub", "--run-dir")
    with pytest.raises(SettingsError, match="shorter --run-dir"):
        Paths.of(AgentSettings(run_dir=str(here / ("x" * 90))), "n0")


def test_the_host_sensor_reads_this_machine(here: Path) -> None:
    readings = {reading.device: reading for reading in HostSensor(here).read()}
    assert set(readings) == {"cores", "memory", "disk", "network"}
    assert all(reading.healthy for reading in readings.values())
    assert readings["disk"].figures["free_bytes"] == pytest.approx(
        os.statvfs(here).f_bavail * os.statvfs(here).f_frsize, rel=0.2
    )
    assert slots_here() >= 1


def test_lost_cores_are_bad() -> None:
    """In a process of its own: its affinity is narrowed while the sensor lives."""
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs two cores")
    script = (
        "import json, os, pathlib; from agent.sensors.host import HostSensor\n"
        "s = HostSensor(pathlib.Path('/tmp')); os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
        "r = s.read()[0]; print(json.dumps([r.device, r.healthy, r.reason]))"
    )
    found = subprocess.check_output([sys.executable, "-c", script], text=True)
    device, healthy, reason = json.loads(found)
    assert (device, healthy) == ("cores", False)
    assert reason.startswith("1 cores are left of")


def test_an_offered_port_is_given_to_nobody_by_chance() -> None:
    offer = OfferedPort()
    with socket.socket() as other, pytest.raises(OSError):
        other.bind(("127.0.0.1", offer.number))
    offer.close()
