"""Keep the stacks of every rank of a job that hung, one file for each time, beside the journal."""

from __future__ import annotations

import asyncio
import logging
import re
from typing import TYPE_CHECKING

from controlplane.core.failures.arrivals import described
from holdfast import removal

if TYPE_CHECKING:
    from pathlib import Path

    from controlplane.core.records.effects import StacksKept
    from controlplane.core.records.model import Standing

log = logging.getLogger(__name__)

FILES_KEPT = 100
FOLDER = "stacks"
_FILES = re.compile(r".+-[0-9]+-[0-9]+\.txt")


class StackArchive:
    """Files `<job>-<generation>-<step>.txt` in a folder; the oldest are removed when there are too many.

    Without a folder nothing is kept. A full disk is logged, never raised."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._writing: set[asyncio.Future[None]] = set()

    def keep(self, effect: StacksKept) -> None:
        """Write the stacks soon, in a thread."""
        if self._folder is None:
            return
        path = self._folder / f"{effect.job}-{effect.generation}-{effect.step}.txt"
        work = asyncio.get_running_loop().run_in_executor(None, _write, path, text_of(effect))
        self._writing.add(work)
        work.add_done_callback(self._writing.discard)

    async def close(self) -> None:
        """Wait for the files that are being written."""
        await asyncio.gather(*self._writing, return_exceptions=True)


def text_of(effect: StacksKept) -> str:
    """Return the text of a file: the summary, a line per rank, then all stacks."""
    head = [
        f"job {effect.job}, generation {effect.generation}, step {effect.step}",
        effect.summary,
        "",
        *(f"rank {s.rank} ({s.member}): {described(s)}; {_collectives(s)}" for s in effect.ranks),
    ]
    stacks = [f"\n======== rank {s.rank} ({s.member})\n{s.stacks}" for s in effect.ranks]
    return "\n".join([*head, *stacks]) + "\n"


def _collectives(standing: Standing) -> str:
    found = [
        f"{c.group}: {c.sequence} entered"
        + (f", {c.ended} over" if c.ended >= 0 else "")
        + (f", the last {c.operation}" if c.operation else "")
        for c in standing.collectives
    ]
    return "; ".join(found) or "collectives not known"


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        removal.claim(path.parent, _FILES)
        path.write_text(text)
        path.chmod(0o600)
        ours = [found for found in path.parent.iterdir() if _FILES.fullmatch(found.name)]
        for found in sorted(ours, key=lambda found: found.lstat().st_mtime)[:-FILES_KEPT]:
            removal.file(found)
    except OSError as error:
        log.warning("stacks could not be saved: %s", error)
