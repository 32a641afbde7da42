"""Propose loader workers, by how long the busiest rank waited for samples, and by who made them.

Let d be the wait for samples of a step, and T the step. A rank that makes them itself, one batch in d, waits
no longer once workers are done with one in T - d: so ceil(d / (T - d)) workers hide all of it, and fewer,
w of them, make steps of d / w. They need CPUs. A rank whose main thread slept while it waited has workers, or
its storage is slow: how many workers a script has, nobody reports."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from controlplane.analysis.proposals import policy
from controlplane.analysis.proposals.measured import NotMeasured, finite, number, section
from controlplane.analysis.proposals.proposal import (
    NOT_MEASURED,
    Proposal,
    SettingChange,
    Withheld,
    unmeasured,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from controlplane.analysis.proposals.measured import MeasuredTime

SETTING = "loader"
EVERYBODY = "slow_data:"
"""The id of the finding that all ranks wait for samples."""


@dataclass(frozen=True, slots=True)
class StepWait:
    """How the rank that waits longest for samples did so in the newest window, in s per step."""

    rank: int
    step_s: float
    data_s: float
    made_least_s: float | None  # of that its main thread ran on a CPU; None: not known
    made_most_s: float | None
    no_cpu_ratio: (
        float | None
    )  # of the time in which its main thread could run it had no CPU; None: not known
    cpu_limit: float | None  # CPUs that its cgroup may use; 0: no limit; None: not known
    ranks_here: int

    @property
    def made_here(self) -> bool | None:
        """Whether the rank makes its samples itself; None: it cannot be told."""
        if self.made_least_s is None or self.made_most_s is None:
            return None
        if self.made_least_s > policy.MADE_RATIO * self.data_s:
            return True
        return False if self.made_most_s < (1.0 - policy.MADE_RATIO) * self.data_s else None


def step_wait(report: Mapping[str, Any]) -> StepWait:
    """The wait in the newest window. Raises NotMeasured."""
    row = section(report, "samples")
    found = StepWait(
        int(number(row, "rank")),
        number(row, "step_s"),
        number(row, "data_s"),
        finite(row.get("made_least_s")),
        finite(row.get("made_most_s")),
        finite(row.get("no_cpu_ratio")),
        finite(row.get("cpu_limit")),
        int(number(row, "ranks_here", 1.0)),
    )
    if not 0.0 < found.data_s < found.step_s:
        raise NotMeasured("in the newest window no rank waited for samples")
    return found


def loaders(report: Mapping[str, Any], time: MeasuredTime) -> Iterator[Proposal | Withheld]:
    """More loader workers, or why none."""
    waited_s, share = time.lost("data"), time.lost("data") / time.total_s
    if waited_s <= 0:
        yield unmeasured(SETTING, "no wait for samples is in the account")
        return
    if share < policy.GAIN_LEAST:
        yield Withheld(SETTING, f"waits for samples took {share:.1%} of the job's time")
        return
    waited = f"the busiest rank waited for samples for {waited_s:.0f} s of {time.total_s:.0f} s"
    try:
        found = step_wait(report)
    except NotMeasured as missing:
        yield _unseen(time, waited, f"{missing}, so it is not known who made the samples")
        return
    now = f"rank {found.rank} does so for {found.data_s:.3g} s of a step of {found.step_s:.3g} s"
    if found.made_here:
        yield _made_here(found, time, f"{waited}; {now}")
    elif found.made_here is None:
        yield _unseen(time, f"{waited}; {now}", "the kernel's counts do not tell who makes the samples")
    else:
        yield _unseen(
            time,
            f"{waited}; {now}, and its main thread sleeps then: workers or storage are behind",
            "how many workers the loader has is not reported",
        )


def preferred(
    told: list[Proposal | Withheld], own: list[Proposal | Withheld]
) -> Iterator[Proposal | Withheld]:
    """What findings recommend (`told`), and the loader's `own`: one of both about the loader.

    A finding that names who waits says more than the account, which knows the busiest rank only. One that
    says that all wait says less."""
    findings = [each for each in told if isinstance(each, Proposal) and each.setting == SETTING]
    everybody = all(dict(each.evidence).get("finding") == EVERYBODY for each in findings)
    if not findings:
        yield from (*told, *own)
    elif everybody and not own[0].reason.startswith(NOT_MEASURED):
        yield from (each for each in told if each not in findings)
        yield from own
    else:
        yield from told


def _unseen(time: MeasuredTime, reason: str, missing: str) -> Proposal:
    """A proposal without numbers of workers: the gain is the whole wait at most."""
    return Proposal(
        SETTING,
        "Give the loader more workers (`num_workers`) or a deeper queue (`prefetch_factor`).",
        time.lost("data") / time.total_s,
        at_most=True,
        confidence=time.known_ratio,
        reason=f"{reason}; {missing}",
        evidence=(("data_s", time.lost("data")), ("total_s", time.total_s)),
    )


def _made_here(found: StepWait, time: MeasuredTime, waited: str) -> Proposal | Withheld:
    """Workers for a loader that has none: as many as hide the wait, and as there are CPUs for."""
    rest_s = found.step_s - found.data_s
    wanted = min(policy.WORKERS_MOST, math.ceil(found.data_s / rest_s))
    room = math.inf
    if found.cpu_limit:
        room = math.floor(found.cpu_limit / found.ranks_here - 1.0)
    made = f"its main thread computes for {found.made_least_s:.3g} s of that or more: it makes samples itself"
    if found.no_cpu_ratio is not None and found.no_cpu_ratio > policy.NO_CPU_RATIO:
        return Withheld(
            SETTING,
            f"{waited}; {made}. But for {found.no_cpu_ratio:.0%} of the time in which it could run it had no "
            "CPU: workers would wait for one as well",
        )
    if room < 1:
        return Withheld(
            SETTING,
            f"{waited}; {made}. Its container may use {found.cpu_limit:g} CPUs for {found.ranks_here} ranks: "
            "a worker would take the CPU of a rank",
        )
    workers = int(min(wanted, room))
    saved_s = found.step_s - max(rest_s, found.data_s / workers)
    share = time.lost("data") / time.total_s * max(0.0, min(1.0, saved_s / found.data_s))
    if share < policy.GAIN_LEAST:
        return Withheld(SETTING, f"{waited}; {made}; {workers} workers would gain {share:.1%}")
    cpus = "how many CPUs the node has is not reported" if room == math.inf else f"{found.cpu_limit:g} CPUs"
    fewer = f", {wanted} would hide all of it" if workers < wanted else ""
    return Proposal(
        SETTING,
        f"Have {workers} worker processes of each rank make the samples (`num_workers={workers}`)"
        f"{', and see that the node has a CPU for each' if room == math.inf else ''}.",
        share,
        at_most=True,
        confidence=time.known_ratio * min(1.0, (found.made_least_s or 0.0) / found.data_s),
        changes=(SettingChange("num_workers", "0", str(workers)),),
        reason=(
            f"{waited}; {made}; {workers} workers have a batch every {found.data_s / workers:.3g} s, "
            f"and the rest of a step takes {rest_s:.3g} s{fewer}; {cpus} for {found.ranks_here} ranks"
        ),
        evidence=(
            ("data_s", time.lost("data")),
            ("total_s", time.total_s),
            ("data_s_per_step", found.data_s),
            ("step_s", found.step_s),
            ("made_here_least_s", found.made_least_s or 0.0),
            ("workers_count", float(workers)),
        ),
    )
