"""Let this process open as many files as it may: each agent and each question is a connection, and so a file.

Without room for one more, gRPC accepts nobody, and who calls only sees that nobody answers."""

from __future__ import annotations

import logging
import resource

FEW = 1024
"""A limit below this is told: some files are the process's own, and the journal and etcd need some."""

log = logging.getLogger(__name__)


def raise_limit() -> int:
    """Raise the soft limit of open files to the hard one. Return it; warns when it is low."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if 0 <= hard < FEW:
        log.warning(
            "only %d files may be open here, and each agent needs one: raise it (ulimit -n, LimitNOFILE=)",
            hard,
        )
    return hard
