"""On one machine: sockets by owner and mode, folders that stay ours, secrets that stay unseen."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from agent.host.paths import Paths, own_folder
from agent.ranks.environment import NodeFacts, environment
from agent.ranks.rank_server import RankServer
from controlplane.core.records.effects import Launch
from controlplane.core.records.model import JobSpec, Role
from controlplane.settings import AgentSettings, CallerSettings, CoordinatorSettings, SettingsError
from controlplane.wire import codec
from controlplane.wire import control_pb2 as pb
from holdfast.ipc.messages.agent import Welcome
from tests.security.authority import token_line
from tests.security.serving import asked, serving

if TYPE_CHECKING:
    from holdfast.ipc.frames import Message
    from holdfast.ipc.messages.agent import AgentMessage

ROOT = Path(__file__).parents[2]
NOBODY = 65534
needs_root = os.getuid() != 0


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


class Admits:
    """A node that refuses nobody whom its rank server admits."""

    def __init__(self) -> None:
        self.dropped: list[str] = []

    def admit(self, member: str, pid: int) -> str:
        return ""

    def unnamed(self, member: str) -> bool:
        return False

    def receive(self, member: str, frame: Message) -> None:
        """Nothing is heard."""

    def joined(self, member: str, frame: Message) -> list[AgentMessage]:
        return [Welcome(1, 1.0, 5.0)]

    def left(self, member: str) -> None:
        """Nobody minds."""

    def drop(self, kind: str, reason: str) -> None:
        self.dropped.append(reason)


_KNOCK = """
import json, os, socket, sys
if len(sys.argv) > 3:
    os.setgroups([]); os.setgid(int(sys.argv[3])); os.setuid(int(sys.argv[3]))
knock = socket.socket(socket.AF_UNIX)
knock.settimeout(10)
try:
    knock.connect(sys.argv[1])
except OSError as error:
    sys.exit(f"no way in: {error.strerror}")
