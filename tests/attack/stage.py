"""Build what is attacked: a coordinator over mTLS on a real etcd, jobs that train, an agent's peer port."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import grpc

from controlplane.core.records.model import JobPhase, JobSpec, MemberPhase
from controlplane.daemon.etcd.client import Etcd
from controlplane.daemon.etcd.keyspace import Keyspace
from controlplane.daemon.etcd.server import PrivateEtcd
from controlplane.wire import codec
from controlplane.wire import control_pb2 as pb
from controlplane.wire.control_pb2_grpc import AdminStub
from tests.agent.peering import JOB, Side, values
from tests.daemon.hand import Hand
from tests.daemon.rig import Coordinator, until
from tests.security.authority import CLUSTER, Authority
from tests.security.serving import OPTIONS

if TYPE_CHECKING:
    from controlplane.access.client_credentials import ClientCredentials
    from tests.security.authority import Files

OTHER = "other"
BEAT_S = 0.5
KEPT_STEP = 10
CALLERS = ("none", "foreign-authority", "foreign-cluster", "expired", "other-job", "empty-job")


class Stage:
    """`job` trains on n1, `other` on n2, nothing on n4; node b keeps a copy of a snapshot of n1's rank."""

    def __init__(self) -> None:
        self._stack = contextlib.AsyncExitStack()
        self.keys = Keyspace(CLUSTER)
        self.member = ""

    async def __aenter__(self) -> Self:
        try:
            await self._build()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._stack.aclose()

    async def _build(self) -> None:
        self.folder = self._folder("/tmp")
        self.authority = Authority(self.folder)
        self._foreign = Authority(self._folder("/tmp"), "stranger")
        etcd = await self._stack.enter_async_context(PrivateEtcd(self._folder("/dev/shm")))
        files = self.authority.issue("server").settings()
        self.coordinator = Coordinator(self.folder, etcd.endpoint, CLUSTER, **files)
        self._stack.callback(self.coordinator.end)
        await self.coordinator.start()
        await self.coordinator.leads()
        self._client = await self._stack.enter_async_context(Etcd(etcd.target))
        self.operator = self.authority.of("operator", "alice").access()
        self.n1 = await self._trains("n1", JOB)
        await self._trains("n2", OTHER)
        self.n4 = await self._joins("n4")
        self.member = next(iter(self.n1.members))
        await self._copies()

    def _folder(self, where: str) -> Path:
        folder = Path(tempfile.mkdtemp(dir=where, prefix="hf-"))
        self._stack.callback(shutil.rmtree, folder)
        return folder

    async def _joins(self, node: str) -> Hand:
        """Have a node's agent send a hello, and beat."""
        access = self.authority.of("agent", node).access()
        channel = access.channel(self.coordinator.listen, OPTIONS)
        hand = await self._stack.enter_async_context(Hand(self.coordinator.listen, node, 1, channel))
        answer = await hand.work(CLUSTER)
        assert answer.WhichOneof("body") == "welcome", answer
        beating = asyncio.create_task(_beats(hand))
        self._stack.callback(beating.cancel)
        return hand

    async def _trains(self, node: str, job: str) -> Hand:
        """Have a node join, and a job train on it."""
        hand = await self._joins(node)
        spec = JobSpec(job, ("train.py",), "/")
        await self.call("Submit", pb.SubmitRequest(spec=codec.spec_message(spec)))
        trains = MemberPhase.RUNNING
        await until(lambda: any(status.phase is trains for status in hand.members.values()))
        for _ in range(400):
            rows = {row.job: row.phase for row in (await self.status()).jobs}
            if rows.get(job) == JobPhase.RUNNING.value:
                return hand
            await asyncio.sleep(0.05)
        raise AssertionError(f"{job} does not train: {rows}")

    async def _copies(self) -> None:
        """Have n1's agent leave a copy of its rank's snapshot with b's agent."""
        enter, shared = self._stack.enter_async_context, {"cluster": CLUSTER}
        owner = Side(self.folder, "a", **self.authority.of("agent", "n1").settings(), **shared)
        keeper = Side(self.folder, "b", **self.authority.of("agent", "b").settings(), **shared)
        self.keeper, owner = await enter(keeper), await enter(owner)
        owner.snapshot(self.member, values(1, nbytes=1 << 16), KEPT_STEP)
        owner.replicate((self.member, keeper.peers.address))
        await keeper.keeps(self.member, KEPT_STEP)

    # ------------------------------------------------------------ callers

    def channel(self, caller: str, role: str, address: str) -> grpc.aio.Channel:
        """A channel of a caller without rights here."""
        if caller == "none":
            credentials = grpc.ssl_channel_credentials(self.authority.ca.read_bytes())
            return grpc.aio.secure_channel(address, credentials, options=OPTIONS)
        return self._access(caller, role).channel(address, OPTIONS)

    def _access(self, caller: str, role: str) -> ClientCredentials:
        name = "n9" if role == "agent" else "stranger"
        uri, file = f"holdfast://{CLUSTER}/{role}/{name}", f"{role}-{caller}"
        if caller == "foreign-authority":
            theirs: Files = self._foreign.issue(file, uri)
            return type(theirs)(theirs.cert, theirs.key, str(self.authority.ca)).access()
        if caller == "foreign-cluster":
            return self.authority.issue(file, uri.replace(f"//{CLUSTER}/", "//elsewhere/")).access()
        if caller == "expired":
            over = datetime.timedelta(hours=-1)
            return self.authority.issue(file, uri, ends_in=over).access()
        query = {"other-job": f"?job={OTHER}", "empty-job": "?job="}[caller]
        return self.authority.issue(file, uri + query).access()

    # ------------------------------------------------------------ what must stay as it is

    async def call(self, method: str, request: Any) -> Any:
        """Call as an operator who has the right."""
        async with self.operator.channel(self.coordinator.listen, OPTIONS) as channel:
            return await getattr(AdminStub(channel), method)(request, timeout=20)  # type: ignore[no-untyped-call]

    async def status(self) -> pb.StatusReply:
        reply: pb.StatusReply = await self.call("Status", pb.StatusRequest())
        return reply

    async def rows(self) -> dict[str, bytes]:
        """Every row of the cluster in etcd, except those that change by themselves."""
        listing = await self._client.list(self.keys.prefix)
        of_jobs = (*map(self.keys.account, (JOB, OTHER)), *map(self.keys.findings, (JOB, OTHER)))
        mine = (self.keys.leader, self.keys.coordinators, *of_jobs)
        return {row.key: row.value for row in listing.rows if not row.key.startswith(mine)}

    async def unchanged(self, before: dict[str, bytes], but: tuple[str, ...] = ()) -> list[str]:
        """What has changed: rows in etcd, both jobs in Status, the copy at b. `but`: rows that may change."""
        after, reply = await self.rows(), await self.status()
        names = [k for k in {**before, **after} if before.get(k) != after.get(k) and k not in but]
        found = [f"etcd changed: {name}" for name in sorted(names)]
        phases = {row.job: row.phase for row in reply.jobs}
        if phases != {JOB: "running", OTHER: "running"}:
            found.append(f"the jobs are {phases}")
        if self.keeper.steps(self.member) != [KEPT_STEP]:
            found.append("the copy at the peer is gone, or another")
        return found

    def dropped(self, kind: str) -> float:
        """How many messages of this kind the coordinator has dropped."""
        return self.coordinator.samples()[f'holdfast_messages_dropped_total{{reason="{kind}"}}']


async def _beats(hand: Hand) -> None:
    while True:
        await hand.beat(*hand.members.values())
        await asyncio.sleep(BEAT_S)
