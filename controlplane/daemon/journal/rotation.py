"""Rotate a file of lines: a full one gets a number behind its name, and a new one takes its place.

`journal.jsonl` is the one being written; `journal.jsonl.000001`, `.000002` and so on came before it, in
this order. A number is not given again while a later one exists. So whoever reads meanwhile misses only
what was removed."""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

from holdfast import removal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FILE_BYTES = 32 << 20
FORMER_FILES = 8
_NUMBER = re.compile(r"\.(\d{6,})")
OURS = b'{"sequence":'
"""The beginning of every journal. A file that does not begin so is never removed."""


@dataclass(frozen=True, slots=True)
class FileLimits:
    """Bytes of one file (0: no limit, it is never rotated), and how many former files stay."""

    file_bytes: int = FILE_BYTES
    former_files: int = FORMER_FILES


def former(path: Path) -> list[Path]:
    """Return the former files, oldest first."""
    try:
        names = os.listdir(path.parent)
    except OSError:
        return []
    found = [(name, _number(path.name, name)) for name in names]
    return [path.with_name(name) for name, number in sorted(found, key=lambda each: each[1]) if number]


def files(path: Path) -> list[Path]:
    """Return all files, oldest first; the one being written comes last, if it exists."""
    return [*former(path), *([path] if path.exists() else [])]


def _number(name: str, candidate: str) -> int:
    found = _NUMBER.fullmatch(candidate[len(name) :]) if candidate.startswith(name) else None
    return int(found[1]) if found else 0


def turn(path: Path, kept: int) -> list[str]:
    """Give the file its number, and remove the oldest beyond `kept` former ones. Return which could not be
    removed, and why.

    Raises OSError when the file could not be renamed."""
    last = former(path)[-1:]
    number = _number(path.name, last[0].name) + 1 if last else 1
    os.rename(path, path.with_name(f"{path.name}.{number:06}"))
    troubles = []
    for each in former(path)[: -kept or None]:
        try:
            let_go(each)
        except OSError as error:
            troubles.append(f"{each}: {error}")
    return troubles


def let_go(path: Path) -> None:
    """Remove a journal's file. Raises OSError, also when it is not ours: no file, or no journal."""
    removal.begun(path, OURS)


DEFAULT = FileLimits()


class JournalReader:
    """Reads the whole lines of a journal, across its files, each once, also while it is written.

    A line that a crash has torn is left out. Raises OSError when there is no such journal."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: TextIO = _opened((files(path) or [path])[0])
        self._partial = ""

    def close(self) -> None:
        """Read no more."""
        self._file.close()

    def lines(self) -> Iterator[str]:
        """Yield the lines that came since the last call, without their newlines."""
        while True:
            yield from self._rest()
            later = self._next()
            if later is None:
                return
            yield from self._rest()  # what was written before the file was renamed
            self._file.close()
            self._file, self._partial = later, ""

    def _rest(self) -> Iterator[str]:
        while text := self._file.readline():
            self._partial += text
            if self._partial.endswith("\n"):
                whole, self._partial = self._partial[:-1], ""
                yield whole

    def _next(self) -> TextIO | None:
        """Return the file after the one being read; the oldest that is left, when that one was removed."""
        here = os.fstat(self._file.fileno())
        if not stat.S_ISREG(here.st_mode):
            return None
        found = self._all()
        same = [os.path.samestat(os.fstat(each.fileno()), here) for each in found]
        gone = os.fstat(self._file.fileno()).st_nlink == 0
        following = found[same.index(True) + 1 :] if True in same else found if gone else []
        for file in found:
            if file not in following[:1]:
                file.close()
        return following[0] if following else None

    def _all(self) -> list[TextIO]:
        """Open all files, oldest first.

        They are opened again when one was renamed meanwhile: the file that has the journal's name now would
        seem to follow directly on the one before."""
        while True:
            before, found = former(self._path), []
            for path in (*before, self._path):
                try:
                    found.append(_opened(path))
                except FileNotFoundError:  # removed or renamed this very moment
                    continue
            if former(self._path) == before:
                return found
            for file in found:
                file.close()


def _opened(path: Path) -> TextIO:
    return open(path, encoding="utf-8", errors="replace")
