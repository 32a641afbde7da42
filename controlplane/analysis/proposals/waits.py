"""Propose spare nodes and loader workers, by what the job's account has lost to waiting for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.analysis.proposals import policy
from controlplane.analysis.proposals.proposal import Proposal, Withheld, unmeasured

if TYPE_CHECKING:
    from collections.abc import Iterator

    from controlplane.analysis.proposals.measured import MeasuredTime

SPARES, LOADER = "spares", "loader"


def spares(time: MeasuredTime) -> Iterator[Proposal | Withheld]:
    """A spare node, by how long the job waited for nodes after it had begun.

    What it waited before its first start is a queue, which a spare node does not shorten. A wait in the
    course of a recovery is counted as the failure's cause, and is not known."""
    waited_s, share = time.waited_again_s, time.waited_again_s / time.total_s
    if waited_s <= 0:
        yield unmeasured(
            SPARES,
            f"no wait for nodes after the first start is in the account ({time.lost('waiting'):.0f} s before "
            "it, or not told apart); a wait within a recovery counts as the failure's cause",
        )
    elif share < policy.GAIN_LEAST:
        yield Withheld(SPARES, f"after its first start the job waited for nodes for {share:.1%} of its time")
    else:
        yield Proposal(
            SPARES,
            "Keep a node spare, so that one that is lost is replaced at once.",
            share,
            at_most=True,
            reason=(
                f"after its first start the job waited for nodes for {waited_s:.0f} s of "
                f"{time.total_s:.0f} s; how long it did so within recoveries is not known"
            ),
            evidence=(("waiting_s", waited_s), ("total_s", time.total_s)),
        )


def loader(time: MeasuredTime) -> Iterator[Proposal | Withheld]:
    """More loader workers, by how long the busiest rank waited for samples."""
    waited_s, share = time.lost("data"), time.lost("data") / time.total_s
    if waited_s <= 0:
        yield unmeasured(LOADER, "no wait for samples is in the account")
    elif share < policy.GAIN_LEAST:
        yield Withheld(LOADER, f"waits for samples took {share:.1%} of the job's time")
    else:
        yield Proposal(
            LOADER,
            "Give the loader more workers (`num_workers`) or a deeper queue (`prefetch_factor`).",
            share,
            at_most=True,
            reason=f"the busiest rank waited for samples for {waited_s:.0f} s of {time.total_s:.0f} s",
            evidence=(("data_s", waited_s), ("total_s", time.total_s)),
        )
