"""Restore the state of a generation's first step: from this rank's own memory, or from ranks that have it.

First every rank learns what every other one needs. Then all go through the same sorted list of sources, and
each takes part in the transfers that concern it. The common order prevents two ranks from waiting for each
other."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from holdfast.agreement import resharding
from holdfast.errors import RestoreError
from holdfast.groups import transfer
from holdfast.groups.groups import carrier, gather_numbers
from holdfast.ipc import layout
from holdfast.ipc.arena import Arena
from holdfast.snapshots import snapshot
from holdfast.state import shard_ids

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.agreement.equality import Equality
    from holdfast.agreement.generators import Generators
    from holdfast.ipc.arena import SlotView
    from holdfast.ipc.formation import Resume, Source
    from holdfast.rank_state import RankState

_LIVING = ("fresh", "donor")
_NEEDS, _SHARD, _PORT, _HEADER = range(4)


@dataclass(frozen=True, slots=True, order=True)
class _Source:
    """A rank that gives a shard, or one share of its bytes. Sources sort alike on all ranks.

    - `number`: the shard's id as a number.
    - `share`, `shares`: which part of the shard's bytes; 0 of 1: all.
    - `rank`: the rank that gives it.
    - `arena`: file from which that rank reads it; "": it gives its live state."""

    number: int
    share: int
    shares: int
    rank: int
    arena: str = ""
    living: bool = True  # it is live state of a rank, not the content of an arena
    shard: str = ""  # the shard's id; "" if the agent named no sources

    @property
    def key(self) -> tuple[int, int]:
        """Which shard and which share, whatever rank gives them."""
        return self.number, self.share


def restore(
    state: RankState, equality: Equality, generators: Generators | None, resume: Resume, port: int
) -> set[int]:
    """Restore the state on all ranks. Returns the ports at which the ranks' groups were accepted.

    Raises RestoreError or ArenaError; on every rank if a shard has no source."""
    tracked = state.tracked
    equality.prepare()
    tracked.at, tracked.random, tracked.data, tracked.began = state.layout, None, False, False
    state.shard_id = _shard_id(state, resume)
    ports = _restore(state, equality, resume, port)
    if generators is not None and tracked.random is not None:
        generators.restore(tracked.random, resume.step)
    tracked.random = None
    equality.restored(resume.step)
    return ports


def header(state: RankState, resume: Resume) -> bytes:
    """The header of the state that this rank is to read from an arena; b"" if none. Raises ArenaError."""
    for source in _named(state, resume):
        if source.rank == state.rank and source.arena:
            with Arena.open(source.arena, touched=False) as arena:
                slot = arena.find_partial(resume.step, shard=source.shard) if source.shares > 1 else None
                slot = slot or snapshot.find(arena, resume.step, resume.origin, source.shard)
                return slot.header if slot is not None else b""
    return b""


def _shard_id(state: RankState, resume: Resume) -> str:
    """The shard id of the state that this rank holds.

    Whether buffers differ by rank is inferred from the named sources: a new process has not seen them
    differ."""
    tracked = state.tracked
    if not tracked.objects:
        return shard_ids.WHOLE
    ids = []
    for tracked.scattered in (True, False):
        ids.append(shard_ids.of(tracked))
    named = {source.shard for source in resume.sources}
    tracked.scattered = ids[0] in named and ids[1] not in named
    return ids[0] if tracked.scattered else ids[1]


def _restore(state: RankState, equality: Equality, resume: Resume, port: int) -> set[int]:
    _check_fresh(state, resume)
    _check_given(state, resume)
    has = _reshard(state, resume) if resume.reshard else _own(state, resume)
    if state.world_size == 1:
        _check_alone(state, resume, has)
        return set()
    return _Exchange(state, equality, resume, port, has=has).run()


def _check_fresh(state: RankState, resume: Resume) -> None:
    """Raise RestoreError if this rank is to give what its script built, but does not have that any more."""
    giver = resume.tier == "fresh" and resume.step == 0 and state.rank == resume.rank
    if not giver:
        return
    begin = "training must begin with the state that the script builds, but "
    if state.clean.generation and state.clean.step != 0:
        raise RestoreError(begin + "this process has trained on it since")
    if _torn(state):
        raise RestoreError(begin + "an unfinished restore has overwritten it in this process")


def _torn(state: RankState) -> bool:
    """Whether a state that never became complete may have overwritten what the script built.

    A function that tracks its own objects has built them again."""
    return state.clean.overwritten and not state.clean.generation and not state.entry.tracks_inside


def _overwrite(state: RankState) -> None:
    """Note that a restore begins: until it is complete, this process holds neither its own state nor the new
    one."""
    state.clean.step, state.clean.overwritten = -1, True


def _check_given(state: RankState, resume: Resume) -> None:
    """Raise RestoreError if this rank is to give a step that it does not hold.

    It would train on from its own state and count it as the other."""
    first = (resume.rank, resume.tier)
    gives = [(source.rank, source.tier) for source in resume.sources] or [first]
    if (state.rank, "donor") in gives and state.clean.step != resume.step:
        raise RestoreError(
            f"this process must give its state of step {resume.step}, but holds step {state.clean.step}"
        )


def _own(state: RankState, resume: Resume) -> bool:
    """Whether this rank has its state without the others: the one it held, or its whole shard in an arena.

    If an arena is the source of a shard, no living rank holds that very state: a rank's state of the same
    step was then computed in another generation."""
    if resume.tier == "fresh":  # a state that was trained since is not what the script built
        built = state.clean.generation == 0 and not _torn(state)
        later = resume.step > 0  # a later function begins with what the script made for it
        return built or later or state.clean.step == resume.step
    own = shard_ids.number(state.shard_id)
    mine = [source for source in _named(state, resume) if source.number == own]
    if state.clean.step == resume.step and (not mine or any(source.living for source in mine)):
        if state.entry.kept is not None:
            state.entry.kept.adopt(state.tracked)
        return True
    for source in mine:
        if source.rank == state.rank and source.arena and source.shares == 1:
            _overwrite(state)
            snapshot.load(source.arena, resume.step, state.tracked, resume.origin, source.shard)
            state.clean.step = resume.step
            return True
    return False


def _named(state: RankState, resume: Resume) -> tuple[_Source, ...]:
    """The sources that the agent named. Without any: the restore point's rank, for what this rank holds."""
    if not resume.sources:
        living = resume.tier in _LIVING
        return (_Source(shard_ids.number(state.shard_id), 0, 1, resume.rank, resume.arena, living),)
    return tuple(sorted(_source(source, resume) for source in resume.sources))


