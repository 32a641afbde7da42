"""Set the limits of the judgement, each with its reason, and what must agree between ranks, by operation."""

from __future__ import annotations

STALE_S = 1800.0
"""A dump whose newest record is older than the others' by more than this is stale. Half an hour is torch's
longest default timeout of a collective: nobody waits longer for a rank of the same run. Where the dumps state
a longer timeout, that one counts."""

HOST_BACKENDS = ("gloo",)
"""Backends without device events. They never record that an operation has started or completed; they retire
it when it has ended. Of all others, a retired operation that has not completed has timed out."""

ONE_SIDED = ("broadcast", "reduce", "gather", "scatter")
"""Collectives that some ranks may complete before others have arrived: a root that has sent, a rank that has
given its part. In all others, completion on one rank proves that every rank has arrived."""

SAME_INPUTS = ("all_reduce", "allreduce_coalesced", "broadcast", "reduce", "gather", "all_gather",
               "_all_gather_base", "all_gather_into_tensor_coalesced", "_reduce_scatter_base",
               "reduce_scatter_tensor_coalesced")  # fmt: skip
"""Collectives in which every rank must give input of the same size."""
SAME_OUTPUTS = ("scatter", "reduce_scatter")
"""Collectives in which every rank must get output of the same size."""
UNEVEN_INPUTS = ("all_gather", "reduce_scatter")
"""Collectives over lists of tensors: each rank may have a size of its own as long as all agree on the list
(the outputs of all_gather, the inputs of reduce_scatter)."""
# Of every operation in no table above (all_to_all, barrier, unknown ones), name and dtypes are compared.

WAITERS_MIN = 2
"""A rank without a dump is called a culprit only when at least this many ranks wait, all of them for it and
for nobody else: one rank that waits may as well be the one that is wrong."""

CERTAIN = 0.95
"""A rank's own records show that it did not arrive, or called something else than the majority."""
UNFINISHED = 0.8
"""Peers have completed an operation that the rank has not. Its device may have failed, or only the thread
that records completions."""
ROUNDS_MIN = 3
"""A rank's calls must have repeated in this many rounds before one is said to be left out. Two rounds may be
a start that looks alike; with three, two repetitions agree."""
BY_RHYTHM = 0.9
"""A rank's own records show that it left out what is waited for, and called it in each round before. Below
CERTAIN: rounds may change on purpose, by the number of micro-batches."""
BY_ORDER = 0.8
"""A cycle of waiting, of which the rank is the minority."""
BY_ABSENCE = 0.6
"""The rank has no records at all: that everybody waits for it is the only evidence."""
WAITING_SEND = 0.6
"""A cycle of waiting that vanishes if open sends do not block their senders."""
UNSURE_GROUP = 0.8
"""The factor where torch has not recorded who belongs to the group (gloo): members are those with records."""

NAMED_MAX = 6
"""More ranks than this are counted in a sentence, not listed."""
