"""Name nodes that may fail next, by weights of what is known of them. A weight is no probability."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from controlplane.analysis.live import policy
from controlplane.analysis.live.detectors.sign_weights import unweighed, weighed
from controlplane.analysis.live.detectors.silences import is_silent
from controlplane.core.state.findings import Effort, Finding, Level, Recommendation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from controlplane.analysis.live.readings import NodeSigns
    from controlplane.analysis.live.situation import LiveSituation

ADVICE_MAX = 3
"""Of so many signs it is said what to do about each."""


def nodes_at_risk(s: LiveSituation) -> Iterator[Finding]:
    """Nodes of the job whose risk has reached the limit, the highest risks first."""
    found = [(risk(each), each) for each in s.memory.nodes]
    above = [(value, each) for value, each in found if value >= policy.RISK_LIMIT]
    for value, each in sorted(above, key=lambda pair: (-pair[0], pair[1].node))[: policy.NAMED_MAX]:
        yield _finding(value, each)


def risk(signs: NodeSigns) -> float:
    """The weights of a node's signs as one number from 0 to 1."""
    return 1.0 - math.prod(1.0 - weight for weight, _ in _weights(signs))


def _weights(signs: NodeSigns) -> list[tuple[float, str]]:
    """Each weight with its reason, in words."""
    found = []
    if signs.score_ratio > 0:
        share = min(1.0, signs.score_ratio)
        words = f"its failures weigh {signs.score_ratio:.0%} of what quarantines a node ({signs.failures})"
        found.append((policy.RISK_FAILURES * share, words))
    if signs.bad_devices:
        found.append((policy.RISK_DEVICE, f"unhealthy devices: {', '.join(signs.bad_devices)}"))
    if signs.held:
        found.append((policy.RISK_HELD, f"it takes no new ranks: {signs.held}"))
    if is_silent(signs):
        words = f"its agent beats, and has reported no steps for {signs.silent_s:.0f} s"
        found.append((policy.RISK_SILENT, words))
    return found + [(each.weight, each.words) for each in weighed(signs.devices)]


def _not_known(signs: NodeSigns) -> str:
    """What would say more, and is not known of this node; "": nothing."""
    codes = ", ".join(unweighed(signs.devices))
    newer = f"what signs of a newer agent weigh ({codes})" if codes else ""
    return "; ".join(filter(None, (signs.not_known, newer)))


def _finding(value: float, signs: NodeSigns) -> Finding:
    reasons = "; ".join(words for _, words in _weights(signs))
    shown, unknown = weighed(signs.devices), _not_known(signs)
    more = f"; not known: {unknown}" if unknown else ""
    return Finding(
        "node_at_risk",
        Level.DEGRADED,
        f"node {signs.node}",
        f"it may fail next (risk {value:.2f} by weights, no probability): {reasons}{more}",
        place=(("node", signs.node),),
        confidence=value,
        evidence=(
            ("risk_ratio", value),
            ("failure_score_ratio", signs.score_ratio),
            ("bad_devices_count", float(len(signs.bad_devices))),
            ("device_signs", "; ".join(each.words for each in shown)),
            ("not_known", unknown),
        ),
        recommendations=(
            Recommendation(
                f"Look at its logs and devices; if they show a fault, drain it at a good moment: "
                f"`holdfast drain {signs.node}`.",
                None,
                Effort.LOW,
            ),
            *(Recommendation(f"{each.advice}.", None, Effort.MEDIUM) for each in shown[:ADVICE_MAX]),
        ),
    )
