"""Say of each worker whether it is as fast as the others, and if not, since when."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np

from controlplane.analysis.iterations import policy
from controlplane.analysis.iterations.levels import LevelPiece, noise, pieces
from controlplane.analysis.iterations.pace import paces
from controlplane.analysis.robust import often
from controlplane.core.state.findings import Finding, Level, Recommendation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from controlplane.analysis.iterations.pace import Iterations, Pace
    from controlplane.analysis.robust import Floats

_COMPARE = (
    "Compare its device, its share of it and its host with the others'; give it less work, or exchange it."
)


class State(StrEnum):
    """How a worker compares with the others."""

    EVEN = "even"
    STEADILY_SLOWER = "steadily_slower"
    STEADILY_FASTER = "steadily_faster"
    STRAGGLER = "straggler"  # slow at the end, and not always slow
    RECOVERED = "recovered"  # was slow for a time, and is not at the end
    UNJUDGED = "unjudged"  # alone, or with too few iterations


@dataclass(frozen=True, slots=True)
class Worker:
    """The verdict on one worker. `onset` and `recovery` in the units of `Iterations.time`; None: not seen.

    `ratio`: of its durations to the median of the others; of a worker that was slow for a time, the ratio in
    that time. None: not judged."""

    worker: int | str
    state: State
    ratio: float | None
    onset: float | None = None
    recovery: float | None = None


@dataclass(frozen=True, slots=True)
class IterationsDiagnosis:
    """What iteration times show. Findings come with the slowest worker first."""

    workers: tuple[Worker, ...]
    findings: tuple[Finding, ...]
    rows_repeated: int  # rows that were there twice; each counts once


@dataclass(frozen=True, slots=True)
class _Episode:
    """Slow samples from `begin` up to, not including, `end`."""

    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class _Straggler:
    """A worker that is slow for a time, compared with itself (`usual`: a logarithm) and with the others."""

    pace: Pace
    usual: float
    episodes: tuple[_Episode, ...]

    @property
    def chosen(self) -> _Episode:
        """The episode that lasts until the end; if there is none, the longest."""
        last = self.episodes[-1]
        if last.end == len(self.pace.time):
            return last
        return max(self.episodes, key=lambda each: each.end - each.begin)

    def above(self, episode: _Episode) -> float:
        """By how much an episode lies above the usual level."""
        return float(np.median(self.pace.log_ratio[episode.begin : episode.end])) - self.usual

    @property
    def change(self) -> float:
        """How far the worst episode lies above the usual level, by which the true straggler is found.

        When one of few workers changes, the others seem to change too, but by half as much or less."""
        return max(self.above(each) for each in self.episodes)

    def corrected(self, worker: Iterations) -> Iterations:
        """The worker as if it had never been slow."""
        for each in self.episodes:
            worker = worker.corrected(self.pace.rows[each.begin : each.end], self.above(each))
        return worker


def diagnose(workers: Sequence[Iterations]) -> IterationsDiagnosis:
    """Judge each worker. There is at least one worker, and each has at least one iteration.

    The worst straggler is taken first, and the others are judged as if it had never been slow: where workers
    are few, one that becomes slow makes all others look faster than before."""
    distinct = [each.distinct() for each in workers]
    corrected, found_stragglers = list(distinct), dict[int, _Straggler]()
    for _ in range(policy.STRAGGLERS_MAX):
        found = paces(corrected)
        slow = {
            at: each
            for at, pace in enumerate(found)
            if at not in found_stragglers and (each := _straggler(pace))
        }
        if not slow:
            break
        worst = max(slow, key=lambda at: slow[at].change)
        found_stragglers[worst] = slow[worst]
        corrected[worst] = slow[worst].corrected(corrected[worst])
    judged = [
        _straggling(each.worker, found_stragglers[at])
        if at in found_stragglers
        else _judge(each.worker, pace)
        for at, (each, pace) in enumerate(zip(distinct, paces(corrected), strict=True))
    ]
    findings = sorted(
        (finding for _, finding in judged if finding is not None),
        key=lambda finding: (-dict(finding.evidence)["ratio"], finding.subject),  # type: ignore[operator]
    )
    repeated = sum(len(each.time) for each in workers) - sum(len(each.time) for each in distinct)
    return IterationsDiagnosis(tuple(worker for worker, _ in judged), tuple(findings), repeated)


def _judge(name: int | str, pace: Pace) -> tuple[Worker, Finding | None]:
    if len(pace.log_ratio) < policy.ITERATIONS_MIN:
        return Worker(name, State.UNJUDGED, None), None
    if straggler := _straggler(pace):
        return _straggling(name, straggler)
    ratio = math.exp(float(np.median(pace.log_ratio)))
    if ratio >= policy.SLOW_RATIO:
        return Worker(name, State.STEADILY_SLOWER, ratio), _steady(name, pace.log_ratio, ratio)
    state = State.EVEN
    if ratio > policy.EVEN_RATIO:
        state = State.STEADILY_SLOWER
    elif ratio < 1.0 / policy.EVEN_RATIO:
        state = State.STEADILY_FASTER
    return Worker(name, state, ratio), None


def _straggler(pace: Pace) -> _Straggler | None:
    log_ratio = pace.log_ratio
    if len(log_ratio) < policy.ITERATIONS_MIN:
        return None
    found = pieces(log_ratio)
    usual, scatter = _usual(found), noise(log_ratio)
    episodes: list[_Episode] = []
    least = max(policy.EPISODE_MIN, math.ceil(policy.EPISODE_RATIO * len(log_ratio)))
    for piece in found:
        if not _slow(piece, usual, scatter):
            continue
        if episodes and piece.begin - episodes[-1].end < least:
            episodes[-1] = _Episode(episodes[-1].begin, piece.end)
        else:
            episodes.append(_Episode(piece.begin, piece.end))
    lasting = tuple(each for each in episodes if _lasts(each, log_ratio, usual, least))
    return _Straggler(pace, usual, lasting) if lasting else None


def _lasts(episode: _Episode, log_ratio: Floats, usual: float, least: int) -> bool:
    inside = log_ratio[episode.begin : episode.end]
    return len(inside) >= least and _slow_count(inside, usual) >= policy.EPISODE_SLOW_RATIO * len(inside)


def _slow_count(inside: Floats, usual: float) -> int:
    """Return how many of these iterations are nearer to their own median than to the usual level."""
    return int((inside > 0.5 * (float(np.median(inside)) + usual)).sum())


def _slow(piece: LevelPiece, usual: float, scatter: float) -> bool:
    above = piece.level - usual
    return (
        piece.level >= math.log(policy.SLOW_RATIO)
        and above >= math.log(policy.CHANGE_RATIO)
        and above >= policy.SPREADS * scatter / math.sqrt(piece.count)
    )


def _usual(found: Sequence[LevelPiece]) -> float:
    """Return the lowest level that, with all lower ones, covers USUAL_RATIO of the iterations."""
    wanted = policy.USUAL_RATIO * sum(piece.count for piece in found)
    for piece in sorted(found, key=lambda each: each.level):
        wanted -= piece.count
        if wanted <= 0:
            break
    return piece.level


def _straggling(name: int | str, found: _Straggler) -> tuple[Worker, Finding]:
    pace, episode = found.pace, found.chosen
    inside, above = pace.log_ratio[episode.begin : episode.end], found.above(episode)
    ratio, over = math.exp(found.usual + above), episode.end < len(pace.time)
    onset = float(pace.time[episode.begin]) if episode.begin else None
    recovery = float(pace.time[episode.end]) if over else None
    worker = Worker(name, State.RECOVERED if over else State.STRAGGLER, ratio, onset, recovery)
    begun = "from the beginning" if onset is None else f"from time {onset:g}"
    ended = "to the end" if recovery is None else f"to {recovery:g}"
    reason = (
        f"{begun} {ended} its iterations take {ratio:.2f} times as long as those of the others, "
        f"{math.exp(above):.2f} times as long as its own otherwise"
    )
    evidence = (
        ("ratio", ratio),
        ("change_ratio", math.exp(above)),
        ("slow_iterations_count", float(len(inside))),
        ("episodes_count", float(len(found.episodes))),
    )
    critical = ratio >= policy.CRITICAL_RATIO and not over
    sure = often(_slow_count(inside, found.usual), len(inside))
    advice = (
        "Look what happened on its host at that time: other processes, clocks, temperature, network. "
        + ("Watch whether it comes back." if over else "`holdfast drain` the node if it goes on.")
    )  # fmt: skip
    return worker, Finding(
        "straggler", Level.CRITICAL if critical else Level.DEGRADED, f"worker {name}", reason,
        place=(("worker", name),), confidence=sure, evidence=evidence,
        recommendations=(Recommendation(advice),),
    )  # fmt: skip


def _steady(name: int | str, log_ratio: Floats, ratio: float) -> Finding:
    slower = int((log_ratio > math.log(policy.EVEN_RATIO)).sum())
    reason = (
        f"its iterations take {ratio:.2f} times as long as those of the others, from the beginning to the end"
    )
    return Finding(
        "slow_worker", Level.CRITICAL if ratio >= policy.CRITICAL_RATIO else Level.DEGRADED,
        f"worker {name}", reason, place=(("worker", name),), confidence=often(slower, len(log_ratio)),
        evidence=(("ratio", ratio), ("slower_iterations_count", float(slower))),
        recommendations=(Recommendation(_COMPARE),),
    )  # fmt: skip
