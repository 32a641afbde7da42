"""The language of the transcripts: what happens, one command per line, and what the core does about it.

submit nodes=2 nproc=1 spares=1 storage=file:///c   a user submits job `j`
elect                                               this coordinator leads, from what etcd holds
crash                                               the leader is gone (etcd and nodes stay)
hello NODE [launcher=x] [incarnation=n] [domain=d] [peer=h:p] [version=v] [jobs=j,k]   an agent connects
break NODE                                          its stream breaks
lose NODE                                           the machine is gone, its members with it
beat NODE                                           a heartbeat
report MEMBER PHASE [held= gen= step= ...]          one member changes
all PHASE [held= gen= step= ...]                    every living member that runs the script changes
started | snapshot STEP                             from every seat of the newest generation
stored | refused                                    etcd answers everything asked so far
parts [on=NODE] [digest=d]                          writers answer the shares they were asked for
sealed [lacks=RANK]                                 the newest Seal is done
persisted [lacks=RANK]                              both
published | loaded | mirrored | collected | scrubbed   the newest such order is done, or not: REASON
failed REASON on=NODE                               a Persist or Seal is not
ask STEP [request=r] [on=NODE]                      every seat's script wants a checkpoint of that step
found ID[,ID ...] [digest= bytes= shards=]                these checkpoints were found whole on a storage
keep NODE MEMBER step= gen= [shard= rank=]          a node keeps a copy of that member's snapshot from now on
     [vouched=no] [told=no|DIGEST]                  its agent vouches for it; told: what the keeper says
brought [REASON] [on=NODE] [because=rot|altered]    every Load and Fetch not answered yet is done, or not
stalled [RANK ...] [s=]                             these ranks (all) are past their deadlines
stood RANK:SEQUENCE ... [late=RANKS] [doingRANK=] [recorded=RANKS]   nodes answer CollectStacks; late: past
                                                    their time; recorded: they send flight records
judged RANK:KIND:CONFIDENCE ...                     the newest flight records are judged: these are to blame
fault STEP REASON [on=MEMBER kind= rollback=no gen=]   a script finds its numbers wrong
wait SECONDS                                        time passes, with a Tick at every deadline
live SECONDS [NODE ...]                             the same, while every node beats but those named
probed NODE=yes|REASON ...                          answers to the newest probes
sees NODE PEER=FAILED ...                           what a node found when it dialled its peers, of 3 tries
dcs away REASON | dcs back                          etcd answers the leader's keepalives, or not
release NODE                                        a person releases a node from quarantine
stop REASON                                         a user ends the job
drain NODE [deadline=s] [force=1] | cordon NODE | uncordon NODE   a person marks a node
leaving NODE [deadline=s]                           its agent received SIGTERM
device NODE DEVICE bad|well                         a sensor's word
"""

from __future__ import annotations

import dataclasses
import shlex
from typing import TYPE_CHECKING, Any

from controlplane.core.cluster import Cluster
from controlplane.core.records import effects as fx
from controlplane.core.records import events as ev
from controlplane.core.records.model import (
    NO_RANK,
    Cause,
    Failure,
    JobSpec,
    MemberPhase,
    MemberStatus,
    PeerCopy,
    Role,
)
from controlplane.core.records.timing import CoreSettings
from tests.sim.etcd import Etcd
from tests.transcripts import hangs, restores, saves, troubles
from tests.transcripts.show import show

if TYPE_CHECKING:
    from collections.abc import Callable

STATUS_FIELDS = {
    "held": "held_step",
    "gen": "generation",
    "step": "step",
    "snap": "snapshot_step",
    "snapgen": "snapshot_generation",
    "before": "snapshot_before",
    "former": "former_step",
    "formergen": "former_generation",
    "bytes": "state_bytes",
    "stalled": "stalled_s",
    "heldgen": "held_generation",
    "ended": "ended_step",
}


@dataclasses.dataclass
class Host:
    """A node as the transcript knows it."""

    launcher: str
    incarnation: int = 1
    seq: int = 0
    members: dict[str, MemberStatus] = dataclasses.field(default_factory=dict)
    copies: dict[str, PeerCopy] = dataclasses.field(default_factory=dict)


