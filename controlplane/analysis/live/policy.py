"""Set the limits of the live diagnosis, each with its reason."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from controlplane.core.state.findings import Level

if TYPE_CHECKING:
    from controlplane.core.records.diagnosis import Thresholds

# ------------------------------------------------------------------ what is compared

RECENT = 6
"""A rank is judged by its newest rows: a minute, when windows last 10 s. A median of six does not move for
two wild ones."""
LEAST = 4
"""With fewer rows nobody is judged."""
REMEMBERED = 36
"""Rows kept to see when something began: six minutes of 10 s."""
WARM_UP = 2
"""The first rows of a generation are not judged: kernels are compiled and caches filled in them."""
READY_RATIO = 0.9
"""Windows are added up until this share of the ranks has completed a step: steps may last longer than
windows, and agents report at different moments."""
MERGED_MAX = 60
"""Windows added up at most; then those ranks are judged that have completed a step."""
RANKS_MAX = 1_000_000
"""Ranks of a job, at most: tables have a place for each."""

# ------------------------------------------------------------------ which readings are believed

WHOLE_RATIO = 1.5
"""Phases that add up to so many times the steps they are part of, or the other way round, are no reading."""
LAG_STEPS = 3
"""A rank that is behind the others by so many steps, and by twice as many as a window has, reports late:
collectives keep ranks within a step or two of each other."""
COVERED_RATIO = 0.5
"""A rank whose hooks tell fewer of its steps is not compared with ranks whose hooks tell more: its own work
cannot be told from its waiting."""
COVERED_LEAST = 4.0
"""Where only some steps are measured, a rank whose hooks tell none of them is left out when those of a
typical rank have told of so many: not all ranks measure the same steps."""
UNJUDGED_MAX = 100
"""Ranks named at most that were left out; the rest is counted."""

# ------------------------------------------------------------------ who is slow

SUSTAINED_RATIO = 0.75
"""A slow rank exceeds half of the limit (as a logarithm) in this share of its newest rows: bursts pass."""
SPREADS = 5.0
"""A slow rank exceeds its peers by so many times the spread of their levels. Of 80,000 ranks that scatter
normally, one in 40 jobs has a rank beyond five spreads."""
NOISE_SPREADS = 4.0
"""And by so many times the uncertainty of its own level: a rank that scatters is not steadily slow."""
NODE_RATIO = 0.75
"""A node is slow, and not its ranks one by one, when this share of them exceeds half of the limit."""
REPLICA_RATIO = 0.9
"""The same for a replica of the model on several nodes. More is asked: it may have several slow nodes."""
DOMAIN_RATIO = 0.9
"""The same for a fault domain (a rack, a switch, a power feed) with several nodes of the job: what its nodes
share makes all of them slow."""
NAMED_MAX = 16
"""Subjects that one detector names at most, the worst first: when there are more, something else is wrong."""
COST_RATIO = 1.02
"""A finding: somebody who alone makes a step so many times as long. Less is not worth a visit."""
CRITICAL_COST_RATIO = 1.2
"""What makes every step a fifth longer by itself may be critical; what costs less is a warning."""
CPU_SHARE = 0.5
"""Where peers spend less of their own work than this on the CPU, devices compute, and CPU time tells
nothing about who has more work."""
COUNTED_RATIO = 0.5
"""The kernel's count of a rank's CPU time is believed if it is at least this share of what the rank has
measured itself: they cover slightly different times."""
VOTES_MAX = 1000
"""Suspects whose causes are remembered; then counting begins anew."""
ON_CPU_RATIO = 0.65
"""A rank computes more when its CPU time has grown by this share of what its own time has (logarithms),"""
OFF_CPU_RATIO = 0.35
"""and waits for the CPU when by less than this."""
ONE_PHASE_RATIO = 0.8
"""What lies in one phase to this share is no quota: a quota stretches all phases alike."""
CHANGE_RATIO = 1.15
"""Where nobody has peers, a rank is compared with itself, and that needs more: work drifts."""
DRIFT = 0.0005
"""A rank's usual time follows its present one by this much (a logarithm) per row, so that a change by a
tenth takes half an hour to be forgotten."""
UNCERTAIN = 0.5
"""The confidence is multiplied by this where there was no majority of peers."""

# ------------------------------------------------------------------ who has been slow for minutes

LASTING_BLOCKS = 4
"""So many blocks of RECENT rows are the evidence by which half of the limit is enough: four minutes, when
windows last 10 s. Three of the four have to show it (SUSTAINED_RATIO)."""
LASTING_BEFORE = 48
"""Blocks kept from before these, from the beginning on, ever further apart."""
LASTING_BEFORE_LEAST = 3
"""With fewer it is not known what is usual."""
LASTING_SMALL_BLOCK = 1.25
"""The median absolute deviation of six values that scatter normally is, on average, so much less than that
of many."""
LASTING_PEERS = 8
"""Fewer ranks of a stage do not say by how much healthy ones differ. They are compared with before."""
LASTING_SPREADS, LASTING_FEW = 4.5, 24.0
"""By so many standard deviations of its peers does a rank have to stand out that was never seen to become
slow; of n peers, by LASTING_FEW / n more. Of healthy jobs whose ranks differ by up to 2 %, that accuses one
in 3,000 at most, of 12 peers or of 128."""

# ------------------------------------------------------------------ stages and uneven work

OVERFULL_RATIO = 1.1
"""A stage holds too much when its typical rank works so many times as long as that of the other stages, as
in the diagnosis of timelines."""
STAGE_ROWS = 12
"""A stage is judged by so many rows: what it holds does not change, and a node that is slow for a minute may
have a stage for itself."""
STAGE_ROWS_KNOWN = 8
"""So many of them have to tell of the stage and of another one: windows as short as steps miss ranks."""
TRANSFER_GROWN_RATIO, TRANSFER_GROWN_SHARE = 1.5, 0.05
"""Links are suspected when transfers take so many times as long as usual, and that is at least this share of
a step more: less is not worth a probe."""
TRANSFER_ROWS = 12
"""Communication is judged by the one of so many rows that has least of it: in others somebody was late."""
UNEVEN_SPREAD = 0.1
"""Work is uneven when ranks differ by this share from step to step,"""
UNEVEN_CORRELATION = 0.7
"""their work and what they work on (tokens, or CPU time) go together at least so closely,"""
UNEVEN_LEAST = 20
"""Pairs of values from which a correlation is one."""
UNEVEN_WAIT = 0.05
"""and a typical rank waits for the slowest of each step for this share of the time."""
UNEVEN_LASTING = 0.4
"""Work that is uneven by chance has another slowest rank each time: the levels of ranks over all rows scatter
by less than this share of what a single row does."""

# ------------------------------------------------------------------ waiting for samples and snapshots

WAIT_RATIO = 0.08
"""A rank (or node) waits longer than its peers by this share of a step: in a synchronous job, everybody then
loses it."""
SNAPSHOT_RATIO = 0.04
"""The same for snapshots, which come seldom: averaged over SNAPSHOT_ROWS rows."""
SNAPSHOT_ROWS = 12
SNAPSHOT_SHARE = 0.1
"""They are uncertain by this share of a single one, so rows with one are at least so many of all."""
SNAPSHOT_TIMES = 3
"""Rows with a long snapshot, at least: one alone passes."""

# ------------------------------------------------------------------ waiting for a CPU

CROWDED_RATIO = 0.1
"""A node is crowded when its ranks wait for a CPU for this share of a step. Less is normal: a wake-up takes
a moment, and daemons run now and then."""
WAITS_UNSURE = 0.1
"""Waits for a CPU are estimated, and taken off the work of a rank: what is left is known to this share of
them, and nobody is slow by less."""
COUNTED_WAIT = 0.02
"""From which share of a step on a finding says that they were taken off."""
THROTTLED_RATIO = 0.05
"""A quota that holds a rank up for this share of a step is too low: all ranks wait for it."""
HIT_STILL, HIT_ROWS = 0.5, 24
"""A node that was too crowded is so until it waits for less than this share of what is too much, over so many
rows: ranks near the limit, and ranks whose counts are missing in some windows, are told of once."""

# ------------------------------------------------------------------ steps, over hours

STEPS_SPAN_S = 300.0
"""Steps of five minutes are one sample, their median: what comes and goes within minutes is in it."""
STEPS_LEARNT, STEPS_LEARNT_S = 64, 86_400.0
"""How long a step usually takes is learnt from a day: where others share network and storage, days have a
rhythm. From two hours, healthy jobs that wander by 3 % had a false alarm every other day."""
STEPS_GROW_S = 7200.0
"""Growth is told of when it has lasted for so long: a job may have phases of minutes."""
STEP_GROWN_RATIO = 1.1
"""Steps have grown when they take so many times as long as was usual: a tenth is worth a look after hours."""
DATA_GROWN_RATIO = 1.05
"""Waits for samples have grown when they make a step so many times as long as was usual. That is early: from
15 % of a step on (`Thresholds.data`) the loader is a bottleneck."""

# ------------------------------------------------------------------ storage

STORAGE_PORTION_BYTES = 64 << 20
"""Traffic is added up to so many bytes before it says how fast it was: less is round trips, not speed."""
STORAGE_PORTIONS, STORAGE_PORTIONS_LEAST = 3, 2
"""The newest portions of a node count, and so many at least: one may have met somebody else's traffic."""
STORAGE_STALE_S = 7200.0
"""Portions older than this say nothing about now: checkpoints may come once an hour."""
STORAGE_NODES_LEAST = 3
"""With fewer nodes there is no majority that says which is slow."""
STORAGE_RATIO = 3.0
"""A node's storage is slow when a typical node moves so many times as much in the same time. Writers that
share a storage get uneven parts of it, by a factor of two."""
STORAGE_EXCESS_S = 2.0
"""And when that has cost so much time (s)."""
STORAGE_CONFIDENCE = 0.8
"""Who writes alone is faster than those that write together: that is not told apart."""

