"""Measure this node: each part in a process of its own, and the links to some addresses.

A device may hang, or kill the process that touches it. Then its readings so far are kept, the part is broken,
and the other parts are measured all the same. How far the clock is off and how fast bytes go the agent at an
address tells, if there is one that takes these credentials."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import time
from statistics import median
from typing import TYPE_CHECKING

from holdfast.node_check import answers
from holdfast.node_check.reading import NodeReading

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from controlplane.access.client_credentials import ClientCredentials

CONNECTS = 9
"""A median of nine does not move for four that the scheduler held up."""
CONNECT_S = 2.0


def measure(
    folder: Path, seconds: float, peers: Sequence[str], access: ClientCredentials | None = None
) -> list[NodeReading]:
    """All readings of this node. `seconds`: how long each is measured. `peers`: HOST:PORT to connect to, with
    these credentials."""
    count, readings = answers.devices(*_run(answers.DEVICES, 0.0, folder))
    for part in answers.parts(count):
        readings += _part(part, seconds, folder)
    for peer in peers:
        readings += [_connection(peer), *_links(peer, access)]
    return readings


def _part(part: str, seconds: float, folder: Path) -> list[NodeReading]:
    return answers.readings(part, *_run(part, seconds, folder))


def _run(part: str, seconds: float, folder: Path) -> tuple[list[str], str]:
    """The lines that a part wrote, and what went wrong with its process; "": nothing."""
    command = [sys.executable, "-P", "-m", "holdfast.node_check", part, str(seconds), str(folder)]
    limit_s = answers.limit_s(seconds)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        out, err = process.communicate(timeout=limit_s)
        code = process.returncode
        trouble = answers.ended(max(code, 0), max(-code, 0), err)
    except subprocess.TimeoutExpired:
        process.kill()
        out, trouble = _left(process), f"it did not end within {limit_s:.0f} s, and was killed"
    return out.splitlines(), trouble


def _left(process: subprocess.Popen[str]) -> str:
    """What a killed process has written. One that waits in the kernel is left behind."""
    try:
        return process.communicate(timeout=5.0)[0]
    except subprocess.TimeoutExpired:
        return ""


def _connection(peer: str) -> NodeReading:
    """The median time to connect to HOST:PORT."""
    name = f"link.connect:{peer}"
    host, _, port = peer.rpartition(":")
    times = []
    try:
        for _ in range(CONNECTS):
            began = time.perf_counter()
            with socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_S):
                times.append(time.perf_counter() - began)
    except OSError as error:
        why = error.strerror or str(error) or type(error).__name__
        return NodeReading(name, None, "s", higher=False, broken=f"no connection: {why}")
    return NodeReading(name, median(times), "s", higher=False)


def _links(peer: str, access: ClientCredentials | None) -> tuple[NodeReading, ...]:
    """How far this node's clock is ahead of that of the agent at HOST:PORT, and how fast bytes go there."""
    from agent.links.checking import peer_readings
    from controlplane.core.records.model import PeerAddress

    if access is None:
        return ()
    return asyncio.run(peer_readings(PeerAddress(peer, peer), access))
