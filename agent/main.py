"""Start a node's agent, keep its tasks running, and end it in order.

The order of the end matters: the launcher ends the ranks first, then the tasks stop, and shared memory is
removed last, when nothing can write to it any more."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import re
import signal
import socket
from pathlib import Path
from typing import TYPE_CHECKING

from agent.daemon.coordinator_link import LinkRefused
from agent.daemon.launcher_client import LauncherError
from agent.daemon.metrics import AgentMetricsServer
from agent.daemon.node import NodeDaemon
from agent.deciding.events import Linked
from agent.host import heap
from agent.host.paths import FolderLock, Paths
from agent.host.ports import route_address
from agent.sensors.found import found_sensors, slots_here
from controlplane.core.records.events import NodeLeaving
from controlplane.exit_codes import REFUSED
from controlplane.settings import SettingsError, check_agent, coordinators
from holdfast import removal

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from agent.sensors.readings import Sensor
    from controlplane.settings import AgentSettings

_SENSE_S = 1.0
_LINK_LOOK_S = 1.0
_FAREWELL_S = 2.0
log = logging.getLogger("holdfast.agent")


async def serve(settings: AgentSettings) -> int:
    """Run one node's agent until SIGTERM or SIGINT; then end its ranks, and leave only logs behind.

    Returns 0 after an orderly end, and 1 when the agent could not go on (the reason is logged). Raises
    SettingsError on impossible settings, and when another agent uses the same run folder."""
    check_agent(settings)
    heap.share_heaps()
    name, address = settings.node or _host_name(), _address(settings)
    paths = Paths.of(settings, name)
    paths.create()
    lock = FolderLock(paths.run)
    try:
        slots = settings.slots or slots_here()
        node = NodeDaemon(settings, name, address, slots, paths, incarnation=lock.incarnation)
        return await _Shell(node).run()
    finally:
        lock.release()


class _Shell:
    """A node and the tasks that drive it."""

    def __init__(self, node: NodeDaemon) -> None:
        self._node = node
        self._stop = asyncio.Event()
        self._code = 0
        self._leaving: asyncio.Task[None] | None = None
        self._metrics: AgentMetricsServer | None = None
        self._addresses = b""  # the content written to the address file; empty: none written

    async def run(self) -> int:
        """Open the node, run its tasks until a signal or a failure, and close it. Returns the exit code."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._leave)
        loop.add_signal_handler(signal.SIGINT, self._stop.set)
        tasks: list[asyncio.Task[None]] = []
        try:
            if not await self._opened():
                return 0
            sensors = found_sensors(self._node.paths.run)
            works = [
                self._node.link.run(),
                self._watch_link(),
                self._node.launcher.run(self._node.launcher_lost),
            ]
            works += [self._sense(sensor) for sensor in sensors]
            works += [self._node.stalls.run(), self._node.step_reports.run(), self._repair_folders()]
            works += [self._node.ends.run(), self._node.logs.run(), self._node.disks.run()]
            tasks = [asyncio.create_task(self._guard(work)) for work in works]
            await self._stop.wait()
        except LauncherError as error:
            self._fail(str(error))
        finally:
            await self._close(tasks)
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)
        return self._code

    async def _opened(self) -> bool:
        """Open everything. False when a signal came while it waited for another container's launcher."""
        opening = asyncio.create_task(self._open())
        if self._node.settings.own_launcher:
            await opening
            return True
        stopped = asyncio.create_task(self._stop.wait())
        await asyncio.wait([opening, stopped], return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if not opening.done():
            opening.cancel()
            await asyncio.gather(opening, return_exceptions=True)
            return False
        await opening
        return True

    async def _watch_link(self) -> None:
        """Report to the core once a second whether there is a stream to the leader: without one, ranks are
        fenced after a while."""
        while True:
            self._node.decide(Linked(self._node.link.up, self._node.link.snapshots_by_beats))
            await asyncio.sleep(_LINK_LOOK_S)

    def _leave(self) -> None:
        """Handle SIGTERM: give the ranks a grace period to move to other nodes, if a leader can arrange that.

        A second SIGTERM ends the agent at once."""
        node, grace_s = self._node, self._node.settings.drain_grace_s
        alive = [member for member in node.members if member.alive]
        trains = any(member.status.elastic for member in alive)
        if self._leaving or not (grace_s and node.link.up and (trains or not alive)):
            self._stop.set()
            return
        if not alive:  # nothing to wait for but the leader's answer: it must not take this node for lost
            grace_s = min(grace_s, _FAREWELL_S)
        log.info("SIGTERM: the ranks have %.0f s to move to other nodes", grace_s)
        node.send_event(NodeLeaving(node.name, node.incarnation, "its agent received SIGTERM", grace_s))
        self._leaving = asyncio.ensure_future(self._await_drained(grace_s))

    async def _await_drained(self, grace_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                await self._node.drained.wait()
        self._stop.set()

    async def _open(self) -> None:
        node = self._node
        if node.settings.metrics:
            self._metrics = AgentMetricsServer(node, node.settings.metrics)
        node.logs.open()
        node.core.recall(node.memory.recall())
        if node.outputs is not None:
            node.outputs.start()
        await node.launcher.open()
        await node.peers.start()
        await node.rank_server.open()
        self._write_addresses()
        log.info(
            "agent of node %s at %s, %d slots, in %s", node.name, node.address, node.slots, node.paths.run
        )

    def _write_addresses(self) -> None:
        node = self._node
        if not node.settings.address_file:
            return
        metrics = self._metrics.address if self._metrics is not None else ""
        target = Path(node.settings.address_file)
        draft = target.with_name(removal.draft_name(f"{target.name}."))
        document = json.dumps({"metrics": metrics, "pid": os.getpid(), "node": node.name})
        draft.write_text(document)
        self._addresses = document.encode()
        draft.replace(target)

    def _remove_addresses(self) -> None:
        if self._addresses:
            removal.written(Path(self._node.settings.address_file), self._addresses)

    async def _guard(self, work: Coroutine[None, None, None]) -> None:
        """Run a task to its end. One that fails ends the agent, with the reason."""
        try:
            await work
        except LinkRefused as error:
            self._fail(str(error), REFUSED)
        except LauncherError as error:
            self._fail(str(error))
        except asyncio.CancelledError:
            if not self._stop.is_set():  # nobody ends the agent: without this task it would not do its work
                self._fail(f"{getattr(work, '__qualname__', work)} was cancelled")
            raise
        except Exception as error:
            log.exception("unexpected error in the agent")
            self._fail(repr(error))

    def _fail(self, reason: str, code: int = 1) -> None:
        log.error("the agent ends: %s", reason)
        self._code = self._code or code  # the first failure is the cause
        self._stop.set()

    async def _sense(self, sensor: Sensor) -> None:
        while True:
            try:
                for reading in await asyncio.to_thread(sensor.read):
                    self._node.device(reading)
            except OSError as error:
                log.warning("%s failed to read its sensor: %s", type(sensor).__name__, error)
            await asyncio.sleep(_SENSE_S)

    async def _repair_folders(self) -> None:
        """Recreate folders that somebody removed, before they are needed."""
        while True:
            try:
                self._node.folders.repair()
            except OSError as error:
                log.error("%s", error)
            await asyncio.sleep(_SENSE_S)

    async def _close(self, tasks: list[asyncio.Task[None]]) -> None:
        node = self._node
        if self._leaving is not None:
            self._leaving.cancel()
        await node.checks.stop()
        await node.launcher.end()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await node.rank_server.close()
        await node.looks.stop()
        await node.links.stop()
        await node.stacks.close()
        await node.profiles.close()
        await node.ends.close()
        await node.log_sender.close()
        await node.beat_sender.close()
        await node.beat_collector.close()
        await node.peers.stop()
        await node.snapshots.close()
        await node.arenas.close()
        node.stop_judging()
        if node.outputs is not None:
            node.outputs.close()
        if self._metrics is not None:
            self._metrics.close()
        node.memory.close(node.members)
        await asyncio.to_thread(node.memory.end)
        node.port.close()
        node.paths.remove()
        self._remove_addresses()


def _host_name() -> str:
    name = re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname())[:63].lstrip("._-")
    if not name:
        raise SettingsError(
            f"the host name {socket.gethostname()!r} cannot be used as a node name: give --node"
        )
    return name


def _address(settings: AgentSettings) -> str:
    if settings.address:
        return settings.address
    coordinator = coordinators(settings.coordinator)[0]
    try:
        return route_address(coordinator)
    except (OSError, ValueError) as error:
        raise SettingsError(
            f"no route to the coordinator {coordinator}: {error}; fix --coordinator, or give --address"
        ) from error
