"""What is built from the code is fresh, and nothing names a metric that does not exist."""

from __future__ import annotations

import json
import re
import subprocess
from typing import TYPE_CHECKING, Any

import promql_parser
import yaml
from prometheus_client import generate_latest

from agent.daemon.metrics_table import TALLIES
from controlplane.daemon.telemetry.metrics import Metrics
from tests.monitoring.builders import DASHBOARDS, ROOT, RULES, load, needs_promtool

if TYPE_CHECKING:
    from collections.abc import Iterator

PROMISED = """
build_info leader leader_term leader_changes_total etcd_request_seconds etcd_errors_total members
heartbeats_total heartbeat_lag_seconds failures_detected_total detection_seconds incidents_total
recovery_seconds generation step step_seconds last_progress_timestamp_seconds productive_seconds_total
lost_seconds_total steps_lost_total
snapshot_stall_seconds checkpoint_last_success_timestamp_seconds checkpoint_seconds checkpoint_bytes_total
checkpoint_failures_total checkpoint_fallbacks_total spare_nodes quarantined_nodes cluster_health
agent_connections event_loop_lag_seconds
""".split()


def known() -> set[str]:
    names: set[str] = load("catalog").known()
    return names | set(load("rules").RECORDS)


def metrics_of(expression: str) -> set[str]:
    """The names of the metrics of an expression; fails when it cannot be parsed."""
    plain = expression.replace("$__rate_interval", "5m").replace("$__range", "1h")
    names: set[str] = set()

    def visit(node: Any) -> bool:
        vector = node.vector_selector if isinstance(node, promql_parser.MatrixSelector) else node
        if isinstance(vector, promql_parser.VectorSelector):
            names.add(str(vector.name))
        return True

    promql_parser.walk(promql_parser.parse(plain), visit)
    return names


def expressions() -> Iterator[tuple[str, str]]:
    for group in yaml.safe_load(RULES.read_text())["groups"]:
        for rule in group["rules"]:
            yield f"rule {rule.get('alert') or rule['record']}", rule["expr"]
    for path in sorted(DASHBOARDS.glob("*.json")):
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel["targets"]:
                yield f"{path.stem}: {panel['title']}", target["expr"]


def test_what_is_built_is_fresh() -> None:
    built = load("build").built()
    stale = [str(path.relative_to(ROOT)) for path, text in built.items() if path.read_text() != text]
    assert not stale, "run `python docs/monitoring/build.py`"
    assert set(DASHBOARDS.iterdir()) <= set(built)


def test_every_expression_names_what_there_is() -> None:
    names = known()
    found = {where: metrics_of(expression) for where, expression in expressions()}
    assert len(found) > 50 and all(found.values())
    assert {where: strange for where, named in found.items() if (strange := named - names)} == {}


def test_the_parser_sees_through_everything() -> None:
    nested = "max_over_time((sum by (a) (rate(x_total[5m])) / (y > 0))[1h:1m]) and on () absent(z)"
    assert metrics_of(nested) == {"x_total", "y", "z"}


def test_docs_name_what_there_is() -> None:
    for path in [
        *(ROOT / "docs").glob("*.md"),
        *(ROOT / "docs" / "runbooks").glob("*.md"),
        ROOT / "README.md",
    ]:
        named = set(re.findall(r"\bholdfast_[a-z_]+\b", path.read_text()))
        strange = {
            name for name in named if name not in known() and not any(k.startswith(name) for k in known())
        }
        assert not strange, (path.name, strange)


def test_the_metrics_that_were_asked_for_are_there() -> None:
    made = {entry.name.removeprefix("holdfast_"): entry for entry in load("catalog").coordinator()}
    assert set(PROMISED) <= set(made)
    for entry in made.values():
        assert "rank" not in entry.labels and "job" not in entry.labels, entry
        assert entry.about and (entry.kind != "counter" or entry.name.endswith("_total"))


def test_names_are_of_base_units() -> None:
    for name in known():
        assert not re.search(r"_(ms|millis|milliseconds|minutes|hours|percent|kib|mib|gib|mb|gb)\b", name), (
            name
        )


def test_counters_begin_at_zero() -> None:
    metrics = Metrics("0")
    metrics.know_job("j")
    free = {"holdfast_events", "holdfast_lost_seconds"}
    for family in metrics.registry.collect():
        if family.type == "counter" and family.name not in free:
            assert family.samples and all(
                sample.value == 0 for sample in family.samples if sample.name.endswith("_total")
            ), family.name


@needs_promtool
def test_promtool_finds_no_fault_with_the_page() -> None:
    metrics = Metrics("0")
    metrics.know_job("j")
    run = subprocess.run(
        ["promtool", "check", "metrics"],
        input=generate_latest(metrics.registry).decode(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr


def test_every_tally_of_agents_is_counted_somewhere() -> None:
    sources = "".join(path.read_text() for path in (ROOT / "agent").rglob("*.py"))
    counted = set(re.findall(r"tally\.add\(\s*\"(\w+)\"", sources))
    assert counted == set(TALLIES)
