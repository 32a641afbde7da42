"""Declare the settings of very large clusters."""

from __future__ import annotations

from dataclasses import dataclass

from controlplane.setting import setting


@dataclass(frozen=True)  # no slots: two bases with slots cannot be combined
class ScaleSettings:
    """What changes with the number of nodes."""

    relay_beats_from: int = setting(
        2000,
        "from this many nodes on, agents send heartbeats through one another, 128 nodes through each of those "
        "that pass them on, which spares the leader most of its work; 0: never",
        minimum=0,
    )
