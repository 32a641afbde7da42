"""Define what is known of one rank from its logs: failures, attempts, how far it came, and when."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from controlplane.analysis.failure_logs.causes import CAUSES, CausalRole, LoggedCause

if TYPE_CHECKING:
    from collections.abc import Iterable

    from controlplane.analysis.failure_logs.lines import RawLine
    from controlplane.analysis.failure_logs.stamps import Stamp


@dataclass(frozen=True, slots=True)
class RankFile:
    """One log file of a rank. `attempt`: which start of the rank it is of, where the path says so, otherwise
    0.
    `modified_s`: its file time, since 1970; `skipped_bytes`: its middle that was not read."""

    name: str
    rank: int
    node: str
    attempt: int
    modified_s: float
    lines: Iterable[RawLine]
    skipped_bytes: int = 0


@dataclass(slots=True)
class LoggedFailure:
    """One failure in a log.

    `after`, `before`: the times of the nearest lines with one, up to this line and from it on; None without
    any. `exact`: `after` is of this very line. `step`: the last step that was logged before it."""

    cause: str
    source: str
    log_file: str
    log_line: int | None
    text: str
    after: Stamp | None = None
    before: Stamp | None = None
    exact: bool = False
    step: int | None = None
    exception: str = ""
    file: str = ""  # of the source; "": not known
    line: int | None = None
    cut: bool = False  # the traceback is not whole

    @property
    def row(self) -> LoggedCause:
        """What is known of its cause. Raises KeyError for a code that is not in the table."""
        return CAUSES[self.cause]

    @property
    def is_root(self) -> bool:
        """Whether it needs no other failure."""
        return self.row.role is CausalRole.ROOT

    @property
    def signature(self) -> tuple[str, str, str, int | None]:
        """What two failures that are alike have in common."""
        return self.cause, self.exception, self.file, self.line


@dataclass(slots=True)
class RankAttempt:
    """One start of a rank, until its end or the next one."""

    failures: list[LoggedFailure] = field(default_factory=list)
    got_over: int = 0  # failures after which it went on
    first_step: int | None = None
    last_step: int | None = None
    last_stamp: Stamp | None = None
    marks: dict[str, Stamp] = field(
        default_factory=dict
    )  # steps and meetings, each at the time it was logged
    lines: int = 0
    begins_unread: bool = False  # its beginning was not read: how long it had trained is not known

    @property
    def first(self) -> LoggedFailure | None:
        """The failure with which its end began: the first one, but one that is a root by its nature before
        one that leaves it open."""
        if not self.failures:
            return None
        head = self.failures[0]
        if head.row.role is not CausalRole.EITHER:
            return head
        return next((each for each in self.failures if each.is_root), head)


@dataclass(slots=True)
class RankHistory:
    """All that the logs of one rank say. `attempts`: the last one counts."""

    rank: int
    node: str = ""
    attempts: list[RankAttempt] = field(default_factory=list)
    last_text: str = ""
    last_file: str = ""
    last_line: int | None = None
    modified_s: float = 0.0
    skipped_bytes: int = 0
    restarted_by: str = ""  # how the last attempt was told from those before; "": there is one only
    reported: tuple[LoggedFailure, ...] = ()  # what the launcher says of this rank's end

    @property
    def last(self) -> RankAttempt:
        """The last attempt. Raises IndexError before any line was read."""
        return self.attempts[-1]

    @property
    def first_failure(self) -> LoggedFailure | None:
        """With what the end of the last attempt began; what the launcher says where the rank said nothing."""
        own = self.last.first
        if own is None or (not own.is_root and self.reported and self.reported[0].is_root):
            return self.reported[0] if self.reported else own
        return own
