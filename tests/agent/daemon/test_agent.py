"""A whole agent process, with its launcher and ranks, under a leader on the real wire."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import urllib.request
from typing import TYPE_CHECKING

import pytest

from controlplane.core.records import effects, events, model
from controlplane.core.records.model import Cause, MemberPhase
from tests.agent.support import AgentProcess, Leader, alive, folder, generation, launch, spec, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

MUTE = 9
"""The generation in which a rank takes the interpreter's lock and keeps it."""

RANK = (
    f"""
MUTE = {MUTE}
"""
    + """
import ctypes, json, os, socket, sys, time
from holdfast.ipc.frames import Decoder, encode
member = os.environ["HOLDFAST_MEMBER"]
def connect(generation):
    global link, decoder
    decoder = Decoder()
    while True:
        link = socket.socket(socket.AF_UNIX)
        try:
            link.connect(os.environ["HOLDFAST_GATE"])
            link.settimeout(0.1)
            say(op="hello", version=1, member=member, pid=os.getpid(), store="127.0.0.1:5", held_step=-1,
                phase="running" if generation else "starting", generation=generation, step=3)
            break
        except OSError:  # also of an agent that is being killed, and still lets itself be connected to
            time.sleep(0.02)
def say(**message):
    link.sendall(encode(message))
generation = 0
connect(0)
say(op="tracked", bytes=100_000)
say(op="ready", generation=0, held_step=0, step=0)
say(op="report", step=3, values=dict(huge=10**400, word="no number", loss=2))
while True:
    try:
        try:
            data = link.recv(65536)
        except TimeoutError:
            say(op="beat", phase="running", generation=generation, step=3)
            continue
        if not data:
            raise ConnectionError
    except OSError:
        connect(generation)
        continue
    for message in decoder.feed(data):
        print(time.monotonic(), json.dumps(message), flush=True)
        if message["op"] == "form":
            generation = message["generation"]["number"]
            say(op="forming", generation=generation)
            say(op="running", generation=generation, step=0)
            say(op="started", generation=generation, step=1, form_s=0.1, restore_s=0.2, first_step_s=0.3)
            if generation == MUTE:
                lock, take = ctypes.create_string_buffer(64), ctypes.PyDLL(None).pthread_mutex_lock
                take(lock), take(lock)
        if message["op"] == "interrupt":
            say(op="ready", generation=generation, held_step=3, step=3)
        if message["op"] == "complete":
            sys.exit(0)
        if message["op"] == "arena":
            from holdfast.ipc.arena import Arena
            from holdfast.ipc import layout
            arena = Arena.open(message["path"])
            writer = arena.begin(1, 1, released_step=-1)
            writer.layout(layout.encode((), {}), 0)
            writer.ready()
            say(op="snapshot", generation=1, step=1, slot=writer.index)
"""
)


@pytest.fixture
async def agent(leader: Leader) -> AsyncIterator[AgentProcess]:
    with folder() as base:
        process = AgentProcess(base, f"127.0.0.1:{leader.port}")
        yield process
        await process.end()
        left = list((base / "shm").iterdir())
        assert not left, process.err()
        assert not list(process.run_dir.glob("*.sock"))


def script(agent: AgentProcess, text: str) -> Path:
    path = agent.base / "script.py"
    path.write_text(text)
    return path


async def elastic(agent: AgentProcess, leader: Leader, member: str = "job.0", rank: int = 0) -> int:
    """Launch one member that speaks a rank's protocol; its pid, once it is READY and has a snapshot."""
    await leader.order(launch(member, spec(script(agent, RANK), nproc_per_node=1), rank))
    await until(lambda: leader.of(events.SnapshotReady), "the snapshot")
    return (await leader.phase(member, MemberPhase.READY)).pid


def heard(agent: AgentProcess, member: str = "job.0") -> str:
    return (agent.run_dir / "logs" / f"{member}.log").read_text()


async def test_a_plain_script_has_torchruns_environment(agent: AgentProcess, leader: Leader) -> None:
    path = script(agent, "import os, json; print(json.dumps(dict(os.environ)), flush=True)")
    job = spec(path, "--flag", nproc_per_node=2, env=(("MARK", "yes"),), max_restarts=5)
    await leader.order(launch("job.1", job, rank=1))
    status = await leader.phase("job.1", MemberPhase.EXITED)
    assert status.failure is None
    assert not status.elastic
    env = json.loads(heard(agent, "job.1"))
    expected = {
        "RANK": "1",
        "LOCAL_RANK": "1",
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "2",
        "GROUP_RANK": "0",
        "GROUP_WORLD_SIZE": "1",
        "ROLE_RANK": "1",
        "ROLE_WORLD_SIZE": "2",
        "ROLE_NAME": "default",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29500",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "5",
        "TORCHELASTIC_RUN_ID": "job",
        "TORCHELASTIC_USE_AGENT_STORE": "False",
        "OMP_NUM_THREADS": "1",
        "HOLDFAST_MEMBER": "job.1",
        "HOLDFAST_NODE": "n0",
        "HOLDFAST_ADDRESS": "127.0.0.1",
        "HOLDFAST_ROLE": "rank",
        "HOLDFAST_JOB": "job",
        "MARK": "yes",
    }
    assert {name: env[name] for name in expected} == expected
    await until(lambda: "[n0 1] {" in agent.out(), "the prefixed output")


