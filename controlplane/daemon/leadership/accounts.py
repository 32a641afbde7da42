"""Keep in etcd where the jobs' time went, for the next leader.

Otherwise every change of leader would begin the accounts at zero, and a job's goodput would jump."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import TYPE_CHECKING, Any

from controlplane.daemon.etcd.errors import EtcdError, Fenced
from controlplane.daemon.telemetry.job_time import Account, Spent

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from controlplane.daemon.etcd.keyspace import Keyspace
    from controlplane.daemon.leadership.recorder import Commit
    from controlplane.daemon.telemetry.observer import Observer

log = logging.getLogger(__name__)

SAVE_S = 30.0
"""Seconds between two saves: at most this much is missing after a change of leader."""

VALUES_MAX = 48
"""Accounts in one transaction."""


def packed(account: Account) -> bytes:
    """Return an account as etcd keeps it. The minutes are left out: they are many, and only
    of the last hours."""
    return json.dumps({"v": 1, **account.row()}).encode()


def unpacked(value: bytes) -> Account:
    """Return the account that `packed` made. Raises ValueError that says what is wrong."""
    document: Any = json.loads(value)
    try:
        lost_s = {str(cause): float(lost) for cause, lost in document["lost_s"].items()}
        total = Spent(float(document["productive_s"]), lost_s)
        account = Account(float(document["since_s"]), total)
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"it is not a time account: {error!r}") from error
    if not all(0 <= span < float("inf") for span in (account.since_s, total.productive_s, *lost_s.values())):
        raise ValueError("it holds an impossible duration")
    return account


def read(keys: Keyspace, values: Mapping[str, bytes]) -> dict[str, Account]:
    """Return the accounts that the last leader saved, by job. One that cannot be read is logged,
    and begins at zero."""
    found = {}
    for key, value in values.items():
        job, _, rest = key[len(keys.jobs) :].partition("/") if key.startswith(keys.jobs) else ("", "", "")
        if rest != "account":
            continue
        try:
            found[job] = unpacked(value)
        except ValueError as error:
            log.error("the time account of job %s cannot be read and begins at zero: %s", job, error)
    return found


class AccountSaver:
    """Keeps the accounts of one leader term in etcd."""

    def __init__(
        self, store: Commit, account_key: Callable[[str], str], term: int, observer: Observer
    ) -> None:
        self._store, self._key, self._term, self._observer = store, account_key, term, observer
        self._kept: dict[str, bytes] = {}

    async def run(self) -> None:
        """Save them again and again. Raises Fenced when another coordinator leads."""
        while True:
            await asyncio.sleep(SAVE_S)
            try:
                await self.keep()
            except Fenced:
                raise
            except EtcdError as error:  # the next round saves them
                log.warning("the jobs' time accounts could not be written to etcd: %s", error)

    async def keep(self) -> None:
        """Save those that have changed. Raises EtcdError."""
        made = {job: packed(account) for job, account in self._observer.accounts().items()}
        news = [job for job, value in made.items() if self._kept.get(job) != value]
        for first in range(0, len(news), VALUES_MAX):
            batch = news[first : first + VALUES_MAX]
            await self._store.commit(self._term, {self._key(job): made[job] for job in batch})
            self._kept |= {job: made[job] for job in batch}
