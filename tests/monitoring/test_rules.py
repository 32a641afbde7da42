"""Every alert fires when it must, and none in a healthy day or in a normal recovery."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.monitoring.builders import (
    ROOT,
    RULES,
    healthy,
    incidents,
    load,
    needs_promtool,
    promtool,
    spent,
    tried,
)

if TYPE_CHECKING:
    from pathlib import Path

JOB = 'training_job="j"'
RECOVERED = incidents("spare", "recovered")
STORED = f'holdfast_checkpoint_last_success_timestamp_seconds{{{JOB},tier="storage",kind="full"}}'
HOUR = 60

FIRING: dict[str, tuple[dict[str, str], str, dict[str, str]]] = {
    "HoldfastGoodputLow": (
        {
            f"holdfast_productive_seconds_total{{{JOB}}}": "0+30x60",
            f'holdfast_lost_seconds_total{{{JOB},cause="signaled"}}': "0+30x60",
        },
        "30m",
        {"training_job": "j"},
    ),
    "HoldfastTrainingStalled": (
        {f"holdfast_last_progress_timestamp_seconds{{{JOB}}}": "0+60x10 600x60"},
        "40m",
        {"training_job": "j"},
    ),
    "HoldfastRecoveryLoop": ({RECOVERED: "0x20 1 2 3 4 4x40"}, "26m", {"training_job": "j"}),
    "HoldfastRecoverySlow": (
        {RECOVERED: "0x20 1x40", spent("restore"): "0x20 300x40"},
        "25m",
        {"training_job": "j"},
    ),
    "HoldfastRecoveryFailed": (
        {incidents("stop", "failed"): "0x20 1x40"},
        "22m",
        {"strategy": "stop", "training_job": "j"},
    ),
    "HoldfastCheckpointsFailing": (
        {f"holdfast_checkpoint_failures_in_a_row{{{JOB}}}": "0x20 1 2 3x40"},
        "24m",
        {"training_job": "j"},
    ),
    "HoldfastSnapshotsStopped": (
        {f'holdfast_job_trouble{{{JOB},kind="snapshots_overdue"}}': "0x20 1x40"},
        "25m",
        {"training_job": "j"},
    ),
    "HoldfastCheckpointStale": ({STORED: "0x200"}, "150m", {"training_job": "j"}),
    "HoldfastCheckpointFallback": (
        {f"holdfast_checkpoint_fallbacks_total{{{JOB}}}": "0x20 1x40"},
        "22m",
        {"training_job": "j"},
    ),
    "HoldfastNoLeader": ({'holdfast_leader{instance="a"}': "1x20 0x40"}, "25m", {}),
    "HoldfastSplitLeader": ({'holdfast_leader{instance="b"}': "0x20 1x40"}, "25m", {}),
    "HoldfastEtcdUnavailable": (
        {'holdfast_etcd_errors_total{operation="commit"}': "0x20 1+2x40"},
        "30m",
        {},
    ),
    "HoldfastSparesExhausted": (
        {"holdfast_spare_nodes": "1x20 0x40", 'holdfast_members{level="node",state="lost"}': "0x20 1x40"},
        "30m",
        {},
    ),
    "HoldfastMembersLost": ({'holdfast_members{level="node",state="lost"}': "0x20 1x40"}, "30m", {}),
    "HoldfastNodeQuarantined": ({"holdfast_quarantined_nodes": "0x20 1x40"}, "25m", {}),
    "HoldfastCoordinatorSaturated": (
        {'holdfast_event_loop_lag_seconds{instance="a"}': "0.002x10 2x60"},
        "30m",
        {"instance": "a"},
    ),
}
"""What makes an alert fire: series that differ from a healthy cluster's, when, and the labels it has then."""


def named() -> list[str]:
    return [alert.name for alert in load("rules").ALERTS]


@needs_promtool
def test_the_rules_are_rules() -> None:
    assert "SUCCESS" in promtool("check", "rules", str(RULES))


def test_every_alert_is_tried_and_explained() -> None:
    rules = yaml.safe_load(RULES.read_text())["groups"][1]["rules"]
    assert [rule["alert"] for rule in rules] == named() == list(FIRING)
    for rule in rules:
        page = ROOT / "docs" / "runbooks" / rule["annotations"]["runbook_url"].rpartition("/")[2]
        text = page.read_text()
        assert text.startswith(f"# {rule['alert']}\n")
        assert all(f"## {part}" in text for part in ("Meaning", "Diagnosis", "Mitigation")), page
        assert rule["labels"]["severity"] in ("critical", "warning", "info") and rule["for"]


