"""The leader judges its jobs by what agents report, tells the core once, and the next leader goes on."""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from controlplane.analysis.findings_ledger.ledger import FindingLedger
from controlplane.cli.doctor import live
from controlplane.core.failures import quarantine
from controlplane.core.records.diagnosis import Diagnosed, GradientReport, ParameterGradient
from controlplane.core.records.model import Cause
from controlplane.core.records.node_checks import DeviceSign, NodeSensed
from controlplane.daemon.diagnosis import report
from controlplane.daemon.diagnosis.feed import signs
from controlplane.daemon.etcd.keyspace import Keyspace
from controlplane.daemon.leadership import findings
from tests.daemon.diagnosis.stage import Stage

if TYPE_CHECKING:
    from controlplane.core.records.diagnosis import OpenFinding

KEYS = Keyspace("c")
SLOW = {3: 2.0}


def told(stage: Stage) -> list[tuple[str, ...]]:
    """The kinds of the open findings, each time the core was told of them."""
    return [tuple(each.kind for each in event.findings) for event in stage.posted]


def newest(stage: Stage) -> tuple[OpenFinding, ...]:
    event = stage.posted[-1]
    assert isinstance(event, Diagnosed)
    return event.findings


async def test_a_slow_rank_is_opened_once_and_resolved_once() -> None:
    stage = Stage()
    await stage.windows(12)
    assert stage.posted == [], "a healthy job has no finding"
    await stage.windows(15, SLOW)
    assert len(stage.posted) == 1, told(stage)
    (found,) = newest(stage)
    assert ("3" in found.subject, found.node, found.muted) == (True, "b", False)
    (line,) = [body for kind, body in stage.written if kind == "FindingChanged"]
    assert (line["outcome"], line["subject"]["rank"], line["job"]) == ("opened", 3, "j")
    await stage.windows(40)
    assert told(stage)[-1] == ()
    assert [body["outcome"] for _, body in stage.written] == ["opened", "resolved"]


async def test_the_core_hears_that_a_critical_finding_lasts() -> None:
    stage = Stage()
    await stage.windows(25, SLOW)
    assert [[each.lasting for each in event.findings] for event in stage.posted] == [[False], [True]]


async def test_with_the_policy_off_nobody_is_called_slow() -> None:
    stage = Stage(policy="off")
    await stage.windows(20, SLOW)
    assert stage.posted == [] and stage.written == []
    assert stage.report_of()["anatomy"]["slowdown"] > 1.5, "where steps go is shown all the same"


async def test_a_finding_is_kept_before_anybody_hears_of_it() -> None:
    stage = Stage()
    await stage.windows(27, SLOW)
    ((rows, lines_before),) = stage.kept
    assert (len(rows), rows[0]["announced"], lines_before, len(stage.written)) == (1, True, 0, 1)


async def test_the_report_shows_where_steps_go_and_who_is_slow() -> None:
    stage = Stage()
    assert "no rank has reported" in stage.report_of()["anatomy"]["reason"]
    await stage.windows(20, SLOW)
    found = stage.report_of()
    (finding,) = found["findings"]
    assert finding["id"] == f"{finding['kind']}:{finding['about']}" and finding["recommendation"]
    ranks = {row["rank"]: row for row in found["anatomy"]["ranks"]}
    assert sorted(ranks) == [0, 1, 2, 3] and ranks[3]["node"] == "b"
    assert ranks[3]["ratio"] == pytest.approx(2.0) and ranks[0]["ratio"] == pytest.approx(1.0)
    assert ranks[3]["shares"]["forward"] == pytest.approx(0.08 / 0.09)
    assert found["anatomy"]["slowdown"] == pytest.approx(0.09 / 0.05)
    lost = found["anatomy"]["loss"]
    assert (lost["worst_rank"], lost["worst_node"], lost["last_stage_share"]) == (3, "b", None)
    assert lost["worst_rank_share"] == lost["worst_node_share"] == pytest.approx(1.0)
    assert "without rank 3 100%, without node b 100%" in live.anatomy(found["anatomy"])
    shares, slowdown = stage.shown["j"]
    assert shares["forward"] == pytest.approx(0.04 / 0.09) and slowdown == pytest.approx(0.09 / 0.05)


async def test_the_next_leader_neither_announces_again_nor_resolves_at_once() -> None:
    first = Stage()
    await first.windows(20, SLOW)
    rows = {KEYS.findings("j"): findings.packed(first.diagnosis.ledger.rows("j"))}
    second = Stage(findings.read(KEYS, rows))
    await second.windows(3, SLOW)  # too few to judge anything
    (before,) = newest(first)
    assert newest(second) == (replace(before, lasting=False),)  # it has not seen itself that it lasts
    assert second.report_of()["findings"][0]["opened_s"] == first.report_of()["findings"][0]["opened_s"]
    await second.windows(20, SLOW)
    assert second.written == [] and len(second.posted) == 2
    assert newest(second)[0].lasting, "it has seen it for long enough now"


