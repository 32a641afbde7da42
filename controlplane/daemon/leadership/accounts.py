"""Keep in etcd where the jobs' time went, for the next leader.

Otherwise every change of leader would begin the accounts at zero, and a job's goodput would jump."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

from controlplane.daemon.leadership import documents
from controlplane.daemon.leadership.documents import DocumentSaver
from controlplane.daemon.telemetry.job_time import LIVES_KEPT, Account, Life, Spent

if TYPE_CHECKING:
    from collections.abc import Mapping

    from controlplane.daemon.etcd.keyspace import Keyspace
    from controlplane.daemon.leadership.recorder import Commit
    from controlplane.daemon.telemetry.observer import Observer

log = logging.getLogger(__name__)

SAVE_S = 30.0
"""Seconds between two saves: at most this much is missing after a change of leader."""


def packed(account: Account) -> bytes:
    """Return an account as etcd keeps it. The minutes are left out: they are many, and only
    of the last hours. What is empty is left out too, as older versions wrote it."""
    row: dict[str, Any] = {"v": 1, "since_s": round(account.since_s, 3), **_spent_row(account.total)}
    if account.late:
        row["late"] = True
    if account.until_s:
        row["until_s"] = round(account.until_s, 3)
    if account.lives:
        row["lives"] = [
            {"since_s": round(life.since_s, 3), **_spent_row(life.spent)} for life in account.lives
        ]
    return json.dumps(row).encode()


def _spent_row(spent: Spent) -> dict[str, Any]:
    lost_s = {cause: round(span_s, 2) for cause, span_s in sorted(spent.lost_s.items())}
    row: dict[str, Any] = {"productive_s": round(spent.productive_s, 2), "lost_s": lost_s}
    return row | ({"unknown_s": round(spent.unknown_s, 2)} if spent.unknown_s else {})


def unpacked(value: bytes) -> Account:
    """Return the account that `packed` made. Raises ValueError that says what is wrong."""
    document: Any = json.loads(value)
    try:
        lives = [Life(float(each["since_s"]), _spent(each)) for each in document.get("lives", ())]
        account = Account(float(document["since_s"]), _spent(document), lives=lives[-LIVES_KEPT:])
        account.until_s = float(document.get("until_s", 0.0))
        account.late = bool(document.get("late", False))
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"it is not a time account: {error!r}") from error
    spans = [account.since_s, account.until_s, *_spans(account.total)]
    for life in account.lives:
        spans += [life.since_s, *_spans(life.spent)]
    if not all(0 <= span < float("inf") for span in spans):
        raise ValueError("it holds an impossible duration")
    return account


def _spent(row: Any) -> Spent:
    lost_s = {str(cause): float(lost) for cause, lost in row["lost_s"].items()}
    return Spent(float(row["productive_s"]), lost_s, float(row.get("unknown_s", 0.0)))


def _spans(spent: Spent) -> list[float]:
    return [spent.productive_s, spent.unknown_s, *spent.lost_s.values()]


def read(keys: Keyspace, values: Mapping[str, bytes]) -> dict[str, Account]:
    """Return the accounts that the last leader saved, by job. One that cannot be read is logged,
    and begins at zero."""
    found = {}
    for job, value in documents.of_jobs(keys, values, "account"):
        if keys.spec(job) not in values:
            continue  # the job was deleted while its account was being saved
        try:
            found[job] = unpacked(value)
        except ValueError as error:
            log.error("the time account of job %s cannot be read and begins at zero: %s", job, error)
    return found


def saver(store: Commit, keys: Keyspace, term: int, observer: Observer) -> DocumentSaver:
    """Return what keeps the accounts of one leader term in etcd, and deletes those of deleted jobs."""
    saved: set[str] = set()

    def made() -> dict[str, bytes | None]:
        accounts = observer.accounts()
        gone = saved.difference(accounts)
        saved.update(accounts)
        documents = {keys.account(job): packed(account) for job, account in accounts.items()}
        return documents | {keys.account(job): None for job in gone}

    return DocumentSaver(
        store,
        term,
        made,
        every_s=SAVE_S,
        what="the jobs' time accounts",
    )
