"""One node: its members, and the rooms around them (gate, launcher, link, snapshots, watch) joined up."""

from __future__ import annotations

import asyncio
import collections
import logging
import os
import time
from typing import TYPE_CHECKING

from agent import core
from agent.arenas import Arenas
from agent.environment import NodeFacts
from agent.exits import Exits
from agent.forms import form_message
from agent.gate import VERSION as GATE_VERSION
from agent.gate import Gate
from agent.launch_client import LauncherClient
from agent.link import Link, Peer
from agent.members import Member, Members
from agent.orders import Orders
from agent.outputs import Outputs
from agent.peer_looks import Looks
from agent.peers import Peers
from agent.ports import OfferedPort
from agent.ranks import Ranks
from agent.silence import Silences
from agent.site import Site, Storages
from agent.snapshots import Snapshots
from agent.stacks import Stacks
from agent.stalls import Stalls
from controlplane.access.own import Access
from controlplane.core import events
from controlplane.core.model import Role

if TYPE_CHECKING:
    from agent.frames import Message
    from agent.paths import Paths
    from agent.sensors import DeviceReading
    from controlplane.core.model import Failure, Generation, MemberStatus
    from controlplane.settings import AgentSettings

log = logging.getLogger("holdfast.agent")


class Node:
    """What an agent is while it serves."""

    def __init__(self, settings: AgentSettings, name: str, address: str, slots: int, paths: Paths) -> None:
        self.settings, self.name, self.address, self.slots, self.paths = settings, name, address, slots, paths
        self.incarnation = time.time_ns()
        self.counts: collections.Counter[str] = collections.Counter()
        self.devices: dict[str, DeviceReading] = {}
        self.facts = NodeFacts(name, address, str(paths.gate), settings.ledger)
        self.port = OfferedPort()
        self.drained = asyncio.Event()  # the coordinator has said so
        self.members = Members(paths, self._changed)
        self.gate = Gate(paths.gate, self)
        self.exits = Exits(self)
        self.arenas = Arenas(self)
        self.launcher = LauncherClient(
            paths,
            settings.orphan_timeout_s,
            self.exits.hear,
            own=settings.own_launcher,
            log_format=settings.log_format,
        )
        site = Site(settings, self.incarnation, paths, self.arenas.rooms, Storages(settings))
        self.snapshots = Snapshots(site, self.tell, self._loaded)
        self.peers = Peers(
            settings,
            paths,
            address,
            incarnation=self.incarnation,
            tell=self.tell,
            status=self._status,
            room=self.arenas.rooms.to_fill,
            loaded=self._loaded,
        )
        self.looks = Looks(name, self.incarnation, self.tell)
        self.outputs = Outputs() if settings.show_output else None
        self.stacks, self.stalls, self.silences = Stacks(self), Stalls(self), Silences(self)
        self.orders = Orders(self)
        self._ranks = Ranks(self)
        self._watch = core.Watch(settings.process_timeout_s, settings.device_timeout_s)
        self._timer: asyncio.TimerHandle | None = None
        access = Access.of(settings)
        coordinators = settings.coordinator.split(",")
        self.link = Link(coordinators, settings.beat_interval_s, self._peer(), access)

    def _peer(self) -> Peer:
        return Peer(
            cluster=self.settings.cluster,
            node=self.name,
            incarnation=self.incarnation,
            joined=self.joined_event,
            statuses=self.members.statuses,
            copies=self.peers.copies,
            port=lambda: self.port.number,
            order=self.orders.carry_out,
            drop=self.drop,
            open=self._open,
        )

    def _open(self) -> list[events.Event]:
        """What every leader has to hear anew: askings that none has answered, devices that are bad."""
        return [*self.members.asks(), *map(self._device_event, self._watch.ailing)]

    def _device_event(self, told: core.DeviceChanged) -> events.DeviceReport:
        return events.DeviceReport(self.name, self.incarnation, told.device, told.healthy, told.reason)

    def joined_event(self) -> events.NodeJoined:
        """What a new stream is told first."""
        return events.NodeJoined(
            self.name,
            self.incarnation,
            self.exits.launcher,
            self.address,
            self.slots,
            self.port.number,
            self.members.statuses(),
            domain=self.settings.domain,
            peer=self.peers.address,
            copies=self.peers.copies(),
            process_timeout_s=self.settings.process_timeout_s,
            fence_after_s=self.settings.fence_after_s,
            orphan_timeout_s=self.settings.orphan_timeout_s,
            jobs=tuple(filter(None, self.settings.jobs.split(","))),
        )

    def tell(self, event: events.Event) -> None:
        """Tell the coordinator something that happened once."""
        self.link.tell(event)

    def count(self, kind: str) -> None:
        """Count something for the metrics."""
        self.counts[kind] += 1

    def drop(self, kind: str, reason: str) -> None:
        """Something was dropped."""
        log.warning("dropped (%s): %s", kind, reason)
        self.counts[f"dropped_{kind}"] += 1

    def order_failed(self, job: str, member: str, failure: Failure) -> None:
        """An order about a member could not be carried out."""
        self.tell(events.OrderFailed(self.name, self.incarnation, job, member, failure))

    # ------------------------------------------------------------ what the gate asks (gate.Admission)

    def admit(self, member: str, pid: int) -> str:
        """Why this process is not that member; "" when it is."""
        known = self.members.get(member)
        if known is None:
            return f"there is no member {member!r:.120} on node {self.name}"
        if not known.alive:
            return f"member {member} is dead for the cluster"
        if pid != known.status.pid and not _of_session(pid, known.status.pid):
            return f"member {member} is process {known.status.pid}, not {pid}"
        return ""

    def joined(self, member: str, message: Message) -> list[Message]:
        """A rank's hello was taken: its welcome, and what it may have missed. Raises BadMessage."""
        known = self.members.get(member)
        assert known is not None  # admit() saw it in the same breath
        missed = self._ranks.greet(known, message)
        self._heard(known)
        welcome = {
            "op": "welcome",
            "version": GATE_VERSION,
            "beat_interval_s": self.settings.beat_interval_s,
            "process_timeout_s": self.settings.process_timeout_s,
        }
        return [welcome, *missed]

    def hear(self, member: str, message: Message) -> None:
        """A message of a rank. Raises BadMessage."""
        known = self.members.get(member)
        if known is None:
            return
        self._ranks.hear(known, message)
        if known.alive and self.gate.connected(member):
            self._heard(known)

    def _heard(self, member: Member) -> None:
        self.silences.heard(member)
        self._judge(core.Heard(member.name))

    def left(self, member: str) -> None:
        """A rank's connection ended. Its process, or its silence, will tell what that means."""
        log.debug("%s left the gate", member)

    # ------------------------------------------------------------ members

    def adopted(self, member: Member) -> None:
        """An earlier agent's member lives on: watch it, and show what it prints from now on."""
        if member.status.elastic:
            self._heard(member)
        self.show(member, from_end=True)

    def show(self, member: Member, *, from_end: bool = False) -> None:
        """Show a member's output."""
        if self.outputs is not None:
            path = self.paths.log(member.name)
            self.outputs.follow(member.name, path, lambda: self._label(member), from_end=from_end)

    def conceal(self, member: Member, traceback: str) -> None:
        """Do not show this traceback, if so wanted: the coordinator has it. The member's log keeps it."""
        if self.outputs is not None and not self.settings.show_tracebacks:
            self.outputs.hide(member.name, traceback)

    def _label(self, member: Member) -> str:
        status = member.status
        rank = "spare" if status.role == Role.SPARE and status.rank < 0 else str(status.rank)
        return f"{self.name} {rank}"

    def gone(self, member: Member) -> None:
        """A member's process ended: nothing more is expected of it."""
        self._judge(core.Unwatched(member.name))
        if self.outputs is not None:
            self.outputs.finish(member.name)

    def settled(self, member: Member) -> None:
        """A member's end was reported. Of a completed job, nothing of it is kept."""
        if member.complete is not None:
            self.dismiss(member)

    def dismiss(self, member: Member) -> None:
        """Forget a member whose process is gone, and remove its shared memory."""
        self.launcher.say(op="forget", member=member.name)
        self.members.remove(member)

    def form_message(self, member: Member, generation: Generation) -> Message:
        """The frame that has a member form a generation. Raises ValueError when it cannot be made."""
        return {**form_message(member, generation, self.paths), "incident": member.incident}

    def _status(self, name: str) -> MemberStatus | None:
        member = self.members.get(name)
        return self.members.status(member) if member is not None else None

    def _changed(self, member: Member) -> None:
        self.link.report(self.members.status(member))

    def _loaded(self, name: str) -> None:
        log.info("a checkpoint was loaded into the arena of %s", name)
        member = self.members.get(name)
        if member is not None:
            self.arenas.changed(member)

    # ------------------------------------------------------------ judgement

    def device(self, reading: DeviceReading) -> None:
        """A sensor read a device."""
        self.devices[reading.device] = reading
        self._judge(core.Reading(reading.device, reading.healthy, reading.reason))

    def _judge(self, event: core.Event) -> None:
        loop = asyncio.get_running_loop()
        for effect in self._watch.step(loop.time(), event):
            if isinstance(effect, core.Silent):
                self.silences.begin(effect)
            else:
                self.tell(self._device_event(effect))
        if self._timer is not None:
            self._timer.cancel()
        due = self._watch.next_deadline()
        self._timer = loop.call_at(due, self._judge, core.Tick()) if due < float("inf") else None

    def stop_judging(self) -> None:
        """No more judgement: the agent ends."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _of_session(pid: int, leader: int) -> bool:
    try:
        return os.getsid(pid) == leader
    except ProcessLookupError:
        return False
