"""Keep copies of other nodes' snapshots: two slots of shared memory per member, one whole at any moment.

`<member>.arena` holds the bytes; `<member>.json` tells whose they are and the digest of each chunk. A copy is
written into the older slot, from chunks that are here already and chunks that arrive. It is declared whole
only once every chunk is verified and the record is written: an agent that is killed at any point loses no
whole copy."""

from __future__ import annotations

import json
import logging
import os
import threading
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from agent.peers.blocks import PeerError, SnapshotInfo, check, check_member
from agent.peers.filling import Receiving, SharedArena, fill_in, header_of
from agent.peers.room import check_memory
from controlplane.core.records.model import PeerCopy
from holdfast import removal
from holdfast.folders import MEMORY_FILES
from holdfast.ipc import layout
from holdfast.ipc.arena import SLOTS, Arena, SlotState
from holdfast.ipc.shm import PAGE_BYTES, ArenaError
from holdfast.ipc.skips import Skip

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from holdfast.ipc.arena import SlotView

_VERSION = 1
_NEWER = 1 << 62
log = logging.getLogger("holdfast.agent.peers")


@dataclass(slots=True)
class _Copy:
    """What is kept of one member: its arena, and what its slots may hold."""

    kept: SharedArena
    known: list[SnapshotInfo] = field(default_factory=list)
    owner: str = ""  # the node that left it (rights.owner_of); "": unknown

    def whole(self) -> list[tuple[SlotView, SnapshotInfo]]:
        """The READY slots with what they hold, oldest first."""
        ready = [slot for slot in self.kept.arena.slots if slot.state == SlotState.READY]
        pairs = [(slot, held) for slot in ready if (held := _of(slot, self.known)) is not None]
        return sorted(pairs, key=lambda pair: pair[1].age)


