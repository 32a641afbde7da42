"""Keep in etcd what diagnosis has found, for the next leader.

Otherwise every change of leader would resolve all findings, and announce them again."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

from controlplane.analysis.findings_ledger.entries import LedgerRowError
from controlplane.analysis.findings_ledger.ledger import FindingLedger
from controlplane.daemon.leadership import documents
from controlplane.daemon.leadership.documents import DocumentSaver

if TYPE_CHECKING:
    from collections.abc import Mapping

    from controlplane.daemon.etcd.keyspace import Keyspace
    from controlplane.daemon.leadership.recorder import Commit

log = logging.getLogger(__name__)

SAVE_S = 5.0
"""Seconds between two saves. A finding that opens, changes or is resolved is saved before anybody hears of
it; these saves are for what else changes, such as when a finding was last seen."""


def packed(rows: list[dict[str, Any]]) -> bytes:
    """Return the findings of one job as etcd keeps them."""
    return json.dumps({"v": 1, "findings": rows}).encode()


def unpacked(value: bytes) -> list[dict[str, Any]]:
    """Return the rows that `packed` got. Raises ValueError that says what is wrong."""
    document: Any = json.loads(value)
    if not isinstance(document, dict) or not isinstance(document.get("findings"), list):
        raise ValueError("it is no list of findings")
    rows: list[dict[str, Any]] = document["findings"]
    return rows


def read(keys: Keyspace, values: Mapping[str, bytes]) -> FindingLedger:
    """Return the ledger as the last leader saved it. A job whose findings cannot be read is logged, and
    begins without any."""
    rows = []
    for job, value in documents.of_jobs(keys, values, "findings"):
        try:
            found = unpacked(value)
            FindingLedger.of(found)
            if any(row["job"] != job for row in found):
                raise ValueError("it has findings of another job")
        except (ValueError, LedgerRowError) as error:
            log.error("the findings of job %s cannot be read, they are looked for anew: %s", job, error)
            continue
        rows += found
    return FindingLedger.of(rows)


def saver(store: Commit, keys: Keyspace, term: int, ledger: FindingLedger) -> DocumentSaver:
    """Return what keeps the findings of one leader term in etcd."""
    saved: set[str] = set()

    def made() -> dict[str, bytes | None]:
        jobs = ledger.jobs()
        gone = saved.difference(jobs)
        saved.update(jobs)
        documents = {keys.findings(job): packed(ledger.rows(job)) for job in jobs}
        return documents | {keys.findings(job): None for job in gone}

    return DocumentSaver(store, term, made, every_s=SAVE_S, what="the findings of diagnosis")
