"""Name slow links, from probes that nodes made while the job's communication was suspicious.

Nothing is said while communication is as usual: a link that holds up nobody is no finding. And nothing while
probes show nothing: why communication takes longer is not known then."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.analysis.links.judging import judge
from controlplane.analysis.live import policy
from controlplane.core.state.findings import Effort, Finding, Recommendation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from controlplane.analysis.links.judging import LinkVerdict
    from controlplane.analysis.live.places import Place
    from controlplane.analysis.live.situation import LiveSituation

_NODE = (
    "Look at the network card, cable and switch port of node {0} (speed, errors, retransmissions), and at "
    "what else sends from there; `holdfast drain {0}` moves its ranks elsewhere."
)
_LINK = (
    "Look at the path between {0} and {1}: cables, switch ports, and other traffic on it. Which end is to "
    "blame is not known; other nodes reach both as usual."
)
_ONLY = (
    "Look at the path between {0} and {1}, and at both of their network cards. There is no third node to "
    "compare with."
)
_ALL = "Look at the switches that all nodes share, and at other jobs on them: no node stands out."


def slow_links(s: LiveSituation) -> Iterator[Finding]:
    """Links, nodes' networks, or the whole network, while communication is suspicious."""
    if s.links is None or not s.transfer.suspicion:
        return
    for verdict in judge(s.links).verdicts[: policy.NAMED_MAX]:
        yield _finding(s, verdict, len(s.links.nodes))


def _finding(s: LiveSituation, verdict: LinkVerdict, nodes: int) -> Finding:
    subject, place, action = _who(verdict, nodes)
    excess_s = s.transfer.excess_s
    cost = s.step_s / max(s.step_s - excess_s, 0.1 * s.step_s)
    compared = "before" if verdict.kind == "slow_network" or nodes == 2 else "on a typical link"
    measure = (
        f"a round trip takes {verdict.rtt_s * 1e3:.3g} ms, {verdict.ratio:.1f} times as long as {compared}"
        if verdict.by_rtt
        else f"a probe passes at {verdict.bytes_per_s / 1e6:.3g} MB/s, 1/{verdict.ratio:.2g} of the speed "
        f"{compared}"
    )
    several = f" ({verdict.slow} of {verdict.judged} links)" if verdict.kind != "slow_link" else ""
    way = f", only from {verdict.one_way[0]} to {verdict.one_way[1]}" if verdict.one_way else ""
    costs = (
        f"; communication takes {excess_s:.3g} s per step longer than usual, so a step takes "
        f"{cost:.2f} times as long"
        if excess_s > 0.0
        else "; what that costs is not known: the job was never seen without it"
    )
    return Finding(
        verdict.kind,
        policy.level(verdict.ratio, cost, s.thresholds),
        subject,
        f"{measure}{several}{way}{costs}",
        place=place,
        confidence=verdict.confidence,
        evidence=(
            ("link_ratio", verdict.ratio),
            ("bytes_per_s", verdict.bytes_per_s),
            ("rtt_s", verdict.rtt_s),
            ("slow_links_count", float(verdict.slow)),
            ("links_count", float(verdict.judged)),
            ("transfer_s_per_step", s.transfer.now_s),
            ("excess_s_per_step", excess_s),
            *((("slow_way", f"{verdict.one_way[0]} to {verdict.one_way[1]}"),) if verdict.one_way else ()),
        ),
        recommendations=(Recommendation(action, (1.0 - 1.0 / cost) or None, Effort.MEDIUM),),
    )


def _who(verdict: LinkVerdict, nodes: int) -> tuple[str, Place, str]:
    """Subject, place and action of a verdict. A link blames neither of its ends."""
    if verdict.kind == "slow_node_network":
        (node,) = verdict.nodes
        return f"network of node {node}", (("node", node), ("rank", None)), _NODE.format(node)
    if verdict.kind == "slow_link":
        one, other = verdict.nodes
        place: Place = (("node", None), ("rank", None), ("first_node", one), ("second_node", other))
        return f"link of {one} and {other}", place, (_ONLY if nodes == 2 else _LINK).format(one, other)
    return "", (("node", None), ("rank", None)), _ALL
