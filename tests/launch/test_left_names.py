"""A killed member's workers leave no names behind: no semaphore, no file in /dev/shm, and no process."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from holdfast.launch import linux
from tests.agent.support import LauncherProcess, folder
from tests.e2e.cli_running import until

SCRIPT = """
import json, os, pathlib, sys
import torch, torch.multiprocessing

class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 1 << 20

    def __getitem__(self, index):
        return torch.full((64, 64), index)

def main(how, sharing):
    torch.multiprocessing.set_sharing_strategy(sharing)
    loader = torch.utils.data.DataLoader(Rows(), num_workers=2, multiprocessing_context=how)
    rows = iter(loader)
    held = [next(rows) for _ in range(4)]
    mapped = [line.split() for line in open("/proc/self/maps") if "/dev/shm/" in line]
    inodes = {int(words[4]) for words in mapped}  # of a semaphore the path is one that it had before
    names = [entry.path for entry in os.scandir("/dev/shm") if entry.inode() in inodes]
    below = [int(pid) for pid in open(f"/proc/self/task/{os.getpid()}/children").read().split()]
    part = pathlib.Path("names.part")
    part.write_text(json.dumps([os.getpid(), names, below]))
    part.rename("names.json")
    while True:
        next(rows)

if __name__ == "__main__":
    main(*sys.argv[1:])
"""


def _running(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def _left(names: list[str], pids: list[int]) -> list[object]:
    return [name for name in names if Path(name).exists()] + [pid for pid in pids if _running(pid)]


def _begin(launcher: LauncherProcess, how: str, sharing: str) -> tuple[int, list[str], list[int]]:
    launcher.script(SCRIPT)
    launcher.spawn("job.1")
    launcher.run("job.1", "script.py", how, sharing)
    told = launcher.run_dir / "names.json"
    until(told.exists, lambda: launcher.output("job.1"))
    pid, names, below = json.loads(told.read_text())
    assert [name for name in names if Path(name).exists()], "nothing can be left behind"
    assert any(map(linux.is_caretaker, below))
    return pid, names, below


WAYS = ["itself", "by the agent", "with the launcher"]


@pytest.mark.parametrize(
    ("how", "sharing", "way"),
    [("spawn", "file_descriptor", way) for way in WAYS]
    + [("forkserver", "file_descriptor", "itself"), ("spawn", "file_system", "itself")],
)
def test_nothing_is_left_in_shared_memory(how: str, sharing: str, way: str) -> None:
    with folder() as path:
        launcher = LauncherProcess(path)
        pid, names, below = _begin(launcher, how, sharing)
        if way == "itself":
            os.kill(pid, signal.SIGKILL)
        elif way == "by the agent":
            launcher.client.say(op="signal", member="job.1", signal=int(signal.SIGKILL))
        else:
            launcher.client.say(op="end")
            assert launcher.process.wait(60) == 0
        if way != "with the launcher":
            assert launcher.client.until("exited", member="job.1")["signal"] == signal.SIGKILL
        until(lambda: not _left(names, [pid, *below]), lambda: f"left: {_left(names, [pid, *below])}", 30)
        launcher.close()
