"""Run the processes of a cluster on this machine: start them in order, keep them alive, leave no trace.

As subreaper, this process inherits every orphan among its descendants, so `end` finds and kills all that was
started, whatever has died in between. What even SIGKILL of this process leaves behind is found by the next
run, through the card (`layout.sweep`)."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from controlplane.cli.errors import CliError
from controlplane.cli.flags.settings import as_flags
from controlplane.cli.local import finding
from controlplane.cli.local.child import Child
from controlplane.cli.local.etcd import KeptEtcd, reach
from controlplane.cli.local.layout import NODE_NAMES, LocalPaths, remove_traces
from controlplane.cli.local.processes import children, end_all_below, reap
from controlplane.settings import AgentSettings, CoordinatorSettings
from holdfast import removal
from holdfast.pids import born

if TYPE_CHECKING:
    from collections.abc import Awaitable
    from pathlib import Path

    from controlplane.cli.local.node_spaces import NodeSpace

T = TypeVar("T")

LOOPBACK = "127.0.0.1"
AGENT_GRACE_S = 8.0
DAEMON_GRACE_S = 4.0
START_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """What to start. Settings are those that differ from the daemons' defaults."""

    nodes: int
    slots: int  # ranks per node
    etcd: str = ""  # endpoints of the user's own etcd; "": start a private one
    coordinator: dict[str, Any] = field(default_factory=dict)
    agent: dict[str, Any] = field(default_factory=dict)
    log_dir: str = ""  # the user's folder for the ranks' logs; "": they go with the run folder
    host: str = LOOPBACK  # where the coordinator listens
    spaces: tuple[NodeSpace, ...] = ()  # the network of each node; (): all are in ours


