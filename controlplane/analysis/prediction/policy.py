"""Set the constants of the prediction of faults, each with its reason."""

ECHOES_D = (0.25, 5.0)
"""The time constants (days) with which the risk after a fault fades. In the first half of a published trace
(400 nodes, 174 days) a node fails 950 times per 1,000 node-days in the first six hours after a repair, 100
times in the rest of the day, 15 times in the second week, 4 times after a month: one constant cannot fit
that. Of 0.25 to 1 and 3 to 20, these ranked best in most of five parts of it; the differences are small."""
ECHO_PRIOR = 0.15
"""How many further faults a fault is assumed to cause, per time constant, before there is history."""
ECHO_PRIOR_FAULTS = 5.0
"""The assumption weighs as much as so many faults whose sequels are known (Gamma prior)."""
BACKGROUND_PRIOR = 0.003
"""Faults per node and day that are assumed before there is history: published rates are 1 to 5 per 1,000."""
BACKGROUND_PRIOR_FAULTS = 1.0
"""The assumption weighs as much as so many faults."""
STRENGTHS = tuple(step / 20 for step in range(21))
"""What echoes may be scaled by. Rates are fitted to every moment, and most sequels come within hours of a
repair; risks are made once a day, for days ahead. What fits there is about a half: the training days say."""
FIT_ROUNDS = 200
"""Rounds of the fit, at most (expectation and maximisation); 20 to 60 are usual."""
FIT_CHANGE = 1e-7
"""The fit is over when no parameter changes by more than this share."""

WEIGHTS_D = ((1.0, 30.0), (3.0, 12.0), (7.0, 6.0), (14.0, 5.0), (30.0, 2.0))
"""The weighted rule: a fault that was repaired up to so many days ago makes the next day so many times as
risky as that of a node without one, in addition. Round numbers from the trace named above."""
BASELINE_DAYS = 7.0
"""The baseline to beat: a node is at risk when a fault of its began within so many days."""
CLASS_PRIOR = 20.0
"""The share of failures among flagged nodes is drawn to the overall share by as much as so many node-days."""

TOP_SHARES = (0.01, 0.02, 0.05)
"""Operating points: each day, this share of the nodes that are up, those with the highest risk."""
RESAMPLES = 200
"""Resamples of a confidence interval: its ends then vary by about a tenth of its width."""
CONFIDENCE = 0.95
BLOCK_DAYS = 7
"""Days are drawn in blocks so long, at least as long as the horizon: labels of neighbouring days overlap."""
NODE_DAYS_MAX = 5_000_000
"""Risks of one run at most: as JSON they take about 60 bytes each."""
DAYS_MAX = 36_500
"""A history longer than a century has times in another unit."""
FAULTS_MAX = 1_000_000