pid = int(sys.argv[2]) or os.getpid()
body = json.dumps({"op": "hello", "version": 1, "member": "m", "pid": pid}).encode()
knock.sendall(len(body).to_bytes(4, "big") + body)
length = int.from_bytes(knock.recv(4), "big")
print(json.loads(knock.recv(length)).get("reason") or "in")
"""


async def knock(path: Path, pid: int = 0, uid: int | None = None) -> str:
    """What a process that says it is this pid gets from a rank server."""
    argv = [sys.executable, "-c", _KNOCK, str(path), str(pid), *([str(uid)] if uid is not None else [])]
    process = await asyncio.create_subprocess_exec(
        *argv, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, cwd="/"
    )
    told, _ = await process.communicate()
    return told.decode().strip()


async def test_the_gate_knows_who_connects(folder: Path) -> None:
    node = Admits()
    server = RankServer(folder / "gate.sock", node)
    await server.open()
    try:
        assert mode(folder / "gate.sock") == 0o600
        assert await knock(folder / "gate.sock") == "in"
        assert "claims to be process 1" in await knock(folder / "gate.sock", pid=1)
    finally:
        await server.close()
    assert len(node.dropped) == 1


@pytest.mark.skipif(needs_root, reason="only root can become another user")
async def test_the_gate_is_closed_to_other_users(folder: Path) -> None:
    server = RankServer(folder / "gate.sock", Admits())
    await server.open()
    try:
        os.chmod(folder, 0o755)
        assert await knock(folder / "gate.sock", uid=NOBODY) == "no way in: Permission denied"
        os.chmod(folder / "gate.sock", 0o666)  # even then the kernel's word on the uid holds
        assert f"user {NOBODY} is not the user of this agent" in await knock(folder / "gate.sock", uid=NOBODY)
    finally:
        await server.close()


def test_run_and_memory_folders_are_ours_alone(folder: Path) -> None:
    before = os.umask(0)
    try:
        paths = Paths.of(AgentSettings(run_dir=str(folder / "a" / "b"), shm_dir=str(folder)), "n1")
        paths.create()
    finally:
        os.umask(before)
    made = [folder / "a", folder / "a" / "b", paths.run.parent, paths.run, paths.run / "logs", paths.memory]
    assert {mode(each) for each in made} == {0o700}
    paths.run.chmod(0o777)
    paths.create()  # found open: closed again
    assert mode(paths.run) == 0o700


def test_a_link_in_the_place_of_our_folder_is_not_followed(folder: Path) -> None:
    (folder / "elsewhere").mkdir()
    (folder / "run").symlink_to(folder / "elsewhere")
    with pytest.raises(SettingsError, match=r"not a folder of this user.* --run-dir"):
        own_folder(folder / "run", "--run-dir")
    (folder / "file").touch()
    with pytest.raises(SettingsError, match="give another --shm-dir"):
        own_folder(folder / "file", "--shm-dir")


@pytest.mark.skipif(needs_root, reason="only root can make another user's folder")
@pytest.mark.parametrize("below", ["", "cluster/node"])
def test_a_folder_that_another_user_put_there_is_not_used(folder: Path, below: str) -> None:
    """As in /tmp/holdfast-<uid> before its user came: whoever owns it could swap what lies in it."""
    theirs = folder / "holdfast-0"
    theirs.mkdir(mode=0o777)
    os.chown(theirs, NOBODY, NOBODY)
    with pytest.raises(SettingsError, match="give another --run-dir"):
        own_folder(theirs / below, "--run-dir")
    assert list(theirs.iterdir()) == []
    link = folder / "link"
    link.symlink_to(folder)
    os.chown(link, NOBODY, NOBODY, follow_symlinks=False)
    with pytest.raises(SettingsError, match="which belongs to user 65534"):
        own_folder(link / "run", "--run-dir")
    done = subprocess.run(
        [sys.executable, "-m", "holdfast.launch.launcher", "--run-dir", str(theirs / "x")],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 1 and "give another --run-dir" in done.stderr


async def test_a_jobs_environment_is_in_no_line_and_no_answer() -> None:
    names = ("API_TOKEN", "DB_PASSWORD", "AWS_SECRET_ACCESS_KEY", "HARMLESS")
    env = tuple((name, f"value-of-{name}") for name in names)
    spec = codec.spec_message(JobSpec("j", ("train.py",), "/", env=env))
    async with serving(leads=True) as served:
        await asked(served.address, "Submit", pb.SubmitRequest(spec=spec))
        told = "".join(line.text for line in served.front.journal.lines())
        assert "AWS_SECRET_ACCESS_KEY" in told and "value-of" not in told
        for name, request in (("Status", pb.StatusRequest()), ("Events", pb.EventsRequest())):
            assert "value-of" not in (await asked(served.address, name, request))[1]


async def test_secrets_among_arguments_are_in_no_line_and_no_answer() -> None:
    argv = ("train.py", "--api-key", "planted", "hub.token=planted", "s3://me:planted@host/a")
    async with serving(leads=True) as served:
        spec = codec.spec_message(JobSpec("j", argv, "/"))
        await asked(served.address, "Submit", pb.SubmitRequest(spec=spec))
        told = "".join(line.text for line in served.front.journal.lines())
        assert "--api-key" in told and "planted" not in told
        for name, request in (("Status", pb.StatusRequest()), ("Events", pb.EventsRequest())):
            assert "planted" not in (await asked(served.address, name, request))[1]


def test_an_agents_credentials_do_not_reach_its_ranks() -> None:
    spec = JobSpec("j", ("train.py",), "/", env=(("MINE", "1"),))
    base = {"HOLDFAST_TOKEN": "secret", "HOLDFAST_TLS_KEY": "k", "HOLDFAST_TOKEN_FILE": "f", "PATH": "/bin"}
    launch = Launch("n1", "m", spec, Role.SPARE, True)
    made = environment(base, launch, NodeFacts("n1", "127.0.0.1", "gate", ""), "board")
    assert not {"HOLDFAST_TOKEN", "HOLDFAST_TLS_KEY", "HOLDFAST_TOKEN_FILE"} & set(made)
    assert made["PATH"] == "/bin" and made["MINE"] == "1"


def test_no_setting_takes_a_secret_by_its_value() -> None:
    for kind in (CoordinatorSettings, AgentSettings, CallerSettings):
        for field in dataclasses.fields(kind):
            secret = any(word in field.name for word in ("token", "password", "secret", "key"))
            assert not secret or "file" in field.metadata["about"].lower(), field.name


def test_a_token_is_told_nowhere_when_it_will_not_do(folder: Path) -> None:
    token, line = token_line("viewer", "v")
    (folder / "tokens").write_text(line.replace("sha256:", token))
    argv = [sys.executable, "-m", "controlplane", "coordinator", f"--tokens={folder}/tokens"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2 and "line 1: give ROLE NAME" in done.stderr and token not in done.stderr
