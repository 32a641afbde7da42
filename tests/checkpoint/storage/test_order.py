"""What reaches the disk in which order, as the kernel sees it: the name of a manifest comes last."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

SAVE = """
import sys
from pathlib import Path
from holdfast.checkpoint.storage.store import Store
from tests.checkpoint.states import SMALL, arena_for, save, snapshot
with arena_for(Path(sys.argv[2]), SMALL) as arena:
    save(Store.open(sys.argv[1]), snapshot(arena, 10))
"""
CALLS = re.compile(r'(link|fsync)\((?:"[^"]*", "([^"]*)"|\d+<([^>]*)>)')


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_content_before_names_and_chunks_before_manifests(folder: Path, shm: Path) -> None:
    log, root = folder / "trace", folder / "storage"
    tracer = ["strace", "-f", "-y", "-e", "trace=link,fsync", "-s", "400", "-o", str(log)]
    command = [*tracer, sys.executable, "-c", SAVE, f"file://{root}", str(shm / "a")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "ptrace" in done.stderr:
        pytest.skip(f"tracing is not allowed here: {done.stderr.splitlines()[0]}")
    assert done.returncode == 0, done.stderr
    calls = [(name, linked or synced) for name, linked, synced in CALLS.findall(log.read_text())]
    links = [(at, target) for at, (name, target) in enumerate(calls) if name == "link"]
    kinds = [target.removeprefix(f"{root}/jobs/job/").split("/")[0] for _, target in links]
    assert kinds == ["bases", "bases", "parts", "pending", "manifests"]
    stages = [at for number, (at, _) in enumerate(links) if kinds[number] != kinds[number - 1]] + [len(calls)]
    for number, (at, target) in enumerate(links):
        drafts = [
            path
            for name, path in calls[:at]
            if name == "fsync" and path.startswith(f"{root}/holdfast-drafts/")
        ]
        if kinds[number] != "bases":
            assert len(drafts) > number, "a name came before its content, or a chunk, was durable"
        next_stage = min(stage for stage in stages if stage > at)
        synced = [path for name, path in calls[at:next_stage] if name == "fsync"]
        assert target.rsplit("/", 1)[0] in synced, "a folder was not durable before the next stage"