class LocalCluster:
    """A private etcd, a coordinator, and one agent per node."""

    def __init__(self, layout: LocalPaths, plan: ClusterPlan) -> None:
        self.layout, self.plan = layout, plan
        self.address = self.page = ""
        self._etcd = KeptEtcd(layout.state / "etcd", self._write_card)
        self._coordinator = self._child("coordinator", self._coordinator_argv)
        self._agents = [self._agent(index) for index in range(plan.nodes)]
        self._keep_tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Return once all daemons serve. Raises CliError with the last log lines of one that does not."""
        self._keep_tasks.append(asyncio.create_task(self._reap_orphans()))
        self._keep_tasks.append(asyncio.create_task(self._watch_state()))
        if self.plan.etcd:
            self._endpoints = await reach(self.plan.etcd)
        else:
            self._endpoints = await self._etcd.start()
            self._keep_tasks.append(asyncio.create_task(self._etcd.keep()))
        await self._keep(self._coordinator)
        self.address, self.page = self._addresses()
        for agent in self._agents:
            self._place_logs(agent.name)
        await asyncio.gather(*[self._keep(agent) for agent in self._agents])
        self._write_card()

    async def guard(self, work: Awaitable[T]) -> T:
        """The result of `work`. Raises ChildFailed when a daemon fails for good before that."""
        task = asyncio.ensure_future(work)
        try:
            await asyncio.wait([task, *self._keep_tasks], return_when=asyncio.FIRST_COMPLETED)
            for keep_task in self._keep_tasks:
                if keep_task.done() and not task.done():
                    keep_task.result()
            return await task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def stop(self) -> list[int]:
        """End everything that was started: in order, then with SIGKILL.

        The coordinator goes first: it must not take the end of the ranks for failures and repair them.
        Returns the processes that would not end."""
        await self._coordinator.stop(DAEMON_GRACE_S)
        await asyncio.gather(*[agent.stop(AGENT_GRACE_S) for agent in self._agents])
        await self._etcd.stop()
        for keep_task in self._keep_tasks:
            keep_task.cancel()
        await asyncio.gather(*self._keep_tasks, return_exceptions=True)
        return self.end()

    def end(self) -> list[int]:
        """Kill all that is left below this process and remove its traces. Returns the processes that would
        not end."""
        left = end_all_below(os.getpid())
        remove_traces(self.layout)
        removal.file(self.layout.card)
        finding.forget(self.layout)
        return left

    async def _keep(self, child: Child) -> None:
        """Start a daemon and wait until it serves."""
        keep_task = asyncio.create_task(child.keep(), name=child.name)
        self._keep_tasks.append(keep_task)
        await child.served(keep_task, START_TIMEOUT_S)

    def _child(self, name: str, argv: Any, show_output: bool = False) -> Child:
        state = self.layout.state
        return Child(
            name,
            argv,
            state / f"{name}.json",
            self.layout.logs() / f"{name}.log",
            show_output,
            self._write_card,
        )

    def _agent(self, index: int) -> Child:
        node, spaces = NODE_NAMES.format(index), self.plan.spaces
        space = spaces[index] if spaces else None
        return self._child(node, lambda: self._agent_argv(node, space), show_output=True)

    def _coordinator_argv(self) -> list[str]:
        settings = {
            "journal": str(self.layout.state / "journal.jsonl"),
            "listen": self.address or f"{self.plan.host}:0",
            "page": urlsplit(self.page).netloc or "127.0.0.1:0",
            **self.plan.coordinator,
            "etcd": self._endpoints,
            "etcd_private": not self.plan.etcd,
            "private": True,
            "cluster": self.layout.cluster,
            "address_file": str(self._coordinator.address_file),
        }
        return [*_HOLDFAST, "coordinator", *as_flags(CoordinatorSettings, settings)]

    def _agent_argv(self, node: str, space: NodeSpace | None) -> list[str]:
        settings = {
            "address": LOOPBACK if space is None else space.address,
            "show_tracebacks": False,
            **({"rank_log_bytes": 0} if self.plan.log_dir else {}),  # nothing is cut in the user's folder
            **self.plan.agent,
            "cluster": self.layout.cluster,
            "coordinator": self.address,
            "node": node,
            "slots": self.plan.slots,
            "private": True,
            "run_dir": str(self.layout.run_root),
            "shm_dir": str(self.layout.shm_dir),
            "address_file": str(self.layout.state / f"{node}.json"),
        }
        argv = [*_HOLDFAST, "agent", *as_flags(AgentSettings, settings)]
        return argv if space is None else space.inside(argv)

    def _addresses(self) -> tuple[str, str]:
        """host:port of the coordinator, and the URL of its status page."""
        path: Path = self._coordinator.address_file
        document = json.loads(path.read_text())
        return str(document["listen"]), str(document["page"])

    def _place_logs(self, node: str) -> None:
        """If the user gave a log folder, have the node's logs written there, where they stay."""
        if not self.plan.log_dir:
            return
        folder = self.layout.node_dir(node)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        target = os.path.abspath(os.path.join(self.plan.log_dir, node))
        os.makedirs(target, exist_ok=True)
        (folder / "logs").symlink_to(target)

    def _write_card(self) -> None:
        """Describe the running cluster for tools and for the next run.

        Each process is named with its start time, so that a pid that was used again is not taken for it."""
        children = [self._coordinator, *self._agents]
        pids = {child.name: child.pid for child in children} | {"etcd": self._etcd.pid}
        self.layout.write_card(
            {
                "supervisor": os.getpid(),
                "job": self.layout.job,
                "cluster": self.layout.cluster,
                "coordinator": self.address,
                "run_dir": str(self.layout.run_dir),
                "shm": {child.name: str(self.layout.shm(child.name)) for child in self._agents},
                "processes": {name: [pid, born(pid)] for name, pid in pids.items() if pid},
            }
        )
        finding.tell_where(self.layout)

    async def _watch_state(self) -> None:
        """Raise CliError when somebody removes the state folder.

        The etcd in it cannot go on without its data, and nothing would be remembered."""
        lock = self.layout.state / "lock"
        while lock.exists():  # noqa: ASYNC110 -- a file has no event
            await asyncio.sleep(0.5)
        raise CliError(
            f"the state folder {self.layout.state} was removed while the job ran, so the run was ended; "
            "give a folder that is not removed with --state-dir"
        )

    async def _reap_orphans(self) -> None:
        """Reap what our daemons leave behind: as subreaper we inherit it, and zombies must not pile up."""
        while True:
            await asyncio.sleep(0.5)
            ours = {child.pid for child in [self._coordinator, *self._agents]} | {self._etcd.pid}
            reap(pid for pid in children() if pid not in ours)


_HOLDFAST = (sys.executable, "-P", "-m", "controlplane")
