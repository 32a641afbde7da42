"""Declare the settings of very large clusters."""

from __future__ import annotations

from dataclasses import dataclass

from controlplane.setting import setting


@dataclass(frozen=True)  # no slots: two bases with slots cannot be combined
class ScaleSettings:
    """What changes with the number of nodes."""

    relay_beats_from: int = setting(
        2000,
        "from this many nodes on, heartbeats of 128 nodes at a time go through the agent of one of them, "
        "which spares the leader most of its work; 0: never",
        minimum=0,
    )
