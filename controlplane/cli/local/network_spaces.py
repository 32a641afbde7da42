"""Give the nodes of a cluster on one machine networks of their own: a namespace and a cable for each.

All cables end in a bridge. Nothing of it can be seen or reached from outside, and when the processes that
hold the namespaces end, everything is gone with them.

The nodes of `NodeNetworks` have addresses of loopback, because a private cluster takes no others. The kernel
lets them through a card only with `route_localnet`, and only if `lo` does not claim them all. Both are set in
the namespaces, where no other machine is."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
from typing import TYPE_CHECKING

from controlplane.cli.errors import CliError
from controlplane.cli.local.layout import NODE_NAMES
from controlplane.parent_death import with_parent_death_signal

if TYPE_CHECKING:
    from collections.abc import Sequence

TOOLS = ("ip", "tc", "unshare", "nsenter")
CARD = "eth0"
SWITCH, NODE = "127.77.0.254", "127.77.0.{}"
NODES_MAX = 200
CABLE_MBIT = 400
"""What each cable of `NodeNetworks` carries, both ways: far less than a busy CPU can send, so that a probe
measures the cable."""
BURST_BYTES = 32 << 10
LATENCY = "80ms"
"""How much waits in front of a card at most; what comes then is dropped."""
CLONE_NEWNET = 0x40000000
_OWN_LOOPBACK = (
    "ip link set lo up && ip addr del 127.0.0.1/8 dev lo && ip addr add 127.0.0.1/32 dev lo && "
    "echo 1 > /proc/sys/net/ipv4/conf/all/route_localnet"
)


class NetworkError(CliError):
    """A network namespace or a cable could not be made."""


def missing(tools: Sequence[str] = TOOLS) -> str:
    """What this machine lacks for such networks, and the solution; "" when nothing."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    absent = [tool for tool in tools if shutil.which(tool) is None]
    if absent:
        return f"{', '.join(absent)} not found: apt-get install iproute2 iptables util-linux"
    rule = " ".join(_rule("add", CARD, "1mbit", BURST_BYTES))
    try_all = f"{_OWN_LOOPBACK} && ip link add br0 type bridge && ip link add {CARD} type veth && tc {rule}"
    tried = subprocess.run(
        ["unshare", "--net", "sh", "-c", try_all], capture_output=True, text=True, check=False
    )
    return f"this kernel allows no such network: {tried.stderr.strip()}" if tried.returncode else ""


class NetworkSpace:
    """The network of one machine of a made-up cluster. `pid`: a process in it; 0: it is switched off."""

    def __init__(self, name: str, pid: int = 0) -> None:
        self.name, self.pid = name, pid

    def run(self, *argv: str, timeout_s: float = 30.0) -> subprocess.CompletedProcess[str]:
        """Run a program in this network to its end."""
        return subprocess.run(
            ["nsenter", "-t", str(self.pid), "-n", *argv], capture_output=True, text=True, check=False,
            timeout=timeout_s,
        )  # fmt: skip

    def must(self, *argv: str) -> None:
        """The same; raises NetworkError when it fails."""
        done = self.run(*argv)
        if done.returncode:
            raise NetworkError(f"{self.name}: {' '.join(argv)}: {done.stderr.strip()}")


def make_bridge(switch: NetworkSpace) -> None:
    """Have a network be the switch that others are plugged into."""
    switch.must("ip", "link", "add", "br0", "type", "bridge")
    switch.must("ip", "link", "set", "br0", "up")


def plug(switch: NetworkSpace, host: NetworkSpace, number: int, address: str) -> None:
    """Plug a host into the switch's port `number`. Its card has the same hardware address each time."""
    port, card = f"p{number}", f"02:00:00:00:00:{number:02x}"
    switch.run("ip", "link", "del", port)  # the port from before a crash, if the kernel is slow
    ends = ("type", "veth", "peer", "name", CARD, "address", card, "netns", f"/proc/{host.pid}/ns/net")
    switch.must("ip", "link", "add", port, *ends)
    switch.must("ip", "link", "set", port, "master", "br0", "up")
    host.must("ip", "addr", "add", f"{address}/24", "dev", CARD)
    host.must("ip", "link", "set", "lo", "up")
    host.must("ip", "link", "set", CARD, "up")


