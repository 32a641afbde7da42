"""Put a generation into etcd, have its members form it, and watch it until its first step is complete.

Form orders go out only after etcd holds the generation: whichever leader comes next, it knows every
generation that ranks may be in. While the write is on its way, a rank may leave the barrier, or turn out to
hold another state than was chosen. Then the generation is not formed, and the job waits for the barrier
again. Members that do not form in time are killed, unless all hang alike: then all form once more. `running`
looks at facts, not at what was sent, so that it also drives the jobs that a former leader left."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.core.failures import deaths, network, suspect_states
from controlplane.core.failures.verdicts import is_exception
from controlplane.core.lifecycle import ending, generations, numeric_faults
from controlplane.core.records import effects as fx
from controlplane.core.records.evidence import Evidence
from controlplane.core.records.model import (
    WHOLE_STATE,
    Cause,
    Failure,
    Generation,
    JobPhase,
    MemberPhase,
    Source,
    Tier,
)
from controlplane.core.records.notes import NoteKind
from controlplane.core.records.words import in_words
from controlplane.core.recovery import first_steps, incident_record, slow_barriers
from controlplane.core.restore import failed_sources, sharding

if TYPE_CHECKING:
    from controlplane.core.records.model import Incident, Resume
    from controlplane.core.state.cluster_state import ClusterState
    from controlplane.core.state.job import Job
    from controlplane.core.state.member import Member


CATCHING_UP = "script"
"""Activity of a FORMING member whose script is still on its way to the elastic function that runs."""


_PAUSED = "the job goes on where it was paused"


def store(state: ClusterState, job: Job, choice: Resume) -> None:
    """Put the next generation, which starts from this restore point, into etcd; the job is STORING.

    The first generation that meets has the number of the launch that made its members, if the seats are the
    same; every other one gets the next number."""
    old = job.generation
    if old is None:
        raise AssertionError(f"job {job.name} forms without a generation")
    again = (
        not old.store
        and old.number > job.generations.formed
        and old.number == job.generations.number
        and old.seats == job.seats
    )
    number = old.number if again else max(job.generations.number, old.number) + 1
    failed = job.recovery.incident is not None and job.recovery.incident.verdict.cause is not Cause.RESIZED
    restarts = old.restarts + (1 if failed else 0)
    first = job.seated()[0]
    onward = "every rank has come to its next elastic function" if job.generations.onward else _PAUSED
    reason = onward if old.store else "the first group of the job"
    reason = job.recovery.incident.plan.reason if job.recovery.incident else reason
    generation = Generation(
        job=job.name,
        number=number,
        term=state.term,
        seats=job.seats,
        store=first.status.store if first.status else "",
        master=old.master,
        resume=choice,
        reason=reason,
        restarts=restarts,
        cut_at=sharding.epoch(job, len(job.seats), number),
    )
    job.generations.number, job.generations.formed = (
        max(job.generations.number, number),
        max(job.generations.formed, number),
    )
    job.generations.storing = generation
    state.set_phase(job, JobPhase.STORING, f"generation {number} is on its way into etcd: {choice.reason}")
    job.numbers.suspect_states = suspect_states.inherited(job, choice, number)
    effect = fx.StoreJob(job.name, job.state(*job.forming_as(generation)), generation=generation)
    state.store(f"job/{job.name}", effect, lambda: _stored(state, job, generation))


def _stored(state: ClusterState, job: Job, generation: Generation) -> None:
    if why := _moved(job, generation) if job.generations.storing is generation else "":
        job.generations.storing, job.recovery.stop_by = None, state.now + state.settings.stop_timeout_s
        state.set_phase(job, JobPhase.STOPPING, f"{why}: wait for all of them again")
        state.touch(job)
    if not generations.commit(state, job, generation):
        overtaken = f"generation {generation.number} was overtaken while it was stored"
        state.note(NoteKind.SUPERSEDED, job.name, f"{overtaken}: {why}" if why else overtaken)
        return
    job.recovery.over, job.numbers.skips = "", generation.resume.skip
    job.generations.lines[generation.number] = (generation.resume.step, generation.resume.born)
    job.replicas.replan = job.replicas.leftovers = True
    job.generations.form_by = state.now + state.settings.form_timeout_s
    job.checkpoints.final_by, job.checkpoints.final_tried = None, False
    job.checkpoints.begun = min(job.checkpoints.begun, generation.resume.step)
    job.recovery.phases = {}
    lost = max(0, job.restore.known_step - generation.resume.step)
    lost = 0 if generation.resume.tier is Tier.DONOR else lost
    fence = {"fence": state.now - job.recovery.clock.judged}
    restored = f"{generation.resume.tier}: {generation.resume.reason}"
    incident_record.report(
        state, job, fence, generation_after=generation.number, lost_steps=lost, restored=restored
    )
    state.set_phase(job, JobPhase.FORMING, generation.reason)
    state.touch(job)


def _moved(job: Job, generation: Generation) -> str:
    """Return why a generation cannot be formed as chosen; "" when it can.

    Since the choice a rank may have left the barrier, or a donor may hold another step: the report that the
    choice rested on was older than it seemed."""
    ready, seated, resume = job.seating.rank_sets.ready, job.seated(), generation.resume
    if len(ready) < len(seated):
        return f"{next(mb.name for rank, mb in enumerate(seated) if rank not in ready)} left the barrier"
    for source in resume.sources or (Source(WHOLE_STATE, resume.tier, resume.rank),):
        status = seated[source.rank].status
        if source.tier is Tier.DONOR and status is not None and status.held_step != resume.step:
            return f"{seated[source.rank].name} holds step {status.held_step}, not {resume.step}"
    return ""


def running(state: ClusterState, job: Job) -> None:
    """Drive a generation that etcd holds, whether it forms, runs, or was adopted from a former leader."""
    rank_sets, generation = job.seating.rank_sets, job.generation
    if generation is None:
        raise AssertionError(f"job {job.name} runs without a generation")
    if ending.all_done(job):
        _close(state, job, generation)
        ending.finishing(state, job)
        return
    if rank_sets.unreported or numeric_faults.owed(state, job, generation):
        return
    if not generation.store:
        _running_plain(state, job)
        return
    _order_form(state, job, generation)
    if len(rank_sets.settled) == len(job.seats):
        state.set_phase(job, JobPhase.RUNNING, job.recovery.over or generation.reason)
        job.restore.answered = {}
        _close(state, job, generation)
    elif job.phase is JobPhase.RUNNING and any(_enters(mb, generation) for mb in _unsettled(job)):
        job.generations.form_by = state.now + state.settings.form_timeout_s
        state.set_phase(job, JobPhase.FORMING, "a rank of the stored generation is not in it yet")
    _watch_broken(state, job, generation)
    _watch_form(state, job, generation)


def _unsettled(job: Job) -> list[Member]:
    """Return the seated members that neither train in the generation nor have done their work."""
    settled = job.seating.rank_sets.settled
    return [mb for rank, mb in enumerate(job.seated()) if rank not in settled]


def _outside(member: Member, generation: Generation) -> bool:
    return member.status is not None and member.generation < generation.number


def _enters(member: Member, generation: Generation) -> bool:
    """Whether a member has not entered the generation, or is still FORMING (it was adopted that way)."""
    return _outside(member, generation) or member.phase is MemberPhase.FORMING


def _order_form(state: ClusterState, job: Job, generation: Generation) -> None:
    entered = job.seating.rank_sets.entered
    if len(entered) == len(job.seats):
        return
    outside = [mb.node for rank, mb in enumerate(job.seated()) if rank not in entered and mb.status]
    what = ("form", str(generation.number))
    state.order_each(job, what, dict.fromkeys(outside), lambda node: fx.Form(node, generation))


def _running_plain(state: ClusterState, job: Job) -> None:
    """Watch a job whose script has not used the SDK: only its processes can be seen."""
    if job.elastic:
        state.set_phase(job, JobPhase.LAUNCHING, "the script uses the SDK: its ranks come to the barrier")
        return
    plain_at = job.generations.launched_at + state.settings.plain_after_s
    if state.now < plain_at:
        state.wake(job, plain_at)
    if job.recovery.incident is not None:
        _watch_plain(state, job, plain_at)


def _watch_plain(state: ClusterState, job: Job, plain_at: float) -> None:
    """Close a plain script's incident at the first output of any rank, or after `plain_after_s` without."""
    clock, again = job.recovery.clock, "reform" not in job.recovery.phases
    job.recovery.phases.setdefault("reform", state.now - clock.stored)
    phases = {"fence": clock.stored - clock.judged, "reform": job.recovery.phases["reform"]}
    if any(member.status is not None and member.status.activity for member in job.seated()):
        spent = state.now - clock.stored - job.recovery.phases["reform"]
        _recovered(state, job, phases | {"first_step": spent})
    elif state.now >= plain_at:
        _recovered(state, job, phases)
    elif again:
        incident_record.report(state, job, phases)


