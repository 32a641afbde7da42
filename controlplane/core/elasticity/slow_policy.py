"""Say what becomes of each kind of finding that diagnosis has open about a job.

Read aloud: with `--slow-rank-policy off` stragglers are not reported; with `report`, the default, they are;
with `act`, the node of a kind whose `swap` is set is swapped for a spare one. `--node-risk-policy` says the
same of nodes that may fail next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from controlplane.core.records.timing import REPORT

if TYPE_CHECKING:
    from controlplane.core.records.timing import CoreSettings

DEADLINE_S = 600.0
"""A swap that has not happened by then is given up: the spare node went away, or state would be lost."""
NAME_MAX = 200
"""Characters of a finding's reason that the reason of a drain repeats."""


@dataclass(frozen=True, slots=True)
class Response:
    """What becomes of findings of one kind."""

    straggler: bool  # about who is slow: not reported with `off`
    swap: bool  # with `act`, its node is swapped
    why: str
    risk: bool = False  # about what may happen to a node: `--node-risk-policy` counts, and any level will do

    def policy(self, settings: CoreSettings) -> str:
        """Which policy administrators have chosen for findings of this kind."""
        if self.risk:
            return settings.node_risk_policy
        return settings.slow_rank_policy if self.straggler else REPORT


_JOB = Response(False, False, "it is about how the job is made, not about a slow rank")
_NETWORK = Response(False, False, "no node stands out")
_MEMORY = Response(False, False, "memory goes with the rank to any node")
_RISK = Response(False, True, "its ranks leave before it fails, and lose no step", risk=True)
_NUMBERS = Response(False, False, "the script's own policy says what follows wrong numbers")
_CAUSE = Response(False, False, "the job's restart policy says what follows a failure")
_APART = Response(False, False, "the judgement of hangs decides who is replaced, at once")

RESPONSES: dict[str, Response] = {
    "slow_rank": Response(True, True, "its device or host is slow: on another one it may not be"),
    "slow_node": Response(True, True, "the node is slow: another one may not be"),
    "slow_replica": Response(True, False, "its nodes have more in common than one node"),
    "slow_domain": Response(True, False, "its nodes have more in common than one node"),
    "throttled": Response(True, False, "it waits for the CPU, and nothing says for whose sake"),
    "cpu_throttled": Response(True, False, "the limit of its cgroup is the same on any node"),
    "crowded_cpu": Response(True, False, "no rank is slow itself: other processes have to go"),
    "heavy_work": Response(True, False, "more work goes with the rank to any node"),
    "slow_data": Response(False, False, "storage may be slow from any node"),
    "slow_snapshot": Response(False, False, "its state may be as large on any node"),
    "slow_link": Response(False, False, "nothing says which of its two nodes is to blame"),
    "slow_node_network": Response(False, False, "few probes say so: people look at the card or cable first"),
    "slow_network": _NETWORK,
    "slow_storage": Response(False, False, "storage may be slow from any node"),
    "uneven_work": _JOB,
    "overfull_stage": _JOB,
    "overfull_last_stage": _JOB,
    "job_slowed": _JOB,
    "step_time_grows": _JOB,
    "data_wait_grows": _JOB,
    "communication_bound": _JOB,
    "device_underused": _JOB,
    "long_tail": _JOB,
    "small_kernels": _JOB,
    "memory_nearly_full": _MEMORY,
    "memory_fragmented": _MEMORY,
    "memory_leak": _MEMORY,
    "checkpoint_time_grows": Response(False, False, "the storage or the state is the same from any node"),
    "disk_filling": Response(False, False, "what fills the disk would fill the next one"),
    "telemetry_silent": Response(False, False, "it says what is not known of a node, not that it is slow"),
    "node_at_risk": _RISK,
    "non_finite": _NUMBERS,
    "exploding_gradients": _NUMBERS,
    "vanishing_gradients": _NUMBERS,
    "loss_spike": _NUMBERS,
    "loss_plateau": _NUMBERS,
    "first_failure": _CAUSE,
    "fails_again": _CAUSE,
    "not_arrived": _APART,
    "other_collective": _APART,
    "other_shape": _APART,
    "other_dtype": _APART,
    "other_order": _APART,
    "left_out": _APART,
    "unfinished": _APART,
    "no_dump": _APART,
    "corrupt_state": Response(False, False, "the job's own policy (--on-corrupt-state) says what follows"),
}
"""For each kind of finding about a running job, what becomes of it."""


def response(kind: str) -> Response:
    """What becomes of findings of a kind. One without a row (a test finds it) is only reported."""
    return RESPONSES.get(kind, _JOB)
