"""Choose the restore point when every rank is at the barrier, and bring its parts to the ranks that read it.

What is not where it is needed is brought by Load (from a checkpoint) and Fetch (from a replica holder)
orders, all at once, repeated until they are answered. Before an older state is chosen, newer ones that may
still be had are waited for: on nodes that have not reported or whose stream broke, after a failed fetch that
may be tried again, and in checkpoints that are nearly committed. A bad checkpoint, or a holder that is lost
or cannot give its copy, leads to a new choice."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from controlplane.core.checkpoint import finalizing
from controlplane.core.failures import deaths, numeric_anomalies
from controlplane.core.lifecycle import rendezvous
from controlplane.core.records import effects as fx
from controlplane.core.records.model import Cause, Failure, JobPhase, Source, Tier
from controlplane.core.records.notes import NoteKind
from controlplane.core.records.words import some_of
from controlplane.core.recovery import barrier
from controlplane.core.restore import restore_point, sharding, state_sources, vouching
from controlplane.core.state.concerns import Answer, Restoring

if TYPE_CHECKING:
    from controlplane.core.records import events as ev
    from controlplane.core.records.copies import Copy
    from controlplane.core.records.effects import Effect
    from controlplane.core.records.model import CheckpointRecord, Resume
    from controlplane.core.restore.restore_point import Choice
    from controlplane.core.restore.sharding import Shards
    from controlplane.core.state.cluster_state import ClusterState
    from controlplane.core.state.job import Job
    from controlplane.core.state.member import Member

    Key = tuple[str, ...]
    Waits = dict[Key, tuple[Effect, Answer]]

SHARED_FROM_BYTES = 64 * 1024 * 1024
"""Replicated state of at least this size is read by one rank per node, a share each; smaller by one rank."""

READERS_MAX = 64
"""Most ranks that share the reading: with more, the shares would be unbalanced, as chunks are not split."""


def loading(state: ClusterState, job: Job) -> None:
    """Choose the restore point, order what is not in place, and store the generation once everything is."""
    if not barrier.all_at_barrier(state, job):
        job.restore.restoring = None
        state.set_phase(job, JobPhase.STOPPING, "a rank left the barrier: wait for all of them again")
        return
    if job.restore.restoring is None or _outdated(state, job, job.restore.restoring):
        job.restore.restoring = _choose(state, job)
    restoring = job.restore.restoring
    if restoring is None:
        return
    if restoring.waits:
        state.set_phase(job, JobPhase.LOADING, job.restore.load_trouble or restoring.resume.reason)
        _order(state, job, restoring)
        return
    job.restore.restoring, job.restore.load_trouble = None, ""
    rendezvous.store(state, job, numeric_anomalies.skipping(job, _with_altered(job, restoring.resume)))
    vouching.tidy(state, job)


def _with_altered(job: Job, resume: Resume) -> Resume:
    """Add to the reason the copies that were refused before this choice, as their bytes were altered."""
    altered, job.restore.altered = job.restore.altered, {}
    return dataclasses.replace(resume, reason="; ".join((resume.reason, *altered))) if altered else resume


def _choose(state: ClusterState, job: Job) -> Restoring | None:
    need = sharding.needed(state, job)
    vouching.note_refuted(state, job)
    copies = state_sources.copies(state, job, need)
    choice = restore_point.choose(copies, job.restore.known_step, tuple(need.readers), need.readers)
    if _hopes(state, job, need, choice):
        return None
    if choice is None:
        _begin_again(state, job, copies)
        return None
    silent = _not_answered(state, job, choice.resume)
    if silent:
        _wait_for(state, job, silent)
        return None
    ending = _ending(state, job, choice)
    if ending is not None:
        state.set_phase(job, JobPhase.LOADING, f"{ending.name} is being ended: waits to see what it leaves")
        return None
    coming = finalizing.coming(state, job, choice.resume.step, suspect=choice.suspect)
    if coming:
        state.set_phase(job, JobPhase.LOADING, f"checkpoint {coming} is newer: waits for its commit")
        return None
    return _restoring(state, job, choice)


def _hopes(state: ClusterState, job: Job, need: Shards, choice: Choice | None) -> bool:
    """Whether to wait, because a newer state than the chosen one may still be had.

    Failed fetches are tried again, up to `FETCH_TRIES` times, and nodes whose streams broke are waited for
    until they are back or given up."""
    if not any(node.state == "suspect" for node in state.nodes.values()) and not job.restore.failed_sources:
        return False
    hoped = state_sources.copies(state, job, need, hoped=True)
    better = restore_point.choose(hoped, job.restore.known_step, tuple(need.readers), need.readers)
    if better is None or (choice is not None and better.resume.step <= choice.resume.step):
        return False
    away = [copy for copy in better.copies if copy.node and not copy.arena]
    silent = dict.fromkeys(copy.node for copy in away if not state.up(copy.node))
    if silent:
        _wait_for(state, job, list(silent))
        return True
    keys = [state_sources.copy_key(copy.member, copy.node, copy.step) for copy in away]
    left = [key for key in keys if key in job.restore.failed_sources]
    state.set_phase(
        job,
        JobPhase.LOADING,
        f"{job.restore.failed_sources[left[0]]}; no other copy is as new: it is tried again",
    )
    state.wake(job, job.restore.fetch_again_at)
    if state.now >= job.restore.fetch_again_at:
        for key in left:
            del job.restore.failed_sources[key]
        state.touch(job)
    return True


def _ending(state: ClusterState, job: Job, choice: Choice) -> Member | None:
    """Return a member judged dead whose living process may overwrite the snapshot that was chosen; else None.

    It is being killed; the choice waits until its agent reports what it left. The wait ends when the agent
    still reports it alive although it has had the order for the stop timeout, or the node is given up. Ranks
    that decide among themselves may have released any snapshot."""
    for copy in choice.copies:
        member = job.zombies.get(copy.member)
        own = member is not None and (copy.tier is Tier.MEMORY or copy.node == member.node)
        if member is not None and own and state.up(member.node):
            ordered_at = max(member.died_at, state.nodes[member.node].up_since)
            if member.seen_at < ordered_at + state.settings.stop_timeout_s:
                return member
    return None


def _wait_for(state: ClusterState, job: Job, silent: list[str]) -> None:
    """Show that the job waits for these nodes; their own deadlines end the wait."""
    state.set_phase(job, JobPhase.LOADING, f"{some_of(silent)} may keep newer state: waits for their word")


def _not_answered(state: ClusterState, job: Job, resume: Resume) -> list[str]:
    """Return the nodes that have not reported to this leader and may keep copies of a newer step."""
    fallen = resume.tier in (Tier.CHECKPOINT, Tier.FRESH) and resume.step < job.restore.known_step
    if not fallen or not job.spec.replicas:
        return []
    return [node.name for node in state.nodes.values() if node.state == "expected"]


def _begin_again(state: ClusterState, job: Job, copies: list[Copy]) -> None:
    """Replace ranks by new processes that build the state anew, because no whole state is left anywhere.

    Only ranks that cannot begin at step 0 are replaced; of replicated state one new process is enough."""
    begins = {copy.rank for copy in copies if copy.step == 0 and copy.tier in (Tier.FRESH, Tier.DONOR)}
    need = sharding.needed(state, job)
    worn = job.seated()[:1] if need.only else [mb for mb in job.seated() if mb.rank not in begins]
    worn = worn or job.seated()  # each could begin, but together they do not make a whole state: replace all
    message = "no clean state is left anywhere: a new process builds it"
    if not need.only:
        message = (
            f"no step is left of which all {len(need.readers)} shards can be reached: "
            "new processes build the state"
        )
    for member in worn:
        deaths.mark_dead(state, job, member, Failure(Cause.STUCK, message))
        deaths.kill(state, job, member, message)


def _restoring(state: ClusterState, job: Job, choice: Choice) -> Restoring:
    chosen, waits = choice.resume, {}
    record = job.checkpoints.records.get(chosen.checkpoint)
    if record is not None and not chosen.reshard and len(choice.copies) == 1 and not choice.copies[0].arena:
        chosen = _shared(state, job, chosen, record)
        waits = _shares(job, chosen, record)
    else:
        chosen = _named(job, choice)
        for copy in choice.copies:
            if copy.tier in _ORDERS and not copy.arena:
                key, effect, answer = _ORDERS[copy.tier](state, job, copy)
                waits[key] = effect, answer
    holders = tuple(dict.fromkeys(copy.node for copy in choice.copies if copy.node and not copy.arena))
    waits = {key: wait for key, wait in waits.items() if not _is_answered(job, wait[1])}
    return Restoring(chosen, waits, holders)


def _is_answered(job: Job, answer: Answer) -> bool:
    done = job.restore.answered.get(answer.order[2])
    return done is not None and done.order == answer.order


def _named(job: Job, choice: Choice) -> Resume:
    """Return the restore point with the arena named that each source reads from."""
    resume = choice.resume
    sources = tuple(
        dataclasses.replace(source, member=copy.arena or source.member or _reader(job, copy))
        for source, copy in zip(resume.sources, choice.copies, strict=False)
    )
    if sources or len(choice.copies) != 1:
        return dataclasses.replace(resume, sources=sources)
    (copy,) = choice.copies
    return dataclasses.replace(resume, member=copy.arena or resume.member or _reader(job, copy))


def _reader(job: Job, copy: Copy) -> str:
    """Return the member into whose arena an order will bring this copy; "": it is where it is read."""
    return job.seats[copy.rank].member if copy.tier in _ORDERS else ""


def _shared(state: ClusterState, job: Job, resume: Resume, record: CheckpointRecord) -> Resume:
    """Divide the reading of large replicated state among one rank per node, a share each."""
    first = {seat.node: seat for seat in reversed(job.seats)}
    readers = sorted(first.values(), key=lambda seat: seat.rank)[:READERS_MAX]
    if record.bytes_total < SHARED_FROM_BYTES or len(readers) < 2:
        return resume
    shard = sharding.needed(state, job).only
    sources = [
        Source(shard, Tier.CHECKPOINT, seat.rank, seat.member, share, len(readers))
        for share, seat in enumerate(readers)
    ]
    reason = f"{resume.reason}; {len(readers)} nodes read a share of it each"
    return dataclasses.replace(resume, sources=tuple(sources), reason=reason)


def _shares(job: Job, resume: Resume, record: CheckpointRecord) -> Waits:
    own = state_sources.checkpoint_shard(record)
    sources = resume.sources or (Source(own, Tier.CHECKPOINT, resume.rank),)
    waits: Waits = {}
    for source in sources:
        key, effect, answer = _load(job, record, source)
        waits[key] = effect, answer
    return waits


def _load(job: Job, record: CheckpointRecord, source: Source) -> tuple[Key, Effect, Answer]:
    seat = job.seats[source.rank]
    effect = fx.Load(seat.node, seat.member, job.spec, record, source.shard, source.share, source.shares)
    key = _load_key(effect.node, effect.member, record.id, source)
    return key, effect, Answer(key, Tier.CHECKPOINT, record.step, checkpoint=record.id)


def _load_key(node: str, member: str, checkpoint: str, what: Source | ev.Loaded) -> Key:
    return "load", node, member, checkpoint, what.shard, str(what.share), str(what.shares)


def _load_copy(state: ClusterState, job: Job, copy: Copy) -> tuple[Key, Effect, Answer]:
    return _load(job, job.checkpoints.records[copy.checkpoint], Source(copy.shard, copy.tier, copy.rank))


def _fetch_copy(state: ClusterState, job: Job, copy: Copy) -> tuple[Key, Effect, Answer]:
    seat = job.seats[copy.rank]
    effect = fx.Fetch(
        seat.node, seat.member, job.name, copy.member, copy.step, copy.generation,
        state.nodes[copy.node].peer, copy.digest,
    )  # fmt: skip
    key = _fetch_key(seat.node, seat.member, copy.member, copy.step)
    return key, effect, Answer(key, Tier.PEER, copy.step, copy.member, copy.node, doubted=copy.doubted)


def _fetch_key(node: str, member: str, source: str, step: int) -> Key:
    return "fetch", node, member, source, str(step)


_ORDERS = {Tier.CHECKPOINT: _load_copy, Tier.PEER: _fetch_copy}


def _order(state: ClusterState, job: Job, restoring: Restoring) -> None:
    """Repeat the orders that are not answered, every `long_retry_s`, or when a node's stream is new."""
    state.wake(job, restoring.again_at)
    if state.now < restoring.again_at and restoring.streams == state.streams:
        return
    restoring.again_at, restoring.streams = state.now + state.settings.long_retry_s, state.streams
    for key, (effect, answer) in restoring.waits.items():
        state.order(job, (*key, answer.holder), effect, state.settings.long_retry_s)


