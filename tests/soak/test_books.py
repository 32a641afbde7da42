"""What the soak and the chaos read of a journal goes on where the journal goes on in another file."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from controlplane.daemon.journal import rotation
from controlplane.daemon.journal.journal import Journal as Written
from controlplane.daemon.journal.rotation import FileLimits
from tests.chaos.books import Journals
from tests.soak.books import Journal

if TYPE_CHECKING:
    from pathlib import Path

COUNT = 200


def test_journals_are_read_across_their_files(folder: Path) -> None:
    path = folder / "journal.jsonl"
    soak, chaos = Journal(path), Journals([path])
    assert soak.news() == chaos.news() == []
    written = Written(path, FileLimits(4_000, 1000))
    seen: dict[str, list[int]] = {"soak": [], "chaos": []}
    for number in range(COUNT):
        written.write_body(1, "daemon", "T", {"job": "a", "text": "x" * 100})
        if number % 20 == 0:
            deadline = time.monotonic() + 10
            while written.waiting and time.monotonic() < deadline:
                time.sleep(0.001)
            seen["soak"] += [line["sequence"] for line in soak.news()]
            seen["chaos"] += [line["sequence"] for line in chaos.news()]
    asyncio.run(written.close())
    seen["soak"] += [line["sequence"] for line in soak.news()]
    seen["chaos"] += [line["sequence"] for line in chaos.news()]
    assert len(rotation.files(path)) > 2
    assert seen["soak"] == seen["chaos"] == list(range(1, COUNT + 1))
