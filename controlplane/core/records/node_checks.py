"""Define the checks of nodes (the answer to the order `effects.CheckNode`, how it is judged), and what their
sensors show.

The core keeps the newest readings of each node. It may not compare numbers (that is
`controlplane.analysis.node_checks`), so it gives them away (JudgeNode) and is told what is wrong."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.node_check.reading import NodeReading

BROKEN, SLOW = "node_part_broken", "node_part_slow"
"""The kinds of findings about a part of a node."""


@dataclass(frozen=True, slots=True)
class NodeChecked:
    """What a node measured. `reason`: why it could measure nothing; "": it did."""

    node: str
    incarnation: int
    round: int  # as in the order
    readings: tuple[NodeReading, ...] = ()
    load: float = 0.0  # processes for each CPU before the check
    age_s: float = 0.0  # how long ago it was measured
    reason: str = ""


@dataclass(frozen=True, slots=True)
class PeerReadings:
    """The newest readings of another node."""

    node: str
    readings: tuple[NodeReading, ...]


@dataclass(frozen=True, slots=True)
class JudgeNode:
    """Compare a node's readings with those of its peers. Answered by NodeJudged."""

    node: str
    round: int
    readings: tuple[NodeReading, ...]
    load: float
    peers: tuple[PeerReadings, ...] = ()


@dataclass(frozen=True, slots=True)
class BadPart:
    """A part of a node that is broken or slow. `part`: the name of the reading."""

    part: str
    kind: str  # BROKEN or SLOW
    confidence: float  # 0 to 1: that the node is to blame
    reason: str


@dataclass(frozen=True, slots=True)
class NodeJudged:
    """The answer to JudgeNode, by the names of readings.

    `fine`: those that are as good as the peers'. `sound`: those that have a number, and are not broken."""

    node: str
    round: int
    bad: tuple[BadPart, ...] = ()
    fine: tuple[str, ...] = ()
    sound: tuple[str, ...] = ()


SIGNS_MAX, SIGN_TEXT_MAX = 128, 80
"""How many signs a node tells at most, and how long their words and those of what is not known may be. The
agent keeps to it, and the coordinator to that."""


@dataclass(frozen=True, slots=True)
class DeviceSign:
    """One thing that a node's sensors show of a device, which may fail. What a code means is said where it is
    weighed (`controlplane.analysis.live.detectors.sign_weights`)."""

    device: str
    code: str
    value: float


@dataclass(frozen=True, slots=True)
class NodeSensed:
    """All signs that a node's sensors show now, for diagnosis alone: the core never sees it.

    Sent when it changes, and first on each stream: so a leader that has missed one gets the next.
    `unknown`: what bears on its devices and cannot be read there, in words."""

    node: str
    incarnation: int
    signs: tuple[DeviceSign, ...] = ()
    unknown: tuple[str, ...] = ()
