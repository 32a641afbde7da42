"""Set when a finding opens, changes and is resolved, each limit with its reason."""

from __future__ import annotations

from dataclasses import dataclass

from controlplane.core.state.findings import Level


@dataclass(frozen=True, slots=True)
class Opening:
    """A finding opens when it was reported in `times` of the newest `of` windows."""

    times: int
    of: int


OPENING = {Level.CRITICAL: Opening(2, 3), Level.DEGRADED: Opening(4, 5)}
"""What is critical is announced two windows sooner: it costs more to wait than to be wrong. A warning waits
until a noisy neighbour has most likely passed."""
CLOSING = 6
"""Windows in sequence without a finding until it is resolved. More than for opening, so that what comes and
goes is announced once."""
CALMING = 6
"""Reports in sequence as a warning, until what was critical is a warning again. As many as for resolving, so
that a level that comes and goes is announced once."""
ACTING = 12
"""Windows in sequence in which a finding was critical, before anything but telling people is done about it: a
minute. To move ranks costs the job some seconds, so a noisy neighbour gets the time to pass."""
FORESEEN = frozenset({"node_at_risk"})
"""Kinds about what may happen, which are never critical: they last at any level."""
OPEN_MAX = 200
"""Findings of one job that are followed at a time, open or about to open; others are counted."""
RESOLVED_MAX = 50
"""Resolved findings kept per job, the newest: people look at what happened last night."""
NOTICES = frozenset({"crowded_cpu", "small_kernels"})
"""Kinds that are shown as a notice, whatever they cost: nothing is broken, and what other programs or too
many ranks on a node take from a job, or what fused operators would gain, is for its owner to weigh. They are
no ill health and alert nobody."""
FIRST_FAILURE = "first_failure"
HELD = (FIRST_FAILURE, "fails_again")
"""Kinds of findings that are judged once, of an incident, and not window by window: they are open for as long
as `FindingLedger.hold` names them."""
