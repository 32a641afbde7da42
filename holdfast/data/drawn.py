"""Say in words which samples this rank has in the running step. Worked out only when somebody asks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.data import contract

if TYPE_CHECKING:
    from holdfast.data.streams import SampleStreams

SHOWN = 8
"""Samples that a sentence names; further ones are counted."""


def described(streams: SampleStreams) -> str:
    """The rank and its samples of the running step, by their indices; or why they are not known."""
    drawn = streams.drawn()
    if not drawn:
        reads = "the script reads its data itself"
        return f"batch not known: {'an iterable data set has no indices' if streams.iterates else reads}"
    parts = []
    for order, indices in drawn:
        shown = ", ".join(str(each) for each in indices[:SHOWN].tolist())
        more = f" and {len(indices) - SHOWN} more" if len(indices) > SHOWN else ""
        of = f" of the data with {contract.shown(order.sizes)}" if len(drawn) > 1 else ""
        parts.append(f"{shown}{more}{of}")
    unknown = ", and what it takes from an iterable data set" if streams.iterates else ""
    return f"rank {streams.state.rank} has the samples {'; '.join(parts)}{unknown}"
