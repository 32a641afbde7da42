"""Findings open, rise and are resolved once, whatever detectors report from window to window."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from controlplane.analysis.findings_ledger import policy
from controlplane.analysis.findings_ledger.entries import LedgerRowError
from controlplane.analysis.findings_ledger.ledger import ChangeKind, FindingLedger
from controlplane.core.state.findings import Effort, Finding, Level, Recommendation

if TYPE_CHECKING:
    from collections.abc import Sequence

SLOW = Finding(
    "slow_rank", Level.DEGRADED, "rank 3 (n0, device 3)", "it is slow", place=(("node", "n0"), ("rank", 3)),
    evidence=(("own_ratio", 1.3),), recommendations=(Recommendation("drain it", 0.2, Effort.LOW),),
    first_step=70,
)  # fmt: skip
GRAVE = Finding("slow_rank", Level.CRITICAL, SLOW.subject, "it is very slow", place=SLOW.place)
OTHER = Finding("slow_data", Level.DEGRADED, "", "all wait for samples")


def told(
    ledger: FindingLedger, windows: Sequence[Sequence[Finding]], begin: int = 0, **more: Any
) -> list[str]:
    """What is announced, as "window kind"."""
    return [
        f"{begin + at} {change.kind}"
        for at, found in enumerate(windows)
        for change in ledger.observe(10.0 * (begin + at), "j", found, **more)
    ]


def test_a_warning_opens_after_four_of_five_windows_and_closes_after_many_without() -> None:
    ledger = FindingLedger()
    windows = [[SLOW], [], [SLOW], [SLOW], [SLOW], *[[]] * policy.CLOSING, []]
    assert told(ledger, windows) == ["4 opened", f"{4 + policy.CLOSING} resolved"]
    (over,) = ledger.resolved("j")
    assert (over.opened_s, over.last_seen_s, over.resolved_s) == (40.0, 40.0, 10.0 * (4 + policy.CLOSING))
    assert (over.windows, over.finding.first_step, over.finding.job) == (4, 70, "j")
    assert ledger.open("j") == ()


def test_what_is_critical_opens_sooner_and_noise_never() -> None:
    assert told(FindingLedger(), [[GRAVE], [GRAVE]]) == ["1 opened"]
    assert told(FindingLedger(), [[SLOW], [], [], []] * 10) == []


def test_the_level_rises_once_and_never_falls() -> None:
    ledger = FindingLedger()
    windows = [[SLOW]] * 4 + [[GRAVE], [SLOW], [GRAVE], [SLOW], [GRAVE], [GRAVE]] + [[SLOW]] * 5
    assert told(ledger, windows) == ["3 opened", "6 changed"]
    (entry,) = ledger.open("j")
    assert entry.finding.level is Level.CRITICAL and entry.finding.reason == SLOW.reason


def test_nobody_is_told_of_a_muted_finding_until_the_mute_ends() -> None:
    ledger = FindingLedger()
    told(ledger, [[SLOW]] * 4)
    entry = ledger.mute("j", SLOW.kind, SLOW.subject, until_s=100.0, by="ada")
    assert (entry.muted_until_s, entry.muted_by, entry.muted(99.0), entry.muted(100.0)) == (
        100.0,
        "ada",
        True,
        False,
    )
    assert told(ledger, [[GRAVE]] * 6, 4) == []
    assert ledger.open("j")[0].finding.level is Level.CRITICAL
    assert told(FindingLedger.of(ledger.rows()), [[GRAVE]] * 3, 10) == ["10 changed"]
    with pytest.raises(KeyError, match="no open finding slow_data of the job"):
        ledger.mute("j", "slow_data", "", until_s=100.0, by="ada")


def test_another_leader_neither_announces_again_nor_resolves_too_soon() -> None:
    first = FindingLedger()
    told(first, [[SLOW, OTHER]] * 4)
    first.mute("j", OTHER.kind, "", until_s=1e9, by="ada")
    rows = json.loads(json.dumps(first.rows()))
    second = FindingLedger.of(rows)
    assert second.open("j") == first.open("j") and second.rows() == first.rows()
    assert told(second, [[]] * (policy.CLOSING - 1), 50) == []
    assert told(second, [[SLOW, OTHER]], 60) == []
    assert told(second, [[OTHER]] * policy.CLOSING, 61) == [f"{60 + policy.CLOSING} resolved"]
    assert [each.finding.kind for each in second.open("j")] == ["slow_data"]
    assert FindingLedger.of(second.rows()).resolved("j") == second.resolved("j")


def test_what_cannot_be_judged_is_not_over() -> None:
    ledger = FindingLedger()
    told(ledger, [[SLOW]] * 4)
    assert told(ledger, [[]] * 20, 4, unjudged={3}) == []
    assert told(ledger, [[]] * policy.CLOSING, 24, unjudged={4}) == [f"{23 + policy.CLOSING} resolved"]


def test_what_a_failed_detector_looks_for_is_not_over() -> None:
    ledger = FindingLedger()
    told(ledger, [[SLOW, OTHER]] * 4)
    assert told(ledger, [[OTHER]] * 20, 4, unseen={SLOW.kind}) == []
    assert told(ledger, [[OTHER]] * policy.CLOSING, 24, unseen={OTHER.kind}) == [
        f"{23 + policy.CLOSING} resolved"
    ]


def test_findings_are_bounded_and_the_rest_is_counted() -> None:
    many = [Finding("slow_rank", Level.DEGRADED, f"rank {each}", "") for each in range(policy.OPEN_MAX + 7)]
    ledger = FindingLedger()
    told(ledger, [[*many, GRAVE]] * 5)
    assert len(ledger.open("j")) == policy.OPEN_MAX and ledger.left_out("j") == 8
    assert ledger.open("j")[0].finding.level is Level.CRITICAL
    told(ledger, [[]] * policy.CLOSING, 5)
    assert ledger.open("j") == () and ledger.left_out("j") == 0
    assert len(ledger.resolved("j")) == policy.RESOLVED_MAX
    ledger.forget("j")
    assert ledger.rows() == []


def test_jobs_are_apart_and_the_order_of_findings_does_not_matter() -> None:
    ledger = FindingLedger()
    for at in range(4):
        ledger.observe(at, "a", [SLOW, OTHER])
        ledger.observe(at, "b", [OTHER, SLOW])
    same = [[each.identity for each in ledger.open(job)] for job in ("a", "b")]
    assert same[0] == same[1] and len(same[0]) == 2
    assert {each["job"] for each in ledger.rows()} == {"a", "b"} and len(ledger.rows("a")) == 2


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"level": "healthy"}, "which no finding has"),
        ({"level": "odd"}, "odd"),
        ({"opened_s": float("nan")}, "opened_s is nan"),
        ({"windows": True}, "windows is True"),
        ({"kind": 3}, "kind is 3"),
        ({"announced": 1}, "announced is 1"),
        ({"place": []}, "place is no mapping"),
        ({"evidence": {"a": []}}, "evidence.a is list"),
        ({"recommendations": [{}]}, "action"),
        ({"recommendations": 1}, "recommendations is no list"),
        ({"more": 1}, "unknown: more"),
    ],
)  # fmt: skip
def test_a_bad_row_is_refused_by_name(changed: dict[str, Any], reason: str) -> None:
    ledger = FindingLedger()
    told(ledger, [[SLOW]] * 4)
    (row,) = ledger.rows()
    with pytest.raises(LedgerRowError, match=reason):
        FindingLedger.of([row | changed])
    with pytest.raises(LedgerRowError, match="missing or unknown: reason"):
        FindingLedger.of([{name: value for name, value in row.items() if name != "reason"}])
    with pytest.raises(LedgerRowError, match="not a mapping"):
        FindingLedger.of([7])
    with pytest.raises(LedgerRowError, match="two rows are open"):
        FindingLedger.of([row, row])


def test_what_comes_back_after_a_break_has_its_own_onset() -> None:
    ledger = FindingLedger()
    later = replace(SLOW, first_step=200)
    told(ledger, [[SLOW]] * 5 + [[]] * (policy.CLOSING - 1) + [[later]])
    (entry,) = ledger.open("j")
    assert entry.finding.first_step == 200


def test_an_onset_that_is_no_longer_remembered_stays() -> None:
    ledger = FindingLedger()
    told(ledger, [[SLOW]] * 5 + [[replace(SLOW, first_step=None)], [replace(SLOW, first_step=300)]])
    (entry,) = ledger.open("j")
    assert entry.finding.first_step == 70


def test_what_is_critical_no_more_becomes_a_warning_again() -> None:
    ledger = FindingLedger()
    windows = [[GRAVE]] * 4 + [[]] * 3 + [[SLOW]] * (policy.CALMING + 2)
    assert told(ledger, windows) == ["1 opened", f"{7 + policy.CALMING - 1} changed"]
    (entry,) = ledger.open("j")
    assert entry.finding.level is Level.DEGRADED
    assert told(ledger, [[GRAVE], [GRAVE]], begin=40) == ["41 changed"]


def test_what_has_been_critical_all_the_time_is_lasting() -> None:
    ledger, identity = FindingLedger(), (SLOW.kind, SLOW.subject)
    told(ledger, [[GRAVE]] * (policy.ACTING - 1))
    assert not ledger.lasting("j", identity)
    told(ledger, [[GRAVE]], begin=policy.ACTING)
    assert ledger.lasting("j", identity) and not ledger.lasting("other", identity)
    told(ledger, [[SLOW]], begin=policy.ACTING + 1)
    assert not ledger.lasting("j", identity)
    told(ledger, [[GRAVE]] * (policy.ACTING - 1) + [[]] + [[GRAVE]], begin=policy.ACTING + 2)
    assert not ledger.lasting("j", identity)


def test_what_may_happen_to_a_node_lasts_without_being_critical() -> None:
    ledger, risk = FindingLedger(), Finding("node_at_risk", Level.DEGRADED, "node n0", "why")
    told(ledger, [[risk]] * (policy.ACTING - 1))
    assert not ledger.lasting("j", ("node_at_risk", "node n0"))
    told(ledger, [[risk]], begin=policy.ACTING)
    assert ledger.lasting("j", ("node_at_risk", "node n0"))
    told(ledger, [[]], begin=policy.ACTING + 1)
    assert not ledger.lasting("j", ("node_at_risk", "node n0"))


def test_a_node_of_which_no_rank_could_be_judged_keeps_its_findings() -> None:
    ledger = FindingLedger()
    node = Finding("slow_node", Level.DEGRADED, "node n0", "slow", place=(("node", "n0"), ("rank", None)))
    told(ledger, [[node]] * 4)
    assert told(ledger, [[]] * (policy.CLOSING + 2), begin=4, blind=("n0",)) == []
    assert told(ledger, [[]] * policy.CLOSING, begin=20, blind=("n1",)) == [f"{19 + policy.CLOSING} resolved"]


def test_what_rests_on_one_event_opens_at_once_and_is_resolved_like_all_others() -> None:
    ledger, hung = FindingLedger(), Finding("not_arrived", Level.CRITICAL, "rank 1", "why")
    (opened,) = ledger.report(10.0, "j", [hung])
    assert (opened.kind, opened.entry.opened_s, opened.entry.finding.job) == (ChangeKind.OPENED, 10.0, "j")
    assert ledger.report(11.0, "j", [hung]) == (), "it is open already"
    assert (ledger.open("j")[0].windows, ledger.open("j")[0].last_seen_s) == (2, 11.0)
    told = [ledger.observe(20.0 + window, "j", []) for window in range(policy.CLOSING)]
    assert [change.kind for changes in told for change in changes] == [ChangeKind.RESOLVED]
    assert ledger.open("j") == ()


def test_no_more_findings_are_reported_than_are_followed() -> None:
    ledger = FindingLedger()
    many = [Finding("not_arrived", Level.CRITICAL, f"rank {n}", "why") for n in range(policy.OPEN_MAX + 3)]
    assert len(ledger.report(1.0, "j", many)) == policy.OPEN_MAX
    assert ledger.left_out("j") == 3
