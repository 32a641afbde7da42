"""A node whose card the kernel slows is named by its check, and its peers are not: peer services of agents,
each in a network of its own.

What is slowed is what the checked node sends (`tc tbf`); nobody knows of it."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from controlplane.analysis.node_check_policy import BANDWIDTH_CROWDED_MAX, DOUBTFUL
from controlplane.analysis.node_checks import findings, judge
from controlplane.cli.local import network_spaces
from controlplane.cli.local.network_spaces import NetworkSpace
from holdfast.node_check.reading import NodeReading
from tests.leashed import leashed

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(network_spaces.missing()), reason=f"no networks: {network_spaces.missing()}"),
]
CABLE, SLOWED = "80mbit", "8mbit"  # far less than a busy CPU can send
PATIENCE_S = 60.0
CHECK = """
import asyncio, sys
from agent.links.checking import peer_readings
from controlplane.access.client_credentials import ClientCredentials
from controlplane.access.tls import TlsFiles
from controlplane.core.records.model import PeerAddress
access = ClientCredentials(TlsFiles(), insecure=True, private=True)
for each in asyncio.run(peer_readings(PeerAddress("far", sys.argv[1]), access)):
    print(each.line())
"""


@contextlib.contextmanager
def network(name: str) -> Iterator[NetworkSpace]:
    """A network of its own, as long as this lasts."""
    holder = subprocess.Popen(leashed(["unshare", "--net", "sleep", "600"]))
    try:
        ours, deadline = os.readlink("/proc/self/ns/net"), time.monotonic() + PATIENCE_S
        while os.readlink(f"/proc/{holder.pid}/ns/net") == ours:
            assert time.monotonic() < deadline, "no network was made"
            time.sleep(0.01)
        yield NetworkSpace(name, holder.pid)
    finally:
        holder.kill()
        holder.wait(PATIENCE_S)


def inside(space: NetworkSpace, *argv: str) -> list[str]:
    return ["nsenter", "-t", str(space.pid), "-n", *argv]


@contextlib.contextmanager
def far_agent(folder: Path, space: NetworkSpace, host: str) -> Iterator[str]:
    """The peer service of an agent in this network; gives where it listens."""
    settings = json.dumps({"peer_listen": f"{host}:0", "insecure": True})
    command = inside(space, sys.executable, "-P", "-m", "tests.agent.peering", str(folder), "far", settings)
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[3])}
    with subprocess.Popen(
        leashed(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
    ) as process:
        assert process.stdout is not None
        port = json.loads(process.stdout.readline())["address"].rpartition(":")[2]
        yield f"{host}:{port}"
        process.kill()


def readings(space: NetworkSpace, address: str) -> list[NodeReading]:
    """What a node in this network measures to the far agent."""
    done = space.run(sys.executable, "-P", "-c", CHECK, address, timeout_s=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    return [NodeReading(**json.loads(line)) for line in done.stdout.splitlines()]


def test_a_node_whose_card_is_slow_is_named(folder: Path) -> None:
    with contextlib.ExitStack() as made:
        switch, far, *nodes = (made.enter_context(network(f"network {at}")) for at in range(6))
        network_spaces.make_bridge(switch)
        for number, space in enumerate((far, *nodes), 1):
            network_spaces.plug(switch, space, number, f"10.78.0.{number}")
            network_spaces.slow(space, CABLE, burst_bytes=network_spaces.BURST_BYTES)
        network_spaces.slow(nodes[0], SLOWED)
        address = made.enter_context(far_agent(folder, far, "10.78.0.1"))
        measured = [readings(each, address) for each in nodes]
    told = [[each.line() for each in row] for row in measured]
    for offset, _ in measured:
        assert offset.value is not None and abs(offset.value) <= offset.within, told
    named = {
        at: findings(f"n{at}", judge(row, [each for each in measured if each is not row]))
        for at, row in enumerate(measured)
    }
    assert not any(found for at, found in named.items() if at), told  # whatever else this machine does
    if any(bandwidth.crowded > BANDWIDTH_CROWDED_MAX for _, bandwidth in measured):
        pytest.skip(f"this machine does too much else to judge links: {told}")
    (found,) = named[0]
    assert (found.kind, dict(found.place)["part"]) == ("node_part_slow", "link.bandwidth:far"), told
    assert found.confidence == DOUBTFUL  # whose end it is nobody knows
