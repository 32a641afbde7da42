"""Join up one node: its core, and around it rank server, launcher, link, snapshots and sensors.

Everything here runs on one event loop. `decide` is the only way into the core: it steps the core with the
time, carries out the effects, and sets a timer for the core's next deadline. Components get callables and
records, never the node, so that none can reach around the core."""

from __future__ import annotations

import asyncio
import collections
import logging
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

from agent.daemon.admission import Admission
from agent.daemon.coordinator_link import CoordinatorLink, Peer
from agent.daemon.dispatch import Components, EffectDispatcher
from agent.daemon.facts import facts_of
from agent.daemon.launcher_client import LauncherClient
from agent.daemon.local_view import LocalView
from agent.daemon.node_checks import NodeChecks
from agent.daemon.order_routing import OrderRouter
from agent.daemon.profiling import RankProfiles
from agent.daemon.rank_ends import RankEnds
from agent.daemon.stacks import Channels, Stacks
from agent.daemon.stalls import PageReader
from agent.daemon.step_reports import StepReports
from agent.deciding import effects as fx
from agent.deciding import events as ev
from agent.deciding.aggregate import AgentCore
from agent.deciding.judging import Reading, Tick
from agent.host import resources
from agent.host.disks import DiskWatch, local_folders
from agent.host.folders import Folders
from agent.host.outputs import Outputs
from agent.host.ports import OfferedPort
from agent.links.checking import LinkChecks
from agent.links.prober import LinkProber
from agent.logs.keeping import RankLogs
from agent.logs.sending import LogSender
from agent.orders.context import Context, Storages
from agent.orders.snapshot_queue import SnapshotQueue
from agent.peers.dialling import PeerDialler
from agent.peers.service import Peers
from agent.ranks.arenas import Arenas
from agent.ranks.environment import NodeFacts, inherited
from agent.ranks.members import MemberMemory
from agent.ranks.rank_server import RankServer
from agent.relays.collecting import BeatCollector
from agent.relays.sending import BeatSender
from agent.sensors.device_reports import DeviceReports
from controlplane.access.client_credentials import ClientCredentials
from controlplane.core.records import events
from controlplane.settings import local_ranks
from holdfast.ipc.messages import launcher as msg
from holdfast.ipc.messages.agent import Welcome
from holdfast.ipc.messages.rank import VERSION

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from agent.deciding.node_state import NodeState
    from agent.host.paths import Paths
    from agent.sensors.readings import DeviceReading
    from controlplane.core.records.diagnosis import NodeResources
    from controlplane.core.records.model import MemberStatus
    from controlplane.settings import AgentSettings
    from controlplane.wire.codec import AgentEvent
    from holdfast.ipc.messages.agent import AgentMessage
    from holdfast.ipc.messages.launcher import LauncherMessage, LauncherStopping
    from holdfast.ipc.messages.rank import Hello

log = logging.getLogger("holdfast.agent")
_SOONEST_S = 0.001
"""The shortest timer. The loop's clock is no finer: without this it could call for a deadline that is not
reached yet, again and again."""