def _source(source: Source, resume: Resume) -> _Source:
    living = source.tier in _LIVING
    arena = source.arena or ("" if living else resume.arena)
    number = shard_ids.number(source.shard)
    return _Source(number, source.share, source.shares, source.rank, arena, living, source.shard)


def _check_alone(state: RankState, resume: Resume, has: bool) -> None:
    if not (has or resume.tier in _LIVING or not state.tracked.objects):
        raise RestoreError(f"no source was named for step {resume.step} of shard {state.shard_id!r}")


def _reshard(state: RankState, resume: Resume) -> bool:
    if not state.tracked.objects:  # it tracks inside a function that is over
        state.clean.step = -1
        return True
    _overwrite(state)
    lost = resharding.load(state.tracked, resume)
    state.shard_id, state.clean.step = shard_ids.of(state.tracked), resume.step
    if lost:
        state.inexact.append(f"{lost} of rank {state.rank}")
    return True


@dataclass(slots=True)
class _Gift:
    """What this rank gives as one source: live tensors, or the bytes of an arena's slot."""

    header: bytes
    tensors: list[torch.Tensor] = field(default_factory=list)
    arena: Arena | None = None
    slot: SlotView | None = None


class _Exchange:
    """One restore through the group."""

    def __init__(self, state: RankState, equality: Equality, resume: Resume, port: int, *, has: bool) -> None:
        self._state, self._equality = state, equality
        self._resume, self._port, self._has = resume, port, has
        self._device = carrier(state.backend, state.device)
        self._gifts: dict[tuple[int, int], _Gift] = {}  # by (shard number, share)
        self._pieces: dict[int, _Assembly] = {}
        self._shard = shard_ids.number(state.shard_id)

    def run(self) -> set[int]:
        """Exchange what is needed. Returns the ports at which the ranks' groups were accepted."""
        try:
            return self._run()
        finally:
            self._pieces.clear()
            for gift in self._gifts.values():
                gift.slot, gift.tensors = None, []
                if gift.arena is not None:
                    gift.arena.close()

    def _run(self) -> set[int]:
        resume, fresh = self._resume, self._resume.tier == "fresh"
        self._equality.meet(resume.step, holds=self._has, fresh=fresh)
        self._shard = shard_ids.number(self._state.shard_id)
        sources = _named(self._state, resume)
        rows = self._gather(sources)
        if not resume.sources:
            sources = _implied(resume, rows, rebuilt=self._state.entry.tracks_inside)
            simple = len(sources) == 1 and sources[0].rank == resume.rank
            if not simple and any(row[_NEEDS] for row in rows):
                wider = self._gather(sources)
                rows = [[*row[:_HEADER], *wide[_HEADER:]] for row, wide in zip(rows, wider, strict=True)]
        _check_covered(sources, rows)
        for source in sources:
            self._pass(source, sources, rows)
        for assembly in self._pieces.values():
            assembly.adopt(self._state)
        return {row[_PORT] for row in rows}

    def _gather(self, sources: tuple[_Source, ...]) -> list[list[int]]:
        """Every rank's row: does it need state, shard number, port, sizes of the headers that it gives."""
        state, resume = self._state, self._resume
        mine = [source for source in sources if source.rank == state.rank]
        columns = max(Counter(source.rank for source in sources).values())
        for source in mine:
            if source.key not in self._gifts:
                self._gifts[source.key] = self._gift(source)
        sizes = [len(self._gifts[source.key].header) for source in mine]
        first = not resume.sources and state.rank == resume.rank and resume.tier != "fresh"
        tracked = state.tracked.objects
        needs = 0 if first or self._has or not tracked else 1
        row = [needs, self._shard, self._port, *sizes, *[0] * (columns - len(mine))]
        return gather_numbers(row, self._device, state.world_size)

    def _gift(self, source: _Source) -> _Gift:
        """Open what this rank gives as this source. Raises RestoreError or ArenaError."""
        state, resume = self._state, self._resume
        if not source.arena or (source.shares == 1 and source.number == self._shard):
            tensors, header = state.snapshots.look()
            return _Gift(header, tensors)
        arena = Arena.open(source.arena, touched=False)
        slot = arena.find_partial(resume.step, shard=source.shard) if source.shares > 1 else None
        slot = slot or snapshot.find(arena, resume.step, resume.origin, source.shard)
        if slot is None:
            path = arena.path
            arena.close()
            raise RestoreError(f"{path} has no snapshot of step {resume.step}")
        gift = _Gift(slot.header, arena=arena, slot=slot)
        if source.shares == 1:
            entries, _ = transfer.read(gift.header, str(arena.path), slot.data_bytes)
            gift.tensors = [snapshot.view(slot.memory, entry) for entry in entries]
        return gift

    def _pass(self, source: _Source, sources: Sequence[_Source], rows: list[list[int]]) -> None:
        """Carry out the transfer from one source to the ranks that need it."""
        state, number = self._state, source.number
        takers = tuple(
            rank
            for rank, row in enumerate(rows)
            if row[_NEEDS] and row[_SHARD] == number and rank != source.rank
        )
        everyone = len(takers) > 1 and all(row[_SHARD] == number for row in rows)
        route = transfer.Route(source.rank, takers, state.rank, self._device, everyone)
        if source.shares > 1:
            self._pass_share(source, route, rows)
        elif takers and route.concerns_me:
            place = [s for s in sources if s.rank == source.rank].index(source)
            if state.rank == source.rank:
                gift = self._gifts[source.key]
                transfer.give(route, gift.tensors, gift.header)
            else:
                _overwrite(state)
                transfer.take(route, rows[source.rank][_HEADER + place], state.tracked)
                state.clean.step = self._resume.step

    def _pass_share(self, source: _Source, route: transfer.Route, rows: list[list[int]]) -> None:
        """Transfer one share of the bytes, into the slot that has another share or into own memory."""
        state = self._state
        mine = source.rank == state.rank
        needed = rows[state.rank][_NEEDS] and source.number == self._shard
        if mine and needed and source.number not in self._pieces:
            self._pieces[source.number] = _Assembly.of(self._gifts[source.key])
        if not route.takers or not route.concerns_me:
            return
        size = rows[source.rank][_HEADER]
        if mine:
            gift = self._gifts[source.key]
            route.pass_on(torch.frombuffer(bytearray(gift.header), dtype=torch.uint8).to(self._device))
        header = self._gifts[source.key].header if mine else transfer.take_header(route, size)
        if needed and source.number not in self._pieces:
            own = next((g for key, g in self._gifts.items() if key[0] == source.number), None)
            self._pieces[source.number] = _Assembly.of(own) if own else _Assembly.empty(header)
        memory = self._pieces[source.number].memory if needed else None
        if mine and memory is None:
            slot = self._gifts[source.key].slot
            memory = slot.memory if slot is not None else None
        start, end = layout.share_range(_data_bytes(header), source.share, source.shares)
        transfer.pass_range(route, memory, start, end)


