"""Copy the state into this rank's arena, and read it back.

A plan (which live tensor goes to which place of the slot) is made once and kept while the tensors stay the
same. A snapshot is then one pass of copies at the speed of memory, and a small header."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from holdfast.errors import RestoreError, SessionError, StateError
from holdfast.ipc import layout
from holdfast.ipc.arena import Arena, SlotState, SlotView, SlotWriter
from holdfast.ipc.shm import HEADER_ALIGN_BYTES, ArenaError, align
from holdfast.ipc.skips import NO_ARENA, CopyState, Skip, SkipKind
from holdfast.snapshots import gpu, lazy, letting_go, plan
from holdfast.state import copying, shard_ids
from holdfast.state.tracked import dtype_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.snapshots.plan import SnapshotPlan
    from holdfast.state.tracked import TrackedState

_Places = tuple[layout.Tensor, ...]


def view(memory: memoryview, entry: layout.Tensor) -> torch.Tensor:
    """One tensor of a slot, sharing the slot's bytes. Raises RestoreError."""
    dtype = dtype_of(entry.dtype)
    if not entry.nbytes:
        return torch.empty(entry.shape, dtype=dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of memory that is mapped for reading only
        flat = torch.frombuffer(
            memory, dtype=dtype, count=entry.nbytes // dtype.itemsize, offset=entry.offset
        )
    return flat.view(entry.shape)


@dataclass(frozen=True, slots=True)
class KeptState:
    """A state that has outlived its objects, with its header: clean with `step` completed steps."""

    step: int
    header: bytes
    tensors: tuple[torch.Tensor, ...]
    versions: tuple[int, ...]  # of the tensors, when they were kept

    def adopt(self, tracked: TrackedState) -> None:
        """Restore these objects from it. Raises RestoreError."""
        if tuple(tensor._version for tensor in self.tensors) != self.versions:
            raise RestoreError(
                "tracked tensors were changed after their generation had ended: build the objects inside of "
                "the elastic function if track(...) is called there; else build and track them before it"
            )
        try:
            entries, plain = layout.decode(self.header, 1 << 62)
        except layout.SlotLayoutError as error:
            raise RestoreError(f"the header of the kept state cannot be read: {error}") from error
        tracked.adopt(entries, plain, list(self.tensors))


@dataclass(frozen=True, slots=True)
class Settled:
    """How a lazy snapshot has ended.

    - `step`, `generation`: of its state; `index`: its slot.
    - `moved`: tensors that were changed while they were copied, by name.
    - `whole`: the slot is READY; else it was given back empty.
    - `waited_s`, `copy_s`: how long training waited for the end of the copy, and how long that took."""

    step: int
    generation: int
    index: int
    moved: tuple[str, ...]
    whole: bool
    waited_s: float
    copy_s: float


@dataclass(frozen=True, slots=True)
class _UnderWay:
    """A lazy snapshot whose slot is still WRITING."""

    writer: SlotWriter
    step: int
    generation: int
    copy: lazy.LazyCopy


class SnapshotWriter:
    """This rank's snapshots, in its arena.

    A lazy one is under way until `settle`: its slot is WRITING, so no reader takes it and a death leaves the
    other slot whole. Whatever writes tracked tensors calls `settle` first. Only the main thread touches the
    arena's words."""

    def __init__(self, tracked: TrackedState) -> None:
        self._tracked = tracked
        self.random: Callable[[], Any] | None = None  # returns generator states, if they are kept
        self.functions: Callable[[], str] = str  # returns the finished functions, for the header
        self._arena: Arena | None = None
        self._plan: plan.SnapshotPlan | None = None
        self._header = b""
        self._copier = gpu.GpuCopier()
        self._views: dict[int, tuple[_Places, list[torch.Tensor]]] = {}
        self._under_way: _UnderWay | None = None
        self._lazy: tuple[plan.SnapshotPlan, frozenset[int]] | None = None  # what may be copied late
        self._lazy_count = 0  # lazy snapshots of this plan
        self._eager: set[str] = set()  # tensors that were seen to move while they were copied

    @property
    def path(self) -> str:
        """The arena's file; "" if there is none yet."""
        return str(self._arena.path) if self._arena is not None else ""

    def needs(self) -> int:
        """Bytes that one slot needs for the present state. Raises StateError."""
        self.look()
        assert self._plan is not None
        return layout.room(self._plan.data_bytes, len(self._header))

    def look(self) -> tuple[list[torch.Tensor], bytes]:
        """The live tensors of the present state, and its header. Raises StateError."""
        try:
            random = self.random() if self.random is not None else None
            self._plan, self._header = plan.current(self._plan, self._tracked, random, self.functions())
        except Exception as error:  # a user's state_dict may raise anything
            self._plan = None
            known = isinstance(error, SessionError)
            raise StateError(str(error) if known else f"the state cannot be read: {error!r}") from error
        return self._plan.tensors, self._header

    def plan(self) -> plan.SnapshotPlan:
        """The plan of the present state. Raises StateError."""
        self.look()
        assert self._plan is not None
        return self._plan

    def keep(self, step: int) -> KeptState:
        """Keep the present state apart from its objects, which may go. Raises StateError.

        From a GPU it is copied to host memory, because the next objects need the room; else the memory itself
        is kept."""
        tensors, header = self.look()
        self._plan = None
        kept = tuple(tensor.cpu() for tensor in tensors)
        return KeptState(step, header, kept, tuple(tensor._version for tensor in kept))

    @property
    def shard(self) -> str:
        """The shard id of the newest plan."""
        return self._plan.shard if self._plan is not None else shard_ids.WHOLE

    def attach(self, path: str) -> None:
        """Use the arena at `path`. Raises ArenaError."""
        self.detach()
        self._arena = Arena.open(path)

    def detach(self) -> None:
        """Close the arena; the file stays. A snapshot that is under way is given up."""
        under_way, self._under_way = self._under_way, None
        if under_way is not None:
            under_way.copy.join()
            under_way.writer.abandon()
        self._views.clear()
        self._copier.release()
        if self._arena is not None:
            self._arena.close()
            self._arena = None

    def write(
        self,
        step: int,
        generation: int,
        released_step: int,
        void_step: int = -1,
        *,
        lazily: bool = False,
    ) -> int | Skip:
        """Copy the state into the free slot. Returns the slot's index, or why the snapshot was skipped.

        `released_step`, `void_step`: see `Arena.begin`. `lazily`: what only an optimizer changes is copied
        beside the next step; if there is such, the snapshot is `under_way` until `settle`. Raises StateError,
        ArenaError, and SessionError if another one is under way."""
        if self._under_way is not None:
            raise SessionError("a snapshot is under way: settle it before the next one")
        if self._arena is None:
            return NO_ARENA
        tensors, header = self.look()
        assert self._plan is not None
        data_bytes = self._plan.data_bytes
        if align(data_bytes, HEADER_ALIGN_BYTES) + len(header) > self._arena.slot_bytes:
            return Skip(SkipKind.OUTGROWN, "the state has grown too large for its slot")
        writer = self._arena.begin(step, generation, released_step=released_step, void_step=void_step)
        if isinstance(writer, Skip):
            return writer
        late = self._late(self._plan) if lazily else []
        pairs = self._pairs(writer, tensors, self._plan.placed)
        rest = set(late)
        self._fill(writer, [pair for index, pair in enumerate(pairs) if index not in rest])
        writer.layout(header, data_bytes)
        if late:
            names = [self._plan.placed[index].name for index in late]
            copy = lazy.LazyCopy(names, [pairs[index] for index in late], self._lazy_count)
            self._under_way = _UnderWay(writer, step, generation, copy)
            self._lazy_count += 1
        else:
            writer.ready()
        return writer.index

    def slots(self, generation: int) -> letting_go.Slots:
        """What the arena's READY slots hold of this generation, and how far their copies are."""
        try:
            found = self._arena.slots if self._arena is not None else ()
        except ArenaError:  # the snapshot itself will report it
            return letting_go.Slots()
        ready = [slot for slot in found if slot.state == SlotState.READY]
        own = [slot for slot in ready if slot.generation == generation]
        copies = self._arena.copies if self._arena is not None else CopyState.NONE
        return letting_go.Slots.of(
            ((slot.step, slot.pins > 0) for slot in own), former=len(own) < len(ready), copies=copies
        )

    def obstacle(self, generation: int, released_step: int, void_step: int = -1) -> Skip | None:
        """Why no slot of the arena could be written to now; None: one could, or there is no arena."""
        if self._arena is None:
            return None
        try:
            return self._arena.obstacle(generation, released_step, void_step)
        except ArenaError:  # the snapshot itself will report it
            return None

    @property
    def under_way(self) -> bool:
        """Whether a lazy snapshot waits for `settle`."""
        return self._under_way is not None

    def settle(self) -> Settled | None:
        """Wait for the snapshot that is under way, check it, and declare its slot READY or give it back.

        Returns None if none is under way. Raises ArenaError; then none is under way any more."""
        under_way, self._under_way = self._under_way, None
        if under_way is None:
            return None
        begun = time.perf_counter()
        under_way.copy.join()
        waited_s = time.perf_counter() - begun
        moved, right = under_way.copy.moved()
        self._eager.update(moved)
        if right:
            under_way.writer.ready()
        else:
            under_way.writer.abandon()
        return Settled(
            under_way.step,
            under_way.generation,
            under_way.writer.index,
            tuple(moved),
            right,
            waited_s,
            under_way.copy.copy_s,
        )

    def _late(self, current: SnapshotPlan) -> list[int]:
        """Indices of the tensors that may be copied beside the next step."""
        if self._lazy is None or self._lazy[0] is not current:
            self._lazy, self._lazy_count = (current, lazy.candidates(current)), 0
        placed = current.placed
        return [index for index in sorted(self._lazy[1]) if placed[index].name not in self._eager]

    def _pairs(
        self, writer: SlotWriter, tensors: list[torch.Tensor], placed: tuple[layout.Tensor, ...]
    ) -> list[copying.Pair]:
        """Each tensor with its place in the slot before it: (target, source)."""
        known = self._views.get(writer.index)
        if known is None or known[0] is not placed:
            known = (placed, [view(writer.memory, entry) for entry in placed])
            self._views[writer.index] = known
        return list(zip(known[1], tensors, strict=True))

    @torch.no_grad()
    def _fill(self, writer: SlotWriter, pairs: list[copying.Pair]) -> None:
        copying.copy([pair for pair in pairs if not pair[1].is_cuda])
        away = [pair for pair in pairs if pair[1].is_cuda]
        if away:
            self._copier.pin(torch.frombuffer(writer.memory, dtype=torch.uint8))
            self._copier.copy([target for target, _ in away], [source for _, source in away])


def find(arena: Arena, step: int, origin: int, shard: str = "") -> SlotView | None:
    """The READY slot of `step`, and of this shard if one is named.

    Prefers the one whose origin is generation `origin`, else the newest."""
    return arena.find(step, generation=origin, shard=shard) or arena.find(step, shard=shard)


def load(path: str, step: int, tracked: TrackedState, origin: int = 0, shard: str = "") -> None:
    """Restore the snapshot of `step`, and of this shard if one is named, from this arena file.

    The arena's owner waits at the barrier, so the slot is not pinned: the pin of a reader that is killed
    would stay. Afterwards it is checked that the slot was not overwritten. Raises RestoreError or
    ArenaError."""
    with Arena.open(path, touched=False) as arena:
        slot = find(arena, step, origin, shard)
        if slot is None:
            raise RestoreError(f"{path} holds no snapshot of step {step}{shard and ' of shard '}{shard}")
        _adopt(slot, tracked)
        if not slot.current():
            raise RestoreError(f"the snapshot of step {step} in {path} was overwritten while it was read")


def _adopt(slot: SlotView, tracked: TrackedState) -> None:
    try:
        entries, plain = layout.decode(slot.header, slot.data_bytes)
    except layout.SlotLayoutError as error:
        raise RestoreError(f"{slot.arena.path}: {error}") from error
    tracked.adopt(entries, plain, [view(slot.memory, entry) for entry in entries])
