"""Write down which events of a Trainer have taken effect, so that none takes effect twice.

That is known in this process, and in a file of the rank in `output_dir`, which a process that takes a dead
rank's place reads where it can reach it. A line is written when the callbacks have returned; after a kill
between the two, or in a folder that the process cannot reach, they are called once more. The first line says
of which training the file is: a number that each state has, too. Another training's file is begun anew."""

from __future__ import annotations

import json
import os
import secrets
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

FOLDER = "_holdfast_events"
"""In output_dir. Uploads to a hub leave out names that begin with an underscore."""
FILE_BYTES_MAX = 1 << 20
KEPT_STEPS = 1000
"""Older steps are forgotten when the file is full."""
Key = tuple[str, int, int]
_NUMBERS = 1 << 48
"""So many numbers a training may have: a float has each of them exactly."""


class EventLedger:
    """Which events have taken effect at this rank, by (event, step or epoch, its number there)."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._done: dict[tuple[int, Key], dict[str, Any]] = {}
        self._rank, self._file = -1, -1
        self.training = 0  # its number; 0: it has none yet

    def named(self) -> tuple[float, float]:
        """The number of the training, and one for a training that has none."""
        return float(self.training), float(1 + secrets.randbelow(_NUMBERS))

    def take_place(self, rank: int, training: int, until: tuple[int, int] | None = None) -> None:
        """Write to the file of this rank from now on; what it has of this training is taken over. `until`:
        all processes are new, and go on from this step, in this epoch: later events take effect again."""
        if self._file >= 0:
            os.close(self._file)
        if training != self.training:
            self._done.clear()
            self._rank, self.training = -1, training
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._path(rank)
        ours = rank == self._rank
        if not ours and path.exists():
            head, *lines = path.read_text().splitlines() or [""]
            ours = head == self._head()
            for line in filter(None, lines if ours else ()):
                self._read(rank, line)
        if until is not None:
            self._done = {at: left for at, left in self._done.items() if _is_until(at[1], *until)}
        self._rank = rank
        if not ours or until is not None:
            self._write_anew()
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.write(self._file, b"\n")  # a kill may have cut off the last line

    def found(self, key: Key) -> dict[str, Any] | None:
        """What the event left behind; None: it has not taken effect at this rank."""
        return self._done.get((self._rank, key))

    def note(self, key: Key, left: dict[str, Any]) -> None:
        """Write down that an event has taken effect."""
        self._done[self._rank, key] = left
        os.write(self._file, _line(key, left))
        if os.fstat(self._file).st_size > FILE_BYTES_MAX:
            self._shorten(key[1])

    def together(self, step: int) -> list[Key]:
        """The events of this rank since this step whose callbacks have evaluated, which takes all ranks."""
        mine = [
            key for (rank, key), left in self._done.items() if rank == self._rank and left.get("together")
        ]
        return [key for key in mine if key[1] >= step or key[0] == "on_epoch_begin"]

    def forget(self, keys: Iterable[Key]) -> None:
        """Have these events take effect again at this rank."""
        for key in keys:
            del self._done[self._rank, key]

    def _path(self, rank: int) -> Path:
        return self._folder / f"rank-{rank}.jsonl"

    def _read(self, rank: int, line: str) -> None:
        try:
            told = json.loads(line)
            event, step, nth = told["key"]
            self._done[rank, (event, step, nth)] = told["left"]
        except (ValueError, KeyError, TypeError):
            return  # the end of a line that a kill cut off: that event is called again

    def _shorten(self, step: int) -> None:
        kept = {at: left for at, left in self._done.items() if at[1][1] > step - KEPT_STEPS}
        self._done = kept
        os.close(self._file)
        self._write_anew()
        self._file = os.open(self._path(self._rank), os.O_WRONLY | os.O_APPEND)

    def _write_anew(self) -> None:
        own = (_line(key, left) for (rank, key), left in self._done.items() if rank == self._rank)
        partial = self._path(self._rank).with_suffix(".part")
        partial.write_bytes(b"".join((self._head().encode() + b"\n", *own)))
        partial.replace(self._path(self._rank))

    def _head(self) -> str:
        return json.dumps({"training": self.training})


def _is_until(key: Key, step: int, epoch: int) -> bool:
    return key[1] <= (epoch if key[0] == "on_epoch_begin" else step)


def _line(key: Key, left: dict[str, Any]) -> bytes:
    return (json.dumps({"key": key, "left": left}, default=float) + "\n").encode()
