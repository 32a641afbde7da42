"""From when on a worker's pace is a finding, each limit with its reason."""

SLOW_RATIO = 1.2
"""A worker's iterations against the median of the others. Shared devices and hosts of several generations
differ by up to a tenth for good, and drift by as much (shown, and nothing more)."""
CHANGE_RATIO = 1.15
"""And against the worker's own pace before: less is drift."""
EVEN_RATIO = 1.05
"""Up to here a worker runs at the pace of the others."""
CRITICAL_RATIO = 1.5
"""A worker that is slower than that, and still is, is critical."""
SPREADS = 5.0
"""And by so many times what the median of the slow iterations scatters."""
ITERATIONS_MIN = 10
"""With fewer iterations a worker is not judged."""
EPISODE_MIN = 5
"""Slow iterations in a row, at least: fewer are noise."""
EPISODE_RATIO = 0.02
"""And this part of all iterations of the worker: what is shorter passes by itself."""
EPISODE_SLOW_RATIO = 0.75
"""At least this part of the iterations of a slow time are slow: spikes near each other are no slow time."""
STRAGGLERS_MAX = 16
"""Stragglers that are taken out of the comparison one by one, the worst first; further ones stay in it."""
USUAL_RATIO = 0.1
"""A worker's own pace is its fastest level that holds for this part of its iterations."""
GAP_INTERVALS = 3.0
"""A worker is compared with another one at a time if that one has an iteration within so many of its usual
intervals: workers come, go and pause."""
GRID_MAX = 4000
"""Points in time at which workers are compared, at most."""
CELLS_MAX = 8_000_000
"""Workers times points, at most: 64 MB an array."""
