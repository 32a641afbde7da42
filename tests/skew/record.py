"""`python -m tests.skew.record`: record the streams of the version before, for clones without its history.

Its coordinator and two of its agents run a job through snapshots, checkpoints, the death of a rank, and the
end. Their messages pass through this process, which stores them in streams.json.gz."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from pathlib import Path

from controlplane.daemon.etcd.server import PrivateEtcd
from controlplane.wire import control_pb2 as pb
from tests.skew import before, streams
from tests.skew.between import UP, Between
from tests.skew.rolling import Rolling, rolling

BEATS_MAX = 12
"""Of each node: one says what the next one says."""


async def main() -> None:
    tree = before.unpack(Path(tempfile.mkdtemp(dir="/tmp", prefix="hf-")))
    folder = Path(tempfile.mkdtemp(dir="/tmp", prefix="hf-"))
    heard: dict[str, streams.Said] = {"n0": [], "n1": []}
    try:
        async with PrivateEtcd(folder / "etcd") as etcd:
            with rolling(etcd.endpoint, "skew") as world:
                await _train(world, tree, heard)
    finally:
        shutil.rmtree(tree)
        shutil.rmtree(folder, ignore_errors=True)
    streams.write(before.commit(), heard)


async def _train(world: Rolling, tree: Path, heard: dict[str, streams.Said]) -> None:
    """Run one job from its first group to its end. One of its ranks is killed."""
    world.coordinator(tree)
    wires = {node: Between(world.places[0], Hearing(said)) for node, said in heard.items()}
    for node, wire in wires.items():
        await wire.__aenter__()
        world.agent(node, tree, wire.address)

    def course() -> None:
        world.submit(tree)
        world.goes_on("the beginning")
        world.kill_rank(1)
        world.goes_on("the death of a rank")
        world.finish()

    await asyncio.to_thread(course)
    for node, wire in wires.items():
        world.agents[node].end()
        await wire.__aexit__()


class Hearing:
    """Records the messages that pass, without most of the beats."""

    def __init__(self, said: streams.Said) -> None:
        self._said, self._beats = said, 0

    def __call__(self, _method: str, way: str, data: bytes) -> bytes:
        beat = way == UP and pb.AgentMessage.FromString(data).WhichOneof("body") == "beat"
        self._beats += beat
        if not beat or self._beats <= BEATS_MAX:
            self._said.append((way, data))
        return data


if __name__ == "__main__":
    asyncio.run(main())
