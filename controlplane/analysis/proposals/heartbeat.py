"""Propose after how much silence a node counts as lost.

Failures that only silence shows are waited for: each lost node costs its job the whole timeout. A shorter one
is safe as far as nodes that live were never silent for so long, of which this leader keeps the longest time.
A node that was given up and came back had lived: that recovery was for nothing, and a longer timeout would
have spared it, while each node that is really dead would be waited for longer."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from controlplane.analysis.proposals import policy
from controlplane.analysis.proposals.measured import NotMeasured, finite, number, section
from controlplane.analysis.proposals.proposal import Proposal, SettingChange, Withheld, rate_known, unmeasured
from controlplane.core.records.words import in_words

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SETTING, FLAG = "heartbeat", "--node-timeout-s"
NODE_LOST, SILENT = "node_lost", "silent"


@dataclass(frozen=True, slots=True)
class Listening:
    """How a job's failures were noticed in one leader term, in s."""

    timeout_s: float
    seen_s: float  # of the job's time
    listened_s: float  # heartbeats of all nodes
    longest_s: float  # silence of a node that lived
    longest_node: str
    floors_s: dict[str, float]  # other settings, which the timeout must exceed
    mistaken_s: tuple[float, ...]  # silences of nodes that were given up and lived
    noticed: dict[str, tuple[int, float]]  # by cause: failures, and the time until they were noticed
    recovered_s: float | None  # a recovery of a lost node, from the notice on: mean; None: none was seen

    @property
    def lost(self) -> int:
        """Failures that were noticed because a node was silent."""
        return self.noticed.get(NODE_LOST, (0, 0.0))[0]


def listening_of(report: Mapping[str, Any]) -> Listening:
    """What a report has of it. Raises NotMeasured."""
    row = section(report, "listening")
    by_cause = section(report, "recoveries").get("by_cause")
    lost = by_cause.get(NODE_LOST) if isinstance(by_cause, dict) else None
    again = [finite(each) for each in row.get("mistaken_s") or ()]
    noticed = section(row, "noticed")
    return Listening(
        number(row, "node_timeout_s"),
        number(row, "seen_s"),
        number(row, "listened_s"),
        number(row, "longest_silence_s"),
        str(row.get("longest_silence_node", "")),
        {str(name): number(section(row, "must_exceed_s"), name) for name in section(row, "must_exceed_s")},
        tuple(each for each in again if each is not None and each >= 0),
        {
            str(cause): (
                int(number(section(noticed, cause), "count")),
                number(section(noticed, cause), "after_s"),
            )
            for cause in noticed
        },
        number(lost, "recovered_s") / number(lost, "count", 1.0) if lost else None,
    )


def heartbeats(report: Mapping[str, Any]) -> Iterator[Proposal | Withheld]:
    """A longer or a shorter timeout of nodes, or why none; and what processes' silence cost."""
    try:
        found = listening_of(report)
    except NotMeasured as missing:
        yield unmeasured(SETTING, str(missing))
        return
    if found.seen_s < policy.TIME_LEAST_S:
        least = policy.TIME_LEAST_S
        yield unmeasured(
            SETTING, f"this leader has seen {found.seen_s:.0f} s of the job, and needs {least:.0f}"
        )
        return
    yield _longer(found) if found.mistaken_s else _shorter(found)
    if SILENT in found.noticed:
        count, after_s = found.noticed[SILENT]
        yield unmeasured(
            SETTING,
            f"{_counted(count, 'process')} counted as dead by silence, {after_s / count:.3g} s after the "
            f"last sign of life each ({after_s / found.seen_s:.1%} of the time): whether a shorter "
            "--process-timeout-s is safe is not known, since agents do not report how long processes that "
            "live are silent",
        )


