"""Run a node's peer service: the copies that it gives away, keeps for others, and gets back."""

from __future__ import annotations

import asyncio
import collections
import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from agent.peers.copies import KeptCopies
from agent.peers.fetch import Fetches
from agent.peers.offer import Offer, newest
from agent.peers.own_arenas import OwnArenas
from agent.peers.push import Pushes
from agent.peers.rights import Rights, job_of
from agent.peers.server import PeerServer
from agent.peers.threads import in_thread, nice_pool
from agent.peers.vouching import Vouches
from controlplane.access.authentication import authenticator_of
from controlplane.access.client_credentials import ClientCredentials
from controlplane.settings import check_exposed
from holdfast.ipc.arena import Arena
from holdfast.ipc.shm import ArenaError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from agent.host.paths import Paths
    from controlplane.core.records import effects, events
    from controlplane.core.records.model import MemberStatus, PeerCopy
    from controlplane.settings import AgentSettings
    from holdfast.ipc.skips import CopyState

log = logging.getLogger("holdfast.agent.peers")


class Peers:
    """The peer service of one node, and the leader's orders about copies.

    `status` looks up a member of this node; `room` opens or creates a member's arena; `loaded` is called
    when something was brought into it; `send_event` sends the leader an event; `disturbs` and `relay`: as in
    PeerServer."""

    def __init__(
        self,
        settings: AgentSettings,
        paths: Paths,
        host: str,
        *,
        node: str,
        incarnation: int,
        send_event: Callable[[events.Event], None],
        status: Callable[[str], MemberStatus | None],
        room: Callable[[str, int], Arena],
        loaded: Callable[[str], None],
        relay: Callable[[Any, Any], Awaitable[None]] | None = None,
        disturbs: Callable[[], str] = str,
    ) -> None:
        self._settings, self._paths, self._host, self._status = settings, paths, host, status
        access = ClientCredentials.of(settings).to(settings.tls_peer_name)
        timeout_s = settings.peer_timeout_s
        self._pool, self._fetching = nice_pool(2, "peers"), ThreadPoolExecutor(1, "fetch")
        self._kept = KeptCopies(paths.copies)
        self._server = PeerServer(
            self._kept,
            OwnArenas(paths, status),
            self._pool,
            timeout_s,
            self._count,
            asks=authenticator_of(settings.cluster, settings, certificates=access.files.verifies),
            tls=access.files,
            rights=Rights(tuple(filter(None, settings.jobs.split(",")))),
            relay=relay,
            disturbs=disturbs,
        )
        self._vouches = Vouches(node, incarnation, send_event)
        self._pushes = Pushes(
            self._offer,
            self._pool,
            timeout_s,
            settings.peer_bytes_per_s,
            self._count,
            vouch=self._vouches.vouch,
            show=self._show,
            access=access,
        )
        self._fetches = Fetches(
            copies=self._kept,
            room=room,
            pool=self._fetching,
            timeout_s=timeout_s,
            incarnation=incarnation,
            send_event=send_event,
            loaded=loaded,
            access=access,
        )
        self._tasks: set[asyncio.Task[None]] = set()
        self.counts: collections.Counter[str] = collections.Counter()
        """For the metrics: bytes sent and received, copies sent and failed, refusals."""
        self.address = ""
        """host:port of the peer service, "" while it does not serve."""

    async def start(self) -> None:
        """Take over the copies of an earlier agent, and serve. Raises SettingsError, OSError."""
        self._kept.adopt()
        host = f"[{self._host}]" if ":" in self._host else self._host
        listen = self._settings.peer_listen or f"{host}:0"
        check_exposed("--peer-listen", listen.rpartition(":")[0], self._settings)
        await self._server.start(listen)
        self.address = self._fetches.address = f"{host}:{self._server.port}"

    async def stop(self) -> None:
        """End every stream. Copies stay in memory for the next agent."""
        self.address = ""
        await self._pushes.stop()
        await self._fetches.stop()
        await self._server.stop()
        await asyncio.gather(*self._tasks)
        for pool in (self._pool, self._fetching):
            await asyncio.to_thread(pool.shutdown, True)
        self._kept.close()

    def copies(self) -> tuple[PeerCopy, ...]:
        """The whole copies that this node keeps for others, for hello and beats."""
        return self._kept.held()

    def vouched(self) -> list[events.SnapshotVouched]:
        """What this node's agent vouches for, to report to each new leader."""
        return self._vouches.all(lambda member: self._status(member) is not None)

    @property
    def waiting(self) -> int:
        """Copies that have not arrived at their replica holder yet."""
        return self._pushes.waiting

    def replicate(self, order: effects.Replicate) -> None:
        """Keep the replica holders of these members supplied; replaces earlier orders of the job."""
        self._pushes.replicate(order.job, order.partners)

    def release(self, order: effects.Release) -> None:
        """Snapshots up to this step are READY on all ranks: send the newest one to the replica holders."""
        self._pushes.release(order.job, order.step)

    def complete(self, order: effects.Complete) -> None:
        """The job is over: copy nothing of it any more, and drop all copies of it."""
        self._pushes.complete(order.job)
        self._vouches.forget(order.job)
        self._in_background(self._forget(order.job))

    def discard(self, order: effects.Discard) -> None:
        """Newer state of these members is kept elsewhere: drop their copies."""
        self._in_background(self._let_go(order))

    def fetch(self, order: effects.Fetch) -> None:
        """Bring a copy into the arena of a member; answered by Fetched."""
        self._fetches.order(order)

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _let_go(self, order: effects.Discard) -> None:
        for member in order.members:
            if job_of(member) == order.job and await in_thread(self._pool, self._kept.drop, member):
                log.info("dropped the copy of %s on the leader's order: newer state is kept", member)

    async def _forget(self, job: str) -> None:
        await self._server.end_puts(job=job)
        await in_thread(self._pool, self._kept.drop_job, job)

    def _offer(self, member: str, job: str, released_step: int) -> Offer | None:
        status = self._status(member)
        if status is None or status.job != job:
            return None
        offer = newest(self._paths.arena(member), status, released_step)
        if offer is not None:
            try:
                offer.held = replace(offer.held, vouched=self._vouches.digest_of(offer))
            except BaseException:
                offer.close()
                raise
        return offer

    def _show(self, member: str, copies: CopyState) -> None:
        """Show a rank in its arena how far the copies of its newest released snapshot are."""
        path = self._paths.arena(member)
        if not path.exists():
            return
        try:
            with Arena.open(path, touched=False) as arena:
                arena.copies = copies
        except ArenaError as error:  # its rank cannot take snapshots there either, and reports that
            log.warning("%s is not shown how far copies of its snapshot are: %s", member, error)

    def _count(self, kind: str, number: int) -> None:
        self.counts[kind] += number
