"""Read how much room is left on the file systems that a node's ranks and snapshots need.

Reading one may block for long (a network file system that does not answer), so it is done in a thread, and a
reading that is old is not reported."""

from __future__ import annotations

import asyncio
import os
import time
from typing import TYPE_CHECKING

from controlplane.core.records.diagnosis import NodeDisks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

READ_EVERY_S = 10.0
_STALE_S = 60.0
_DISKS_MAX = 16
_FILE = "file://"


class DiskWatch:
    """The newest reading. `folders` returns each folder that matters, with what is kept there."""

    def __init__(self, folders: Callable[[], Mapping[Path, str]], every_s: float = READ_EVERY_S) -> None:
        self._folders, self._every_s = folders, every_s
        self._newest: tuple[float, NodeDisks] | None = None

    async def run(self) -> None:
        """Read at regular intervals until cancelled."""
        while True:
            found = await asyncio.to_thread(read, self._folders())
            self._newest = time.monotonic(), found
            await asyncio.sleep(self._every_s)

    def newest(self) -> NodeDisks | None:
        """The newest reading; None: there is none of the last minute."""
        if self._newest is None or time.monotonic() - self._newest[0] > _STALE_S:
            return None
        return self._newest[1]


def read(folders: Mapping[Path, str]) -> NodeDisks:
    """Free and total bytes of each file system, named by its first folder. A folder that is not there, or of
    a file system that tells no size, is left out. Blocks."""
    rows: dict[int, tuple[str, list[str], int, int]] = {}
    for folder, use in folders.items():
        try:
            device, space = folder.stat().st_dev, os.statvfs(folder)
        except OSError:
            continue
        free, total = space.f_bavail * space.f_frsize, space.f_blocks * space.f_frsize
        if device in rows:
            rows[device][1].append(use)
        elif total > 0 and len(rows) < _DISKS_MAX:
            rows[device] = str(folder), [use], free, total
    found = list(rows.values())
    return NodeDisks(
        tuple(row[0] for row in found),
        tuple(", ".join(dict.fromkeys(row[1])) for row in found),
        tuple(row[2] for row in found),
        tuple(row[3] for row in found),
    )


def local_folders(urls: Iterable[str]) -> list[str]:
    """The paths of those storages that are folders here."""
    paths = [url.removeprefix(_FILE) for url in urls]
    return [path for path in paths if path.startswith("/")]