# ------------------------------------------------------------------ the whole job

SLOWED_RATIO = 1.25
"""A job is slowed when its usual step takes so many times what it took: data and lengths drift by less."""
EXPLAINED_RATIO = 0.4
"""What one busy rank, more tokens, or the wait of one rank for a CPU explain to this share is no fault of the
whole job."""
LEAST_WHOLE = 2
"""So many of the newest rows, at least, have nearly all ranks (READY_RATIO); with fewer nobody knows for whom
the others wait."""
QUEUE_RATIO = 0.2
"""The same for a typical rank's wait for a CPU. Less of it is enough: ranks wait at different moments, and
each wait holds up all others at the next collective."""
JOB_ROWS = 360
"""Rows of whole-job times kept: an hour of 10 s."""
TAIL_TIMES = 3
"""Bad rows, at least, before a long tail is one."""


# ------------------------------------------------------------------ memory

LEAK_SAMPLES = 48
"""Memory samples kept per rank. When there is no more room every second one is dropped, so that they always
reach back to the beginning."""
LEAK_LEAST = 20
"""SpacedSamples before a trend is one."""
LEAK_STEPS = 100
"""Steps from the first of them to the last: allocators and caches fill by steps, each time that a longer
sequence comes than any before, however long steps take."""
LEAK_RATIO = 0.03
"""Growth from the first third of the samples to the last, as a share of memory: less is noise."""
LEAK_SUSPECTS = 64
"""Ranks whose growth is looked at in detail, those that have grown most."""
LEAK_SOON_S = 3600.0
"""A process that runs out of memory within the hour is critical."""
MEMORY_CRITICAL = 0.97
"""So full, the next longer sequence ends the process."""
LEAK_FAR_S = 14 * 86400.0
"""One that would take longer than two weeks is no finding: jobs are restarted sooner."""

