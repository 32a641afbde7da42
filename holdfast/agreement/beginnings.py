"""Tell that a process has begun with other values than those that it joins, or that trained its state.

What stands above the elastic function runs again in a process that takes a dead rank's place, long after the
others ran it. What it reads then may be another thing: settings that somebody has edited, a cache or a
checkpoint of the script's own that was not there yet. All replicas still hold equal state then, so nothing
else would show it.

Theory of operation. Before a process waits for its first generation, it notes what the variables of the
script are. In the first generation the ranks find out which of them are the same on all: only those count.
Clocks, numbers of processes and what is drawn without a seed differ from the beginning. A process that joins
later is told what the others have in common, and names what differs.

Where all processes are new, no rank can tell. So the common values go with each snapshot and checkpoint, as
digests, and the first generation of new processes compares its own with them. There, options of what is
tracked (a learning rate) count, too, which the state overrides; and what runs: the script's files, libraries
(running_code.py tells the same among ranks that live). What the function makes before its first step is known
later: it is compared at that step's end."""

from __future__ import annotations

import base64
import json
import logging
import os
import struct
import sys
import zlib
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from holdfast.clean.looks.alike import ITEM, digest_of, says_all
from holdfast.clean.looks.bits import of_torch
from holdfast.clean.looks.guarded import guarded_look
from holdfast.clean.looks.naming import shown
from holdfast.clean.looks.reach import PLAIN
from holdfast.groups import transfer
from holdfast.groups.groups import carrier

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from holdfast.rank_state import RankState

