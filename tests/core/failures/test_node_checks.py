"""Nodes are checked before they take ranks where administrators want it; a check never wedges a job."""

from __future__ import annotations

from typing import Any

import pytest

from controlplane.analysis import node_checks
from controlplane.core import view
from controlplane.core.records import effects as fx
from controlplane.core.records import events as ev
from controlplane.core.records.model import JobPhase, PeerAddress
from controlplane.core.records.node_checks import BadPart, NodeJudged
from controlplane.core.records.timing import CoreSettings
from holdfast.node_check.reading import NodeReading
from tests.core.elasticity.test_elastic import notes
from tests.transcripts.language import Play

ACT = CoreSettings(check_nodes="act", shrink_after_s=5.0)
REPORT = CoreSettings(check_nodes="report")
SLOW_WORDS = "its check found: cpu.gemm.float32: 100% slower than the mean of 3 peers (all of them are equal)"
WRONG = "3 of 16384 entries of a product are wrong"
FORMED = ("all forming gen=1", "all running gen=1 step=0", "started", "stored")


class Checked(Play):
    """A transcript whose nodes answer checks: with 100 flop/s, unless `found` has another speed, or why the
    part is broken. Those in `silent` do not answer."""

    def __init__(self, settings: CoreSettings) -> None:
        super().__init__(settings)
        self.found: dict[str, float | str] = {}
        self.silent: set[str] = set()
        self.out: list[fx.CheckNode | fx.JudgeNode] = []
        self.orders: list[fx.CheckNode] = []

    def step(self, event: Any) -> list[fx.Effect]:
        effects = super().step(event)
        self.out += [each for each in effects if isinstance(each, fx.CheckNode | fx.JudgeNode)]
        self.orders += [each for each in effects if isinstance(each, fx.CheckNode)]
        return effects

    def do(self, *commands: str) -> list[str]:
        told = []
        for command in commands:
            told += super().do(command)
            told += self.answer()
        return told

    def answer(self) -> list[str]:
        """Answer what is asked of nodes that are not silent, and of the shell."""
        self.lines = []
        while ready := [each for each in self.out if each.node not in self.silent]:
            asked = ready[0]
            self.out.remove(asked)
            if isinstance(asked, fx.JudgeNode):
                self.feed(node_checks.answer(asked))
            else:
                self.feed(self.checked(asked))
        return self.lines

    def checked(self, order: fx.CheckNode, reason: str = "") -> ev.NodeChecked:
        found = self.found.get(order.node, 100.0)
        value, broken = (None, found) if isinstance(found, str) else (found, "")
        readings = (NodeReading("cpu.gemm.float32", value, "flop/s", broken=broken),)
        incarnation = self.hosts[order.node].incarnation
        return ev.NodeChecked(order.node, incarnation, order.round, () if reason else readings, reason=reason)

    def standing(self, node: str) -> tuple[str, str]:
        (row,) = [each for each in view.nodes(self.cluster, self.now) if each.node == node]
        return row.standing, row.reason


def stage(nodes: str, settings: CoreSettings = ACT, **found: float | str) -> Checked:
    """Nodes that join one after another and answer their checks together; then a job is submitted."""
    made = Checked(settings)
    made.found, made.silent = dict(found), set(nodes)
    made.do("elect", *(f"hello {node}" for node in nodes), "wait 0.01")
    assert [each.node for each in made.orders] == list(nodes)
    made.silent = set()
    made.answer()
    return made


def trained(nodes: str, submit: str, settings: CoreSettings = ACT, **found: float | str) -> Checked:
    """The same, with a job that trains."""
    made = stage(nodes, settings, **found)
    made.do(submit, "stored", "all starting", "all ready held=-1", "stored", *FORMED)
    return made


def seats(made: Play) -> list[str]:
    return [seat.node for seat in made.etcd.generations["j"].seats]


def test_by_default_nothing_is_checked() -> None:
    made = Checked(CoreSettings())
    made.do("elect", "hello a", "wait 5", "submit nodes=1", "stored")
    assert made.orders == [] and seats(made) == ["a"]


def test_a_node_takes_no_ranks_before_its_check_is_over_and_then_those_of_the_job() -> None:
    made = Checked(ACT)
    made.silent = {"a"}
    made.do("elect", "hello a", "submit nodes=1", "live 1")
    assert made.standing("a") == ("unchecked", "it is being checked: it is new here")
    job = made.cluster.state.jobs["j"]
    assert "not to be used: a (it is being checked: it is new here)" in job.reason
    made.silent = set()
    told = made.answer()
    assert "node_checked a: it is new here: nothing was found" in notes(told)
    made.do("stored")
    assert seats(made) == ["a"] and made.standing("a") == ("ok", "")