def _watch_broken(state: ClusterState, job: Job, generation: Generation) -> None:
    """Watch for a broken collective that no dead member explains: after a grace it becomes evidence, and the
    same members re-form. Meanwhile the nodes are asked whether they reach each other."""
    suspects = job.seating.at(job.seating.rank_sets.suspects)
    if not suspects:
        job.recovery.broken_since = None
        return
    if job.recovery.broken_since is None:
        job.recovery.broken_since = state.now
        state.note(NoteKind.BROKEN, job.name, f"{suspects[0].name} stopped: {_message(suspects[0])}")
        network.look(state, job)
    if network.cut_off(state, job):
        return
    if state.now < job.recovery.broken_since + state.settings.broken_grace_s:
        state.wake(job, job.recovery.broken_since + state.settings.broken_grace_s)
        return
    _spoil(job, generation, suspects)
    message = f"{suspects[0].name} stopped, and no member died: {_message(suspects[0])}{network.words(job)}"
    failure = Failure(
        Cause.BROKEN, message, step=deaths.step_of(suspects[0]), age_s=state.now - job.recovery.broken_since
    )
    job.recovery.unjudged.append(Evidence(state.now, failure))


def _message(member: Member) -> str:
    failure = member.status.failure if member.status else None
    return failure.message if failure else "it came back to the barrier by itself"