def _outdated(state: ClusterState, job: Job, restoring: Restoring) -> bool:
    """Whether the sources of this choice are gone: its checkpoint is bad, or a holder's node is lost."""
    record = job.checkpoints.records.get(restoring.resume.checkpoint)
    rotten = bool(restoring.resume.checkpoint) and (record is None or bool(record.bad))
    return rotten or any(state.nodes[holder].state == "lost" for holder in restoring.holders)


def _waited(job: Job, key: Key) -> tuple[Restoring, Answer] | None:
    restoring = job.restore.restoring
    if restoring is None or job.phase is not JobPhase.LOADING or key not in restoring.waits:
        return None
    return restoring, restoring.waits[key][1]


def _in_place(state: ClusterState, job: Job, restoring: Restoring, answer: Answer) -> None:
    del restoring.waits[answer.order]
    job.restore.answered[answer.order[2]] = answer
    state.touch(job)


def loaded(state: ClusterState, event: ev.Loaded) -> None:
    """Take the answer to a Load: it is in place, is tried again, or the checkpoint is bad: choose anew."""
    job = state.jobs.get(event.job)
    key = _load_key(event.node, event.member, event.checkpoint, event)
    found = _waited(job, key) if job else None
    if job is None or found is None:
        state.drop(
            NoteKind.STALE_LOADED, event.checkpoint, f"nobody waits for {event.member} to read this of it"
        )
        return
    state.touch(job)
    job.restore.load_trouble = ""
    if not event.reason:
        _in_place(state, job, *found)
    elif not event.corrupt:
        name = event.checkpoint
        job.restore.load_trouble = (
            f"checkpoint {name} could not be loaded, and is tried again: {event.reason}"
        )
    else:
        job.restore.restoring = None
        finalizing.mark_bad(state, job, event.checkpoint, event.reason)


