"""Support the tests of saving and loading: a real agent with keepers, and short ways to give the orders."""

from __future__ import annotations

import asyncio
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

from controlplane.core.records import effects, events, model
from holdfast.ipc import layout
from holdfast.ipc.arena import Arena
from tests.agent import keeper
from tests.agent.support import AgentProcess, Leader, launch, spec, until

if TYPE_CHECKING:
    from collections.abc import Sequence

SCRIPT = Path(keeper.__file__)


class Site:
    """A leader, its agent, and one storage (two with `mirror`)."""

    def __init__(
        self, agent: AgentProcess, leader: Leader, *, ranks: int = 1, mirror: bool = False, **more: Any
    ) -> None:
        self.agent, self.leader, self.ranks = agent, leader, ranks
        self.storage, self.second = agent.base / "store", agent.base / "mirror"
        if mirror:
            more["mirror"] = f"file://{self.second}"
        self.job = spec(SCRIPT, storage=f"file://{self.storage}", **more)

    async def keep(
        self, member: str, mib: int, *steps: int, shard: str = "all", rank: int = 0, waits: bool = False
    ) -> None:
        """Start a keeper with these snapshots. It trains; with `waits` it stays at the barrier."""
        job = spec(SCRIPT, shard, str(mib), *map(str, steps), *(["waits"] if waits else []))
        await self.leader.order(launch(member, job, rank))

        def ready() -> bool:
            told = [e.step for e in self.leader.of(events.SnapshotReady) if e.member == member]
            return told == list(steps)

        await until(ready, f"the snapshots of {member}")
        if waits:
            await self.leader.phase(member, model.MemberPhase.READY)

    def persist(
        self, member: str, step: int, *, share: int = 0, shares: int = 1, base: str = "", **more: Any
    ) -> effects.Persist:
        """The order to save one writer's part of a checkpoint."""
        name = f"{step}-1"
        return effects.Persist(
            "n0", member, self.job, name, step, 1, "incremental" if base else "full", base or name,
            self.versions(step), share=share, shares=shares, **more,
        )  # fmt: skip

    def seal(self, parts: Sequence[model.CheckpointPart], base: str = "") -> effects.Seal:
        """The order to seal the checkpoint that these parts make up."""
        one = parts[0]
        kind = "incremental" if base else "full"
        return effects.Seal(
            "n0", self.job, one.checkpoint, one.step, 1, kind, base or one.checkpoint,
            self.versions(one.step), tuple(parts),
        )  # fmt: skip

    def versions(self, step: int) -> tuple[tuple[int, int], ...]:
        """The version vector."""
        return tuple((rank, step) for rank in range(self.ranks))

    async def answer(self, order: Any, kind: type[Any]) -> Any:
        """Give an order, and return its answer."""
        before = len(self.leader.of(kind))
        await self.leader.order(order)
        failures = len(self.leader.of(events.PersistFailed))

        def met() -> Any:
            bad = self.leader.of(events.PersistFailed)[failures:]
            assert kind is events.PersistFailed or not bad, bad
            return self.leader.of(kind)[before:]

        found = await until(met, f"{kind.__name__} after {type(order).__name__}")
        return found[0]

    async def saved(self, member: str, step: int, base: str = "", **more: Any) -> model.CheckpointRecord:
        """A published checkpoint of one writer."""
        part = await self.answer(self.persist(member, step, base=base, **more), events.PartPersisted)
        sealed = await self.answer(self.seal([part.part], base), events.Persisted)
        published = await self.answer(effects.Publish("n0", self.job, sealed.record), events.Published)
        assert published.reason == ""
        record: model.CheckpointRecord = sealed.record
        return record

    def held(self, member: str, step: int) -> dict[str, bytes]:
        """What a member's arena has of a step."""
        with Arena.open(self.agent.memory / f"{member}.arena") as arena:
            slot = arena.find(step)
            assert slot is not None, f"{member} has no snapshot of step {step}"
            tensors, _ = layout.decode(slot.header, slot.data_bytes)
            return {t.name: bytes(slot.memory[t.offset : t.offset + t.nbytes]) for t in tensors}

    def chunks(self, place: Path | None = None) -> list[Path]:
        """The chunk files on a storage."""
        return [path for path in (place or self.storage).glob("jobs/*/bases/*/chunks/*/*") if path.is_file()]

    async def metric(self, line: str) -> float:
        """A figure of the agent's page, by the text before its value; 0 when it is not there."""
        address = self.agent.addresses()["metrics"]
        url = f"http://{address}/metrics"
        page = await asyncio.to_thread(lambda: urllib.request.urlopen(url).read().decode())
        found = [entry for entry in page.splitlines() if entry.startswith(line)]
        return float(found[0].rpartition(" ")[2]) if found else 0.0
