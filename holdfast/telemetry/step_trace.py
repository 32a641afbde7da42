"""Record steps by torch's profiler, write the trace, and make the table of operators.

`start`, `begin_step`, `end_step` and `stop` belong to the thread that trains: torch records per thread.
`write` and `operators` may run in another one, so that training goes on meanwhile."""

from __future__ import annotations

import gzip
import shutil
from typing import TYPE_CHECKING, Any

from torch._C._autograd import DeviceType
from torch.profiler import profile, record_function, supported_activities

from holdfast import removal
from holdfast.ipc.messages.profiles import Operator
from holdfast.telemetry import profile_policy as policy

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

MARK = "holdfast step"
"""Each step is a span of this name and its number, in the trace."""
OUTSIDE = "(outside of operators)"
"""The row of the table for a step's time that no operator took: Python, and waits for other threads."""
_CHUNK_BYTES = 1 << 20


class TraceError(Exception):
    """There is no trace, for this reason."""


class StepTrace:
    """One recording."""

    def __init__(self) -> None:
        self._profile = profile(activities=supported_activities())  # type: ignore[no-untyped-call]
        self._mark: Any = None

    def start(self) -> None:
        """Begin to record. Raises what torch raises."""
        self._profile.start()

    def begin_step(self, step: int) -> None:
        """Mark the begin of a step."""
        self._mark = record_function(f"{MARK} {step}")
        self._mark.__enter__()

    def end_step(self) -> None:
        """Mark the end of a step, complete or not."""
        mark, self._mark = self._mark, None
        if mark is not None:
            mark.__exit__(None, None, None)

    def stop(self) -> None:
        """Record nothing any more. On a GPU this waits for it. Raises what torch raises."""
        self.end_step()
        self._profile.stop()

    def events(self) -> int:
        """How many events were recorded."""
        results = self._profile.profiler.kineto_results if self._profile.profiler is not None else None
        return len(results.events()) if results is not None else 0

    def write(self, path: Path, bytes_max: int) -> int:
        """Write the trace in Chrome's format, compressed. Returns its size in bytes.

        Raises TraceError if it is empty or too large, OSError if it cannot be written."""
        events = self.events()
        if not events:
            raise TraceError(
                "torch's profiler recorded nothing: another profiler of this process may be in use"
            )
        raw, part = (path.with_name(removal.draft_name(f"{path.name}.")) for _ in range(2))
        _check_room(raw.parent, events)
        try:
            for new in (raw, part):
                new.touch(mode=0o600)
            self._profile.export_chrome_trace(str(raw))
            size = _compress(raw, part, bytes_max)
            part.rename(path)
        finally:
            for left in (raw, part):
                removal.draft(left)
        return size

    def operators(self, events_max: int = policy.TABLE_EVENTS_MAX) -> tuple[tuple[Operator, ...], str]:
        """All operators, most time first, and why there are none ("": there are).

        They are sorted by the time on the device where there is any, else by CPU time. A recording of more
        than `events_max` events gives no table."""
        events = self.events()
        if events > events_max:
            return (
                (),
                f"no table of {events} events, only of {events_max}: open the trace, or ask for fewer steps",
            )
        return _rows(self._profile.key_averages()), ""


def _rows(averages: Iterable[Any]) -> tuple[Operator, ...]:
    rows: dict[str, list[float]] = {}
    for each in averages:
        if each.device_type != DeviceType.CPU:  # a kernel: its time is that of the operator that launched it
            continue
        name = OUTSIDE if each.key.startswith(MARK) else each.key[: policy.NAME_MAX]
        row = rows.setdefault(name, [0, 0.0, 0.0])
        row[0] += each.count
        row[1] += max(each.self_cpu_time_total, 0) / 1e6
        row[2] += max(each.self_device_time_total, 0) / 1e6
    found = [Operator(name, int(calls), cpu_s, device_s) for name, (calls, cpu_s, device_s) in rows.items()]
    device = any(row.device_s for row in found)
    return tuple(sorted(found, key=lambda row: -(row.device_s if device else row.cpu_s)))


def _check_room(folder: Path, events: int) -> None:
    """Raise TraceError if the uncompressed trace may be too large for the limit, or for the disk."""
    need, free = events * policy.RAW_EVENT_BYTES, shutil.disk_usage(folder).free
    most = min(policy.RAW_BYTES_MAX, free // 2)
    if need > most:
        raise TraceError(
            f"{events} events need about {need >> 20} MiB in {folder} until they are compressed, and at most "
            f"{most >> 20} MiB may be used there: ask for fewer steps, or make room"
        )


def _compress(raw: Path, part: Path, bytes_max: int) -> int:
    """Compress a file. Returns the size. Raises TraceError when that is too large."""
    with raw.open("rb") as source, part.open("wb") as target:
        with gzip.GzipFile(raw.stem, "wb", policy.COMPRESSION, target) as packed:
            while chunk := source.read(_CHUNK_BYTES):
                packed.write(chunk)
                if target.tell() > bytes_max:
                    break
        size = target.tell()
    if size > bytes_max:
        raise TraceError(
            f"the trace is larger than {bytes_max >> 20} MiB, and was not kept: ask for fewer steps"
        )
    return size
