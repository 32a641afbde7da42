"""Measure this node: each part in a process of its own, and the connections to some addresses.

A device may hang, or kill the process that touches it. Then its readings so far are kept, the part is broken,
and the other parts are measured all the same."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from statistics import median
from typing import TYPE_CHECKING, Any

from controlplane.analysis.node_checks import CheckedReading

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

GRACE_S = 60.0
"""How much longer than it measures a part may take: torch is imported, memory is touched, disks are slow."""
STEPS = 6
"""No part measures more often than this for the given time."""
CONNECTS = 9
"""A median of nine does not move for four that the scheduler held up."""
CONNECT_S = 2.0
TEXT_MAX = 300


def measure(folder: Path, seconds: float, peers: Sequence[str]) -> list[CheckedReading]:
    """All readings of this node. `seconds`: how long each is measured. `peers`: HOST:PORT to connect to."""
    devices, readings = _devices(folder)
    for part in ("cpu", *(f"cuda:{index}" for index in range(devices)), "disk"):
        readings += _part(part, seconds, folder)
    return readings + [_connection(peer) for peer in peers]


def _devices(folder: Path) -> tuple[int, list[CheckedReading]]:
    """How many devices torch sees, and a reading that says why it cannot be asked."""
    lines, trouble = _run("devices", 0.0, folder)
    if trouble or not lines:
        return 0, [CheckedReading("devices", None, "", reason=trouble or "nothing was answered")]
    return int(lines[0]["devices"]), []


def _part(part: str, seconds: float, folder: Path) -> list[CheckedReading]:
    lines, trouble = _run(part, seconds, folder)
    readings = [CheckedReading(**each) for each in lines]
    if trouble:
        absent = "No module named 'torch'" in trouble
        why = "torch is not installed here: pip install 'holdfast[torch]'" if absent else trouble
        readings.append(
            CheckedReading(part, None, "", reason=why)
            if absent
            else CheckedReading(part, None, "", broken=why)
        )
    return readings


def _run(part: str, seconds: float, folder: Path) -> tuple[list[dict[str, Any]], str]:
    """The lines that a part wrote, and what went wrong with its process; "": nothing."""
    command = [sys.executable, "-P", "-m", "holdfast.node_check", part, str(seconds), str(folder)]
    limit_s = GRACE_S + STEPS * seconds
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        out, err = process.communicate(timeout=limit_s)
        trouble = _ended(process.returncode, err)
    except subprocess.TimeoutExpired:
        process.kill()
        out, trouble = _left(process), f"it did not end within {limit_s:.0f} s, and was killed"
    return [json.loads(line) for line in out.splitlines() if line.endswith("}")], trouble


def _left(process: subprocess.Popen[str]) -> str:
    """What a killed process has written. One that waits in the kernel is left behind."""
    try:
        return process.communicate(timeout=5.0)[0]
    except subprocess.TimeoutExpired:
        return ""


def _ended(code: int, err: str) -> str:
    if not code:
        return ""
    how = f"its process ended by signal {-code}" if code < 0 else f"its process ended with code {code}"
    last = next((line for line in reversed(err.splitlines()) if line.strip()), "")
    return f"{how}: {last.strip()}"[:TEXT_MAX] if last else how


def _connection(peer: str) -> CheckedReading:
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
        return CheckedReading(name, None, "s", higher=False, broken=f"no connection: {why}")
    return CheckedReading(name, median(times), "s", higher=False)
