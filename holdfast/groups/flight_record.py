"""Keep what this rank has called in the groups of a generation, for the judgement of a hang or a break.

The record is a dump of torch's flight recorder in torch's own JSON, cut to the newest operations, without
those of earlier generations, and with what gloo does not record: the ranks of each group, and sends and
receives (`transfer_record.py`), which are put among the collectives in the order of their calls. It is read
on demand, once for each question: torch copies 64 operations in less than a millisecond.
torch can also dump the stack of each operation, but then it holds the interpreter's lock for seconds, in
which the process does not beat. So of the collectives only the one that a thread is in has a source line: its
thread's own frame."""

from __future__ import annotations

import base64
import json
import sys
import threading
import time
import zlib
from typing import TYPE_CHECKING

import torch.distributed as dist
from torch.distributed import distributed_c10d

from holdfast.groups import script_frames, torch_recorders
from holdfast.groups.transfer_record import TransferRecord

if TYPE_CHECKING:
    from collections.abc import Iterable

    from holdfast.groups.torch_recorders import Document

ENTRIES_MAX = 256
"""Operations in a record, besides older ones that have not ended."""
_IN_CALLS = ("/torch/distributed/", "/torch/nn/parallel/", "/torch/_tensor.py", "/torch/autograd/")
"""Files of torch through which the script calls collectives: a backward pass does it too."""
_FIELDS = (
    *("record_id", "pg_id", "process_group", "collective_seq_id", "p2p_seq_id", "op_id", "profiling_name"),
    *("time_created_ns", "time_discovered_started_ns", "time_discovered_completed_ns", "timeout_ms"),
    *("input_sizes", "input_dtypes", "output_sizes", "output_dtypes", "state", "retired", "is_p2p"),
    *("tag", "channel_seq_id", "handle"),
)
_NO_ID = 1 << 40
"""Of a group in which this process called no collective: torch's own number of it is not known."""


class FlightRecord:
    """What this rank has called in its newest generation. `begin` and `keep` are for the main thread, `text`
    for any."""

    def __init__(self) -> None:
        self._generation, self._since_ns = 0, 0
        self._kept: Document | None = None  # of a generation that was left
        self.transfers = TransferRecord()
        self._lock = threading.Lock()

    def begin(self, generation: int) -> None:
        """What is called from now on belongs to this generation."""
        with self._lock:
            self._generation, self._since_ns, self._kept = generation, time.time_ns(), None
            self.transfers.begin()

    def keep(self, error: BaseException | None = None) -> None:
        """Keep the record as it is: the generation is left, and its groups end. `error`: what broke it, which
        shows where the script was."""
        frames = [] if error is None else list(script_frames.raised_through(error))
        with self._lock:
            if self._generation and self._kept is None:
                try:
                    self._kept = _document(self._since_ns, self.transfers)
                except Exception as failed:  # torch's recorder may raise anything, and the rank must recover
                    self._kept = {"version": f"none: {failed!r}"[:80], "entries": []}
                if self._kept["entries"]:
                    _locate(self._kept["entries"][-1], frames)

    def text(self, generation: int, bytes_max: int) -> str:
        """The record as text: JSON, packed by zlib, in base64. "": there is none of this generation, or it
        would not fit."""
        with self._lock:
            if not generation or generation != self._generation:
                return ""
            document = self._kept
            if document is None:
                document = _document(self._since_ns, self.transfers)
                _locate_open(document["entries"])
        return _packed(document, bytes_max)


def _document(since_ns: int, transfers: TransferRecord) -> Document:
    """A dump of what was called since then."""
    found = torch_recorders.merged(torch_recorders.dumps())
    every = sorted(found.get("entries") or (), key=lambda each: int(each["record_id"]))
    mine = [each for each in every if int(each["time_created_ns"]) >= since_ns]
    # Nothing of this generation was overwritten: its first operation is number 0.
    whole = len(mine) < len(every) or not every or int(every[0]["record_id"]) == 0
    lost = 0 if whole or not mine else int(mine[0]["record_id"])
    used = {str(each["pg_id"]) for each in mine}
    status = found.get("pg_status") or {}
    between_two, older = transfers.entries()
    entries = _in_order(mine, between_two, lost + older)
    return {
        "version": found.get("version", ""),
        "pg_config": _groups(entries),
        "pg_status": {key: status[key] for key in status if str(key) in used},
        "entries": entries,
    }


def _in_order(collectives: list[Document], transfers: list[Document], first: int) -> list[Document]:
    """All operations in the order of their calls, numbered from `first` on."""
    ids = {each["process_group"][0]: each["pg_id"] for each in collectives}
    known = [{**each, "pg_id": ids.get(each["process_group"][0], _NO_ID)} for each in transfers]
    merged = sorted((*collectives, *known), key=lambda each: int(each["time_created_ns"]))
    return [{**each, "record_id": first + place} for place, each in enumerate(merged)]


def _groups(entries: Iterable[Document]) -> Document:
    """The groups of this process with their ranks, in the order of the group's own ranks."""
    described = {each["process_group"][0]: each["process_group"][1] for each in entries}
    found: Document = {}
    for group, name in list(distributed_c10d._world.pg_names.items()):
        places = distributed_c10d._world.pg_group_ranks.get(group) or {}
        ranks = sorted(places, key=lambda rank: places[rank])
        if ranks and dist.get_rank() not in ranks:
            continue
        description = described.get(name, getattr(group, "group_desc", ""))
        found[name] = {"name": name, "desc": description, "ranks": ranks}
    return found


# ------------------------------------------------------------------ where the script is


def _locate_open(entries: list[Document]) -> None:
    """Give the newest operation of each thread that is within a call of torch.distributed its source line."""
    stacks = sys._current_frames()
    newest = {str(each.get("thread_id")): each for each in entries}
    for thread, entry in newest.items():
        frame = stacks.get(int(thread)) if thread.isdecimal() else None
        _locate(entry, list(script_frames.outwards(frame)))


def _locate(entry: Document, places: list[script_frames.Place]) -> None:
    """Give an operation the script's innermost frame, if the frames lead into a collective. A transfer has
    its own, of its call."""
    if "frames" in entry or not any(part in file for file, _, _ in places for part in _IN_CALLS):
        return
    if found := script_frames.innermost(places):
        entry["frames"] = found


# ------------------------------------------------------------------ how much of it is sent


def _packed(document: Document, bytes_max: int) -> str:
    """The document in so many bytes at most: the newest operations, and older ones that have not ended."""
    most = ENTRIES_MAX
    while most:
        entries = document["entries"]
        older = [each for each in entries[:-most] if not each.get("retired")]
        kept = [_entry(each) for each in (*older[-most:], *entries[-most:])]
        text = json.dumps({**document, "entries": kept}, separators=(",", ":"))
        packed = base64.b64encode(zlib.compress(text.encode())).decode()
        if len(packed) <= bytes_max:
            return packed
        most //= 2
    return ""


def _entry(entry: Document) -> Document:
    return {name: entry[name] for name in (*_FIELDS, "frames") if name in entry}
