"""The bytes of every message between a rank and its agent, and what each end refuses."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

from controlplane.core.records.model import WHOLE_STATE, MemberPhase
from controlplane.core.records.words import NEVER_STEP
from holdfast.ipc.messages import agent, gradients, profiles, rank, replicas
from holdfast.ipc.messages.fields import BadMessage, Record, by_op

GENERATION = {"number": 3, "term": 1, "seats": []}
FROM_RANK: list[tuple[Record, str]] = [
    (
        rank.Hello(1, "j.1", 7, "h:1", "ready", 2, 5, 4, 2, None),
        '{"op":"hello","version":1,"member":"j.1","pid":7,"store":"h:1","phase":"ready","generation":2,"step":5,'
        '"held_step":4,"held_generation":2,"ended_step":null}',
    ),
    (rank.Beat("running", 2, 5), '{"op":"beat","phase":"running","generation":2,"step":5}'),
    (rank.Tracked(1000, "tp0"), '{"op":"tracked","bytes":1000,"shard":"tp0"}'),
    (
        rank.Ready(2, -1, 0, 6, 5),
        '{"op":"ready","generation":2,"held_step":-1,"held_generation":0,"ended_step":6,"step":5}',
    ),
    (rank.Forming(3), '{"op":"forming","generation":3}'),
    (rank.Forming(3, "script"), '{"op":"forming","generation":3,"activity":"script"}'),
    (rank.Running(3, 5), '{"op":"running","generation":3,"step":5}'),
    (
        rank.Started(3, 5, 0.5, 0.25, 1.0, "random numbers of rank 2"),
        '{"op":"started","generation":3,"step":5,"form_s":0.5,"restore_s":0.25,"first_step_s":1.0,'
        '"inexact":"random numbers of rank 2"}',
    ),
    (rank.Broken(3, "a peer left"), '{"op":"broken","generation":3,"message":"a peer left"}'),
    (rank.Snapshot(3, 5, 1, 0.5), '{"op":"snapshot","generation":3,"step":5,"slot":1,"stall_s":0.5}'),
    (
        rank.Snapshot(3, 5, 1, 0.5, "after every step"),
        '{"op":"snapshot","generation":3,"step":5,"slot":1,"stall_s":0.5,"spacing":"after every step"}',
    ),
    (rank.Checkpoint("3.5.1", 5, 3), '{"op":"checkpoint","request":"3.5.1","step":5,"generation":3}'),
    (
        rank.SnapshotSkipped(3, 5, "no room"),
        '{"op":"snapshot_skipped","generation":3,"step":5,"reason":"no room"}',
    ),
    (rank.Finished(3, 9), '{"op":"finished","generation":3,"step":9}'),
    (
        rank.Raised(1, "j.1", 7, "ValueError", "no", "Traceback ..."),
        '{"op":"raised","version":1,"member":"j.1","pid":7,"exception":"ValueError","message":"no",'
        '"traceback":"Traceback ..."}',
    ),
    (rank.Report(5, {"loss": 0.5}), '{"op":"report","step":5,"values":{"loss":0.5}}'),
    (rank.RestoreFailed(3, "torn"), '{"op":"restore_failed","generation":3,"reason":"torn"}'),
    (
        rank.GroupProgress(4, (rank.Group("dp", 8, 7, "ALLREDUCE", 64),), "", "Thread 0x1"),
        '{"op":"standing","round":4,"groups":[{"group":"dp","sequence":8,"ended":7,"operation":"ALLREDUCE",'
        '"bytes":64}],"trouble":"","threads":"Thread 0x1","record":""}',
    ),
    (
        rank.Fault(3, 5, "nan", "loss is NaN", rollback=True),
        '{"op":"fault","generation":3,"step":5,"kind":"nan","reason":"loss is NaN","rollback":true}',
    ),
    (
        gradients.Gradients(
            3,
            5,
            1,
            9,
            0.5,
            0.25,
            0,
            1,
            0,
            0,
            0,
            8,
            2.5,
            "known",
            rows=(gradients.GradientRow("fc.weight", 9, 0.5, 0.1, 0.2, -1.0, 1.0, 1, 0, 0, -1.0),),
        ),
        '{"op":"gradients","generation":3,"step":5,"parameters":1,"numel":9,"norm":0.5,"local_norm":0.25,'
        '"local_bad":0,"zeros":1,"nans":0,"infs":0,"vanishing":0,"samples":8,"loss":2.5,"loss_state":"known",'
        '"sharded":false,"clipped":false,"skipped":0,"left_out":"","trace":"","origin":"","words":"",'
        '"rows":[{"name":"fc.weight","numel":9,"norm":0.5,"mean":0.1,"deviation":0.2,"least":-1.0,"most":1.0,'
        '"zeros":1,"nans":0,"infs":0,"usual":-1.0}]}',
    ),
    (
        replicas.ReplicasCompared(
            3,
            8,
            4,
            (0, 1, 2),
            (1,),
            ("model.w",),
            0,
            ("rank 1: f",),
            replay="done",
            passes=(replicas.Pass("exchanged", 1, "c", (2,), ("f",)),),
            gradients="agree",
        ),
        '{"op":"replicas","generation":3,"step":8,"agreed_step":4,"ranks":[0,1,2],"odd":[1],'
        '"tensors":["model.w"],"more":0,"digests":["rank 1: f"],"buffers":false,"uncovered":[],'
        '"replay":"done","passes":[{"kind":"exchanged","shift":1,"common":"c","ranks":[2],"digests":["f"]}],'
        '"gradients":"agree"}',
    ),
    (profiles.ProfileTaken("1-2"), '{"op":"profile_taken","request":"1-2","recorded":false}'),
    (
        profiles.Profiled("1-2", 3, "", "/x.gz", 9, 5, 2, 1.5, 0.5, (profiles.Operator("mm", 4, 1.0, 0.5),)),
        '{"op":"profiled","request":"1-2","generation":3,"reason":"","path":"/x.gz","bytes":9,"first_step":5,'
        '"steps":2,"cpu_s":1.5,"device_s":0.5,"operators":[{"name":"mm","calls":4,"cpu_s":1.0,"device_s":0.5}],'
        '"no_table":""}',
    ),
]
REPLICAS = {"op": "replicas", "generation": 1, "step": 8, "agreed_step": 4, "more": 0, "buffers": False}
FROM_AGENT: list[tuple[Record, str]] = [
    (
        agent.Profile("1-2", 3, 2, "/x.gz", 60.0, 1000),
        '{"op":"profile","request":"1-2","generation":3,"steps":2,"path":"/x.gz","timeout_s":60.0,'
        '"bytes_max":1000}',
    ),
    (
        agent.Welcome(1, 1.0, 5.0),
        '{"op":"welcome","version":1,"beat_interval_s":1.0,"process_timeout_s":5.0}',
    ),
    (agent.Refused("no such member"), '{"op":"refused","reason":"no such member"}'),
    (agent.Noted(), '{"op":"noted"}'),
    (agent.ArenaMade("/shm/j.1.arena", 4096), '{"op":"arena","path":"/shm/j.1.arena","slot_bytes":4096}'),
    (agent.ArenaFailed("full"), '{"op":"arena_failed","reason":"full"}'),
    (
        agent.Interrupt(3, "j.2 died", "j/1"),
        '{"op":"interrupt","generation":3,"reason":"j.2 died","incident":"j/1"}',
    ),
    (
        agent.Halt(3, "it grows", gentle=True, keep=False, incident=""),
        '{"op":"interrupt","generation":3,"reason":"it grows","gentle":true,"keep":false,"incident":""}',
    ),
    (
        agent.Form(GENERATION, "j/1"),
        '{"op":"form","generation":{"number":3,"term":1,"seats":[]},"incident":"j/1"}',
    ),
    (agent.Release(5, -1, NEVER_STEP), '{"op":"release","step":5,"void":-1,"kept_from":1152921504606846976}'),
    (agent.Return(3), '{"op":"return","generation":3}'),
    (agent.Complete(ok=False, reason="j.2 raised"), '{"op":"complete","ok":false,"reason":"j.2 raised"}'),
    (
        agent.CheckpointTold("3.5.1", "committed", "", "5-3"),
        '{"op":"checkpoint_told","request":"3.5.1","outcome":"committed","reason":"","checkpoint":"5-3"}',
    ),
    (agent.ReportGroups(4), '{"op":"stand","round":4,"generation":0,"record_bytes_max":0}'),
]


@pytest.mark.parametrize(("record", "frame"), FROM_RANK, ids=lambda value: type(value).__name__)
def test_what_a_rank_says_stays_byte_for_byte(record: Record, frame: str) -> None:
    assert json.dumps(record.encode(), separators=(",", ":")) == frame
    assert type(record).decode(json.loads(frame)) == record
    if not isinstance(record, rank.Hello):
        assert rank.from_rank(json.loads(frame)) == record


@pytest.mark.parametrize(("record", "frame"), FROM_AGENT, ids=lambda value: type(value).__name__)
def test_what_an_agent_says_stays_byte_for_byte(record: Record, frame: str) -> None:
    assert json.dumps(record.encode(), separators=(",", ":")) == frame
    assert agent.from_agent(json.loads(frame)) == record


def test_every_message_has_its_bytes_here() -> None:
    assert {type(record) for record, _ in FROM_RANK} == {rank.Hello, *rank.RankMessage.__args__}
    assert {type(record) for record, _ in FROM_AGENT} == set(agent.AgentMessage.__args__)


def test_the_words_of_the_protocol_are_those_of_the_model() -> None:
    assert rank.WHOLE_STATE == WHOLE_STATE
    alive = set(MemberPhase) - {
        MemberPhase.LAUNCHED,
        MemberPhase.WARM,
        MemberPhase.RAISED,
        MemberPhase.EXITED,
    }
    assert {MemberPhase(phase) for phase in rank.PHASES} == alive


HELLO = json.loads(FROM_RANK[0][1])
GRADIENTS = gradients.Gradients(1, 1).encode()


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        ({"op": "nonsense"}, "unknown op 'nonsense'"),
        ({}, "unknown op None"),
        (HELLO, "unknown op 'hello'"),
        ({"op": "beat"}, "beat: step must be an integer, not None"),
        ({"op": "beat", "step": True}, "beat: step must be an integer, not True"),
        ({"op": "beat", "step": -2}, "beat: step must be an integer, not -2"),
        ({"op": "beat", "step": 1 << 62}, "beat: step must be an integer"),
        ({"op": "tracked", "bytes": 1, "shard": "a b"}, "shard 'a b' is not a shard id"),
        ({"op": "tracked", "bytes": 1, "shard": None}, "tracked: shard must be a string, not None"),
        (
            {"op": "ready", "generation": 1, "step": 1, "held_step": "x"},
            "ready: held_step must be an integer",
        ),
        ({"op": "forming", "generation": 1, "activity": 5}, "forming: activity must be a string, not 5"),
        ({"op": "started", "generation": 1, "step": 1, "form_s": "x"}, "started: form_s must be a number"),
        (
            {"op": "snapshot", "generation": 1, "step": 1, "stall_s": 1e300},
            "snapshot: stall_s must be a number",
        ),
        ({"op": "checkpoint", "request": "a b"}, "request 'a b' must be 1 to 120 letters, digits, . _ - :"),
        ({"op": "raised", "exception": "E"}, "raised: message must be a string, not None"),
        ({"op": "report", "step": 1, "values": []}, "report: values must map names to numbers"),
        ({"op": "standing"}, "standing: groups must be a list"),
        ({"op": "standing", "groups": [7]}, "standing: a group is not an object"),
        (
            {"op": "fault", "generation": 1, "step": 1, "kind": "odd"},
            "fault: kind 'odd' must be one of nan, user",
        ),
        (GRADIENTS | {"norm": "x"}, "gradients: norm must be a number, not 'x'"),
        (GRADIENTS | {"loss_state": "odd"}, "gradients: loss_state 'odd' must be one of 'known'"),
        (GRADIENTS | {"trace": 7}, "gradients: trace must be a string, not 7"),
        (GRADIENTS | {"rows": {}}, "gradients: rows must be a list"),
        (GRADIENTS | {"rows": [7]}, "gradients: a row is not an object"),
        (GRADIENTS | {"rows": [{"name": "w", "numel": 1.5}]}, "gradients: numel must be an integer, not 1.5"),
        ({**REPLICAS, "ranks": [-1]}, "replicas: ranks must be a list of ranks"),
        ({**REPLICAS, "ranks": "0"}, "replicas: ranks must be a list of ranks"),
        ({**REPLICAS, "replay": 7}, "replicas: replay must be a string, not 7"),
        ({**REPLICAS, "passes": [{}] * 9}, "replicas: passes must be a list of at most 8"),
        ({**REPLICAS, "passes": [7]}, "replicas: each pass must be an object"),
        ({**REPLICAS, "passes": [{"ranks": [1]}]}, "replicas: a pass names 1 ranks and 0 digests"),
        ({**REPLICAS, "passes": [{"shift": "x"}]}, "shift must be an integer, not 'x'"),
        ({**REPLICAS, "odd": [1.5]}, "replicas: odd must be a list of ranks"),
        ({**REPLICAS, "tensors": [1]}, "replicas: tensors must be a list of texts"),
        ({**REPLICAS, "step": None}, "replicas: step must be an integer"),
    ],
)
def test_a_field_of_a_rank_that_is_impossible_is_named(frame: dict[str, Any], words: str) -> None:
    with pytest.raises(BadMessage, match=words.replace(".", r"\.")):
        rank.from_rank(frame)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"phase": "dancing"},
            "hello: phase 'dancing' must be one of starting, ready, forming, running, finished",
        ),
        ({"phase": []}, r"hello: phase \[\] must be one of"),
        ({"store": "x" * 301}, "hello: store of 301 characters is not host:port"),
        ({"store": 7}, "hello: store must be a string, not 7"),
        ({"held_generation": None}, "hello: held_generation must be an integer, not None"),
        ({"ended_step": "9"}, "hello: ended_step must be an integer, not '9'"),
    ],
)
def test_a_hello_that_is_impossible_is_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(BadMessage, match=words):
        rank.Hello.decode({**HELLO, **change})


def test_an_older_sdk_is_understood() -> None:
    older = {name: HELLO[name] for name in ("op", "version", "member", "pid", "phase", "generation", "step")}
    hello = rank.Hello.decode({**older, "held_step": -1})
    assert (hello.store, hello.held_generation, hello.ended_step) == (None, 0, None)
    assert rank.from_rank({"op": "tracked", "bytes": 1, "unknown": 7}) == rank.Tracked(1, "all")
    assert rank.from_rank({"op": "started", "generation": 1, "step": 2}) == rank.Started(1, 2, 0.0, 0.0, 0.0)


def test_a_value_that_is_no_number_and_a_field_that_decides_nothing_refuse_no_message() -> None:
    values = {"a": 1, "b": "x", "c": True, "d": 1 << 62, **{f"n{i}": i for i in range(40)}}
    report = rank.from_rank({"op": "report", "step": 1, "values": values})
    assert report == rank.Report(1, {"a": 1.0, **{f"n{i}": float(i) for i in range(28)}})
    assert rank.from_rank({"op": "beat", "step": 1, "phase": 7, "generation": []}) == rank.Beat("", 0, 1)
    entry = {"group": 7, "sequence": -5, "ended": None, "bytes": -1}
    assert rank.from_rank({"op": "standing", "groups": [entry]}) == rank.GroupProgress(
        0, (rank.Group("7", -1, -1, "", 0),)
    )


@pytest.mark.parametrize(
    "frame",
    [
        {"op": "nonsense"},
        {"op": ["form"]},
        {"op": "welcome", "beat_interval_s": -1},
        {"op": "interrupt", "generation": "1"},
        {"op": "interrupt", "generation": None, "gentle": True},
        {"op": "arena", "path": None},
        {"op": "release", "step": None},
        {"op": "release", "step": 1, "void": "x"},
        {"op": "return", "generation": 1.5},
    ],
)
def test_a_rank_takes_no_order_that_is_impossible(frame: dict[str, Any]) -> None:
    with pytest.raises(BadMessage):
        agent.from_agent(frame)


def test_an_older_agent_is_understood() -> None:
    assert agent.from_agent({"op": "complete"}) == agent.Complete(ok=True, reason="no reason given")
    assert agent.from_agent({"op": "release", "step": 3}) == agent.Release(3, -1)
    assert agent.from_agent({"op": "refused"}) == agent.Refused("no reason given")
    long = agent.from_agent({"op": "interrupt", "generation": 1, "incident": "x" * 200})
    assert long == agent.Interrupt(1, "", "x" * 90)


@dataclass(frozen=True, slots=True)
class _Unreadable(Record):
    op = "unreadable"
    value: int


def test_how_messages_are_read_is_looked_up_where_their_table_is_made() -> None:
    assert by_op([rank.Beat]) == {"beat": rank.Beat}
    with pytest.raises(AttributeError, match="__metadata__"):
        by_op([_Unreadable])
