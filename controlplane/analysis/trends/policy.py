"""Set the limits beyond which a metric has changed, each with its reason."""

STEADY_RATIO = 0.5
"""Growth goes on: its pace in the newer half is at least this share of that in the older half, and of that in
the whole. What fills up, as caches do, grows less and less."""
RISE_SPREADS = 5.0
"""Growth also exceeds the scatter about its own line so many times (median absolute deviations)."""
SLOPE_CONFIDENCE_Z = 1.96
"""The interval of a slope holds 95 %: so many standard deviations of Kendall's statistic on both sides."""

LEARNT_MAX = 128
"""Blocks that the usual range is learnt from, at most: then two neighbours become one."""
EDGE_SHARE = 1 / 64
"""This share of the learnt blocks, at least one, may lie outside of the usual range at each end: outliers."""
SPREAD_RATIO_MIN = 0.05
"""The spread is taken to be at least this share of the usual level: a twentieth is nobody's trouble."""
CLIP_SPREADS = 4.0
"""A block counts for at most so many spreads beyond the range: one wild block is no change."""
ALLOWANCE_SPREADS = 0.5
"""What is taken off the sum for each block. A mean of half a spread beyond the range is never a change."""
SUM_LIMIT = 8.0
"""A change: the sum exceeds this. Three wild blocks in a row are needed at least."""
SUM_MAX_RATIO = 1.5
"""The sum grows up to this many times the limit, so that a change which is over is seen to be over."""
CORRELATION_MAX = 0.95
"""Neighbouring blocks that are alike say the same thing twice: for a correlation r, of at most this, the
limit is multiplied by (1 + r) / (1 - r)."""
RECENT = 48
"""The newest blocks, by which the pace is measured."""
PACE_LEAST = 8
"""With fewer blocks since the change began, no pace is given."""
LEVEL_BLOCKS = 5
"""The present level is the median of so many blocks."""
