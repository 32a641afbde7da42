"""Keep Python from looking for garbage among all that a leader knows.

What a leader remembers of 80,000 ranks is some millions of objects that stay. Python looks through all of
them whenever their number has grown by a quarter: 0.4 to 1.4 s each time, in which no heartbeat is heard, and
a dozen times while 10,000 agents come to a new leader. Garbage in circles is young, and is found by looking
at young objects; what a term leaves behind is collected when it is over."""

from __future__ import annotations

import gc

YOUNG, MIDDLE, OLD = 20_000, 20, 1_000
"""After so many new objects, so many looks at the youngest, and so many at those that have outlived one,
Python looks at the next older ones."""


def look_at_young_objects() -> None:
    """Set how often Python looks for garbage, for this process."""
    gc.set_threshold(YOUNG, MIDDLE, OLD)


def collect_all() -> None:
    """Look at all objects once: a term is over, and nobody waits for this process."""
    gc.collect()
