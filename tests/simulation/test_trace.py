"""Traces as people have them: whole, odd, wrong."""

from __future__ import annotations

import json
import math

import pytest

from controlplane.simulation import trace
from controlplane.simulation.failures import DAY_S, FailureInputError, Failures, spans


def event(node: object, day: object, kind: str = "start", **fault: str) -> dict[str, object]:
    return {"node_id": node, "event_time": day, "event_type": f"fault_{kind}", "fault_type": fault}


def read(*events: object, nodes: int = 4) -> Failures:
    return trace.read(json.dumps(list(events)), nodes)


def test_faults_become_outages_with_their_class() -> None:
    found = read(event("a", 1.0, Class="GPU"), event("b", 1.0), event("a", 2.5, "end"), event("b", 3, "end"))
    assert [(o.node, o.start_s / DAY_S, o.end_s / DAY_S, o.cause) for o in found.outages] == [
        (0, 1.0, 2.5, "GPU"),
        (1, 1.0, 3.0, "unknown"),
    ]
    assert found.notes == ()
    assert spans(found.outages, 4 * DAY_S) == [(0.0, 0), (DAY_S, 2), (2.5 * DAY_S, 1), (3 * DAY_S, 0)]


def test_what_is_odd_is_mended_and_told() -> None:
    found = read(
        event("a", 5, "end"), event("a", 4), event("a", 4.5), event("a", 6, "end"), event("b", 1, "end"),
        event("c", 9),
    )  # fmt: skip
    assert [(o.node, o.start_s / DAY_S, o.end_s / DAY_S) for o in found.outages] == [
        (0, 4.0, 6.0),
        (2, 9.0, math.inf),
    ]
    assert found.notes == (
        "2 entries were not in the order of time: sorted",
        "1 ends of faults that never began: left out",
        "1 faults that never end: the node stays down",
        "1 faults that overlap another of the same node: taken as one",
    )


def test_a_fault_that_ends_in_its_instant_still_breaks_the_job() -> None:
    (only,) = read(event("a", 1, "end"), event("a", 1)).outages
    assert only.end_s == only.start_s + 1.0
    assert not only.process


@pytest.mark.parametrize(
    ("events", "words"),
    [
        ([3], r"entry 0 \(line 1\) is a int: give an object with node_id, event_time, event_type"),
        ([event("a", 1), {"node_id": "a"}], r"entry 1 \(line 1\) has no event_time: add it"),
        ([event("a", "soon")], r"entry 0 \(line 1\): event_time 'soon' is no time: give days"),
        ([event("a", -1)], r"entry 0 \(line 1\): event_time -1 is no time"),
        ([event("a", True)], r"entry 0 \(line 1\): event_time True is no time"),
        ([event("", 1)], r"entry 0 \(line 1\): node_id '' names no node"),
        (
            [event("a", 1, "strat")],
            r"entry 0 \(line 1\): event_type 'fault_strat' is unknown: did you mean fault_start",
        ),
        (
            [event(n, 1) for n in "abcde"],
            r"entry 4 \(line 1\): e is one node more than the 4 there are: give --nodes 5",
        ),
    ],
)
def test_what_cannot_be_is_refused_with_entry_and_mend(events: list[object], words: str) -> None:
    with pytest.raises(FailureInputError, match=words):
        read(*events)


def test_an_error_names_the_line_and_a_field_that_may_be_meant() -> None:
    rows = [event("a", 1), {"node_id": "b", "event_tme": 2.0, "event_type": "fault_end", "fault_type": {}}]
    text = json.dumps(rows, indent=2)
    line = next(at for at, words in enumerate(text.splitlines(), 1) if '"b"' in words) - 1
    words = rf"entry 1 \(line {line}\) has no event_time: is 'event_tme' meant for it\?"
    with pytest.raises(FailureInputError, match=words):
        trace.read(text, 4)


def test_fields_that_are_not_read_are_told() -> None:
    rows = [event("a", 1) | {"colour": "red"}, event("a", 2, "end") | {"colour": "blue", "rack": 3}]
    assert read(*rows).notes == (
        "2 entries have a field 'colour', which is not read",
        "1 entries have a field 'rack', which is not read",
    )


@pytest.mark.parametrize(
    "field", ["node_id", "event_time", "event_type"], ids=["long node", "long time", "long type"]
)
def test_an_error_stays_one_line_however_long_a_value_is(field: str) -> None:
    with pytest.raises(FailureInputError) as refused:
        read(event("a", 1), event("b", 2) | {field: ["x" * 100_000]})
    assert "entry 1 (line 1)" in str(refused.value) and len(str(refused.value)) < 250


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "is no JSON"),
        ("{}", "holds a dict: give a list"),
        ("[" + "1" * 5000 + "]", "trace cannot be read .Exceeds the limit .4300 digits.*give a list of"),
        ("[" * 100_000, "trace is nested too deep: give a list of"),
        ('[{"node_id": ' + "[" * 900 + "]" * 900 + "}]", "entry 0|nested too deep"),
    ],
    ids=["no JSON", "dict", "digits", "nested", "nested within"],
)
def test_a_file_that_is_no_trace_is_refused(text: str, words: str) -> None:
    with pytest.raises(FailureInputError, match=words):
        trace.read(text, 4)
