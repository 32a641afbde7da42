"""Read a folder of flight recorder dumps, one file for each rank: pickles, or torch's JSON.

The rank is the number at the end of the name (`_dump_3`, `nccl_trace_rank_3`, `rank_3.json`). Other files are
passed over. A file that cannot be read is named with the reason, and the others are judged all the same."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from controlplane.analysis.flight_records.fields import DumpError, dump_of
from controlplane.analysis.flight_records.records import DumpFolder, FlightDump, Gap, MissingDump
from controlplane.cli.doctor.readers import plain_pickle
from controlplane.cli.errors import UsageError

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

FILE_BYTES_MAX = 64 << 20
"""The largest dump: 2,000 operations (torch's default) with long stacks take about 10 MB."""
FILES_MAX = 20_000
"""The most dumps in a folder."""
NAME = re.compile(r"(?:^|.*[^0-9])(?P<rank>[0-9]{1,6})(?:\.(?:json|pickle|pkl))?")
DUMP = re.compile(r".*(?:dump|trace|rank|flight|fr)", re.IGNORECASE)
"""What the name of a dump contains: any prefix may be set, but a core file is no dump."""


def read(path: Path, _: argparse.Namespace) -> DumpFolder:
    """The dumps in a folder. Raises UsageError when there is none that can be read."""
    files = _files(path)
    dumps: dict[int, FlightDump] = {}
    unreadable: dict[int, str] = {}
    for rank, file in files:
        try:
            found = dump_of(rank, file.name, _document(file))
        except DumpError as error:
            unreadable.setdefault(rank, f"{file.name}: {error}")
            continue
        dumps[rank] = max(found, dumps.get(rank, found), key=lambda each: each.newest_ns)
    if not dumps:
        first = "; ".join(list(unreadable.values())[:2])
        raise UsageError(f"{path} has {len(files)} dumps, and none can be read: {first}")
    missing = [
        MissingDump(rank, Gap.UNREADABLE, reason)
        for rank, reason in sorted(unreadable.items())
        if rank not in dumps
    ]
    return DumpFolder(tuple(dumps[rank] for rank in sorted(dumps)), tuple(missing))


def _files(path: Path) -> list[tuple[int, Path]]:
    """The files of the folder that are dumps by their names, with the ranks. Raises UsageError."""
    try:
        if not path.is_dir():
            raise UsageError(f"{path} is no folder: give the folder that holds one dump for each rank")
        names = [each for each in path.iterdir() if DUMP.match(each.name)]
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error
    matched = [(NAME.fullmatch(each.name), each) for each in names]
    found = sorted((int(match["rank"]), each) for match, each in matched if match is not None)
    if not found:
        raise UsageError(
            f"{path} has no dump: give a folder of files whose names end in the rank, like _dump_0 or "
            "nccl_trace_rank_0"
        )
    if len(found) > FILES_MAX:
        raise UsageError(f"{path} has {len(found)} dumps, {FILES_MAX} at most: give those of one job")
    return found


def _document(file: Path) -> Any:
    """What a dump contains, as plain data. Raises DumpError."""
    data = _bytes(file)
    if data.lstrip()[:1] == b"{":
        try:
            return json.loads(data)
        except (ValueError, RecursionError) as error:
            raise DumpError(f"it is no JSON, it may be cut off: {str(error)[:120]}") from error
    try:
        return plain_pickle.loads(data)
    except plain_pickle.PlainPickleError as error:
        raise DumpError(str(error)) from error


def _bytes(file: Path) -> bytes:
    try:
        if not file.is_file():
            raise DumpError("it is no regular file")
        with file.open("rb") as opened:
            data = opened.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise DumpError(f"it cannot be read: {error.strerror}") from error
    if not data:
        raise DumpError("it has no bytes")
    if len(data) > FILE_BYTES_MAX:
        raise DumpError(f"it has more than {FILE_BYTES_MAX} bytes")
    return data
