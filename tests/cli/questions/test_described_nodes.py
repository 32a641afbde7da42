"""What `holdfast describe node` and `holdfast events` say of a node's checks, and of nothing else."""

from __future__ import annotations

from typing import Any

from controlplane.cli.questions.describe import described, node
from controlplane.core.records.notes import NoteKind
from controlplane.reporting.event_text import EventLevel, sentence_of
from controlplane.wire import control_pb2 as pb

CHECKS = (
    (NoteKind.NODE_CHECKING, "it is new here"),
    (NoteKind.NODE_CHECKED, "it is new here: cpu.gemm.float32: 40% slower than the mean of 3 peers"),
    (NoteKind.NODE_UNCHECKED, "no answer within 120 s; it is used all the same"),
)


def note(kind: str, subject: str, reason: str) -> dict[str, Any]:
    body = {"kind": kind, "subject": subject, "reason": reason}
    return {"type": "Note", "kind": "effect", "wall_s": 5.0, "sequence": 1, "body": body}


def shown(name: str, lines: list[dict[str, Any]]) -> str:
    rows = [pb.NodeRow(node=each, state="up", standing="ok") for each in ("n0", "n1")]
    return described(node(name, pb.StatusReply(nodes=rows), lines), lines, 10)


def test_each_stage_of_a_check_is_shown_with_its_reason() -> None:
    lines = [note(kind, "n0", reason) for kind, reason in CHECKS]
    text = shown("n0", lines)
    for kind, reason in CHECKS:
        assert f"{kind}: n0: {reason}" in text
    assert "Newest events" not in shown("n1", lines)


def test_what_was_noted_of_its_device_is_shown_and_what_was_noted_of_a_job_of_its_name_is_not() -> None:
    lines = [
        note(NoteKind.DEVICE_EXCLUDED, "n0/device1", "2 ranks died on it"),
        note(NoteKind.STALLED, "n0", "a job of this name"),
        note(NoteKind.NODE_CUT, "n0x", "another node"),
    ]
    text = shown("n0", lines)
    assert "device_excluded: n0/device1: 2 ranks died on it" in text
    assert "a job of this name" not in text and "another node" not in text


def test_each_stage_of_a_check_is_an_event_that_is_shown_by_default() -> None:
    for kind, reason in CHECKS:
        sentence = sentence_of(note(kind, "n0", reason))
        assert sentence.level is EventLevel.DECISION
        assert sentence.text == f"{kind}: n0: {reason}"
