"""Decide which versions of the wire protocol may meet: one number in every hello, judged by the
coordinator."""

from __future__ import annotations

PROTOCOL_VERSION = 3
"""Increased only with a change that older peers cannot follow. New fields are no such change, because peers
ignore unknown ones; nor are new message bodies that are sent only to peers that know them."""

OLDEST_TAKEN = 3
"""The oldest protocol whose agents a coordinator accepts: that of the version before (tests/skew/before.txt),
so that a cluster can be upgraded coordinators first, then node by node. At most one below
PROTOCOL_VERSION."""

STEP_BEAT = "step_beat"
"""The body that an agent sends in the place of a `beat` to a coordinator that understands it."""

BEATS_RELAYED = "beats_relayed"
"""The body by which an agent passes on heartbeats of others, to a coordinator that understands it."""

NEW_WORDS = frozenset({
    "snapshot_vouched", "step_times", "profiled", "links_probed", "rank_ended", "gradients",
    "replicas_reported", "node_checked", "node_sensed", STEP_BEAT, BEATS_RELAYED,
})  # fmt: skip
"""Bodies of AgentMessage that the version before does not understand: an agent sends them only to a
coordinator whose welcome names them. Emptied when tests/skew/before.txt moves on."""

NEW_ORDERS = frozenset({"profile", "probe_links", "read_log", "check_node", "relay_beats", "beats_taken"})
"""Bodies of CoordinatorMessage that the version before does not understand: a leader sends them only to an
agent whose hello names them. Emptied when tests/skew/before.txt moves on."""

ORDER = "the coordinators first, then the agents"
"""The order in which a cluster is upgraded; it is rolled back in reverse."""


def refusal(theirs: int, holdfast_version: str = "") -> str:
    """Return why an agent of protocol `theirs` is refused, and what to upgrade first; "" when it is not."""
    if OLDEST_TAKEN <= theirs <= PROTOCOL_VERSION:
        return ""
    taken = f"{OLDEST_TAKEN} to {PROTOCOL_VERSION}" if OLDEST_TAKEN < PROTOCOL_VERSION else PROTOCOL_VERSION
    remedy = (
        f"upgrade the coordinators: {ORDER}"
        if theirs > PROTOCOL_VERSION
        else f"upgrade the agent; go up one version at a time, {ORDER}"
    )
    agent = f"the agent (holdfast {holdfast_version or '?'})"
    return f"{agent} speaks protocol {theirs}, this coordinator {taken}: {remedy}"
