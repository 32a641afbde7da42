"""Read how the processes of a running job ended, so that the same rules as for files say what came first.

Each end brings the last lines of a log, an exit code or a signal, what the kernel counted, and a time on the
clock of its node. Times within the logs are not used: nobody knows their zone. The end of a process is: its
failure came before it, by `policy.ENDING_S` at most."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.analysis.failure_logs import classify
from controlplane.analysis.failure_logs.events import LoggedFailure, RankAttempt, RankFile, RankHistory
from controlplane.analysis.failure_logs.launcher_report import CODES
from controlplane.analysis.failure_logs.lines import RawLine
from controlplane.analysis.failure_logs.policy import TEXT_SHOWN
from controlplane.analysis.failure_logs.scan import scan
from controlplane.analysis.failure_logs.stamps import Stamp
from controlplane.analysis.incident_causes import policy
from controlplane.core.records.words import GIB, NO_STEP

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from controlplane.core.records.diagnosis import RankEnded

ORDERED = "Holdfast ended it"
KERNEL_LOG = "the kernel's log"
FLIGHT_RECORDS = "the flight records"


def history(end: RankEnded, earlier: Sequence[RankAttempt] = ()) -> RankHistory:
    """All that is known of a rank by its end. `earlier`: how its earlier processes ended, oldest first."""
    name = end.log or end.member
    file = RankFile(name, end.rank, end.node, 0, 0.0, _lines(end), end.skipped_bytes)
    found = scan(file)[0][end.rank]
    found.node = end.node
    last = found.last
    _place_steps(last, end)
    last.failures[:0] = _of_kernel(end, last.last_step)
    _add_end(last, end)
    _place_times(last, end)
    found.attempts = [*earlier, last]
    if earlier:
        found.restarted_by = "its earlier processes ended"
    return found


def lost(rank: int, node: str, reason: str) -> RankHistory:
    """What is known of a rank whose node was lost: it left no end."""
    failure = LoggedFailure("node_failure", "", "", None, reason[:TEXT_SHOWN])
    return RankHistory(rank, node, [RankAttempt(failures=[failure])])


def called_apart(attempt: RankAttempt, step: int, reason: str) -> None:
    """Add that the rank called another collective than the others in this step: that comes before whatever
    its process, or theirs, met then. Over gloo it is another rank's process that ends, by abort()."""
    attempt.last_step = attempt.last_step if step == NO_STEP else step
    failure = LoggedFailure("desynchronized", FLIGHT_RECORDS, "", None, reason[:TEXT_SHOWN])
    failure.step = attempt.last_step
    attempt.failures.insert(0, failure)


def _lines(end: RankEnded) -> Iterator[RawLine]:
    """The lines of its log. Those before were not counted when some were left out."""
    for number, text in enumerate(end.text.splitlines(), 1):
        if text:
            yield RawLine(None if end.skipped_bytes else number, text[: policy.LINE_CHARS])


def _of_kernel(end: RankEnded, step: int | None) -> list[LoggedFailure]:
    """What the kernel wrote of this process, in its order: the first line says most."""
    named = ((line.strip()[:TEXT_SHOWN], classify.of_line(line)) for line in end.kernel_text.splitlines())
    return [LoggedFailure(*of, KERNEL_LOG, None, text, step=step) for text, of in named if of is not None]


def _place_steps(attempt: RankAttempt, end: RankEnded) -> None:
    """Take the steps that the rank has reported rather than those that its log names.

    A script that does neither may have trained for long: its beginning counts as unread."""
    attempt.begins_unread = end.skipped_bytes > 0 or attempt.last_step is None
    if end.began_step != NO_STEP:
        attempt.first_step = end.began_step
    elif attempt.begins_unread and attempt.first_step is not None:
        attempt.first_step = 0
    if end.step != NO_STEP:
        attempt.last_step = end.step
        for failure in attempt.failures:
            failure.step = end.step


def _add_end(attempt: RankAttempt, end: RankEnded) -> None:
    """Add what exit code, signal and kernel say. What the kernel counted comes first: until then the rank was
    alive, whatever it has written."""
    found = _of_end(end)
    found.step = attempt.last_step
    if found.cause == "oom_killed":
        attempt.failures.insert(0, found)
    elif found.cause != "unknown" or not attempt.failures:
        attempt.failures.append(found)


def _of_end(end: RankEnded) -> LoggedFailure:
    code = end.exit_code if end.signal is None else -end.signal
    if end.ordered:
        return _failure(end, "terminated", f"{ORDERED}: {end.ordered}")
    cause = CODES.get(code, "unknown") if code is not None else "unknown"
    how = f"ended by signal {end.signal}" if end.signal is not None else f"ended with code {end.exit_code}"
    if code is None:
        return _failure(end, "killed", "its process is gone; how it ended is not known")
    if cause != "killed":
        return _failure(end, cause, how)
    if end.oom_kills:
        return _failure(end, "oom_killed", f"{how}: {_counted(end)}", "cgroup")
    none = "the kernel counted no kill for want of memory in its cgroup then"
    unknown = "whether the kernel killed it for want of memory is not known: its cgroup could not be read"
    return _failure(end, cause, f"{how}; {unknown if end.oom_kills is None else none}")


def _counted(end: RankEnded) -> str:
    limit = f"the limit is {end.memory_limit_bytes / GIB:.3g} GiB" if end.memory_limit_bytes else (
        "it has no limit of its own: the machine's memory was used up"
    )  # fmt: skip
    return f"the kernel killed {end.oom_kills} processes of {end.cgroup} for want of memory; {limit}"


def _failure(end: RankEnded, cause: str, text: str, source: str = "") -> LoggedFailure:
    return LoggedFailure(cause, source, end.log, None, text[:TEXT_SHOWN])


def _place_times(attempt: RankAttempt, end: RankEnded) -> None:
    attempt.marks.clear()
    attempt.last_stamp = Stamp(end.at_s, 1e-3) if end.at_s > 0.0 else None
    for failure in attempt.failures:
        failure.exact = False
        failure.after = Stamp(end.at_s - policy.ENDING_S, 1e-3) if end.at_s > 0.0 else None
        failure.before = attempt.last_stamp
