"""Real daemons over mTLS: a coordinator, an agent, the command line; and agents among each other."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import grpc
import pytest

from agent.peers import wire
from controlplane.exit_codes import REFUSED
from controlplane.settings import SettingsError
from controlplane.wire import peer_pb2
from tests.agent.peering import Side, values
from tests.daemon.rig import ROOT, Coordinator, until
from tests.leashed import leashed
from tests.security.authority import CLUSTER

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from controlplane.daemon.etcd.server import PrivateEtcd
    from tests.security.authority import Authority, Files

MEMBER = "job.1"


def holdfast(*argv: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "controlplane", *argv]
    full = {**os.environ, **(env or {})}
    return subprocess.run(
        command, cwd=ROOT, env=full, capture_output=True, text=True, timeout=60, check=False
    )


def agent(base: Path, name: str, coordinator: Coordinator, files: Files) -> subprocess.Popen[bytes]:
    argv = [
        *(sys.executable, "-m", "controlplane", "agent", f"--node={name}", f"--cluster={CLUSTER}-e2e"),
        *(f"--coordinator={coordinator.listen}", "--address=127.0.0.1", "--slots=1", "--metrics="),
        *(f"--run-dir={base / 'run'}", f"--shm-dir={base}", *files.flags()),
    ]
    with (base / f"{name}.log").open("wb") as log:
        return subprocess.Popen(leashed(argv), cwd=ROOT, stderr=log, stdout=log)


@pytest.fixture
def coordinator(folder: Path, authority: Authority, etcd_server: PrivateEtcd) -> Iterator[Coordinator]:
    files = authority.issue("server").settings()
    made = Coordinator(folder, etcd_server.endpoint, f"{CLUSTER}-e2e", health="127.0.0.1:0", **files)
    yield made
    made.end()


async def test_agent_and_commands_over_mtls(
    coordinator: Coordinator, authority: Authority, folder: Path
) -> None:
    await coordinator.start()
    await coordinator.leads()

    def of(role: str, name: str) -> Files:
        return authority.of(role, name, cluster=f"{CLUSTER}-e2e")

    n1 = of("agent", "n1")
    good, bad = agent(folder, "n1", coordinator, n1), agent(folder, "n2", coordinator, n1)
    try:
        ask = ("get", "nodes", "-o", "json", f"--coordinator={coordinator.listen}")
        viewer = of("viewer", "v").settings()
        env = {f"HOLDFAST_{name.upper()}": value for name, value in viewer.items()}

        def nodes() -> list[str]:
            done = holdfast(*ask, env=env)
            assert done.returncode == 0, done.stderr
            return [row["node"] for row in json.loads(done.stdout) if row["state"] == "up"]

        await until(lambda: '"NodeJoined"' in coordinator.journal.read_text())
        assert await until(bad.poll) == REFUSED  # it names itself n2 with n1's certificate: refused for good
        assert "may not speak for node 'n2'" in (folder / "n2.log").read_text()
        stop = ("stop", "some-job", f"--coordinator={coordinator.listen}")
        done = holdfast("submit", f"--coordinator={coordinator.listen}", "train.py", env=env)
        assert done.returncode == 1 and "viewer v may not Submit" in done.stderr
        done = holdfast(*stop, *of("operator", "o").flags())
        assert done.returncode == 1 and "no job named some-job" in done.stderr
        done = holdfast(*ask, "--private")
        assert done.returncode == 3  # plaintext does not get through the handshake
        assert await until(nodes) == ["n1"]
    finally:
        for each in (good, bad):
            each.terminate()
            each.wait(20)


def test_a_daemon_for_others_does_not_start_in_plaintext() -> None:
    done = holdfast("coordinator", "--listen=0.0.0.0:0")
    assert done.returncode == 2 and "--insecure" in done.stderr and "--tls-cert" in done.stderr


async def test_a_peer_port_for_others_does_not_open_in_plaintext(folder: Path) -> None:
    side = Side(folder, "a", peer_listen="0.0.0.0:0")
    with pytest.raises(SettingsError, match=r"--peer-listen .* --insecure"):
        await side.peers.start()
    await side.peers.stop()


async def test_copies_travel_between_agents_of_the_cluster_only(folder: Path, authority: Authority) -> None:
    one, two = (authority.of("agent", name).settings() for name in ("n1", "n2"))
    viewer = authority.of("viewer", "v").settings()
    shared = {"cluster": CLUSTER}
    async with (
        Side(folder, "b", **two, **shared) as partner,
        Side(folder, "a", **one, **shared) as owner,
        Side(folder, "c", **viewer, **shared) as stranger,
    ):
        owner.snapshot(MEMBER, values(1), 10)
        owner.replicate((MEMBER, partner.peers.address))
        await partner.keeps(MEMBER, 10)
        assert await partner.fetch("job.2", MEMBER, 10, partner.peers.address) == ""
        assert "viewer v may not Have" in await stranger.fetch("job.3", MEMBER, 10, partner.peers.address)
        assert partner.peers.counts["peer_calls_refused"] == 1


async def test_only_who_left_a_copy_may_change_it(folder: Path, authority: Authority) -> None:
    one, two = (authority.of("agent", name) for name in ("n1", "n2"))
    async with (
        Side(folder, "b", **two.settings(), cluster=CLUSTER) as partner,
        Side(folder, "a", **one.settings(), cluster=CLUSTER) as owner,
    ):
        owner.snapshot(MEMBER, values(1), 10)
        owner.replicate((MEMBER, partner.peers.address))
        await partner.keeps(MEMBER, 10)
        for files, code in ((two, grpc.StatusCode.PERMISSION_DENIED), (one, None)):
            async with wire.channel(partner.peers.address, files.access()) as channel:
                drop = wire.PeerCalls(channel).drop(peer_pb2.DropRequest(member=MEMBER), timeout=10)
                if code is None:
                    await drop
                    continue
                with pytest.raises(grpc.aio.AioRpcError, match="is node n1's, not n2's") as refused:
                    await drop
                assert refused.value.code() is code
        assert partner.steps(MEMBER) == []
