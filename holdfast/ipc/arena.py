"""Keep two slots for snapshots of a member's state in one file of shared memory.

The agent creates the file, the rank copies into it, the agent reads it. A slot holds the tensors' bytes from
its start (page aligned, so addresses stay the same from snapshot to snapshot), and the header after them. A
rank killed during a copy leaves its slot WRITING; the other slot stays whole.

What both sides decide on (which slot may be overwritten, which is being read) is decided under a lock on the
file (`flock`), which a killed process releases by itself. Standard library only."""

from __future__ import annotations

import mmap
import os
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast import removal
from holdfast.ipc import layout, shm
from holdfast.ipc.shm import HEADER_ALIGN_BYTES, PAGE_BYTES, ArenaError, align, allocate, locked, touch
from holdfast.ipc.skips import CopyState, Skip, SkipKind

if TYPE_CHECKING:
    from collections.abc import Iterator

SLOTS = 2
_MAGIC = int.from_bytes(b"HOLDFAST", "little")
_VERSION = 1
_WORDS = PAGE_BYTES // 8
_FILE_WORDS = 8  # magic, version, slot_bytes, slots, CopyState, three unused
_COPIES = 4
_SLOT_WORDS = 8  # state, step, generation, header bytes, data bytes, pins, sequence, one unused
_STATE, _STEP, _GENERATION, _HEADER, _DATA, _PINS, _SEQUENCE = range(7)


class SlotState(IntEnum):
    """What a slot holds."""

    FREE = 0
    WRITING = 1  # being copied into, or torn because its writer died
    READY = 2
    PARTIAL = 3  # the layout is complete, but only a share of the bytes: cannot be restored alone


@dataclass(frozen=True, slots=True)
class SlotView:
    """One slot as it was when it was read.

    `sequence` grows with every change of `state`, so it shows whether the content is still the same. `pins`:
    readers that keep it from being overwritten."""

    arena: Arena
    index: int
    state: SlotState
    step: int  # completed steps of its state
    generation: int
    header_bytes: int
    data_bytes: int
    pins: int
    sequence: int

    @property
    def header(self) -> bytes:
        """The header's JSON (a copy)."""
        start = align(self.data_bytes, HEADER_ALIGN_BYTES)
        return bytes(self.arena.area(self.index)[start : start + self.header_bytes])

    @property
    def memory(self) -> memoryview:
        """The data area itself, not a copy. Pin the slot while you read it."""
        return self.arena.area(self.index)[: self.data_bytes]

    @property
    def shard(self) -> str:
        """The id of the shard in the slot; "" if its header names none."""
        try:
            return layout.shard(self.header)
        except layout.SlotLayoutError:
            return ""

    def current(self) -> bool:
        """Whether the slot still holds what this view saw."""
        now = self.arena.slots[self.index]
        return now.state == self.state and now.sequence == self.sequence


class SlotWriter:
    """A slot taken for writing: copy into `memory` and call `layout`, in either order, then `ready`."""

    def __init__(self, arena: Arena, index: int, step: int, generation: int, *, held: bool = False) -> None:
        self.index = index
        self._arena, self._held = arena, held
        self._step, self._generation = step, generation
        self._sizes: tuple[int, int] | None = None

    @property
    def memory(self) -> memoryview:
        """The slot's whole area, writable and page aligned; the data starts at 0."""
        return self._arena.area(self.index)

    def layout(self, header: bytes, data_bytes: int) -> None:
        """Put the header after `data_bytes` of data. Raises ArenaError if the slot has not enough room."""
        start = align(data_bytes, HEADER_ALIGN_BYTES)
        needed = start + len(header)
        if data_bytes < 0 or needed > self._arena.slot_bytes:
            raise ArenaError(
                f"a snapshot of {needed} bytes does not fit the slots of {self._arena.slot_bytes} bytes in "
                f"{self._arena.path}: ask for a larger arena (the tracked state has grown)"
            )
        self.memory[start:needed] = header
        self._sizes = (len(header), data_bytes)

    def ready(self) -> SlotView:
        """Declare the slot complete. From now on it can be read."""
        return self._done(SlotState.READY)

    def partial(self) -> SlotView:
        """Declare that one share of the bytes is there (`layout.share_range`): `find_partial` finds the slot,
        no reader takes it for a whole snapshot, and the next snapshot overwrites it."""
        return self._done(SlotState.PARTIAL)

    def _done(self, state: SlotState) -> SlotView:
        if self._sizes is None:
            raise ArenaError(
                f"slot {self.index} of {self._arena.path} has no layout yet: call layout() first"
            )
        view = self._arena._finish(self.index, state, (self._step, self._generation, *self._sizes))
        self._let_go()
        return view

    def abandon(self) -> None:
        """Give the slot back empty."""
        self._arena._empty(self.index)
        self._let_go()

    def _let_go(self) -> None:
        if self._held:
            self._held = False
            self._arena._let_go(self.index)