def test_a_slow_node_gets_no_ranks_with_act_until_a_later_check_finds_it_in_order() -> None:
    made = stage("abcd", d=50.0)
    assert made.standing("d") == ("unfit", SLOW_WORDS)
    made.do("submit nodes=4", "stored", "live 2")
    job = made.cluster.state.jobs["j"]
    assert job.phase is JobPhase.PENDING and f"not to be used: d ({SLOW_WORDS})" in job.reason
    (found,) = [each for each in made.cluster.state.findings.values() if each.kind.startswith("node_part")]
    assert (found.kind, found.subject) == ("node_part_slow", "d: cpu.gemm.float32")
    made.do("live 590")
    assert len(made.orders) == 4
    made.found["d"] = 99.0
    made.do("live 20", "stored")
    assert {each.node for each in made.orders[4:]} == {"d"}
    assert made.standing("d") == ("ok", "") and sorted(seats(made)) == ["a", "b", "c", "d"]


def test_with_report_a_slow_node_is_a_finding_and_gets_ranks() -> None:
    made = stage("abcd", REPORT, d=50.0)
    made.do("submit nodes=4", "stored", "live 1")
    kinds = [each.kind for each in made.cluster.state.findings.values()]
    assert "node_part_slow" in kinds and "d" in seats(made)


def test_a_part_that_computes_wrong_needs_no_peers() -> None:
    made = stage("a", a=WRONG)
    assert made.standing("a") == ("unfit", f"its check found: cpu.gemm.float32: {WRONG}")
    made.found["a"] = 100.0
    made.do("live 605")
    assert made.standing("a") == ("ok", "")


def test_of_a_slow_part_only_peers_can_say_that_it_is_in_order() -> None:
    made = stage("abcd", d=50.0)
    made.do("stored", "crash", "elect", "hello a", "hello d", "wait 0.01")
    made.found["d"] = 100.0
    assert made.standing("d")[0] == "unfit"  # etcd has it, and two nodes are too few to disprove it


def test_what_another_process_may_have_caused_keeps_nobody_away() -> None:
    made = Checked(ACT)
    made.silent = {"a"}
    made.do("elect", "hello a", "wait 0.01")
    (order,) = made.orders
    made.feed(made.checked(order))
    doubtful = BadPart("cpu.gemm.float32", "node_part_slow", 0.5, "cpu.gemm.float32: 30% slower")
    made.feed(NodeJudged("a", order.round, (doubtful,)))
    assert made.standing("a") == ("ok", "")
    made.do("live 2")
    assert [each.kind for each in made.cluster.state.findings.values()] == ["node_part_slow"]


def test_a_person_releases_a_node() -> None:
    made = stage("a", a=WRONG)
    told = notes(made.do("release a"))
    assert "unquarantined a: released: by hand" in told and made.standing("a") == ("ok", "")
    made.do("stored", "crash", "elect", "live 1")
    assert made.cluster.state.nodes["a"].check.bad == ()


@pytest.mark.parametrize("settings", [ACT, REPORT])
def test_a_check_without_an_answer_is_given_up_and_the_node_is_used(settings: CoreSettings) -> None:
    made = Checked(settings)
    made.silent = {"a"}
    made.do("elect", "hello a", "submit nodes=1", "live 119")
    assert made.standing("a")[0] == "unchecked" and len(made.orders) > 5  # it is repeated
    told = notes(made.do("live 3"))
    assert "node_unchecked a: no answer within 120 s; it is used all the same" in told
    made.do("stored")
    assert seats(made) == ["a"] and made.standing("a") == ("ok", "")
    (found,) = [each for each in made.cluster.state.findings.values() if each.kind == "node_unchecked"]
    assert found.reason == "its check brought nothing: no answer within 120 s"
    late = notes_of(made, made.checked(made.orders[0]))
    assert [line for line in late if line.startswith("stale_check a: round")]


def test_readings_that_nobody_judges_are_given_up_too() -> None:
    made = Checked(ACT)
    made.silent = {"a"}
    made.do("elect", "hello a", "wait 0.01")
    made.feed(made.checked(made.orders[0]))
    assert [type(each) for each in made.out if each.node == "a"][-1] is fx.JudgeNode
    told = notes(made.do("live 7"))
    assert "node_unchecked a: its readings were not judged in time; it is used all the same" in told


def test_a_check_that_fails_is_told_and_the_node_is_used() -> None:
    made = Checked(ACT)
    made.silent = {"a"}
    made.do("elect", "hello a", "wait 0.01")
    told = notes_of(made, made.checked(made.orders[0], reason="torch is not installed here"))
    assert "node_unchecked a: torch is not installed here; it is used all the same" in told
    assert made.standing("a") == ("ok", "")


