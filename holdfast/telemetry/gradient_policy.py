"""Set the limits of watching gradients, each with its reason."""

from __future__ import annotations

EVERY = 50
"""Steps from one measurement to the next, unless the script says otherwise: a measurement costs some
milliseconds of the host, so that in steps of 20 ms it stays below a hundredth of the time."""
EVERY_MAX = 1_000_000
ON_NAN = ("report", "skip", "rollback", "stop")
"""What may follow gradients that are NaN or Inf."""
VANISHING = 1e-8
"""A parameter whose gradient has a smaller norm than this does not learn: float32 cannot add a thousandth of
that to a weight of usual size."""
ROWS_MAX = 16
"""Parameters in one report. The rest is in its sums."""
FULL_RANKS = 8
"""Only so many ranks report parameters one by one, unless they are not finite: after the reduction gradients
are equal, and a leader of 10,000 ranks has enough of the sums."""
ROWS_SMALLEST, ROWS_CHANGED = 3, 5
"""How many of these rows are for the smallest norms, and for those that have grown most."""
USUAL_OF = 16
"""A parameter's usual norm is the median of so many measurements before."""
USUAL_LEAST = 5
"""With fewer there is no usual norm."""
UNREAD_MAX = 256
"""Measurements that wait to be read, once a second: those of steps of 4 ms that are all measured. Beyond that
the oldest is given up: the agent is away."""
LEFT_OUT_SHOWN = 4
"""Parameters that are named, of those that cannot be measured; the others are counted."""
NAME_MAX = 120
"""Characters of a parameter's or module's name, the last ones: they tell it from others."""
ARMED_AFTER = 3
"""Steps after the first one with a NaN or Inf in which modules are looked at: a step that is computed again
is one of them, and so are the next ones where the step was left out or nothing was done."""
NUMBER_MAX = 9e14
"""Larger numbers are cut to this: messages take none above 1e15."""
