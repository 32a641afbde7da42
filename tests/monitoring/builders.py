"""Load the builders of docs/monitoring as modules, and try the rules of Prometheus with promtool."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

if TYPE_CHECKING:
    from types import ModuleType

ROOT = Path(__file__).parents[2]
RULES = ROOT / "helm" / "holdfast" / "files" / "rules" / "holdfast.yaml"
DASHBOARDS = ROOT / "helm" / "holdfast" / "files" / "dashboards"

needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is not here: apt-get install prometheus"
)


def load(name: str) -> ModuleType:
    """A module of docs/monitoring, which is no package."""
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / "monitoring" / f"{name}.py")
        assert spec is not None and spec.loader is not None
        sys.modules[name] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules[name]


def promtool(*words: str) -> str:
    """Run promtool, and return its output. Fails the test when promtool finds an error."""
    run = subprocess.run(["promtool", *words], capture_output=True, text=True, timeout=100, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


def incidents(strategy: str, outcome: str, whose: str = "cluster", job: str = "j") -> str:
    """The series of closed incidents of a job."""
    labels = f'training_job="{job}",strategy="{strategy}",outcome="{outcome}",whose="{whose}"'
    return f"holdfast_incidents_total{{{labels}}}"


def spent(phase: str, job: str = "j") -> str:
    """The series of the seconds of a phase of a job's incidents."""
    return f'holdfast_recovery_seconds_sum{{training_job="{job}",phase="{phase}"}}'


def healthy(minutes: int) -> dict[str, str]:
    """Two coordinators, one job and a spare node, in promtool's notation, a sample a minute."""
    job, count = 'training_job="j"', minutes
    return {
        'holdfast_leader{instance="a"}': f"1x{count}",
        'holdfast_leader{instance="b"}': f"0x{count}",
        f"holdfast_productive_seconds_total{{{job}}}": f"0+59.9x{count}",
        f'holdfast_lost_seconds_total{{{job},cause="snapshot"}}': f"0+0.1x{count}",
        f'holdfast_lost_seconds_total{{{job},cause="signaled"}}': f"0x{count}",
        f'holdfast_job_phase{{{job},phase="running"}}': f"1x{count}",
        f"holdfast_last_progress_timestamp_seconds{{{job}}}": f"0+60x{count}",
        f'holdfast_checkpoint_last_success_timestamp_seconds{{{job},tier="storage",kind="full"}}': (
            f"0+60x{count}"
        ),
        f"holdfast_checkpoint_fallbacks_total{{{job}}}": f"0x{count}",
        incidents("spare", "recovered"): f"0x{count}",
        incidents("stop", "failed"): f"0x{count}",
        spent("detect"): f"0x{count}",
        spent("restore"): f"0x{count}",
        f"holdfast_checkpoint_failures_in_a_row{{{job}}}": f"0x{count}",
        f'holdfast_job_trouble{{{job},kind="snapshots_overdue"}}': f"0x{count}",
        'holdfast_etcd_errors_total{operation="commit"}': f"0x{count}",
        "holdfast_spare_nodes": f"1x{count}",
        'holdfast_members{level="node",state="up"}': f"4x{count}",
        'holdfast_members{level="node",state="lost"}': f"0x{count}",
        "holdfast_quarantined_nodes": f"0x{count}",
        'holdfast_event_loop_lag_seconds{instance="a"}': f"0.002x{count}",
    }


def tried(folder: Path, series: dict[str, str], tests: list[dict[str, Any]], every: str = "1m") -> str:
    """Evaluate the shipped rules over these series; fails when an expectation is not met.

    Samples are a minute apart; `every`: how often the rules are evaluated."""
    group = {"interval": "1m", "input_series": [{"series": s, "values": v} for s, v in series.items()]}
    alerts = [test for test in tests if "alertname" in test]
    values = [test for test in tests if "expr" in test]
    document = {
        "rule_files": [str(RULES)],
        "evaluation_interval": every,
        "tests": [{**group, "alert_rule_test": alerts, "promql_expr_test": values}],
    }
    path = folder / "test.yaml"
    path.write_text(yaml.safe_dump(document))
    return promtool("test", "rules", str(path))
