"""Define what a leader remembers of the checks of one node."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from controlplane.core.records.node_checks import BadPart
    from holdfast.node_check.reading import NodeReading


@dataclass(slots=True)
class NodeCheck:
    """The check of one node. It is wanted, then asked for, then judged; times in s."""

    wanted: str = ""  # why the node is to be checked before it takes ranks; "": it is not
    anew: bool = False  # an answer from before does not do
    give_up_at: float = 0.0  # the node is used unchecked from then on
    round: int = 0  # of the newest order; 0: none was sent
    asked: bool = False  # the order is out, and neither answered nor given up
    again_at: float = 0.0  # the order is repeated then
    judging: bool = False  # its readings are given away to be judged
    readings: tuple[NodeReading, ...] = ()  # its newest answer
    load: float = 0.0
    bad: tuple[BadPart, ...] = ()  # what was found, and not disproved since. In etcd, for the next leader
    recheck_at: float = 0.0  # a node that takes no ranks because of what was found is checked again then
    unchecked: str = ""  # why its newest check brought nothing; "": it did, or none was made


@dataclass(slots=True)
class ChecksUnderWay:
    """The checks of all nodes: how many orders there were, and which nodes are still to answer or be
    judged."""

    rounds: int = 0
    out: dict[str, None] = field(default_factory=dict)
    unjudged: dict[str, None] = field(default_factory=dict)
