"""Set the limits of measuring: what it may cost, and how many steps it may leave out for that.

Costs are in ns, of the thread that trains, taken from `benchmarks.anatomy` with a margin for slower machines.
"""

from __future__ import annotations

ALLOWED_NS = 10_000
"""What measuring may cost per step on average: 1 ms per 100 steps."""
PASSED_STEP_NS = 6_500
"""What every step costs, measured or not: its sums and its page. Its module calls cost nothing."""
STEP_COST_NS, CALL_COST_NS = 45_000, 45_000
"""What a measured step costs besides: placing the modules' calls, the switches at its optimizer; and each
module call with its backward pass: reading clocks, hooking the outputs, three callbacks of the autograd
engine. With 1, 4 and 16 module calls it was 73, 225 and 584 us (`benchmarks.anatomy`, steps of 0.3 to 1.2 ms,
two cores, one of them idle): measured steps are rare, so nothing of this is in the CPU's caches. The line
through 45 us for each lies on or above all three. Hot, a call costs 26 us."""
ALLOWED_SHARE = 0.0001
"""They may cost this share of the time, if that is more: long steps can all be measured."""
WRITE_EVERY_NS = 2_000_000
"""Steps that are shorter than this are written to the page together: who looks, looks every second. What a
killed process had not written is lost to the diagnosis: 2 ms."""
WARM_STEPS = 3
"""So many steps at the beginning of a loop are measured in any case: the first ones are not like the rest."""
DECAY = 0.75
"""How much the division of earlier measured steps still counts when the next one is measured. Steps may
differ (an optimizer that steps every k-th time), so one alone does not stand for those that are not
measured."""
LONG_STEP = 4.0
"""A measured step that took longer than so many usual ones does not count for the division; the second one in
a row counts as so many. Steps that are as much longer than the newest one count less. A first step of 60 s
counted as 600 of 0.1 s."""
STAGGER = 3
"""The distance of measured steps varies by up to this many, less one: else it could keep pace with something
that a script does every k-th step."""
OUTPUTS_MAX = 8
"""Nodes of the graph that are hooked per module call. The first gradient that arrives at one of them begins
the backward pass."""
DEPTH_MAX = 4
"""How deep outputs are searched for tensors."""
EVENTS_MAX = 256
"""CUDA events of one step. A step with more is not covered."""
STEPS_IN_FLIGHT_MAX = 4
"""Measured steps whose CUDA events may be unread. Beyond that, the oldest is given up."""
TOKENS_MAX, FLOPS_MAX = 10**15, 1e24
"""Largest numbers that a script may declare for one step: above what any machine computes, and small enough
that the sums fit into 64 bits for years."""
PARAMETERS_MAX = 10**15
"""The largest number of parameters, layers, widths or tokens of a sequence that a script may declare."""


def gap(calls: int, wall_ns: int, measured: int) -> int:
    """After how many steps the next one is measured, counting from a measured one with so many module calls.

    `wall_ns`: how long that one took; `measured`: how many steps were measured in this loop."""
    if measured < WARM_STEPS:
        return 1
    allowed = max(ALLOWED_NS - PASSED_STEP_NS, wall_ns * ALLOWED_SHARE)
    every = -(-(STEP_COST_NS + calls * CALL_COST_NS) // allowed)
    return int(every) + measured % STAGGER if every > 1 else 1
