"""Write the journal: every event, effect and decision in order, one JSON line each, in a file and in memory.

A line is {"sequence", "wall_s", "monotonic_s", "term", "kind": "event"|"effect"|"daemon", "type",
"skipped", "body": {...}}. Routine events on which the core decides nothing (beats that change nothing,
ticks, snapshots) are not written; `skipped` counts those since the line before. Generations and specs are
whole once (compaction.py), and again after each file's worth of lines, because the oldest files are
removed (rotation.py)."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import logging
import time
from collections import deque
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from controlplane.core.records.model import JobSpec, Standing
from controlplane.daemon.journal import recording, rotation
from controlplane.daemon.journal.compaction import Shortener
from controlplane.daemon.journal.line_file import LineFile, tail
from controlplane.daemon.journal.recording import Bounds, Recording, folder_of, word_for
from controlplane.reporting.lines import job_of
from controlplane.wire.shape import shapes_of
from holdfast import masking as arguments

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from controlplane.core.records.timing import CoreSettings
    from controlplane.daemon.journal.rotation import FileLimits

log = logging.getLogger(__name__)

RING_LINES = 20_000
"""Newest lines that stay in memory, for `holdfast events` and the status page."""

HIDDEN = "(hidden)"
"""Stands for a value of a job's environment, which may be a secret."""

LEFT_OUT = "(left out)"
"""Stands for a flight record, which may be long."""

STACK_CHARS = 400
"""Characters of a rank's stacks in the journal. They are whole in the folder `stacks` beside it."""


@dataclasses.dataclass(frozen=True, slots=True)
class JournalLine:
    """One line of the journal. `job` is "" when it concerns none, or several."""

    sequence: int
    job: str
    text: str


class Journal:
    """The journal of one coordinator, append-only. It never raises on a full disk: `lines_lost` counts the
    lines that could not be written."""

    def __init__(
        self,
        path: Path | None = None,
        limits: FileLimits = rotation.DEFAULT,
        recordings: Bounds = recording.DEFAULT,
    ) -> None:
        """`limits`: of its files. `recordings`: of the recordings of leader terms beside it. Without `path`
        the lines are only in memory."""
        self.folder = None if path is None else path.parent
        self._recordings = None if path is None else folder_of(path)
        self._recording: Recording | None = None
        self._ring: deque[JournalLine] = deque(maxlen=RING_LINES)
        self._news = asyncio.Event()
        self._skipped = 0
        self._limits, self._bounds = limits, recordings
        self._brevity, self._brief = Shortener(conceal), 0
        self.sequence = 0
        self.closed = False
        if path is not None:
            self._recall(path)
        self._file = None if path is None else LineFile(path, limits)

    @property
    def lines_lost(self) -> int:
        """How many lines are not in the file, because it could not be written."""
        return 0 if self._file is None else self._file.lines_lost

    @property
    def waiting(self) -> int:
        """How many lines are not in the file yet."""
        return 0 if self._file is None else self._file.waiting

    @property
    def trouble(self) -> str:
        """Why the file cannot be written now; "" when it can."""
        return "" if self._file is None else self._file.trouble

    def record(self, term: int, settings: CoreSettings) -> Recording:
        """Begin the recording of a leader term. Without a file it is written nowhere."""
        self._recording = Recording(self._recordings, term, settings, _hidden, self._bounds)
        return self._recording

    def skip(self) -> None:
        """Count an event that is not written."""
        self._skipped += 1

    def write(self, term: int, kind: str, record: Any) -> None:
        """Append an event or an effect."""
        self.write_body(term, kind, type(record).__name__, self._brevity.plain(record))

    def write_body(self, term: int, kind: str, type_name: str, body: dict[str, Any]) -> None:
        """Append a line of the daemon's own, which is no record of the core."""
        self.sequence += 1
        document = {
            "sequence": self.sequence,
            "wall_s": round(time.time(), 6),
            "monotonic_s": round(time.monotonic(), 6),
            "term": term,
            "kind": kind,
            "type": type_name,
            "skipped": self._skipped,
            "body": body,
        }
        self._skipped = 0
        text = json.dumps(document, separators=(",", ":"))
        self._ring.append(JournalLine(self.sequence, job_of(body), text))
        if self._file is not None:
            self._file.write(text)
            self._refresh(len(text))
        self._wake()

    def _refresh(self, written: int) -> None:
        """Begin to write generations and specs whole again after a file's worth of lines: the file that has
        them may be removed."""
        self._brief += written
        if self._brief > self._limits.file_bytes > 0:
            self._brevity, self._brief = Shortener(conceal), 0

    def lines(self, after: int = 0, job: str = "") -> list[JournalLine]:
        """Return the lines in memory after number `after`; all of them when the journal is not that far."""
        after = 0 if after > self.sequence else after
        newest = takewhile(lambda line: line.sequence > after, reversed(self._ring))
        found = [line for line in newest if not job or line.job == job]
        found.reverse()
        return found

    async def follow(self, after: int = 0, job: str = "") -> AsyncIterator[JournalLine]:
        """Yield the lines after `after`, and new ones as they come, until the journal is closed."""
        while True:
            news, newest = self._news, self.sequence
            for line in self.lines(after, job):
                yield line
            after = newest
            if self.closed:
                return
            await news.wait()

    async def close(self) -> None:
        """Write what waits, and end the followers."""
        self.release()
        if self._recording is not None:
            await asyncio.to_thread(self._recording.wait)
        if self._file is not None:
            await asyncio.to_thread(self._file.close)

    def release(self) -> None:
        """End the followers, once they have all lines."""
        self.closed = True
        self._wake()

    def _wake(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    def _recall(self, path: Path) -> None:
        """Continue where the file ends: number new lines after its last one, and load its newest lines."""
        for text in tail(path):
            try:
                document = json.loads(text)
                line = JournalLine(int(document["sequence"]), job_of(document["body"]), text)
            except (ValueError, KeyError, TypeError, AttributeError):
                log.warning("journal %s holds an invalid line: %.80s", path, text)
                continue
            self._ring.append(line)
            self.sequence = max(self.sequence, line.sequence)


def _hidden(record: Any, key: bytes) -> Any:
    """Return a record without secrets in which equal values can still be recognized."""
    return conceal(record, lambda value: word_for(value, key))


def conceal(record: Any, replacement: Callable[[str], str] = lambda value: HIDDEN) -> Any:
    """Return a record without secrets, with stacks cut short, and a word in place of each flight record.

    Each value of a JobSpec's environment, and each user and password in the URL of a storage, is
    replaced by a word."""
    if isinstance(record, JobSpec):
        env = tuple((name, replacement(value)) for name, value in record.env)
        storage, mirror = (arguments.url(each, replacement) for each in (record.storage, record.mirror))
        argv = arguments.shown(record.argv)
        return dataclasses.replace(record, env=env, argv=argv, storage=storage, mirror=mirror)
    if isinstance(record, Standing):
        calls = LEFT_OUT if record.flight_record else ""  # a replay takes the same way as the core then
        return dataclasses.replace(record, stacks=record.stacks[:STACK_CHARS], flight_record=calls)
    changes: dict[str, Any] = {}
    for shape in shapes_of(type(record)):
        if shape.kind not in (JobSpec, Standing):
            continue
        value = getattr(record, shape.name)
        if value is not None:
            many = shape.many
            changes[shape.name] = (
                tuple(conceal(v, replacement) for v in value) if many else conceal(value, replacement)
            )
    return dataclasses.replace(record, **changes) if changes else record
