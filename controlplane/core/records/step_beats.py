"""Shorten heartbeats in which only steps have moved, and make them whole again.

Nearly all heartbeats differ from the one before in steps alone. Such a one has columns of steps, in the order
of the members of an earlier, whole heartbeat on the same stream, and that one's sequence number (`like`).
Steps are numbers, not differences: a short heartbeat that is lost does no harm."""

from __future__ import annotations

import dataclasses
from operator import attrgetter

from controlplane.core.records.events import NodeBeat, StepBeat
from controlplane.core.records.model import MemberStatus

Steps = tuple[int, int, int]
"""`step`, `snapshot_step` and `snapshot_before` of a MemberStatus: all that a short heartbeat has of it."""

WHOLE_EVERY = 20
"""At least one heartbeat in so many is whole. A leader that could not follow one knows all again with it."""

_NAMES = tuple(field.name for field in dataclasses.fields(MemberStatus))
_values = attrgetter(*_NAMES)
_STEP, _SNAPSHOT, _BEFORE = map(_NAMES.index, ("step", "snapshot_step", "snapshot_before"))


def steps_of(status: MemberStatus) -> Steps:
    """Return the steps that a status shows."""
    return status.step, status.snapshot_step, status.snapshot_before


def moved(status: MemberStatus, steps: Steps) -> MemberStatus:
    """Return the status with these steps. (Half the time of dataclasses.replace: it runs for every rank.)"""
    values = list(_values(status))
    values[_STEP], values[_SNAPSHOT], values[_BEFORE] = steps
    return MemberStatus(*values)


def whole(beat: StepBeat, like: NodeBeat, steps: list[Steps]) -> NodeBeat:
    """Return the heartbeat that a short one stands for. `steps`: its `rows`."""
    members = [moved(status, each) for status, each in zip(like.members, steps, strict=True)]
    return dataclasses.replace(like, seq=beat.seq, members=tuple(members))


def rows(beat: StepBeat, like: NodeBeat | None) -> list[Steps] | None:
    """Return the columns by member; None if they are not those of this whole heartbeat."""
    columns = beat.steps, beat.snapshot_steps, beat.snapshots_before
    if like is None or beat.like != like.seq or {len(like.members)} != set(map(len, columns)):
        return None
    return list(zip(*columns, strict=True))


def shortened(beat: NodeBeat, like: NodeBeat) -> StepBeat | None:
    """Return the short form of a heartbeat; None where more than steps differs from `like`."""
    if len(beat.members) != len(like.members):
        return None
    pairs = zip(beat.members, like.members, strict=True)
    if any(now is not then and moved(then, steps_of(now)) != now for now, then in pairs):
        return None
    if dataclasses.replace(beat, seq=like.seq, members=like.members) != like:
        return None
    columns = zip(*map(steps_of, beat.members), strict=True) if beat.members else ((), (), ())
    return StepBeat(beat.node, beat.incarnation, beat.seq, like.seq, *columns)


class BeatShortener:
    """Shortens the heartbeats of one agent's stream."""

    def __init__(self) -> None:
        self._like: NodeBeat | None = None  # the last whole one that was sent
        self._short = 0  # so many short ones since then

    def shorten(self, beat: NodeBeat) -> NodeBeat | StepBeat:
        """Return what is sent in the place of this heartbeat."""
        short = None
        if self._like is not None and self._short + 1 < WHOLE_EVERY:
            short = shortened(beat, self._like)
        if short is None:
            self._like, self._short = beat, 0
            return beat
        self._short += 1
        return short

    def forget(self) -> None:
        """Have the next heartbeat be whole: the stream is new, or a report has said something else since."""
        self._like = None