@dataclass(slots=True)
class _Assembly:
    """A shard's bytes, put together from its shares."""

    header: bytes
    memory: memoryview

    @classmethod
    def of(cls, gift: _Gift) -> _Assembly:
        """Assemble in the slot of an arena that has one share already."""
        assert gift.slot is not None
        return cls(gift.header, gift.slot.memory)

    @classmethod
    def empty(cls, header: bytes) -> _Assembly:
        """Assemble in memory of its own."""
        return cls(header, memoryview(bytearray(_data_bytes(header))))

    def adopt(self, state: RankState) -> None:
        """Restore the tracked objects from the complete bytes."""
        entries, plain = transfer.read(self.header, "the ranks that each hold a share", len(self.memory))
        _overwrite(state)
        state.tracked.adopt(entries, plain, [snapshot.view(self.memory, entry) for entry in entries])


def _data_bytes(header: bytes) -> int:
    entries, _ = transfer.read(header, "a rank that holds a share")
    return max((entry.offset + entry.nbytes for entry in entries), default=0)


def _implied(resume: Resume, rows: list[list[int]], *, rebuilt: bool) -> tuple[_Source, ...]:
    """The sources if the agent named none.

    The rank of the restore point gives to the ranks with its shard id. For another id, or a fresh state, the
    first rank that has it gives. `rebuilt`: every rank has a fresh one, because the script has built it
    again."""
    fresh = resume.tier == "fresh"
    chosen: dict[int, int] = {} if fresh else {rows[resume.rank][_SHARD]: resume.rank}
    for late in (False, True):
        for rank, row in enumerate(rows):
            if not row[_NEEDS] or (late and fresh and rebuilt):
                chosen.setdefault(row[_SHARD], rank)
    return tuple(_Source(number, 0, 1, rank) for number, rank in sorted(chosen.items()))


def _check_covered(sources: Sequence[_Source], rows: list[list[int]]) -> None:
    """Raise RestoreError, on all ranks alike, if a shard is needed that no source gives."""
    known = {source.number for source in sources}
    lost = [rank for rank, row in enumerate(rows) if row[_NEEDS] and row[_SHARD] not in known]
    if lost:
        raise RestoreError(f"ranks {lost} need shards of the state that no source has")
