"""Folders in memory and on disk for these tests, and small file systems that are full or read-only."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from holdfast.checkpoint.storage.store import Store
from tests.checkpoint.s3 import opened, proxy, s3, s3_bucket, s3_server
from tests.checkpoint.states import SMALL, arena_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from holdfast.ipc.arena import Arena

__all__ = ["opened", "proxy", "s3", "s3_bucket", "s3_server"]


@pytest.fixture
def shm() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(dir="/dev/shm", prefix="hf-"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def arena(shm: Path) -> Iterator[Arena]:
    with arena_for(shm / "small.arena", SMALL) as arena:
        yield arena


@pytest.fixture
def store(folder: Path) -> Store:
    return Store.open(f"file://{folder}/storage")


@pytest.fixture
def small_disk(folder: Path) -> Iterator[Callable[[str], Path]]:
    """Mounts a tmpfs with the given options; skips where that is not allowed."""
    mounted: list[Path] = []

    def mount(options: str) -> Path:
        place = folder / f"disk{len(mounted)}"
        place.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)]
        try:
            subprocess.run(command, check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"mounting a tmpfs is not allowed here: {error}")
        mounted.append(place)
        return place

    yield mount
    for place in mounted:
        subprocess.run(["umount", str(place)], check=True)
