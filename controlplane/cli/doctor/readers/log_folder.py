"""Read the logs in a folder, with bounds: whatever lies there, it is read in bounded time and memory.

Links are not followed, and only regular files are opened. Of a large file the head and the tail are read, and
the lines between are only counted."""

from __future__ import annotations

import os
import stat
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from controlplane.analysis.failure_logs.events import RankFile
from controlplane.analysis.failure_logs.lines import RawLine
from controlplane.cli.doctor.readers import rank_names
from controlplane.cli.errors import UsageError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator
    from typing import BinaryIO

    from controlplane.cli.doctor.readers.rank_names import NamedFile

FILES_MAX = 65_536
DEPTH_MAX = 6
LINE_CHARS_MAX = 4096
"""A longer line is cut in its middle: what it says stands at its ends."""
HEAD_BYTES = 64 << 10
"""What is read of the beginning of a large file: the start of the run."""
TAIL_BYTES_MAX = 4 << 20
TAIL_BYTES_MIN = 128 << 10
TAILS_BYTES = 96 << 20
"""What is read of the ends of all files together, divided between them: about a million lines, which take a
minute on a busy machine."""
COUNTED_BYTES_MAX = 8 << 30
"""Bytes in the middle of files whose lines are counted, over all files; beyond that a line has no number."""
CHUNK_BYTES = 1 << 20
PACKED = (".gz", ".bz2", ".xz", ".zst", ".zip", ".tar", ".tgz", ".lz4")
OTHER_KINDS = (
    ".json",
    ".yaml",
    ".yml",
    ".csv",
    ".parquet",
    ".pt",
    ".py",
    ".md",
    ".html",
    ".png",
    ".pid",
    ".sh",
)
"""Endings of files that are no logs: they are left out."""


@dataclass(slots=True)
class LogFolder:
    """The files of a folder, by rank, and what is not read. `files` are read when they are iterated over,
    once; that raises UsageError."""

    files: Iterator[RankFile]
    left_out: list[tuple[PurePath, str]]
    count: int


def read(path: Path, _: argparse.Namespace) -> LogFolder:
    """The logs in this folder. Raises UsageError, which names the file and the fix."""
    found, left_out = _listed(path)
    if not found:
        why = f"; left out: {left_out[0][0]} ({left_out[0][1]})" if left_out else ""
        raise UsageError(
            f"{path} has no log file{why}: give the folder with one file per rank, like rank0.log"
        )
    files, nameless = rank_names.named(found)
    tail_bytes = max(TAIL_BYTES_MIN, min(TAIL_BYTES_MAX, TAILS_BYTES // len(files)))
    return LogFolder(_files(path, files, tail_bytes), [*left_out, *nameless], len(files))


def _listed(root: Path) -> tuple[list[PurePath], list[tuple[PurePath, str]]]:
    """The relative paths of the regular files, in order, and what is left out. Raises UsageError."""
    if not root.is_dir():
        raise UsageError(f"{root} is no folder: give the folder with one log file per rank")
    found: list[PurePath] = []
    left_out: list[tuple[PurePath, str]] = []
    folders: list[PurePath] = [PurePath()]
    while folders:
        folder = folders.pop()
        for name, mode in _entries(root, folder):
            path = folder / name
            if stat.S_ISDIR(mode):
                if len(path.parts) >= DEPTH_MAX:
                    raise UsageError(
                        f"{root / path} lies {DEPTH_MAX} folders deep: give a folder further down"
                    )
                folders.append(path)
            elif (why := _why_not(path, mode)) is not None:
                left_out.append((path, why))
            else:
                found.append(path)
            if len(found) + len(left_out) + len(folders) > FILES_MAX:
                raise UsageError(f"{root} has more than {FILES_MAX} files: give a folder with logs only")
    return sorted(found), sorted(left_out)


def _entries(root: Path, folder: PurePath) -> list[tuple[str, int]]:
    """Names and modes in a folder; the mode of a link is the link's own."""
    try:
        with os.scandir(root / folder) as entries:
            return sorted((each.name, each.stat(follow_symlinks=False).st_mode) for each in entries)
    except OSError as error:
        raise UsageError(f"{root / folder}: {error.strerror}") from error


def _why_not(path: PurePath, mode: int) -> str | None:
    """Why a file is left out; None for one that is read. Raises UsageError for one that nobody can read."""
    if stat.S_ISLNK(mode):
        return "it is a link, and links are not followed"
    if path.name.startswith("."):
        return "it is hidden"
    if path.suffix.lower() in PACKED:
        raise UsageError(f"{path} is packed: unpack it (gunzip {path.name}), or move it out of the folder")
    if path.suffix.lower() in OTHER_KINDS:
        return "its ending is not that of a log"
    if not stat.S_ISREG(mode):
        raise UsageError(
            f"{path} is no regular file (a pipe, a socket or a device): move it out of the folder"
        )
    return None


def _files(root: Path, files: list[NamedFile], tail_bytes: int) -> Iterator[RankFile]:
    left_bytes = COUNTED_BYTES_MAX
    for each in files:
        with _opened(root / each.path) as (file, status):
            skipped = max(0, status.st_size - HEAD_BYTES - tail_bytes)
            counted = skipped <= left_bytes
            left_bytes -= skipped if counted else 0
            lines = _lines(file, root / each.path, skipped, counted=counted)
            yield RankFile(
                str(each.path), each.rank, each.node, each.attempt, status.st_mtime, lines, skipped
            )


@contextmanager
def _opened(path: Path) -> Iterator[tuple[BinaryIO, os.stat_result]]:
    """A regular file, opened without following a link and without waiting for the other end of a pipe."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise UsageError(f"{path} is no regular file: move it out of the folder")
        yield file, status


def _lines(file: BinaryIO, path: Path, skipped: int, *, counted: bool) -> Iterator[RawLine]:
    """The lines of the head and the tail. The first line of the tail may be a part of one."""
    number: int | None = 1
    try:
        if skipped:
            head = file.read(HEAD_BYTES)
            for text in head.split(b"\n")[:-1]:
                yield RawLine(number, _text(text))
                number = (number or 0) + 1
            number = (number or 0) + _count(file, skipped) if counted else None
            if not counted:
                file.seek(HEAD_BYTES + skipped)
            file.readline(LINE_CHARS_MAX)
            number = None if number is None else number + 1
        for text in _bounded_lines(file):
            yield RawLine(number, _text(text))
            number = None if number is None else number + 1
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error


def _count(file: BinaryIO, size_bytes: int) -> int:
    """The number of line ends in the next bytes."""
    count = 0
    while size_bytes > 0 and (chunk := file.read(min(CHUNK_BYTES, size_bytes))):
        count += chunk.count(b"\n")
        size_bytes -= len(chunk)
    return count


def _bounded_lines(file: BinaryIO) -> Iterator[bytes]:
    """The lines that are left, each cut in its middle when it is too long."""
    while line := file.readline(CHUNK_BYTES):
        rest = line
        while not rest.endswith(b"\n") and (rest := file.readline(CHUNK_BYTES)):
            line = line[:LINE_CHARS_MAX] + rest[-LINE_CHARS_MAX:]
        yield line


def _text(line: bytes) -> str:
    """A line as text: bytes that are no UTF-8 are replaced, NUL left out, a long middle cut."""
    line = line.rstrip(b"\n")
    if len(line) > LINE_CHARS_MAX:
        line = line[: 3 * LINE_CHARS_MAX // 4] + b" ... " + line[-LINE_CHARS_MAX // 4 :]
    return line.replace(b"\0", b"").decode("utf-8", errors="replace")
