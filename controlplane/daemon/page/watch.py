"""Keep the picture up to date while somebody looks at it.

What has just changed is brought up to date at once (loop/changes.py), all else in turn, a few milliseconds at
a time: so ten thousand nodes delay no other task. While nobody looks, the picture is left alone."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import secrets
import time
from importlib.metadata import version
from typing import TYPE_CHECKING

from controlplane.core import view
from controlplane.daemon.diagnosis.report import advice
from controlplane.daemon.page import rows
from controlplane.daemon.page.picture import TABLES, Picture
from controlplane.daemon.page.saves import Saves
from controlplane.reporting.story import ReportBuilder, as_json

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

    from controlplane.daemon.journal.journal import JournalLine
    from controlplane.daemon.leadership.leader_term import LeaderTerm
    from controlplane.daemon.page.picture import Row
    from controlplane.daemon.server.context import ServerContext
    from controlplane.reporting.story import IncidentReport

log = logging.getLogger(__name__)

TICK_S = 0.1
"""Seconds between two looks when nothing happens."""
GAP_S = 0.02
"""Seconds between two looks when much happens."""
LOOK_S = 0.004
"""Seconds for one look at nodes. The nodes that are left come in the next."""
JOBS_EVERY_S = 0.5
LOOK_SHARE = 50.0
"""After a look at the jobs that took a second, the next comes this many seconds later."""
LINES_MAX = 400
"""Lines of the journal that are read in one look."""
STORIES_MAX = 400
FAILED_PAUSE_S = 1.0
LINGER_S = 5.0
"""Seconds that the picture is kept up to date after the last viewer, so that a page that is
reloaded finds it."""


class PageWatch:
    """The watch of one process. `news` is set, and replaced by a new one, when the picture changes."""

    def __init__(self, front: ServerContext) -> None:
        self._front = front
        self._leader_term: LeaderTerm | None = None
        self._viewers = 0
        self._wanted, self.news = asyncio.Event(), asyncio.Event()
        self._first: asyncio.Event = asyncio.Event()
        self._begin(None)

    @contextlib.contextmanager
    def viewing(self) -> Iterator[None]:
        """Count a viewer while the context lasts."""
        self._viewers += 1
        self._wanted.set()
        try:
            yield
        finally:
            self._viewers -= 1

    async def ready(self) -> Picture:
        """Return the picture, once every node has been looked at. Only within `viewing`."""
        await self._first.wait()
        return self.picture

    @property
    def stories(self) -> dict[tuple[str, int], IncidentReport]:
        """The known incidents, by job and number."""
        return self._report_builder.found

    async def run(self) -> None:
        """Keep the picture up to date whenever there are viewers, for ever."""
        self._begin(self._front.leader_term)
        while True:
            await self._wanted.wait()
            try:
                await self._show()
            except Exception:
                log.exception("the page's picture could not be updated: it is built again")
                self._begin(self._front.leader_term)
                await asyncio.sleep(FAILED_PAUSE_S)
            self._wanted.clear()
            self._first.clear()
            if self._leader_term is not None:
                self._leader_term.changes.forget()
            if self._viewers:
                self._wanted.set()

    async def _show(self) -> None:
        left_at = time.monotonic()
        while self._viewers or time.monotonic() < left_at + LINGER_S:
            left_at = time.monotonic() if self._viewers else left_at
            if self._front.leader_term is not self._leader_term:
                self._begin(self._front.leader_term)
            more = self._look()
            if self.picture.close_patch():
                self._announce()
            await asyncio.sleep(0 if more and not self._first.is_set() else GAP_S)
            await self._rest(more)

    async def _rest(self, more: bool) -> None:
        """Wait until something happens, for one tick at most."""
        if more:
            return
        news = self._leader_term.changes.news if self._leader_term is not None else asyncio.Event()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(TICK_S):
                await news.wait()

    def _announce(self) -> None:
        self.news.set()
        self.news = asyncio.Event()

    def _begin(self, leader_term: LeaderTerm | None) -> None:
        """Begin a new picture: of this leader term, or of a standby (None)."""
        if self._leader_term is not None:
            self._leader_term.changes.forget()
        self._leader_term = leader_term
        self.picture = Picture(secrets.token_hex(6), TABLES)
        self._first.clear()
        self._report_builder, self._lines_read = (
            ReportBuilder(),
            0,
        )  # and the number of the journal's line that was read last
        self._lines: Iterator[JournalLine] = iter(())
        self._saves = Saves()
        self._round: list[str] = []  # nodes that are left in this round
        self._jobs_at = self._jobs_rest = 0.0  # when jobs are looked at again, and the earliest time for it
        self._whole = False  # the first round is complete
        self._announce()

    def _look(self) -> bool:
        """Bring the picture up to date. Return whether more is waiting to be looked at."""
        if self._leader_term is not None:
            self._leader_term.changes.watched = True
            self._leader_term.changes.news.clear()
        self._cluster()
        more = self._nodes(self._leader_term) if self._leader_term is not None else False
        listening = self._listen()  # before the jobs: their checkpoints have ages from the journal
        if self._leader_term is not None:
            self._jobs(self._leader_term)
        if not more:
            self._first.set()
        return more or listening

    def _cluster(self) -> None:
        front, leader_term = self._front, self._leader_term
        health = view.health(leader_term.core, time.monotonic()) if leader_term is not None else None
        actions = self._actions(leader_term) if leader_term is not None else []
        self.picture.put("cluster", "", {
            "cluster": front.cluster,
            "role": "leader" if leader_term is not None else "standby",
            "term": leader_term.term if leader_term is not None else 0,
            "leader": front.leader,
            "leader_page": front.leader_page,
            "unelected": front.unelected(),
            "address": front.address,
            "version": version("holdfast"),
            "health": health.level if health else "",
            "reasons": list(health.reasons) if health else [],
            "reasons_of": list(health.jobs) if health else [],
            "actions": actions,
            "phases": list(rows.PHASES),
        })  # fmt: skip

    def _actions(self, leader_term: LeaderTerm) -> list[str]:
        """What to do about each reason for the cluster's health; "": nothing is recommended."""
        found = advice(leader_term.core.state.findings.values(), leader_term.diagnosis.ledger)
        return [each[0].action if each else "" for each in found]

    def _nodes(self, leader_term: LeaderTerm) -> bool:
        """Look for LOOK_S at the nodes that have changed, then at the next ones of the round.

        Return whether more is waiting: changed nodes, or the rest of the first round."""
        begun, known = time.monotonic(), leader_term.core.state.nodes
        marked = leader_term.changes.nodes
        while marked and time.monotonic() < begun + LOOK_S:
            self._node(leader_term, next(iter(marked)), begun)
        if not self._round:
            for gone in [name for name in self.picture.tables["nodes"] if name not in known]:
                self.picture.drop("nodes", gone)
            self._round = sorted(known, reverse=True)
        while self._round and time.monotonic() < begun + LOOK_S:
            for name in self._round[:-33:-1]:
                self._node(leader_term, name, begun)
            del self._round[-32:]
        self._whole = self._whole or not self._round
        return bool(marked) or not self._whole

    def _node(self, leader_term: LeaderTerm, name: str, now: float) -> None:
        leader_term.changes.nodes.pop(name, None)
        found = leader_term.core.state.nodes.get(name)
        if found is not None:
            self.picture.put("nodes", name, rows.node(leader_term.core, now, found))

    def _jobs(self, leader_term: LeaderTerm) -> None:
        """Look at all jobs, every JOBS_EVERY_S, or sooner when one has changed."""
        now = time.monotonic()
        if now < self._jobs_rest or (now < self._jobs_at and not leader_term.changes.jobs):
            return
        leader_term.changes.jobs.clear()
        found = leader_term.core.state.jobs
        checkpoints: dict[str, Row] = {}
        failed: dict[str, Row] = {}
        for name, job in found.items():
            account, eta = leader_term.observer.account(name), leader_term.diagnosis.eta(job)
            self.picture.put("jobs", name, rows.job(leader_term.core, job, account, eta))
            checkpoints |= rows.checkpoints(job, self._saves)
            failed |= self._saves.failures(name)
        kept: dict[str, dict[str, Row]] = {"checkpoints": checkpoints, "failed_saves": failed}
        for table, those in kept.items():
            for key, row in those.items():
                self.picture.put(table, key, row)
        for table in ("jobs", *kept):
            keys: Container[str] = kept.get(table, found)
            for gone in [key for key in self.picture.tables[table] if key not in keys]:
                self.picture.drop(table, gone)
        ended = time.monotonic()
        self._jobs_at, self._jobs_rest = ended + JOBS_EVERY_S, ended + LOOK_SHARE * (ended - now)

    def _listen(self) -> bool:
        """Read what the journal says about incidents. Return whether there is more of it."""
        changed: dict[tuple[str, int], IncidentReport] = {}
        for _ in range(LINES_MAX):
            line = next(self._lines, None)
            if line is None:
                self._lines = iter(self._front.journal.lines(self._lines_read))
                line = next(self._lines, None)
                if line is None:
                    break
            self._lines_read = line.sequence
            story = self._read_line(line)
            if story is not None:
                changed[story.job, story.id] = story
        else:
            self._put(changed)
            return True
        self._put(changed)
        return False

    def _read_line(self, line: JournalLine) -> IncidentReport | None:
        if not line.job:
            return None
        document = json.loads(line.text)
        self._saves.add(document)
        return self._report_builder.add(document)

    def _put(self, changed: dict[tuple[str, int], IncidentReport]) -> None:
        for story in changed.values():
            self.picture.put("incidents", f"{story.job}/{story.id}", rows.incident(story, as_json(story)))
        known = self._report_builder.found
        while len(known) > STORIES_MAX:
            job, number = next(iter(known))
            del known[job, number]
            self.picture.drop("incidents", f"{job}/{number}")
