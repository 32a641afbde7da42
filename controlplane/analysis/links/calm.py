"""Say whether a probe is a measurement of the link: possible numbers, and both ends calm.

A healthy link looks slow when an agent at one of its ends waits for a CPU. What the kernels of both ends
counted while the newest block was on its way bounds that: a block of which an end waited for a fifth is at
most a quarter late by it. What was not counted speaks for nobody's calm."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING

from controlplane.analysis.links import policy
from controlplane.analysis.links.unknown import Doubt, Unknown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from controlplane.core.records.diagnosis import LinkProbe, ProbeEnd


def doubt(node: str, probe: LinkProbe) -> Doubt | None:
    """Why the probe of a node is no measurement; None: it is one."""
    if text := _failed(probe):
        return Doubt(Unknown.NOT_MEASURED, text)
    blind = [name for name, end in _ends(node, probe) if end is None or not _possible(end)]
    if blind or not (isfinite(probe.block_s) and probe.block_s > 0.0):
        whose = f"node {blind[0]}" if blind else "both nodes"
        return Doubt(
            Unknown.CALM_NOT_KNOWN, f"how long the agent of {whose} waited for a CPU was not counted"
        )
    for name, end in _ends(node, probe):
        if end is not None and (text := _crowded(end, probe.block_s)):
            return Doubt(Unknown.CROWDED, f"{text} on node {name}")
    return None


def occupied(probe: LinkProbe) -> float:
    """The share of the newest block in which the busier one of both agents ran on a CPU or waited for one."""
    spent_s = [end.waited_s + end.ran_s for end in (probe.here, probe.there) if end is not None]
    return max(spent_s) / probe.block_s


def _ends(node: str, probe: LinkProbe) -> Iterator[tuple[str, ProbeEnd | None]]:
    yield node, probe.here
    yield probe.node, probe.there


def _failed(probe: LinkProbe) -> str:
    if probe.reason:
        return probe.reason
    if not (isfinite(probe.rtt_s) and 0.0 < probe.rtt_s <= policy.RTT_MAX_S):
        return f"its round trip of {probe.rtt_s:g} s is no measurement"
    if not policy.BYTES_PER_S_LEAST <= probe.bytes_per_s <= policy.BYTES_PER_S_MAX:
        return f"its {probe.bytes_per_s:g} bytes/s are no measurement"
    return ""


def _possible(end: ProbeEnd) -> bool:
    counts = (end.waited_s, end.ran_s, end.rtt_waited_s, end.pressure or 0.0)
    return all(isfinite(each) and each >= 0.0 for each in counts)


def _crowded(end: ProbeEnd, block_s: float) -> str:
    """What shows that a node was busy; "": nothing does."""
    waited = end.waited_s / block_s
    if waited > policy.WAITED_MAX:
        return f"the agent waited for a CPU for {waited:.0%} of a block's time"
    if end.rtt_waited_s > policy.RTT_WAITED_S_MAX:
        return f"the agent waited for a CPU for {end.rtt_waited_s * 1e3:.1f} ms of a round trip"
    if end.pressure is not None and end.pressure > policy.PRESSURE_MAX:
        return f"processes waited for a CPU for {end.pressure:.0%} of a block's time"
    return ""
