"""Take a log line apart: escape codes, the tag of a rank or worker, the time, and the text itself."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from controlplane.analysis.failure_logs import stamps

if TYPE_CHECKING:
    from controlplane.analysis.failure_logs.stamps import Stamp

_ESCAPE = re.compile(r"\x1b(?:\[[0-9;?>]{0,20}[ -/]{0,4}[@-~]|\][^\x07\x1b]{0,200}\x07?|[@-Z\\^_])")
_TAG = re.compile(
    r"\[rank ?(?P<rank>\d{1,7})\]:? ?"
    r"|\[(?:default|worker)_?\d{1,7}\]: ?"
    r"|\[\d{1,4},(?P<mpi>\d{1,7})\]<std(?:out|err)>: ?"
    r"|\((?:[\w.:<>-]{1,80} )?pid=\d{1,9}(?:, ip=[\d.:a-f]{1,45})?\) ?"
    r"|\[[^\[\]]{1,80} rank (?P<ours>\d{1,7})\] ?"
    r"|\[pod/[^\]\s]{1,200}\] ?"
)
_SEPARATOR = re.compile(r"[\])|>]{0,3}(?: ?[|:>-](?= ))? ?")
_HOST = re.compile(r"(?P<host>[\w][\w.-]{0,80}):(?P<pid>\d{1,9}):\d{1,9} \[\d{1,3}\] ")
_SYSLOG = re.compile(r"(?P<host>[\w][\w.-]{0,80}) [\w./-]{1,40}(?:\[\d{1,9}\])?: ")
_PARTS = 4


@dataclass(frozen=True, slots=True)
class RawLine:
    """One line as it stands in a file. `number`: from 1; None when lines before it were not counted."""

    number: int | None
    text: str


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line taken apart. `rank`: the global rank that it is tagged with; `host`: who wrote it, as NCCL and
    syslog say."""

    file: str
    number: int | None
    text: str
    stamp: Stamp | None
    rank: int | None
    host: str


def parse(file: str, raw: RawLine) -> LogLine:
    """Take a line apart."""
    text = raw.text.rstrip("\r\n")
    if "\x1b" in text:
        text = _ESCAPE.sub("", text)
    if "\r" in text:  # a progress bar: the terminal shows what was written last
        text = next((part for part in reversed(text.split("\r")) if part.strip()), "")
    stamp, rank = None, None
    for _ in range(_PARTS):
        if (tag := _TAG.match(text)) is not None:
            named = tag["rank"] or tag["mpi"] or tag["ours"]
            rank = int(named) if named is not None and rank is None else rank
            text = text[tag.end() :]
            continue
        found, end = stamps.read(text)
        if not end:
            break
        stamp = stamp or found
        text = text[_SEPARATOR.match(text, end).end() :]  # type: ignore[union-attr]  # it may match nothing
    host = ""
    named_host = _HOST.match(text)
    if named_host is None and stamp is not None and (stamp.month or " kernel: " in text[:120]):
        named_host = _SYSLOG.match(text)
    if named_host is not None:
        host, text = named_host["host"], text[named_host.end() :]
        if text.startswith("["):  # the kernel's seconds since boot, after syslog's time
            text = text[stamps.read(text)[1] :].lstrip()
    return LogLine(file, raw.number, text, stamp, rank, host)