class KeptCopies:
    """All copies of other nodes' members, in `folder`.

    Calls that move bytes block: run them in a thread. `held` and `listing` do not block: nothing is mapped or
    unmapped while the lock is held."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.RLock()
        self._all: dict[str, _Copy] = {}

    def adopt(self) -> None:
        """Take over what an earlier agent kept; remove what cannot be used. Raises OSError."""
        self._folder.mkdir(mode=0o700, exist_ok=True)
        for record in sorted(self._folder.glob("*.json")):
            member = record.name.removesuffix(".json")
            try:
                self._adopt(member, *_read(record))
            except (ArenaError, PeerError, OSError, ValueError, TypeError, KeyError) as error:
                log.warning("the copy of %s cannot be used, and is removed: %s", member, error)
        kept = {path for member in self._all for path in (self._arena(member), self._record(member))}
        for path in self._folder.iterdir():
            if path not in kept:
                if MEMORY_FILES.fullmatch(path.name):
                    removal.file(path)

    def held(self) -> tuple[PeerCopy, ...]:
        """The whole copies, as hello and beats report them."""
        with self._lock:
            pairs = [held for copy in self._all.values() for _, held in _whole(copy)]
        return tuple(
            PeerCopy(h.member, h.job, h.rank, h.shard, h.step, h.generation, h.vouched) for h in pairs
        )

    def owner(self, member: str) -> str:
        """The node that left the copy of this member; "" when it is unknown."""
        with self._lock:
            return self._all[member].owner if member in self._all else ""

    def listing(self, member: str = "") -> list[SnapshotInfo]:
        """The whole copies of one member or of all, oldest first."""
        with self._lock:
            wanted = [self._all[member]] if member in self._all else [] if member else self._all.values()
            return [held for copy in wanted for _, held in _whole(copy)]

    @contextmanager
    def reading(self, member: str, step: int, generation: int) -> Iterator[tuple[SlotView, SnapshotInfo]]:
        """A whole copy, pinned while it is read. Raises PeerError when there is none."""
        with self._lock:
            copy = self._all.get(member)
            pairs = _whole(copy) if copy is not None else []
            found = next((pair for pair in pairs if pair[1].age == (generation, step)), None)
            if copy is None or found is None:
                here = ", ".join(str(held) for _, held in pairs) or "no copy of it"
                raise PeerError(
                    f"no copy of snapshot {step} of {member} (generation {generation}): this node has {here}"
                )
            kept = copy.kept
            kept.hold()
        try:
            with kept.arena.pinned(found[0]):
                yield found
        finally:
            kept.release()

    def begin(self, held: SnapshotInfo) -> Receiving | None:
        """Make room for a snapshot and fill in every chunk of it that is here already.

        None when all of it is here. Raises PeerError when the snapshot is impossible, ArenaError when there
        is no room."""
        check(held)
        with self._lock:
            copy = self._all.get(held.member)
            sources = copy.whole() if copy is not None else []
            if copy is not None and any(have == held for _, have in sources):
                self._vouch(copy, held)
                return None
            if copy is not None:
                copy.kept.hold()
        try:
            return self._begin(held, copy, sources)
        finally:
            if copy is not None:
                copy.kept.release()

    def _begin(
        self, held: SnapshotInfo, copy: _Copy | None, sources: list[tuple[SlotView, SnapshotInfo]]
    ) -> Receiving:
        fits = copy is not None and copy.kept.arena.slot_bytes >= held.room
        kept = copy.kept if copy is not None and fits else SharedArena(self._larger(held))
        if fits:
            kept.hold()
        writer = kept.arena.begin(held.step, held.generation, released_step=_NEWER)
        if isinstance(writer, Skip):
            kept.release()
            raise PeerError(f"{held} cannot be accepted now: {writer}")
        receiving = Receiving(held, kept, writer, fresh=not fits)
        try:
            mine = [(s, h) for s, h in sources if s.arena is kept.arena and s.index == writer.index]
            others = [pair for pair in sources if pair not in mine]
            receiving.expect(fill_in(writer.memory, held, mine[0][1] if mine else None, others))
        except BaseException:
            receiving.close()
            raise
        return receiving

    def _vouch(self, copy: _Copy, held: SnapshotInfo) -> None:
        """Record what the owner vouches for. It may come after the copy: an older version of the agent did
        not send it."""
        if held.vouched and all(have.vouched != held.vouched for have in copy.known if have == held):
            copy.known = [held if have == held else have for have in copy.known]
            self._write(held.member, copy.known, copy.owner)

    def commit(self, receiving: Receiving, owner: str = "") -> None:
        """Declare a received snapshot whole: from now on this node keeps it for `owner`.

        The record is written before the slot becomes READY: a crash between the two leaves a record that
        names one slot too many, which is ignored. Raises LayoutError when the header does not describe the
        slot, PeerError when the copy was dropped meanwhile."""
        held, writer, kept = receiving.held, receiving.writer, receiving.kept
        header = header_of(writer.memory, held)
        layout.decode(header, held.data_bytes)
        writer.layout(header, held.data_bytes)
        with ExitStack() as unlocked, self._lock:
            copy = self._all.get(held.member)
            if not receiving.fresh and (copy is None or copy.kept is not kept):
                raise PeerError(f"the copy of {held.member} was dropped in the meantime")
            known = [have for _, have in copy.whole()] if copy is not None else []
            self._write(held.member, [*known, held], owner)
            writer.ready()
            if receiving.fresh:
                os.replace(kept.arena.path, self._arena(held.member))
                kept.arena.path = self._arena(held.member)
                known = []
                kept.hold()
                if copy is not None:
                    unlocked.callback(copy.kept.release)
            self._all[held.member] = _Copy(kept, [*known, held], owner)
            receiving.close(whole=True)

    def drop(self, member: str) -> bool:
        """Remove what is kept of a member; False when there was nothing."""
        check_member(member)
        with self._lock:
            gone = self._forget(member) if member in self._all else None
        if gone is not None:
            gone.release()
        return gone is not None

    def drop_job(self, job: str) -> None:
        """Remove every copy of a job's members."""
        with self._lock:
            members = [name for name, copy in self._all.items() if any(h.job == job for h in copy.known)]
        for member in members:
            self.drop(member)

    def close(self) -> None:
        """Unmap the memory. The files stay."""
        with self._lock:
            for copy in self._all.values():
                copy.kept.release()
            self._all.clear()

    def _forget(self, member: str) -> SharedArena:
        """Remove its files and return its memory: unmapping that takes time, so the caller does it outside
        the lock."""
        for path in (self._record(member), self._arena(member)):
            removal.file(path)
        return self._all.pop(member).kept

    def _adopt(self, member: str, owner: str, known: list[SnapshotInfo]) -> None:
        for held in known:
            check(held)
            if held.member != member:
                raise PeerError(f"its record names another member, {held.member}")
        arena = Arena.open(self._arena(member), owner=True)
        copy = _Copy(SharedArena(arena), known, owner)
        try:
            usable = bool(copy.whole())
        except ArenaError:
            arena.close()
            raise
        if not usable:
            arena.close()
            raise PeerError("it has no complete snapshot")
        self._all[member] = copy

    def _larger(self, held: SnapshotInfo) -> Arena:
        """Create a larger arena beside one that is too small. It replaces that one when its copy is whole."""
        target = self._next(held.member)
        check_memory(target, SLOTS * held.room + PAGE_BYTES)
        return Arena.create(target, held.room)

    def _write(self, member: str, known: list[SnapshotInfo], owner: str) -> None:
        path = self._record(member)
        draft = path.with_suffix(".new")
        copies = [{**asdict(h), "digests": h.digests.hex()} for h in known]
        content = {"v": _VERSION, "owner": owner, "copies": copies}
        draft.write_text(json.dumps(content))
        os.replace(draft, path)

    def _arena(self, member: str) -> Path:
        return self._folder / f"{member}.arena"

    def _next(self, member: str) -> Path:
        return self._folder / f"{member}.larger"

    def _record(self, member: str) -> Path:
        return self._folder / f"{member}.json"


def _whole(copy: _Copy) -> list[tuple[SlotView, SnapshotInfo]]:
    try:
        return copy.whole()
    except ArenaError as error:
        log.warning("a copy cannot be read: %s", error)
        return []


def _of(slot: SlotView, known: list[SnapshotInfo]) -> SnapshotInfo | None:
    what = (slot.generation, slot.step, slot.data_bytes, slot.header_bytes)
    return next((h for h in known if (*h.age, h.data_bytes, h.header_bytes) == what), None)


def _read(record: Path) -> tuple[str, list[SnapshotInfo]]:
    """Read who left a copy and which snapshots it has. Older versions wrote no owner: then it is ""."""
    content: Any = json.loads(record.read_text())
    if content["v"] != _VERSION:
        raise PeerError(f"it has format version {content['v']!r}, this Holdfast reads {_VERSION}")
    known = [
        SnapshotInfo(**{**entry, "digests": bytes.fromhex(entry["digests"])}) for entry in content["copies"]
    ]
    return str(content.get("owner", "")), known
