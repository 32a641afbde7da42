"""Set how often links are probed, and what makes a link slow, each limit with its reason."""

from __future__ import annotations

# ------------------------------------------------------------------ what a probe may cost

BURST_BYTES = 4 << 20
"""Bytes of one burst, at most: what a step of a model of one million parameters sends."""
BURST_S = 0.05
"""A burst is ended after this time: on a link that is as slow as 100 Mbit/s it still sends 450 KB."""
SLOT_S = 0.3
"""Each peer's turn: a burst, its round trips and the connection, with some room, so that nobody is probed by
two nodes at once."""
ALL_PAIRS_UP_TO = 8
"""Up to so many nodes each probes all others, and only one of them at a time: nodes of a small job may share
a machine. In larger jobs each probes those at distances of a power of two
along the ring of nodes, in both directions: 2 log2(n) bursts per node."""
NODES_MAX = 1024
"""No more nodes of one job are probed: their answers are 20,000 rows, which the leader sorts."""

ROUND_REST_S = 15.0
"""No pair is probed again within this time, whatever happens: bursts are then less than 1/300 of the time of
a link."""
ROUND_ROOM_S = 5.0
"""And none begins sooner than this after the last turn of the one before."""
EAGER_ROUNDS = 6
"""So many rounds follow each other at that distance when links come under suspicion: half of them may be
disturbed."""
LATER_REST_S = 300.0
"""After these, while the suspicion lasts: so that it is seen when a link is well again."""
CALM_S = 60.0
"""A suspicion is over when nothing spoke for it for this time; what was measured in it counts no more."""
ANSWER_S = 60.0
"""A round whose answers are not in by then is over."""

# ------------------------------------------------------------------ what is believed

STALE_S = 1500.0
"""Measurements older than this say nothing about now: five rounds of a lasting suspicion, of which two may be
disturbed."""
KEPT = 4
"""The newest measurements of one direction; the best of them counts: disturbances only make it worse."""
MEASURES_LEAST = 3
"""A direction that was measured less often while both ends were calm is not judged: two probes may have met
bursts of the job's own."""
WAITED_MAX = 0.2
"""A probe counts when the agent at each end waited for a CPU for at most this share of the time of its newest
block: with both ends at the limit it takes 1.7 times as long, less than SLOW_RATIO. On a calm machine agents
wait for 1 to 12 % of it, on one with three processes per CPU for 20 to 100 %."""
RTT_WAITED_S_MAX = 1e-3
"""And at most so long in a round trip: a tenth of SLOW_RTT_S. Calm: 0.02 to 0.1 ms."""
PRESSURE_MAX = 0.5
"""And some process of its node waited for a CPU for at most this share of the time, where that is counted:
what the kernel itself does for the network is counted for no agent."""
OCCUPIED_MAX = 0.5
"""A link is not called slow when an agent computed or waited for a CPU for this share of the block's time:
then the agent was slow. The agents of a link that carries half of what they can are occupied for a third."""
RTT_MAX_S = 10.0
BYTES_PER_S_LEAST, BYTES_PER_S_MAX = 1e2, 1e12
"""What lies beyond is no measurement: 8 Tbit/s over one connection of one process does not exist."""

# ------------------------------------------------------------------ which links are slow

SLOW_RATIO = 2.0
"""A link is slow when a typical one carries so many times as much. Probes of healthy links of one kind differ
by a third where processors are busy."""
SLOW_RTT_RATIO, SLOW_RTT_S = 5.0, 0.01
"""Or when its round trip takes so many times as long as a typical one, and so much longer (s): below that, it
is the time of the processes at both ends."""
SPREADS = 6.0
"""It must also lie so many times the spread of the links below the typical one: of 1000 links that scatter
normally one lies 3.2 spreads below the median, and the typical one 0.7 above it; of few links the spread is
underestimated by up to a third."""
TYPICAL_QUANTILE = 0.75
"""The typical link is that of this quantile: with one slow node among four, half of the links are slow."""
BUSY_RATIO = 1.5
"""A node that sends to itself so many times slower than a typical node does is busy: its links cannot be
judged. That is less than SLOW_RATIO, so that no busy node has slow links."""
LINKS_LEAST = 6
"""With fewer links of a class nobody is named: a link needs five others to be compared with. Three pairs, as
they are left when one of four nodes is busy, scatter too little to say what is usual."""
NODE_SHARE = 0.75
"""A node's network is slow, and not its links one by one, when this share of its links is slow."""
NODE_LINKS_LEAST = 2
"""And so many links at least: one slow link has two ends."""
NAMED_MAX = 8
"""More slow links than this, which are not those of one node, are one trouble of the network."""
REFERENCE_RATIO = 2.0
"""The whole network is slow when a typical link carries less than it did before, by this ratio."""

# ------------------------------------------------------------------ how sure

CONFIDENCE = 0.9
UNCERTAIN = 0.5
"""The confidence is multiplied by this where there is no majority: two nodes."""