class Play:
    """One transcript, while it is played."""

    def __init__(self, settings: CoreSettings = CoreSettings()) -> None:  # noqa: B008 - it is frozen
        self.now = 0.0
        self.etcd = Etcd()
        self.cluster = Cluster(settings)
        self.hosts: dict[str, Host] = {}
        self.where: dict[str, str] = {}
        self.asked: list[fx.Store] = []
        self.last: dict[type[Any], Any] = {}
        self.writing: list[fx.Persist] = []
        self.publishing: list[fx.Publish] = []
        self.bringing: list[fx.Load | fx.Fetch] = []
        self.lines: list[str] = []

    def do(self, *commands: str) -> list[str]:
        """Commands, one after another; returns their effects, a line each."""
        told = []
        for command in commands:
            name, *words = shlex.split(command)
            plain = [word for word in words if "=" not in word]
            named = dict(word.split("=", 1) for word in words if "=" in word)
            self.lines = []
            COMMANDS[name](self, plain, named)
            told += self.lines
        return told

    def step(self, event: Any) -> list[fx.Effect]:
        """One step of the core."""
        return self.cluster.step(self.now, event)

    def feed(self, event: Any) -> None:
        """One step of the core, checked."""
        effects = self.step(event)
        self.cluster.check()
        for effect in effects:
            self.lines.append(show(effect))
            self.last[type(effect)] = effect
            if isinstance(effect, fx.STORES):
                self.asked.append(effect)
            elif isinstance(effect, fx.Persist) and effect not in self.writing:
                self.writing.append(effect)
            elif isinstance(effect, fx.Publish) and effect not in self.publishing:
                self.publishing.append(effect)
            elif isinstance(effect, fx.Load | fx.Fetch) and effect not in self.bringing:
                self.bringing.append(effect)
            elif isinstance(effect, fx.Launch):
                self._launched(effect)

    def _launched(self, order: fx.Launch) -> None:
        known = self.hosts[order.node].members
        if order.member not in known:
            known[order.member] = MemberStatus(order.member, order.spec.job, MemberPhase.LAUNCHED)
        known[order.member] = dataclasses.replace(known[order.member], role=order.role, rank=order.rank)
        self.where[order.member] = order.node

    # -------------------------------------------------------------- commands

    def submit(self, plain: list[str], named: dict[str, str]) -> None:
        self.feed(
            ev.JobSubmitted(
                JobSpec(
                    job="j",
                    argv=("train.py",),
                    cwd="/",
                    nnodes_min=int(named.get("nodes", 1)),
                    nnodes_max=int(named.get("most", named.get("nodes", 1))),
                    nproc_per_node=int(named.get("nproc", 1)),
                    spares_per_node=int(named.get("spares", 0)),
                    max_restarts=int(named.get("restarts", 3)),
                    storage=named.get("storage", ""),
                    replicas=int(named.get("replicas", 1)),
                    mirror=named.get("mirror", ""),
                    commit_when=named.get("commit_when", "both"),
                    checkpoint_every_s=float(named.get("every_s", 0)),
                    checkpoint_auto="auto" in named,
                    keep_last=int(named.get("keep_last", 0)),
                    keep_every=int(named.get("keep_every", 0)),
                    scrub_every_s=float(named.get("scrub_s", 0)),
                    on_nan=named.get("on_nan", "rollback"),
                    nan_skip_window=int(named.get("skip", 0)),
                    replica_nodes=int(named.get("replica", 1)),
                    check_replicas_every=int(named.get("check", 0)),
                    on_corrupt_state=named.get("on_corrupt", ""),
                )
            )
        )

    def elect(self, plain: list[str], named: dict[str, str]) -> None:
        self.cluster = Cluster(self.cluster.settings)
        self.feed(self.etcd.elect(self.now))

    def crash(self, plain: list[str], named: dict[str, str]) -> None:
        self.cluster, self.asked = Cluster(self.cluster.settings), []

    def hello(self, plain: list[str], named: dict[str, str]) -> None:
        name = plain[0]
        launcher = named.get("launcher", f"{name}-1")
        host = self.hosts.setdefault(name, Host(launcher))
        if launcher != host.launcher:
            host.launcher, host.members, host.copies = launcher, {}, {}
        incarnation = int(named.get("incarnation", host.incarnation))
        if incarnation != host.incarnation:
            host.incarnation, host.seq = incarnation, 0
        listed = tuple(s for s in host.members.values() if s.phase is not MemberPhase.LAUNCHED)
        slots = int(named.get("slots", 8))
        more = named.get("domain", ""), named.get("peer", ""), tuple(host.copies.values())
        version, jobs = named.get("version", ""), tuple(filter(None, named.get("jobs", "").split(",")))
        self.feed(
            ev.NodeJoined(
                name, incarnation, launcher, name, slots, 29500, listed, *more,
                holdfast_version=version, jobs=jobs,
            )
        )  # fmt: skip

    def broken(self, plain: list[str], named: dict[str, str]) -> None:
        host = self.hosts[plain[0]]
        self.feed(ev.NodeBroken(plain[0], host.incarnation, "connection reset"))

    def lose(self, plain: list[str], named: dict[str, str]) -> None:
        self.hosts[plain[0]].members, self.hosts[plain[0]].copies = {}, {}
        self.broken(plain, named)

    def beat(self, plain: list[str], named: dict[str, str]) -> None:
        host = self.hosts[plain[0]]
        host.seq += 1
        listed = tuple(s for s in host.members.values() if s.phase is not MemberPhase.LAUNCHED)
        copies = tuple(host.copies.values())
        self.feed(ev.NodeBeat(plain[0], host.incarnation, host.seq, 29500 + host.seq, listed, copies))

    def report(self, plain: list[str], named: dict[str, str]) -> None:
        member, phase = plain[0], MemberPhase(plain[1])
        host = self.hosts[self.where[member]]
        host.members[member] = status = _changed(host.members[member], phase, named)
        host.seq += 1
        self.feed(ev.MemberReport(self.where[member], host.incarnation, host.seq, status))

    def every(self, plain: list[str], named: dict[str, str]) -> None:
        out = (MemberPhase.EXITED, MemberPhase.RAISED)
        for host in self.hosts.values():
            for name, status in list(host.members.items()):
                if status.role is Role.RANK and status.phase not in out:
                    self.report([name, *plain], named)

    def started(self, plain: list[str], named: dict[str, str]) -> None:
        generation = self.etcd.generations["j"]
        for seat in generation.seats:
            step = generation.resume.step
            self.feed(
                ev.MemberStarted(
                    seat.node,
                    self.hosts[seat.node].incarnation,
                    seat.member,
                    "j",
                    generation.number,
                    step,
                    0.02,
                    0.03,
                    0.01,
                )
            )

    def snapshot(self, plain: list[str], named: dict[str, str]) -> None:
        generation = self.etcd.generations["j"]
        for seat in generation.seats:
            if seat.node != named.get("on", seat.node):
                continue
            host = self.hosts[seat.node]
            self.feed(
                ev.SnapshotReady(
                    seat.node,
                    host.incarnation,
                    seat.member,
                    "j",
                    generation.number,
                    int(plain[0]),
                    float(named.get("stall", 0.0)),
                )
            )

    def stored(self, plain: list[str], named: dict[str, str]) -> None:
        while self.asked:
            effect = self.asked.pop(0)
            assert self.etcd.put(effect), "this leader is fenced"
            self.feed(ev.Stored(effect.ticket))

    def refused(self, plain: list[str], named: dict[str, str]) -> None:
        asked, self.asked = self.asked, []
        for effect in asked:
            self.feed(ev.StoreFailed(effect.ticket, "etcd does not answer"))

    def wait(self, plain: list[str], named: dict[str, str]) -> None:
        end = self.now + float(plain[0])
        while self.cluster.next_deadline() <= end:
            self.now = self.cluster.next_deadline()
            self.feed(ev.Tick())
        self.now = end

    def stop(self, plain: list[str], named: dict[str, str]) -> None:
        self.feed(ev.JobStopRequested("j", " ".join(plain)))

    def drain(self, plain: list[str], named: dict[str, str]) -> None:
        deadline_s = float(named.get("deadline", 60))
        self.feed(ev.DrainRequested(plain[0], "maintenance", deadline_s, "force" in named))

    def cordon(self, plain: list[str], named: dict[str, str]) -> None:
        self.feed(ev.CordonRequested(plain[0], True, "maintenance"))

    def uncordon(self, plain: list[str], named: dict[str, str]) -> None:
        self.feed(ev.CordonRequested(plain[0], False, ""))

    def leaving(self, plain: list[str], named: dict[str, str]) -> None:
        host, deadline_s = self.hosts[plain[0]], float(named.get("deadline", 20))
        self.feed(ev.NodeLeaving(plain[0], host.incarnation, "SIGTERM", deadline_s))

    def device(self, plain: list[str], named: dict[str, str]) -> None:
        host, well = self.hosts[plain[0]], plain[2] == "well"
        reason = "" if well else "2 uncorrected memory errors"
        self.feed(ev.DeviceReport(plain[0], host.incarnation, plain[1], well, reason))