def _spoil(job: Job, generation: Generation, suspects: list[Member]) -> None:
    """Exclude the single source of a state that could not be put in place from later choices.

    Of several sources none is blamed here: a rank that cannot read its own source reports that itself (see
    `membership.members.order_failed`)."""
    source = generation.resume
    failed = any(mb.status and mb.status.failure for mb in suspects)
    if (
        failed
        and source.tier in (Tier.MEMORY, Tier.PEER)
        and not source.sources
        and job.phase is JobPhase.FORMING
    ):
        whole = Source(WHOLE_STATE, source.tier, source.rank, source.member)
        failed_sources.remember(job, whole, source.step, _message(suspects[0]))


def _watch_form(state: ClusterState, job: Job, generation: Generation) -> None:
    """Kill the members that do not form in time; when all of them hang alike, they re-form once more instead.

    At half of the time the nodes are asked whether they reach each other, and those of the missing members
    how these stand. While a member's script is still
    catching up, the others wait for it in the restore, and no deadline runs."""
    if job.phase is not JobPhase.FORMING:
        return
    if state.now < job.generations.form_by - state.settings.form_timeout_s / 2:
        state.wake(job, job.generations.form_by - state.settings.form_timeout_s / 2)
        return
    if any(mb.phase is MemberPhase.FORMING and _on_its_way(mb) for mb in job.seated()):
        job.generations.form_by = state.now + state.settings.form_timeout_s
        state.wake(job, job.generations.form_by - state.settings.form_timeout_s / 2)
        return
    network.look(state, job)
    if network.cut_off(state, job):
        return
    late = [
        mb for mb in job.seated() if not (mb.done or first_steps.runs(mb, generation)) and state.up(mb.node)
    ]
    slow_barriers.ask(state, job, late)
    if state.now < job.generations.form_by:
        state.wake(job, job.generations.form_by)
        return
    message = f"did not form within {state.settings.form_timeout_s:.0f} s"
    if late and all(mb.phase is MemberPhase.FORMING for mb in job.seated()):
        job.generations.form_by = state.now + state.settings.form_timeout_s
        job.recovery.unjudged.append(
            Evidence(state.now, Failure(Cause.STUCK, f"all ranks {message}", step=generation.resume.step))
        )
        return
    for member in late:
        failure = slow_barriers.explained(job, member, Failure(Cause.STUCK, message))
        deaths.mark_dead(state, job, member, failure)
        deaths.kill(state, job, member, failure.message)


