"""Record what this rank sends to and receives from single peers over gloo.

torch's flight recorder has the sends and receives of NCCL, and of gloo only the collectives. So while a
generation over gloo exists, `send`, `recv` and `recv_anysource` of torch's process groups are replaced by
functions that note the call and pass it on. All of `dist.send`, `recv`, `isend`, `irecv` and
`batch_isend_irecv` end there.

An entry has the fields of torch's own, and three more: `tag`, by which gloo matches both ends;
`channel_seq_id`, which counts from 1 what passes one way between the two ranks of a group with that tag, so
that both ends of a transfer have the same number; and `handle`, what the script does with the work:

- `waited`: a thread waits for it, or has waited until it ended. gloo carries transfers out in any order, so
  only what is waited for can hold up a rank;
- `held`: the script has the work, and has not waited for it yet;
- `dropped`: the script let the work go without waiting. gloo gives up what has not been transferred then."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
import weakref
from collections import Counter, deque
from typing import TYPE_CHECKING, Any

import torch.distributed as dist
from torch.distributed import distributed_c10d

from holdfast.groups import script_frames

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import torch

KEPT = 256
"""The newest transfers that are kept: several steps of a pipeline, so that its rhythm shows."""
_DTYPES = {
    "float32": "Float", "float64": "Double", "float16": "Half", "bfloat16": "BFloat16", "int64": "Long",
    "int32": "Int", "int16": "Short", "int8": "Char", "uint8": "Byte", "bool": "Bool",
}  # fmt: skip
_NAMES = ("send", "recv", "recv_anysource")
_NUMBERS = ("dstRank", "srcRank", "tag")
"""torch's names of the arguments behind the tensors, in their order."""
_torchs: dict[str, Callable[..., dist.Work]] = {name: getattr(dist.ProcessGroup, name) for name in _NAMES}

Document = dict[str, Any]


class _Transfer:
    """One call. `fields`: what the record says of it."""

    def __init__(self, fields: Document, work: dist.Work, mine: int) -> None:
        self.fields, self.work, self.mine = fields, weakref.ref(work), mine
        self.waiting = self.ended = False

    def meet(self, peer: int, channels: Counter[tuple[str, str, int]]) -> None:
        """Note the other end, and the number of the transfer in its channel."""
        name = _name(self.fields["profiling_name"], self.mine, peer)
        channel = self.fields["process_group"][0], name, self.fields["tag"]
        channels[channel] += 1
        self.fields.update(profiling_name=f"gloo:{name}", channel_seq_id=channels[channel])

    def entry(self) -> Document:
        handle = "waited" if self.waiting or self.ended else "held" if self.work() is not None else "dropped"
        return {**self.fields, "retired": self.ended, "handle": handle}


class TransferRecord:
    """The transfers of the newest generation. Threads of the script add to it; any thread reads it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: deque[_Transfer] = deque(maxlen=KEPT)
        self._by_work: weakref.WeakKeyDictionary[dist.Work, _Transfer] = weakref.WeakKeyDictionary()
        self._counts: Counter[str] = Counter()  # of each group
        self._channels: Counter[tuple[str, str, int]] = Counter()  # by group, both ends and tag
        self._called = 0

    def begin(self) -> None:
        """What is called from now on belongs to a new generation."""
        with self._lock:
            self._kept.clear()
            self._by_work.clear()
            self._counts.clear()
            self._channels.clear()
            self._called = 0

    def entries(self) -> tuple[list[Document], int]:
        """The transfers in the order of their calls, and how many older ones are not kept."""
        with self._lock:
            return [each.entry() for each in self._kept], self._called - len(self._kept)

    @contextlib.contextmanager
    def awaited(self, work: dist.Work) -> Iterator[None]:
        """Note that a thread waits for this work; that it has ended, if the wait raises nothing."""
        with self._lock:
            transfer = self._by_work.get(work)
        if transfer is None:
            yield
            return
        transfer.waiting = True
        try:
            yield
        finally:
            transfer.waiting = False
        with self._lock:
            transfer.ended = True
            if "channel_seq_id" not in transfer.fields:
                transfer.meet(work._source_rank(), self._channels)

    def replace_calls(self) -> None:
        """Note the calls of all process groups from now on, until `restore_calls`."""
        for name in _NAMES:
            setattr(dist.ProcessGroup, name, _noted(self, name))

    def add(
        self, work: dist.Work, group: dist.ProcessGroup, name: str, numbers: Sequence[int], tensors: Any
    ) -> None:
        """Note a call. `numbers`: of `recv_anysource` the tag, else the peer within the group and the tag."""
        peer, tag = (None, numbers[0]) if name == "recv_anysource" else (numbers[0], numbers[1])
        label: str = distributed_c10d._world.pg_names.get(group, "")
        fields = {
            "pg_id": 0,
            "process_group": [label, getattr(group, "group_desc", "")],
            "collective_seq_id": 0,
            "profiling_name": "gloo:send" if name == "send" else "gloo:recv",
            "time_created_ns": time.time_ns(),
            "state": "scheduled",
            "is_p2p": True,
            "tag": tag,
            **_sizes("input" if name == "send" else "output", tensors),
            "frames": script_frames.innermost(script_frames.outwards(sys._getframe(2))),
        }
        with self._lock:
            self._called += 1
            self._counts[label] += 1
            fields["p2p_seq_id"] = self._counts[label]
            self._by_work[work] = transfer = _Transfer(fields, work, group.rank())
            if peer is not None:
                transfer.meet(peer, self._channels)
            self._kept.append(transfer)


def restore_calls() -> None:
    """Restore torch's own functions: no generation exists."""
    for name, real in _torchs.items():
        setattr(dist.ProcessGroup, name, real)


def _noted(record: TransferRecord, name: str) -> Callable[..., dist.Work]:
    real = _torchs[name]

    def called(self: dist.ProcessGroup, tensors: Any, *numbers: Any, **named: Any) -> dist.Work:
        work = real(self, tensors, *numbers, **named)
        known = [*numbers, *(named[each] for each in _NUMBERS if each in named)]
        if len(known) == (1 if name == "recv_anysource" else 2) and _is_of_gloo(self):
            record.add(work, self, name, known, tensors)
        return work

    return called


def _is_of_gloo(group: dist.ProcessGroup) -> bool:
    known = distributed_c10d._world.pg_map.get(group)
    return known is not None and "gloo" in str(known[0])


def _name(kind: str, mine: int, peer: int) -> str:
    return f"send {mine}->{peer}" if kind == "gloo:send" else f"recv {mine}<-{peer}"


def _sizes(side: str, tensors: Sequence[torch.Tensor]) -> Document:
    dtypes = [str(each.dtype).removeprefix("torch.") for each in tensors]
    return {
        f"{side}_sizes": [list(each.shape) for each in tensors],
        f"{side}_dtypes": [_DTYPES.get(each, each) for each in dtypes],
    }