class Arena:
    """Two slots of `slot_bytes` each, in shared memory."""

    def __init__(self, path: Path, descriptor: int, memory: mmap.mmap) -> None:
        self.path = path
        self._descriptor = descriptor
        self._memory = memory
        self._view = memoryview(memory)
        self._words = self._view[:PAGE_BYTES].cast("q")

    @classmethod
    def create(cls, path: str | os.PathLike[str], slot_bytes: int) -> Arena:
        """Create an arena at `path`, mode 0600, with every page in memory.

        An older file there is replaced, not changed: a process that has it mapped keeps it. Raises ArenaError
        if there is not enough room."""
        target = Path(path)
        draft = target.with_name(removal.draft_name(f"{target.name}."))
        slot_bytes = align(max(slot_bytes, 1), PAGE_BYTES)
        descriptor, memory = allocate(draft, PAGE_BYTES + SLOTS * slot_bytes)
        arena = cls(target, descriptor, memory)
        for index, word in enumerate((_MAGIC, _VERSION, slot_bytes, SLOTS)):
            arena._words[index] = word
        os.replace(draft, target)
        return arena

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, owner: bool = False, touched: bool = True) -> Arena:
        """Open an arena that an agent created. Raises ArenaError if the file is not an arena.

        `owner`: the caller is an agent that succeeds a dead one, whose pins and debts are removed. `touched`:
        map all pages now, for a process that will write to it repeatedly; else each when it is used."""
        target = Path(path)
        try:
            descriptor = os.open(target, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError as error:
            raise ArenaError(f"cannot open the arena {target}: {error.strerror}") from error
        try:
            memory = _checked_map(target, descriptor)
        except (ArenaError, OSError, ValueError) as error:
            os.close(descriptor)
            raise ArenaError(str(error)) from error
        if touched:
            touch(memory)
        arena = cls(target, descriptor, memory)
        if owner:
            arena._clear_pins()
        return arena

    @property
    def slot_bytes(self) -> int:
        """Bytes of one slot, header and data together."""
        return self._words[2]

    @property
    def slots(self) -> tuple[SlotView, ...]:
        """Both slots as they are now."""
        return tuple(self._look(index) for index in range(SLOTS))

    def area(self, index: int) -> memoryview:
        """A slot's whole memory, writable and page aligned, at the same address while the arena is open."""
        start = PAGE_BYTES + index * self.slot_bytes
        return self._view[start : start + self.slot_bytes]

    def unmap(self, index: int, start: int, nbytes: int) -> None:
        """Take a run of a slot out of this process's map: see `shm.unmap`."""
        shm.unmap(self._memory, PAGE_BYTES + index * self.slot_bytes + start, nbytes)

    def newest(self) -> SlotView | None:
        """The READY slot of the newest generation; of two, the one with the higher step."""
        return max(self._ready(), key=_age, default=None)

    def find(self, step: int, *, generation: int | None = None, shard: str = "") -> SlotView | None:
        """The READY slot of `step`, of this shard and generation if given, else of the newest generation."""
        return self._find(SlotState.READY, step, generation, shard)

    def find_partial(self, step: int, *, shard: str = "") -> SlotView | None:
        """The PARTIAL slot of that step and shard, of the newest generation."""
        return self._find(SlotState.PARTIAL, step, None, shard)

    def _find(self, state: SlotState, step: int, generation: int | None, shard: str) -> SlotView | None:
        found = [slot for slot in self.slots if slot.state == state and slot.step == step]
        if generation is not None:
            found = [slot for slot in found if slot.generation == generation]
        if shard:
            found = [slot for slot in found if slot.shard == shard]
        return max(found, key=_age, default=None)

    def begin(
        self, step: int, generation: int, *, released_step: int, void_step: int = -1, held: bool = False
    ) -> SlotWriter | Skip:
        """Take the slot that may be overwritten, or say why there is none.

        `held`: the writer is an agent, on behalf of a rank that waits. If that rank goes on meanwhile, it
        must not take the slot for one that a dead writer left.

        `released_step`: the newest snapshot known to be READY on all ranks; after a roll back it starts again
        at the step rolled back to. `void_step`: unreleased snapshots up to it will never be released.

        Slots that are neither READY nor pinned are taken first. If both are READY, the older one is taken if
        the newer is released. A newer one that is void is taken itself. So is a newer one that belongs to an
        ended generation and was not released, because it never will be. Therefore a rank must hear the
        releases of earlier generations before it forms a new one: they come over one connection, in order,
        and are repeated after a reconnect."""
        with locked(self._descriptor, self.path):
            slot = self._overwritable(generation, released_step, void_step)
            if isinstance(slot, SlotView):
                self._set(slot.index, state=SlotState.WRITING, pins=1 if held else None)
                return SlotWriter(self, slot.index, step, generation, held=held)
            return slot

    @property
    def copies(self) -> CopyState:
        """How far the copies of the newest released snapshot are."""
        return CopyState(self._words[_COPIES])

    @copies.setter
    def copies(self, state: CopyState) -> None:
        self._words[_COPIES] = state

    def obstacle(self, generation: int, released_step: int, void_step: int = -1) -> Skip | None:
        """Why none should be taken now: what `begin` goes by, and copies that are owed. None: one may."""
        with locked(self._descriptor, self.path):
            if isinstance(slot := self._overwritable(generation, released_step, void_step), Skip):
                return slot
            older = slot.state == SlotState.READY and slot.index == min(self.slots, key=_age).index
            if older and self.copies is CopyState.OWED:
                return Skip(SkipKind.UNCOPIED, "other nodes have no copy of the newest snapshot yet")
            return None

    def _overwritable(self, generation: int, released_step: int, void_step: int) -> SlotView | Skip:
        if any(slot.state == SlotState.WRITING and slot.pins for slot in self.slots):
            return Skip(SkipKind.BEING_FILLED, "the agent is bringing a snapshot into this arena")
        for slot in self.slots:
            if slot.state != SlotState.READY and not slot.pins:
                return slot
        older, newer = sorted(self.slots, key=_age)
        if newer.step <= released_step:
            chosen = older
        elif newer.generation < generation or newer.step <= void_step:
            chosen = newer
        else:
            return Skip(SkipKind.UNRELEASED, f"snapshot {newer.step} is not ready on all ranks yet")
        if chosen.pins:
            return Skip(SkipKind.BEING_READ, f"snapshot {chosen.step} is still being read by the agent")
        return chosen

    def pin(self, slot: SlotView) -> None:
        """Keep this slot from being overwritten while it is read. Raises ArenaError if that has happened."""
        with locked(self._descriptor, self.path):
            if slot.state not in _WHOLE_LAYOUT or not slot.current():
                raise ArenaError(f"snapshot {slot.step} in {self.path} has been overwritten")
            self._set(slot.index, pins=self._look(slot.index).pins + 1)

    def unpin(self, slot: SlotView) -> None:
        """Undo one `pin`."""
        with locked(self._descriptor, self.path):
            pins = self._look(slot.index).pins
            if pins <= 0:
                raise ArenaError(f"slot {slot.index} of {self.path} is not pinned")
            self._set(slot.index, pins=pins - 1)

    @contextmanager
    def pinned(self, slot: SlotView) -> Iterator[SlotView]:
        """`pin` for the duration of a with block."""
        self.pin(slot)
        try:
            yield slot
        finally:
            self.unpin(slot)

    def close(self) -> None:
        """Unmap the memory; the file stays. Views that others hold keep it mapped until they are gone."""
        if self._descriptor < 0:
            return
        os.close(self._descriptor)
        self._descriptor = -1
        self._words.release()
        try:
            self._view.release()
            self._memory.close()
        except BufferError:  # a tensor still uses a slot: the mapping ends with the last such view
            return

    def __enter__(self) -> Arena:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ready(self) -> list[SlotView]:
        return [slot for slot in self.slots if slot.state == SlotState.READY]

    def _look(self, index: int) -> SlotView:
        base = _FILE_WORDS + index * _SLOT_WORDS
        words = self._words[base : base + _SLOT_WORDS].tolist()
        if words[_STATE] not in _STATES or words[_HEADER] < 0 or words[_DATA] < 0:
            raise ArenaError(f"{self.path} is damaged: slot {index} says {words}")
        if align(words[_DATA], HEADER_ALIGN_BYTES) + words[_HEADER] > self.slot_bytes:
            raise ArenaError(f"{self.path} is damaged: slot {index} claims to use more bytes than it has")
        state, step, generation, header, data, pins, sequence, _ = words
        return SlotView(self, index, SlotState(state), step, generation, header, data, pins, sequence)

    def _set(self, index: int, *, state: SlotState | None = None, pins: int | None = None) -> None:
        base = _FILE_WORDS + index * _SLOT_WORDS
        if state is not None:
            self._words[base + _SEQUENCE] += 1
            self._words[base + _STATE] = state
        if pins is not None:
            self._words[base + _PINS] = pins

    def _finish(self, index: int, state: SlotState, content: tuple[int, int, int, int]) -> SlotView:
        base = _FILE_WORDS + index * _SLOT_WORDS
        with locked(self._descriptor, self.path):
            for word, value in zip((_STEP, _GENERATION, _HEADER, _DATA), content, strict=True):
                self._words[base + word] = value
            self._set(index, state=state)
            return self._look(index)

    def _empty(self, index: int) -> None:
        with locked(self._descriptor, self.path):
            self._set(index, state=SlotState.FREE)

    def _let_go(self, index: int) -> None:
        with locked(self._descriptor, self.path):
            self._set(index, pins=max(self._look(index).pins - 1, 0))

    def _clear_pins(self) -> None:
        with locked(self._descriptor, self.path):
            for index in range(SLOTS):
                self._set(index, pins=0)
            self.copies = CopyState.NONE


_STATES = frozenset(SlotState)
_WHOLE_LAYOUT = (SlotState.READY, SlotState.PARTIAL)


def _age(slot: SlotView) -> tuple[int, int]:
    return slot.generation, slot.step


def _checked_map(target: Path, descriptor: int) -> mmap.mmap:
    size = os.fstat(descriptor).st_size
    head = os.pread(descriptor, 32, 0)
    words = memoryview(head).cast("q").tolist() if len(head) == 32 else []
    if words[:1] != [_MAGIC]:
        raise ArenaError(f"{target} is not an arena of Holdfast")
    if words[1] != _VERSION:
        raise ArenaError(f"{target} is an arena of version {words[1]}, this Holdfast reads {_VERSION}")
    slot_bytes, slots = words[2], words[3]
    fits = slot_bytes > 0 and size == PAGE_BYTES + SLOTS * slot_bytes
    if slots != SLOTS or slot_bytes % PAGE_BYTES or not fits:
        raise ArenaError(
            f"{target} is damaged: {slots} slots of {slot_bytes} bytes in a file of {size} bytes"
        )
    return mmap.mmap(descriptor, size)