def test_the_first_nodes_of_a_cluster_are_judged_with_those_that_follow() -> None:
    made = Checked(ACT)
    made.found, made.silent = {"a": 50.0}, set("abcd")
    made.do("elect", *(f"hello {node}" for node in "abcd"), "wait 0.01")
    made.silent = set("bcd")
    made.answer()
    assert made.standing("a")[0] == "unchecked"  # answered, and not judged without peers
    made.silent = set()
    made.answer()
    assert made.standing("a")[0] == "unfit" and made.standing("b")[0] == "ok"


def test_a_silent_node_does_not_keep_the_others_from_being_judged() -> None:
    made = Checked(ACT)
    made.silent = {"a"}
    made.do("elect", "hello a", "hello b", "live 122")
    assert made.standing("b") == ("ok", "") and made.standing("a") == ("ok", "")


def test_nothing_is_measured_beside_a_living_rank_and_its_job_does_not_wait() -> None:
    made = trained("ab", "submit nodes=2 nproc=2")
    asked = len(made.orders)
    members = [seat.member for seat in made.etcd.generations["j"].seats if seat.node == "b"]
    made.do(f"report {members[0]} exited cause=signaled signal=9", "live 3")
    launched = [name for name in made.cluster.state.jobs["j"].by_node["b"] if name not in members]
    assert launched and len(made.orders) == asked  # the other rank of b lives
    assert made.standing("b")[0] == "unchecked"


def test_a_node_whose_last_rank_died_is_checked_before_it_takes_it_again_and_nobody_shrinks() -> None:
    made = trained("ab", "submit nodes=1 most=2 nproc=1")
    made.silent = {"b"}
    (member,) = [seat.member for seat in made.etcd.generations["j"].seats if seat.node == "b"]
    told = made.do(f"report {member} exited cause=signaled signal=9", "live 20")
    assert made.orders[-1].node == "b" and made.orders[-1].fresh_s == 0.0
    assert not [line for line in told if line.startswith("Launch b")]
    job = made.cluster.state.jobs["j"]
    assert job.seat_nodes() == ("a", "b")  # a check is over soon: the job does not go on without b
    made.silent = set()
    assert [line for line in made.answer() + made.do("live 2") if line.startswith("Launch b")]


def test_an_idle_node_takes_the_ranks_meanwhile() -> None:
    made = trained("abc", "submit nodes=2 nproc=1")
    made.silent = {"b"}
    (member,) = [seat.member for seat in made.etcd.generations["j"].seats if seat.node == "b"]
    told = made.do(f"report {member} exited cause=signaled signal=9", "live 5")
    assert [line for line in told if line.startswith("Launch c")]


def test_a_cordoned_node_is_left_alone_until_it_is_not() -> None:
    made = stage("a")
    made.do("cordon a", "lose a", "hello a launcher=a-2 incarnation=2", "live 300")
    assert len(made.orders) == 1
    made.do("uncordon a", "live 1")
    assert len(made.orders) == 2 and made.standing("a") == ("ok", "")


def test_a_node_that_restarts_is_checked_anew_and_an_order_that_was_lost_is_repeated() -> None:
    made = stage("ab")
    assert [each.fresh_s > 0 for each in made.orders] == [True, True]
    made.silent = {"a"}
    made.do(
        "lose a",
        "hello a launcher=a-2 incarnation=2",
        "live 1",
        "break a",
        "hello a launcher=a-2 incarnation=2",
        "wait 0.01",
    )
    mine = [each for each in made.orders if each.node == "a"]
    assert [each.fresh_s > 0 for each in mine] == [True, False, False]
    assert mine[1].round == mine[2].round > mine[0].round


def test_the_next_leader_checks_no_node_on_which_ranks_live() -> None:
    made = trained("abc", "submit nodes=2 nproc=1")
    asked = len(made.orders)
    made.do("stored", "crash", "elect", "hello a", "hello b", "hello c", "live 2")
    assert [each.node for each in made.orders[asked:]] == ["c"]
    assert made.orders[-1].fresh_s > 0  # what was measured before the change of leader does


def notes_of(made: Checked, event: Any) -> list[str]:
    """The notes that follow an event."""
    made.lines = []
    made.feed(event)
    return notes(made.lines)


def test_links_are_measured_to_idle_nodes_only() -> None:
    """a and b have ranks; n3 has no peer service, n4 is cordoned, n5 is gone."""
    made = trained("ab", "submit nodes=2 nproc=1", REPORT)
    made.do("hello n3", *(f"hello {node} peer={node}:1" for node in ("n4", "n5", "n6", "n7")), "cordon n4")
    made.do("break n5")
    made.orders.clear()
    made.do("hello n8 peer=n8:1")
    (order,) = made.orders
    assert order.node == "n8"
    assert order.peers == (PeerAddress("n6", "n6:1"), PeerAddress("n7", "n7:1"))
    made.do("hello n9 peer=n9:1", "hello n10 peer=n10:1")
    assert len(made.orders[-1].peers) == 3  # and no more