DISK_EVERY_S = 30.0
"""Room on disks is looked at so seldom: it changes in minutes."""
DISK_GONE_S = 600.0
"""A file system that nobody has reported for so long is forgotten: its node has left the job."""
DISK_SAMPLES, DISK_LEAST = 80, 20
"""Samples kept of each file system, from the beginning on, ever further apart; and how many make a trend."""
DISK_SPAN_S = 590.0
"""A fall is watched for so long at least (s): a checkpoint is written for minutes, and then it is over,"""
DISK_CHECKPOINTS = 3.0
"""and over the time of so many checkpoints: by then retention deletes what it will delete."""
DISK_RATIO = 0.01
"""Less of a file system than this is noise, from the first third of the samples to the last."""
DISK_AHEAD = 4.0
"""Forecasts reach so many times as far as the fall was watched: the first checkpoints of a job fill a disk
too, until as many are kept as shall be."""
DISK_FAR_S = 7 * 86400.0
"""A disk that would be full in more than a week is no finding."""
DISK_SOON_S = 3600.0
"""One that is full within the hour is critical."""
DISK_ALIKE = 0.01
"""Nodes whose file systems at one path have the same size, and as much room to this share of it, share it."""

RISK_FAILURES = 0.9
"""Weight of a failure score that has reached the limit of quarantine; of a lower one, its share. Failures
recur: in a published trace every fourth fault came within a week of another one of its node."""
RISK_DEVICE = 0.3
"""Weight of a node with devices that are unhealthy: the others share power, cooling and host."""
RISK_HELD = 0.2
"""Weight of a node that came back again and again, or is cut from its peers."""
RISK_SILENT = 0.3
"""Weight of a node whose step reports have stopped: its agent or host is in trouble, or its disk is full. A
guess: no history of such silences is known to us."""
SILENT_S = 60.0
"""A node that reports no steps for so long, while others do, is silent: far longer than agents wait between
two reports (5 s; in the largest clusters as they beat, up to 10 s), or than a busy host delays one."""
RISK_LIMIT = 0.5
"""Weights add up to one risk as if they were independent: 1 - (1 - a)(1 - b)... From this on a node is named:
two losses within two days, or one device that failed, are enough; one loss is not."""