async def test_a_window_that_cannot_be_judged_is_named_in_the_report_and_the_next_one_is_judged() -> None:
    stage = Stage()
    await stage.windows(20, SLOW)
    assert (stage.report_of()["failed_detectors"], stage.failed["j"]) == ([], 0)
    stage.wall_s -= 50.0
    await stage.windows(1, SLOW)
    (failed,) = stage.report_of()["failed_detectors"]
    assert (failed.startswith("window: ValueError: a window of job j"), stage.failed["j"]) == (True, 1)
    assert "(line " in failed and " of controlplane.analysis." in failed, "a bug report needs the place"
    assert [each["kind"] for each in stage.report_of()["findings"]] == ["slow_rank"], (
        "nothing says it is over"
    )
    stage.wall_s += 60.0
    await stage.windows(1, SLOW)
    assert (stage.report_of()["failed_detectors"], stage.failed["j"]) == ([], 0)


async def test_an_incident_that_cannot_be_judged_is_named_until_one_can_be() -> None:
    stage = Stage()
    stage.diagnosis.failed.judged_incident("j", KeyError("rank"))
    assert stage.report_of()["failed_detectors"] == ["first_failure: KeyError: 'rank'"]
    await stage.windows(1)
    assert stage.failed["j"] == 1
    stage.diagnosis.failed.judged_incident("j", None)
    assert stage.report_of()["failed_detectors"] == []


@pytest.mark.parametrize(
    "value", [b"", b"[]", b"{}", b'{"findings":[7]}', b'{"findings":[{"kind":"slow"}]}', b'{"findings":{}}']
)
def test_findings_that_cannot_be_read_are_looked_for_anew(value: bytes) -> None:
    assert findings.read(KEYS, {KEYS.findings("j"): value, KEYS.state("j"): b"x"}).jobs() == []


async def test_the_findings_of_another_job_are_not_believed() -> None:
    stage = Stage()
    await stage.windows(20, SLOW)
    packed = findings.packed(stage.diagnosis.ledger.rows("j"))
    assert findings.read(KEYS, {KEYS.findings("other"): packed}).jobs() == []


async def test_a_muted_finding_is_told_as_muted_until_its_time_is_over() -> None:
    stage = Stage()
    await stage.windows(20, SLOW)
    (shown,) = stage.report_of()["findings"]
    assert "nobody is alerted" in stage.diagnosis.mute("j", shown["id"], 60.0, "known")
    assert newest(stage)[0].muted
    await stage.windows(13, SLOW)
    assert not newest(stage)[0].muted
    with pytest.raises(KeyError, match="no open finding"):
        stage.diagnosis.mute("j", "slow_rank:rank 99", 60.0, "known")


async def test_a_job_that_is_over_is_forgotten() -> None:
    stage = Stage()
    await stage.windows(20, SLOW)
    stage.play.do("stop over", "stored")
    await stage.diagnosis.look()
    assert stage.diagnosis.ledger.jobs() == []


async def test_without_diagnosis_nothing_is_kept() -> None:
    stage = Stage(every_s=0.0)
    stage.report(SLOW)
    assert stage.diagnosis._feed._steps == {}
    assert "--diagnose-every-s" in stage.report_of()["anatomy"]["reason"]


def test_an_empty_ledger_has_no_rows() -> None:
    assert FindingLedger().rows() == []


async def test_a_bounded_report_has_few_ranks_in_full_and_all_as_columns() -> None:
    stage = Stage()
    assert stage.diagnosis.report("j", "healthy", 1)["anatomy"]["columns"]["ranks"] == []
    await stage.windows(20, SLOW)
    whole, bounded = stage.report_of()["anatomy"], stage.diagnosis.report("j", "healthy", 1)["anatomy"]
    assert whole["slowest_rank"] == bounded["slowest_rank"] == 3 and whole["typical_rank"] in (0, 1, 2)
    rows = {row["rank"]: row for row in whole["ranks"]}
    assert bounded["ranks"] == [rows[rank] for rank in sorted({3, whole["typical_rank"]})]
    columns = bounded["columns"]
    assert columns["ranks"] == [0, 1, 2, 3] and columns["ratios"] == [1.0, 1.0, 1.0, 2.0]
    assert [columns["node_names"][node] for node in columns["nodes"]] == ["a", "a", "b", "b"]
    assert columns["own_s"] == pytest.approx([row["own_s"] for row in whole["ranks"]], abs=1e-6)
    assert bounded.keys() == whole.keys() and whole["ended_s"] == stage.wall_s


