"""Define what diagnosis gets and gives: how ranks spent their steps, which findings are open, profiles.

Agents send StepTimes every few seconds, for diagnosis alone: the core never sees it, and recordings do not
hold it. The same is true of profiles, for which people ask, and of probes of links: no job's fate depends on
one. How a process ended (RankEnded) is judged outside of the core, too; the core hears the result
(CauseFound). ReplicasReported is an event of the core, which may have the job go back. The columns of
StepTimes are tuples of one length, so that a message costs the leader little, however many ranks a node
has."""

from __future__ import annotations

from dataclasses import dataclass

from controlplane.core.records.model import PeerAddress
from controlplane.core.records.words import NO_RANK, NO_STEP


@dataclass(frozen=True, slots=True)
class StorageTraffic:
    """What a node's agent has moved to and from its only storage. Times: of any transfer."""

    bytes_written: int
    write_s: float
    bytes_read: int
    read_s: float


@dataclass(frozen=True, slots=True)
class NodeDisks:
    """A node's file systems that matter, as columns: a folder on each, and in words what is kept there."""

    paths: tuple[str, ...]
    uses: tuple[str, ...]
    free_bytes: tuple[int, ...]
    total_bytes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class NodeResources:
    """What a node has left for its ranks, in bytes; 0 and -1: not known."""

    memory_free_bytes: int = 0  # that its processes could still get
    cpu_waiting: float = -1.0  # share of the last 10 s in which some task waited for a CPU
    disk: str = ""  # the folder on the file system with the smallest free share; "": none was read
    disk_free_bytes: int = 0


@dataclass(frozen=True, slots=True)
class SlowSteps:
    """Steps that took ranks much longer than usual (`holdfast.anatomy.slow_steps`), by rank and step."""

    ranks: tuple[int, ...]
    generations: tuple[int, ...]
    at_steps: tuple[int, ...]  # the number of the step, from 0 over the whole job
    usual_s: tuple[float, ...]  # what a step took before
    wall_s: tuple[float, ...]
    data_s: tuple[float, ...]
    forward_s: tuple[float, ...]
    backward_s: tuple[float, ...]
    communication_s: tuple[float, ...]
    optimizer_s: tuple[float, ...]
    snapshot_s: tuple[float, ...]
    other_s: tuple[float, ...]
    more: int = 0  # slow steps of these ranks that came too close to each other to be kept


@dataclass(frozen=True, slots=True)
class StepTimes:
    """How the ranks of one job on one node have spent their time since the message before.

    All durations are sums over `steps` steps, in s (`holdfast.ipc.step_times` defines each). A rank that has
    completed no step has no row until its first one."""

    node: str
    incarnation: int
    job: str
    span_s: float  # how long ago the message before was made
    members: tuple[str, ...]
    ranks: tuple[int, ...]
    generations: tuple[int, ...]
    steps: tuple[int, ...]
    last_steps: tuple[int, ...]  # the newest completed step; -1: none
    covered: tuple[int, ...]  # of the steps: those in which hooks told forward from backward
    wall_s: tuple[float, ...]
    data_s: tuple[float, ...]
    forward_s: tuple[float, ...]
    backward_s: tuple[float, ...]
    communication_s: tuple[float, ...]
    optimizer_s: tuple[float, ...]
    snapshot_s: tuple[float, ...]
    other_s: tuple[float, ...]
    cpu_s: tuple[float, ...]  # CPU time of the main thread in forward, backward and optimizer
    longest_s: tuple[float, ...]  # the longest step since the process began
    samples: tuple[int, ...]  # 0: not known
    tokens: tuple[int, ...]  # 0: not declared by the script
    flops: tuple[float, ...]  # 0: not declared by the script
    memory_bytes: tuple[int, ...]  # in use now: of the device, or resident memory without one; 0: not known
    memory_peak_bytes: tuple[int, ...]
    # The kernel's counts, from agents that read them; empty columns: the agent does not.
    watched_s: tuple[float, ...] = ()  # the time between the two looks that were counted; 0: not known
    ran_s: tuple[float, ...] = ()  # in it the main thread ran on a CPU
    queued_s: tuple[float, ...] = ()  # in it a computing thread was ready to run, and did not
    throttled_s: tuple[float, ...] = ()  # in it the quota of its cgroup held it, or others there, up
    cpu_limits: tuple[float, ...] = ()  # how many CPUs its cgroup may use; 0: no limit; -1: not known
    storage: StorageTraffic | None = None  # of this node, in all; None: not known
    # Columns of newer agents; () from older ones: not known.
    memory_limit_bytes: tuple[int, ...] = ()  # the most that its device or process may have; 0: not known
    memory_reserved_bytes: tuple[int, ...] = ()  # of the device, by torch's allocator; 0: no device
    device_used: tuple[float, ...] = ()  # share of the time in which the device computed; -1: not known
    token_flops: tuple[float, ...] = ()  # of one token through this rank's stage of the model; 0: not known
    peak_flops: tuple[float, ...] = ()  # of the device, per second; 0: not known
    compute_notes: tuple[str, ...] = ()  # how these two are known, or why not (`holdfast.ipc.rank_facts`)
    compile_s: tuple[float, ...] = ()  # in `session.phase("compile")`
    evaluate_s: tuple[float, ...] = ()  # in `session.phase("evaluate")`
    checkpoint_s: tuple[float, ...] = ()  # in `session.phase("checkpoint")`
    disks: NodeDisks | None = None  # of this node; None: not known
    slow: SlowSteps | None = None  # steps that were much slower than usual; None: none, or it cannot say
    end_steps: tuple[int, ...] = ()  # the job's step at which training ends; 0: not known
    end_kinds: tuple[str, ...] = ()  # what ends there, or why not known (`ipc.pages.training_end`)


