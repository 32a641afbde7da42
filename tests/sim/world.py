"""Make one seeded world: the real Cluster among simulated agents, ranks, etcd, storage and network."""

from __future__ import annotations

import dataclasses
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from controlplane.core.records import effects as fx
from controlplane.core.records import events as ev
from controlplane.core.records.model import WHOLE_STATE, JobSpec
from controlplane.core.records.timing import CoreSettings
from controlplane.simulation.clock import VirtualClock
from tests.sim import checking, converge, numbers, parting, plants
from tests.sim.agents import ORDERS, Agent
from tests.sim.canonical import Digest
from tests.sim.etcd import Etcd
from tests.sim.faults import BY_NAME, EVERY, FAULTS, WEIGHTS
from tests.sim.groups import Group
from tests.sim.liveness import Liveness
from tests.sim.relaying import Relays
from tests.sim.safety import Safety
from tests.sim.saves import Storage

if TYPE_CHECKING:
    from collections.abc import Callable

    from controlplane.core.cluster import Cluster
    from controlplane.core.records.model import Generation
    from tests.sim.frozen import Frozen

SETTINGS = CoreSettings(
    node_timeout_s=10.0, stop_timeout_s=5.0, form_timeout_s=10.0, join_grace_s=2.0, plain_after_s=5.0,
    final_checkpoint_timeout_s=20.0, shrink_after_s=2.0, grow_after_s=3.0, resize_every_s=5.0,
    brake_max_s=10.0, probe_every_s=2.0, hold_s=2.0, hold_max_s=8.0,
    flap_window_s=60.0, launch_timeout_s=20.0, look_again_s=2.0,
)  # fmt: skip
"""As in production, but with shorter waits: schedules are short."""

CHECK_EVERY = 8
"""Events without an effect between two checks of all invariants: checking costs more than deciding."""

SPINS_MAX = 20
"""The most Ticks in a row that are due at once: more than any decision takes."""


def mood(settings: CoreSettings, rng: random.Random) -> CoreSettings:
    """Settings that a schedule may have instead."""
    return dataclasses.replace(
        settings,
        pause_when_critical=rng.random() < 0.2,
        lemon_score=rng.choice((3.0, 1.2)),
        quarantine_s=rng.choice((86400.0, 20.0)),
        device_deaths=rng.choice((3, 2)),
        shrink_after_s=rng.choice((2.0, 0.0)),
        flaps_free=rng.choice((3, 1)),
    )


@dataclass(frozen=True)
class Options:
    """One schedule. `fault_s`: for how long (s of virtual time) faults happen."""

    seed: int
    nodes: int = 2
    fault_s: float = 15.0
    gap_s: float = 3.0
    steps: int = 30
    faults: tuple[str, ...] = tuple(FAULTS)
    weights: tuple[int, ...] = ()  # how often each fault is drawn; (): as in the table
    moods: bool = False  # settings differ, too
    elastic: bool = False  # the job may shrink and grow
    verbose: bool = False
    tails: bool = False  # what a step does after its optimizer counts: no rank may leave it out
    checks: str = ""  # nodes are checked before they take ranks: report or act
    plant: str = ""  # a bug that is planted, see plants.py
    often: bool = False  # ranks that hold different parts decide themselves what they overwrite
    relays: bool = False  # short heartbeats go through other agents

    @property
    def dense(self) -> bool:
        """Whether they then take a snapshot after every step, too: two of three seeds."""
        return self.often and self.seed % 3 > 0

    @property
    def replicas(self) -> int:
        """How many other nodes keep copies of snapshots: none in half of the seeds in which ranks decide."""
        return random.Random(f"copies {self.seed}").randrange(2) if self.often else 1