def slow(space: NetworkSpace, rate: str, *, card: str = CARD, burst_bytes: int = 4 << 10) -> None:
    """Limit how much a card can send. `rate`: as tc takes it."""
    space.must("tc", *_rule("replace", card, rate, burst_bytes))


def quick(space: NetworkSpace) -> None:
    """Lift that limit. A machine that is switched off has none."""
    if space.pid:
        space.run("tc", "qdisc", "del", "dev", CARD, "root")


def _rule(verb: str, card: str, rate: str, burst_bytes: int) -> tuple[str, ...]:
    limit = ("rate", rate, "burst", str(burst_bytes), "latency", LATENCY)
    return ("qdisc", verb, "dev", card, "root", "tbf", *limit)


class NodeNetworks:
    """A network for each node of `holdfast run`, and one for everything else, which this process enters.

    A context manager. Each cable carries CABLE_MBIT. Enter it before this process has threads: they would
    stay outside. Raises NetworkError."""

    def __init__(self, nodes: int) -> None:
        if nodes > NODES_MAX:
            raise NetworkError(f"{nodes} nodes are too many networks: {NODES_MAX} at most")
        self._switch, self._stack = NetworkSpace("switch", os.getpid()), contextlib.ExitStack()
        names = [NODE_NAMES.format(index) for index in range(nodes)]
        self._nodes = {name: NetworkSpace(f"the network of node {name}") for name in names}
        self._ports = {name: number for number, name in enumerate(names, 1)}

    def __enter__(self) -> NodeNetworks:
        if why := missing():
            raise NetworkError(why)
        _leave_network()
        self._switch.must("sh", "-c", _OWN_LOOPBACK)
        make_bridge(self._switch)
        self._switch.must("ip", "addr", "add", f"{SWITCH}/24", "dev", "br0")
        with contextlib.ExitStack() as made:
            for name, node in self._nodes.items():
                node.pid = made.enter_context(_Holder()).pid
                node.must("sh", "-c", _OWN_LOOPBACK)
                plug(self._switch, node, self._ports[name], NODE.format(self._ports[name]))
                self._carry(name, CABLE_MBIT)
            self._stack = made.pop_all()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()

    @property
    def words(self) -> str:
        """What `node_spaces.read_spaces` reads."""
        nodes = [f"{node.pid}={NODE.format(self._ports[name])}" for name, node in self._nodes.items()]
        return ",".join((SWITCH, *nodes))

    def slow(self, node: str, factor: float) -> None:
        """Have a node's cable carry `factor` times less, both ways. Raises NetworkError."""
        self._carry(node, CABLE_MBIT / factor)

    def _carry(self, node: str, mbit: float) -> None:
        rate = f"{round(mbit * 1e6)}bit"
        slow(self._nodes[node], rate, burst_bytes=BURST_BYTES)
        slow(self._switch, rate, card=f"p{self._ports[node]}", burst_bytes=BURST_BYTES)


class _Holder:
    """A process that does nothing, in a network namespace of its own, and ends with this one."""

    def __enter__(self) -> _Holder:
        argv = [shutil.which("unshare") or "unshare", "--net", "sh", "-c", "echo there; exec sleep infinity"]
        self._process = subprocess.Popen(
            with_parent_death_signal(argv, signal.SIGKILL), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
        )
        assert self._process.stdout is not None
        with self._process.stdout as said:
            if not said.readline():
                raise NetworkError(f"no network namespace: {argv[0]} ended with {self._process.wait()}")
        self.pid = self._process.pid
        return self

    def __exit__(self, *exc: object) -> None:
        self._process.kill()
        self._process.wait()


def _leave_network() -> None:
    """Move this process into a network namespace of its own. Raises NetworkError."""
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET) != 0:
        raise NetworkError(f"no network namespace: {os.strerror(ctypes.get_errno())}")
