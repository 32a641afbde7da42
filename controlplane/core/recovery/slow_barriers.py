"""Ask the nodes whose ranks are late at a barrier how these stand, and say it with the ranks that are killed.

At half of the time that ranks may take to stop, or to form, the nodes of those that are missing report their
stacks, how the kernel lists their processes, and what each node has left; all nodes of the job report whether
they reach each other. Nothing is decided by these answers: a rank that is missing at the end of the time is
killed with or without them, and its failure names what is known."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from controlplane.core.failures import arrivals, hangs, network
from controlplane.core.records import effects as fx
from controlplane.core.records.notes import NoteKind
from controlplane.core.records.words import GIB, NAMED_MAX
from controlplane.core.state.inquiries import BarrierInquiry

if TYPE_CHECKING:
    from controlplane.core.records import events as ev
    from controlplane.core.records.model import Failure, Standing
    from controlplane.core.state.cluster_state import ClusterState
    from controlplane.core.state.job import Job
    from controlplane.core.state.member import Member


def ask(state: ClusterState, job: Job, late: list[Member]) -> None:
    """Ask about these members of the generation, once for each phase of the job."""
    generation, asked = job.generation, job.recovery.late
    if generation is None or not late:
        return
    if asked is not None and (asked.generation, asked.phase) == (generation.number, job.phase):
        return
    job.recovery.hang_rounds += 1
    nodes = tuple(node for node in dict.fromkeys(member.node for member in late) if state.up(node))
    names = tuple(member.name for member in late)
    inquiry = BarrierInquiry(generation.number, job.phase, job.recovery.hang_rounds, names, nodes)
    job.recovery.late = inquiry
    for node in nodes:
        order = fx.CollectStacks(node, job.name, generation.number, inquiry.round, hangs.room(len(nodes)))
        state.emit(dataclasses.replace(order, at_barrier=True))
    network.look(state, job)


def collected(state: ClusterState, event: ev.StacksCollected) -> bool:
    """Take one node's answer, if it is one to this question. Return whether it is."""
    job = state.jobs.get(event.job)
    asked = job.recovery.late if job is not None else None
    if job is None or asked is None or asked.round != event.round or event.node not in asked.nodes:
        return False
    asked.answers[event.node] = event.ranks
    asked.resources[event.node] = event.resources
    if len(asked.answers) == len(asked.nodes):
        _note(state, job, asked)
    return True


def _note(state: ClusterState, job: Job, asked: BarrierInquiry) -> None:
    """Say in the journal who is late, once all nodes that were asked have answered."""
    late = [job.members[name] for name in asked.late if name in job.members]
    named = [f"rank {member.rank} on node {member.node}{words(job, member)}" for member in late[:NAMED_MAX]]
    more = [f"{len(late) - NAMED_MAX} more"] if len(late) > NAMED_MAX else []
    state.note(NoteKind.SLOW_BARRIER, job.name, " | ".join(named + more))


def words(job: Job, member: Member) -> str:
    """What is known of a late member, as an addition to a sentence about it; "": nothing is."""
    report = _report(job, member)
    frames = report.frames[: arrivals.FRAMES_SHOWN] if report is not None else ()
    known = [
        report.process if report is not None else "",
        f"it stands at {' < '.join(frames)}" if frames else "",
        network.reach(job, member.node),
        _resources(job, member.node),
    ]
    return "".join(f"; {each}" for each in known if each)


def explained(job: Job, member: Member, failure: Failure) -> Failure:
    """The failure of a member that did not come in time, with what is known of it."""
    report = _report(job, member)
    trace = report.stacks[: hangs.TRACE_CHARS] if report is not None else failure.traceback
    return dataclasses.replace(failure, message=failure.message + words(job, member), traceback=trace)


def _report(job: Job, member: Member) -> Standing | None:
    asked = job.recovery.late
    answers = asked.answers.get(member.node, ()) if asked is not None and member.name in asked.late else ()
    return next((report for report in answers if report.member == member.name), None)


def _resources(job: Job, node: str) -> str:
    left = job.recovery.late.resources.get(node) if job.recovery.late is not None else None
    if left is None:
        return ""
    known = [
        f"{left.memory_free_bytes / GIB:.3g} GiB of memory free" if left.memory_free_bytes else "",
        f"{left.disk_free_bytes / GIB:.3g} GiB of disk free at {left.disk}" if left.disk else "",
        f"tasks that wait for a CPU {left.cpu_waiting:.0%} of the time" if left.cpu_waiting >= 0 else "",
    ]
    return f"its node has {', '.join(each for each in known if each)}" if any(known) else ""
