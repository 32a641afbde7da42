"""The report of the whole cluster: what to do about each finding, and what is about one node."""

from __future__ import annotations

from typing import Any

import pytest

from controlplane.cli.doctor import live
from controlplane.cli.errors import CliError, UsageError
from controlplane.core.state.findings import Finding, Level, Recommendation
from controlplane.daemon.diagnosis import report
from tests.daemon.diagnosis.stage import Stage


async def reported() -> tuple[Stage, dict[str, Any]]:
    """A job whose rank 3, on node b, is slow; and the cluster's report once the core has heard of it."""
    stage = Stage()
    await stage.windows(27, {3: 2.0})
    for event in stage.posted:
        stage.play.cluster.step(stage.play.now, event)
    stage.play.do("live 1")
    return stage, report.health_of_cluster("c", stage.play.cluster, stage.diagnosis.ledger)


async def test_what_the_diagnosis_recommends_is_in_the_report_of_the_cluster() -> None:
    stage, told = await reported()
    (row,) = told["findings"]
    (entry,) = stage.diagnosis.ledger.open("j")
    assert (row["kind"], row["job"], row["nodes"]) == ("slow_rank", "j", ["b"])
    assert row["recommendation"] == entry.finding.recommendations[0].action != ""
    assert len(row["recommendations"]) == len(entry.finding.recommendations)
    assert f"    do: {row['recommendation']}" in live.of_cluster(told).splitlines()


async def test_of_a_node_only_what_is_about_it_is_shown() -> None:
    _, told = await reported()
    assert told["findings"]
    about = {name: live.about_node(told, name, ("a", "b"))["findings"] for name in ("a", "b")}
    assert about == {"a": [], "b": told["findings"]}
    with pytest.raises(CliError, match="no node named n9"):
        live.about_node(told, "n9", ("a", "b"))
    older = {**told, "findings": [{"kind": "nodes_lost"}]}
    with pytest.raises(UsageError, match="older version"):
        live.about_node(older, "b", ("a", "b"))


async def test_the_report_of_a_job_says_why_it_is_not_healthy_besides_what_diagnosis_found() -> None:
    stage, _ = await reported()
    for job in ("j", "another"):
        full = Finding(
            "checkpoints_fail", Level.DEGRADED, f"job {job}", "the disk is full", job=job, rule="checkpoints",
            recommendations=(Recommendation("Free space."),),
        )  # fmt: skip
        stage.play.cluster.state.findings[full.kind, full.subject] = full
    told = stage.diagnosis.report("j", "degraded", 8)
    assert [(each["kind"], each["about"]) for each in told["health"]] == [("checkpoints_fail", "job j")]
    assert [each["kind"] for each in told["findings"]] == ["slow_rank"]
    head = live.text(told).split("\n\n")[0].splitlines()
    assert head == [
        "job j: degraded",
        "  warning: checkpoints_fail: job j: the disk is full",
        "    do: Free space.",
    ]
    assert live.text({**told, "health": []}).startswith("job j: degraded\n\n")
