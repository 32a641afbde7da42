"""Check what a flight recorder dump says, field by field, and make records of it.

The format is torch's, versions 2.x (`torch/csrc/distributed/c10d/FlightRecorderDetail.hpp`). Of the fields,
those that the judgement needs must be there; others may be missing, as they are in older versions. Each
value is bounded, and so is the number of all values together: a small file can name one long list many
times."""

from __future__ import annotations

import re
from typing import Any

from controlplane.analysis.flight_records import policy
from controlplane.analysis.flight_records.records import (
    FlightDump,
    FlightEntry,
    GroupCounters,
    GroupRecord,
    HandleUse,
    Progress,
    Sizes,
    Transfer,
)

ENTRIES_MAX = 200_000
VALUES_MAX = 8_000_000
"""Sizes, dtypes, ranks and frames of one dump, all together."""
GROUPS_MAX = 10_000
RANK_MAX = (1 << 20) - 1
COUNT_MAX = 1 << 62
TEXT_MAX = 300
"""Names and places are cut after this many characters."""
FRAMES_MAX = 400

STATES = {"scheduled": Progress.SCHEDULED, "started": Progress.STARTED, "completed": Progress.ENDED}
TORCHS_OWN = ("/torch/", "\\torch\\", "<frozen ")
"""Frames in such files are torch's: the first other one is the script's."""
_TRANSFER = re.compile(r"(send|recv)(?:\s+(\d{1,7})\s*(?:->|<-)\s*(\d{1,7}))?$")


class DumpError(ValueError):
    """A dump cannot be used. The message says which field, and why."""


def dump_of(rank: int, file: str, document: Any) -> FlightDump:
    """The checked dump of a rank. Raises DumpError."""
    reader = _DumpReader()
    if not isinstance(document, dict):
        raise DumpError("it holds no dict: it is no flight recorder dump")
    version = str(document.get("version", ""))[:20]
    if not version.startswith("2."):
        raise DumpError(f"version {version!r} is unknown: this reads versions 2.x of torch's dumps")
    groups = reader.groups(document.get("pg_config") or {})
    counters = reader.counters(document.get("pg_status") or {})
    entries = document.get("entries")
    if not isinstance(entries, list | tuple):
        raise DumpError("entries is missing: dump with includeCollectives")
    if len(entries) > ENTRIES_MAX:
        raise DumpError(f"it has {len(entries)} entries, {ENTRIES_MAX} at most")
    read = [reader.entry(at, each, groups) for at, each in enumerate(entries)]
    read.sort(key=lambda each: each.number)
    for group in groups.values():
        if group.ranks and rank not in group.ranks:
            raise DumpError(
                f"the name of the file says rank {rank}, which group {group.name!r} in it does not contain"
            )
    numbers = [each.number for each in read]
    if len(frozenset(numbers)) != len(numbers):
        raise DumpError("two entries have one record_id")
    return FlightDump(rank, file, tuple(read), tuple(groups.values()), counters)


