"""Check what must hold after every step. Tests and replay run it; a coordinator does not.

Facts that are kept in two places are compared from both ends: indexes with the records they follow from, a
job's phase with what is on its way to etcd, checkpoints in flight with their stages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.core.checkpoint import commit, finalizing
from controlplane.core.records.model import JobPhase, MemberPhase
from controlplane.core.restore import keepers
from controlplane.core.state.job import ENDED
from controlplane.core.state.saving import Stage

if TYPE_CHECKING:
    from controlplane.core.state.cluster_state import ClusterState
    from controlplane.core.state.job import Job


def check(state: ClusterState) -> None:
    """Raise AssertionError on the first invariant that does not hold."""
    for job in state.jobs.values():
        _seats(job)
        _numbers(job)
        _phase(state, job)
        _incident(job)
        _saving(state, job)
        _restoring(job)
        for seat in job.seats:
            assert job.name in state.hosts[seat.node], f"{job.name}: nobody knows that it sits on {seat.node}"
    keepers.check(state)
    for name, queue in state.write_queues.items():
        assert queue, f"write queue {name} is kept although nothing waits in it"
        asked = [pending.asked for pending in queue]
        assert not any(asked[1:]), f"write queue {name} has two stores on their way at once"


def _seats(job: Job) -> None:
    """Seats, rank index and members agree; no member has two seats, and ranks have no gaps."""
    names = [seat.member for seat in job.seats]
    assert len(names) == len(frozenset(names)), f"{job.name}: a member sits in two seats"
    assert [seat.rank for seat in job.seats] == list(range(len(job.seats))), f"{job.name}: ranks have gaps"
    job.seating.check()
    number = job.generation_number
    assert job.seating.rank_sets.number == number, f"{job.name}: the rank sets are of generation {number}"
    zombies = [mb.name for mb in job.members.values() if mb.dead and mb.alive]
    assert sorted(job.zombies) == sorted(zombies), f"{job.name}: zombies {zombies}, noted {list(job.zombies)}"
    in_order = [mb.number for mb in job.members.values()]
    assert in_order == sorted(in_order), f"{job.name}: members are numbered out of order"
    for seat in job.seats:
        member = job.members.get(seat.member)
        assert member is not None, f"{job.name}: seat {seat.rank} holds {seat.member}, who is unknown"
        assert member.node == seat.node, (
            f"{job.name}: {seat.member} sits on {seat.node}, lives on {member.node}"
        )
        assert member.rank == seat.rank, (
            f"{job.name}: {seat.member} is rank {member.rank}, sits as {seat.rank}"
        )
    assert sum(len(each) for each in job.by_node.values()) == len(job.members), f"{job.name}: index is off"
    for name, member in job.members.items():
        assert member.name == name and member.job == job.name, f"{job.name}: {name} is filed wrongly"


def _numbers(job: Job) -> None:
    """Generation numbers were given out, only grow, and the generation in use is in etcd."""
    number = job.generation_number
    assert number <= job.generations.number, f"{job.name}: generation {number} was never given out"
    assert job.generations.formed <= job.generations.number, (
        f"{job.name}: formed {job.generations.formed} was never given out"
    )
    if job.generation is not None:
        assert number in job.generations.known, f"{job.name}: generation {number} is in use but not in etcd"
        assert job.generation.job == job.name, f"{job.name}: holds a generation of {job.generation.job}"
    if job.generations.storing is not None:
        assert job.generations.storing.number >= number, f"{job.name}: generation numbers go back"
        assert job.generations.storing.number <= job.generations.number, (
            f"{job.name}: stores a number never given out"
        )
        assert job.seats == job.generations.storing.seats, f"{job.name}: stores a layout that is not wanted"


def _phase(state: ClusterState, job: Job) -> None:
    """Each phase has what it needs: a generation in etcd, a write on its way, or every rank at the
    barrier."""
    stored = (JobPhase.RUNNING, JobPhase.FORMING, JobPhase.LAUNCHING, JobPhase.LEAVING)
    if job.phase in stored and job.ending is None:
        assert job.generation is not None, f"{job.name}: {job.phase} without a generation"
        assert job.seats == job.generation.seats, f"{job.name}: {job.phase} in a layout not in etcd"
    if job.phase in (JobPhase.FORMING, JobPhase.LEAVING):
        assert job.generation is not None and job.generation.store, f"{job.name}: forms with nowhere to meet"
    if job.phase is JobPhase.STORING and job.ending is None:
        assert job.generations.storing is not None, f"{job.name}: waits for etcd but nothing is on its way"
        assert state.in_flight(f"job/{job.name}"), f"{job.name}: waits for etcd but was not asked"
    if job.phase is JobPhase.LEAVING and job.ending is None and not job.recovery.unjudged:
        assert job.recovery.incident is None, (
            f"{job.name}: its ranks may go on behind their function in an incident"
        )
        trains = [mb.name for mb in job.seated() if mb.phase in (MemberPhase.FORMING, MemberPhase.RUNNING)]
        assert not trains, f"{job.name}: {trains} train, and may go on behind their function"
    if job.phase is JobPhase.LOADING and job.ending is None and not job.recovery.unjudged:
        for member in job.seated():
            known = member.phase is MemberPhase.READY or member.dead
            assert known, f"{job.name}: chooses a state while {member.name} is {member.phase}"


def _incident(job: Job) -> None:
    """An open incident has evidence, and only a job that has not ended has one."""
    if job.recovery.incident is not None:
        assert job.recovery.evidence, f"{job.name}: incident {job.recovery.incident.id} without evidence"
        assert job.recovery.incident.outcome == "open", f"{job.name}: keeps a closed incident"
        assert job.phase not in ENDED, f"{job.name}: ended with an open incident"
    elif job.phase not in ENDED and job.ending is None:
        assert not job.recovery.evidence, f"{job.name}: evidence without an incident"


def _saving(state: ClusterState, job: Job) -> None:
    """One checkpoint at a time reads the slots, none mixes steps, and each has what its stage needs."""
    reading = [saving.id for saving in job.checkpoints.savings.values() if saving.stage is Stage.PERSIST]
    assert len(reading) <= 1, f"{job.name}: checkpoints {reading} read the slots at once"
    for saving in job.checkpoints.savings.values():
        known = saving.generation in job.generations.known
        assert known, f"{job.name}: saves generation {saving.generation}, not in etcd"
        steps = {step for _, step in saving.versions}
        assert steps == {saving.step}, f"{job.name}: checkpoint {saving.id} mixes steps"
        shares = [(writer.shard, writer.share) for writer in saving.writers]
        assert len(shares) == len(frozenset(shares)), f"{job.name}: {saving.id} has a share written twice"
        if saving.stage in (Stage.STORE, Stage.CONFIRM):
            waits = state.in_flight(finalizing.queue(job))
            assert waits, f"{job.name}: checkpoint {saving.id} waits for etcd but was not asked"
        if saving.stage not in (Stage.PERSIST, Stage.FINALIZE):
            assert saving.record is not None, f"{job.name}: checkpoint {saving.id} has no record"
        elif saving.stage is Stage.FINALIZE:
            assert not commit.lacking(saving), f"{job.name}: {saving.id} is sealed without all parts"


def _restoring(job: Job) -> None:
    """State is loaded for seated members only, and a restore point names each share once."""
    restoring = job.restore.restoring
    if restoring is not None and job.ending is None and job.phase not in ENDED:
        assert job.phase is JobPhase.LOADING, f"{job.name}: {job.phase} while a state is brought in place"
        seats = {(seat.node, seat.member) for seat in job.seats}
        for _, node, member, *_ in restoring.waits:
            assert (node, member) in seats or job.recovery.unjudged, (
                f"{job.name}: {member} on {node} fills no seat"
            )
    generation = job.generations.storing or job.generation
    if generation is None:
        return
    sources = generation.resume.sources
    shares = [(source.shard, source.share) for source in sources]
    assert len(shares) == len(frozenset(shares)), f"{job.name}: a share has two sources"
    world = range(generation.world_size)
    assert all(source.rank in world for source in sources), f"{job.name}: a source has no seat"
    assert not (sources and generation.resume.reshard), f"{job.name}: reshards, and is given sources"
