"""Make hosts as namespaces of one machine: each has its own processes, name, address and firewall.

All cables end in a bridge that is in a namespace of its own: nothing is visible outside, and when the process
that made them ends, everything is gone with it."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from controlplane.cli.local import network_spaces
from controlplane.cli.local.processes import descendants
from controlplane.parent_death import with_parent_death_signal

if TYPE_CHECKING:
    from collections.abc import Sequence

INIT = Path(__file__).with_name("init.py")
TOOLS = (*network_spaces.TOOLS, "ss", "iptables")
START_S = 20.0
SPACES = ("--net", "--uts", "--pid", "--mount", "--fork", "--kill-child", "--mount-proc")


def missing() -> str:
    """What this machine lacks for such hosts, and the solution; "" when nothing."""
    if why := network_spaces.missing(TOOLS):
        return why
    tried = subprocess.run(
        ["unshare", *SPACES, "iptables", "-w", "-A", "INPUT", "-m", "statistic", "--mode", "random",
         "--probability", "0.5", "-j", "DROP"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return f"this kernel has no namespaces or no filter: {tried.stderr.strip()}" if tried.returncode else ""


class HostError(AssertionError):
    """A host could not be made."""


class Host(network_spaces.NetworkSpace):
    """One machine of the cluster. While it is off it has no process and no memory."""

    def __init__(self, name: str, number: int, folder: Path) -> None:
        super().__init__(name)  # its `pid`: its process 1, as this machine sees it
        self.address = f"10.77.0.{number}"
        self.folder = folder  # logs; outlives the host's death
        folder.mkdir(parents=True, exist_ok=True)
        self._root: subprocess.Popen[bytes] | None = None
        self._heard = b""
        self._lines: list[dict[str, object]] = []

    @property
    def on(self) -> bool:
        """Whether it runs."""
        return self._root is not None and self._root.poll() is None

    def boot(self) -> None:
        """Start it; no cable is plugged in yet."""
        argv = [
            shutil.which("unshare") or "unshare",
            *SPACES,
            sys.executable,
            "-I",
            "-S",
            str(INIT),
            self.name,
        ]
        self._heard, self._lines = b"", []
        pipe = subprocess.PIPE
        self._root = subprocess.Popen(
            with_parent_death_signal(argv, signal.SIGKILL), stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL
        )
        self._await("ready", self.name)
        (self.pid,) = [pid for pid in descendants(self._root.pid) if _inner(pid) == 1]

    def crash(self) -> None:
        """Switch it off at once, with all its processes. Their files in memory are theirs to remove."""
        if self._root is None:
            return
        if self.pid:
            _kill(self.pid, signal.SIGKILL)
        self._root.kill()
        self._root.wait()
        for pipe in (self._root.stdin, self._root.stdout):
            if pipe is not None:
                pipe.close()
        self._root, self.pid = None, 0

    def start(self, name: str, argv: Sequence[str], **env: str) -> int:
        """Start a program. Returns its process id as this host sees it."""
        assert self._root is not None and self._root.stdin is not None
        log = str(self.folder / f"{name}.log")
        order = {"start": name, "argv": list(argv), "env": {**os.environ, **env}, "log": log}
        self._root.stdin.write(json.dumps(order).encode() + b"\n")
        self._root.stdin.flush()
        return int(str(self._await("started", name)["pid"]))

    def signal(self, inner: int, number: signal.Signals) -> bool:
        """Send a signal to a process, by its id on this host. False when there is none."""
        outer = self.processes().get(inner, 0)
        return bool(outer) and _kill(outer, number)

    def processes(self) -> dict[int, int]:
        """All processes of this host: their ids here, and on this machine."""
        if not self.on:
            return {}
        return {_inner(pid): pid for pid in descendants(self.pid)}

    def _await(self, key: str, value: str) -> dict[str, object]:
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            for line in self._lines:
                if line.get(key) == value:
                    self._lines.remove(line)
                    return line
            self._listen(deadline - time.monotonic())
        raise HostError(f"host {self.name} says nothing of {key} {value} within {START_S:.0f} s")

    def _listen(self, timeout_s: float) -> None:
        assert self._root is not None and self._root.stdout is not None
        readable, _, _ = select.select([self._root.stdout], [], [], max(0.0, timeout_s))
        if not readable:
            return
        data = os.read(self._root.stdout.fileno(), 1 << 16)
        if not data:
            raise HostError(f"host {self.name} went off")
        *lines, self._heard = (self._heard + data).split(b"\n")
        self._lines += [json.loads(line) for line in lines]


class Network:
    """The switch that all hosts are plugged into, with its faults."""

    def __init__(self, folder: Path) -> None:
        self._switch = Host("switch", 254, folder / "switch")

    def __enter__(self) -> Network:
        self._switch.boot()
        network_spaces.make_bridge(self._switch)
        return self

    def __exit__(self, *exc: object) -> None:
        self._switch.crash()

    def plug(self, host: Host) -> None:
        """Plug in a host that was just started."""
        number = int(host.address.rpartition(".")[2])
        network_spaces.plug(self._switch, host, number, host.address)


def drop(host: Host, chain: str, other: Host, *match: str) -> tuple[str, ...]:
    """Have a host drop what comes from (INPUT) or goes to (OUTPUT) another. Returns the rule, for `allow`."""
    side = "-s" if chain == "INPUT" else "-d"
    rule = (chain, side, other.address, *match, "-j", "DROP")
    host.must("iptables", "-w", "-A", *rule)
    return rule


def allow(host: Host, rule: Sequence[str]) -> None:
    """Remove a rule. A crash of the host has removed it already."""
    if host.on:
        host.run("iptables", "-w", "-D", *rule)


def reset(host: Host, port: int) -> None:
    """End a host's connections to this port: both sides notice at once."""
    host.must("ss", "-K", "dport", str(port))


def _inner(pid: int) -> int:
    """The id of a process in its own namespace; 0 when it is gone."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    return int(next(line for line in status.splitlines() if line.startswith("NSpid:")).split()[-1])


def _kill(pid: int, number: signal.Signals) -> bool:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True