class _DumpReader:
    """Reads the parts of one dump, and counts what it has read."""

    def __init__(self) -> None:
        self._left = VALUES_MAX
        self._texts: dict[str, str] = {}

    def groups(self, document: Any) -> dict[str, GroupRecord]:
        """The groups by name."""
        found = {}
        for key, each in self._items(document, "pg_config", GROUPS_MAX):
            where = f"pg_config[{key!r}]"
            if not isinstance(each, dict):
                raise DumpError(f"{where} is no dict")
            name = self._text(each.get("name", key), f"{where}.name")
            found[name] = GroupRecord(
                name,
                self._text(each.get("desc", ""), f"{where}.desc"),
                self._ranks(each.get("ranks", ()), f"{where}.ranks"),
            )
        return found

    def counters(self, document: Any) -> dict[int, GroupCounters]:
        """torch's counters by the process's own id of a group."""
        found = {}
        for key, each in self._items(document, "pg_status", GROUPS_MAX):
            where = f"pg_status[{key!r}]"
            if not isinstance(each, dict):
                raise DumpError(f"{where} is no dict")
            enqueued, completed = (
                _whole(each.get(f"last_{word}_collective", -1), f"{where}.last_{word}_collective", -1)
                for word in ("enqueued", "completed")
            )
            found[_whole(key, where)] = GroupCounters(enqueued, completed)
        return found

    def entry(self, at: int, document: Any, groups: dict[str, GroupRecord]) -> FlightEntry:
        """One operation. A group that only entries name is added to `groups`."""
        where = f"entry {at}"
        if not isinstance(document, dict):
            raise DumpError(f"{where} is no dict")
        name, description = self._group(document.get("process_group"), where)
        groups.setdefault(name, GroupRecord(name, description))
        backend, operation, transfer = self._operation(document, where)
        pg_id = _whole(document.get("pg_id", 0), f"{where}.pg_id")
        sequence = _whole(_needed(document, "collective_seq_id", where), f"{where}.collective_seq_id")
        times = [
            _whole(document.get(field) or 0, f"{where}.{field}")
            for field in ("time_created_ns", "time_discovered_started_ns", "time_discovered_completed_ns")
        ]
        return FlightEntry(
            number=_whole(document.get("record_id", at), f"{where}.record_id"),
            group=name,
            pg_id=pg_id,
            sequence=sequence,
            p2p_sequence=_whole(document.get("p2p_seq_id", 0), f"{where}.p2p_seq_id"),
            operation=operation,
            progress=_progress(document, where, times, backend),
            created_ns=times[0],
            newest_ns=max(times),
            input_sizes=self._sizes(document.get("input_sizes", ()), f"{where}.input_sizes"),
            output_sizes=self._sizes(document.get("output_sizes", ()), f"{where}.output_sizes"),
            input_dtypes=self._words(document.get("input_dtypes", ()), f"{where}.input_dtypes"),
            output_dtypes=self._words(document.get("output_dtypes", ()), f"{where}.output_dtypes"),
            transfer=transfer,
            source=self._source(document.get("frames", ()), f"{where}.frames"),
            timeout_ms=_whole(document.get("timeout_ms", 0), f"{where}.timeout_ms"),
            sure_end=backend not in policy.HOST_BACKENDS,
            handle=_handle(document, where),
        )

    def _operation(self, document: dict[Any, Any], where: str) -> tuple[str, str, Transfer | None]:
        """The backend, the name without it, and the ends of a transfer."""
        full = self._text(_needed(document, "profiling_name", where), f"{where}.profiling_name")
        backend, _, operation = full.rpartition(":")
        match = _TRANSFER.match(operation)
        if match is None:
            if document.get("is_p2p") is True:
                return backend, operation, Transfer(operation.startswith("send"), None, None)
            return backend, operation, None
        kind, first, second = match.groups()
        tag = _whole(document.get("tag", 0), f"{where}.tag")
        if first is None:
            return backend, kind, Transfer(kind == "send", None, None, tag)
        place = _whole(document.get("channel_seq_id", 0), f"{where}.channel_seq_id")
        mine, other = int(first), int(second)  # `send 0->1` and `recv 1<-0`: who does it comes first
        source, target = (mine, other) if kind == "send" else (other, mine)
        return backend, kind, Transfer(kind == "send", source, target, tag, place)

    def _group(self, document: Any, where: str) -> tuple[str, str]:
        if not isinstance(document, list | tuple) or len(document) != 2:
            raise DumpError(f"{where}.process_group is no pair of name and description")
        return (
            self._text(document[0], f"{where}.process_group"),
            self._text(document[1], f"{where}.process_group"),
        )

    def _sizes(self, document: Any, where: str) -> Sizes:
        outer = self._list(document, where)
        return tuple(tuple(_whole(size, where) for size in self._list(each, where)) for each in outer)

    def _words(self, document: Any, where: str) -> tuple[str, ...]:
        return tuple(self._text(each, where) for each in self._list(document, where))

    def _ranks(self, document: Any, where: str) -> tuple[int, ...]:
        """Ranks, which torch writes as the text of a list."""
        if isinstance(document, str):
            inner = document.strip().removeprefix("[").removesuffix("]").strip()
            document = [each.strip() for each in inner.split(",")] if inner else []
        found = tuple(_whole(each, where, 0, RANK_MAX) for each in self._list(document, where))
        if len(frozenset(found)) != len(found):
            raise DumpError(f"{where} names a rank twice")
        return found

    def _source(self, document: Any, where: str) -> str:
        """Where the script called an operation: the innermost frame that is not torch's."""
        frames = self._list(document or (), where)[:FRAMES_MAX]
        for frame in frames:
            if not isinstance(frame, dict):
                raise DumpError(f"{where} holds what is no frame")
            file = frame.get("filename", "")
            if isinstance(file, str) and file and not any(each in file for each in TORCHS_OWN):
                name = self._text(frame.get("name", ""), where)
                line = _whole(frame.get("line", 0), where)
                return f"{self._text(file, where)}:{line}" + (f" ({name})" if name else "")
        return ""

    def _list(self, document: Any, where: str) -> list[Any] | tuple[Any, ...]:
        if not isinstance(document, list | tuple):
            raise DumpError(f"{where} is no list")
        self._spend(len(document))
        return document

    def _items(self, document: Any, where: str, most: int) -> list[tuple[Any, Any]]:
        if not isinstance(document, dict):
            raise DumpError(f"{where} is no dict")
        if len(document) > most:
            raise DumpError(f"{where} has {len(document)} keys, {most} at most")
        return list(document.items())

    def _text(self, document: Any, where: str) -> str:
        """A text that can be shown: cut, and without control characters."""
        if not isinstance(document, str):
            raise DumpError(f"{where} is no text")
        if document not in self._texts:
            short = document[:TEXT_MAX]
            self._texts[document] = "".join(each if each.isprintable() else "?" for each in short)
        return self._texts[document]

    def _spend(self, count: int) -> None:
        self._left -= count
        if self._left < 0:
            raise DumpError(f"its lists have more than {VALUES_MAX} values")


