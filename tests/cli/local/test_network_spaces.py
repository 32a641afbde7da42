"""Networks for the nodes of one machine: who reaches whom, by which address, and how fast."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from controlplane.cli.errors import UsageError
from controlplane.cli.local import network_spaces
from controlplane.cli.local.network_spaces import missing
from controlplane.cli.local.node_spaces import NodeSpace, read_spaces
from controlplane.cli.main import main

SENT_BYTES = 200_000
FACTOR = 100
_PROGRAM = f"""
import json, socket, subprocess, sys, time
from controlplane.cli.local.network_spaces import NodeNetworks
from controlplane.cli.local.node_spaces import read_spaces

RECEIVE = '''
import socket, sys
server = socket.create_server((sys.argv[1], 0))
print(server.getsockname()[1], flush=True)
peer, address = server.accept()
got = 0
while data := peer.recv(1 << 16):
    got += len(data)
print(address[0], got, flush=True)
'''
SEND = '''
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=30) as line:
    line.sendall(bytes({SENT_BYTES}))
'''

def pass_bytes(sender, receiver):
    server = subprocess.Popen(
        receiver.inside([sys.executable, "-c", RECEIVE, receiver.address]), stdout=subprocess.PIPE, text=True
    )
    port = server.stdout.readline().strip()
    began = time.monotonic()
    subprocess.run(sender.inside([sys.executable, "-c", SEND, receiver.address, port]), check=True)
    seen, got = server.stdout.readline().split()
    took_s = time.monotonic() - began
    server.stdout.close()
    server.wait()
    return {{"from": seen, "bytes": int(got), "took_s": took_s}}

with NodeNetworks(3) as networks:
    host, (first, second, third) = read_spaces(networks.words)
    before = pass_bytes(second, first)
    networks.slow("n1", {FACTOR})
    found = [before, pass_bytes(second, first), pass_bytes(first, second), pass_bytes(first, third)]
    pids = [first.pid, second.pid, third.pid]
    with socket.create_server((host, 0)):
        print(json.dumps({{"passed": found, "pids": pids, "host": host}}))
"""


@pytest.fixture(scope="module")
def tried() -> dict[str, Any]:
    """What a process found that made three networks and slowed that of the second node."""
    if why := missing():
        pytest.skip(f"no networks: {why}")
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.process
def test_nodes_reach_each_other_from_addresses_of_their_own(tried: dict[str, Any]) -> None:
    nodes = [network_spaces.NODE.format(number) for number in (2, 2, 1, 1)]
    assert [(each["from"], each["bytes"]) for each in tried["passed"]] == [
        (node, SENT_BYTES) for node in nodes
    ]
    assert tried["host"] == network_spaces.SWITCH


@pytest.mark.process
def test_a_slowed_cable_carries_less_both_ways(tried: dict[str, Any]) -> None:
    """The kernel lets no more through than it may: on a busy machine too, where all else takes longer."""
    _, sent, received, _ = tried["passed"]
    bytes_per_s = network_spaces.CABLE_MBIT / FACTOR * 1e6 / 8
    least_s = (SENT_BYTES - 2 * network_spaces.BURST_BYTES) / bytes_per_s
    assert sent["took_s"] > least_s and received["took_s"] > least_s


@pytest.mark.process
def test_nothing_is_left_of_the_networks(tried: dict[str, Any]) -> None:
    assert not [pid for pid in tried["pids"] if Path(f"/proc/{pid}").exists()]
    assert "127.77." not in Path("/proc/net/fib_trie").read_text()


def test_networks_of_nodes_are_read() -> None:
    assert read_spaces("127.77.0.254,11=127.77.0.1,12=127.77.0.2") == (
        "127.77.0.254",
        (NodeSpace(11, "127.77.0.1"), NodeSpace(12, "127.77.0.2")),
    )


@pytest.mark.parametrize("text", ["", "127.77.0.254", "127.77.0.254,x=127.77.0.1", "127.77.0.254,1=n1"])
def test_words_that_are_no_networks(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="with a PID for each node"):
        read_spaces(text)


def test_each_node_needs_its_network(capsys: Any) -> None:
    words = ["run", "--nnodes", "2", "--network-spaces", "127.77.0.254,11=127.77.0.1", __file__]
    assert main(words) == UsageError("").code
    assert "--network-spaces has 1 nodes, and --nnodes 2" in capsys.readouterr().err
