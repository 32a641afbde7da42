"""Put the first cause of an incident into words, from the body of its line in the journal. Pure."""

from __future__ import annotations

from typing import Any

from controlplane.core.records.words import some_of
from controlplane.reporting.lines import brief

_LINE_MAX = 200
CERTAIN = 0.95
"""The confidence of the advice from which on it is certain (`core.lifecycle.recurring.CERTAIN`)."""


def sentence(body: dict[str, Any]) -> str:
    """Who failed first, of what, and where: one sentence without its full stop."""
    place = f" at {body['file']}:{body['line']}" if body["file"] else ""
    kind = f" ({body['exception']}{place})" if body["exception"] else place
    step = f", in step {body['step']}" if body["step"] >= 0 else ""
    return f"{who(body)}: {body['means']}{kind}{step}"


def who(body: dict[str, Any]) -> str:
    """The rank, or those of which one was the first."""
    if body["rank"] >= 0:
        return f"rank {body['rank']}" + (f" on {body['node']}" if body["node"] else "")
    if not body["candidates"]:
        return "unknown"
    return f"one of the ranks {some_of(body['candidates'])}"


def outlook(body: dict[str, Any]) -> str:
    """Whether to start the job again, as surely as it is known."""
    if body["restart"]:
        return "It may help to start it again"
    if body["advice_confidence"] >= CERTAIN:
        return "Do not restart, this will fail again"
    return "It will probably fail again"


def as_text(body: dict[str, Any]) -> str:
    """All that was found, as lines for people."""
    rows = [f"First cause: {sentence(body)}."]
    if body["text"]:
        rows.append(f"  Line: {brief(body['text'], _LINE_MAX)}")
    rows.append(f"  Why: {body['reason']} (confidence {body['confidence']:.2f}); {body['clocks']}.")
    rows += [f"  Cascade: {each}." for each in body["cascade"]]
    rows.append(f"  {outlook(body)}: {body['advice']} (confidence {body['advice_confidence']:.2f}).")
    rows.append(f"  Do: {body['recommendation']}")
    return "\n".join(rows)
