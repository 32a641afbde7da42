"""Name nodes whose agents beat, while reports about the steps of their ranks have stopped.

Such a node trains on, unseen: nothing says whether its ranks are slow. The other nodes of the job report
meanwhile, so neither the job nor the coordinator stands still."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.analysis.live import policy
from controlplane.core.state.findings import Effort, Finding, Level, Recommendation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from controlplane.analysis.live.readings import NodeSigns
    from controlplane.analysis.live.situation import LiveSituation


def telemetry_silent(s: LiveSituation) -> Iterator[Finding]:
    """Nodes that have been silent for long, the longest first."""
    silent = [each for each in s.memory.nodes if is_silent(each)]
    for each in sorted(silent, key=lambda signs: (-signs.silent_s, signs.node))[: policy.NAMED_MAX]:
        yield _finding(each)


def is_silent(signs: NodeSigns) -> bool:
    """Whether a node is silent for so long that it counts."""
    return signs.silent_s >= policy.SILENT_S


def _finding(signs: NodeSigns) -> Finding:
    return Finding(
        "telemetry_silent",
        Level.DEGRADED,
        f"node {signs.node}",
        f"its agent beats, but has reported no steps of its ranks for {signs.silent_s:.0f} s, while other "
        "nodes of the job do: nothing is known of how its ranks train",
        place=(("node", signs.node),),
        confidence=0.9,
        evidence=(("silent_s", signs.silent_s),),
        recommendations=(
            Recommendation(
                f"Look at the log of the agent on {signs.node} and at the load of its host; restart the "
                "agent: its ranks train on meanwhile.",
                None,
                Effort.LOW,
            ),
        ),
    )