class NodeDaemon:
    """What an agent is while it serves."""

    def __init__(
        self, settings: AgentSettings, name: str, address: str, slots: int, paths: Paths, *, incarnation: int
    ) -> None:
        self.settings, self.name, self.address, self.slots, self.paths = settings, name, address, slots, paths
        self.incarnation = incarnation
        self.counts: collections.Counter[str] = collections.Counter()
        self.devices = DeviceReports(name, self.incarnation, self.send_event)
        self.port = OfferedPort()
        self.drained = asyncio.Event()  # set when the coordinator reports this node as drained
        self._timer: asyncio.TimerHandle | None = None
        view = LocalView(paths, wants=self._wants, connected=self._connected)
        self.core = AgentCore(time.monotonic(), facts_of(settings, name, self.incarnation), view)
        self._make_ranks()
        self._make_copies()
        self.orders = OrderRouter(
            decide=self.decide,
            snapshots=self.snapshots,
            peers=self.peers,
            stacks=self.stacks,
            looks=self.looks,
            profiles=self.profiles,
            links=self.links,
            log_sender=self.log_sender,
            checks=self.checks,
            beat_sender=self.beat_sender,
            beat_collector=self.beat_collector,
            drained=self.drained.set,
            count=self.count,
        )
        self._dispatcher = EffectDispatcher(self._components())
        access = ClientCredentials.of(settings)
        self.link = CoordinatorLink(
            self.members.facts.coordinators, settings.beat_interval_s, self._peer(), access
        )
        self.disks = DiskWatch(self._folders)
        self.step_reports = StepReports(
            name,
            self.incarnation,
            self.members,
            every_s=lambda: self.link.step_times_every_s,
            send=self.link.send_event,
            drop=self.drop,
            storages=self.snapshots.context.storages.totals,
            device_used=lambda member: self.devices.used(member.local_rank),
            disks=self.disks.newest,
        )

    def _folders(self) -> dict[Path, str]:
        """The folders whose file systems must not fill up, and what is kept in each."""
        urls = self.snapshots.context.storages.totals()
        return {
            **{Path(path): "checkpoints" for path in local_folders(urls)},
            self.paths.logs: "logs",
            self.paths.memory: "snapshots",
        }

    def _resources(self) -> NodeResources:
        return resources.read(self.disks.newest())

    def _make_ranks(self) -> None:
        """Make the components that serve and watch the ranks' processes."""
        settings, paths, members = self.settings, self.paths, self.members
        self.memory = MemberMemory(paths)
        self.launcher = LauncherClient(
            paths,
            settings.orphan_timeout_s,
            self._launcher_sent,
            lambda reason: self.drop("launcher_message", reason),
            own=settings.own_launcher,
            log_format=settings.log_format,
        )
        channels = Channels(paths.stacks, self._push, self.launcher.send, self.send_event, self._resources)
        self.stacks = Stacks(members, channels, settings.beat_interval_s)
        self.profiles = RankProfiles(members, paths.trace, self._push, self.send_event)
        self.logs = RankLogs(paths, members, settings.rank_log_bytes)
        access = ClientCredentials.of(settings)
        self.log_sender = LogSender(self.name, paths, self.logs, lambda: self.link.target, access)
        self.ends = RankEnds(members, paths.log, self.send_event, pids_are_ours=settings.own_launcher)
        env = inherited(os.environ) if settings.own_launcher else None
        job = settings.jobs.partition(",")[0]
        link_checks = LinkChecks(job, lambda: self.link.target, access, access.to(settings.tls_peer_name))
        self.checks = NodeChecks(
            members, paths, env, self.launcher.send, self.send_event, links=link_checks.readings
        )
        self.stalls = PageReader(members, self.core.progress.look_every_s, self.decide)
        admission = Admission(
            self.name,
            members,
            greet=self._greeted,
            decide=self.decide,
            take_groups=self.stacks.take_groups,
            take_profile=self.profiles.take,
            drop=self.drop,
        )
        self.rank_server = RankServer(paths.rank_socket, admission)
        self.folders = Folders(paths, lambda: self.rank_server.gone, self.rank_server.reopen)
        self.outputs = Outputs() if settings.show_output else None
        processes = (
            msg.LauncherHello, msg.MemberWarm, msg.MemberRunning, msg.MemberExited, msg.MemberFailed,
        )  # fmt: skip
        self._launcher_handlers: dict[type[Any], Callable[[Any], None]] = {
            **dict.fromkeys(processes, self._processes_changed),
            msg.NativeStacks: self.stacks.take_native,
            msg.LauncherNote: lambda note: log.warning("launcher: %s", note.message),
            msg.LauncherStopping: _stopping,
        }

    def _make_copies(self) -> None:
        """Make the components that keep the ranks' states: in memory, on storage, and on other nodes."""
        settings, paths = self.settings, self.paths
        self.arenas = Arenas(paths, self.members, push=self.rank_server.push, decide=self.decide)
        self.beat_collector = BeatCollector()
        context = Context(settings, self.incarnation, paths, self.arenas.files, Storages(settings))
        self.snapshots = SnapshotQueue(context, self.send_event, self._loaded)
        self.peers = Peers(
            settings,
            paths,
            self.address,
            node=self.name,
            incarnation=self.incarnation,
            send_event=self.send_event,
            status=self._status,
            room=self.arenas.files.ensure_to_fill,
            loaded=self._loaded,
            relay=self.beat_collector.serve,
            disturbs=self.checks.disturbs,
        )
        self.looks = PeerDialler(self.name, self.incarnation, self.send_event)
        access = ClientCredentials.of(settings).to(settings.tls_peer_name)
        self.links = LinkProber(self.name, self.incarnation, self.send_event, access)
        self.beat_sender = BeatSender(self.name, self.incarnation, access)

    def _components(self) -> Components:
        settings = self.settings
        return Components(
            environment=NodeFacts(self.name, self.address, str(self.paths.rank_socket), settings.ledger),
            paths=self.paths,
            members=self.members,
            folders=self.folders,
            memory=self.memory,
            rank_server=self.rank_server,
            launcher=self.launcher,
            arenas=self.arenas,
            stacks=self.stacks,
            ends=self.ends,
            logs=self.logs,
            outputs=self.outputs,
            port=self.port,
            own_launcher=settings.own_launcher,
            show_tracebacks=settings.show_tracebacks,
            show_local_ranks=frozenset(local_ranks(settings.show_local_ranks)),
            decide=self.decide,
            send_event=self.send_event,
            count=self.count,
        )

    @property
    def members(self) -> NodeState:
        """All members of the node."""
        return self.core.members

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
            absent=lambda coordinator: self.decide(ev.NotLeading(coordinator)),
            open=lambda: [*self.core.still(), *self.peers.vouched(), *self.devices.told()],
            beat_sender=self.beat_sender,
            beat_collector=self.beat_collector,
        )

    def joined_event(self) -> events.NodeJoined:
        """The event that opens every stream."""
        return events.NodeJoined(
            self.name,
            self.incarnation,
            self.core.launcher,
            self.address,
            self.slots,
            self.port.number,
            self.members.told_anew(),
            domain=self.settings.domain,
            peer=self.peers.address,
            copies=self.peers.copies(),
            process_timeout_s=self.settings.process_timeout_s,
            fence_after_s=self.settings.fence_after_s,
            orphan_timeout_s=self.settings.orphan_timeout_s,
            jobs=tuple(filter(None, self.settings.jobs.split(","))),
        )

    def send_event(self, event: AgentEvent) -> None:
        """Send the coordinator a one-time event."""
        self.link.send_event(event)

    def count(self, kind: str) -> None:
        """Increase a counter of the metrics by one."""
        self.counts[kind] += 1

    def drop(self, kind: str, reason: str) -> None:
        """Log and count something that was dropped."""
        log.warning("dropped (%s): %s", kind, reason)
        self.counts[f"dropped_{kind}"] += 1

    # ------------------------------------------------------------ the core

    def decide(self, event: ev.Event) -> None:
        """Pass an event to the core, and carry out its effects."""
        self._dispatcher.do(self._decided(event))

    def _decided(self, event: ev.Event) -> Sequence[fx.Effect]:
        wanted = self.core.step(time.monotonic(), event)
        self._set_timer()
        return wanted

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        due, self._timer = self.core.next_deadline(), None
        if due < float("inf"):
            delay_s = max(due - time.monotonic(), _SOONEST_S)
            self._timer = asyncio.get_running_loop().call_later(delay_s, self.decide, Tick())

    def stop_judging(self) -> None:
        """Cancel the core's timer, when the agent ends."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # These look up the rank server and the snapshots when they are called: the core's view and the stacks are
    # made before either exists.

    def _wants(self, member: str) -> bool:
        return self.snapshots.wants(member)

    def _connected(self, member: str) -> bool:
        return self.rank_server.connected(member)

    def _push(self, member: str, message: AgentMessage) -> bool:
        return self.rank_server.push(member, message)

    def _greeted(self, member: str, hello: Hello) -> list[AgentMessage]:
        """Take a rank's hello: return the welcome, and every order that the rank may have missed.

        Effects for other parts of the node are carried out first. Those for this rank become part of the
        answer: its connection is registered only afterwards, so they could not be pushed yet."""
        welcome = Welcome(VERSION, self.settings.beat_interval_s, self.settings.process_timeout_s)
        wanted = self._decided(ev.Greeted(member, hello))
        self._dispatcher.do(effect for effect in wanted if not _for_rank(effect, member))
        missed = [self._dispatcher.message(effect) for effect in wanted if _for_rank(effect, member)]
        return [welcome, *missed]

    # ------------------------------------------------------------ reports of launcher and components

    def _launcher_sent(self, message: LauncherMessage) -> None:
        """Take one message of the launcher. An impossible one is dropped and counted: it must not end the
        agent."""
        try:
            if isinstance(message, msg.LauncherHello):
                message = self.checks.leave_out(message)
            if self.checks.owns(getattr(message, "member", "")):
                self.checks.take(message)
            else:
                self._launcher_handlers[type(message)](message)
        except (OSError, LookupError, TypeError, ValueError) as error:
            self.drop("launcher_message", f"{message.op}: {error!r:.300}")

    def _processes_changed(self, message: LauncherMessage) -> None:
        self.decide(ev.LauncherReported(message, time.monotonic_ns()))
        self.rank_server.named()

    def launcher_lost(self) -> None:
        """Note that the launcher died, and its members with it."""
        self.checks.launcher_lost()
        self.decide(ev.LauncherLost())
        self.rank_server.named()

    def _status(self, name: str) -> MemberStatus | None:
        member = self.members.get(name)
        return self.members.status(member) if member is not None else None

    def _loaded(self, name: str) -> None:
        log.info("a checkpoint was loaded into the arena of %s", name)
        member = self.members.get(name)
        if member is not None:
            self.arenas.changed(member)

    def device(self, reading: DeviceReading) -> None:
        """Take a sensor's reading of a device."""
        self.devices.take(reading, time.monotonic())
        if reading.judged:
            self.decide(Reading(reading.device, reading.healthy, reading.reason))


def _for_rank(effect: fx.Effect, member: str) -> TypeGuard[fx.Push | fx.Form]:
    return isinstance(effect, fx.Push | fx.Form) and effect.member == member


def _stopping(_message: LauncherStopping) -> None:
    """The trainer's container is ending: leave as if this agent had received SIGTERM."""
    log.info("the trainer's container is ending: this agent leaves the cluster too")
    signal.raise_signal(signal.SIGTERM)
