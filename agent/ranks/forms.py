"""Make the message that has a rank form a generation: its place, its peers, and the sources of its state."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.deciding.member import seat_of
from controlplane.core.records.model import Source, Tier
from holdfast.ipc.messages.agent import Form

if TYPE_CHECKING:
    from agent.deciding.member import LocalMember
    from agent.host.paths import Paths
    from controlplane.core.records.model import Generation, Placement, Resume
    from holdfast.ipc.frames import Message

_IN_ARENA = (Tier.MEMORY, Tier.PEER, Tier.CHECKPOINT)
"""Tiers whose source rank reads the state from an arena on its own node."""


def form_message(member: LocalMember, generation: Generation, incident: str, paths: Paths) -> Form:
    """The message for one member. Raises ValueError when it has no place in the generation."""
    seat = seat_of(member.name, generation)
    seats = [
        {"rank": s.rank, "member": s.member, "node": s.node, "local_rank": s.local_rank}
        for s in generation.seats
    ]
    frame: Message = {
        "number": generation.number,
        "term": generation.term,
        "rank": seat.rank,
        "local_rank": seat.local_rank,
        "world_size": generation.world_size,
        "local_world_size": sum(s.node == seat.node for s in generation.seats),
        "seats": seats,
        "store": generation.store,
        "master": generation.master,
        "restarts": generation.restarts,
        "reason": generation.reason,
        "resume": _restore(member, seat, generation.resume, paths),
    }
    return Form(frame, incident)


def _restore(member: LocalMember, seat: Placement, resume: Resume, paths: Paths) -> Message:
    restore: Message = {
        "tier": resume.tier.value,
        "step": resume.step,
        "born": resume.born,
        "rank": resume.rank,
        "member": resume.member,
        "checkpoint": resume.checkpoint,
        "reason": resume.reason,
        "sources": [_source(source, member, seat, paths) for source in resume.sources],
        "skip": [{"first": window.first, "end": window.end} for window in resume.skip],
    }
    arenas = [source["arena"] for source in restore["sources"] if "arena" in source]
    if arenas:
        restore["arena"] = arenas[0]
    elif resume.tier in _IN_ARENA and resume.rank == seat.rank:
        restore["arena"] = str(paths.arena(resume.member or member.name))
    if resume.reshard:
        restore |= _reshard(member, resume)
    return restore


def _source(source: Source, member: LocalMember, seat: Placement, paths: Paths) -> Message:
    frame: Message = {
        "shard": source.shard,
        "tier": source.tier.value,
        "rank": source.rank,
        "share": source.share,
        "shares": source.shares,
        "member": source.member,
    }
    if source.tier in _IN_ARENA and source.rank == seat.rank:
        frame["arena"] = str(paths.arena(source.member or member.name))
    return frame


def _reshard(member: LocalMember, resume: Resume) -> Message:
    """Have the rank read its part of the checkpoint from storage: no arena holds it in the new layout."""
    spec = member.spec
    storage = spec.storage if spec else ""
    return {"reshard": True, "storage": storage, "job": member.status.job, "digest": resume.digest}