CHECKPOINTS_LEARNT = 12
"""Checkpoints whose durations say what is usual. With fewer nothing is said."""
CHECKPOINT_RATIO = 1.5
"""A checkpoint that takes so many times as long as usual is worth a look at the storage."""
CHECKPOINT_CAUSE_RATIO = 1.25
"""Its storage writes more slowly, or it has more to write, when a byte takes, or the bytes are, so many times
what was usual: half of CHECKPOINT_RATIO, as a logarithm."""


def level(ratio: float, alone_ratio: float, thresholds: Thresholds) -> Level:
    """How bad it is that somebody is slower by `ratio`, which makes a step longer by `alone_ratio`."""
    grave = ratio >= thresholds.critical_ratio and alone_ratio >= CRITICAL_COST_RATIO
    return Level.CRITICAL if grave else Level.DEGRADED


def half(ratio: float) -> float:
    """Return the logarithm in the middle between 1 and a ratio."""
    return 0.5 * math.log(ratio)


# ------------------------------------------------------------------ losses and gradients

NUMBERS_KEPT = 512
"""Measured steps remembered per job: with one in 50 steps, 25,000 steps."""
EVENT_WINDOWS = 12
"""A single step (a NaN, a spike) is reported for so many windows: a warning opens after four, so that it is
seen, and is over two minutes later, when windows last 10 s."""
NUMBERS_LEAST = 12
"""Measured steps before a norm or a loss has a usual value: fewer say nothing of their scatter."""
USUAL_STEPS = 64
"""Measured steps before one that say what is usual there: training drifts, and longer ago it was another."""
NORM_LARGE = 100.0
"""A gradient norm above this is large for every usual way to scale a loss: with a mean loss and a usual
initialisation norms are about 1,"""
NORM_LARGE_TIMES = 3
"""if it is so in that many of the newest measured steps."""
NORM_RATIO, NORM_SPREADS = 8.0, 6.0
"""A gradient has exploded when its norm is so many times the usual one, and so many spreads (of logarithms)
above it: single batches scatter by two or three times."""
NORM_SPREAD_LEAST = 0.05
"""Spreads of logarithms below this are taken as this: of equal values everything is far away."""
VANISHING_NORM = 1e-8
"""As `holdfast.telemetry.gradient_policy.VANISHING`: such a gradient changes no float32 weight."""
VANISHING_TIMES = 3
"""Measured steps in sequence in which a parameter's gradient has vanished: once may be the batch."""
SPIKE_SPREADS, SPIKE_RATIO = 8.0, 1.2
"""A loss has a spike when it is so many spreads, and so many times as much, above its usual value."""
SPIKE_SPREAD_LEAST = 0.01
"""Spreads below this share of the usual loss are taken as this."""
SPIKE_LASTING = 3
"""Measured losses in sequence above the limit: then it is no spike but a jump, and critical."""
PLATEAU_LOSSES = 200
"""Measured losses that a plateau lasts at least: 10,000 steps, with one in 50."""
PLATEAU_RATIO = 0.002
"""A loss that falls by less than this share of itself over such a time does not fall."""
NOISE_STEPS, NOISE_LEAST = 64, 8
"""The gradient noise scale is a ratio of two means that scatter widely: over so many measured steps, and at
least so many."""
PARAMETERS_NAMED = 5
"""Parameters that a finding, or a metric, names at most, the worst first."""