class World:
    """The core, and everything around it."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.rng = rng = random.Random(options.seed)
        self.clock = VirtualClock()
        self.etcd = Etcd(fences=options.plant != "fence")
        self.parts = parting.Parts(self)
        self.frozen: dict[int, Frozen] = {}  # leaders that are or were stopped, by term
        self.storage = Storage()
        self.safety, self.liveness = Safety(self), Liveness(self)
        self.cluster: Cluster | None = None
        self.term = 0
        self.settings = checking.settings(mood(SETTINGS, rng) if options.moods else SETTINGS, options.checks)
        self.steps, self.step_s = options.steps, 0.3
        more = random.Random(f"functions {options.seed}")  # drawn apart: the rest of the seed is unchanged
        self.first_end = more.randrange(1, options.steps - 2) if more.random() < 0.4 else 0
        if options.moods and more.random() < 0.3:  # a watch without patience must do no harm
            self.settings = dataclasses.replace(self.settings, overdue_after_s=1.0, overdue_factor=0.05)
        self.check_chance = random.Random(f"checks {options.seed}")
        self.push_s = more.choice((1.5, 1.5, 3.0))  # the longest time for a copy to a replica holder
        self.elastic = options.elastic or rng.random() < 0.85
        replica = rng.choice((1, 1, 2)) if options.elastic and options.nodes % 2 == 0 else 1
        least = max(replica, rng.randrange(1, options.nodes)) if options.elastic else options.nodes
        self.spec = numbers.checked(options.faults, JobSpec(
            job="j", argv=("train.py",), cwd="/", nnodes_min=least, nnodes_max=options.nodes,
            replica_nodes=replica,
            nproc_per_node=rng.choice((1, 2)), spares_per_node=rng.choice((0, 1)), max_restarts=100_000,
            storage=rng.choice(("", "file:///c")), snapshot_every=3, checkpoint_every=6, full_every=12,
            keep_last=rng.choice((0, 1, 2)), keep_every=rng.choice((0, 12)), scrub_every_s=rng.choice((0, 4)),
            checkpoint_every_s=rng.choice((0, 0, 1.0)), checkpoint_auto=rng.random() < 0.1,
            mirror=rng.choice(("", "", "file:///d")), commit_when=rng.choice(("both", "first")),
            nan_skip_window=rng.choice((0, 0, 2)), snapshot_auto=options.dense, replicas=options.replicas,
        ), options.seed)  # fmt: skip
        self.wrong: set[int] = set()  # steps in which an anomaly was reported
        self.stops, self.parked = False, 0  # a person has stopped the job; how often it waited for a node
        self.state_bytes = rng.choice((100, 100 << 20))
        self.ask_steps = {rng.randrange(1, options.steps) for _ in range(rng.choice((0, 1, 3)))}
        self.shards = rng.choice((1, 1, 2, 1000))  # different shards, as far as there are ranks
        if self.shards == 2 and self.spec.nproc_per_node * replica == 1:
            self.shards = 1000  # else the spec would be wrong: one node as a replica of what two hold
        self.silent_word = rng.choice(("", WHOLE_STATE))  # the shard id that a rank reports before that
        # Whether a rank's shard is known before its first group.
        self.early_words = rng.random() < 0.5 and not options.elastic
        self.loss = rng.choice((0.0, 0.0, 0.02, 0.1))
        self.dirty_chance = rng.choice((0.0, 0.1))
        extra = rng.choice((0, 1, 2)) if options.elastic else rng.choice((0, 0, 1))
        slots = rng.choice((2, 3)) if options.elastic else 2
        self.relays = Relays(self) if options.relays else None
        self.agents = [Agent(self, f"n{i}", slots) for i in range(options.nodes + extra)]
        self.by_name = {agent.name: agent for agent in self.agents}
        self.groups: dict[int, Group] = {}
        self.faults_on = True
        self.etcd_away_until = 0.0
        self.line_count = 0
        self.struck: dict[str, int] = {}  # number of faults so far
        self.spun = 0  # Ticks in a row that were due at once
        self.quiet_failures = 0
        self.events = 0
        self.log: list[str] = []
        self._digest = Digest()
        self._tick_at = -1.0

    # -------------------------------------------------------------- one run

    def run(self) -> str:
        """Run the schedule. Returns the digest of all that was sent and stored, and when."""
        self.clock.after(0.05, self.elect)
        self.clock.after(0.2, self._submit)
        self._next_fault()
        self.clock.run(self.options.fault_s, lambda: False)
        self._calm()
        converge.see_to_the_end(self)
        self.safety.finished()
        return self._digest.hex()

    def _calm(self) -> None:
        self.faults_on, self.loss, self.etcd_away_until = False, 0.0, 0.0
        self.parts.heal()
        self.say("calm", "faults stop")
        self.liveness.calm()
        for agent in self.agents:
            agent.cut_until = agent.muted_until = 0.0
            agent.well()
            for rank in agent.ranks.values():
                rank.revive()

    def _next_fault(self) -> None:
        delay = self.rng.expovariate(1.0 / self.options.gap_s)

        def strike() -> None:
            if not self.faults_on:
                return
            names = self.options.faults
            weights = self.options.weights or [WEIGHTS.get(n, 1) for n in names]
            name = self.rng.choices(names, weights)[0]
            self.struck[name] = self.struck.get(name, 0) + 1
            (EVERY | BY_NAME)[name](self)
            self._next_fault()

        self.clock.after(delay, strike)

    def _submit(self) -> None:
        """Submit as a patient person does: until a coordinator has taken the job for good."""
        if "j" not in self.etcd.specs:
            self.feed(ev.JobSubmitted(self.spec))
            self.clock.after(2.0, self._submit)

    # -------------------------------------------------------------- the leader

    def elect(self) -> None:
        """Have a coordinator win the election."""
        self.cluster = plants.cluster(self.options.plant, self.settings)
        event = self.etcd.elect(self.clock.now)
        self.term, self._tick_at, self.spun = event.term, -1.0, 0
        self.feed(event)

    def crash(self) -> None:
        """Kill the coordinator (kill -9)."""
        self.cluster = None
        self.term = -1
        self.safety.crashed()
        self.clock.after(self.rng.uniform(0.5, 4.0), self.elect)

    def broken(self, agent: Agent) -> None:
        """Let the leader notice that a stream broke."""
        event = ev.NodeBroken(agent.name, agent.incarnation, "connection reset")
        term, agent.linked = agent.linked, 0
        if self.relays is not None:
            self.relays.down(agent)
        self.clock.after(0.01, lambda: self.feed_if(term, event))

    def feed_if(self, term: int, event: Any) -> None:
        """Give the leader of this term an event, if it still leads."""
        if term == self.term:
            self.feed(event)
        elif term in self.frozen:
            self.frozen[term].hear(event)

    def resume(self, frozen: Frozen) -> None:
        """Let a leader that was stopped for a moment lead on: its lease has held."""
        self.frozen.pop(frozen.term)
        self.cluster, self.term = frozen.cluster, frozen.term
        for event in (*frozen.waiting, ev.Tick()):
            self.feed_if(frozen.term, event)

    def feed(self, event: Any) -> None:
        """Do one step of the real core."""
        if self.cluster is None:
            return
        self.events += 1
        if self.relays is not None:
            self.relays.heard(self.term, event)
        self.safety.event(event)
        effects = self.cluster.step(self.clock.now, event)
        if effects or self.events % CHECK_EVERY == 0:
            self.cluster.check()
            self.safety.in_time()
        self._record(effects)
        for effect in effects:
            self.safety.effect(effect)
            self.carry_out(effect, self.term)
        self._arm()

    def _arm(self) -> None:
        at = self.cluster.next_deadline() if self.cluster else 1e9
        if at < 1e9 and at != self._tick_at:
            self._tick_at, term = at, self.term
            self.spun = self.spun + 1 if at <= self.clock.now else 0
            assert self.spun < SPINS_MAX, "the leader is woken again and again, and time does not pass"

            def tick() -> None:
                self._tick_at = -1.0
                self.feed_if(term, ev.Tick())

            self.clock.after(at - self.clock.now, tick)

    def carry_out(self, effect: Any, term: int) -> None:
        """Carry out what the leader of this term wants done."""
        if isinstance(effect, fx.STORES):
            self._store(effect, term)
        elif isinstance(effect, fx.Probe):
            parting.probe(self, term, effect)
        elif isinstance(effect, fx.JudgeNode):
            checking.judge(self, term, effect)
        elif type(effect) in ORDERS:
            agent = self.by_name[effect.node]
            if agent.linked == term and self.clock.now >= agent.cut_until:
                self.network(lambda: agent.inbound.through(lambda: agent.take(term, effect)))
        elif isinstance(effect, fx.CheckpointChanged) and effect.outcome == "failed":
            self.quiet_failures += 1
        elif isinstance(effect, fx.Refuse):
            self.by_name[effect.node].linked = 0
            if self.relays is not None:
                self.relays.down(self.by_name[effect.node])
        elif isinstance(effect, fx.Admit) and self.relays is not None:
            self.relays.admitted(term, effect.node, effect.incarnation)

    def _store(self, effect: fx.Store, term: int) -> None:
        delay = self.rng.uniform(0.002, 0.03)
        if self.options.plant == "persist" and isinstance(effect, fx.StoreJob) and effect.generation:
            self.clock.after(0.0, lambda: self.feed_if(term, ev.Stored(effect.ticket)))
        away = self.clock.now < self.etcd_away_until
        lost_answer = self.faulty()

        def commit() -> None:
            ok = not away and self.etcd.put(effect)
            if ok and isinstance(effect, fx.ForgetCheckpoints):
                self.safety.forgotten_by_etcd(effect)
            fenced = self.etcd.fences and effect.term != self.etcd.term
            failed = ev.StoreFailed(effect.ticket, "etcd does not answer", fenced)
            self.feed_if(term, ev.Stored(effect.ticket) if ok and not lost_answer else failed)

        self.clock.after(delay, commit)

    # -------------------------------------------------------------- chance

    def network(self, deliver: Callable[[], None]) -> None:
        """Deliver one message: late, perhaps lost, doubled, or overtaken by a later one."""
        rng = self.rng
        if self.loss and rng.random() < self.loss:
            return
        wide = self.loss > 0.0 and rng.random() < 0.1
        self.clock.after(rng.uniform(0.001, 0.8 if wide else 0.02), deliver)
        if self.loss and rng.random() < self.loss:
            self.clock.after(rng.uniform(0.001, 1.5), deliver)

    def faulty(self) -> bool:
        """Whether this operation of etcd or the storage fails."""
        return self.faults_on and self.loss > 0.0 and self.rng.random() < 0.1

    def word(self, rank: int, world_size: int) -> str:
        """The shard of the state that a rank holds."""
        if self.shards == 1:
            return WHOLE_STATE
        anew = self.shards > 2 or world_size % self.shards > 0
        if self.options.elastic and anew:  # cut over all ranks: another number makes other shards
            return f"shard-{rank}-of-{world_size}" if rank >= 0 else WHOLE_STATE
        return f"shard-{rank % self.shards}" if rank >= 0 else WHOLE_STATE

    def ends(self, step: int) -> bool:
        """Whether an elastic function of the script ends after this many steps: the last one, or the
        first."""
        return step >= self.steps or step == self.first_end

    def new_line(self) -> str:
        """The lineage of states for a script that begins at step 0."""
        self.line_count += 1
        return f"line {self.line_count}"

    def group(self, generation: Generation) -> Group:
        """The meeting place of a generation."""
        if generation.number not in self.groups:
            self.groups[generation.number] = Group(self, generation)
        return self.groups[generation.number]

    # -------------------------------------------------------------- the log

    def say(self, kind: str, text: str) -> None:
        """Add a line to the log of what happened."""
        line = f"{self.clock.now:8.3f}  {kind:<14} {text}"
        self.log.append(line)
        if self.options.verbose:
            print(line)

    def _record(self, effects: list[Any]) -> None:
        self._digest.add(self.clock.now, effects)
        for effect in effects:
            text = SHOWN.get(type(effect))
            if text is not None:
                self.say(type(effect).__name__, text(effect))


SHOWN: dict[type[Any], Callable[[Any], str]] = {
    fx.JobChanged: lambda e: f"{e.state.phase}: {e.state.reason}",
    fx.Judged: lambda e: f"{e.verdict.scope} {e.verdict.cause} {e.verdict.ranks} -> {e.plan.strategy}",
    fx.IncidentChanged: lambda e: f"{e.incident.id} {e.incident.outcome} lost {e.incident.lost_steps}",
    fx.CheckpointChanged: lambda e: f"{e.checkpoint} {e.outcome}: {e.reason}",
    fx.Refuse: lambda e: f"{e.node}: {e.reason}",
}
