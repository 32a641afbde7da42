"""Brake, quarantine, hold-downs, health and network evidence, each by itself."""

from __future__ import annotations

import dataclasses

import pytest

from controlplane import timeout_constraints
from controlplane.core import health, view
from controlplane.core.cluster import Cluster
from controlplane.core.failures import network, quarantine
from controlplane.core.health import RULES, HealthFacts
from controlplane.core.records import effects as fx
from controlplane.core.records import events as ev
from controlplane.core.records.model import Cause, JobSpec, LemonRecord, PeerSight, Strategy
from controlplane.core.records.timing import CoreSettings
from controlplane.core.recovery import strategies
from controlplane.core.state.findings import Finding, Level
from controlplane.settings import AgentSettings, CoordinatorSettings

S = CoreSettings()
DAY = 86400.0


def hello(name: str, incarnation: int = 1, **more: float) -> ev.NodeJoined:
    return ev.NodeJoined(name, incarnation, f"{name}/l", name, 8, 1, peer=f"{name}:1", **more)  # type: ignore[arg-type]


def cluster(nodes: int, **settings: float) -> Cluster:
    made = Cluster(dataclasses.replace(S, **settings))  # type: ignore[arg-type]
    made.step(0.0, ev.Elected(1, wall_s=1e9))
    for number in range(nodes):
        made.step(0.0, hello(f"n{number}"))
    return made


def beat(made: Cluster, now: float, number: int) -> list[fx.Effect]:
    return made.step(now, ev.NodeBeat(f"n{number}", 1, int(now * 10) + 1, 1))


def states(made: Cluster) -> list[str]:
    return [made.state.nodes[name].state for name in sorted(made.state.nodes)]


@pytest.mark.parametrize(
    ("nodes", "silent", "braked"),
    [(3, 1, False), (3, 3, False), (4, 1, False), (4, 2, True), (10, 3, False), (10, 4, True)],
)
def test_the_brake_is_for_more_than_a_third_of_four_or_more(nodes: int, silent: int, braked: bool) -> None:
    made = cluster(nodes)
    for now in range(1, 30):
        for number in range(silent, nodes):
            beat(made, float(now), number)
    effects = made.step(30.0, ev.Tick())
    assert (made.state.guard is not None) == braked
    assert len([each for each in effects if isinstance(each, fx.Probe)]) == (silent if braked else 0)
    assert states(made).count("lost") == (0 if braked else silent)


def test_a_ratio_of_one_never_brakes() -> None:
    made = cluster(8, mass_loss_ratio=1.0)
    made.step(30.0, ev.Tick())
    assert states(made) == ["lost"] * 8


def test_the_brake_lets_go_after_its_time_although_nobody_answers() -> None:
    made = cluster(6)
    made.step(30.0, ev.Tick())
    assert made.state.guard is not None
    for now in range(31, 61):
        made.step(float(now), ev.Tick())
        made.check()
    assert made.state.guard is None
    assert states(made) == ["lost"] * 6


def test_who_answers_a_probe_is_not_lost_and_is_judged_anew_later() -> None:
    made = cluster(5)
    made.step(30.0, ev.Tick())
    for number in range(5):
        made.step(31.0, ev.ProbeAnswered(f"n{number}", 1, number < 4, "refused"))
    made.step(31.0, ev.Tick())
    assert states(made) == ["up", "up", "up", "up", "lost"]
    made.step(60.9, ev.Tick())
    assert states(made).count("lost") == 1
    made.step(61.1, ev.Tick())
    assert made.state.guard is not None, "four are silent again: they are asked again"