def fetched(state: ClusterState, event: ev.Fetched) -> None:
    """Take the answer to a Fetch: the copy is in place, or it is excluded and the choice is made anew.

    An altered copy is excluded for good, since it would be altered the next time too; others may be tried
    again (see `_hopes`)."""
    job = state.jobs.get(event.job)
    found = _waited(job, _fetch_key(event.node, event.member, event.source, event.step)) if job else None
    if job is None or found is None:
        state.drop(
            NoteKind.STALE_FETCHED, event.member, f"nobody waits for it to fetch {event.source}'s snapshot"
        )
        return
    restoring, answer = found
    if not event.reason:
        _in_place(state, job, restoring, answer)
        return
    key = state_sources.copy_key(answer.source, answer.holder, answer.step)
    words = f"step {answer.step} of {answer.source} cannot be had from {answer.holder}: {event.reason}"
    job.restore.failed_sources[key], job.restore.fetch_tries[key] = (
        words,
        job.restore.fetch_tries.get(key, 0) + 1,
    )
    if event.altered:
        job.restore.fetch_tries[key], job.restore.altered[words] = state_sources.FETCH_TRIES, None
    job.restore.fetch_again_at = state.now + state.settings.long_retry_s
    given_up = job.restore.fetch_tries[key] >= state_sources.FETCH_TRIES
    kind = (
        NoteKind.COPY_ALTERED
        if event.altered
        else NoteKind.COPY_GIVEN_UP
        if given_up
        else NoteKind.FETCH_FAILED
    )
    state.note(kind, job.name, words)
    job.restore.restoring = None
    state.touch(job)
