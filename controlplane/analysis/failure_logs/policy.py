"""Set the limits by which logs are judged, each with its reason."""

from __future__ import annotations

CLOCKS_APART_S = 1.0
"""Clocks of different nodes may differ by so much when nothing common to them was logged: NTP keeps hosts of
one data centre within milliseconds, but a host without it drifts by a second in a day."""
SAME_CLOCK_S = 0.002
"""Times of one node that differ by less are of one moment: processes log into buffers."""
STAMP_FLOOR_S = 0.02
"""A clock offset is not known better than this: ranks leave a collective at slightly different moments."""
MARKS_MIN = 3
"""With fewer common steps no clock offset is estimated: a single late line would shift all others."""
MARKS_KEPT = 64
"""Common steps that are kept of each rank, the last ones: a clock that drifts is compared near the end."""
MARGIN_QUANTILE = 0.9
"""The margin of a clock offset: this part of the common steps deviate by less."""
STEPS_BEHIND = 2
"""A rank whose last step is so many lower than another's failed before it: synchronous ranks are at most one
step apart."""
STOPPED_EARLIER_S = 5.0
"""A rank whose last time lies so much before the others' failed before them, although its failure itself
bears no time: a rank that trains logs more often than that, one that waits for others does not."""
MODIFIED_APART_S = 5.0
"""File times decide only when they lie so far apart: files are copied, and flushed late."""
MODIFIED_SPREAD_MAX_S = 86400.0
"""File times that lie further apart than this are those of other runs, or of copies."""
ALIKE_RATIO = 0.5
"""From this part of all ranks on, ranks that failed with the same cause at the same place failed alike."""
ALIKE_MIN = 2
"""One rank that fails is not `alike`, however small the job."""
FIRST_STEPS = 10
"""A failure in so many first steps of a run meets no state that a restart would change."""
EVENTS_KEPT = 40
"""Failures that are kept of each attempt, the first ones: what follows them repeats them."""
FRAMES_KEPT = 200
"""Frames of one traceback that are kept; a recursion has a thousand equal ones."""
BLOCK_LINES = 2000
"""A traceback that has not ended after so many lines is cut off."""
STRAY_LINES = 12
"""Lines of other threads that may stand within a traceback before it is taken as cut off."""
MESSAGE_LINES = 6
"""Lines of an exception's message that are searched for words."""
MESSAGE_CHARS = 2000
TEXT_SHOWN = 300
"""Characters of a line that are shown as evidence."""
CHAIN_MAX = 50
"""Exceptions of one chain that are kept."""
CASCADE_SHOWN = 4096
"""Ranks in the answer, at most."""

CERTAIN, LIKELY, WEAK, GUESS = 0.95, 0.8, 0.6, 0.4
"""Confidence of an answer: one rank alone has a cause of its own; the order decides; indirect evidence; the
least bad evidence there is."""