async def test_limits_are_settings() -> None:
    stage = Stage(slow_rank_ratio=3.0)
    await stage.windows(30, SLOW)
    assert stage.posted == [], "a rank that takes twice as long is not slow by this limit"


async def test_numbers_that_json_does_not_know_are_left_out() -> None:
    stage = Stage()
    await stage.windows(20, SLOW)
    entry = stage.diagnosis.ledger.open("j")[0]
    odd = dataclasses.replace(entry.finding, evidence=(("a_s", float("nan")), ("b_s", 2.0), ("c", "x")))
    shown = report.row(dataclasses.replace(entry, finding=odd), stage.wall_s)
    assert shown["evidence"] == {"a_s": None, "b_s": 2.0, "c": "x"}
    assert json.loads(json.dumps(shown, allow_nan=False)) == shown


async def test_windows_carry_how_long_the_newest_checkpoint_took() -> None:
    stage = Stage()
    job = stage.play.cluster.state.jobs["j"]
    stage.report({})
    job.checkpoints.costs.uploads, job.checkpoints.costs.newest_upload_s = 3, 12.5
    collected = stage.diagnosis._feed.collect(job, {}, 1000.0, 1005.0)
    assert collected is not None
    window = collected.window()
    assert (window.checkpoints, window.checkpoint_took_s) == (3, 12.5)
    assert window.checkpoint_every_s == job.spec.checkpoint_every_s


async def test_nodes_at_risk_are_not_reported_where_nobody_wants_it() -> None:
    stage = Stage(risk="off")
    for _ in range(2):
        quarantine.charge(stage.play.cluster.state, stage.play.cluster.state.nodes["a"], Cause.NODE_LOST, "")
    await stage.windows(12)
    assert not [each for event in stage.posted for each in event.findings]


async def test_a_node_whose_failures_come_close_to_a_quarantine_is_at_risk() -> None:
    """Two losses of three that quarantine; with more, health says that it is quarantined instead."""
    stage = Stage()
    state = stage.play.cluster.state
    node = state.nodes["a"]
    for _ in range(2):
        quarantine.charge(state, node, Cause.NODE_LOST, "")
    await stage.windows(12)
    at_risk = [each for each in newest(stage) if each.kind == "node_at_risk"]
    assert [each.subject for each in at_risk] == ["node a"] and "2 x node lost" in at_risk[0].reason
    for _ in range(2):
        quarantine.charge(state, node, Cause.NODE_LOST, "")
    await stage.windows(12)
    assert not any(each.kind == "node_at_risk" for each in newest(stage))


def test_signs_of_nodes_are_what_the_leader_knows() -> None:
    state = Stage().play.cluster.state
    node = state.nodes["a"]
    assert signs(node, state, None) is None
    node.bad_devices["gpu1"] = "fell off"
    node.held_until, node.held_why = state.now + 10.0, "it came back 3 times"
    found = signs(node, state, None)
    assert found is not None and (found.bad_devices, found.held) == (("gpu1",), "it came back 3 times")
    state.now += 11.0
    later = signs(node, state, None)
    assert later is not None and later.held == ""


async def test_what_the_sensors_of_a_node_show_puts_it_at_risk_until_they_show_it_no_more() -> None:
    stage = Stage()
    node = stage.play.cluster.state.nodes["a"]
    failed = (DeviceSign("gpu0", "remap_failed", 1.0),)
    stage.diagnosis.take(NodeSensed("a", node.incarnation, failed, ("PCIe replays of gpu0",)))
    await stage.windows(12)
    (found,) = newest(stage)
    assert (found.kind, found.subject) == ("node_at_risk", "node a")
    assert found.reason.endswith("the remap of a memory row failed; not known: PCIe replays of gpu0")
    stage.diagnosis.take(NodeSensed("a", node.incarnation))
    await stage.windows(12)
    assert newest(stage) == ()


async def test_what_an_earlier_agent_of_a_node_has_told_is_forgotten() -> None:
    stage = Stage()
    node = stage.play.cluster.state.nodes["a"]
    failed = tuple(DeviceSign("gpu0", "remap_failed", 1.0) for _ in range(1000))
    stage.diagnosis.take(NodeSensed("a", node.incarnation, failed, ("x" * 1000,) * 1000))
    kept = stage.diagnosis._sensed.of(node)
    assert kept is not None and len(kept.signs) <= 128 and sum(map(len, kept.unknown)) <= 32 * 80
    node.incarnation += 1
    assert stage.diagnosis._sensed.of(node) is None
    stage.diagnosis._sensed.forget({})
    node.incarnation -= 1
    assert stage.diagnosis._sensed.of(node) is None


