"""A slow node is swapped for a spare one where administrators let it, and nothing stands against it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from controlplane.core.elasticity import slow_policy
from controlplane.core.records import events as ev
from controlplane.core.records.diagnosis import OpenFinding
from controlplane.core.records.timing import CoreSettings
from tests.core.elasticity.test_elastic import notes
from tests.core.test_cluster import running

if TYPE_CHECKING:
    from tests.transcripts.language import Play

SLOW = OpenFinding(
    "slow_rank", "critical", "rank 1 (b, device 0)", "its own work takes 2.1 times as long", "b", lasting=True
)
ACT = CoreSettings(slow_rank_policy="act", swap_every_s=100.0)
SUBMIT = "submit nodes=2 most=2 nproc=1"


def diagnose(stage: Play, *findings: OpenFinding) -> list[str]:
    """The notes that follow when these findings are open, without those about health."""
    stage.lines = []
    stage.feed(ev.Diagnosed("j", findings))
    found = notes([*stage.lines, *stage.do("live 1")])
    return [line for line in found if not line.startswith("health ")]


def move(stage: Play, member: str) -> None:
    """Have the newcomer and the ranks come to the barrier, and the job train on."""
    stage.do(f"report {member} starting", f"report {member} ready held=-1")
    for each in stage.cluster.state.jobs["j"].seated():
        stage.do(f"report {each.name} ready held=9 gen=1 heldgen=1")
    stage.do("live 3", "stored")
    for phase in ("forming gen=2", "running gen=2 step=9 held=9 heldgen=2"):
        stage.do(*(f"report {each.name} {phase}" for each in stage.cluster.state.jobs["j"].seated()))
    stage.do("started", "stored", "live 3")


def seats(stage: Play) -> list[str]:
    return [seat.node for seat in stage.etcd.generations["j"].seats]


def test_a_slow_node_is_swapped_for_the_spare_one_and_the_journal_says_why() -> None:
    stage = running(SUBMIT, "abc", ACT)
    lines = diagnose(stage, SLOW)
    assert lines[0].startswith(f"draining b: by diagnosis: slow_rank, {SLOW.subject}: {SLOW.reason}")
    (newcomer,) = [name for name, node in stage.where.items() if node == "c"]
    move(stage, newcomer)
    assert seats(stage) == ["a", "c"]
    assert stage.cluster.state.nodes["b"].cordoned.startswith("drained: by diagnosis: slow_rank")
    again = replace(SLOW, subject="rank 0 (a, device 0)", node="a")
    assert "reported only, the last swap is too short a time ago" in diagnose(stage, again)[0]


def test_by_default_findings_are_reported_only() -> None:
    stage = running(SUBMIT, "abc")
    assert not [line for line in diagnose(stage, SLOW) if "drain" in line or "swap" in line]
    assert stage.cluster.state.nodes["b"].drain is None


@pytest.mark.parametrize(
    "finding",
    [
        replace(SLOW, level="degraded"),
        replace(SLOW, lasting=False),
        replace(SLOW, node=""),
        replace(SLOW, node="c"),  # it has no ranks there
        replace(SLOW, kind="crowded_cpu"),
        replace(SLOW, kind="heavy_work"),
    ],
)
def test_what_no_swap_would_mend_begins_none(finding: OpenFinding) -> None:
    stage = running(SUBMIT, "abc", ACT)
    assert not [line for line in diagnose(stage, finding) if "drain" in line or "swap" in line]


@pytest.mark.parametrize(
    ("nodes", "commands", "findings", "why"),
    [
        ("ab", (), (SLOW,), "there is no healthy spare node"),
        ("abc", ("cordon c",), (SLOW,), "there is no healthy spare node"),
        ("abc", (), (SLOW, replace(SLOW, kind="slow_node", node="c")), "there is no healthy spare node"),
        ("abc", (), (replace(SLOW, muted=True),), "it is muted"),
        ("abc", ("cordon b",), (SLOW,), "its node is cordoned"),
    ],
)
def test_what_stands_against_a_swap_is_noted_once(
    nodes: str, commands: tuple[str, ...], findings: tuple[OpenFinding, ...], why: str
) -> None:
    stage = running(SUBMIT, nodes, ACT)
    stage.do(*commands)
    lines = [line for line in diagnose(stage, *findings) if line.startswith("swap_refused")]
    assert lines == [f"swap_refused b: job j: slow_rank, {SLOW.subject}: reported only, {why}"]
    assert not [line for line in notes(stage.do("live 5")) if line.startswith("swap_refused")]
    assert stage.cluster.state.nodes["b"].drain is None


def test_a_spare_node_that_comes_later_is_used() -> None:
    stage = running(SUBMIT, "ab", ACT)
    assert diagnose(stage, SLOW)[0].startswith("swap_refused b")
    assert notes(stage.do("hello c", "live 1"))[-1].startswith("draining b: by diagnosis")


def test_nothing_is_swapped_while_a_job_recovers() -> None:
    stage = running(SUBMIT, "abc", ACT)
    stage.do("report j.1000000 exited cause=signaled signal=9")
    assert not [line for line in diagnose(stage, SLOW) if line.startswith("draining")]


def test_a_spare_node_that_is_lost_meanwhile_shrinks_nobody_and_the_swap_is_given_up() -> None:
    stage = running("submit nodes=1 most=2 nproc=1", "abc", ACT)
    assert diagnose(stage, SLOW)[0].startswith("draining b")
    stage.do("lose c")
    lines = stage.do("live 595")
    assert not [line for line in lines if line.startswith(("Judged", "Kill"))]
    words = "uncordoned b: no spare node has taken its ranks in time: they stay"
    assert words in notes(stage.do("live 10"))
    assert stage.cluster.state.nodes["b"].cordoned == "" and seats(stage) == ["a", "b"]


RISK = OpenFinding("node_at_risk", "degraded", "node b", "it may fail next (risk 0.60)", "b", lasting=True)
RISK_ACT = CoreSettings(node_risk_policy="act", swap_every_s=100.0)


def test_a_node_that_may_fail_next_is_left_ahead_of_time_and_no_more_often_than_others() -> None:
    stage = running(SUBMIT, "abcd", RISK_ACT)
    lines = diagnose(stage, RISK)
    assert lines[0].startswith(f"draining b: by diagnosis: node_at_risk, node b: {RISK.reason}")
    (newcomer,) = [name for name, node in stage.where.items() if node == "c"]
    move(stage, newcomer)
    assert seats(stage) == ["a", "c"]
    again = replace(RISK, subject="node a", node="a")
    assert "reported only, the last swap is too short a time ago" in diagnose(stage, again)[0]


@pytest.mark.parametrize(
    ("settings", "finding"),
    [
        (CoreSettings(), RISK),
        (ACT, RISK),  # of slow nodes only
        (RISK_ACT, SLOW),  # and the other way round
        (CoreSettings(node_risk_policy="report"), RISK),
        (RISK_ACT, replace(RISK, lasting=False)),
    ],
)
def test_each_policy_is_for_its_own_findings(settings: CoreSettings, finding: OpenFinding) -> None:
    stage = running(SUBMIT, "abc", settings)
    assert not [line for line in diagnose(stage, finding) if "drain" in line or "swap" in line]


def test_a_node_that_may_fail_stays_while_the_spare_one_may_fail_too() -> None:
    stage = running(SUBMIT, "abc", RISK_ACT)
    (line,) = diagnose(stage, RISK, replace(RISK, subject="node c", node="c"))
    assert line.endswith("node_at_risk, node b: reported only, there is no healthy spare node")


def test_people_may_turn_a_swap_into_a_drain_of_their_own() -> None:
    stage = running("submit nodes=1 most=2 nproc=1", "abc", ACT)
    diagnose(stage, SLOW)
    lines = stage.do("lose c", "drain b")
    assert [line for line in lines if line.startswith("Judged") and " shrink " in line]


def test_the_next_leader_completes_a_swap_and_begins_no_other_at_once() -> None:
    stage = running(SUBMIT, "abc", ACT)
    diagnose(stage, SLOW)
    stage.do("stored", "crash", "elect", "hello a", "hello b", "hello c", "live 3")
    drain = stage.cluster.state.nodes["b"].drain
    assert drain is not None and drain.reason.startswith("by diagnosis: ")
    assert stage.cluster.state.jobs["j"].changes.swap_at > stage.now + 90.0


def test_every_kind_of_finding_about_a_running_job_has_its_response() -> None:
    root = Path(__file__).parents[3]
    sources = [*(root / "controlplane/analysis/live/detectors").rglob("*.py")]
    sources += [*(root / "controlplane/analysis/links").glob("*.py")]
    text = "".join(path.read_text() for path in sources)
    made = set(re.findall(r'(?:Finding|_verdict|SlowCause|_Wait)\(\s*"(\w+)"', text))
    made |= set(re.findall(r'"(slow_(?:rank|node|domain|replica)|overfull_\w*stage)"', text))
    assert len(made) > 15 and made <= set(slow_policy.RESPONSES)
    page = (root / "docs/diagnosis.md").read_text().partition("## Live jobs")[2].partition("\n### ")[0]
    rows = re.findall(r"^\| (`.*?) \|", page, re.M)
    assert {kind for row in rows for kind in re.findall(r"`(\w+)`", row)} <= set(slow_policy.RESPONSES)