def _shorter(found: Listening) -> Proposal | Withheld:
    count, after_s = found.noticed.get(NODE_LOST, (0, 0.0))
    if not count:
        return Withheld(SETTING, f"no failure was noticed by the silence of a node: {_noticed(found)}")
    if count < policy.SILENCES_LEAST:
        return unmeasured(
            SETTING,
            f"{_counted(count, 'node')} lost by silence ({after_s:.0f} s of waiting), and "
            f"{policy.SILENCES_LEAST} are needed to know how often that happens",
        )
    if found.listened_s < policy.LISTENED_LEAST_S:
        return unmeasured(
            SETTING,
            f"this leader has heard heartbeats for {found.listened_s:.0f} s, and needs "
            f"{policy.LISTENED_LEAST_S:.0f} to know how long a node that lives may be silent",
        )
    floor, floor_s = max(found.floors_s.items(), key=lambda each: each[1], default=("", 0.0))
    wanted_s = math.ceil(max(policy.SILENCE_FACTOR * found.longest_s, math.floor(floor_s) + 1.0))
    lived = f"the longest silence of a node that lived was {found.longest_s:.3g} s ({found.longest_node})"
    if wanted_s * policy.FACTOR_LEAST > found.timeout_s:
        bound = (
            f"; it must exceed {floor} {floor_s:g}"
            if floor_s >= policy.SILENCE_FACTOR * found.longest_s
            else ""
        )
        return Withheld(SETTING, f"{FLAG} {found.timeout_s:g} cannot be much shorter: {lived}{bound}")
    gain = count * (found.timeout_s - wanted_s) / found.seen_s
    if gain < policy.GAIN_LEAST:
        less = f"{FLAG} {wanted_s:g} instead of {found.timeout_s:g} would gain {gain:.1%}"
        return Withheld(SETTING, f"{less}: {_counted(count, 'node')} lost by silence in {found.seen_s:.0f} s")
    return Proposal(
        SETTING,
        f"Give nodes up after {wanted_s:g} s of silence (a setting of the coordinator).",
        min(gain, 0.99),
        at_most=True,
        confidence=rate_known(count),
        changes=(SettingChange(FLAG, f"{found.timeout_s:g}", f"{wanted_s:g}"),),
        reason=(
            f"{_counted(count, 'node')} lost by silence alone, {after_s / count:.3g} s after the last "
            f"heartbeat each: {after_s:.0f} s of {found.seen_s:.0f} s; {lived}, in {found.listened_s:.0f} s, "
            f"and {policy.SILENCE_FACTOR:g} times that are allowed for"
        ),
        evidence=(
            ("lost_count", float(count)),
            ("waited_s", after_s),
            ("longest_silence_s", found.longest_s),
            ("listened_s", found.listened_s),
            ("seen_s", found.seen_s),
        ),
    )


def _longer(found: Listening) -> Proposal | Withheld:
    """A timeout that the nodes which came back would not have reached.

    What it saves is their recoveries; what it costs is a longer wait, for them and for dead ones."""
    count, longest_s = len(found.mistaken_s), max(found.mistaken_s)
    came = (
        f"{_counted(count, 'node')} given up after {found.timeout_s:g} s of silence and had lived: "
        f"heard again after {longest_s:.0f} s at most"
    )
    if found.recovered_s is None:
        return unmeasured(SETTING, f"{came}; what a recovery of a lost node takes has not been seen")
    wanted_s = math.ceil(policy.SILENCE_FACTOR * longest_s)
    dead = max(0, found.lost - count)
    saved_s = count * found.recovered_s
    waited_s = sum(max(0.0, each - found.timeout_s) for each in found.mistaken_s)
    waited_s += dead * (wanted_s - found.timeout_s)
    if saved_s - waited_s < policy.GAIN_LEAST * found.seen_s:
        return Withheld(
            SETTING,
            f"{came}; {FLAG} {wanted_s:g} would save {saved_s:.0f} s of recoveries and cost {waited_s:.0f} s "
            f"of waiting in {found.seen_s:.0f} s",
        )
    return Proposal(
        SETTING,
        f"Give nodes up after {wanted_s:g} s of silence only (a setting of the coordinator; --fence-after-s "
        "and --orphan-timeout-s of the agents must be longer).",
        min((saved_s - waited_s) / found.seen_s, 0.99),
        at_most=False,
        confidence=rate_known(count),
        changes=(SettingChange(FLAG, f"{found.timeout_s:g}", f"{wanted_s:g}"),),
        reason=(
            f"{came}; a recovery takes {found.recovered_s:.3g} s, so {saved_s:.0f} s of {found.seen_s:.0f} s "
            f"were for nothing, and {waited_s:.0f} s of waiting would come instead"
        ),
        evidence=(
            ("mistaken_count", float(count)),
            ("longest_mistaken_s", longest_s),
            ("recovered_s", found.recovered_s),
            ("waited_instead_s", waited_s),
            ("seen_s", found.seen_s),
        ),
    )


def _noticed(found: Listening) -> str:
    """How failures were noticed instead, and how near the timeout a node that lived has come."""
    others = [
        f"{count} {in_words(cause)} after {spent_s / count:.3g} s"
        for cause, (count, spent_s) in found.noticed.items()
    ]
    near = f"the longest silence of a node that lived was {found.longest_s:.3g} s of {found.timeout_s:g}"
    return f"{', '.join(others) or 'there was none'}; {near}"


def _counted(count: int, what: str) -> str:
    plural = {"process": "processes"}.get(what, f"{what}s")
    return f"{count} {what} was" if count == 1 else f"{count} {plural} were"