_VALUES_MAX = 2000
_FORM = "1:"
"""What the text of a header begins with: another form, or other digests, have another number."""
_MADE, _INSIDE, _OPTIONS, _CODE = "made", "inside", "options", "code"
_ABSENT = -1
_WAYS = (
    *("ATEN_CPU_CAPABILITY", "CUBLAS_WORKSPACE_CONFIG", "DNNL_MAX_CPU_ISA", "MKL_CBWR", "NCCL_ALGO"),
    *("NCCL_PROTO", "NVIDIA_TF32_OVERRIDE", "ONEDNN_MAX_CPU_ISA", "PYTHONHASHSEED"),
    *("TORCHINDUCTOR_DETERMINISTIC", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE"),
)
"""Variables of the environment by which libraries choose ways with other roundings, or another order."""
_OTHER = (
    "this process has begun later than those that it joins, and what the script makes before its training "
    "is not what they have: %s%s. If the steps depend on it, the training comes out differently. Something "
    "that the script reads has changed since: settings, a cache, a checkpoint of its own. Leave such files "
    "as they are while a job runs; what training itself has come to, Holdfast restores"
)
_SINCE = (
    "all processes are new, and what the script makes before its training is not what it was when the state "
    "of step %d was trained: %s%s. If the steps depend on it, the training comes out differently from here "
    "on. Something that the script reads or is has changed since: settings, data, a number in its text, what "
    "it has written itself"
)
_OVERRIDDEN = (
    "the script gives what it tracks other options than those that the state of step %d was begun with: "
    "%s%s. Those of the state count. To go on with others, set them in a step"
)
_OTHER_CODE = "the state of step %d was trained by another text or version of %s%s than runs now"
_UNSEEN = "what the script has made before its training cannot be seen, nor compared with other ranks: %s"
log = logging.getLogger("holdfast.sdk")


class Beginnings:
    """What the script's variables are where this process begins. `values()`: they, with names."""

    def __init__(self, state: RankState, values: Callable[[], Iterable[tuple[str, Any]]]) -> None:
        self._state, self._values = state, values
        self._own: dict[int, int] | None = None  # digests, by those of names
        self._names: dict[int, tuple[str, str]] = {}  # of what kind each is, and its name
        self._noted = False  # what is tracked is noted, too
        self.settings: Callable[[], Iterable[tuple[str, Any]]] = tuple
        """Under a framework: what it was told, with names."""
        self.others: Callable[[], Mapping[str, Any]] = dict
        """Under a framework: what the state overrides besides tracked objects, by name: schedulers."""
        self._common: dict[int, int] | None = None  # what all ranks had in common at the beginning
        self._text = ""  # the same for headers, as JSON: each snapshot has it
        self._giver: int | None = None  # the rank that is to tell it to those that have joined
        self._all_new = False  # no rank of this generation knew what is common: all processes are new
        self._from_step = 0  # the step of the state that they go on from
        self._trained_with: dict[int, int] | None = None  # what was common when that state was trained

    def note(self, code: Mapping[str, str]) -> None:
        """Note the values, and what runs, if that was not done yet; and what is tracked, as soon as something
        is: a function may track its objects itself, before they take the state. A process that joins does
        not, because others wait for it then."""
        if self._own is None:
            self._own = {}
            with guarded_look(_UNSEEN):
                parts = self._tracked_parts()
                for name, value in (*_of_process(), *self._values(), *self.settings()):
                    self._add(_MADE, name, None if id(value) in parts else digest_of(name, value))
            self._add(_MADE, "the seed of the Session", zlib.crc32(repr(self._state.seed).encode()))
            for name, text in code.items():
                self._add(_CODE, name, zlib.crc32(text.encode()))
        waited_for = self._state.entry.tracks_inside and self._state.entry.first >= 0
        if self._state.tracked.objects and not (self._noted or waited_for):
            self._noted = True
            self._note_tracked()

    def _tracked_parts(self) -> set[int]:
        """The parts of tracked modules, by id: their classes are noted together."""
        modules = (each for each in self._state.tracked.objects.values() if isinstance(each, torch.nn.Module))
        return {id(part) for each in modules for part in each.modules()}

    def _note_tracked(self) -> None:
        for name, thing in self._state.tracked.objects.items():
            self._add(_MADE, f"which classes {name} is made of", zlib.crc32(repr(_classes(thing)).encode()))
            for option, values in _options_of_parts(thing).items():
                self._add(_MADE, f"{option} in {name}", zlib.crc32(repr(values).encode()))
        for name, value in _options(self._state.tracked.objects | dict(self.others())):
            self._add(_OPTIONS, name, zlib.crc32(repr(value).encode()))

    def _add(self, kind: str, name: str, number: int | None, *, of: int = 0) -> None:
        """`of`: it is compared among generations of so many ranks; 0: of any number."""
        own = self._own
        if number is not None and own is not None and len(own) < _VALUES_MAX:
            own.setdefault(key := zlib.crc32(f"{kind} {of} {name}".encode()), number)
            self._names[key] = kind, name

    def numbers(self) -> list[int]:
        """What the others have to know: whether this process knows what they have in common, and else how
        many values it has, and which."""
        keys = list(self._own or {})
        return [int(self._common is not None), len(keys), zlib.crc32(repr(keys).encode())]

    def meet(self, rows: Sequence[Sequence[int]]) -> None:
        """A generation begins: find out what is common, if no rank knows. Every rank calls it with the
        numbers of all."""
        knowing, self._giver = [rank for rank, row in enumerate(rows) if row[0]], None
        self._all_new = not knowing
        if not knowing:
            self._know(self._agree(list(self._own or {}), alike=all(row == rows[0] for row in rows)))
        elif len(knowing) < len(rows):
            self._giver = knowing[0]

    def restored(self, step: int) -> None:
        """The state of `step` is restored: if all processes are new, name what is not as it was when that
        was trained. Rank 0 does; another one names only what it has otherwise than rank 0."""
        came, self._state.tracked.began = self._state.tracked.began, False
        self._trained_with = _read(came) if self._all_new else None
        self._all_new, self._from_step = False, step
        for kind, text in ((_MADE, _SINCE), (_OPTIONS, _OVERRIDDEN), (_CODE, _OTHER_CODE)):
            self._warn_of_changed(kind, text)

    def made(self, function: str, values: Iterable[tuple[str, Any]]) -> None:
        """A function begins its first step: these are the values that it has made before."""
        if self._trained_with is None:
            return
        inside = [(f"{name} (in {function})", name, value) for name, value in values]
        noted = {name for _, name in self._names.values()}
        inside += [(name, name, value) for name, value in self.settings() if name not in noted]
        parts = self._tracked_parts()
        for full, name, value in inside:
            if id(value) in parts:
                continue
            self._add(_INSIDE, full, digest_of(name, value), of=self._state.world_size)

    def _learn_made(self) -> None:
        """Find out what of it is common. All ranks call it in a generation of new processes, after their
        first step, which has compiled what it compiles."""
        self._add(_INSIDE, "whether torch.compile is used", int(_has_compiled()))
        inside = [key for key, (kind, _) in self._names.items() if kind == _INSIDE]
        self._know((self._common or {}) | self._agree(inside, alike=False))
        self._warn_of_changed(_INSIDE, _SINCE)
        self._trained_with = None

    def _warn_of_changed(self, kind: str, text: str) -> None:
        """Name the values of this kind that are not what they were when the restored state was trained."""
        trained_with, own, common = self._trained_with, self._own or {}, self._common or {}
        if not trained_with or not self._from_step:
            return
        mine = own if self._state.rank == 0 else {key: own[key] for key in own if key not in common}
        named = [self._names[key] for key, number in mine.items() if trained_with.get(key, number) != number]
        names = [name for each, name in named if each == kind]
        if names:
            log.warning(text, self._from_step, *shown(names if kind == _OPTIONS else _first_of_each(names)))

    def text(self) -> str:
        """What was common at the beginning, as JSON for the header of the present state; "": it is not
        known."""
        came = self._state.tracked.began
        if came is False:
            return self._text
        return json.dumps(came) if isinstance(came, str) else ""  # others receive what came with the state

    def compare(self) -> None:
        """Give those that have joined what is common, and name what differs; learn what the function has
        made. All ranks call it after their first step: a recovery does not wait for it."""
        if self._trained_with is not None:
            self._learn_made()
        if self._giver is None:
            return
        flat = [number for pair in (self._common or {}).items() for number in pair]
        told = transfer.tell(flat, self._giver, self._state.rank, self._device)
        self._giver = None
        if self._common is None:
            self._know(dict(zip(told[::2], told[1::2], strict=True)))
            self._tell()

    @property
    def _device(self) -> torch.device:
        return carrier(self._state.backend, self._state.device)

    def _know(self, common: dict[int, int]) -> None:
        self._common = common
        flat = [number for pair in sorted(common.items()) for number in pair]
        data = base64.b85encode(struct.pack(f"<{len(flat)}I", *flat)).decode()
        self._text = json.dumps(_FORM + data) if flat else ""

    def _agree(self, mine: list[int], *, alike: bool) -> dict[int, int]:
        """Those of these values that are the same on all ranks. `alike`: they have the same names."""
        own = self._own or {}
        if self._state.world_size == 1:
            return {key: own[key] for key in mine}
        keys = mine if alike else transfer.tell(mine, 0, self._state.rank, self._device)
        if not keys:
            return {}
        least = torch.tensor([own.get(key, _ABSENT) for key in keys], dtype=torch.int64, device=self._device)
        most = least.clone()
        dist.all_reduce(least, dist.ReduceOp.MIN)
        dist.all_reduce(most, dist.ReduceOp.MAX)
        rows = zip(keys, least.tolist(), most.tolist(), strict=True)
        return {key: low for key, low, high in rows if low == high}

    def _tell(self) -> None:
        own, common = self._own or {}, self._common or {}
        differing = [self._names[key] for key, number in own.items() if common.get(key, number) != number]
        if names := _first_of_each(name for kind, name in differing if kind == _MADE):
            log.warning(_OTHER, *shown(names))


def _read(came: Any) -> dict[int, int]:
    """What a header says was common; {} if it says nothing that this version reads."""
    if not isinstance(came, str) or not came.startswith(_FORM):
        return {}
    try:
        data = base64.b85decode(came.removeprefix(_FORM))
        flat = struct.unpack(f"<{len(data) // 4}I", data)
        return dict(zip(flat[::2], flat[1::2], strict=True))
    except (ValueError, struct.error):
        return {}


def _of_process() -> Iterator[tuple[str, Any]]:
    """What decides for all of the process by which ways numbers are computed."""
    yield from ((name, str(value)) for name, value in of_torch().items())
    yield "torch.backends.cudnn.benchmark", torch.backends.cudnn.benchmark
    for backend in ("cuda.matmul", "cudnn.conv"):
        found: Any = torch.backends
        for name in (*backend.split("."), "fp32_precision"):
            found = getattr(found, name, None)  # not in each version of torch
        yield f"torch.backends.{backend}.fp32_precision", found
    yield from ((f"os.environ[{name!r}]", os.environ.get(name)) for name in _WAYS)


def _has_compiled() -> bool:
    """Whether torch.compile has traced code of this process: what it makes of it rounds in other places."""
    dynamo: Any = sys.modules.get("torch._dynamo.utils")
    return dynamo is not None and dynamo.counters["frames"]["total"] > 0


def _classes(thing: Any) -> list[str]:
    """The class of an object, and of all parts of a module: some have no state (an activation)."""
    parts = thing.modules() if isinstance(thing, torch.nn.Module) else (thing,)
    return [f"{type(each).__module__}.{type(each).__qualname__}" for each in parts]


def _options_of_parts(thing: Any) -> dict[str, list[Any]]:
    """The plain public attributes of the parts of a module, which its state does not have (a rate of
    dropout): of all parts of one class together."""
    found: dict[str, list[Any]] = {}
    for part in thing.modules() if isinstance(thing, torch.nn.Module) else ():
        for key, value in vars(part).items():
            if key[0] != "_" and key != "training" and type(value) in PLAIN:
                found.setdefault(f"{type(part).__name__}.{key}", []).append(value)
    return {
        name: values
        for name, values in found.items()
        if all(digest_of(name, each) is not None for each in {*values})
    }


def _options(objects: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The plain options of optimizers and of torch's schedulers, as the script has made them."""
    for name, thing in objects.items():
        if isinstance(thing, torch.optim.Optimizer):
            for at, group in enumerate(thing.param_groups):
                plain = ((key, group[key]) for key in group if key != "params")
                yield from (
                    (f"{name}.param_groups[{at}][{key!r}]", each) for key, each in plain if says_all(each)
                )
        elif isinstance(thing, torch.optim.lr_scheduler.LRScheduler):
            yield from ((f"{name}.{key}", each) for key, each in vars(thing).items() if says_all(each))


def _first_of_each(names: Iterable[str]) -> list[str]:
    """The names, but of the items of one list only the first."""
    return list({ITEM.split(name)[0]: name for name in reversed(list(names))}.values())[::-1]
