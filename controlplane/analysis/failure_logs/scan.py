"""Read the log of a rank from the first line to the last: failures, progress, attempts.

A failure counts only if the rank did not go on after it. So failures are dropped when a later step is logged,
and belong to an earlier attempt when the steps begin again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.analysis.failure_logs import classify, policy, progress
from controlplane.analysis.failure_logs.events import LoggedFailure, RankAttempt, RankHistory
from controlplane.analysis.failure_logs.launcher_report import LauncherReports
from controlplane.analysis.failure_logs.lines import parse
from controlplane.analysis.failure_logs.tracebacks import Tracebacks, bare_exception

if TYPE_CHECKING:
    from controlplane.analysis.failure_logs.events import RankFile
    from controlplane.analysis.failure_logs.launcher_report import LauncherReport
    from controlplane.analysis.failure_logs.lines import LogLine
    from controlplane.analysis.failure_logs.stamps import Stamp
    from controlplane.analysis.failure_logs.tracebacks import Traceback

_FATAL = {"Segmentation fault": "segfault", "Bus error": "bus_error", "Aborted": "aborted"}


def scan(file: RankFile) -> tuple[dict[int, RankHistory], list[LauncherReport]]:
    """What a file says of each rank: of its own, and of others whose tag is on some of its lines."""
    readers: dict[int, _Reader] = {}
    for raw in file.lines:
        line = parse(file.name, raw)
        owner = file.rank if line.rank is None else line.rank
        if owner not in readers:
            readers[owner] = _Reader(owner, file.node)
        readers[owner].take(line)
    if file.rank not in readers:
        readers[file.rank] = _Reader(file.rank, file.node)
    reports = [report for reader in readers.values() for report in reader.reports.found]
    for reader in readers.values():
        reader.close()
        reader.history.modified_s = file.modified_s
        reader.history.skipped_bytes = file.skipped_bytes
    return {owner: reader.history for owner, reader in readers.items()}, reports


class _Reader:
    """The lines of one rank in one file."""

    def __init__(self, rank: int, node: str) -> None:
        self.history = RankHistory(rank, node, [RankAttempt()])
        self.reports = LauncherReports()
        self._tracebacks = Tracebacks()
        self._stamp: Stamp | None = None
        self._open: Traceback | None = None
        self._begun: tuple[Stamp | None, bool, int] = (None, False, 0)  # time, whether of that line, position
        self._unbounded: list[LoggedFailure] = []  # failures after which no time was written yet
        self._file = ""

    def take(self, line: LogLine) -> None:
        """Take the next line."""
        self._file = line.file
        self.history.last.lines += 1
        if line.text.strip():
            self.history.last_text, self.history.last_line = line.text, line.number
            self.history.last_file = line.file
        if line.host and not self.history.node:
            self.history.node = line.host
        if line.stamp is not None:
            self._time(line.stamp)
        if self.reports.take(line.number, line.text):
            return
        inside = self._tracebacks.take(line.number, line.text, stamped=line.stamp is not None)
        self._drain()
        if self._tracebacks.open is not self._open:
            self._open = self._tracebacks.open
            self._begun = self._stamp, line.stamp is not None, len(self.history.last.failures)
        if not inside:
            self._plain(line)

    def close(self) -> None:
        """Note that the file ends."""
        self._tracebacks.close()
        self._drain()

    def _time(self, stamp: Stamp) -> None:
        for failure in self._unbounded:
            failure.before = stamp
        self._unbounded.clear()
        self._stamp = self.history.last.last_stamp = stamp

    def _plain(self, line: LogLine) -> None:
        if means := progress.restart_of(line.text):
            self._begin_attempt(means)
            return
        if (step := progress.step_of(line.text)) is not None:
            self._progress(step, line.stamp)
        elif (meeting := progress.meeting_of(line.text)) and line.stamp is not None:
            self.history.last.marks.setdefault(meeting, line.stamp)
        if (bare := bare_exception(line.text)) is not None and not classify.got_over(line.text.lower()):
            name = bare[0].rpartition(".")[2]
            if bare[0] and classify.is_error_name(name):
                cause, source = classify.of_exception(name, bare[1])
                self._add(self._failure(cause, source, line, exception=name, cut=True))
                return
        if (named := classify.of_line(line.text)) is not None:
            self._add(self._failure(*named, line))

    def _progress(self, step: int, stamp: Stamp | None) -> None:
        attempt = self.history.last
        self._tracebacks.close()
        self._drain()
        if attempt.failures:
            before = [each.step for each in attempt.failures if each.step is not None]
            if before and step <= before[-1] and attempt.last_step is not None and step <= attempt.last_step:
                self._begin_attempt("the steps begin again after a failure")
                attempt = self.history.last
            else:
                attempt.got_over += len(attempt.failures)
                attempt.failures.clear()
                self._unbounded.clear()
        attempt.first_step = step if attempt.first_step is None else attempt.first_step
        attempt.last_step = step
        if stamp is not None:
            attempt.marks.setdefault(f"step {step}", stamp)
            if len(attempt.marks) > policy.MARKS_KEPT:
                del attempt.marks[next(iter(attempt.marks))]

    def _begin_attempt(self, means: str) -> None:
        self._tracebacks.close()
        self._drain()
        self._unbounded.clear()
        if self.history.last.failures or self.history.last.last_step is not None:
            self.history.attempts.append(RankAttempt())
            self.history.restarted_by = means

    def _failure(
        self, cause: str, source: str, line: LogLine, *, exception: str = "", cut: bool = False
    ) -> LoggedFailure:
        exact = line.stamp is not None
        text = line.text.strip()[: policy.TEXT_SHOWN]
        return LoggedFailure(
            cause,
            source,
            line.file,
            line.number,
            text,
            after=self._stamp,
            exact=exact,
            exception=exception,
            cut=cut,
        )

    def _drain(self) -> None:
        """Take up the tracebacks that are complete, each where it began."""
        after, exact, position = self._begun
        for found in self._tracebacks.finished:
            failure = self._of(found)
            failure.after, failure.exact = after, exact
            failure.before = self._stamp if self._stamp is not after else None
            self._add(failure, min(position, len(self.history.last.failures)))
        self._tracebacks.finished.clear()

    def _of(self, found: Traceback) -> LoggedFailure:
        if not found.chain:
            cause = _FATAL.get(found.fatal, "aborted")
            return LoggedFailure(cause, "faulthandler", self._file, found.started, found.fatal)
        first = found.first
        if found.fatal:
            cause, source, text = _FATAL.get(found.fatal, "aborted"), "faulthandler", found.fatal
        elif not first.type:
            cause, source, text = "exception", "python", "a traceback that is cut off"
        else:
            cause, source = classify.of_exception(first.name, first.text)
            text = f"{first.type}: {first.text.partition(chr(10))[0]}".removesuffix(": ")
        place = first.place
        return LoggedFailure(
            cause, source, self._file, first.number or found.started, text[: policy.TEXT_SHOWN],
            exception=first.name, cut=not first.type and not found.fatal,
            file=place.file if place else "", line=place.line if place else None,
        )  # fmt: skip

    def _add(self, failure: LoggedFailure, position: int | None = None) -> None:
        attempt = self.history.last
        failure.step = attempt.last_step
        if len(attempt.failures) < policy.EVENTS_KEPT:
            attempt.failures.insert(len(attempt.failures) if position is None else position, failure)
            if not failure.exact and failure.before is None:
                self._unbounded.append(failure)
