"""The kinds of operations that a timeline may hold, and how each of them behaves in a replay."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto


class Meets(Enum):
    """Whom an operation waits for before it can go on."""

    NOBODY = auto()
    PEER_STAGE = auto()  # its sender or receiver in the same pipeline
    REPLICAS = auto()  # the same stage of all data-parallel ranks
    END_STAGES = auto()  # the first and the last stage of the same pipeline
    EVERYBODY = auto()


@dataclass(frozen=True, slots=True)
class Behaviour:
    """How a replay treats one kind of operation.

    `transfers`: it moves data. Then its ideal is a median, since single transfers take very long; the ideal
    of other operations is a mean."""

    meets: Meets = Meets.NOBODY
    transfers: bool = False


FORWARD, BACKWARD = "forward-compute", "backward-compute"
COMPUTES = (FORWARD, BACKWARD)
SENDS = {FORWARD: "forward-send", BACKWARD: "backward-send"}
RECEIVES = {FORWARD: "forward-recv", BACKWARD: "backward-recv"}
GATHER, SCATTER = "params-all-gather", "grads-reduce-scatter"
SEPARATE = "separate-grads-all-reduce"
EMBEDDING, CLIP = "embedding-grads-all-reduce", "optimizer-clip-main-grad"

BEHAVIOURS = {
    FORWARD: Behaviour(),
    BACKWARD: Behaviour(),
    "forward-send": Behaviour(Meets.PEER_STAGE, transfers=True),
    "forward-recv": Behaviour(Meets.PEER_STAGE, transfers=True),
    "backward-send": Behaviour(Meets.PEER_STAGE, transfers=True),
    "backward-recv": Behaviour(Meets.PEER_STAGE, transfers=True),
    GATHER: Behaviour(Meets.REPLICAS, transfers=True),
    SCATTER: Behaviour(Meets.REPLICAS, transfers=True),
    SEPARATE: Behaviour(Meets.REPLICAS, transfers=True),
    "layernorm-grads-all-reduce": Behaviour(transfers=True),  # inside a tensor group, which is one record
    EMBEDDING: Behaviour(Meets.END_STAGES, transfers=True),
    CLIP: Behaviour(Meets.EVERYBODY, transfers=True),
    "optimizer": Behaviour(),
    "gc": Behaviour(),
}
"""Every kind of operation that a timeline may name."""

TAIL = ("gc", "layernorm-grads-all-reduce", EMBEDDING, SCATTER, SEPARATE, CLIP, "optimizer")
"""What comes after the last compute of a step, in this order; what a job does not do is left out."""