def test_who_speaks_again_is_not_given_up_with_those_that_do_not() -> None:
    """Its stream never broke: the network was away, and a probe failed meanwhile."""
    made = cluster(6)
    made.step(30.0, ev.Tick())
    for number in (0, 1, 2):
        made.step(30.5, ev.ProbeAnswered(f"n{number}", 1, False, "no route"))
    beat(made, 32.0, 0)
    made.step(32.0, ev.NodesHeard((("n1", 1),)))
    for number in (3, 4):
        made.step(33.0, ev.ProbeAnswered(f"n{number}", 1, True))
    made.step(33.0, ev.ProbeAnswered("n5", 1, False, "no route"))
    made.step(33.0, ev.Tick())
    assert made.state.guard is None
    assert states(made) == ["up", "up", "lost", "up", "up", "lost"]


def test_a_node_that_was_lost_and_speaks_again_is_there_for_the_next_leader() -> None:
    """Else nobody would wait for the copies that it keeps."""
    made = cluster(1)
    made.step(30.0, ev.Tick())
    lost = [each for each in made.step(30.0, ev.Tick()) if isinstance(each, fx.STORES)]
    assert states(made) == ["lost"] and not lost
    for ticket in range(1, 9):
        made.step(30.1, ev.Stored(ticket))
    stores = [each for each in beat(made, 31.0, 0) if isinstance(each, fx.STORES)]
    assert [isinstance(each, fx.StoreNode) and (each.node, each.state) for each in stores] == [("n0", "up")]


@pytest.mark.parametrize("own", [True, False])
def test_a_node_that_comes_back_from_a_drain_with_another_launcher_is_not_charged(own: bool) -> None:
    made = cluster(1)
    if own:
        made.step(1.0, ev.NodeLeaving("n0", 1, "an upgrade", 60.0))
    else:
        made.step(1.0, ev.DrainRequested("n0", "a reboot", 60.0))
    made.step(2.0, ev.NodeBroken("n0", 1, "its stream ended"))
    made.step(9.0, dataclasses.replace(hello("n0", 2), launcher="another"))
    assert states(made) == ["up"]
    assert made.state.nodes["n0"].failure_history is None


def test_an_answer_to_a_probe_of_a_former_life_is_dropped() -> None:
    made = cluster(4)
    made.step(30.0, ev.Tick())
    made.step(31.0, ev.ProbeAnswered("n0", 7, False, "refused"))
    assert made.counts["stale_probe"] == 1
    assert made.state.guard is not None and made.state.guard.waits["n0"] == ""


def test_a_mass_loss_charges_nobody() -> None:
    made = cluster(4)
    made.step(30.0, ev.Tick())
    for number in range(4):
        made.step(31.0, ev.ProbeAnswered(f"n{number}", 1, False, "refused"))
    made.step(31.0, ev.Tick())
    assert states(made) == ["lost"] * 4
    assert not made.state.histories


def test_nodes_that_left_as_planned_are_no_mass_loss_and_nobodys_fault() -> None:
    made = cluster(6)
    for name in ("n0", "n1"):
        made.step(0.5, ev.NodeLeaving(name, 1, "its agent received SIGTERM", 10.0))
    for now in range(1, 32):
        for number in range(3, 6):
            beat(made, float(now), number)
        made.step(float(now), ev.Tick())
    assert made.state.guard is None, "one of four is silent"
    assert states(made) == ["lost"] * 3 + ["up"] * 3
    assert list(made.state.histories) == ["n2"]


def test_scores_decay_by_half_lives_and_are_forgotten() -> None:
    record = LemonRecord("a", 2.0, 0.0)
    assert quarantine.decayed(record, S.lemon_half_life_s, S.lemon_half_life_s) == 1.0
    assert quarantine.decayed(record, 100 * S.lemon_half_life_s, S.lemon_half_life_s) == 0.0
    assert quarantine.decayed(None, 0.0, 1.0) == 0.0


def test_every_cause_weighs_something_or_nothing_by_table() -> None:
    assert set(quarantine.WEIGHTS) >= {cause for cause in Cause if cause not in _OF_OTHERS}
    assert quarantine.weight(Cause.RAISED, "ValueError: shapes differ") == 0.0
    assert quarantine.weight(Cause.RAISED, "RuntimeError: CUDA error: uncorrectable ECC") == 1.0