def _progress(document: dict[Any, Any], where: str, times: list[int], backend: str) -> Progress:
    """How far an operation has come. What a host's backend has retired has ended, perhaps by failing.

    torch's counter of completed operations says nothing more: gloo's threads complete operations out of
    order, and the counter has the one that was completed last, not the highest."""
    state = document.get("state")
    if not isinstance(state, str) or state not in STATES:
        raise DumpError(f"{where}.state is {str(state)[:20]!r}: known are {', '.join(STATES)}")
    if times[2] or STATES[state] is Progress.ENDED:
        return Progress.ENDED
    if backend in policy.HOST_BACKENDS and document.get("retired") is True:
        return Progress.ENDED
    return Progress.STARTED if times[1] else STATES[state]


def _handle(document: dict[Any, Any], where: str) -> HandleUse:
    """What the script does with a transfer; only the SDK's records say it."""
    handle = document.get("handle", HandleUse.WAITED)
    if handle not in tuple(HandleUse):
        raise DumpError(f"{where}.handle is {str(handle)[:20]!r}: known are {', '.join(HandleUse)}")
    return HandleUse(handle)


def _needed(document: dict[Any, Any], field: str, where: str) -> Any:
    if field not in document:
        raise DumpError(f"{where} has no {field}")
    return document[field]


def _whole(value: Any, where: str, low: int = 0, high: int = COUNT_MAX) -> int:
    """A whole number within bounds; torch's JSON writes some as text."""
    if isinstance(value, str) and len(value) <= 20 and value.removeprefix("-").isdecimal():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise DumpError(f"{where} is {str(value)[:20]!r}: it should be a whole number from {low} to {high}")
    return value
