"""What a script asks of its agent about checkpoints, over the rank server of a real agent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from controlplane.core.records import effects, events
from controlplane.core.records.model import MemberPhase
from tests.agent.support import AgentProcess, Frames, Leader, launch, spec, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

ECHO = """
import os, select, socket
from holdfast.ipc.frames import Decoder, encode
gate = os.environ["HOLDFAST_GATE"]
def connect():
    link = socket.socket(socket.AF_UNIX)
    link.connect(gate)
    link.sendall(encode(dict(op="hello", version=1, member=os.environ["HOLDFAST_MEMBER"], pid=os.getpid(),
        store="127.0.0.1:5", phase="running", generation=2, step=30, held_step=-1)))
    return link, Decoder()
link, decoder = connect()
bridge = socket.socket(socket.AF_UNIX)
bridge.bind("rank.sock")
bridge.listen()
person, _ = bridge.accept()
orders = Decoder()
while True:
    ready, _, _ = select.select([link, person], [], [], 0.1)
    link.sendall(encode(dict(op="beat", phase="running", generation=2, step=30)))
    if person in ready:
        for message in orders.feed(person.recv(65536)):
            if message["op"] == "reconnect":
                link.close()
                link, decoder = connect()
            else:
                link.sendall(encode(message))
    if link in ready:
        data = link.recv(65536)
        for message in decoder.feed(data):
            person.sendall(encode(message))
"""


@pytest.fixture
async def rank(agent: AgentProcess, leader: Leader) -> AsyncIterator[Frames]:
    """A rank that says what it is told to, and passes on what it hears."""
    (agent.base / "echo.py").write_text(ECHO)
    await leader.order(launch("job.0", spec(agent.base / "echo.py", cwd=str(agent.base))))
    await leader.phase("job.0", MemberPhase.RUNNING)
    frames = Frames(agent.base / "rank.sock")
    yield frames
    frames.close()


ASK: dict[str, Any] = {"op": "checkpoint", "request": "job.0:1", "step": 30, "generation": 2}


async def test_a_checkpoint_is_asked_for_and_told(rank: Frames, leader: Leader) -> None:
    rank.say(**ASK)
    (asked,) = await until(lambda: leader.of(events.CheckpointAsked), "the asking")
    assert (asked.job, asked.member, asked.generation, asked.step) == ("job", "job.0", 2, 30)
    rank.say(op="reconnect")
    rank.say(**ASK)
    await until(lambda: len(leader.of(events.CheckpointAsked)) == 2, "the asking, again")
    await leader.order(
        effects.CheckpointTold("n0", "job", "job.0", "job.0:1", "committed", "step 30", "30-2")
    )
    expected = {"request": "job.0:1", "outcome": "committed", "reason": "step 30", "checkpoint": "30-2"}
    rank.until("checkpoint_told", **expected)
    rank.say(op="reconnect")
    rank.say(**ASK)
    rank.until("checkpoint_told", **expected)
    assert len(leader.of(events.CheckpointAsked)) == 2, "what is known is told without asking"


WRONG: tuple[dict[str, Any], ...] = (
    {"request": ""},
    {"request": 7},
    {"request": "a b"},
    {"request": "x" * 121},
    {"step": "30"},
    {"step": True},
    {"generation": None},
    {"step": 1 << 63},
)


async def test_an_asking_that_cannot_be_is_dropped(rank: Frames, agent: AgentProcess, leader: Leader) -> None:
    for wrong in WRONG:
        rank.say(**{**ASK, **wrong})
    rank.say(**ASK)
    await until(lambda: leader.of(events.CheckpointAsked), "a good one afterwards")
    assert agent.err().count("dropped (rank_message): job.0: checkpoint") == len(WRONG)


async def test_a_rank_says_which_shard_it_holds(rank: Frames, agent: AgentProcess, leader: Leader) -> None:
    rank.say(op="tracked", bytes=1000)
    await until(lambda: leader.reports("job.0")[-1].shard == "all", "the whole state")
    rank.say(op="tracked", bytes=1000, shard="0f3a")
    await until(lambda: leader.reports("job.0")[-1].shard == "0f3a", "a shard")
    rank.say(op="tracked", bytes=1000, shard="../x")
    await until(lambda: "dropped (rank_message): job.0: tracked: shard" in agent.err(), "the refusal")
    rank.say(op="snapshot", generation=2, step=30, slot=0, stall_s=0.25)
    (ready,) = await until(lambda: leader.of(events.SnapshotReady), "the snapshot")
    assert ready.stall_s == 0.25


async def test_a_told_checkpoint_of_nobody_is_passed_over(agent: AgentProcess, leader: Leader) -> None:
    await leader.hello(1)
    await leader.order(effects.CheckpointTold("n0", "job", "job.9", "r", "failed", "why"))
    await leader.order(effects.Kill("n0", "job", "job.9", "only to know that the other was heard"))
    await until(lambda: "kill job.9" in agent.err(), "the orders")
    assert agent.process.poll() is None


async def test_a_rank_hears_what_was_released_while_it_was_away(rank: Frames, leader: Leader) -> None:
    """A new agent is told before its ranks are back: without it they find no room for what they are asked."""
    await leader.order(effects.Release("n0", "job", 27, 25))
    rank.until("release", step=27, void=25)
    rank.say(op="reconnect")
    rank.until("release", step=27, void=25)
