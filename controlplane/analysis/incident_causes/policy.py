"""Set the limits by which the ends of processes are judged, each with its reason."""

from __future__ import annotations

ENDING_S = 5.0
"""A process has met its failure at most so long before it ended: an interpreter with torch takes a second or
two to end, one that writes a core file or waits for threads longer."""
ENDS_MOST = 256
"""Ends of one incident that are read; of further ones only the number counts. A job that loses more ranks at
once has lost them to one cause, and it is in the first of them."""
LIVES_KEPT = 8
"""Earlier failures of one rank that are remembered, the newest, to recognise one that comes again."""
LINE_CHARS = 2000
"""A longer line of a log is cut: words that name a cause stand near its beginning."""
BEATS_KEPT = 32
"""Heartbeats of a node from which its clock is estimated, the newest."""
BEATS_MIN = 3
"""With fewer the clock of a node is not known."""
CLOCK_JUMP_S = 0.5
"""Three heartbeats in a row that come so much later than all before them mean that the clock was set, rather
than that the network was slow: what was learned before does not count."""
TEXT_CHARS, KERNEL_CHARS, NAME_CHARS = 20_000, 4000, 500
"""What is kept of the log, of the kernel's lines, and of names and reasons: a little more than agents send,
so that one that sends more takes no memory of the leader."""
