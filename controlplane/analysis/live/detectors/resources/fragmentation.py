"""Find devices whose memory is full of pieces that torch's allocator holds and cannot use.

What the allocator holds beyond the most that tensors ever used at once (`torch.cuda.memory_reserved`,
`max_memory_allocated`) was never needed: it is pieces that no request fits in. That costs nothing while the
device has free memory; then the allocator has to give memory back and ask for it again in the middle of a
step, or the process ends. Without a device, or with agents that do not report what is held, nothing is
said."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from controlplane.analysis.live.places import rank_suspect
from controlplane.core.records.words import GIB
from controlplane.core.state.findings import Effort, Finding, Level, Recommendation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from controlplane.analysis.live.situation import LiveSituation


def memory_fragmented(s: LiveSituation) -> Iterator[Finding]:
    """Ranks whose allocator holds nearly all that it may, and cannot use much of it."""
    held, limit = s.table.values["memory_reserved_bytes"], s.table.values["memory_limit_bytes"]
    peak = s.table.values["memory_peak_bytes"]
    known = (held > 0) & (limit > 0) & (peak > 0) & (peak <= held) & (held <= limit)
    with np.errstate(invalid="ignore", divide="ignore"):
        unused = np.where(known, (held - peak) / held, np.nan)
        full = np.where(known, held / limit, np.nan)
    found = np.flatnonzero(
        (np.nan_to_num(unused) > s.thresholds.fragmented) & (np.nan_to_num(full) > s.thresholds.memory)
    )
    if not len(found):
        return
    worst = int(found[np.argmax(unused[found])])
    who = rank_suspect(s.seats, worst, 0.0)
    alone = len(found) == 1
    names = "torch's" if alone else f"{len(found)} ranks have such memory, most of all {who.text}: torch's"
    yield Finding(
        "memory_fragmented",
        Level.DEGRADED,
        who.text if alone else "",
        f"{names} allocator holds {held[worst] / GIB:.3g} GiB of the device's {limit[worst] / GIB:.3g} "
        f"GiB, and tensors never used more than {peak[worst] / GIB:.3g} GiB at once: {unused[worst]:.0%} of "
        f"it is in pieces that do not fit, and {full[worst]:.0%} of the device is taken",
        place=who.place if alone else (),
        evidence=(
            ("unused_ratio", float(unused[worst])),
            ("held_bytes", float(held[worst])),
            ("memory_peak_bytes", float(peak[worst])),
            ("memory_limit_bytes", float(limit[worst])),
            ("ranks_count", float(len(found))),
        ),
        recommendations=(
            Recommendation(
                "Start the ranks with PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True: about "
                f"{(held[worst] - peak[worst]) / GIB:.2g} GiB would be free again.",
                None,
                Effort.LOW,
            ),
            Recommendation("Pad sequences and batches to few sizes, so that pieces fit again.", None),
        ),
    )