async def test_an_exception_is_reported_with_its_traceback(agent: AgentProcess, leader: Leader) -> None:
    path = script(agent, "def train():\n    raise KeyError('lost')\ntrain()\n")
    await leader.order(launch("job.0", spec(path)))
    raised = await leader.phase("job.0", MemberPhase.RAISED)
    assert raised.failure is not None and "in train" in raised.failure.traceback
    assert (raised.failure.cause, raised.failure.exception) == (Cause.RAISED, "KeyError")
    ended = await leader.phase("job.0", MemberPhase.EXITED)
    assert ended.failure is not None
    assert (ended.failure.cause, ended.failure.exit_code) == (Cause.RAISED, 1)
    await until(lambda: "[n0 0] KeyError: 'lost'" in agent.out(), "the traceback")


NO_UNICODE = "raise ValueError('no file named ' + b'\\xff'.decode('utf-8', 'surrogateescape'))"
MUTE_ERROR = "class Mute(Exception):\n    def __str__(self):\n        raise RuntimeError\nraise Mute"


@pytest.mark.parametrize(
    ("text", "said"),
    [(NO_UNICODE, "ValueError: no file named \\udcff"), (MUTE_ERROR, "Mute: (its message cannot be read")],
)
async def test_an_exception_without_proper_words_is_reported_too(
    agent: AgentProcess, leader: Leader, text: str, said: str
) -> None:
    """The node must not fall silent over what no message can hold."""
    await leader.order(launch("job.0", spec(script(agent, text))))
    raised = await leader.phase("job.0", MemberPhase.RAISED)
    assert raised.failure is not None and raised.failure.message.startswith(said)
    assert await leader.phase("job.0", MemberPhase.EXITED) and len(leader.hellos) == 1


async def test_a_rank_from_launch_to_completion(agent: AgentProcess, leader: Leader) -> None:
    pid = await elastic(agent, leader)
    ready = leader.reports("job.0")[-1]
    assert ready.elastic
    assert (ready.store, ready.held_step) == ("127.0.0.1:5", 0)
    formed = generation(2, "job.0")
    for _ in range(3):
        await leader.order(effects.Form("n0", formed))
    running = await leader.phase("job.0", MemberPhase.RUNNING)
    assert (running.generation, running.rank, running.pid) == (2, 0, pid)
    (started,) = await until(lambda: leader.of(events.MemberStarted), "started")
    assert (started.generation, started.form_s, started.first_step_s) == (2, 0.1, 0.3)
    for _ in range(3):
        await leader.order(effects.Interrupt("n0", "job", 2, "a peer died"))
    await until(lambda: leader.reports("job.0")[-1].held_step == 3, "ready")
    await leader.order(effects.Form("n0", generation(3, "job.0")))
    await until(lambda: leader.reports("job.0")[-1].generation == 3, "generation 3")
    log = heard(agent)
    assert log.count('"op": "form"') == 2
    assert log.count('"op": "interrupt"') == 1
    await leader.order(effects.Complete("n0", "job", True, "done"))
    ended = await leader.phase("job.0", MemberPhase.EXITED)
    assert ended.failure is None
    await until(lambda: not list(agent.memory.glob("job.0*")), "its shared memory's removal")
    await until(lambda: leader.of(events.NodeBeat)[-1].members == (), "a beat without it")


async def test_a_kill_is_noticed_and_its_snapshot_stays(agent: AgentProcess, leader: Leader) -> None:
    pid = await elastic(agent, leader)
    ready = await until(lambda: leader.of(events.SnapshotReady), "the snapshot")
    assert (ready[0].step, ready[0].generation) == (1, 1)
    os.kill(pid, signal.SIGKILL)
    status = await leader.phase("job.0", MemberPhase.EXITED)
    assert status.failure is not None
    assert (status.failure.cause, status.failure.signal) == (Cause.SIGNALED, 9)
    assert (status.snapshot_step, status.snapshot_generation) == (1, 1)
    arena = agent.memory / "job.0.arena"
    assert arena.exists()
    await leader.order(effects.Release("n0", "job", 1))
    count = len(leader.reports("job.0"))
    await leader.order(effects.Kill("n0", "job", "job.0", "again"))
    await until(lambda: len(leader.reports("job.0")) > count, "its status, said again")
    assert arena.exists()
    await leader.order(effects.Release("n0", "job", 2))
    await until(lambda: not arena.exists(), "the removal of what is of no more use")


