"""What to do about findings of the cluster's health."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.core import health
from controlplane.core.checkpoint.durability import DurabilityProblem
from controlplane.core.health import HealthFacts, assess
from controlplane.core.records.diagnosis import OpenFinding
from controlplane.core.records.node_checks import BROKEN, SLOW, BadPart
from controlplane.core.records.stores import Unread
from controlplane.core.records.timing import CoreSettings
from controlplane.core.remedies import REMEDIES

if TYPE_CHECKING:
    from controlplane.core.state.findings import Finding

OURS = [kind for kind in health.JOB_KINDS if kind not in health.RULES]
EVERYTHING = HealthFacts(
    nodes=3,
    lost=("n1", "n2"),
    quarantined=(("n1", "why"),),
    held=(("n1", "why"),),
    devices=(("n1", "gpu0", "why"),),
    guard="why",
    dcs="why",
    parked=(("j", "why"),),
    spareless=(("j", "why"),),
    unstarted=(("j", "why"),),
    undecided=(("j", "why"),),
    unkept=tuple(("j", DurabilityProblem(kind, "why")) for kind in OURS),
    incidents=1000,
    bad_parts=tuple(("n1", BadPart("cpu", kind, 1.0, "why")) for kind in (BROKEN, SLOW)),
    unchecked=(("n1", "why"),),
    strays=(("n1", "why"),),
    unreplaced=(("n1", "why"),),
    unread=(Unread("key", "why", "j"),),
    diagnosed=(("j", OpenFinding("slow_node", "degraded", "node n1", "why", node="n1")),),
)


def test_each_kind_of_rule_says_what_to_do() -> None:
    def broken(_facts: HealthFacts, _settings: CoreSettings) -> list[Finding]:
        raise KeyError("a")

    rules = {**health.RULES, "broken": broken}
    found = assess(EVERYTHING, CoreSettings(), rules=rules)
    assert {each.rule for each in found if each.rule} == set(health.RULES)  # each rule has found something
    ours = [each for each in found if each.rule != "diagnosis"]
    assert {each.kind for each in ours} == set(REMEDIES)
    assert all(each.recommendation == REMEDIES[each.kind] for each in ours)


def test_findings_about_nodes_name_them() -> None:
    found = assess(EVERYTHING, CoreSettings())
    nodes = {each.kind for each in found if ("node", "n1") in each.place}
    expected = {"nodes_lost", "node_quarantined", "node_held", "device_unhealthy", BROKEN, SLOW}
    assert nodes == expected | {"unknown_job", "node_unchecked", "node_unreplaced", "slow_node"}
