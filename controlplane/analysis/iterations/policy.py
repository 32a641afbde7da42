"""Set the limits beyond which a worker's pace is a finding, each with its reason."""

SLOW_RATIO = 1.2
"""A worker is slow when its iterations take at least this many times the median of the others. Shared devices
and hosts of several generations always differ by up to a tenth, and drift by as much: such workers are shown
as steadily slower or faster, without a finding."""
CHANGE_RATIO = 1.15
"""A slow time also takes at least this many times the worker's own usual pace: less is drift."""
EVEN_RATIO = 1.05
"""Up to this ratio to the others, or its inverse, a worker runs at their pace."""
CRITICAL_RATIO = 1.5
"""A worker that takes at least this many times as long as the others, and does so at the end, is critical."""
SPREADS = 5.0
"""A slow time also lies above the usual pace by at least so many times the uncertainty of its own level."""
ITERATIONS_MIN = 10
"""With fewer iterations a worker is not judged."""
EPISODE_MIN = 5
"""A slow time has at least so many iterations: fewer are noise."""
EPISODE_RATIO = 0.02
"""A slow time also has at least this part of all iterations of the worker: a shorter one passes by itself."""
EPISODE_SLOW_RATIO = 0.75
"""At least this part of the iterations in a slow time are slow: a few spikes near each other are none."""
STRAGGLERS_MAX = 16
"""Stragglers that are taken out of the comparison one by one, the worst first; further ones stay in it."""
USUAL_RATIO = 0.1
"""A worker's usual pace: the fastest level that, with all faster ones, covers this part of its iterations."""
GAP_INTERVALS = 3.0
"""At a point in time, a worker is compared only with those that have an iteration near it, within so many of
their own usual intervals: workers come, go and pause."""
GRID_MAX = 4000
"""Points in time at which workers are compared, at most."""
CELLS_MAX = 8_000_000
"""Workers times points in time, at most: an array of them has 64 MB."""
