"""Propose what stands ready: spare nodes, by how long the job waited for nodes, and warm processes, by how
long it waited for new ones to start."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from controlplane.analysis.proposals import policy
from controlplane.analysis.proposals.measured import NotMeasured, number, section
from controlplane.analysis.proposals.proposal import Proposal, SettingChange, Withheld, rate_known, unmeasured

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from controlplane.analysis.proposals.measured import MeasuredTime

NODES, PROCESSES = "spares", "warm spares"
RESPAWN = "respawn"
"""The strategy that starts a new process in the place of a dead one, while the others wait for it."""


def nodes(time: MeasuredTime) -> Iterator[Proposal | Withheld]:
    """A spare node, by how long the job waited for nodes after it had begun.

    What it waited before its first start is a queue, which a spare node does not shorten. A wait in the
    course of a recovery is counted as the failure's cause, and is not known."""
    waited_s, share = time.waited_again_s, time.waited_again_s / time.total_s
    if waited_s <= 0:
        yield unmeasured(
            NODES,
            f"no wait for nodes after the first start is in the account ({time.lost('waiting'):.0f} s before "
            "it, or not told apart); a wait within a recovery counts as the failure's cause",
        )
    elif share < policy.GAIN_LEAST:
        yield Withheld(NODES, f"after its first start the job waited for nodes for {share:.1%} of its time")
    else:
        yield Proposal(
            NODES,
            "Keep a node spare, so that one that is lost is replaced at once.",
            share,
            at_most=True,
            confidence=time.known_ratio,
            reason=(
                f"after its first start the job waited for nodes for {waited_s:.0f} s of "
                f"{time.total_s:.0f} s; how long it did so within recoveries is not known"
            ),
            evidence=(("waiting_s", waited_s), ("total_s", time.total_s)),
        )


def processes(report: Mapping[str, Any]) -> Iterator[Proposal | Withheld]:
    """Warm spare processes, by how long recoveries took until a new process stood in a dead one's place."""
    try:
        spares = number(section(report, "settings"), "spares")
        row = section(report, "recoveries").get("by_strategy", {}).get(RESPAWN)
        seen_s = number(section(report, "listening"), "seen_s")
        started_s, count = (number(row, "fence_s"), int(number(row, "count"))) if row else (0.0, 0)
    except NotMeasured as missing:
        yield unmeasured(PROCESSES, str(missing))
        return
    if not count:
        yield unmeasured(PROCESSES, "no recovery of this leader term waited for the start of a new process")
    elif count < policy.SILENCES_LEAST:
        least = policy.SILENCES_LEAST
        yield unmeasured(
            PROCESSES, f"recoveries that waited for a new process: {count} so far, and {least} are needed"
        )
    elif seen_s <= 0 or started_s / seen_s < policy.GAIN_LEAST:
        share = started_s / seen_s if seen_s > 0 else 0.0
        yield Withheld(PROCESSES, f"{count} recoveries waited {share:.1%} of the time for new processes")
    else:
        yield Proposal(
            PROCESSES,
            "Keep one more warm process on each node, which takes the place of a dead one at once.",
            min(started_s / seen_s, 1.0),
            at_most=True,
            confidence=rate_known(count),
            changes=(SettingChange("--spares", f"{spares:.0f}", f"{spares + 1:.0f}"),),
            reason=(
                f"{count} recoveries waited for the start of a process: {started_s:.0f} s in "
                f"{seen_s:.0f} s until all ranks stood ready"
            ),
            evidence=(("started_s", started_s), ("recoveries_count", float(count)), ("seen_s", seen_s)),
        )