async def test_a_status_that_cannot_be_kept_is_told_all_the_same(agent: AgentProcess, leader: Leader) -> None:
    """As when no shared memory is left: an agent that ended over it would end all ranks of its node."""
    pid = await elastic(agent, leader)
    (agent.memory / "job.0.new").mkdir()
    os.kill(pid, signal.SIGKILL)
    status = await leader.phase("job.0", MemberPhase.EXITED)
    assert status.failure is not None and status.failure.cause == Cause.SIGNALED
    await leader.order(launch("job.1", spec(script(agent, "pass"))))
    assert (await leader.phase("job.1", MemberPhase.EXITED)).failure is None
    assert len(leader.hellos) == 1


async def test_a_tool_that_cannot_be_run_saves_no_silent_rank(
    leader: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    with folder() as base:
        (base / "py-spy").write_bytes(b"no program")
        (base / "py-spy").chmod(0o700)
        monkeypatch.setenv("PATH", f"{base}:{os.environ['PATH']}")
        agent = AgentProcess(base, f"127.0.0.1:{leader.port}")
        pid = await elastic(agent, leader)
        os.kill(pid, signal.SIGSTOP)
        status = await leader.phase("job.0", MemberPhase.EXITED)
        assert status.failure is not None and status.failure.cause == Cause.SILENT
        await agent.end()


async def test_a_stopped_rank_is_killed_as_silent(agent: AgentProcess, leader: Leader) -> None:
    pid = await elastic(agent, leader)
    os.kill(pid, signal.SIGSTOP)
    status = await leader.phase("job.0", MemberPhase.EXITED)
    assert status.failure is not None
    assert (status.failure.cause, status.failure.signal) == (Cause.SILENT, 9)
    assert status.failure.age_s >= 2.0
    assert not alive(pid)


async def test_a_rank_whose_interpreter_is_locked_is_asked_about_before_it_ends(
    agent: AgentProcess, leader: Leader
) -> None:
    pid = await elastic(agent, leader)
    await leader.order(effects.Form("n0", generation(MUTE, "job.0")))
    await until(lambda: leader.reports("job.0")[-1].stalled_s > 0, "the question")
    assert alive(pid) and leader.reports("job.0")[-1].failure is None
    await leader.order(effects.CollectStacks("n0", "job", MUTE, 1, 100_000))
    (collected,) = await until(lambda: leader.of(events.StacksCollected), "stacks")
    (standing,) = collected.ranks
    assert standing.silent_s >= 2.0 and "script.py" in standing.frames[0]
    status = await leader.phase("job.0", MemberPhase.EXITED)  # the leader says no word
    assert status.failure is not None and status.failure.cause == Cause.SILENT
    assert "script.py" in status.failure.message


async def test_a_new_agent_adopts_what_runs(agent: AgentProcess, leader: Leader) -> None:
    pid = await elastic(agent, leader)
    await leader.order(launch("job.1", spec("none"), role=model.Role.SPARE, rank=-1, warm_only=True))
    warm = await leader.phase("job.1", MemberPhase.WARM)
    await leader.order(effects.Form("n0", generation(2, "job.0")))
    await leader.phase("job.0", MemberPhase.RUNNING)
    first = await leader.hello(1)
    agent.kill()
    assert alive(pid)
    leader.events.clear()
    second_agent = AgentProcess(agent.base, f"127.0.0.1:{leader.port}")
    agent.process = second_agent.process
    second = await leader.hello(2)
    assert second.joined.launcher == first.joined.launcher
    assert second.joined.incarnation > first.joined.incarnation
    known = {status.member: status for status in second.joined.members}
    assert (known["job.0"].pid, known["job.0"].phase) == (pid, MemberPhase.RUNNING)
    assert (known["job.0"].generation, known["job.0"].rank, known["job.0"].snapshot_step) == (2, 0, 1)
    assert (known["job.1"].pid, known["job.1"].phase) == (warm.pid, MemberPhase.WARM)
    await until(lambda: heard(agent).count('"op": "welcome"') == 2, "the rank's return")
    await leader.order(effects.Interrupt("n0", "job", 2, "test"))
    await leader.phase("job.0", MemberPhase.READY)
    os.kill(pid, signal.SIGKILL)
    ended = await leader.phase("job.0", MemberPhase.EXITED)
    assert ended.failure is not None
    assert ended.failure.cause == Cause.SIGNALED


async def test_an_end_while_no_agent_was_there_is_told(agent: AgentProcess, leader: Leader) -> None:
    pid = await elastic(agent, leader)
    agent.kill()
    os.kill(pid, signal.SIGKILL)
    agent.process = AgentProcess(agent.base, f"127.0.0.1:{leader.port}").process
    second = await leader.hello(2)
    (status,) = second.joined.members
    assert status.phase == MemberPhase.EXITED
    assert status.failure is not None
    assert (status.failure.cause, status.failure.signal) == (Cause.SIGNALED, 9)
    assert status.snapshot_step == 1


async def test_the_launchers_death_is_its_members_death(agent: AgentProcess, leader: Leader) -> None:
    pid = await elastic(agent, leader)
    launcher = int((agent.run_dir / "launcher.pid").read_text())
    os.kill(launcher, signal.SIGKILL)
    status = await leader.phase("job.0", MemberPhase.EXITED)
    assert status.failure is not None
    assert "its launcher died" in status.failure.message
    await until(lambda: not alive(pid), "the rank's end")
    await leader.order(launch("job.7", spec(script(agent, "pass"))))
    assert (await leader.phase("job.7", MemberPhase.EXITED)).failure is None


async def test_old_terms_are_dropped_and_a_new_leader_is_told_all(
    agent: AgentProcess, leader: Leader
) -> None:
    await elastic(agent, leader)
    leader.leave()
    await asyncio.sleep(0)  # every stream sees it
    leader.lead(7)
    second = await leader.hello(2)
    assert second.term_seen == 1
    assert [status.member for status in second.joined.members] == ["job.0"]
    await leader.order(effects.Kill("n0", "job", "job.0", "stale"), term=6)
    await leader.order(effects.Form("n0", generation(2, "job.0")))
    await leader.phase("job.0", MemberPhase.RUNNING)
    metrics = agent.addresses()["metrics"]
    page = await asyncio.to_thread(lambda: urllib.request.urlopen(f"http://{metrics}/metrics").read())
    assert b'holdfast_agent_dropped_total{kind="stale_order"} 1.0' in page
    assert b'holdfast_agent_members{phase="running"} 1.0' in page
    assert b"holdfast_agent_term 7.0" in page
    assert b'holdfast_device_healthy{device="memory"} 1.0' in page
    assert b'holdfast_rank_reported{name="loss",rank="0",training_job="job"} 2.0' in page


async def test_too_little_shared_memory_is_said_to_the_rank(agent: AgentProcess, leader: Leader) -> None:
    greedy = script(agent, RANK.replace("bytes=100_000", "bytes=1 << 50"))
    await leader.order(launch("job.0", spec(greedy)))
    await leader.phase("job.0", MemberPhase.READY)
    await until(lambda: "arena_failed" in heard(agent), "the refusal")
    assert "free" in heard(agent)


AWAY = """
import os, pathlib, socket, time
from holdfast.ipc.frames import Decoder, encode
def hello(phase, generation):
    link = socket.socket(socket.AF_UNIX)
    link.connect(os.environ["HOLDFAST_GATE"])
    link.sendall(encode(dict(op="hello", version=1, member=os.environ["HOLDFAST_MEMBER"], pid=os.getpid(),
        store="127.0.0.1:5", phase=phase, generation=generation, step=3, held_step=3)))
    return link
hello("PHASE", 2).close()
while not pathlib.Path("back").exists():
    time.sleep(0.01)
link, decoder = hello("PHASE", 2), Decoder()
while True:
    for message in decoder.feed(link.recv(65536)):
        print(message["op"], message.get("generation", {}), flush=True)
"""


@pytest.mark.parametrize("phase", ["finished", "ready"])
async def test_who_was_away_hears_of_the_interrupt(agent: AgentProcess, leader: Leader, phase: str) -> None:
    """A rank that waits for the job's end, and one at the barrier with a generation on its way to it."""
    job = spec(script(agent, AWAY.replace("PHASE", phase)), cwd=str(agent.base))
    await leader.order(launch("job.0", job))
    await leader.phase("job.0", MemberPhase(phase))
    number = 2 if phase == "finished" else 3
    await leader.order(effects.Form("n0", generation(number, "job.0")))
    await leader.order(effects.Interrupt("n0", "job", number, "a peer died"))
    await leader.order(effects.Kill("n0", "job", "job.9", "only to know that the others were heard"))
    await until(lambda: "kill job.9" in agent.err(), "the orders")
    (agent.base / "back").touch()
    await until(lambda: f"interrupt {number}" in heard(agent), "the interrupt")
    assert "form" not in heard(agent), "nobody is sent into a generation that is broken"
