"""Read from the paths of log files which rank, attempt and node each is of. Ambiguous names are refused."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from controlplane.cli.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import PurePath

RANK_MAX = 1_000_000
STREAMS = ("stdout", "stderr", "output", "error", "out", "err", "log", "std", "console", "main")
"""Names of files that say nothing of the rank: the folder does."""
FIX = "name each file after its rank, like rank0.log"

_RANK = re.compile(r"(?<![a-z])rank[-_. =]?(\d{1,7})(?!\d)", re.IGNORECASE)
_ATTEMPT = re.compile(r"(?:^|[-_.])(?:attempt|restart|try)[-_.]?(\d{1,4})(?!\d)", re.IGNORECASE)
_NODE = re.compile(
    r"(?<![a-z])((?:node|host|worker-node|machine|nid|ip)[-_]?[\w]{0,40}?\d{1,7}(?:-\d{1,3}){0,3})(?!\d)",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class NamedFile:
    """What a path says. `node`: "" when it does not say it; `attempt`: 0 when there is one only."""

    path: PurePath
    rank: int
    attempt: int
    node: str
    stream: str


def named(paths: Sequence[PurePath]) -> tuple[list[NamedFile], list[tuple[PurePath, str]]]:
    """What the relative paths of all files say, and the files that are left out with the reason.

    Raises UsageError for two files of one rank that are not its output and error, and for names from which no
    rank can be told."""
    by_word = {path: rank for path in paths if (rank := _by_word(path)) is not None}
    others = [path for path in paths if path not in by_word]
    left_out: list[tuple[PurePath, str]] = []
    if by_word:
        left_out = [(path, "its name has no rank, those of others have") for path in others]
    else:
        by_word = _by_number(others)
        left_out = [(path, "its name has no number") for path in others if path not in by_word]
    if not by_word:
        raise UsageError(f"no file is named after a rank, {paths[0]} for example: {FIX}")
    found = [_file(path, rank) for path, rank in by_word.items()]
    _check_twice(found)
    return sorted(found, key=lambda each: (each.rank, each.attempt, str(each.path))), left_out


def _by_word(path: PurePath) -> int | None:
    """The rank that is named by the word: the last part of the path that has it."""
    for part in reversed(path.parts):
        if ranks := _RANK.findall(part):
            if len(dict.fromkeys(ranks)) > 1:
                raise UsageError(f"{path} names the ranks {' and '.join(ranks)}: {FIX}")
            return _bounded(path, ranks[0])
    return None


def _by_number(paths: Sequence[PurePath]) -> dict[PurePath, int]:
    """The rank by the one number of each name that differs between the files, or by that of the folder."""
    texts = {path: text for path in paths if _NUMBER.search(text := _telling(path)) is not None}
    shapes: dict[str, list[PurePath]] = {}
    for path, text in texts.items():
        shapes.setdefault(_NUMBER.sub("#", text), []).append(path)
    found: dict[PurePath, int] = {}
    for alike in shapes.values():
        rows = [_NUMBER.findall(texts[path]) for path in alike]
        columns = [at for at in range(len(rows[0])) if len(dict.fromkeys(row[at] for row in rows)) > 1]
        if len(rows[0]) == 1:
            columns = [0]
        if len(columns) != 1:
            which = "several numbers" if columns or len(rows[0]) > 1 else "no number"
            raise UsageError(f"{alike[0]} has {which}, and it is not clear which one is the rank: {FIX}")
        for path, row in zip(alike, rows, strict=True):
            found[path] = _bounded(path, row[columns[0]])
    return found


def _telling(path: PurePath) -> str:
    """The part of a path that names the rank: the file's name, or its folder's where that is `stderr`."""
    for part in (path.name.split(".")[0], *reversed(path.parts[:-1])):
        if part.lower() in STREAMS or _ATTEMPT.search(part) is not None:
            continue
        return part
    return ""


def _bounded(path: PurePath, digits: str) -> int:
    if len(digits) > len(str(RANK_MAX)) or int(digits) > RANK_MAX:
        raise UsageError(f"{path} names rank {digits[:20]}, {RANK_MAX} at most: {FIX}")
    return int(digits)


def _file(path: PurePath, rank: int) -> NamedFile:
    attempts = [int(found) for part in path.parts for found in _ATTEMPT.findall(part)]
    nodes = [found[1] for part in path.parts if (found := _NODE.search(part)) is not None]
    return NamedFile(path, rank, attempts[-1] if attempts else 0, nodes[0] if nodes else "", _stream(path))


def _stream(path: PurePath) -> str:
    words = re.split(r"[-_.]", path.name.lower())
    return next((name for name in ("stderr", "stdout", "err", "out", "error") if name in words), "log")


def _check_twice(files: Sequence[NamedFile]) -> None:
    known: dict[tuple[int, int, str], PurePath] = {}
    for each in files:
        key = each.rank, each.attempt, each.stream
        if key in known:
            raise UsageError(f"{known[key]} and {each.path} are both of rank {each.rank}: {FIX}")
        known[key] = each.path
    nodes: dict[int, NamedFile] = {}
    for each in files:
        other = nodes.setdefault(each.rank, each)
        if (
            each.path.parent != other.path.parent
            and each.attempt == other.attempt
            and each.node != other.node
        ):
            raise UsageError(f"{other.path} and {each.path} are both of rank {each.rank}: {FIX}")
