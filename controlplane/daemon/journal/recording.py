"""Record every input of the core, whole and in order, so that `holdfast replay` can repeat its decisions.

The journal is for people: it leaves out what is steady and shortens what is long. A recording leaves out
nothing that the core sees. It is a file per leader term, beside the journal, with a line per step of the
core. The first line is {"kind": "reign", "format", "term", "wall_s", "version", "settings"}. Then come
{"now", "type", "body", "effects": [[type, body], ...]}, with "failed" where the core raised.

In effects, what was written before is short (compaction.py). A beat has "like": true when its body has only
what differs from the node's beat before. Each value of a job's environment is replaced by a word, the same
for equal values within one process. A recording that reaches its bound ends with {"kind": "full"}."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from controlplane.core.records.events import NodeBeat, StepBeat
from controlplane.daemon.journal.compaction import Shortener
from controlplane.daemon.journal.line_file import LineFile
from controlplane.wire.records import plain
from controlplane.wire.shape import shapes_of
from holdfast import removal
from holdfast.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from controlplane.core.records.effects import Effect
    from controlplane.core.records.events import Event
    from controlplane.core.records.model import MemberStatus
    from controlplane.core.records.timing import CoreSettings

FORMAT = 3
FORMATS = (1, 2, FORMAT)
"""Formats that can be replayed. In the first, every effect is whole. Up to the second, every write to etcd is
one kind of effect (older.py)."""

BYTES_MAX = 32 << 20
KEPT = 4
_FILES = re.compile(r"[0-9]+\.jsonl")


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits of the recordings: bytes of each, and how many stay.

    The default holds hours of a few nodes, or the first minutes of thousands; after that, recording
    costs nothing more. A full recording cannot continue in another file: a replay has to begin with the
    term's first event."""

    bytes_max: int = BYTES_MAX
    kept: int = KEPT


DEFAULT = Bounds()

log = logging.getLogger(__name__)


def folder_of(journal: Path) -> Path:
    """Return the folder of the recordings beside a journal."""
    return journal.with_suffix(".reigns")


class Recording:
    """The inputs and effects of one leader term; without a folder it writes nothing. It never
    raises on a full disk."""

    def __init__(
        self,
        folder: Path | None,
        term: int,
        settings: CoreSettings,
        shortened: Callable[[Any, bytes], Any],
        bounds: Bounds = DEFAULT,
    ) -> None:
        """`shortened` returns a record without secrets, which it replaces by words made with a key."""
        self._shortened, self._key = shortened, os.urandom(16)
        self._brevity = Shortener(lambda record: shortened(record, self._key))
        self._beats: dict[str, NodeBeat] = {}
        self._left = self._bytes_max = bounds.bytes_max
        self._file = _open(folder, term, bounds.kept) if folder is not None else None
        self._whole = self._file
        self._write(
            {
                "kind": "reign",
                "format": FORMAT,
                "term": term,
                "wall_s": time.time(),
                "version": __version__,
                "settings": plain(settings),
            }
        )

    def write(self, now: float, event: Event, effects: Sequence[Effect] = (), failed: str = "") -> None:
        """Append one step of the core: the event, the core's clock (`now`, s), the effects, or why
        the core failed."""
        if self._file is None:
            return
        line: dict[str, Any] = {"now": now, "type": type(event).__name__}
        line |= self._beat(event) if isinstance(event, NodeBeat) else {"body": self._plain(event)}
        line["effects"] = [[type(each).__name__, self._brevity.plain(each)] for each in effects]
        if failed:
            line["failed"] = failed
        self._write(line)

    def close(self) -> None:
        """End the recording: what waits is written soon, and nobody waits for that."""
        if self._file is not None:
            self._file.end()
            self._file = None

    def wait(self) -> None:
        """Wait until everything is written, for a few seconds at most. Not for the event loop."""
        if self._whole is not None:
            self._whole.close()

    def _plain(self, record: Any) -> Any:
        if isinstance(record, StepBeat):  # names and numbers; one comes for each of many nodes each second
            return {name: getattr(record, name) for name in StepBeat.__slots__}
        return plain(self._shortened(record, self._key))

    def _beat(self, beat: NodeBeat) -> dict[str, Any]:
        """Return a beat, with only what differs from the node's beat before: that is little."""
        before = self._beats.get(beat.node)
        self._beats[beat.node] = beat
        names = [status.member for status in beat.members]
        if before is None or names != [status.member for status in before.members]:
            return {"body": plain(beat)}
        body: dict[str, Any] = {"node": beat.node, "seq": beat.seq}
        for name in ("incarnation", "port", "copies"):
            if getattr(beat, name) != getattr(before, name):
                body[name] = plain(getattr(beat, name))
        pairs = zip(before.members, beat.members, strict=True)
        if beat.members != before.members:
            body["members"] = [_differs(old, new) for old, new in pairs]
        return {"body": body, "like": True}

    def _write(self, line: dict[str, Any]) -> None:
        if self._file is None:
            return
        text = json.dumps(line, separators=(",", ":"))
        self._left -= len(text) + 1
        if self._left >= 0:
            self._file.write(text)
        else:
            self._file.write(json.dumps({"kind": "full", "bytes": self._bytes_max}))
            log.warning(
                "the recording of this leader term is full (%d bytes): the rest is not recorded",
                self._bytes_max,
            )
            self.close()


def whole(line: dict[str, Any], beats: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return the whole body of an event's line. `beats` holds each node's last beat, and is brought up to
    date.

    Raises KeyError, ValueError or TypeError on an invalid line."""
    body: dict[str, Any] = line["body"]
    if line.get("like"):
        before = beats[body["node"]]
        changed = body.get("members") or [{}] * len(before["members"])
        members = [old | new for old, new in zip(before["members"], changed, strict=True)]
        body = before | body | {"members": members}
    if line["type"] == NodeBeat.__name__:
        beats[body["node"]] = body
    return body


def word_for(value: str, key: bytes) -> str:
    """Return a word for a value that may be a secret: the same for equal values, as long as the
    key is the same."""
    return f"(hidden {hashlib.blake2b(value.encode(), key=key, digest_size=4).hexdigest()})"


def _differs(old: MemberStatus, new: MemberStatus) -> dict[str, Any]:
    if old == new:
        return {}
    found = {}
    for shape in shapes_of(type(new)):
        value = getattr(new, shape.name)
        if value != getattr(old, shape.name):
            found[shape.name] = plain(value)
    return found


def _open(folder: Path, term: int, kept: int) -> LineFile | None:
    """Open the recording of a term, and remove the oldest beyond `kept`. Return None, and log why, when that
    fails.

    An existing file of the same term is removed: it came from another etcd."""
    try:
        folder.mkdir(exist_ok=True, mode=0o700)
        removal.claim(folder, _FILES)
        removal.file(folder / f"{term}.jsonl")
        ours = [path for path in folder.iterdir() if _FILES.fullmatch(path.name)]
        known = sorted(ours, key=lambda path: path.lstat().st_mtime)
        for path in known[: max(0, len(known) - kept + 1)]:
            removal.file(path)
        return LineFile(folder / f"{term}.jsonl")
    except OSError as error:
        log.warning("this leader term is not recorded for replay: %s", error)
        return None