_OF_OTHERS: frozenset[Cause] = frozenset()


def test_slow_failures_never_quarantine_and_fast_ones_do() -> None:
    slow = fast = LemonRecord("a", 0.0, 0.0)
    for times in range(1, 60):
        slow = quarantine.charged(slow, Cause.SILENT, 1.0, times * 7 * DAY, S)
    assert not quarantine.quarantined(slow, slow.at_s)
    for times in range(1, 5):
        fast = quarantine.charged(fast, Cause.SILENT, 1.0, times * 60.0, S)
    assert quarantine.quarantined(fast, fast.at_s)
    assert "4 x silent" in fast.reason
    assert not quarantine.quarantined(fast, fast.at_s + S.quarantine_s)


def test_a_quarantine_survives_the_leader_and_ends_by_itself() -> None:
    made = Cluster(S)
    record = LemonRecord("n0", 4.0, 1e9, 1e9 + 100.0, "quarantined: 4 x silent", (("silent", 4),))
    made.step(0.0, ev.Elected(1, lemons=(record,), wall_s=1e9))
    made.step(1.0, hello("n0"))
    made.step(1.0, hello("n1"))
    (row, _) = view.nodes(made, 1.0)
    assert (row.standing, row.reason) == ("last choice", "quarantined: 4 x silent")
    for now in range(10, 100, 10):
        beat(made, float(now), 0)
    effects = made.step(101.0, ev.Tick())
    assert any(isinstance(each, fx.Note) and each.kind == "unquarantined" for each in effects)
    assert view.nodes(made, 101.0)[0].standing == "ok"
    assert view.nodes(made, 101.0)[0].score > 3


def test_a_release_deletes_the_history() -> None:
    made = Cluster(S)
    made.step(0.0, ev.Elected(1, lemons=(LemonRecord("n0", 4.0, 1e9, 2e9, "r"),), wall_s=1e9))
    made.step(1.0, hello("n0"))
    effects = made.step(2.0, ev.QuarantineReleased("n0", "mended"))
    assert [each.history.score for each in effects if isinstance(each, fx.StoreHistory)] == [0.0]
    assert view.nodes(made, 2.0)[0].standing == "ok"
    notes = made.step(3.0, ev.QuarantineReleased("nobody", "mended"))
    assert [each.kind for each in notes if isinstance(each, fx.Note)][:1] == ["not_quarantined"]


def test_holds_grow_up_to_their_most_and_are_forgotten_with_the_window() -> None:
    made = cluster(1)
    node, holds = made.state.nodes["n0"], []
    for times in range(1, 13):
        made.step(float(times), ev.NodeBroken("n0", 1, "reset"))
        made.step(float(times), hello("n0"))
        holds.append(max(0.0, node.held_until - times))
    assert holds[:6] == [0.0, 0.0, 0.0, 10.0, 20.0, 40.0]
    assert max(holds) == S.hold_max_s
    late = 20.0 + S.flap_window_s
    made.step(late, ev.NodeBroken("n0", 1, "reset"))
    made.step(late, hello("n0"))
    assert len(node.returns) == 1


def test_health_has_reasons_and_the_worst_wins() -> None:
    assert health.level(health.assess(HealthFacts(nodes=4), S)) is Level.HEALTHY
    found = health.assess(HealthFacts(nodes=4, lost=("a",)), S)
    assert health.level(found) is Level.DEGRADED
    assert found[0].reason == "1 of 4 nodes are lost: a"
    assert health.level(health.assess(HealthFacts(nodes=4, lost=("a", "b", "c")), S)) is Level.CRITICAL
    found = health.assess(HealthFacts(nodes=4, lost=("a",), dcs="no quorum", parked=(("j", "waits"),)), S)
    assert [each.kind for each in found] == ["dcs_unavailable", "job_parked", "nodes_lost"]
    assert [each.job for each in found] == ["", "j", ""]
    assert health.level(health.assess(HealthFacts(incidents=S.incidents_critical + 1), S)) is Level.CRITICAL


