"""Set what makes a reading of a node bad, each limit with its reason, and say what to do about each part."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.analysis.failure_logs.policy import CLOCKS_APART_S
from controlplane.analysis.links.policy import WAITED_MAX
from holdfast.node_check.reading import BANDWIDTH, OFFSET

if TYPE_CHECKING:
    from collections.abc import Mapping

SIGMAS = 1.0
SLOWER: Mapping[str, float] = {
    "disk.": 1.0,
    "link.": 1.0,
    "clock.": 1.0,
    ".nvlink.links": 0.01,
}
"""How much worse than the peers' mean a reading may be, as a share of that, by the beginning of its name or a
part of it. Disks and
connections may take twice as long: a page cache, a neighbour's write or a switch make healthy ones differ so
much. What a kernel says of its clock's error grows until the next look at a server. Of 18 NVLinks not one may
be missing."""
SLOWER_ELSE = 0.10
"""For all others: a tenth."""
FINE_UP_TO: Mapping[str, float] = {"clock.": CLOCKS_APART_S}
"""What is no worse than this is in order, whatever peers have. A kernel adds 0.5 ms to a clock's greatest
error in each second, so it is half a second after the quarter of an hour for which NTP rests at most by
default; one that nothing synchronises says 16 s."""
PEERS_LEAST = 3
VALUE_MAX = 1e24
"""More is no number that a node can have."""
CROWDED_MAX = 0.05
"""A reading during which others had more of the CPU than this accuses nobody, and is no peer of others."""
BANDWIDTH_CROWDED_MAX = WAITED_MAX
"""The same for bytes sent to peers, where it is how long the agent at either end waited for a CPU: what links
of running jobs are judged by."""
LOAD_MAX = 0.5
"""With more processes than this for each CPU before the check, slowness may be theirs."""
CLOCK_OFFSET_MAX_S = CLOCKS_APART_S
"""A clock that is further off than this, beyond what the exchange leaves open, is wrong: failures in logs of
ranks are put in order on the assumption that clocks of two nodes differ by no more, and what is asked for the
last minutes is not what people get. Certificates and times of quarantines come later: they bear minutes.
Leases of etcd do not: they run by the clock of one machine."""
CLOCK_OFFSET_POSSIBLE_S = 1e11
STATED = ("network.", "infiniband.", "clock.", ".pcie.", ".nvlink.")
"""Beginnings and parts of names of what a kernel or a driver states: no load makes it better or worse."""
COUNTS = ("errors",)
"""Units of which 0 is a sound number, and the best one."""

SURE, LIKELY, CLOCK_LIKELY, DOUBTFUL = 1.0, 0.9, 0.8, 0.5
"""Confidence that the node is to blame: its part computes wrong or fails; it is worse than its peers; its
clock differs from those of its peers, too (below 0.9: no rank needs a right clock); the fault may be that of
another process, of the other end of a cable or of a connection, or of the clock that it was compared with."""
TWO_ENDS = ("link.", "network.errors")
"""How the names of readings begin that take two ends."""

ADVICE: Mapping[str, str] = {
    "clock": "set up chrony or another NTP client on this node, and look whether it reaches its servers "
    "(chronyc tracking, or timedatectl)",
    "gemm": "look at clocks, temperature, power limit and other users of the device; check again when idle",
    "memory": "look at the memory's slots, errors (EDAC, ECC) and at other processes; check again when idle",
    "disk": "look at its health (SMART), space and other writers; put checkpoints on another one until then",
    ".copy.": "look at how the devices are joined (nvidia-smi topo -m) and what their links have negotiated",
    "nvlink": "look at its links (nvidia-smi nvlink --status) and the kernel's log (Xid 74); reset it",
    "pcie": "look at the device's seat, riser and the settings of the slot in the BIOS (lspci -vv, LnkSta)",
    "network": "look at cable, transceiver and the port of the switch (ethtool), and what they negotiate",
    "infiniband": "look at cable, transceiver and the port of the switch (ibstat, ibdiagnet)",
    "link": "check from the other node too, and from a third one: that tells whose end it is",
}
"""What to do, by a part of the reading's name; the first one that fits."""


def of_name(table: Mapping[str, float], name: str, otherwise: float) -> float:
    """The number for a reading of this name."""
    return next((limit for part, limit in table.items() if _is_of(part, name)), otherwise)


def is_stated(name: str) -> bool:
    """Whether a kernel or a driver states this, so that load changes nothing about it."""
    return any(_is_of(part, name) for part in STATED)


def is_offset(name: str) -> bool:
    """Whether this is by how much a clock is ahead of another one: it may be 0 or less."""
    return name.startswith(OFFSET)


def crowded_max(name: str) -> float:
    """How much of the CPU time that it wanted a sound reading of this name may have missed."""
    return BANDWIDTH_CROWDED_MAX if name.startswith(BANDWIDTH) else CROWDED_MAX


def _is_of(part: str, name: str) -> bool:
    """Whether a name begins so; a part that begins with a dot may stand anywhere."""
    return name.startswith(part) or (part.startswith(".") and part in name)
