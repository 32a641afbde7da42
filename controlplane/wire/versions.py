"""Which versions of the wire meet: one number in every hello, one rule, asked by the coordinator."""

from __future__ import annotations

PROTOCOL_VERSION = 3
"""Raised by a change that older peers cannot follow: not by a new field, which they pass over, nor by a new
word or message that is said only to those who know it."""

OLDEST_TAKEN = 3
"""The oldest protocol whose agents a coordinator takes: that of the version before (tests/skew/before.txt),
so that a cluster is upgraded coordinators first, node by node after them. Never more than one below ours."""

NEW_WORDS = frozenset({"snapshot_vouched"})
"""Bodies of AgentMessage that the version before does not hear: an agent says them only to a coordinator
whose welcome names them. Emptied when tests/skew/before.txt moves on."""

ORDER = "the coordinators first, then the agents"
"""In which a cluster is upgraded; it is rolled back in the other one."""


def refusal(theirs: int, holdfast_version: str = "") -> str:
    """Why an agent that speaks protocol `theirs` is not taken, and what to upgrade first; "" when it is."""
    if OLDEST_TAKEN <= theirs <= PROTOCOL_VERSION:
        return ""
    taken = f"{OLDEST_TAKEN} to {PROTOCOL_VERSION}" if OLDEST_TAKEN < PROTOCOL_VERSION else PROTOCOL_VERSION
    mend = (
        f"upgrade the coordinators: {ORDER}"
        if theirs > PROTOCOL_VERSION
        else f"upgrade the agent; a cluster goes on by one version at a time, {ORDER}"
    )
    agent = f"the agent (holdfast {holdfast_version or '?'})"
    return f"{agent} speaks protocol {theirs}, this coordinator {taken}: {mend}"