def _on_its_way(member: Member) -> bool:
    """Whether a member runs the part of its script before the present elastic function, to catch up.

    It joined a job that has completed earlier elastic functions. The others wait without a deadline."""
    return not member.dead and member.status is not None and member.status.activity == CATCHING_UP


def _close(state: ClusterState, job: Job, generation: Generation) -> None:
    """Close the incident once every seat has completed a step, or its work, in the new generation.

    Its phases: `fence` lasts from the verdict until etcd holds the new generation (survivors have stopped,
    replacements are at the barrier); `reform`, `restore` and `first_step` are those of the slowest member, on
    its own clock."""
    if job.recovery.incident is None and not job.recovery.unfinished:
        return
    begun = job.seating.rank_sets.begun
    waiting = [mb for rank, mb in enumerate(job.seated()) if rank not in begun and not mb.done]
    first = generation.resume.step
    for member in waiting:
        if member.status is not None and member.status.step > first:
            first_steps.infer_start(state, job, member, generation)
    if any(mb.inferred_start[0] != generation.number for mb in waiting):
        return
    if any(state.now < mb.inferred_start[1] + state.settings.retry_s for mb in waiting):
        return
    if job.recovery.incident is None:
        reason = (
            f"{incident_record.unfinished(job)}: every rank has trained on in generation {generation.number}"
        )
        state.note(NoteKind.INCIDENT_OVER, job.name, reason)
        job.recovery.unfinished = 0
        _trains(state, job)
        return
    phases = {"fence": job.recovery.clock.stored - job.recovery.clock.judged}
    phases["reform"] = job.recovery.phases.get("form", state.now - job.recovery.clock.stored)
    phases |= {
        name: job.recovery.phases[name] for name in ("restore", "first_step") if name in job.recovery.phases
    }
    _recovered(state, job, phases)


def _recovered(state: ClusterState, job: Job, phases: dict[str, float]) -> None:
    closed = incident_record.close(state, job, "recovered", phases)
    if closed is not None:
        job.recovery.over = _over(closed)
    if job.phase is JobPhase.RUNNING:
        state.set_phase(job, JobPhase.RUNNING, job.recovery.over)
    _trains(state, job)


def _over(incident: Incident) -> str:
    """Return the reason of a RUNNING job after its incident; it replaces the plan's, which is past."""
    if incident.verdict.cause is Cause.RESIZED:
        return f"every rank trains; a planned change ({incident.plan.strategy}) is over"
    return f"every rank trains; incident {incident.id} ({in_words(incident.verdict.cause)}) is over"


def _trains(state: ClusterState, job: Job) -> None:
    """Reset the counts of failures that progress excuses, and write to etcd that the job runs: from that the
    next leader knows that no incident is open."""
    job.recovery.counted = {}
    job.recovery.failures_seen = {
        key: times for key, times in job.recovery.failures_seen.items() if is_exception(key)
    }
    if not job.generation or not job.generation.store:
        return
    effect = fx.StoreJob(job.name, job.state(JobPhase.RUNNING, job.reason))
    state.store(f"job/{job.name}", effect)
