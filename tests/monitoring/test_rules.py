"""Every alert fires when it must, and none in a healthy day or in a normal recovery."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.monitoring.builders import ROOT, RULES, healthy, load, needs_promtool, promtool, tried

if TYPE_CHECKING:
    from pathlib import Path

RECOVERED = 'holdfast_incidents_total{strategy="spare",outcome="recovered"}'
JOB = 'training_job="j"'
STORED = f'holdfast_checkpoint_last_success_timestamp_seconds{{{JOB},tier="storage",kind="full"}}'
HOUR = 60

FIRING: dict[str, tuple[dict[str, str], str, dict[str, str]]] = {
    "GoodputLow": (
        {
            f"holdfast_productive_seconds_total{{{JOB}}}": "0+30x60",
            f'holdfast_lost_seconds_total{{{JOB},cause="signaled"}}': "0+30x60",
        },
        "30m",
        {"training_job": "j"},
    ),
    "TrainingStalled": (
        {f"holdfast_last_progress_timestamp_seconds{{{JOB}}}": "0+60x10 600x60"},
        "40m",
        {"training_job": "j"},
    ),
    "RecoveryLoop": ({RECOVERED: "0x20 1 2 3 4 4x40"}, "26m", {}),
    "RecoverySlow": (
        {RECOVERED: "0x20 1x40", 'holdfast_recovery_seconds_sum{phase="restore"}': "0x20 300x40"},
        "25m",
        {},
    ),
    "RecoveryFailed": (
        {'holdfast_incidents_total{strategy="stop",outcome="failed"}': "0x20 1x40"},
        "22m",
        {"strategy": "stop"},
    ),
    "CheckpointStale": ({STORED: "0x200"}, "150m", {"training_job": "j"}),
    "CheckpointFallback": (
        {f"holdfast_checkpoint_fallbacks_total{{{JOB}}}": "0x20 1x40"},
        "22m",
        {"training_job": "j"},
    ),
    "NoLeader": ({'holdfast_leader{instance="a"}': "1x20 0x40"}, "25m", {}),
    "SplitLeader": ({'holdfast_leader{instance="b"}': "0x20 1x40"}, "25m", {}),
    "EtcdUnavailable": (
        {'holdfast_etcd_errors_total{operation="commit"}': "0x20 1+2x40"},
        "30m",
        {},
    ),
    "SparesExhausted": ({"holdfast_spare_nodes": "1x20 0x40"}, "30m", {}),
    "MembersLost": ({'holdfast_members{level="node",state="lost"}': "0x20 1x40"}, "30m", {}),
    "NodeQuarantined": ({"holdfast_quarantined_nodes": "0x20 1x40"}, "25m", {}),
    "CoordinatorSaturated": (
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
        assert all(f"## {part}" in text for part in ("Meaning", "Look", "Mend")), page
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
        'holdfast_recovery_seconds_sum{phase="detect"}': "0x30 0.02x60",
        'holdfast_recovery_seconds_sum{phase="restore"}': "0x30 0.4x60",
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


@needs_promtool
def test_the_recorded_numbers(tmp_path: Path) -> None:
    series = healthy(24 * HOUR) | {
        f"holdfast_productive_seconds_total{{{JOB}}}": f"0+45x{24 * HOUR}",
        f'holdfast_lost_seconds_total{{{JOB},cause="snapshot"}}': f"0x{24 * HOUR}",
        f'holdfast_lost_seconds_total{{{JOB},cause="signaled"}}': f"0+15x{24 * HOUR}",
        RECOVERED: f"0+0.1x{24 * HOUR}",
        'holdfast_recovery_seconds_sum{phase="restore"}': f"0+1x{24 * HOUR}",
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