def test_what_is_left_out_says_why() -> None:
    left = load("rules").LEFT_OUT
    assert not set(left) & set(named())
    assert all(len(reason) > 40 for reason in left.values())


@needs_promtool
@pytest.mark.parametrize("name", list(FIRING))
def test_it_fires(name: str, tmp_path: Path) -> None:
    changes, moment, labels = FIRING[name]
    alert = next(alert for alert in load("rules").ALERTS if alert.name == name)
    series = healthy(200) | changes
    rule = next(r for r in load("rules").groups()["groups"][1]["rules"] if r["alert"] == name)
    expected = {"exp_labels": {**rule["labels"], **labels}, "exp_annotations": {}}
    found = _annotations(tmp_path, series, moment, alert.name, expected)
    assert alert.runbook in found and "<no value>" not in found and "error" not in found.lower()


def _annotations(
    folder: Path, series: dict[str, str], moment: str, name: str, expected: dict[str, Any]
) -> str:
    """promtool compares annotations literally: ask with none, and read from its answer what there was."""
    with pytest.raises(AssertionError) as told:
        tried(folder, series, [{"eval_time": moment, "alertname": name, "exp_alerts": [expected]}])
    text = str(told.value)
    got = text[text.index("got:") :]
    labels = {**expected["exp_labels"], "alertname": name}
    assert all(f'{label}="{value}"' in got for label, value in labels.items()), text
    return got


def silent(moments: range) -> list[dict[str, Any]]:
    return [
        {"eval_time": f"{minute}m", "alertname": name, "exp_alerts": []}
        for minute in moments
        for name in named()
    ]


@needs_promtool
def test_a_healthy_day_is_silent(tmp_path: Path) -> None:
    tried(tmp_path, healthy(24 * HOUR), silent(range(0, 24 * HOUR, 20)), "10m")


@needs_promtool
def test_a_normal_recovery_is_silent(tmp_path: Path) -> None:
    recovery = {
        RECOVERED: "0x30 1x60",
        spent("detect"): "0x30 0.02x60",
        spent("restore"): "0x30 0.4x60",
        f"holdfast_productive_seconds_total{{{JOB}}}": "0+60x30 1850+60x60",
        f'holdfast_lost_seconds_total{{{JOB},cause="signaled"}}': "0x30 10x60",
        'holdfast_members{level="node",state="lost"}': "0x30 1 0x60",
        "holdfast_spare_nodes": "1x30 0x3 1x60",
        f'holdfast_job_phase{{{JOB},phase="running"}}': "1x30 0 1x60",
        f'holdfast_job_phase{{{JOB},phase="forming"}}': "0x30 1 0x60",
    }
    tried(tmp_path, healthy(90) | recovery, silent(range(90)))


@needs_promtool
def test_a_change_of_leader_is_silent(tmp_path: Path) -> None:
    change = {
        'holdfast_leader{instance="a"}': "1x30 0x60",
        'holdfast_leader{instance="b"}': "0x31 1x60",
        "holdfast_spare_nodes": "1x90",
    }
    tried(tmp_path, healthy(90) | change, silent(range(90)))


def of_job(name: str, phases: dict[str, str], lost: str = "") -> dict[str, str]:
    """One job of the day: its phases, and the seconds that it trained: all those that it runs."""
    job = f'training_job="{name}"'
    series = {f'holdfast_job_phase{{{job},phase="{phase}"}}': values for phase, values in phases.items()}
    series[f"holdfast_productive_seconds_total{{{job}}}"] = (
        f"0+60x{24 * HOUR}" if "running" in phases else "0x1440"
    )
    series[f'holdfast_lost_seconds_total{{{job},cause="waiting"}}'] = lost or "0x1440"
    return series


