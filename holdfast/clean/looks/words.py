"""What a look tells, in words. `%s` stands for the first names, and how many more there are."""

from __future__ import annotations

CHANGED = (
    "the steps change what is not tracked: %s%s. If later steps depend on it, the training comes out "
    "differently when a rank dies: a replacement begins with it anew, and a step that runs again changes it "
    "twice. Track a random generator, or an object with state_dict and load_state_dict"
)
LEFT_OUT = (
    "the steps change what the state_dict of tracked modules leaves out: %s%s. If later steps depend on it, "
    "the training comes out differently when a rank dies: a replacement begins with it anew, and a step that "
    "runs again changes it twice. Keep it in a buffer, or track an object with a state_dict and a "
    "load_state_dict that have it. Of metrics of torchmetrics call persistent(True), and track them with "
    "per_rank=True"
)
LOCAL = (
    "%s, line %d: %r changes from step to step and is not tracked. If later steps depend on it, the training "
    "comes out differently when a rank dies: the function begins with it anew. Put it in an object with "
    "state_dict and load_state_dict, and %s"
)
ANEW = (
    "%s, line %d: %s begins anew when the function is called again after a failure, while the steps go on "
    "where they were. If the steps depend on it, the training comes out differently when a rank dies. Use "
    "the number of the step, and for data session.loader, session.sampler or session.sample_indices"
)
BROKEN = (
    "a step broke off, and what is not tracked is not as it was: %s%s. It runs again with that in this "
    "process, and without in one that replaces a dead rank. If it depends on it, the training comes out "
    "differently. Set it anew where a step begins (a list that is emptied where it ends is still full), or "
    "track it"
)
ONCE = (
    "the first step sets what is not tracked: %s%s. A process that replaces a dead rank sets it in its own "
    "first step. If that comes from the data or the loss of the step, the training comes out differently: "
    "track it, or make it before the steps. If it is the same each time (a table), there is nothing to do"
)
COPIED = (
    "the steps change %s%s, of which the workers of session.loader have copies. Those that run do not see "
    "it, and those that begin after a failure do, so samples come out differently when a rank dies. Fetch "
    "without workers (num_workers=0) and track it; or change the batch in the step, or take another data set "
    "with its own loader and seed from that step on"
)
GROWN = (
    "the steps, or what comes before them, give tracked modules tensors that they did not have: %s%s. A "
    "process that replaces a dead rank does not have them and cannot take the state. Make them before "
    "session.track (prune.identity, register_parametrization), and let the steps change their values only"
)
RESHAPED = (
    "the steps give tracked modules tensors of another shape: %s%s. A process that replaces a dead rank has "
    "them as the script makes them and cannot take the state. Make them with their full size before "
    "session.track, and keep in a buffer how much of it is used"
)
UNSEEN = "what the steps change and is not tracked cannot be seen, and changes are not looked for: %s"
