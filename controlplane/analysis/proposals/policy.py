"""Set what is proposed for which finding, and the limits of proposals, each with its reason."""

from __future__ import annotations

GAIN_LEAST = 0.01
"""Share of the job's time. What gains less is not worth a restart with other settings, and lies within what
the account is off by."""
TIME_LEAST_S = 300.0
"""The account of a shorter job is mostly its start, and says little of the time to come."""
ACCOUNT_RATIO = 0.02
"""The parts of an account may differ from its total by this share, and by a second: they are rounded. One
that differs by more is not believed."""
FAILURES_LEAST = 5
"""The mean time between failures is known to within 1 / sqrt(failures): 45 % with five. The best interval
goes with its root, and the gain is flat around it. One failure says nothing of the next."""
COST_LEAST_S = 1.0
"""Snapshots, or steps that were redone, have cost less in all: nothing follows from that. The account is
rounded to hundredths of seconds."""
FACTOR_MOST = 10.0
"""An interval is changed by at most this factor: farther away the stall of a copy and the losses were never
seen."""
FACTOR_LEAST = 1.25
"""Intervals that differ by less, up or down, cost nearly the same: the optimum is flat."""
SILENCES_LEAST = 3
"""Failures of nodes that were noticed by silence, before another timeout is proposed for them."""
LISTENED_LEAST_S = 3600.0
"""A leader that has heard heartbeats for less has not seen how long a node that lives may be silent: pauses
of a machine come seldom."""
SILENCE_FACTOR = 2.0
"""A timeout of nodes is this many times the longest silence of a node that lived, at least."""
MADE_RATIO = 0.5
"""A rank makes its samples itself if its main thread ran for more of the wait for them than this."""
NO_CPU_RATIO = 0.25
"""A rank that had no CPU for more of the time in which it could run shares too few of them with others: more
processes make that worse."""
WORKERS_MOST = 16
"""More loader workers for a rank are not proposed: far more than have been measured."""
BUCKET_BYTES_LEAST = 1 << 16
"""An all-reduce of fewer bytes is none of gradients: scripts sum losses and flags."""
REDUCTIONS_MOST = 1000
"""All-reduces of a step that are believed: more come from a step time and a record of different times."""
BUCKETS_WANTED = 8
"""All-reduces of gradients per step: the last one, which nothing hides, then carries an eighth of them. More
are not proposed: what the start of one costs is not measured."""
MEMORY_RATIO = 0.5
"""Twice the micro-batch takes twice the activations, and no more of the rest: it fits where the peak of the
fullest rank is no more than this share of its memory."""
CONFIDENCE_LEAST = 0.5
"""Nothing is proposed for a finding that is less sure who is to blame: half is what one has that is compared
with its own past alone."""

_LOOK = "its recommendation is to look for the cause: no setting follows from it"
_FAILS = "it is about a failure, not about the pace of steps"
_SPEED = "what it costs per step is not measured"
_NUMBERS = "it is about wrong numbers, not about speed"

SETTINGS: dict[str, str] = {
    "slow_rank": "placement",
    "slow_node": "placement",
    "slow_replica": "placement",
    "slow_domain": "placement",
    "throttled": "CPUs",
    "cpu_throttled": "CPUs",
    "crowded_cpu": "CPUs",
    "heavy_work": "batches",
    "uneven_work": "batches",
    "overfull_stage": "layout",
    "overfull_last_stage": "layout",
    "slow_data": "loader",
    "slow_snapshot": "snapshots",
    "communication_bound": "communication",
    "slow_link": "network",
    "slow_node_network": "network",
    "slow_network": "network",
    "device_underused": "devices",
}
"""Kinds of findings for which something is proposed -> which part of the job's settings it is about."""
NO_SETTING: dict[str, str] = {
    "job_slowed": _LOOK,
    "step_time_grows": _LOOK,
    "data_wait_grows": "it says when waits for samples become a bottleneck, and until then they cost little",
    "long_tail": _LOOK,
    "small_kernels": "operators are fused in the script; no setting of a job does that",
    "slow_storage": _SPEED,
    "checkpoint_time_grows": _SPEED,
    "memory_nearly_full": "what a smaller micro-batch would cost or gain is not measured",
    "memory_fragmented": "what a larger micro-batch in the memory that would be free gains is not measured",
    "memory_leak": "it says when memory is full, and costs no time until then",
    "disk_filling": "it says when a disk is full, and costs no time until then",
    "telemetry_silent": "it says what is not known, not what slows the job down",
    "node_at_risk": "it says what may happen, not what slows the job down",
    "non_finite": _NUMBERS,
    "exploding_gradients": _NUMBERS,
    "vanishing_gradients": _NUMBERS,
    "loss_spike": _NUMBERS,
    "loss_plateau": _NUMBERS,
    "first_failure": _FAILS,
    "fails_again": _FAILS,
    "not_arrived": _FAILS,
    "other_collective": _FAILS,
    "other_shape": _FAILS,
    "other_dtype": _FAILS,
    "other_order": _FAILS,
    "left_out": _FAILS,
    "unfinished": _FAILS,
    "no_dump": _FAILS,
    "corrupt_state": _FAILS,
}
"""Kinds for which nothing is proposed -> why. Each kind of finding is in one of the two tables."""
