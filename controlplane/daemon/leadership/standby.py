"""Alternate between standby and leader: campaign, read etcd, lead until the term is over, begin again.

Nothing of one term is left for the next: each begins with what etcd holds."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

from controlplane.daemon.etcd.errors import EtcdError, EtcdUnavailable, Fenced
from controlplane.daemon.etcd.rows import created_at
from controlplane.daemon.etcd.store import RecordStore
from controlplane.daemon.leadership import accounts, findings
from controlplane.daemon.leadership.identity import Identity
from controlplane.daemon.leadership.leader_term import LeaderTerm
from controlplane.daemon.leadership.rows import RecordMapping
from controlplane.daemon.loop import garbage
from controlplane.daemon.loop.stepping import TermOver
from controlplane.daemon.server import log_tails
from controlplane.wire import codec

if TYPE_CHECKING:
    from controlplane.core.records.timing import CoreSettings
    from controlplane.daemon.etcd.client import Etcd
    from controlplane.daemon.etcd.election import Election, Leadership
    from controlplane.daemon.etcd.keyspace import Keyspace
    from controlplane.daemon.etcd.rows import EtcdRow, Listing
    from controlplane.daemon.server.context import ServerContext
    from controlplane.diagnosis_settings import DiagnosisSettings

log = logging.getLogger(__name__)

PAUSE_S = 1.0
"""Seconds between the end of a term and the next candidacy, and between attempts to reach etcd."""

RESIGN_S = 1.5
"""Seconds to wait for an etcd that is away when a leader steps down."""

LOOK_S = 0.2
"""Seconds between two looks whether a leader on this machine still lives."""


class Standby:
    """Runs for ever: a candidate while another coordinator leads, the leader while it may."""

    def __init__(
        self,
        etcd: Etcd,
        election: Election,
        keys: Keyspace,
        front: ServerContext,
        core_settings: CoreSettings,
        *,
        own: Identity,
        diagnosis: DiagnosisSettings,
    ) -> None:
        self._etcd, self._election, self._keys = etcd, election, keys
        self._front, self._core_settings = front, core_settings
        self._diagnosis = diagnosis
        self._own = own
        self._former = own
        """The leader that was seen last."""
        self._metrics, self._journal = front.metrics, front.journal
        front.unelected = lambda: election.trouble

    async def run(self) -> None:
        """Run until cancelled. Raises the EtcdError that no further try can change (EtcdAuth,
        EtcdNotEtcd)."""
        while True:
            watcher = asyncio.create_task(self._watch_leader())
            try:
                leadership = await self._election.campaign()
            finally:
                watcher.cancel()
                await asyncio.gather(watcher, return_exceptions=True)
            try:
                await self._lead(leadership)
            finally:
                await _resign(leadership)
            garbage.collect_all()
            await asyncio.sleep(PAUSE_S)

    async def _watch_leader(self) -> None:
        """Keep the leader's address, for agents and tools. Remove the key of a leader of this
        machine that is dead."""
        while True:
            try:
                row = await self._election.leader()
            except EtcdError:
                self._metrics.etcd_errors_total.labels("leader").inc()
                await asyncio.sleep(PAUSE_S)
                continue
            identity = Identity.of(row.value) if row else None
            self._front.leader = identity.address if identity else ""
            self._front.leader_page = identity.page if identity else ""
            self._metrics.saw_leader(self._front.leader)
            if identity is not None:
                self._compare(identity)
            if row is not None and identity is not None and identity.boot:
                await self._attend(row, identity)
            else:
                await asyncio.sleep(PAUSE_S)

    def _compare(self, leader: Identity) -> None:
        """Say once of each leader in which settings this coordinator, if it is elected, decides otherwise."""
        other = self._own.unlike(leader)
        if other and leader != self._former:
            log.warning(
                "this coordinator would decide by other settings than the leader at %s: %s; start all with "
                "the same settings",
                leader.address,
                ", ".join(other),
            )
        self._former = leader

    async def _attend(self, row: EtcdRow, identity: Identity) -> None:
        """Look for a second whether the process of this leader lives; if it is dead, remove its key."""
        for _ in range(round(PAUSE_S / LOOK_S)):
            if identity.is_dead():
                log.warning(
                    "the leader at %s (pid %d) is dead: removing its key", identity.address, identity.pid
                )
                try:
                    await self._etcd.txn([created_at(row.key, row.create_revision)], [], [row.key])
                except EtcdError as error:
                    log.warning("the dead leader's key cannot be removed now: %s", error)
                return
            await asyncio.sleep(LOOK_S)

    async def _lead(self, leadership: Leadership) -> None:
        """Lead for one term, from reading etcd to its end."""
        records = RecordStore(self._etcd, self._keys)
        listing = await self._read(records, leadership)
        if listing is None:
            return
        mapping = RecordMapping(self._keys)
        values = {row.key: row.value for row in listing.rows}
        leader_term = LeaderTerm(
            self._front.cluster,
            self._core_settings,
            mapping.elected(leadership.term, values),
            store=records,
            records=mapping,
            journal=self._journal,
            metrics=self._metrics,
            held=lambda: leadership.held,
            trouble=lambda: leadership.trouble,
            alerts=self._front.alerts,
            spans=self._front.spans,
            platform=self._front.platform,
            accounts=accounts.read(self._keys, values),
            findings=findings.read(self._keys, values),
            diagnosis=self._diagnosis,
            tails_every_s=log_tails.EVERY_S,
            relay_beats_from=self._front.relay_beats_from,
            lease_ttl_s=self._election.ttl_s,
        )
        log.info("leading cluster %s, term %d", self._front.cluster, leadership.term)
        reason = "this coordinator is stopping"
        self._begin(leader_term)
        try:
            reason = await self._until_over(leader_term, leadership)
        finally:
            self._end(leader_term, reason)

    async def _read(self, records: RecordStore, leadership: Leadership) -> Listing | None:
        """Return all records; None when leadership was lost before etcd answered."""
        while leadership.held:
            begun = time.perf_counter()
            try:
                return await records.load()
            except EtcdUnavailable as error:
                self._metrics.etcd_errors_total.labels("load").inc()
                log.warning("cannot read the cluster's records: %s", error)
                await asyncio.sleep(PAUSE_S)
            finally:
                self._metrics.etcd_request_seconds.labels("load").observe(time.perf_counter() - begun)
        return None

    async def _until_over(self, leader_term: LeaderTerm, leadership: Leadership) -> str:
        """Run the term until it ends by itself or leadership is lost. Return why."""
        running = asyncio.create_task(leader_term.run(), name=f"leader-term-{leader_term.term}")
        lost = asyncio.create_task(leadership.lost.wait())
        try:
            await asyncio.wait([running, lost], return_when=asyncio.FIRST_COMPLETED)
            failed = running.exception() if running.done() else None
            if failed is None:
                return leadership.reason
            return why_over(leader_term.term, failed, leadership.reason)
        finally:
            running.cancel()
            lost.cancel()
            await asyncio.gather(running, lost, return_exceptions=True)

    def _begin(self, leader_term: LeaderTerm) -> None:
        self._front.leader, self._front.leader_term = self._front.address, leader_term
        self._front.leader_page = self._front.page
        self._metrics.leader.set(1)
        self._metrics.saw_leader(self._front.address)
        self._metrics.leader_term.set(leader_term.term)
        self._tell_changes(leader_term.term)

    def _tell_changes(self, term: int) -> None:
        """Say by which other settings the cluster is led from now on."""
        before, self._former = self._former, self._own
        if other := self._own.unlike(before):
            log.warning(
                "term %d: decides by other settings than %s: %s", term, before.address, ", ".join(other)
            )
            body = {"leader": before.address, "settings": other}
            self._journal.write_body(term, "daemon", "SettingsChanged", body)

    def _end(self, leader_term: LeaderTerm, reason: str) -> None:
        self._front.leader, self._front.leader_page, self._front.leader_term = "", "", None
        self._metrics.leader.set(0)
        self._metrics.leader_term.set(0)
        self._metrics.forget_state()
        message = codec.refused(
            f"this coordinator no longer leads: {reason}", retry=True, term=leader_term.term
        )
        leader_term.links.finish_all(message)
        self._journal.write_body(leader_term.term, "daemon", "LeadershipEnded", {"reason": reason})


async def _resign(leadership: Leadership) -> None:
    """Step down, but do not wait long for an etcd that is away: the lease expires by itself then."""
    try:
        async with asyncio.timeout(RESIGN_S):
            await leadership.resign()
    except TimeoutError:
        log.warning("etcd does not answer: the lease of term %d will expire by itself", leadership.term)


def why_over(term: int, failed: BaseException, lost: str) -> str:
    """Return why a term ended by itself.

    It is normal that another coordinator leads or that the lease ran out; everything else is logged as a
    failure of ours."""
    cause = failed
    while isinstance(cause, BaseExceptionGroup):
        cause = cause.exceptions[0]
    if isinstance(cause, TermOver | Fenced):
        reason = lost or str(cause)
        log.warning("leader term %d is over: %s", term, reason)
        return reason
    log.error("leader term %d ended by a failure", term, exc_info=failed)
    return f"failure: {type(cause).__name__}: {cause}"
