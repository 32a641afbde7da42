"""Check what must never happen, from outside the core: in the ranks, in etcd, on the storage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from controlplane.core.checkpoint.commit import RETIRED
from controlplane.core.membership import mass_failure
from controlplane.core.records import effects as fx
from controlplane.core.records import events as ev
from controlplane.core.records.model import NO_STEP, WHOLE_STATE, Fault, JobPhase, MemberPhase, Tier
from tests.sim import numbers
from tests.sim.doubts import Doubts
from tests.sim.fencing import Astray

if TYPE_CHECKING:
    from collections.abc import Callable

    from controlplane.core.records.model import Generation, MemberStatus
    from tests.sim.groups import Group
    from tests.sim.ranks import Rank
    from tests.sim.world import World


ROUNDING_S = 0.001
"""How far two sums of the same spans may be apart."""


class Safety:
    """Watches a world. Every method raises AssertionError when a rule is broken."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.newest: dict[str, int] = {}  # job -> newest generation that formed
        self.best: dict[tuple[str, str], int] = {}  # (job, lineage) -> newest completed step
        self.committed: dict[str, int] = {}  # checkpoint -> step
        self.bad: set[str] = set()
        self.collected: set[str] = set()
        self.past_help: set[str] = set()  # checkpoints found bad after the ranks had returned
        self.forgotten: dict[str, int] = {}  # checkpoints whose records etcd was asked to delete
        self.heard: dict[tuple[str, str], None] = {}  # checkpoint requests that this leader has not answered
        self.words: dict[int, str] = {}  # rank -> the shard id that this leader knows of it
        self.forms = 0
        self.astray = Astray(world)
        self.doubts = Doubts(world)
        self.memory_lost = False  # a node's memory is gone, or out of reach for good
        self.kept = NO_STEP  # newest step that was READY on all ranks: its slots are not overwritten
        self.tiers: dict[str, int] = {}  # how often state came from each tier
        self.faults: dict[Fault, int] = {}  # anomalies that a leader knows, and the leader's term

    def effect(self, effect: fx.Effect) -> None:
        """Check an effect that leaves the leader."""
        check = CHECKS.get(type(effect))
        if check is not None:
            check(self, effect)

    def event(self, event: ev.Event) -> None:
        """Note an event that reaches the leader: a checkpoint request that it takes must be answered."""
        if isinstance(event, ev.CheckpointAsked) and self._listens(event.node, event.incarnation):
            self.heard[event.member, event.request] = None
        fault = numbers.taken(self.world, event)
        if fault is not None and self._listens(event.node, event.incarnation):  # type: ignore[union-attr]
            self.memory_lost = True
            self.faults.setdefault(fault, self.world.term)
        self.doubts.event(event)
        if isinstance(event, ev.JobSubmitted):
            self._submitted(event)
        for status in STATUSES.get(type(event), _none)(event):
            if status.generation > 0 and status.rank >= 0 and status.shard not in ("", WHOLE_STATE):
                self.words[status.rank] = status.shard

    def _submitted(self, event: ev.JobSubmitted) -> None:
        """Note a job that was over and is submitted again: it continues from storage, because its ranks'
        memory is gone."""
        job = self.world.cluster.state.jobs.get(event.spec.job) if self.world.cluster else None
        self.memory_lost = self.memory_lost or (
            job is not None and job.phase in (JobPhase.FAILED, JobPhase.STOPPED)
        )

    def _listens(self, name: str, incarnation: int) -> bool:
        """Whether the leader accepts reports of this agent process."""
        node = self.world.cluster.state.nodes.get(name) if self.world.cluster else None
        return node is not None and node.incarnation == incarnation and node.state != "expected"

    def returns(self, effect: fx.Return) -> None:
        """Ranks may return from their function: the next leader must know, or it would call them back."""
        state = self.world.etcd.states[effect.job]
        assert state.phase is JobPhase.LEAVING, f"ranks may return, and etcd has the job {state.phase}"

    def store_job(self, effect: fx.StoreJob) -> None:
        """A job that is recorded as finished: no process in its places may live."""
        if effect.generation is not None:
            self.doubts.chosen(effect.generation, effect.state.suspect_states)
        if effect.state.phase is not JobPhase.FINISHED:
            return
        generation = self.world.etcd.generations.get(effect.job)
        for seat in generation.seats if generation is not None else ():
            rank = self.world.by_name[seat.node].ranks.get(seat.member)
            assert rank is None or not rank.alive, f"the job is finished, and {rank.name} runs"

    def store_checkpoint(self, effect: fx.StoreCheckpoint) -> None:
        """Check a record that etcd must mark as let go: never that of the newest good checkpoint."""
        if effect.checkpoint.bad == RETIRED:
            self._given_up((effect.checkpoint.id,))

    def forget_checkpoints(self, effect: fx.ForgetCheckpoints) -> None:
        """Check records that etcd must delete: never that of the newest good checkpoint."""
        for name in effect.forget:
            self.forgotten[name] = self.committed.get(name, 0)
        self._given_up(effect.forget)

    def _given_up(self, going: tuple[str, ...]) -> None:
        held = {name: record for (_, name), record in self.world.etcd.checkpoints.items()}
        good = {n: s for n, s in self.committed.items() if n not in self.bad}
        # what etcd holds as let go was checked then: it is, or soon will be, off the storage
        good = {n: s for n, s in good.items() if n in held and held[n].bad != RETIRED}
        for name, record in held.items():  # a former leader may not have reported it
            good |= {name: record.step} if record.published and not record.bad else {}
        if good:
            newest = max(good, key=lambda name: (good[name], int(name.rpartition("-")[2])))
            assert newest not in going, f"the newest good checkpoint {newest} is given up"

    def in_time(self) -> None:
        """After every step: every node that was silent for too long was judged, or is being probed."""
        state = self.world.cluster.state if self.world.cluster else None
        if state is None or state.guard is not None or state.fenced:
            return
        for node in state.nodes.values():
            silent_s = state.now - mass_failure.last_alive_at(node)
            late = node.state in ("up", "suspect") and silent_s > state.settings.node_timeout_s + 1.0
            assert not late, f"{node.name} is {node.state} after {silent_s:.1f} s of silence"

    def crashed(self) -> None:
        """Forget what the leader that is gone had heard."""
        self.heard, self.words = {}, {}

    def told(self, effect: fx.CheckpointTold) -> None:
        assert effect.reason, f"{effect.request} is answered without a reason"
        self.heard.pop((effect.member, effect.request), None)

    def release(self, effect: fx.Release) -> None:
        """Older slots may go: this step must have been READY on every rank.

        Exceptions: a rank that has finished holds that state itself, and no snapshot is needed of the step
        from which the generation began, or of an earlier one."""
        generation, whole = self.world.etcd.generations[effect.job], True
        ranks = {name: rank for agent in self.world.agents for name, rank in agent.ranks.items()}
        for rank in [ranks[seat.member] for seat in generation.seats if seat.member in ranks]:
            ready = effect.step in rank.ready
            whole = whole and ready
            # One that died as it finished is released by its last report: its agent keeps what it left,
            # because its own final state was to take that room.
            finished = rank.phase is MemberPhase.FINISHED or (not rank.alive and "finished" in rank.kept)
            lives = finished and rank.held == effect.step
            assert ready or lives or generation.resume.step >= effect.step, (
                f"{effect.step} is released, {rank.name} had it never"
            )
        if whole:
            self.kept = max(self.kept, effect.step)

    def collecting(self, effect: fx.Collect) -> None:
        """What leaves the storage must be marked in etcd before, and nothing that stays may need it."""
        held = {name: r for (job, name), r in self.world.etcd.checkpoints.items() if job == effect.spec.job}
        for name in effect.remove:
            assert name not in held or held[name].bad, f"{name} is collected, but etcd holds it as good"
        bases = {record.base for record in held.values() if record.id not in effect.remove}
        assert not bases.intersection(effect.remove), f"a base of {bases} is collected"
        self.collected.update(effect.remove)

    def forgotten_by_etcd(self, effect: fx.ForgetCheckpoints) -> None:
        """What etcd forgets must have left the storage, or nobody would ever delete it."""
        left = [name for name in effect.forget if name in self.world.storage.manifests]
        assert not left, f"etcd forgets {left}, and the storage has them"

    def stored(self) -> None:
        """After every write: etcd still holds the newest good checkpoint that was committed."""
        left = [n for n in self.committed if n not in self.bad and n not in self.collected]
        for name in left:
            whole = self.world.storage.whole(name)
            assert whole, f"committed checkpoint {name} has lost a chunk, or its manifest"

    def note(self, effect: fx.Note) -> None:
        """Note nodes that are given up: their memory is lost."""
        self.memory_lost = self.memory_lost or effect.kind in GIVEN_UP
        if effect.kind == "node_lost":
            self._justly(effect.subject)

    def _justly(self, name: str) -> None:
        """When many nodes fall silent at once, none may be given up that would have answered a probe."""
        world, state = self.world, self.world.cluster.state if self.world.cluster else None
        agent = world.by_name[name]
        if state is None or not agent.up or agent.muted_until <= world.clock.now:
            return
        # An answer counts from when the guard begins until it ends, exactly `brake_max_s` later.
        if agent.refused_at + state.settings.brake_max_s + ROUNDING_S >= world.clock.now:
            return
        if state.nodes[name].free_to_go or not state.nodes[name].peer:  # nobody knows its address
            return
        timeout_s, now = state.settings.node_timeout_s, state.now
        wanted = [node for node in state.nodes.values() if not node.free_to_go]
        there = [node for node in wanted if node.state != "lost" or node.lost_at > now - timeout_s]
        gone = [
            n
            for n in there
            if n.state in ("lost", "suspect") or now - mass_failure.last_alive_at(n) >= timeout_s / 2
        ]
        many = len(there) >= 4 and len(gone) > world.settings.mass_loss_ratio * len(there)
        assert not many, f"{name} is given up with {len(gone)} of {len(there)}, and would have answered"

    def form(self, effect: fx.Form) -> None:
        assert effect.generation in self.world.etcd.written, "a Form names a generation that etcd never saw"
        assert effect.generation.store, "a Form names no place to meet"
        self.places(effect.generation)

    def places(self, generation: Generation) -> None:
        """Whole replicas within the user's range, and no two ranks on one device."""
        spec, seats = self.world.spec, generation.seats
        nodes = list(dict.fromkeys(seat.node for seat in seats))
        assert spec.nnodes_min <= len(nodes) <= spec.nnodes_max, f"{len(nodes)} nodes are out of range"
        assert len(nodes) % spec.replica_nodes == 0, f"{len(nodes)} nodes are no whole replicas"
        devices = {(seat.node, seat.local_rank) for seat in seats}
        assert len(devices) == len(seats) == len(nodes) * spec.nproc_per_node, f"seats share devices: {seats}"
        slots = {agent.name: agent.slots for agent in self.world.agents}
        assert all(0 <= seat.local_rank < slots[seat.node] for seat in seats), f"no such device: {seats}"

    def launch(self, effect: fx.Launch) -> None:
        if effect.generation is not None:
            assert effect.generation in self.world.etcd.written, "a Launch names a generation etcd never saw"

    def checkpoint(self, effect: fx.CheckpointChanged) -> None:
        if effect.outcome == "bad":
            self.bad.add(effect.checkpoint)
            self._past_help(effect)
        if effect.outcome != "committed" or effect.record is None:
            return
        held = self.world.etcd.checkpoints[(effect.job, effect.checkpoint)]
        assert held.published and not held.bad, f"{effect.checkpoint} is committed, but etcd says otherwise"
        storage, spec = self.world.storage, self.world.spec
        assert storage.whole(effect.checkpoint), f"{effect.checkpoint} has no manifest, or lacks a chunk"
        assert effect.checkpoint not in self.committed, f"{effect.checkpoint} is committed twice"
        if spec.mirror and spec.commit_when == "both":
            assert effect.checkpoint in storage.mirrored, f"{effect.checkpoint} is not on both storages"
        self.committed[effect.checkpoint] = effect.record.step

    def _past_help(self, effect: fx.CheckpointChanged) -> None:
        """Note a checkpoint that was found bad after the ranks had returned: it is reported, and no other one
        is made, because the ranks may end at any moment."""
        job = self.world.cluster.state.jobs.get(effect.job) if self.world.cluster else None
        if job is not None and job.phase is JobPhase.LEAVING:
            self.past_help.add(effect.checkpoint)

    def formed(self, group: Group, line: str) -> None:
        """All members met: check that it is the newest, and begins at the newest clean state."""
        generation = group.generation
        newest = self.newest.get(generation.job, 0)
        if generation.number < newest:  # nobody uses anything of it, and it may not go on
            self.astray.met(group, newest)
            return
        self.newest[generation.job] = generation.number
        self.past_help.clear()
        self.astray.formed(generation.number)
        self.forms += 1
        resume = generation.resume
        self.tiers[resume.tier] = self.tiers.get(resume.tier, 0) + 1
        self.memory_lost = self.memory_lost or resume.reshard
        self._trusted(generation, line)
        self.doubts.formed(generation, line)
        there = [r.ended for r in group.members.values() if r.held_in >= newest]  # without those left out
        ended = min((each for each in there if each is not None), default=resume.step)
        later = resume.step <= ended or resume.tier is Tier.CHECKPOINT
        assert later, f"resumes at {resume.step}, a living rank has ended {ended} only"
        best = self._living(group)
        assert resume.step >= best, f"resumes at {resume.step}, a living replica holds {best}"
        if not self.memory_lost:
            assert resume.step >= self.kept, f"resumes at {resume.step}, {self.kept} was whole in memory"
        if resume.tier is not Tier.FRESH:
            return
        reader = group.members[resume.rank]
        assert reader.generation == generation.number
        if self.world.line_count:
            left = [n for n in self.committed if n not in self.bad and n not in self.collected]
            assert not left, f"begins again although checkpoints {left} are good"

    def _trusted(self, generation: Generation, line: str) -> None:
        """No untrusted state is used, once etcd or this leader knows of the anomaly."""
        for fault in (*self.world.etcd.states[generation.job].faults, *self.faults_told(generation.term)):
            bad = numbers.hit(fault, generation.resume.step, line)
            assert not bad, (
                f"goes on from step {generation.resume.step} of {line}, which {fault} speaks against"
            )

    def faults_told(self, term: int) -> list[Fault]:
        """The anomalies that the leader of this term was told of."""
        return [fault for fault, its in self.faults.items() if its == term]

    def _living(self, group: Group) -> int:
        """The newest step that the members hold whole by themselves: every shard of it, of one lineage."""
        needed = {rank.word for rank in group.members.values()}
        if len(needed) > 1 and not self._words_known(group):
            return NO_STEP
        whole: dict[tuple[int, str], set[str]] = {}
        faults = (*self.faults, *self.world.etcd.states[group.generation.job].faults)
        ended = min((r.ended for r in group.members.values() if r.ended is not None), default=1 << 60)
        for rank in group.members.values():
            if NO_STEP < rank.held <= ended and not any(numbers.hit(f, rank.held, rank.line) for f in faults):
                whole.setdefault((rank.held, rank.line), set()).add(rank.holds)
        return max((step for (step, _), words in whole.items() if words >= needed), default=NO_STEP)

    def _words_known(self, group: Group) -> bool:
        """Whether this leader could know the shard of every rank.

        A rank whose node fell before it reported to this leader may have held a shard that no other has,
        unless etcd says that replicas repeat."""
        cut = self.world.etcd.states[group.generation.job].cut_words
        return all(
            rank.word in (self.words.get(seat), cut[seat % len(cut)] if cut else "")
            for seat, rank in group.members.items()
        )

    def stepped(self, group: Group) -> None:
        """A collective succeeded: only the newest formed generation may do that, or one that cannot know of
        its end."""
        job = self.world.cluster.state.jobs.get(group.generation.job) if self.world.cluster else None
        newest = self.newest[group.generation.job]
        if group.generation.number != newest:
            self.astray.stepped(group, newest)
        else:
            assert job is None or job.phase is not JobPhase.PAUSED, "the job is paused, and trains"
        held = {(rank.held, rank.line) for rank in group.members.values()}
        steps = sorted({step for step, _ in held})
        assert len({line for _, line in held}) == 1, f"states of several lineages meet: {held}"
        assert len(steps) == 1 and steps[0] > NO_STEP, f"ranks at several steps meet: {steps}"

    def completed(self, rank: Rank) -> None:
        """A rank completed a step."""
        key = (rank.spec.job, rank.line)
        best = self.best.get(key, 0)
        self.best[key] = max(best, rank.held)

    def finished(self) -> None:
        """At the end: nothing committed is lost, and every rank of the job is at the last step."""
        etcd = self.world.etcd
        leader = self.world.cluster.state if self.world.cluster else None
        lost = {name for name, node in leader.nodes.items() if not node.up} if leader is not None else set()
        left = {name for agent in self.world.agents if agent.name not in lost for name in agent.ranks}
        unanswered = [request for member, request in self.heard if member in left]
        assert not unanswered or self.world.stops, (
            f"never answered, although the node of the asker stood: {unanswered}"
        )
        self.stored()
        self.doubts.finished()
        for name in [name for name in self.committed if name not in self.collected]:
            if (self.world.spec.job, name) not in etcd.checkpoints:
                assert name in self.forgotten, f"committed checkpoint {name} is lost"
                continue
            record = etcd.checkpoints[(self.world.spec.job, name)]
            assert record.published, f"committed checkpoint {name} is lost"
            known_bad = name in self.world.storage.rotten or name in self.bad
            assert not record.bad or record.bad == RETIRED or known_bad
        if self.world.elastic and self.world.spec.storage and not self.world.quiet_failures:
            good = [s for n, s in self.committed.items() if n not in self.bad or n in self.past_help]
            # etcd may have taken one whose leader died before the answer came
            good += [r.step for r in etcd.checkpoints.values() if r.published and not r.bad]
            best = max(good, default=0)
            assert max(self.forgotten.values(), default=0) <= best
            assert best == self.world.steps, f"finished, but the newest checkpoint is of step {best}"


def _none(event: ev.Event) -> tuple[MemberStatus, ...]:
    return ()


STATUSES: dict[type[Any], Callable[[Any], tuple[MemberStatus, ...]]] = {
    ev.NodeJoined: lambda event: event.members,
    ev.NodeBeat: lambda event: event.members,
    ev.MemberReport: lambda event: (event.status,),
}
"""The statuses of members that an event carries."""

GIVEN_UP = ("node_lost", "node_cut", "drain_forced", "copy_given_up", "copy_altered")
"""Notes about memory that is given up knowingly."""

CHECKS: dict[type[Any], Callable[[Safety, Any], None]] = {
    fx.Form: Safety.form,
    fx.Return: Safety.returns,
    fx.Note: Safety.note,
    fx.Launch: Safety.launch,
    fx.CheckpointChanged: Safety.checkpoint,
    fx.CheckpointTold: Safety.told,
    fx.Release: Safety.release,
    fx.StoreJob: Safety.store_job,
    fx.StoreCheckpoint: Safety.store_checkpoint,
    fx.ForgetCheckpoints: Safety.forget_checkpoints,
}
