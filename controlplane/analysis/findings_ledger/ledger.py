"""Open, change and resolve findings, so that people are told once.

Detectors judge each window by itself; what they report in one window may be gone in the next. A finding opens
after it was reported in some of the newest windows, and is resolved after it was not reported in many. While
it is open its level rises soon, and falls only after many windows in which it was lower.

Another leader goes on from `rows()`: what is open there is not announced again. It is resolved only after the
new leader has looked for it itself as long as any leader would."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from controlplane.analysis.findings_ledger import policy
from controlplane.analysis.findings_ledger.entries import LedgerEntry, LedgerRowError, entry, row
from controlplane.core.state.findings import Finding, Level

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from controlplane.analysis.findings_ledger.entries import Identity, Row


class ChangeKind(StrEnum):
    """What has happened to a finding."""

    OPENED = "opened"
    CHANGED = "changed"  # it has become critical, or is so no more
    RESOLVED = "resolved"


@dataclass(frozen=True, slots=True)
class FindingChange:
    """Something to tell people. Of a muted finding only that it is over, so that an alert ends."""

    kind: ChangeKind
    entry: LedgerEntry


_MEMORY = max(rule.of for rule in policy.OPENING.values())


@dataclass(slots=True)
class _Followed:
    """A finding that was reported lately. `entry`: None while it has not opened."""

    finding: Finding
    first_seen_s: float
    entry: LedgerEntry | None = None
    reported: deque[Level | None] = field(default_factory=lambda: deque(maxlen=_MEMORY))
    missed: int = 0  # windows in sequence without it
    grave: int = 0  # newest windows in sequence in which it was critical, or of a kind in FORESEEN
    mild: int = 0  # reports in sequence that were not critical, since the last that was

    def holds(self, level: Level) -> bool:
        """Whether it was reported often enough at this level, or a worse one."""
        rule = policy.OPENING[level]
        newest = list(self.reported)[-rule.of :]
        return sum(each is level or each is Level.CRITICAL for each in newest) >= rule.times


@dataclass(slots=True)
class _OfJob:
    followed: dict[Identity, _Followed] = field(default_factory=dict)
    resolved: deque[LedgerEntry] = field(default_factory=lambda: deque(maxlen=policy.RESOLVED_MAX))
    left_out: int = 0


class FindingLedger:
    """The findings of all jobs of a cluster, over time. It knows no clock: each call says what time it is."""

    def __init__(self) -> None:
        self._jobs: dict[str, _OfJob] = {}

    @classmethod
    def of(cls, rows: Iterable[object]) -> FindingLedger:
        """Go on from what another ledger's `rows` gave.

        Raises LedgerRowError for a row that is no finding, or is there twice."""
        ledger = cls()
        for found in rows:
            each = entry(found)
            job = ledger._jobs.setdefault(each.finding.job, _OfJob())
            if each.resolved_s is not None:
                job.resolved.append(each)
            elif each.identity in job.followed:
                raise LedgerRowError(
                    f"finding {each.identity[0]!r} of job {each.finding.job!r}: two rows are open for "
                    f"{each.identity[1]!r}; delete one"
                )
            else:
                job.followed[each.identity] = _Followed(each.finding, each.opened_s, each)
        return ledger

    def rows(self, job: str | None = None) -> list[Row]:
        """Everything that another leader needs: plain data. `job`: of this job only."""
        chosen = sorted(self._jobs) if job is None else [job]
        return [row(each) for name in chosen for each in (*self.resolved(name), *self.open(name))]

    def jobs(self) -> list[str]:
        """The jobs of which anything is known."""
        return sorted(self._jobs)

    def open(self, job: str) -> tuple[LedgerEntry, ...]:
        """The findings that are open, critical ones first, then by kind and subject."""
        entries = [each.entry for each in self._of(job).followed.values() if each.entry is not None]
        return tuple(
            sorted(entries, key=lambda each: (each.finding.level is not Level.CRITICAL, each.identity))
        )

    def resolved(self, job: str) -> tuple[LedgerEntry, ...]:
        """The newest findings that are over, oldest first."""
        return tuple(self._of(job).resolved)

    def left_out(self, job: str) -> int:
        """How many findings of the newest window are not followed, because there are too many."""
        return self._of(job).left_out

    def forget(self, job: str) -> None:
        """Drop everything about a job that is over."""
        self._jobs.pop(job, None)

    def _of(self, job: str) -> _OfJob:
        return self._jobs.get(job) or _OfJob()

    def lasting(self, job: str, identity: Identity) -> bool:
        """Whether a finding has been grave in all of so many newest windows that something may be done."""
        followed = self._of(job).followed.get(identity)
        return followed is not None and followed.grave >= policy.ACTING

    def mute(self, job: str, kind: str, subject: str, *, until_s: float, by: str) -> LedgerEntry:
        """Alert nobody about an open finding until then. Return it. `until_s` in the past ends a mute.

        Raises KeyError, with a text for people, when no such finding is open."""
        followed = self._of(job).followed.get((kind, subject))
        if followed is None or followed.entry is None:
            raise KeyError(f"job {job} has no open finding {kind} of {subject or 'the job'}")
        followed.entry = replace(followed.entry, muted_until_s=until_s, muted_by=by)
        return followed.entry

    def observe(
        self,
        now_s: float,
        job: str,
        findings: Iterable[Finding],
        unjudged: Collection[int] = (),
        blind: Collection[str] = (),
        *,
        only: Collection[str] = (),
        unseen: Collection[str] = (),
        silent_stages: Collection[int] = (),
    ) -> tuple[FindingChange, ...]:
        """Take in what was found in one window that could be judged. Return what to announce.

        `unjudged`: ranks that could not be judged, `blind`: nodes of which no rank could be, `silent_stages`:
        stages of which too little is known: nothing about them is taken to be over. `only`: the kinds that
        were judged; (): all. Nothing of another kind is taken to be over. `unseen`: kinds whose detectors
        failed: nor is anything of these."""
        state = self._jobs.setdefault(job, _OfJob())
        reported = _by_identity(replace(each, job=job) for each in findings)
        state.left_out = 0
        for identity, finding in reported.items():
            if identity not in state.followed:
                if len(state.followed) >= policy.OPEN_MAX:
                    state.left_out += 1
                    continue
                state.followed[identity] = _Followed(finding, now_s)
        changes: list[FindingChange] = []
        judged = [each for each in state.followed if each[0] not in policy.HELD]
        for identity in [each for each in judged if not only or each[0] in only]:
            known = state.followed[identity].finding
            hidden = identity[0] in unseen or _hidden(known, unjudged, blind, silent_stages)
            changes += self._advance(state, identity, reported.get(identity), now_s, hidden)
        return tuple(changes)

    def hold(self, now_s: float, job: str, findings: Iterable[Finding]) -> tuple[FindingChange, ...]:
        """Take in what was judged once: of the kinds `policy.HELD` these findings are open, and no others.
        Return what to announce."""
        state = self._jobs.setdefault(job, _OfJob())
        reported = _by_identity(replace(each, job=job) for each in findings)
        changes: list[FindingChange] = []
        for identity in [each for each in state.followed if each[0] in policy.HELD and each not in reported]:
            changes += _resolve(state, identity, now_s)
        for identity, finding in reported.items():
            known = state.followed.get(identity)
            if known is not None and known.entry is not None:
                known.finding = finding
                known.entry = replace(known.entry, finding=finding, last_seen_s=now_s)
                continue
            entry = LedgerEntry(finding, now_s, now_s, windows=1)
            state.followed[identity] = _Followed(finding, now_s, entry)
            changes.append(FindingChange(ChangeKind.OPENED, entry))
        return tuple(changes)

    def report(self, now_s: float, job: str, findings: Iterable[Finding]) -> tuple[FindingChange, ...]:
        """Open findings at once, or renew them: evidence of a single event, or a comparison, that is certain
        and needs no second window. Return what to announce. They are resolved like all others, once they are
        reported no more."""
        state = self._jobs.setdefault(job, _OfJob())
        changes: list[FindingChange] = []
        for identity, finding in _by_identity(replace(each, job=job) for each in findings).items():
            followed = state.followed.get(identity)
            if followed is None and len(state.followed) >= policy.OPEN_MAX:
                state.left_out += 1
                continue
            known = followed.entry if followed is not None else None
            entry = LedgerEntry(finding, now_s, now_s, windows=1)
            if known is not None:
                entry = replace(known, finding=finding, last_seen_s=now_s, windows=known.windows + 1)
            else:
                changes.append(FindingChange(ChangeKind.OPENED, entry))
            state.followed[identity] = _Followed(finding, entry.opened_s, entry)
        return tuple(changes)

    def _advance(
        self,
        state: _OfJob,
        identity: Identity,
        finding: Finding | None,
        now_s: float,
        hidden: bool,
    ) -> list[FindingChange]:
        followed = state.followed[identity]
        if finding is None:
            if hidden:
                return _unmuted(followed, now_s)
            followed.missed += 1
            followed.grave = 0
            followed.reported.append(None)
            return _missed(state, identity, followed, now_s) or _unmuted(followed, now_s)
        back, followed.missed = followed.missed > 0, 0
        grave = finding.level is Level.CRITICAL or finding.kind in policy.FORESEEN
        followed.grave = followed.grave + 1 if grave else 0
        followed.reported.append(finding.level)
        if followed.entry is None:
            followed.finding = finding
            return _open(followed, now_s)
        before = followed.entry
        rises = before.finding.level is not Level.CRITICAL and followed.holds(Level.CRITICAL)
        followed.mild = 0 if finding.level is Level.CRITICAL else followed.mild + 1
        falls = before.finding.level is Level.CRITICAL and followed.mild >= policy.CALMING
        level = Level.CRITICAL if rises else Level.DEGRADED if falls else before.finding.level
        began = _onset(before.finding, finding, back)
        followed.finding = replace(finding, level=level, first_step=began)
        followed.entry = replace(
            before,
            finding=followed.finding,
            last_seen_s=now_s,
            windows=before.windows + 1,
            announced=before.announced and not rises and not falls,
        )
        return _unmuted(followed, now_s)


def _hidden(
    finding: Finding, unjudged: Collection[int], blind: Collection[str], silent: Collection[int]
) -> bool:
    """Whether nobody could see if this is over: its rank was not judged, or no rank of its node or stage."""
    place = dict(finding.place)
    rank, node = place.get("rank"), place.get("node")
    if rank is not None:
        return rank in unjudged
    return node in blind if node is not None else place.get("stage") in silent


def _onset(before: Finding, now: Finding, back: bool) -> int | None:
    """In which step a finding began: as first reported, since detectors forget; anew if it was `back` after a
    break, and has begun later than before."""
    if before.first_step is None or (back and now.first_step is not None):
        return now.first_step
    return before.first_step


def _by_identity(findings: Iterable[Finding]) -> dict[Identity, Finding]:
    """One finding per identity, in an order that does not depend on that of `findings`."""
    found: dict[Identity, Finding] = {}
    for each in findings:
        other = found.get((each.kind, each.subject))
        if other is None or (each.level is Level.CRITICAL and other.level is not Level.CRITICAL):
            found[each.kind, each.subject] = each
    grave = sorted(found, key=lambda identity: (found[identity].level is not Level.CRITICAL, identity))
    return {identity: found[identity] for identity in grave}


def _open(followed: _Followed, now_s: float) -> list[FindingChange]:
    """Open the finding if it was reported often enough, at the worst level for which it was."""
    for level in (Level.CRITICAL, Level.DEGRADED):
        if followed.holds(level):
            followed.finding = replace(followed.finding, level=level)
            windows = sum(each is not None for each in followed.reported)
            followed.entry = LedgerEntry(followed.finding, now_s, now_s, windows=windows)
            return [FindingChange(ChangeKind.OPENED, followed.entry)]
    return []


def _unmuted(followed: _Followed, now_s: float) -> list[FindingChange]:
    """Announce that an open finding has another level, unless it is muted: then when the mute ends."""
    if followed.entry is None or followed.entry.announced or followed.entry.muted(now_s):
        return []
    followed.entry = replace(followed.entry, announced=True)
    return [FindingChange(ChangeKind.CHANGED, followed.entry)]


def _missed(state: _OfJob, identity: Identity, followed: _Followed, now_s: float) -> list[FindingChange]:
    """Resolve a finding that was not reported for long; stop following one that never opened."""
    if followed.entry is None:
        if not any(followed.reported):
            del state.followed[identity]
        return []
    return _resolve(state, identity, now_s) if followed.missed >= policy.CLOSING else []


def _resolve(state: _OfJob, identity: Identity, now_s: float) -> list[FindingChange]:
    followed = state.followed.pop(identity)
    if followed.entry is None:
        return []
    over = replace(followed.entry, resolved_s=now_s)
    state.resolved.append(over)
    return [FindingChange(ChangeKind.RESOLVED, over)]
