"""A folder of TensorBoard. After each entry it gets a mark with its number, which TensorBoard ignores."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from torch.utils.tensorboard import SummaryWriter

from holdfast.integrations.runs import STEP, BegunRun, local

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from holdfast.integrations.runs import Found, Rename

_MARK = "holdfast entry "


class TensorBoardRun(BegunRun):
    """`begin()` writes what belongs to a run into its `folder`, and gives that."""

    name = "TensorBoard"

    def make(self) -> Found:
        """Make the folder."""
        made = self._begin()
        folder = local(str(made["folder"]), self.name)
        folder.mkdir(parents=True, exist_ok=True)
        newest = _Taken(str(folder)).newest
        with SummaryWriter(str(folder)) as writer:
            _mark(writer, newest)  # what is there is of another job
        return {**made, "folder": str(folder), "first": newest + 1}

    def open(self, found: Found) -> _Writer:
        """Open the folder."""
        return _Writer(str(found["folder"]), self.rename)


class _Taken:
    """What a folder has: the number of its newest whole entry, and what it has of the next one."""

    def __init__(self, folder: str) -> None:
        self.newest, self.points = -1, set[tuple[str, int]]()
        for event in _events(folder):
            text = event.session_log.msg
            if event.HasField("session_log") and text.startswith(_MARK):
                self.newest = max(self.newest, int(text.removeprefix(_MARK)))
                self.points.clear()
            self.points |= {(value.tag, event.step) for value in event.summary.value}


def _events(folder: str) -> Iterator[Any]:
    for path in sorted(Path(folder).glob("*tfevents*")):
        yield from EventFileLoader(str(path)).Load()


def _mark(writer: SummaryWriter, number: int) -> None:
    mark = SessionLog(status=SessionLog.CHECKPOINT, msg=f"{_MARK}{number}")
    inner: Any = writer._get_file_writer()  # type: ignore[no-untyped-call]
    inner.add_event(Event(session_log=mark))


class _Writer:
    def __init__(self, folder: str, rename: Rename) -> None:
        self._taken, self._rename = _Taken(folder), rename
        self._writer = SummaryWriter(folder)

    def write(self, number: int, values: Mapping[str, float]) -> None:
        """Write what the folder does not have of an entry."""
        if number <= self._taken.newest:
            return
        numbers = dict(values)
        step = int(numbers.pop(STEP))
        for name, value in self._rename(numbers).items():
            if (name, step) not in self._taken.points:
                self._writer.add_scalar(name, value, step)
        self._taken.points.clear()
        _mark(self._writer, number)
        self._writer.flush()

    def note(self, number: int, text: str) -> None:
        """Write a text. TensorBoard may have it several times."""
        if number > self._taken.newest:
            self._writer.add_text("holdfast", text, number)

    def close(self, *, finished: bool) -> None:
        """Close the file of this process."""
        self._writer.close()
