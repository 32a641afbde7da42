"""Name what a rank does in a step, as it is recorded: codes, and which of them are waits or own work."""

from __future__ import annotations

DATA, FORWARD, BACKWARD, COMMUNICATION, OPTIMIZER, SNAPSHOT, OTHER, LOSS, REDUCTION, DECLARED = range(10)
"""Phases. LOSS: from the end of a forward pass, until it is known whether a backward pass follows; REDUCTION:
after the gradients are computed, until DDP has those of the other ranks; DECLARED: other work that the script
has declared, and what follows a step."""
PHASES = 10
OWN = tuple(phase in (FORWARD, BACKWARD, OPTIMIZER, LOSS) for phase in range(PHASES))
"""Whether a phase is the rank's own work: CPU time is read where such work begins or ends."""
WAITS = (DATA, COMMUNICATION, SNAPSHOT, DECLARED)
"""Phases that are measured in every step."""
WAITS_GPU = (SNAPSHOT, DECLARED)
"""The same with a GPU, which works on meanwhile: the other waits may cost nothing."""