@dataclass(frozen=True, slots=True)
class ParameterGradient:
    """One parameter's gradient, or a rank's shard of it (`holdfast.ipc.messages.gradients`)."""

    name: str
    numel: int
    norm: float
    mean: float
    deviation: float
    least: float
    most: float
    zeros: int
    nans: int
    infs: int
    usual: float  # the median of its norms before; -1: not known


@dataclass(frozen=True, slots=True)
class GradientReport:
    """What one rank measured of its gradients and its loss (`holdfast.ipc.messages.gradients`)."""

    node: str
    incarnation: int
    job: str
    member: str
    rank: int
    generation: int
    step: int
    parameters: int = 0  # 0: only a trace, or only a loss, as rank 0 has told it
    numel: int = 0
    norm: float = 0.0
    local_norm: float = -1.0
    local_bad: int = -1
    zeros: int = 0
    nans: int = 0
    infs: int = 0
    vanishing: int = 0
    samples: int = 0
    loss: float = 0.0
    loss_state: str = "unknown"
    sharded: bool = False
    clipped: bool = False
    skipped: int = 0
    left_out: str = ""
    trace: str = ""
    origin: str = ""
    words: str = ""
    rows: tuple[ParameterGradient, ...] = ()


@dataclass(frozen=True, slots=True)
class OpenFinding:
    """One finding that is open now. Its evidence and history are kept outside of the core."""

    kind: str
    level: str  # degraded or critical
    subject: str  # in words: a rank, a node, a stage
    reason: str
    node: str = ""  # the node that it blames; "": none
    muted: bool = False  # shown, but nobody is alerted
    lasting: bool = False  # it has been critical in so many windows in sequence that something may be done


@dataclass(frozen=True, slots=True)
class Diagnosed:
    """All findings about a job that are open now; those that are missing are resolved."""

    job: str
    findings: tuple[OpenFinding, ...] = ()


@dataclass(frozen=True, slots=True)
class BlamedByRecords:
    """A rank that the flight records of a job blame. `kind`: as in the findings about flight records."""

    rank: int
    kind: str
    confidence: float  # 0 to 1
    reason: str


@dataclass(frozen=True, slots=True)
class RecordsJudged:
    """The answer to JudgeRecords. `trouble`: why they could not be judged; "": they were."""

    job: str
    generation: int
    round: int
    blamed: tuple[BlamedByRecords, ...] = ()
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class ProfileRank:
    """Have one rank of this generation profile its next complete steps. Answered by one RankProfiled."""

    node: str
    job: str
    member: str
    request: str  # names the answer
    generation: int
    steps: int
    timeout_s: float  # it is given up after that
    bytes_max: int  # a larger trace is not kept


@dataclass(frozen=True, slots=True)
class OperatorTime:
    """The time that one operator took itself, without the operators that it called, over all steps."""

    name: str
    calls: int
    cpu_s: float
    device_s: float


@dataclass(frozen=True, slots=True)
class RankProfiled:
    """The answer to one ProfileRank. `reason`: why there is no trace; "": it is at `path` on the node."""

    node: str
    incarnation: int
    job: str
    member: str
    request: str
    generation: int
    reason: str = ""
    path: str = ""
    bytes: int = 0  # of the trace, compressed
    first_step: int = 0  # the number of the first step in it, from 0 over the whole job
    steps: int = 0
    cpu_s: float = 0.0  # of all operators together, also of those that are left out below
    device_s: float = 0.0
    operators: tuple[OperatorTime, ...] = ()  # most time first
    no_table: str = ""  # why there are no operators although there is a trace; "": there are


@dataclass(frozen=True, slots=True)
class ProbeLinks:
    """Have a node measure its links to these peers, one after the other. Answered by one LinksProbed.

    The k-th peer (from 0) has its turn `begins_s` + k * `slot_s` after the order comes in, so that nodes that
    are asked together take turns."""

    node: str
    job: str
    round: int  # names the answer
    peers: tuple[PeerAddress, ...]  # the node itself may be among them: what it could reach without a link
    slot_s: float
    bytes_max: int  # of one burst
    burst_s: float  # a burst that lasts so long is ended
    begins_s: float = 0.0


