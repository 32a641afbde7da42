"""The bytes of every message between an agent and its launcher, and what each end refuses."""

from __future__ import annotations

import json
from typing import Any

import pytest

from holdfast.ipc.messages import launcher as msg
from holdfast.ipc.messages.fields import BadMessage, Record

RUN = '{"op":"run","member":"j.1","argv":["t.py"],"env":{"A":"1"},"cwd":"/w","module":false,"no_python":true'
COMMANDS: list[tuple[Record, str]] = [
    (msg.AttachCommand(1), '{"op":"attach","version":1}'),
    (msg.SpawnCommand("j.1", "/log"), '{"op":"spawn","member":"j.1","log":"/log"}'),
    (msg.RunCommand("j.1", ["t.py"], {"A": "1"}, "/w", False, True), RUN + "}"),
    (
        msg.RunCommand("j.1", ["t.py"], {"A": "1"}, "/w", False, True, {"B": "2"}),
        RUN + ',"inherit":{"B":"2"}}',
    ),
    (msg.SignalCommand("j.1", 9), '{"op":"signal","member":"j.1","signal":9}'),
    (msg.StacksCommand("j.1"), '{"op":"stacks","member":"j.1"}'),
    (msg.ForgetCommand("j.1"), '{"op":"forget","member":"j.1"}'),
    (
        msg.JobOverCommand("j", True, "it finished"),
        '{"op":"over","job":"j","ok":true,"reason":"it finished"}',
    ),
    (msg.EndCommand(), '{"op":"end"}'),
]
REPORTS: list[tuple[Record, str]] = [
    (
        msg.LauncherHello(1, "l-7", (msg.ProcessEntry("j.1", 7, "warm"),)),
        '{"op":"hello","version":1,"launcher":"l-7","members":[{"member":"j.1","pid":7,"state":"warm"}]}',
    ),
    (msg.MemberWarm("j.1", 7), '{"op":"warm","member":"j.1","pid":7}'),
    (msg.MemberRunning("j.1", 7), '{"op":"running","member":"j.1","pid":7}'),
    (
        msg.MemberRunning("j.1", 7, ("PYTHONHASHSEED",)),
        '{"op":"running","member":"j.1","pid":7,"fresh_for":["PYTHONHASHSEED"]}',
    ),
    (
        msg.MemberExited("j.1", 7, 3, None, 5),
        '{"op":"exited","member":"j.1","pid":7,"code":3,"signal":null,"at_ns":5}',
    ),
    (msg.MemberFailed("j.1", "no space"), '{"op":"failed","member":"j.1","message":"no space"}'),
    (
        msg.NativeStacks("j.1", "", "thread 7", "its process sleeps (S)"),
        '{"op":"stood","member":"j.1","reason":"","native":"thread 7","process":"its process sleeps (S)"}',
    ),
    (msg.LauncherStopping(), '{"op":"stopping"}'),
    (msg.LauncherNote("x is not preloaded"), '{"op":"note","message":"x is not preloaded"}'),
]


@pytest.mark.parametrize(("record", "frame"), COMMANDS, ids=lambda value: type(value).__name__)
def test_what_an_agent_sends_stays_byte_for_byte(record: Record, frame: str) -> None:
    assert json.dumps(record.encode(), separators=(",", ":")) == frame
    assert msg.launcher_command(json.loads(frame)) == record


@pytest.mark.parametrize(("record", "frame"), REPORTS, ids=lambda value: type(value).__name__)
def test_what_a_launcher_sends_stays_byte_for_byte(record: Record, frame: str) -> None:
    assert json.dumps(record.encode(), separators=(",", ":")) == frame
    assert msg.from_launcher(json.loads(frame)) == record


def test_every_message_has_its_bytes_here() -> None:
    assert {type(record) for record, _ in COMMANDS} == set(msg.LauncherCommand.__args__)
    assert {type(record) for record, _ in REPORTS} == set(msg.LauncherMessage.__args__)


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        ({"op": "nonsense"}, "unknown op 'nonsense'"),
        ({"op": "spawn", "member": 7, "log": "/log"}, "spawn: member must be a string, not 7"),
        ({"op": "spawn", "member": "j.1"}, "spawn: log must be a string, not None"),
        ({"op": "signal", "member": "j.1", "signal": "KILL"}, "signal: signal must be an integer"),
        ({"op": "over", "ok": True}, "over: job must be a string, not None"),
    ],
)
def test_a_command_that_is_impossible_is_refused_by_name(frame: dict[str, Any], words: str) -> None:
    with pytest.raises(BadMessage, match=words):
        msg.launcher_command(frame)


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        ({"op": "spawning", "member": "j.1"}, "unknown op 'spawning'"),
        ({"op": "hello", "launcher": "l"}, "hello: members must be a list, not None"),
        ({"op": "hello", "launcher": "l", "members": [7]}, "hello: a member must be an object, not 7"),
        (
            {"op": "hello", "launcher": "l", "members": [{"member": "j.1", "state": "warm"}]},
            "hello: pid must be an integer, not None",
        ),
        ({"op": "warm", "pid": 7}, "warm: member must be a string, not None"),
        (
            {"op": "running", "member": "j.1", "pid": 7, "fresh_for": "A"},
            "running: fresh_for must be a list of strings, not 'A'",
        ),
        (
            {"op": "exited", "member": "j.1", "pid": 7, "code": "x", "at_ns": 5},
            "exited: code must be an integer, not 'x'",
        ),
    ],
)
def test_a_report_that_is_impossible_is_refused_by_name(frame: dict[str, Any], words: str) -> None:
    with pytest.raises(BadMessage, match=words):
        msg.from_launcher(frame)