async def test_reported_gradients_become_a_finding_and_metrics() -> None:
    stage = Stage()
    for window in range(20):
        for rank in range(4):
            bad = window >= 12 and rank == 2
            stage.diagnosis.take(
                GradientReport(
                    *(("a", "b")[rank // 2], 1, "j", f"j.{rank}", rank, 1, 10 * window, 2, 200),
                    norm=0.0 if window >= 12 else 1.5,
                    nans=200 if window >= 12 else 0,
                    loss=2.0,
                    loss_state="known",
                    trace="module" if bad else "",
                    origin="blocks.1" if bad else "",
                    words="module blocks.1 is the first whose output is not finite" if bad else "",
                    rows=(ParameterGradient("w", 200, 1.5, 0.0, 0.1, -1.0, 1.0, 0, 0, 0, -1.0),),
                )
            )
        await stage.windows(1)
        if window == 5:
            assert (stage.numbers["j"].norm, stage.numbers["j"].parameters) == (1.5, (("w", 1.5),))
    (found,) = newest(stage)
    assert (found.kind, found.level, found.node) == ("non_finite", "critical", "b")
    assert "blocks.1" in found.reason
    assert math.isnan(stage.numbers["j"].norm)


async def test_a_replica_that_differs_is_opened_at_once_and_resolved_when_all_agree_again() -> None:
    stage = Stage()
    await stage.windows(3)
    stage.play.do("replicas 40 30 ranks=0,1,2,3 odd=3")
    await stage.windows(1)
    (found,) = newest(stage)
    assert (found.kind, found.level, found.node) == ("corrupt_state", "critical", "b")
    assert found.subject == "rank 3 (b, device 1)"
    assert "differs from 3 other replicas that agree, in model.state.weight" in found.reason
    (line,) = [body for kind, body in stage.written if kind == "FindingChanged"]
    assert (line["subject"]["rank"], line["first_step"]) == (3, 30)
    assert line["evidence"]["found_step"] == 40 and line["evidence"]["digest_rank_3"] == "1"
    await stage.windows(10)
    assert len(stage.posted) == 1, "it is open as long as nobody says that they agree"
    stage.play.do("replicas 50 50")
    await stage.windows(8)
    assert told(stage)[-1] == ()


async def test_replicas_are_judged_where_no_step_is_reported() -> None:
    stage = Stage()
    stage.play.do("replicas 40 30 ranks=0,1")
    await stage.diagnosis.look()
    (found,) = newest(stage)
    assert (found.subject, found.node) == ("ranks 0, 1", "") and "none has a majority" in found.reason
    (line,) = [body for kind, body in stage.written if kind == "FindingChanged"]
    assert line["subject"]["rank"] is None and line["confidence"] == 0.0


async def test_what_agreed_again_before_anybody_looked_is_still_shown() -> None:
    stage = Stage()
    stage.play.do("replicas 40 30 ranks=0,1,2,3 odd=0 buffers=yes")
    stage.play.do("replicas 50 50")
    await stage.windows(1)
    (found,) = newest(stage)
    assert (found.level, "which a script may change" in found.reason) == ("degraded", True)


@pytest.mark.parametrize(
    ("compared", "level", "first", "words", "do"),
    [
        ("40 30 gradients=differ", "critical", "gradients", "and the state follows", "Test the links"),
        ("40 39 gradients=agree", "critical", "state", "the damage came later", "Test memory"),
        ("40 30 gradients=agree", "critical", "unknown", "--check-replicas-every 1", "Test memory"),
        ("40 30", "critical", None, "all held the same. Cause", "Test memory"),
        (
            "40 30 gradients=differ buffers=yes",
            "degraded",
            "gradients",
            "the state is equal",
            "Test the links",
        ),
    ],
)
async def test_of_replicas_that_differ_it_is_told_what_came_first(
    compared: str, level: str, first: str | None, words: str, do: str
) -> None:
    stage = Stage()
    stage.play.do(f"replicas {compared} ranks=0,1,2,3 odd=3")
    await stage.diagnosis.look()
    (found,) = newest(stage)
    assert (found.level, words in found.reason) == (level, True), found.reason
    (line,) = [body for kind, body in stage.written if kind == "FindingChanged"]
    assert line["evidence"].get("came_first") == first
    assert ("only buffers differ" in found.reason) is False


async def test_a_crowded_node_is_a_notice_and_no_ill_health() -> None:
    stage = Stage()
    four = (1.0,) * 4
    stage.told = {
        "watched_s": four,
        "ran_s": (0.5,) * 4,
        "queued_s": (0.4,) * 4,
        "throttled_s": (0.0,) * 4,
        "cpu_limits": (0.0,) * 4,
    }
    await stage.windows(12, dict.fromkeys(range(4), 2.0))
    (shown,) = stage.report_of()["findings"]
    assert (shown["kind"], shown["severity"]) == ("crowded_cpu", "notice")
    assert stage.posted == []
