"""Find what holds a whole job back although nobody is slow: communication, idle devices, memory, tails.

Each recommendation states the measured numbers that speak for it, and what it would gain at most where that
follows from them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from controlplane.analysis.live import policy
from controlplane.analysis.live.detectors.stages import silent_stages
from controlplane.analysis.live.history import low_median
from controlplane.analysis.live.places import rank_suspect
from controlplane.analysis.live.readings import PHASES
from controlplane.core.records.words import GIB
from controlplane.core.state.findings import Effort, Finding, Level, Recommendation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from controlplane.analysis.live.resources.memory import TypicalRow
    from controlplane.analysis.live.situation import LiveSituation


def communication(s: LiveSituation) -> Iterator[Finding]:
    """Communication that takes more of a step than it may, even for the ranks that wait least.

    Whoever is busy longest waits least. So the time that even those spend in communication is transfer, and
    what others spend beyond it is waiting for them; waiting is charged to whom it is for. Where another rank
    is the slowest in each step, all of them wait: as much as normal scatter explains is taken off. While a
    stage tells nothing, it may be the one that all others wait for."""
    if silent_stages(s):
        return
    seconds = s.spent["communication"]
    known = seconds[~np.isnan(seconds)]
    if len(known) < 2 or len(s.memory.jobs) < policy.TRANSFER_ROWS:
        return
    transfer_s, typical_s = _transfer_s(s) - s.jitter_s, float(np.median(known))
    share = transfer_s / s.step_s
    if share <= s.thresholds.communication:
        return
    nodes = len(np.unique(s.seats.node[s.judged]))
    recommendations = [
        Recommendation(
            f"Accumulate gradients over twice as many micro-batches: {transfer_s:.3g} s of communication per "
            f"{s.step_s:.3g} s would be spread over twice the work, which saves {transfer_s / 2:.3g} s "
            "(half, if all of it is sent once per optimizer step; less otherwise).",
            share / 2,  # the same transfer for twice the work
            Effort.LOW,
        ),
        Recommendation(
            f"Overlap communication with the backward pass ({s.usual_backward_s:.3g} s per step): buckets "
            "that start while gradients are still computed.",
            min(share, s.usual_backward_s / s.step_s),
            Effort.MEDIUM,
        ),
    ]
    if nodes > 1:
        recommendations.append(
            Recommendation(
                f"Keep tensor groups inside a node (the job spans {nodes} nodes), and look at the speed of "
                f"the links between nodes. How much of the {transfer_s:.3g} s per step passes over them is "
                "not measured.",
                None,  # how much of it passes between nodes is not measured
                Effort.HIGH,
            )
        )
    recommendations.sort(key=lambda each: -(each.gain_ratio or 0.0))
    yield Finding(
        "communication_bound",
        Level.CRITICAL if share >= 2.0 * s.thresholds.communication else Level.DEGRADED,
        "",
        f"communication takes {share:.0%} of a step even on the ranks that wait least ({transfer_s:.3g} s of "
        f"{s.step_s:.3g} s; a typical rank spends {typical_s:.3g} s); more than "
        f"{s.thresholds.communication:.0%} is a bottleneck",
        evidence=(
            ("transfer_share_ratio", share),
            ("transfer_s_per_step", transfer_s),
            ("communication_s_per_step", typical_s),
            ("nodes_count", float(nodes)),
        ),
        recommendations=tuple(recommendations),
    )


def _transfer_s(s: LiveSituation) -> float:
    """What ranks that wait for nobody spend in communication per step (s)."""
    return min(row.transfer_s for row in list(s.memory.jobs)[-policy.TRANSFER_ROWS :])


def idle_devices(s: LiveSituation) -> Iterator[Finding]:
    """Devices that compute for less of the time than they should. Quiet where nobody reports it, and where
    ranks compute on CPUs that others want: that is `crowded_cpu`, and says why."""
    if s.job.spent["queued"] >= policy.CROWDED_RATIO * s.step_s:
        return
    used = s.table.values["device_used"]
    used = used[~np.isnan(used) & (used >= 0.0)]
    if not used.size or float(np.median(used)) >= s.thresholds.device_used:
        return
    typical = float(np.median(used))
    shares = {name: s.job.spent[name] / s.step_s for name in PHASES}
    waits = {name: shares[name] for name in ("data", "communication", "snapshot", "other")}
    main = max(waits, key=lambda name: waits[name])
    idle = 1.0 - typical
    actions = {
        "data": "give the loader more workers or a deeper queue",
        "communication": "accumulate gradients over more micro-batches, or overlap it with the backward pass",
        "snapshot": "take snapshots less often",
        "other": "move what the script does between its phases off the training thread",
    }
    cpu = s.job.spent["cpu"] / s.step_s
    found = [
        Recommendation(
            f"{main.capitalize()} takes {s.job.spent[main]:.3g} s of a step of {s.step_s:.3g} s "
            f"({waits[main]:.0%}), and a device is idle for {idle:.0%} of the time: {actions[main]}. The "
            "smaller of the two shares is what that can save.",
            min(waits[main], idle),
            Effort.MEDIUM,
        )
    ]
    if cpu > 0.5:
        found.append(
            Recommendation(
                f"The main thread computes for {cpu:.0%} of a step while a device is idle for {idle:.0%} of "
                "the time: compile the model, or use larger batches, so that launching kernels is not what "
                "the device waits for.",
                None,  # how much of the idle time is due to launching is not measured
                Effort.MEDIUM,
            )
        )
    found.sort(key=lambda each: -(each.gain_ratio or 0.0))
    yield Finding(
        "device_underused",
        Level.DEGRADED,
        "",
        f"a typical device computes for {typical:.0%} of the time, and {s.thresholds.device_used:.0%} is "
        f"expected; the largest part of a step beside computing is {main} ({waits[main]:.0%})",
        evidence=(("device_used_ratio", typical), ("main_phase", main), ("main_phase_ratio", waits[main])),
        recommendations=tuple(found),
    )


def little_memory(s: LiveSituation) -> Iterator[Finding]:
    """Ranks that use nearly all of the memory that they may. Quiet where no limit is known."""
    limit, now = s.table.values["memory_limit_bytes"], s.table.values["memory_bytes"]
    peak = np.fmax(now, s.table.values["memory_peak_bytes"])
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.where(limit > 0, now / limit, np.nan)
    full = np.flatnonzero(np.nan_to_num(share) > s.thresholds.memory)
    if not len(full):
        return
    worst = int(full[np.argmax(share[full])])
    who = rank_suspect(s.seats, worst, 0.0)
    alone = len(full) == 1
    names = "it uses" if alone else f"{len(full)} ranks use too much memory, most of all {who.text}:"
    left = float(limit[worst] - now[worst])
    yield Finding(
        "memory_nearly_full",
        Level.CRITICAL if share[worst] >= policy.MEMORY_CRITICAL else Level.DEGRADED,
        who.text if alone else "",
        f"{names} {now[worst] / GIB:.3g} GiB of {limit[worst] / GIB:.3g} GiB ({share[worst]:.0%}), with a "
        f"peak of {peak[worst] / GIB:.3g} GiB; a longer sequence than usual may end the process",
        place=who.place if alone else (),
        evidence=(
            ("memory_share_ratio", float(share[worst])),
            ("memory_left_bytes", left),
            ("memory_peak_bytes", float(peak[worst])),
            ("ranks_count", float(len(full))),
        ),
        recommendations=(
            Recommendation(
                f"Use smaller micro-batches and more of them: {left / GIB:.2g} GiB are left.",
                None,
                Effort.LOW,
            ),
            Recommendation(
                f"Recompute activations in the backward pass, or shard the optimizer over more ranks: "
                f"{len(full)} of {len(s.judged)} ranks are this full, and a peak is "
                f"{(peak[worst] - now[worst]) / GIB:.2g} GiB above what is in use now.",
                None,
                Effort.MEDIUM,
            ),
        ),
    )


def long_tails(s: LiveSituation) -> Iterator[Finding]:
    """Windows in which steps take far longer than usual, again and again, on all ranks at once.

    Time between the phases and snapshots does not count: scripts evaluate and save at intervals. Nor is
    anything said while somebody is named: everybody waits for whoever that is. Where all wait for the rank
    that snapshots hold up, that rank is found (`slow_snapshot`) as soon as they come often enough."""
    jobs = list(s.memory.jobs)[-policy.REMEMBERED :]
    if len(jobs) < policy.REMEMBERED or s.found:
        return
    steps_s = np.array([_inside_s(row) for row in jobs])
    usual = float(np.median(steps_s))
    bad = np.flatnonzero(steps_s > s.thresholds.tail_ratio * usual)
    times = int((np.diff(bad) > 1).sum()) + 1
    if len(bad) < policy.TAIL_TIMES or times < policy.TAIL_TIMES or 4 * len(bad) > len(jobs):
        return
    grown = {
        name: float(np.mean([jobs[at].spent[name] for at in bad])) - low_median(_column(jobs, name))
        for name in PHASES
    }
    phase = max(grown, key=lambda name: grown[name])
    late_s = sum(jobs[at].copied_late_s for at in bad)
    if late_s >= policy.EXPLAINED_RATIO * float((steps_s[bad] - usual).sum()):
        if len(bad) - 1 >= policy.SNAPSHOT_SHARE * (bad[-1] - bad[0]):
            return
        phase = "snapshot"
    lost = float((steps_s[bad] - usual).sum() / steps_s.sum())
    action = {
        "data": "Look at what fills the loader's storage at these moments, and give it a deeper queue.",
        "communication": "Look for retransmissions and congestion on the links at these moments.",
        "snapshot": "Look at memory bandwidth and free shared memory of the rank that copies longest.",
    }.get(phase, "Look what runs on the hosts at these moments: garbage collection, compilation, other jobs.")
    longest = s.table.values["longest_s"]
    yield Finding(
        "long_tail",
        Level.DEGRADED,
        "",
        f"in {len(bad)} of the {len(jobs)} newest windows a step takes more than {s.thresholds.tail_ratio:g} "
        f"times the usual {usual:.3g} s, up to {float(steps_s.max()):.3g} s on the mean of a window (longest "
        f"step: {float(np.nanmax(longest)):.3g} s); most of the excess is {phase} time",
        evidence=(
            ("bad_windows_count", float(len(bad))),
            ("tail_ratio", float(steps_s.max()) / usual),
            ("lost_share_ratio", lost),
            ("main_phase", phase),
        ),
        recommendations=(Recommendation(action, lost, Effort.MEDIUM),),
    )


def _inside_s(row: TypicalRow) -> float:
    return row.step_s - row.spent["other"] - row.spent["snapshot"]


def _column(jobs: list[TypicalRow], name: str) -> np.ndarray:
    return np.array([row.spent[name] for row in jobs])
