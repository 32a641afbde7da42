"""The rows in which a cluster is shown to people: plain records, which `view.py` fills in.

They are apart from it because agents and commands send and receive them, and have no cluster."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class JobRow:
    """One job. `step`: steps completed by every rank; `last_checkpoint`: its id, "" when there is none."""

    job: str
    phase: str
    reason: str
    generation: int
    world_size: int
    step: int
    restarts: int  # failures that it has survived
    incidents: int  # those that were failures; planned changes are not counted
    last_checkpoint: str
    argv: str
    health: str = ""  # healthy, degraded or critical; "": it has ended
    troubles: tuple[str, ...] = ()  # why it is not healthy, worst first
    # Where its time went, over all of its lives (s), its age and its pace: the core does not know them, and
    # leaves them 0.
    total_s: float = 0.0
    productive_s: float = 0.0
    unknown_s: float = 0.0
    age_s: float = 0.0  # s since its account began: since its submission, if that account was kept
    step_s: float = 0.0  # mean duration of its newest steps; 0 when it does not train
    loss: float | None = None  # of its newest measured step; None: not known, or it does not train
    eta_s: float | None = None  # s until it ends; None: not known
    eta_word: str = ""  # why it is not, in a word or two; "": it is
    eta_reason: str = ""  # the same as a sentence
    end_step: int = 0  # the step at which it ends; 0: not known
    eta_of: str = ""  # what ends there: "job", "loop" or "trainer"; "": not known


@dataclass(frozen=True, slots=True)
class NodeRow:
    """One node. `state`: expected, up, suspect, lost, left; `last_heard_s`: age in s."""

    node: str
    state: str
    address: str
    incarnation: int
    slots: int
    members: int  # living processes on it
    last_heard_s: float
    reason: str
    standing: str = "ok"  # eligibility: ok, last choice, or why it takes no ranks
    score: float = 0.0  # of its failures, decayed
    connected_s: float = 0.0  # s since its agent connected to this leader; 0: it is not connected


@dataclass(frozen=True, slots=True)
class RankRow:
    """One member: a rank, or a spare (`rank` -1)."""

    job: str
    rank: int
    member: str
    node: str
    phase: str
    role: str
    generation: int
    step: int
    pid: int
    stalled_s: float = 0.0  # s without progress, once past its deadline; 0: it progresses


@dataclass(frozen=True, slots=True)
class HealthRow:
    """The cluster's health: healthy, degraded or critical, with every reason."""

    level: str
    reasons: tuple[str, ...]
    jobs: tuple[str, ...]  # for each reason the job it is about; "": no particular one