def test_an_etcd_that_refuses_writes_is_said_as_soon_as_it_has_refused_one_twice() -> None:
    made = cluster(0)
    (first,) = (each for each in made.step(1.0, hello("n0")) if isinstance(each, fx.StoreNode))
    made.step(2.0, ev.StoreFailed(first.ticket, "somebody else changed it"))
    made.step(2.0 + S.retry_s / 2, ev.Tick())
    assert not [each for each in made.state.findings.values() if each.kind == "dcs_unavailable"]
    (again,) = (each for each in made.step(2.0 + S.retry_s, ev.Tick()) if isinstance(each, fx.StoreNode))
    made.step(3.0 + S.retry_s, ev.StoreFailed(again.ticket, "is full"))
    effects = made.step(5.0 + S.retry_s, ev.Tick())
    (told,) = (each for each in effects if isinstance(each, fx.Alert))
    assert told.reason == "etcd takes no writes (is full): training goes on, decisions wait"
    (third,) = (each for each in effects if isinstance(each, fx.StoreNode))
    made.step(6.0 + S.retry_s, ev.Stored(third.ticket))
    (over,) = (each for each in made.step(8.0 + S.retry_s, ev.Tick()) if isinstance(each, fx.Alert))
    assert over.resolved


def test_a_health_rule_that_raises_is_a_finding_and_what_it_found_before_stays() -> None:
    def broken(facts: HealthFacts, s: CoreSettings) -> list[Finding]:
        raise ZeroDivisionError("by zero")

    facts = HealthFacts(nodes=4, lost=("a",), dcs="no quorum")
    before = health.assess(facts, S)
    found = health.assess(HealthFacts(nodes=4, dcs="no quorum"), S, before, {**RULES, "nodes_lost": broken})
    assert [each.kind for each in found] == ["dcs_unavailable", "health_rule_failed", "nodes_lost"]
    assert (found[1].subject, "ZeroDivisionError: by zero" in found[1].reason) == ("nodes_lost", True)
    again = health.assess(HealthFacts(nodes=4), S, found)
    assert again == (), "once the rule runs again, nothing of it is left"


def test_a_critical_cluster_pauses_by_policy_and_goes_on() -> None:
    made = cluster(1, pause_when_critical=True)
    made.step(1.0, ev.DcsChanged(False, "no quorum"))
    made.step(2.0, ev.Tick())
    assert made.state.paused
    made.step(3.0, ev.DcsChanged(True))
    made.step(5.0, ev.Tick())
    assert not made.state.paused


def test_a_job_that_waits_says_what_is_critical_now() -> None:
    made = cluster(1, pause_when_critical=True)
    made.step(1.0, ev.DcsChanged(False, "no quorum"))
    made.step(2.0, ev.Tick())
    made.step(3.0, ev.JobSubmitted(JobSpec("j", ("train.py",), "/", nnodes_min=2, nnodes_max=2)))
    assert "no quorum" in made.state.jobs["j"].reason
    made.step(4.0, ev.DcsChanged(False, "a certificate has expired"))
    made.step(6.0, ev.Tick())
    assert "a certificate has expired" in made.state.jobs["j"].reason


def sights(**failed: int) -> dict[str, PeerSight]:
    return {node: PeerSight(node, 3, times, "no answer" if times else "") for node, times in failed.items()}


def test_lines_tell_both_sides_words() -> None:
    said = {"a": sights(b=3, c=0), "b": sights(a=0, c=1), "c": sights(a=0, b=0)}
    found = network.lines(said, ("a", "b", "c"))
    assert [(line.one, line.other, line.kind) for line in found] == [
        ("a", "b", "one-way"),
        ("b", "c", "lossy"),
    ]
    assert found[0].text == "a does not reach b (3 of 3 tries failed: no answer); b reaches a"
    silent = network.lines({"a": sights(b=3)}, ("a", "b"))
    assert (silent[0].kind, silent[0].text.endswith("b has said nothing of a")) == ("cut", True)