def _changed(old: MemberStatus, phase: MemberPhase, named: dict[str, str]) -> MemberStatus:
    changes: dict[str, Any] = {STATUS_FIELDS[k]: int(v) for k, v in named.items() if k in STATUS_FIELDS}
    changes |= {name: named[name] for name in ("shard", "activity") if name in named}
    elastic = old.elastic or phase in (MemberPhase.READY, MemberPhase.RUNNING)
    store = f"{old.member}:4000" if elastic else ""
    rank = old.rank if old.rank != NO_RANK else int(named.get("rank", NO_RANK))
    if "cause" in named:
        changes["failure"] = Failure(
            cause=Cause(named["cause"]),
            message=named.get("message", named["cause"]),
            exit_code=int(named["code"]) if "code" in named else None,
            signal=int(named["signal"]) if "signal" in named else None,
            exception=named.get("exception", ""),
            traceback=named.get("traceback", ""),
            age_s=float(named.get("age", 0.0)),
        )
    return dataclasses.replace(old, phase=phase, elastic=elastic, store=store, rank=rank, **changes)


COMMANDS: dict[str, Callable[[Play, list[str], dict[str, str]], None]] = {
    "submit": Play.submit,
    "elect": Play.elect,
    "crash": Play.crash,
    "hello": Play.hello,
    "break": Play.broken,
    "lose": Play.lose,
    "beat": Play.beat,
    "report": Play.report,
    "all": Play.every,
    "started": Play.started,
    "snapshot": Play.snapshot,
    "stored": Play.stored,
    "refused": Play.refused,
    "parts": saves.parts,
    "sealed": saves.sealed,
    "persisted": saves.persisted,
    "failed": saves.failed,
    "mirrored": saves.mirrored,
    "collected": saves.collected,
    "scrubbed": saves.scrubbed,
    "ask": saves.ask,
    "found": saves.found,
    "published": saves.published,
    "stalled": hangs.stalled,
    "stood": hangs.stood,
    "judged": hangs.judged,
    "fault": hangs.fault,
    "replicas": hangs.replicas,
    "loaded": restores.loaded,
    "keep": restores.keep,
    "brought": restores.brought,
    "wait": Play.wait,
    **troubles.COMMANDS,
    "stop": Play.stop,
    "drain": Play.drain,
    "cordon": Play.cordon,
    "uncordon": Play.uncordon,
    "leaving": Play.leaving,
    "device": Play.device,
}


def blocks(text: str) -> list[list[str]]:
    """The lines of each block of a transcript, without the effects."""
    return [block.split("\n----")[0].splitlines() for block in text.strip().split("\n\n")]


def play(text: str) -> str:
    """The transcript, with the effects that today's core has."""
    stage, out = Play(), []
    for given in blocks(text):
        out.append("\n".join(given))
        commands = [line for line in given if not line.startswith("#")]
        if commands:
            effects = [line for command in commands for line in stage.do(command)]
            out[-1] += "\n----\n" + "\n".join(effects or ["nothing"])
    return "\n\n".join(out) + "\n"
