"""Find checkpoints that take longer and longer; say when one will take as long as the time between two."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.analysis.live import policy
from controlplane.core.state.findings import Effort, Finding, Level, Recommendation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from controlplane.analysis.live.resources.checkpoint_times import WrittenPart
    from controlplane.analysis.live.situation import LiveSituation

HOUR_S = 3600.0


def checkpoint_time_grows(s: LiveSituation) -> Iterator[Finding]:
    """Checkpoints take longer than was usual: a storage that slows down, or a state that grows."""
    times = s.memory.checkpoints
    change = times.watch.change
    if change is None or not change.rises or change.level < policy.CHECKPOINT_RATIO * change.usual:
        return
    now_s = s.job.ended_s
    reason = f"a checkpoint takes {change.level:.3g} s, and {change.usual:.3g} s {change.since(now_s)}"
    evidence: tuple[tuple[str, float | str], ...] = (
        ("checkpoint_s", change.level),
        ("usual_checkpoint_s", change.usual),
        ("since_s", change.since_s),
    )
    if times.written is not None:
        words, ratios = _cause(*times.written)
        reason += words
        evidence += ratios
    if change.per_s is not None:
        reason += f"; it grows by {change.per_s * HOUR_S:.2g} s per hour"
        evidence += (("growth_s_per_hour", change.per_s * HOUR_S),)
        if times.every_s > change.level and (reached := times.watch.reaches(times.every_s, now_s)):
            reason += (
                f", and at this rate takes as long as the {times.every_s:.3g} s between two checkpoints in "
                f"{(reached.likely - now_s) / HOUR_S:.2g} hours"
            )
            evidence += (
                ("interval_reached_at_s", reached.likely),
                ("interval_reached_earliest_s", reached.earliest),
            )
    yield Finding(
        "checkpoint_time_grows",
        Level.DEGRADED,
        "",
        reason,
        confidence=0.9,
        evidence=evidence,
        recommendations=(
            Recommendation(
                "Look at the storage (its load, limits of requests, how full it is) and at what the state "
                "holds: `holdfast checkpoint` compares the sizes of two checkpoints.",
                None,
                Effort.MEDIUM,
            ),
        ),
    )


def _cause(usual: WrittenPart, now: WrittenPart) -> tuple[str, tuple[tuple[str, float | str], ...]]:
    """Whether the storage writes more slowly, or there is more to write: in brackets, and as evidence."""
    more = now.bytes / usual.bytes
    slower = (now.write_s / now.bytes) / (usual.write_s / usual.bytes)
    limit = policy.CHECKPOINT_CAUSE_RATIO
    told = [
        *([f"a byte takes {slower:.2g} times as long to write"] if slower >= limit else []),
        *([f"a node writes {more:.2g} times as many bytes"] if more >= limit else []),
    ]
    words = " and ".join(told) or "neither the bytes nor the time to write one have grown as much"
    return f" ({words})", (("write_s_per_byte_ratio", slower), ("bytes_ratio", more))