ORDINARY: dict[str, dict[str, str]] = {
    "a rank of one job dies, and a spare takes its place": {
        incidents("spare", "recovered", job="a"): "0x100 1x1340",
        spent("restore", "a"): "0x100 0.4x1340",
    },
    "a job's script has an ImportError": {
        incidents("stop", "failed", "script", "b"): "0x540 1x900",
        **of_job("b", {"failed": "0x540 1x900"}),
    },
    "a script raises at the same step until its restarts are spent": {
        incidents("respawn", "recovered", "script", "c"): "0x600 1 2 3 3x837",
        incidents("stop", "failed", "script", "c"): "0x604 1x836",
        spent("restore", "c"): "0x600 40 80 120x838",
    },
    "people stop a job in the middle of an incident": {
        incidents("respawn", "stopped", "cluster", "d"): "0x700 1x740",
        **of_job("d", {"stopped": "0x700 1x740"}),
    },
    "people pause, resume, drain; jobs move and grow": {
        incidents("pause", "recovered", "plan", "e"): "0x300 1 2 3 4 5x1136",
        incidents("move", "recovered", "plan", "e"): "0x310 1 2 3 4 5x1126",
        incidents("grow", "recovered", "plan", "e"): "0x310 1 2 3 4 5x1126",
        incidents("shrink", "recovered", "plan", "e"): "0x310 1 2 3 4 5x1126",
    },
    "a job is paused over lunch": of_job("f", {"paused": "0x720 1x720"}),
    "the cluster is full: no spare node for hours, and a job waits in the queue": {
        "holdfast_spare_nodes": "2x200 0x600 1x640",
        **of_job("g", {"pending": "0x200 1x600 0x640"}, lost="0x200 0+60x600 36000x640"),
    },
    "two nodes are ended in order": {
        'holdfast_members{level="node",state="up"}': "6x200 4x1240",
        'holdfast_members{level="node",state="left"}': "0x200 2x1240",
    },
    "one checkpoint fails, and the next is committed": {
        'holdfast_checkpoint_failures_in_a_row{training_job="a"}': "0x900 1x10 0x530",
        'holdfast_checkpoint_failures_total{training_job="a",reason="failed"}': "0x900 1x540",
    },
    "the coordinators are rolled": {
        'holdfast_leader{instance="a"}': "1x400 0x1040",
        'holdfast_leader{instance="b"}': "0x401 1x1039",
    },
}


@needs_promtool
def test_a_day_of_ordinary_life_is_silent(tmp_path: Path) -> None:
    day = healthy(24 * HOUR)
    for series in ORDINARY.values():
        day |= series
    tried(tmp_path, day, silent(range(0, 24 * HOUR, 5)), "5m")


@needs_promtool
def test_what_the_cluster_does_to_the_same_jobs_is_not(tmp_path: Path) -> None:
    """The same counters with the cluster's own failures: a day of silence is not one of deafness."""
    day = healthy(HOUR) | {
        incidents("respawn", "recovered", "cluster", "c"): "0x20 1 2 3 3x40",
        incidents("respawn", "recovered", "cluster", "d"): "0x20 1 2 2x40",
    }
    rule = next(a for a in load("rules").ALERTS if a.name == "HoldfastRecoveryLoop")
    with pytest.raises(AssertionError) as told:
        tried(tmp_path, day, [{"eval_time": "25m", "alertname": rule.name, "exp_alerts": []}])
    assert 'training_job="c"' in str(told.value) and 'training_job="d"' not in str(told.value)


def test_the_chart_gives_the_thresholds_that_the_rules_have() -> None:
    rules, values = load("rules"), yaml.safe_load((ROOT / "helm" / "holdfast" / "values.yaml").read_text())
    assert values["monitoring"]["prometheusRule"]["thresholds"] == rules.THRESHOLDS
    marked = {name for alert in rules.ALERTS for name in re.findall(r"@(\w+)@", alert.expression)}
    assert marked == set(rules.THRESHOLDS)


def test_every_alert_has_the_prefix() -> None:
    assert all(name.startswith("Holdfast") for name in named())


@needs_promtool
def test_the_recorded_numbers(tmp_path: Path) -> None:
    series = healthy(24 * HOUR) | {
        f"holdfast_productive_seconds_total{{{JOB}}}": f"0+45x{24 * HOUR}",
        f'holdfast_lost_seconds_total{{{JOB},cause="snapshot"}}': f"0x{24 * HOUR}",
        f'holdfast_lost_seconds_total{{{JOB},cause="signaled"}}': f"0+15x{24 * HOUR}",
        RECOVERED: f"0+0.1x{24 * HOUR}",
        spent("restore"): f"0+1x{24 * HOUR}",
    }
    values = {
        "training_job:holdfast_goodput:ratio5m": 0.75,
        "training_job:holdfast_ettr:ratio1h": 0.75,
        "training_job:holdfast_ettr:ratio1d": 0.75,
        "holdfast_mtbf:seconds1d": 600,
        "holdfast_mttr:seconds1d": 10,
    }
    assert list(values) == list(load("rules").RECORDS)
    tests = []
    for name, value in values.items():
        near = f"abs({name} - {value}) < bool 0.001 * {value}"
        labels = '{training_job="j"}' if name.startswith("training_job") else "{}"
        tests.append({"eval_time": "24h", "expr": near, "exp_samples": [{"labels": labels, "value": 1}]})
    tried(tmp_path, series, tests, "1h")
