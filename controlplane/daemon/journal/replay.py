"""Replay a recorded leader term: step the core again, compare each step with what was decided then. Pure.

The invariants of the cluster are checked after each step."""

from __future__ import annotations

import json
import typing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from controlplane.core.cluster import Cluster
from controlplane.core.records import events
from controlplane.core.records.timing import CoreSettings
from controlplane.daemon.journal import older
from controlplane.daemon.journal.compaction import Shortener
from controlplane.daemon.journal.recording import FORMATS, whole
from controlplane.wire.records import plain, restore
from controlplane.wire.shape import WireError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from controlplane.core.records.effects import Effect

EVENTS = {kind.__name__: kind for kind in typing.get_args(events.Event)}
Named = tuple[str, Any]
"""Type and body of an event or an effect."""


class ReplayError(ValueError):
    """The file is no recording, or one that this Holdfast cannot read. The message says where."""


@dataclass(frozen=True, slots=True)
class RecordingHeader:
    """The first line of a recording."""

    term: int
    version: str  # of the Holdfast that wrote it
    wall_s: float  # Unix time of its beginning
    settings: CoreSettings
    format: int


@dataclass(frozen=True, slots=True)
class Step:
    """One event, stepped again. `problem`: why it is the last one; "" while everything is as it was then."""

    index: int  # from 1
    now: float  # s of the recorded core's clock
    event: Named
    effects: tuple[Named, ...]  # decided by this Holdfast
    recorded: tuple[Named, ...]  # decided when it was recorded
    problem: str = ""


@dataclass(slots=True)
class End:
    """How a recording ended. `full`: it reached this bound in bytes, and what came later is not in
    it; 0: it did not."""

    full: int = 0


def header(line: str) -> RecordingHeader:
    """Return the first line of a recording. Raises ReplayError."""
    document = _document(line, 1)
    if document.get("kind") != "reign":
        raise ReplayError("line 1 does not begin a recording of a leader term")
    if document.get("format") not in FORMATS:
        known = ", ".join(map(str, FORMATS))
        raise ReplayError(f"a recording of format {document.get('format')!r}; this Holdfast reads {known}")
    try:
        settings = restore(CoreSettings, document["settings"])
        return RecordingHeader(
            document["term"], document["version"], document["wall_s"], settings, document["format"]
        )
    except (KeyError, WireError) as error:
        raise ReplayError(f"line 1: {error}") from error


def replay(recording: RecordingHeader, lines: Iterable[str], end: End | None = None) -> Iterator[Step]:
    """Yield every step of the lines after the header, up to the first with a problem. Raises ReplayError.

    A last line that a crash has torn is left out. `end` learns whether the recording was full."""
    cluster = Cluster(recording.settings)
    body = plain if recording.format == 1 else Shortener(lambda record: record).plain

    def shown(effect: Effect) -> Named:
        record = older.shown(effect, recording.format)
        return type(record).__name__, body(record)

    beats: dict[str, dict[str, Any]] = {}
    for index, text in enumerate(lines, 1):
        if not text.endswith("\n"):
            return
        line = _document(text, index + 1)
        if line.get("kind") == "full":
            if end is not None:
                end.full = int(line.get("bytes", 0)) or 1
            return
        step = _step(cluster, shown, index, line, beats)
        yield step
        if step.problem or "failed" in line:
            return


def _step(
    cluster: Cluster,
    shown: Callable[[Effect], Named],
    index: int,
    line: dict[str, Any],
    beats: dict[str, dict[str, Any]],
) -> Step:
    try:
        body = whole(line, beats)
        event = restore(EVENTS[line["type"]], body)
        now, recorded = float(line["now"]), tuple((kind, found) for kind, found in line["effects"])
    except (KeyError, WireError, TypeError, ValueError) as error:
        raise ReplayError(f"line {index + 1} is not a step of the decision core: {error!r}") from error
    named = (line["type"], body)
    try:
        effects = tuple(shown(each) for each in cluster.step(now, event))
    except Exception as error:
        then = (
            ", as it did in the recording"
            if line.get("failed")
            else f"; in the recording it decided {_names(recorded)}"
        )
        return Step(index, now, named, (), recorded, f"the core fails: {error!r}{then}")
    if line.get("failed"):
        return Step(
            index,
            now,
            named,
            effects,
            recorded,
            f"the core failed in the recording: {line['failed']}; it does not now",
        )
    return Step(index, now, named, effects, recorded, _difference(effects, recorded) or _broken(cluster))


def _difference(effects: tuple[Named, ...], recorded: tuple[Named, ...]) -> str:
    effects, recorded = older.without_later(effects), older.without_later(recorded)
    effects = older.without_advice(effects, recorded)
    if effects == recorded:
        return ""
    effects = older.in_former_words(older.without_later_findings(effects, recorded), recorded)
    if effects == recorded or json.dumps(effects) == json.dumps(recorded):  # NaN differs from itself
        return ""
    for place, (now, then) in enumerate(zip(effects, recorded, strict=False), 1):
        if now != then:
            return f"effect {place} differs: now {_short(now)}, then {_short(then)}"
    return f"other effects: now {_names(effects)}, then {_names(recorded)}"


def _broken(cluster: Cluster) -> str:
    try:
        cluster.check()
    except AssertionError as error:
        return f"an invariant is broken: {error}"
    return ""


def _names(effects: tuple[Named, ...]) -> str:
    return ", ".join(kind for kind, _ in effects) or "nothing"


def _short(shown: Named) -> str:
    return f"{shown[0]} {json.dumps(shown[1])[:600]}"


def _document(text: str, number: int) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ReplayError(f"line {number} is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise ReplayError(f"line {number} is not a JSON object")
    return document


def as_json(step: Step) -> dict[str, Any]:
    """Return a step as JSON values."""
    return {
        **{name: getattr(step, name) for name in ("index", "now", "problem")},
        "event": {"type": step.event[0], "body": step.event[1]},
        "effects": [{"type": kind, "body": body} for kind, body in step.effects],
        "recorded": [{"type": kind, "body": body} for kind, body in step.recorded] if step.problem else None,
    }