@pytest.mark.parametrize(
    ("ring", "pairs", "gone"),
    [
        ("ab", ["ab"], ["b"]),  # of equals, the one without rank 0
        ("abcd", ["ac", "ad", "bc", "bd"], ["d", "c"]),  # halves: the side of rank 0 stays
        ("abcd", ["ab", "ac", "ad"], ["a"]),  # the larger side stays, rank 0 or not
        ("abcde", ["ad", "ae", "bd", "be", "cd", "ce"], ["e", "d"]),
        ("abc", [], []),
    ],
)
def test_who_has_to_go(ring: str, pairs: list[str], gone: list[str]) -> None:
    bad = [network.NodeConnection(pair[0], pair[1], "cut", "") for pair in pairs]
    assert network.untangle(tuple(ring), bad) == gone
    assert (
        network.untangle(tuple(ring), [network.NodeConnection(p[0], p[1], "lossy", "") for p in pairs]) == []
    )


def test_an_agent_whose_timeouts_contradict_ours_is_refused_with_the_mend() -> None:
    made = cluster(0)
    wrong: tuple[tuple[dict[str, float], str], ...] = (
        ({"process_timeout_s": 40.0}, "--process-timeout-s 40 must be less than --node-timeout-s 30"),
        ({"process_timeout_s": 6.0}, "--process-timeout-s 6 must be less than --broken-grace-s 6"),
        ({"fence_after_s": 20.0}, "--node-timeout-s 30 must be less than --fence-after-s 20"),
        ({"orphan_timeout_s": 10.0}, "--node-timeout-s 30 must be less than --orphan-timeout-s 10"),
    )
    for more, words in wrong:
        (refused,) = made.step(0.0, hello("n9", 1, **more))
        assert isinstance(refused, fx.Refuse) and not refused.retry
        assert words in refused.reason
    (admitted, *_) = made.step(
        0.0, hello("n9", process_timeout_s=5.0, fence_after_s=120.0, orphan_timeout_s=60.0)
    )
    assert isinstance(admitted, fx.Admit)


def test_every_rule_names_settings_that_exist() -> None:
    ours = {field.name for field in dataclasses.fields(CoordinatorSettings)}
    theirs = {field.name for field in dataclasses.fields(AgentSettings)}
    for rules, known in (
        (timeout_constraints.COORDINATOR, ours),
        (timeout_constraints.AGENT, theirs),
        (timeout_constraints.BOTH, ours | theirs),
    ):
        assert {name for rule in rules for name in (rule.low, rule.high)} <= known
        assert timeout_constraints.violation(rules, CoordinatorSettings(), AgentSettings()) == ""


def test_an_agent_that_dies_again_and_again_does_not_relaunch_a_plain_job_for_ever() -> None:
    plain = strategies.Situation(
        elastic=False, barrier=False, exception="", repeats=strategies.NODE_RESTARTS_MAX, restarts=40,
        max_restarts=3, dead=1, nodes_up=True, spares=False,
    )  # fmt: skip
    assert strategies.choose(Cause.NODE_RESTARTED, plain)[0] is Strategy.RELAUNCH
    spent = dataclasses.replace(plain, repeats=strategies.NODE_RESTARTS_MAX + 1)
    strategy, reason = strategies.choose(Cause.NODE_RESTARTED, spent)
    assert (strategy, "11 times within an hour" in reason) == (Strategy.STOP, True)
    elastic = dataclasses.replace(spent, elastic=True)
    assert strategies.choose(Cause.NODE_RESTARTED, elastic)[0] is Strategy.RESPAWN