@dataclass(frozen=True, slots=True)
class ProbeEnd:
    """What the kernel counted at one end of a probe while its newest block was on its way (s)."""

    waited_s: float = 0.0  # threads of the agent were ready, and waited for a CPU
    ran_s: float = 0.0  # they ran on one
    rtt_waited_s: float = 0.0  # they waited for one in the round trips, per round trip
    pressure: float | None = None  # share of the time in which some process of the node did; None: not known


@dataclass(frozen=True, slots=True)
class LinkProbe:
    """What one node measured on the way to another. 0: not measured; `reason` says why."""

    node: str  # the other one
    rtt_s: float = 0.0  # the median of some round trips
    bytes_per_s: float = 0.0  # of the newest block of a short burst
    bytes: int = 0  # of the burst
    reason: str = ""
    block_s: float = 0.0  # how long the newest block took
    here: ProbeEnd | None = None  # None: not known, so nobody knows whether the node was busy
    there: ProbeEnd | None = None


@dataclass(frozen=True, slots=True)
class LinksProbed:
    """What a node measured on the links of a ProbeLinks order."""

    node: str
    incarnation: int
    job: str
    round: int  # as in the order
    found: tuple[LinkProbe, ...] = ()


@dataclass(frozen=True, slots=True)
class RankEnded:
    """How one process of a job ended, with the end of its log. Sent once, when the process is gone."""

    node: str
    incarnation: int
    job: str
    member: str
    rank: int = NO_RANK
    generation: int = 0
    step: int = NO_STEP  # the step it was last known to be in
    began_step: int = NO_STEP  # the first step that it was known to be in
    exit_code: int | None = None
    signal: int | None = None
    ordered: str = ""  # why Holdfast ended it; "": it ended by itself
    at_s: float = 0.0  # Unix time of its end, on the clock of its node
    log: str = ""  # the path of its log on its node
    text: str = ""  # the last lines of its log, without secrets
    skipped_bytes: int = 0  # of its log, before `text`
    no_text: str = ""  # why the log could not be read; "": it was
    oom_kills: int | None = None  # lately by the kernel in its cgroup, for want of memory; None: not known
    memory_limit_bytes: int = 0  # of its cgroup; 0: none, or not known
    cgroup: str = ""  # the folder in which `oom_kills` was read; "": none could be
    kernel_text: str = ""  # lines of the kernel's log that name this process


@dataclass(frozen=True, slots=True)
class CauseFound:
    """The first cause of an incident, by the ends of all its ranks. A later one replaces it."""

    job: str
    incident: int
    cause: str  # a code of `failure_logs.causes`; "": the ranks failed in different ways
    means: str  # the cause in words
    rank: int = NO_RANK  # NO_RANK: it cannot be told which of the `candidates` was first
    candidates: tuple[int, ...] = ()
    node: str = ""
    exception: str = ""
    text: str = ""  # the line that says it
    file: str = ""  # of the script's source; "": not known
    line: int = 0  # 0: not known
    log: str = ""
    step: int = NO_STEP
    words_of: str = ""  # whose words these are: a source of `failure_logs.wordings`; "": nobody's
    reason: str = ""  # why this rank is held to be the first
    confidence: float = 0.0  # of the rank
    cascade: tuple[str, ...] = ()  # in words: the other ranks that ended, and of what
    clocks: str = ""  # in words: how well the clocks of the nodes are known against each other
    restart: bool = True  # whether starting again may help
    advice: str = ""  # why
    advice_confidence: float = 0.0  # of `restart`
    recommendation: str = ""


@dataclass(frozen=True, slots=True)
class Thresholds:
    """The limits that administrators may set. Shares are of the time of a step."""

    slow_ratio: float = 1.10
    """A rank is slow when its own work takes this many times as long as its peers'. Healthy devices of one
    kind differ by a few percent; what scatters more must exceed its scatter, too
    (`analysis/live/policy.py`)."""
    critical_ratio: float = 1.5
    """A rank that is slower than this by itself makes every step half as long again."""
    communication: float = 0.3
    """More of a step than this in communication: the links, not the devices, set the pace."""
    device_used: float = 0.7
    """Devices that compute for less of the time than this wait for something."""
    memory: float = 0.9
    """More of the limit than this: a longer sequence than usual may end the process."""
    fragmented: float = 0.2
    """More of what torch's allocator holds than this was never used at once. It rounds sizes up to 2 MiB and
    keeps some pieces in any case; a fifth is what a larger micro-batch would need."""
    data: float = 0.15
    """More of a step than this in waiting for samples, on all ranks: the loader cannot keep up."""
    snapshot: float = 0.1
    """More of a step than this in snapshots, on all ranks: they come too often for their cost."""
    tail_ratio: float = 2.0
    """The mean step of a bad window (one of twenty) takes this many times as long as usual."""
