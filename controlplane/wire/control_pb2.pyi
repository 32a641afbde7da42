from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class EnvVar(_message.Message):
    __slots__ = ("name", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: str
    def __init__(self, name: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...

class JobSpec(_message.Message):
    __slots__ = ("job", "argv", "cwd", "env", "nnodes_min", "nnodes_max", "nproc_per_node", "spares_per_node", "max_restarts", "storage", "snapshot_every", "checkpoint_every", "full_every", "module", "no_python", "checkpoint_every_s", "checkpoint_auto", "keep_last", "keep_every", "codec", "mirror", "commit_when", "replicas", "scrub_every_s", "replica_nodes", "on_nan", "nan_skip_window", "tensor_parallel", "pipeline_parallel", "context_parallel", "check_replicas_every", "on_corrupt_state", "snapshot_auto")
    JOB_FIELD_NUMBER: _ClassVar[int]
    ARGV_FIELD_NUMBER: _ClassVar[int]
    CWD_FIELD_NUMBER: _ClassVar[int]
    ENV_FIELD_NUMBER: _ClassVar[int]
    NNODES_MIN_FIELD_NUMBER: _ClassVar[int]
    NNODES_MAX_FIELD_NUMBER: _ClassVar[int]
    NPROC_PER_NODE_FIELD_NUMBER: _ClassVar[int]
    SPARES_PER_NODE_FIELD_NUMBER: _ClassVar[int]
    MAX_RESTARTS_FIELD_NUMBER: _ClassVar[int]
    STORAGE_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_EVERY_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_EVERY_FIELD_NUMBER: _ClassVar[int]
    FULL_EVERY_FIELD_NUMBER: _ClassVar[int]
    MODULE_FIELD_NUMBER: _ClassVar[int]
    NO_PYTHON_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_EVERY_S_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_AUTO_FIELD_NUMBER: _ClassVar[int]
    KEEP_LAST_FIELD_NUMBER: _ClassVar[int]
    KEEP_EVERY_FIELD_NUMBER: _ClassVar[int]
    CODEC_FIELD_NUMBER: _ClassVar[int]
    MIRROR_FIELD_NUMBER: _ClassVar[int]
    COMMIT_WHEN_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    SCRUB_EVERY_S_FIELD_NUMBER: _ClassVar[int]
    REPLICA_NODES_FIELD_NUMBER: _ClassVar[int]
    ON_NAN_FIELD_NUMBER: _ClassVar[int]
    NAN_SKIP_WINDOW_FIELD_NUMBER: _ClassVar[int]
    TENSOR_PARALLEL_FIELD_NUMBER: _ClassVar[int]
    PIPELINE_PARALLEL_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_PARALLEL_FIELD_NUMBER: _ClassVar[int]
    CHECK_REPLICAS_EVERY_FIELD_NUMBER: _ClassVar[int]
    ON_CORRUPT_STATE_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_AUTO_FIELD_NUMBER: _ClassVar[int]
    job: str
    argv: _containers.RepeatedScalarFieldContainer[str]
    cwd: str
    env: _containers.RepeatedCompositeFieldContainer[EnvVar]
    nnodes_min: int
    nnodes_max: int
    nproc_per_node: int
    spares_per_node: int
    max_restarts: int
    storage: str
    snapshot_every: int
    checkpoint_every: int
    full_every: int
    module: bool
    no_python: bool
    checkpoint_every_s: float
    checkpoint_auto: bool
    keep_last: int
    keep_every: int
    codec: str
    mirror: str
    commit_when: str
    replicas: int
    scrub_every_s: float
    replica_nodes: int
    on_nan: str
    nan_skip_window: int
    tensor_parallel: int
    pipeline_parallel: int
    context_parallel: int
    check_replicas_every: int
    on_corrupt_state: str
    snapshot_auto: bool
    def __init__(self, job: _Optional[str] = ..., argv: _Optional[_Iterable[str]] = ..., cwd: _Optional[str] = ..., env: _Optional[_Iterable[_Union[EnvVar, _Mapping]]] = ..., nnodes_min: _Optional[int] = ..., nnodes_max: _Optional[int] = ..., nproc_per_node: _Optional[int] = ..., spares_per_node: _Optional[int] = ..., max_restarts: _Optional[int] = ..., storage: _Optional[str] = ..., snapshot_every: _Optional[int] = ..., checkpoint_every: _Optional[int] = ..., full_every: _Optional[int] = ..., module: bool = ..., no_python: bool = ..., checkpoint_every_s: _Optional[float] = ..., checkpoint_auto: bool = ..., keep_last: _Optional[int] = ..., keep_every: _Optional[int] = ..., codec: _Optional[str] = ..., mirror: _Optional[str] = ..., commit_when: _Optional[str] = ..., replicas: _Optional[int] = ..., scrub_every_s: _Optional[float] = ..., replica_nodes: _Optional[int] = ..., on_nan: _Optional[str] = ..., nan_skip_window: _Optional[int] = ..., tensor_parallel: _Optional[int] = ..., pipeline_parallel: _Optional[int] = ..., context_parallel: _Optional[int] = ..., check_replicas_every: _Optional[int] = ..., on_corrupt_state: _Optional[str] = ..., snapshot_auto: bool = ...) -> None: ...

class Failure(_message.Message):
    __slots__ = ("cause", "message", "exit_code", "signal", "step", "exception", "traceback", "age_s")
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    SIGNAL_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    EXCEPTION_FIELD_NUMBER: _ClassVar[int]
    TRACEBACK_FIELD_NUMBER: _ClassVar[int]
    AGE_S_FIELD_NUMBER: _ClassVar[int]
    cause: str
    message: str
    exit_code: int
    signal: int
    step: int
    exception: str
    traceback: str
    age_s: float
    def __init__(self, cause: _Optional[str] = ..., message: _Optional[str] = ..., exit_code: _Optional[int] = ..., signal: _Optional[int] = ..., step: _Optional[int] = ..., exception: _Optional[str] = ..., traceback: _Optional[str] = ..., age_s: _Optional[float] = ...) -> None: ...

class MemberStatus(_message.Message):
    __slots__ = ("member", "job", "phase", "elastic", "role", "generation", "rank", "step", "held_step", "pid", "store", "state_bytes", "snapshot_step", "snapshot_generation", "failure", "no_room", "shard", "snapshot_before", "former_step", "former_generation", "stalled_s", "activity", "held_generation", "ended_step", "offers")
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    ELASTIC_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    HELD_STEP_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    STORE_FIELD_NUMBER: _ClassVar[int]
    STATE_BYTES_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_STEP_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_GENERATION_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    NO_ROOM_FIELD_NUMBER: _ClassVar[int]
    SHARD_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_BEFORE_FIELD_NUMBER: _ClassVar[int]
    FORMER_STEP_FIELD_NUMBER: _ClassVar[int]
    FORMER_GENERATION_FIELD_NUMBER: _ClassVar[int]
    STALLED_S_FIELD_NUMBER: _ClassVar[int]
    ACTIVITY_FIELD_NUMBER: _ClassVar[int]
    HELD_GENERATION_FIELD_NUMBER: _ClassVar[int]
    ENDED_STEP_FIELD_NUMBER: _ClassVar[int]
    OFFERS_FIELD_NUMBER: _ClassVar[int]
    member: str
    job: str
    phase: str
    elastic: bool
    role: str
    generation: int
    rank: int
    step: int
    held_step: int
    pid: int
    store: str
    state_bytes: int
    snapshot_step: int
    snapshot_generation: int
    failure: Failure
    no_room: str
    shard: str
    snapshot_before: int
    former_step: int
    former_generation: int
    stalled_s: float
    activity: str
    held_generation: int
    ended_step: int
    offers: bool
    def __init__(self, member: _Optional[str] = ..., job: _Optional[str] = ..., phase: _Optional[str] = ..., elastic: bool = ..., role: _Optional[str] = ..., generation: _Optional[int] = ..., rank: _Optional[int] = ..., step: _Optional[int] = ..., held_step: _Optional[int] = ..., pid: _Optional[int] = ..., store: _Optional[str] = ..., state_bytes: _Optional[int] = ..., snapshot_step: _Optional[int] = ..., snapshot_generation: _Optional[int] = ..., failure: _Optional[_Union[Failure, _Mapping]] = ..., no_room: _Optional[str] = ..., shard: _Optional[str] = ..., snapshot_before: _Optional[int] = ..., former_step: _Optional[int] = ..., former_generation: _Optional[int] = ..., stalled_s: _Optional[float] = ..., activity: _Optional[str] = ..., held_generation: _Optional[int] = ..., ended_step: _Optional[int] = ..., offers: bool = ...) -> None: ...

class Placement(_message.Message):
    __slots__ = ("rank", "member", "node", "local_rank")
    RANK_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    LOCAL_RANK_FIELD_NUMBER: _ClassVar[int]
    rank: int
    member: str
    node: str
    local_rank: int
    def __init__(self, rank: _Optional[int] = ..., member: _Optional[str] = ..., node: _Optional[str] = ..., local_rank: _Optional[int] = ...) -> None: ...

class Source(_message.Message):
    __slots__ = ("shard", "tier", "rank", "member", "share", "shares")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    TIER_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    SHARE_FIELD_NUMBER: _ClassVar[int]
    SHARES_FIELD_NUMBER: _ClassVar[int]
    shard: str
    tier: str
    rank: int
    member: str
    share: int
    shares: int
    def __init__(self, shard: _Optional[str] = ..., tier: _Optional[str] = ..., rank: _Optional[int] = ..., member: _Optional[str] = ..., share: _Optional[int] = ..., shares: _Optional[int] = ...) -> None: ...

class Window(_message.Message):
    __slots__ = ("first", "end")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    first: int
    end: int
    def __init__(self, first: _Optional[int] = ..., end: _Optional[int] = ...) -> None: ...

class Collective(_message.Message):
    __slots__ = ("group", "sequence", "ended", "operation", "bytes")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    group: str
    sequence: int
    ended: int
    operation: str
    bytes: int
    def __init__(self, group: _Optional[str] = ..., sequence: _Optional[int] = ..., ended: _Optional[int] = ..., operation: _Optional[str] = ..., bytes: _Optional[int] = ...) -> None: ...

class Standing(_message.Message):
    __slots__ = ("member", "rank", "step", "activity", "since_s", "stalled", "collectives", "frames", "stacks", "silent_s", "flight_record", "process")
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    ACTIVITY_FIELD_NUMBER: _ClassVar[int]
    SINCE_S_FIELD_NUMBER: _ClassVar[int]
    STALLED_FIELD_NUMBER: _ClassVar[int]
    COLLECTIVES_FIELD_NUMBER: _ClassVar[int]
    FRAMES_FIELD_NUMBER: _ClassVar[int]
    STACKS_FIELD_NUMBER: _ClassVar[int]
    SILENT_S_FIELD_NUMBER: _ClassVar[int]
    FLIGHT_RECORD_FIELD_NUMBER: _ClassVar[int]
    PROCESS_FIELD_NUMBER: _ClassVar[int]
    member: str
    rank: int
    step: int
    activity: str
    since_s: float
    stalled: bool
    collectives: _containers.RepeatedCompositeFieldContainer[Collective]
    frames: _containers.RepeatedScalarFieldContainer[str]
    stacks: str
    silent_s: float
    flight_record: str
    process: str
    def __init__(self, member: _Optional[str] = ..., rank: _Optional[int] = ..., step: _Optional[int] = ..., activity: _Optional[str] = ..., since_s: _Optional[float] = ..., stalled: bool = ..., collectives: _Optional[_Iterable[_Union[Collective, _Mapping]]] = ..., frames: _Optional[_Iterable[str]] = ..., stacks: _Optional[str] = ..., silent_s: _Optional[float] = ..., flight_record: _Optional[str] = ..., process: _Optional[str] = ...) -> None: ...

class NodeResources(_message.Message):
    __slots__ = ("memory_free_bytes", "cpu_waiting", "disk", "disk_free_bytes")
    MEMORY_FREE_BYTES_FIELD_NUMBER: _ClassVar[int]
    CPU_WAITING_FIELD_NUMBER: _ClassVar[int]
    DISK_FIELD_NUMBER: _ClassVar[int]
    DISK_FREE_BYTES_FIELD_NUMBER: _ClassVar[int]
    memory_free_bytes: int
    cpu_waiting: float
    disk: str
    disk_free_bytes: int
    def __init__(self, memory_free_bytes: _Optional[int] = ..., cpu_waiting: _Optional[float] = ..., disk: _Optional[str] = ..., disk_free_bytes: _Optional[int] = ...) -> None: ...

class Resume(_message.Message):
    __slots__ = ("tier", "step", "rank", "member", "checkpoint", "reason", "sources", "reshard", "born", "digest", "skip")
    TIER_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    RESHARD_FIELD_NUMBER: _ClassVar[int]
    BORN_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    SKIP_FIELD_NUMBER: _ClassVar[int]
    tier: str
    step: int
    rank: int
    member: str
    checkpoint: str
    reason: str
    sources: _containers.RepeatedCompositeFieldContainer[Source]
    reshard: bool
    born: int
    digest: str
    skip: _containers.RepeatedCompositeFieldContainer[Window]
    def __init__(self, tier: _Optional[str] = ..., step: _Optional[int] = ..., rank: _Optional[int] = ..., member: _Optional[str] = ..., checkpoint: _Optional[str] = ..., reason: _Optional[str] = ..., sources: _Optional[_Iterable[_Union[Source, _Mapping]]] = ..., reshard: bool = ..., born: _Optional[int] = ..., digest: _Optional[str] = ..., skip: _Optional[_Iterable[_Union[Window, _Mapping]]] = ...) -> None: ...

class Generation(_message.Message):
    __slots__ = ("job", "number", "term", "seats", "store", "master", "resume", "reason", "restarts", "cut_at")
    JOB_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    SEATS_FIELD_NUMBER: _ClassVar[int]
    STORE_FIELD_NUMBER: _ClassVar[int]
    MASTER_FIELD_NUMBER: _ClassVar[int]
    RESUME_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    RESTARTS_FIELD_NUMBER: _ClassVar[int]
    CUT_AT_FIELD_NUMBER: _ClassVar[int]
    job: str
    number: int
    term: int
    seats: _containers.RepeatedCompositeFieldContainer[Placement]
    store: str
    master: str
    resume: Resume
    reason: str
    restarts: int
    cut_at: int
    def __init__(self, job: _Optional[str] = ..., number: _Optional[int] = ..., term: _Optional[int] = ..., seats: _Optional[_Iterable[_Union[Placement, _Mapping]]] = ..., store: _Optional[str] = ..., master: _Optional[str] = ..., resume: _Optional[_Union[Resume, _Mapping]] = ..., reason: _Optional[str] = ..., restarts: _Optional[int] = ..., cut_at: _Optional[int] = ...) -> None: ...

class RankStep(_message.Message):
    __slots__ = ("rank", "step")
    RANK_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    rank: int
    step: int
    def __init__(self, rank: _Optional[int] = ..., step: _Optional[int] = ...) -> None: ...

class CheckpointRecord(_message.Message):
    __slots__ = ("job", "id", "step", "generation", "kind", "base", "manifest_digest", "bytes_total", "bytes_written", "versions", "published", "bad", "shards", "suspect")
    JOB_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    BASE_FIELD_NUMBER: _ClassVar[int]
    MANIFEST_DIGEST_FIELD_NUMBER: _ClassVar[int]
    BYTES_TOTAL_FIELD_NUMBER: _ClassVar[int]
    BYTES_WRITTEN_FIELD_NUMBER: _ClassVar[int]
    VERSIONS_FIELD_NUMBER: _ClassVar[int]
    PUBLISHED_FIELD_NUMBER: _ClassVar[int]
    BAD_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    SUSPECT_FIELD_NUMBER: _ClassVar[int]
    job: str
    id: str
    step: int
    generation: int
    kind: str
    base: str
    manifest_digest: str
    bytes_total: int
    bytes_written: int
    versions: _containers.RepeatedCompositeFieldContainer[RankStep]
    published: bool
    bad: str
    shards: _containers.RepeatedScalarFieldContainer[str]
    suspect: str
    def __init__(self, job: _Optional[str] = ..., id: _Optional[str] = ..., step: _Optional[int] = ..., generation: _Optional[int] = ..., kind: _Optional[str] = ..., base: _Optional[str] = ..., manifest_digest: _Optional[str] = ..., bytes_total: _Optional[int] = ..., bytes_written: _Optional[int] = ..., versions: _Optional[_Iterable[_Union[RankStep, _Mapping]]] = ..., published: bool = ..., bad: _Optional[str] = ..., shards: _Optional[_Iterable[str]] = ..., suspect: _Optional[str] = ...) -> None: ...

class CheckpointPart(_message.Message):
    __slots__ = ("job", "checkpoint", "shard", "share", "shares", "rank", "member", "step", "generation", "digest", "bytes_total", "bytes_written")
    JOB_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    SHARD_FIELD_NUMBER: _ClassVar[int]
    SHARE_FIELD_NUMBER: _ClassVar[int]
    SHARES_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    BYTES_TOTAL_FIELD_NUMBER: _ClassVar[int]
    BYTES_WRITTEN_FIELD_NUMBER: _ClassVar[int]
    job: str
    checkpoint: str
    shard: str
    share: int
    shares: int
    rank: int
    member: str
    step: int
    generation: int
    digest: str
    bytes_total: int
    bytes_written: int
    def __init__(self, job: _Optional[str] = ..., checkpoint: _Optional[str] = ..., shard: _Optional[str] = ..., share: _Optional[int] = ..., shares: _Optional[int] = ..., rank: _Optional[int] = ..., member: _Optional[str] = ..., step: _Optional[int] = ..., generation: _Optional[int] = ..., digest: _Optional[str] = ..., bytes_total: _Optional[int] = ..., bytes_written: _Optional[int] = ...) -> None: ...

class PeerCopy(_message.Message):
    __slots__ = ("member", "job", "rank", "shard", "step", "generation", "digest")
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    SHARD_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    member: str
    job: str
    rank: int
    shard: str
    step: int
    generation: int
    digest: str
    def __init__(self, member: _Optional[str] = ..., job: _Optional[str] = ..., rank: _Optional[int] = ..., shard: _Optional[str] = ..., step: _Optional[int] = ..., generation: _Optional[int] = ..., digest: _Optional[str] = ...) -> None: ...

class PeerAddress(_message.Message):
    __slots__ = ("node", "address")
    NODE_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    node: str
    address: str
    def __init__(self, node: _Optional[str] = ..., address: _Optional[str] = ...) -> None: ...

class PeerSight(_message.Message):
    __slots__ = ("node", "tries", "failed", "reason")
    NODE_FIELD_NUMBER: _ClassVar[int]
    TRIES_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    node: str
    tries: int
    failed: int
    reason: str
    def __init__(self, node: _Optional[str] = ..., tries: _Optional[int] = ..., failed: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class Partner(_message.Message):
    __slots__ = ("member", "node", "address")
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    member: str
    node: str
    address: str
    def __init__(self, member: _Optional[str] = ..., node: _Optional[str] = ..., address: _Optional[str] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("protocol_version", "cluster", "node", "incarnation", "launcher", "address", "slots", "port", "members", "term_seen", "holdfast_version", "domain", "peer", "copies", "jobs", "process_timeout_s", "fence_after_s", "orphan_timeout_s", "takes")
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    LAUNCHER_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    TERM_SEEN_FIELD_NUMBER: _ClassVar[int]
    HOLDFAST_VERSION_FIELD_NUMBER: _ClassVar[int]
    DOMAIN_FIELD_NUMBER: _ClassVar[int]
    PEER_FIELD_NUMBER: _ClassVar[int]
    COPIES_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    PROCESS_TIMEOUT_S_FIELD_NUMBER: _ClassVar[int]
    FENCE_AFTER_S_FIELD_NUMBER: _ClassVar[int]
    ORPHAN_TIMEOUT_S_FIELD_NUMBER: _ClassVar[int]
    TAKES_FIELD_NUMBER: _ClassVar[int]
    protocol_version: int
    cluster: str
    node: str
    incarnation: int
    launcher: str
    address: str
    slots: int
    port: int
    members: _containers.RepeatedCompositeFieldContainer[MemberStatus]
    term_seen: int
    holdfast_version: str
    domain: str
    peer: str
    copies: _containers.RepeatedCompositeFieldContainer[PeerCopy]
    jobs: _containers.RepeatedScalarFieldContainer[str]
    process_timeout_s: float
    fence_after_s: float
    orphan_timeout_s: float
    takes: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, protocol_version: _Optional[int] = ..., cluster: _Optional[str] = ..., node: _Optional[str] = ..., incarnation: _Optional[int] = ..., launcher: _Optional[str] = ..., address: _Optional[str] = ..., slots: _Optional[int] = ..., port: _Optional[int] = ..., members: _Optional[_Iterable[_Union[MemberStatus, _Mapping]]] = ..., term_seen: _Optional[int] = ..., holdfast_version: _Optional[str] = ..., domain: _Optional[str] = ..., peer: _Optional[str] = ..., copies: _Optional[_Iterable[_Union[PeerCopy, _Mapping]]] = ..., jobs: _Optional[_Iterable[str]] = ..., process_timeout_s: _Optional[float] = ..., fence_after_s: _Optional[float] = ..., orphan_timeout_s: _Optional[float] = ..., takes: _Optional[_Iterable[str]] = ...) -> None: ...

class Beat(_message.Message):
    __slots__ = ("seq", "port", "members", "copies")
    SEQ_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    COPIES_FIELD_NUMBER: _ClassVar[int]
    seq: int
    port: int
    members: _containers.RepeatedCompositeFieldContainer[MemberStatus]
    copies: _containers.RepeatedCompositeFieldContainer[PeerCopy]
    def __init__(self, seq: _Optional[int] = ..., port: _Optional[int] = ..., members: _Optional[_Iterable[_Union[MemberStatus, _Mapping]]] = ..., copies: _Optional[_Iterable[_Union[PeerCopy, _Mapping]]] = ...) -> None: ...

class StepBeat(_message.Message):
    __slots__ = ("seq", "like", "steps", "snapshot_steps", "snapshots_before")
    SEQ_FIELD_NUMBER: _ClassVar[int]
    LIKE_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_STEPS_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOTS_BEFORE_FIELD_NUMBER: _ClassVar[int]
    seq: int
    like: int
    steps: _containers.RepeatedScalarFieldContainer[int]
    snapshot_steps: _containers.RepeatedScalarFieldContainer[int]
    snapshots_before: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, seq: _Optional[int] = ..., like: _Optional[int] = ..., steps: _Optional[_Iterable[int]] = ..., snapshot_steps: _Optional[_Iterable[int]] = ..., snapshots_before: _Optional[_Iterable[int]] = ...) -> None: ...

class RelayedBeat(_message.Message):
    __slots__ = ("node", "incarnation", "beat", "mark")
    NODE_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    BEAT_FIELD_NUMBER: _ClassVar[int]
    MARK_FIELD_NUMBER: _ClassVar[int]
    node: str
    incarnation: int
    beat: bytes
    mark: bytes
    def __init__(self, node: _Optional[str] = ..., incarnation: _Optional[int] = ..., beat: _Optional[bytes] = ..., mark: _Optional[bytes] = ...) -> None: ...

class BeatsRelayed(_message.Message):
    __slots__ = ("number", "beats")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    BEATS_FIELD_NUMBER: _ClassVar[int]
    number: int
    beats: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, number: _Optional[int] = ..., beats: _Optional[_Iterable[bytes]] = ...) -> None: ...

class Report(_message.Message):
    __slots__ = ("seq", "status")
    SEQ_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    seq: int
    status: MemberStatus
    def __init__(self, seq: _Optional[int] = ..., status: _Optional[_Union[MemberStatus, _Mapping]] = ...) -> None: ...

class Started(_message.Message):
    __slots__ = ("member", "job", "generation", "step", "form_s", "restore_s", "first_step_s", "inexact")
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    FORM_S_FIELD_NUMBER: _ClassVar[int]
    RESTORE_S_FIELD_NUMBER: _ClassVar[int]
    FIRST_STEP_S_FIELD_NUMBER: _ClassVar[int]
    INEXACT_FIELD_NUMBER: _ClassVar[int]
    member: str
    job: str
    generation: int
    step: int
    form_s: float
    restore_s: float
    first_step_s: float
    inexact: str
    def __init__(self, member: _Optional[str] = ..., job: _Optional[str] = ..., generation: _Optional[int] = ..., step: _Optional[int] = ..., form_s: _Optional[float] = ..., restore_s: _Optional[float] = ..., first_step_s: _Optional[float] = ..., inexact: _Optional[str] = ...) -> None: ...

class SnapshotReady(_message.Message):
    __slots__ = ("member", "job", "generation", "step", "stall_s", "spacing")
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    STALL_S_FIELD_NUMBER: _ClassVar[int]
    SPACING_FIELD_NUMBER: _ClassVar[int]
    member: str
    job: str
    generation: int
    step: int
    stall_s: float
    spacing: str
    def __init__(self, member: _Optional[str] = ..., job: _Optional[str] = ..., generation: _Optional[int] = ..., step: _Optional[int] = ..., stall_s: _Optional[float] = ..., spacing: _Optional[str] = ...) -> None: ...

class SnapshotVouched(_message.Message):
    __slots__ = ("member", "job", "generation", "step", "digest")
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    member: str
    job: str
    generation: int
    step: int
    digest: str
    def __init__(self, member: _Optional[str] = ..., job: _Optional[str] = ..., generation: _Optional[int] = ..., step: _Optional[int] = ..., digest: _Optional[str] = ...) -> None: ...

class PartPersisted(_message.Message):
    __slots__ = ("part",)
    PART_FIELD_NUMBER: _ClassVar[int]
    part: CheckpointPart
    def __init__(self, part: _Optional[_Union[CheckpointPart, _Mapping]] = ...) -> None: ...

class Mirrored(_message.Message):
    __slots__ = ("job", "checkpoint", "reason")
    JOB_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    job: str
    checkpoint: str
    reason: str
    def __init__(self, job: _Optional[str] = ..., checkpoint: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class Collected(_message.Message):
    __slots__ = ("job", "removed", "bytes_freed", "reason")
    JOB_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    BYTES_FREED_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    job: str
    removed: _containers.RepeatedScalarFieldContainer[str]
    bytes_freed: int
    reason: str
    def __init__(self, job: _Optional[str] = ..., removed: _Optional[_Iterable[str]] = ..., bytes_freed: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class Scrubbed(_message.Message):
    __slots__ = ("job", "checkpoint", "repaired", "reason", "corrupt")
    JOB_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    REPAIRED_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    CORRUPT_FIELD_NUMBER: _ClassVar[int]
    job: str
    checkpoint: str
    repaired: int
    reason: str
    corrupt: bool
    def __init__(self, job: _Optional[str] = ..., checkpoint: _Optional[str] = ..., repaired: _Optional[int] = ..., reason: _Optional[str] = ..., corrupt: bool = ...) -> None: ...

class CheckpointAsked(_message.Message):
    __slots__ = ("job", "member", "generation", "step", "request")
    JOB_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    job: str
    member: str
    generation: int
    step: int
    request: str
    def __init__(self, job: _Optional[str] = ..., member: _Optional[str] = ..., generation: _Optional[int] = ..., step: _Optional[int] = ..., request: _Optional[str] = ...) -> None: ...

class Fetched(_message.Message):
    __slots__ = ("job", "member", "source", "step", "reason", "altered")
    JOB_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ALTERED_FIELD_NUMBER: _ClassVar[int]
    job: str
    member: str
    source: str
    step: int
    reason: str
    altered: bool
    def __init__(self, job: _Optional[str] = ..., member: _Optional[str] = ..., source: _Optional[str] = ..., step: _Optional[int] = ..., reason: _Optional[str] = ..., altered: bool = ...) -> None: ...

class Persisted(_message.Message):
    __slots__ = ("record",)
    RECORD_FIELD_NUMBER: _ClassVar[int]
    record: CheckpointRecord
    def __init__(self, record: _Optional[_Union[CheckpointRecord, _Mapping]] = ...) -> None: ...

class PersistFailed(_message.Message):
    __slots__ = ("job", "checkpoint", "reason")
    JOB_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    job: str
    checkpoint: str
    reason: str
    def __init__(self, job: _Optional[str] = ..., checkpoint: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class Published(_message.Message):
    __slots__ = ("job", "checkpoint", "reason", "understood")
    JOB_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    UNDERSTOOD_FIELD_NUMBER: _ClassVar[int]
    job: str
    checkpoint: str
    reason: str
    understood: bool
    def __init__(self, job: _Optional[str] = ..., checkpoint: _Optional[str] = ..., reason: _Optional[str] = ..., understood: bool = ...) -> None: ...

class Loaded(_message.Message):
    __slots__ = ("job", "checkpoint", "member", "reason", "corrupt", "shard", "share", "shares")
    JOB_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    CORRUPT_FIELD_NUMBER: _ClassVar[int]
    SHARD_FIELD_NUMBER: _ClassVar[int]
    SHARE_FIELD_NUMBER: _ClassVar[int]
    SHARES_FIELD_NUMBER: _ClassVar[int]
    job: str
    checkpoint: str
    member: str
    reason: str
    corrupt: bool
    shard: str
    share: int
    shares: int
    def __init__(self, job: _Optional[str] = ..., checkpoint: _Optional[str] = ..., member: _Optional[str] = ..., reason: _Optional[str] = ..., corrupt: bool = ..., shard: _Optional[str] = ..., share: _Optional[int] = ..., shares: _Optional[int] = ...) -> None: ...

class OrderFailed(_message.Message):
    __slots__ = ("job", "member", "failure")
    JOB_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    job: str
    member: str
    failure: Failure
    def __init__(self, job: _Optional[str] = ..., member: _Optional[str] = ..., failure: _Optional[_Union[Failure, _Mapping]] = ...) -> None: ...

class Device(_message.Message):
    __slots__ = ("device", "healthy", "reason")
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    HEALTHY_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    device: str
    healthy: bool
    reason: str
    def __init__(self, device: _Optional[str] = ..., healthy: bool = ..., reason: _Optional[str] = ...) -> None: ...

class PeersLooked(_message.Message):
    __slots__ = ("round", "found")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    FOUND_FIELD_NUMBER: _ClassVar[int]
    round: int
    found: _containers.RepeatedCompositeFieldContainer[PeerSight]
    def __init__(self, round: _Optional[int] = ..., found: _Optional[_Iterable[_Union[PeerSight, _Mapping]]] = ...) -> None: ...

class DeviceSign(_message.Message):
    __slots__ = ("device", "code", "value")
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    device: str
    code: str
    value: float
    def __init__(self, device: _Optional[str] = ..., code: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...

class NodeSensed(_message.Message):
    __slots__ = ("signs", "unknown")
    SIGNS_FIELD_NUMBER: _ClassVar[int]
    UNKNOWN_FIELD_NUMBER: _ClassVar[int]
    signs: _containers.RepeatedCompositeFieldContainer[DeviceSign]
    unknown: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, signs: _Optional[_Iterable[_Union[DeviceSign, _Mapping]]] = ..., unknown: _Optional[_Iterable[str]] = ...) -> None: ...

class Leaving(_message.Message):
    __slots__ = ("reason", "deadline_s")
    REASON_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_S_FIELD_NUMBER: _ClassVar[int]
    reason: str
    deadline_s: float
    def __init__(self, reason: _Optional[str] = ..., deadline_s: _Optional[float] = ...) -> None: ...

class StacksCollected(_message.Message):
    __slots__ = ("job", "generation", "round", "ranks", "resources")
    JOB_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    RANKS_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    job: str
    generation: int
    round: int
    ranks: _containers.RepeatedCompositeFieldContainer[Standing]
    resources: NodeResources
    def __init__(self, job: _Optional[str] = ..., generation: _Optional[int] = ..., round: _Optional[int] = ..., ranks: _Optional[_Iterable[_Union[Standing, _Mapping]]] = ..., resources: _Optional[_Union[NodeResources, _Mapping]] = ...) -> None: ...

class UserFault(_message.Message):
    __slots__ = ("job", "member", "generation", "step", "kind", "reason", "rollback")
    JOB_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ROLLBACK_FIELD_NUMBER: _ClassVar[int]
    job: str
    member: str
    generation: int
    step: int
    kind: str
    reason: str
    rollback: bool
    def __init__(self, job: _Optional[str] = ..., member: _Optional[str] = ..., generation: _Optional[int] = ..., step: _Optional[int] = ..., kind: _Optional[str] = ..., reason: _Optional[str] = ..., rollback: bool = ...) -> None: ...

class ReplicasReported(_message.Message):
    __slots__ = ("job", "member", "generation", "step", "agreed_step", "ranks", "odd_ranks", "tensors", "more", "digests", "buffers", "uncovered", "replay", "passes", "gradients")
    JOB_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    AGREED_STEP_FIELD_NUMBER: _ClassVar[int]
    RANKS_FIELD_NUMBER: _ClassVar[int]
    ODD_RANKS_FIELD_NUMBER: _ClassVar[int]
    TENSORS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    DIGESTS_FIELD_NUMBER: _ClassVar[int]
    BUFFERS_FIELD_NUMBER: _ClassVar[int]
    UNCOVERED_FIELD_NUMBER: _ClassVar[int]
    REPLAY_FIELD_NUMBER: _ClassVar[int]
    PASSES_FIELD_NUMBER: _ClassVar[int]
    GRADIENTS_FIELD_NUMBER: _ClassVar[int]
    job: str
    member: str
    generation: int
    step: int
    agreed_step: int
    ranks: _containers.RepeatedScalarFieldContainer[int]
    odd_ranks: _containers.RepeatedScalarFieldContainer[int]
    tensors: _containers.RepeatedScalarFieldContainer[str]
    more: int
    digests: _containers.RepeatedScalarFieldContainer[str]
    buffers: bool
    uncovered: _containers.RepeatedScalarFieldContainer[str]
    replay: str
    passes: _containers.RepeatedCompositeFieldContainer[ReplayPass]
    gradients: str
    def __init__(self, job: _Optional[str] = ..., member: _Optional[str] = ..., generation: _Optional[int] = ..., step: _Optional[int] = ..., agreed_step: _Optional[int] = ..., ranks: _Optional[_Iterable[int]] = ..., odd_ranks: _Optional[_Iterable[int]] = ..., tensors: _Optional[_Iterable[str]] = ..., more: _Optional[int] = ..., digests: _Optional[_Iterable[str]] = ..., buffers: bool = ..., uncovered: _Optional[_Iterable[str]] = ..., replay: _Optional[str] = ..., passes: _Optional[_Iterable[_Union[ReplayPass, _Mapping]]] = ..., gradients: _Optional[str] = ...) -> None: ...

class ReplayPass(_message.Message):
    __slots__ = ("kind", "shift", "common", "ranks", "digests")
    KIND_FIELD_NUMBER: _ClassVar[int]
    SHIFT_FIELD_NUMBER: _ClassVar[int]
    COMMON_FIELD_NUMBER: _ClassVar[int]
    RANKS_FIELD_NUMBER: _ClassVar[int]
    DIGESTS_FIELD_NUMBER: _ClassVar[int]
    kind: str
    shift: int
    common: str
    ranks: _containers.RepeatedScalarFieldContainer[int]
    digests: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, kind: _Optional[str] = ..., shift: _Optional[int] = ..., common: _Optional[str] = ..., ranks: _Optional[_Iterable[int]] = ..., digests: _Optional[_Iterable[str]] = ...) -> None: ...

class StorageTraffic(_message.Message):
    __slots__ = ("bytes_written", "write_s", "bytes_read", "read_s")
    BYTES_WRITTEN_FIELD_NUMBER: _ClassVar[int]
    WRITE_S_FIELD_NUMBER: _ClassVar[int]
    BYTES_READ_FIELD_NUMBER: _ClassVar[int]
    READ_S_FIELD_NUMBER: _ClassVar[int]
    bytes_written: int
    write_s: float
    bytes_read: int
    read_s: float
    def __init__(self, bytes_written: _Optional[int] = ..., write_s: _Optional[float] = ..., bytes_read: _Optional[int] = ..., read_s: _Optional[float] = ...) -> None: ...

class NodeDisks(_message.Message):
    __slots__ = ("paths", "uses", "free_bytes", "total_bytes")
    PATHS_FIELD_NUMBER: _ClassVar[int]
    USES_FIELD_NUMBER: _ClassVar[int]
    FREE_BYTES_FIELD_NUMBER: _ClassVar[int]
    TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    paths: _containers.RepeatedScalarFieldContainer[str]
    uses: _containers.RepeatedScalarFieldContainer[str]
    free_bytes: _containers.RepeatedScalarFieldContainer[int]
    total_bytes: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, paths: _Optional[_Iterable[str]] = ..., uses: _Optional[_Iterable[str]] = ..., free_bytes: _Optional[_Iterable[int]] = ..., total_bytes: _Optional[_Iterable[int]] = ...) -> None: ...

class SlowSteps(_message.Message):
    __slots__ = ("ranks", "generations", "at_steps", "usual_s", "wall_s", "data_s", "forward_s", "backward_s", "communication_s", "optimizer_s", "snapshot_s", "other_s", "more")
    RANKS_FIELD_NUMBER: _ClassVar[int]
    GENERATIONS_FIELD_NUMBER: _ClassVar[int]
    AT_STEPS_FIELD_NUMBER: _ClassVar[int]
    USUAL_S_FIELD_NUMBER: _ClassVar[int]
    WALL_S_FIELD_NUMBER: _ClassVar[int]
    DATA_S_FIELD_NUMBER: _ClassVar[int]
    FORWARD_S_FIELD_NUMBER: _ClassVar[int]
    BACKWARD_S_FIELD_NUMBER: _ClassVar[int]
    COMMUNICATION_S_FIELD_NUMBER: _ClassVar[int]
    OPTIMIZER_S_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_S_FIELD_NUMBER: _ClassVar[int]
    OTHER_S_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    ranks: _containers.RepeatedScalarFieldContainer[int]
    generations: _containers.RepeatedScalarFieldContainer[int]
    at_steps: _containers.RepeatedScalarFieldContainer[int]
    usual_s: _containers.RepeatedScalarFieldContainer[float]
    wall_s: _containers.RepeatedScalarFieldContainer[float]
    data_s: _containers.RepeatedScalarFieldContainer[float]
    forward_s: _containers.RepeatedScalarFieldContainer[float]
    backward_s: _containers.RepeatedScalarFieldContainer[float]
    communication_s: _containers.RepeatedScalarFieldContainer[float]
    optimizer_s: _containers.RepeatedScalarFieldContainer[float]
    snapshot_s: _containers.RepeatedScalarFieldContainer[float]
    other_s: _containers.RepeatedScalarFieldContainer[float]
    more: int
    def __init__(self, ranks: _Optional[_Iterable[int]] = ..., generations: _Optional[_Iterable[int]] = ..., at_steps: _Optional[_Iterable[int]] = ..., usual_s: _Optional[_Iterable[float]] = ..., wall_s: _Optional[_Iterable[float]] = ..., data_s: _Optional[_Iterable[float]] = ..., forward_s: _Optional[_Iterable[float]] = ..., backward_s: _Optional[_Iterable[float]] = ..., communication_s: _Optional[_Iterable[float]] = ..., optimizer_s: _Optional[_Iterable[float]] = ..., snapshot_s: _Optional[_Iterable[float]] = ..., other_s: _Optional[_Iterable[float]] = ..., more: _Optional[int] = ...) -> None: ...

class StepTimes(_message.Message):
    __slots__ = ("job", "span_s", "members", "ranks", "generations", "steps", "last_steps", "covered", "wall_s", "data_s", "forward_s", "backward_s", "communication_s", "optimizer_s", "snapshot_s", "other_s", "cpu_s", "longest_s", "samples", "tokens", "flops", "memory_bytes", "memory_peak_bytes", "watched_s", "ran_s", "queued_s", "throttled_s", "cpu_limits", "storage", "memory_limit_bytes", "memory_reserved_bytes", "device_used", "token_flops", "peak_flops", "compute_notes", "compile_s", "evaluate_s", "checkpoint_s", "disks", "end_steps", "end_kinds", "slow")
    JOB_FIELD_NUMBER: _ClassVar[int]
    SPAN_S_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    RANKS_FIELD_NUMBER: _ClassVar[int]
    GENERATIONS_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    LAST_STEPS_FIELD_NUMBER: _ClassVar[int]
    COVERED_FIELD_NUMBER: _ClassVar[int]
    WALL_S_FIELD_NUMBER: _ClassVar[int]
    DATA_S_FIELD_NUMBER: _ClassVar[int]
    FORWARD_S_FIELD_NUMBER: _ClassVar[int]
    BACKWARD_S_FIELD_NUMBER: _ClassVar[int]
    COMMUNICATION_S_FIELD_NUMBER: _ClassVar[int]
    OPTIMIZER_S_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_S_FIELD_NUMBER: _ClassVar[int]
    OTHER_S_FIELD_NUMBER: _ClassVar[int]
    CPU_S_FIELD_NUMBER: _ClassVar[int]
    LONGEST_S_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    FLOPS_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    MEMORY_PEAK_BYTES_FIELD_NUMBER: _ClassVar[int]
    WATCHED_S_FIELD_NUMBER: _ClassVar[int]
    RAN_S_FIELD_NUMBER: _ClassVar[int]
    QUEUED_S_FIELD_NUMBER: _ClassVar[int]
    THROTTLED_S_FIELD_NUMBER: _ClassVar[int]
    CPU_LIMITS_FIELD_NUMBER: _ClassVar[int]
    STORAGE_FIELD_NUMBER: _ClassVar[int]
    MEMORY_LIMIT_BYTES_FIELD_NUMBER: _ClassVar[int]
    MEMORY_RESERVED_BYTES_FIELD_NUMBER: _ClassVar[int]
    DEVICE_USED_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FLOPS_FIELD_NUMBER: _ClassVar[int]
    PEAK_FLOPS_FIELD_NUMBER: _ClassVar[int]
    COMPUTE_NOTES_FIELD_NUMBER: _ClassVar[int]
    COMPILE_S_FIELD_NUMBER: _ClassVar[int]
    EVALUATE_S_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_S_FIELD_NUMBER: _ClassVar[int]
    DISKS_FIELD_NUMBER: _ClassVar[int]
    END_STEPS_FIELD_NUMBER: _ClassVar[int]
    END_KINDS_FIELD_NUMBER: _ClassVar[int]
    SLOW_FIELD_NUMBER: _ClassVar[int]
    job: str
    span_s: float
    members: _containers.RepeatedScalarFieldContainer[str]
    ranks: _containers.RepeatedScalarFieldContainer[int]
    generations: _containers.RepeatedScalarFieldContainer[int]
    steps: _containers.RepeatedScalarFieldContainer[int]
    last_steps: _containers.RepeatedScalarFieldContainer[int]
    covered: _containers.RepeatedScalarFieldContainer[int]
    wall_s: _containers.RepeatedScalarFieldContainer[float]
    data_s: _containers.RepeatedScalarFieldContainer[float]
    forward_s: _containers.RepeatedScalarFieldContainer[float]
    backward_s: _containers.RepeatedScalarFieldContainer[float]
    communication_s: _containers.RepeatedScalarFieldContainer[float]
    optimizer_s: _containers.RepeatedScalarFieldContainer[float]
    snapshot_s: _containers.RepeatedScalarFieldContainer[float]
    other_s: _containers.RepeatedScalarFieldContainer[float]
    cpu_s: _containers.RepeatedScalarFieldContainer[float]
    longest_s: _containers.RepeatedScalarFieldContainer[float]
    samples: _containers.RepeatedScalarFieldContainer[int]
    tokens: _containers.RepeatedScalarFieldContainer[int]
    flops: _containers.RepeatedScalarFieldContainer[float]
    memory_bytes: _containers.RepeatedScalarFieldContainer[int]
    memory_peak_bytes: _containers.RepeatedScalarFieldContainer[int]
    watched_s: _containers.RepeatedScalarFieldContainer[float]
    ran_s: _containers.RepeatedScalarFieldContainer[float]
    queued_s: _containers.RepeatedScalarFieldContainer[float]
    throttled_s: _containers.RepeatedScalarFieldContainer[float]
    cpu_limits: _containers.RepeatedScalarFieldContainer[float]
    storage: StorageTraffic
    memory_limit_bytes: _containers.RepeatedScalarFieldContainer[int]
    memory_reserved_bytes: _containers.RepeatedScalarFieldContainer[int]
    device_used: _containers.RepeatedScalarFieldContainer[float]
    token_flops: _containers.RepeatedScalarFieldContainer[float]
    peak_flops: _containers.RepeatedScalarFieldContainer[float]
    compute_notes: _containers.RepeatedScalarFieldContainer[str]
    compile_s: _containers.RepeatedScalarFieldContainer[float]
    evaluate_s: _containers.RepeatedScalarFieldContainer[float]
    checkpoint_s: _containers.RepeatedScalarFieldContainer[float]
    disks: NodeDisks
    end_steps: _containers.RepeatedScalarFieldContainer[int]
    end_kinds: _containers.RepeatedScalarFieldContainer[str]
    slow: SlowSteps
    def __init__(self, job: _Optional[str] = ..., span_s: _Optional[float] = ..., members: _Optional[_Iterable[str]] = ..., ranks: _Optional[_Iterable[int]] = ..., generations: _Optional[_Iterable[int]] = ..., steps: _Optional[_Iterable[int]] = ..., last_steps: _Optional[_Iterable[int]] = ..., covered: _Optional[_Iterable[int]] = ..., wall_s: _Optional[_Iterable[float]] = ..., data_s: _Optional[_Iterable[float]] = ..., forward_s: _Optional[_Iterable[float]] = ..., backward_s: _Optional[_Iterable[float]] = ..., communication_s: _Optional[_Iterable[float]] = ..., optimizer_s: _Optional[_Iterable[float]] = ..., snapshot_s: _Optional[_Iterable[float]] = ..., other_s: _Optional[_Iterable[float]] = ..., cpu_s: _Optional[_Iterable[float]] = ..., longest_s: _Optional[_Iterable[float]] = ..., samples: _Optional[_Iterable[int]] = ..., tokens: _Optional[_Iterable[int]] = ..., flops: _Optional[_Iterable[float]] = ..., memory_bytes: _Optional[_Iterable[int]] = ..., memory_peak_bytes: _Optional[_Iterable[int]] = ..., watched_s: _Optional[_Iterable[float]] = ..., ran_s: _Optional[_Iterable[float]] = ..., queued_s: _Optional[_Iterable[float]] = ..., throttled_s: _Optional[_Iterable[float]] = ..., cpu_limits: _Optional[_Iterable[float]] = ..., storage: _Optional[_Union[StorageTraffic, _Mapping]] = ..., memory_limit_bytes: _Optional[_Iterable[int]] = ..., memory_reserved_bytes: _Optional[_Iterable[int]] = ..., device_used: _Optional[_Iterable[float]] = ..., token_flops: _Optional[_Iterable[float]] = ..., peak_flops: _Optional[_Iterable[float]] = ..., compute_notes: _Optional[_Iterable[str]] = ..., compile_s: _Optional[_Iterable[float]] = ..., evaluate_s: _Optional[_Iterable[float]] = ..., checkpoint_s: _Optional[_Iterable[float]] = ..., disks: _Optional[_Union[NodeDisks, _Mapping]] = ..., end_steps: _Optional[_Iterable[int]] = ..., end_kinds: _Optional[_Iterable[str]] = ..., slow: _Optional[_Union[SlowSteps, _Mapping]] = ...) -> None: ...

class ParameterGradient(_message.Message):
    __slots__ = ("name", "numel", "norm", "mean", "deviation", "least", "most", "zeros", "nans", "infs", "usual")
    NAME_FIELD_NUMBER: _ClassVar[int]
    NUMEL_FIELD_NUMBER: _ClassVar[int]
    NORM_FIELD_NUMBER: _ClassVar[int]
    MEAN_FIELD_NUMBER: _ClassVar[int]
    DEVIATION_FIELD_NUMBER: _ClassVar[int]
    LEAST_FIELD_NUMBER: _ClassVar[int]
    MOST_FIELD_NUMBER: _ClassVar[int]
    ZEROS_FIELD_NUMBER: _ClassVar[int]
    NANS_FIELD_NUMBER: _ClassVar[int]
    INFS_FIELD_NUMBER: _ClassVar[int]
    USUAL_FIELD_NUMBER: _ClassVar[int]
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
    usual: float
    def __init__(self, name: _Optional[str] = ..., numel: _Optional[int] = ..., norm: _Optional[float] = ..., mean: _Optional[float] = ..., deviation: _Optional[float] = ..., least: _Optional[float] = ..., most: _Optional[float] = ..., zeros: _Optional[int] = ..., nans: _Optional[int] = ..., infs: _Optional[int] = ..., usual: _Optional[float] = ...) -> None: ...

class Gradients(_message.Message):
    __slots__ = ("job", "member", "rank", "generation", "step", "parameters", "numel", "norm", "local_norm", "local_bad", "zeros", "nans", "infs", "vanishing", "samples", "loss", "loss_state", "sharded", "clipped", "skipped", "left_out", "trace", "origin", "words", "rows")
    JOB_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    NUMEL_FIELD_NUMBER: _ClassVar[int]
    NORM_FIELD_NUMBER: _ClassVar[int]
    LOCAL_NORM_FIELD_NUMBER: _ClassVar[int]
    LOCAL_BAD_FIELD_NUMBER: _ClassVar[int]
    ZEROS_FIELD_NUMBER: _ClassVar[int]
    NANS_FIELD_NUMBER: _ClassVar[int]
    INFS_FIELD_NUMBER: _ClassVar[int]
    VANISHING_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    LOSS_FIELD_NUMBER: _ClassVar[int]
    LOSS_STATE_FIELD_NUMBER: _ClassVar[int]
    SHARDED_FIELD_NUMBER: _ClassVar[int]
    CLIPPED_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_FIELD_NUMBER: _ClassVar[int]
    LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
    TRACE_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    WORDS_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    job: str
    member: str
    rank: int
    generation: int
    step: int
    parameters: int
    numel: int
    norm: float
    local_norm: float
    local_bad: int
    zeros: int
    nans: int
    infs: int
    vanishing: int
    samples: int
    loss: float
    loss_state: str
    sharded: bool
    clipped: bool
    skipped: int
    left_out: str
    trace: str
    origin: str
    words: str
    rows: _containers.RepeatedCompositeFieldContainer[ParameterGradient]
    def __init__(self, job: _Optional[str] = ..., member: _Optional[str] = ..., rank: _Optional[int] = ..., generation: _Optional[int] = ..., step: _Optional[int] = ..., parameters: _Optional[int] = ..., numel: _Optional[int] = ..., norm: _Optional[float] = ..., local_norm: _Optional[float] = ..., local_bad: _Optional[int] = ..., zeros: _Optional[int] = ..., nans: _Optional[int] = ..., infs: _Optional[int] = ..., vanishing: _Optional[int] = ..., samples: _Optional[int] = ..., loss: _Optional[float] = ..., loss_state: _Optional[str] = ..., sharded: bool = ..., clipped: bool = ..., skipped: _Optional[int] = ..., left_out: _Optional[str] = ..., trace: _Optional[str] = ..., origin: _Optional[str] = ..., words: _Optional[str] = ..., rows: _Optional[_Iterable[_Union[ParameterGradient, _Mapping]]] = ...) -> None: ...

class OperatorTime(_message.Message):
    __slots__ = ("name", "calls", "cpu_s", "device_s")
    NAME_FIELD_NUMBER: _ClassVar[int]
    CALLS_FIELD_NUMBER: _ClassVar[int]
    CPU_S_FIELD_NUMBER: _ClassVar[int]
    DEVICE_S_FIELD_NUMBER: _ClassVar[int]
    name: str
    calls: int
    cpu_s: float
    device_s: float
    def __init__(self, name: _Optional[str] = ..., calls: _Optional[int] = ..., cpu_s: _Optional[float] = ..., device_s: _Optional[float] = ...) -> None: ...

class Profiled(_message.Message):
    __slots__ = ("job", "member", "request", "generation", "reason", "path", "bytes", "first_step", "steps", "cpu_s", "device_s", "operators", "no_table")
    JOB_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    FIRST_STEP_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    CPU_S_FIELD_NUMBER: _ClassVar[int]
    DEVICE_S_FIELD_NUMBER: _ClassVar[int]
    OPERATORS_FIELD_NUMBER: _ClassVar[int]
    NO_TABLE_FIELD_NUMBER: _ClassVar[int]
    job: str
    member: str
    request: str
    generation: int
    reason: str
    path: str
    bytes: int
    first_step: int
    steps: int
    cpu_s: float
    device_s: float
    operators: _containers.RepeatedCompositeFieldContainer[OperatorTime]
    no_table: str
    def __init__(self, job: _Optional[str] = ..., member: _Optional[str] = ..., request: _Optional[str] = ..., generation: _Optional[int] = ..., reason: _Optional[str] = ..., path: _Optional[str] = ..., bytes: _Optional[int] = ..., first_step: _Optional[int] = ..., steps: _Optional[int] = ..., cpu_s: _Optional[float] = ..., device_s: _Optional[float] = ..., operators: _Optional[_Iterable[_Union[OperatorTime, _Mapping]]] = ..., no_table: _Optional[str] = ...) -> None: ...

class ProbeEnd(_message.Message):
    __slots__ = ("waited_s", "ran_s", "rtt_waited_s", "pressure")
    WAITED_S_FIELD_NUMBER: _ClassVar[int]
    RAN_S_FIELD_NUMBER: _ClassVar[int]
    RTT_WAITED_S_FIELD_NUMBER: _ClassVar[int]
    PRESSURE_FIELD_NUMBER: _ClassVar[int]
    waited_s: float
    ran_s: float
    rtt_waited_s: float
    pressure: float
    def __init__(self, waited_s: _Optional[float] = ..., ran_s: _Optional[float] = ..., rtt_waited_s: _Optional[float] = ..., pressure: _Optional[float] = ...) -> None: ...

class LinkProbe(_message.Message):
    __slots__ = ("node", "rtt_s", "bytes_per_s", "bytes", "reason", "block_s", "here", "there")
    NODE_FIELD_NUMBER: _ClassVar[int]
    RTT_S_FIELD_NUMBER: _ClassVar[int]
    BYTES_PER_S_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    BLOCK_S_FIELD_NUMBER: _ClassVar[int]
    HERE_FIELD_NUMBER: _ClassVar[int]
    THERE_FIELD_NUMBER: _ClassVar[int]
    node: str
    rtt_s: float
    bytes_per_s: float
    bytes: int
    reason: str
    block_s: float
    here: ProbeEnd
    there: ProbeEnd
    def __init__(self, node: _Optional[str] = ..., rtt_s: _Optional[float] = ..., bytes_per_s: _Optional[float] = ..., bytes: _Optional[int] = ..., reason: _Optional[str] = ..., block_s: _Optional[float] = ..., here: _Optional[_Union[ProbeEnd, _Mapping]] = ..., there: _Optional[_Union[ProbeEnd, _Mapping]] = ...) -> None: ...

class LinksProbed(_message.Message):
    __slots__ = ("job", "round", "found")
    JOB_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    FOUND_FIELD_NUMBER: _ClassVar[int]
    job: str
    round: int
    found: _containers.RepeatedCompositeFieldContainer[LinkProbe]
    def __init__(self, job: _Optional[str] = ..., round: _Optional[int] = ..., found: _Optional[_Iterable[_Union[LinkProbe, _Mapping]]] = ...) -> None: ...

class CheckedReading(_message.Message):
    __slots__ = ("name", "value", "unit", "higher", "broken", "reason", "crowded", "within")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    UNIT_FIELD_NUMBER: _ClassVar[int]
    HIGHER_FIELD_NUMBER: _ClassVar[int]
    BROKEN_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    CROWDED_FIELD_NUMBER: _ClassVar[int]
    WITHIN_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: float
    unit: str
    higher: bool
    broken: str
    reason: str
    crowded: float
    within: float
    def __init__(self, name: _Optional[str] = ..., value: _Optional[float] = ..., unit: _Optional[str] = ..., higher: bool = ..., broken: _Optional[str] = ..., reason: _Optional[str] = ..., crowded: _Optional[float] = ..., within: _Optional[float] = ...) -> None: ...

class NodeChecked(_message.Message):
    __slots__ = ("round", "readings", "load", "age_s", "reason")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    READINGS_FIELD_NUMBER: _ClassVar[int]
    LOAD_FIELD_NUMBER: _ClassVar[int]
    AGE_S_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    round: int
    readings: _containers.RepeatedCompositeFieldContainer[CheckedReading]
    load: float
    age_s: float
    reason: str
    def __init__(self, round: _Optional[int] = ..., readings: _Optional[_Iterable[_Union[CheckedReading, _Mapping]]] = ..., load: _Optional[float] = ..., age_s: _Optional[float] = ..., reason: _Optional[str] = ...) -> None: ...

class RankEnded(_message.Message):
    __slots__ = ("job", "member", "rank", "generation", "step", "began_step", "exit_code", "signal", "ordered", "at_s", "log", "text", "skipped_bytes", "no_text", "oom_kills", "memory_limit_bytes", "cgroup", "kernel_text")
    JOB_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    BEGAN_STEP_FIELD_NUMBER: _ClassVar[int]
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    SIGNAL_FIELD_NUMBER: _ClassVar[int]
    ORDERED_FIELD_NUMBER: _ClassVar[int]
    AT_S_FIELD_NUMBER: _ClassVar[int]
    LOG_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_BYTES_FIELD_NUMBER: _ClassVar[int]
    NO_TEXT_FIELD_NUMBER: _ClassVar[int]
    OOM_KILLS_FIELD_NUMBER: _ClassVar[int]
    MEMORY_LIMIT_BYTES_FIELD_NUMBER: _ClassVar[int]
    CGROUP_FIELD_NUMBER: _ClassVar[int]
    KERNEL_TEXT_FIELD_NUMBER: _ClassVar[int]
    job: str
    member: str
    rank: int
    generation: int
    step: int
    began_step: int
    exit_code: int
    signal: int
    ordered: str
    at_s: float
    log: str
    text: str
    skipped_bytes: int
    no_text: str
    oom_kills: int
    memory_limit_bytes: int
    cgroup: str
    kernel_text: str
    def __init__(self, job: _Optional[str] = ..., member: _Optional[str] = ..., rank: _Optional[int] = ..., generation: _Optional[int] = ..., step: _Optional[int] = ..., began_step: _Optional[int] = ..., exit_code: _Optional[int] = ..., signal: _Optional[int] = ..., ordered: _Optional[str] = ..., at_s: _Optional[float] = ..., log: _Optional[str] = ..., text: _Optional[str] = ..., skipped_bytes: _Optional[int] = ..., no_text: _Optional[str] = ..., oom_kills: _Optional[int] = ..., memory_limit_bytes: _Optional[int] = ..., cgroup: _Optional[str] = ..., kernel_text: _Optional[str] = ...) -> None: ...

class AgentMessage(_message.Message):
    __slots__ = ("sent_at_s", "hello", "beat", "report", "started", "snapshot_ready", "persisted", "persist_failed", "published", "loaded", "order_failed", "device", "part_persisted", "mirrored", "collected", "scrubbed", "checkpoint_asked", "fetched", "peers_looked", "leaving", "stacks_collected", "user_fault", "snapshot_vouched", "step_times", "profiled", "links_probed", "rank_ended", "gradients", "replicas_reported", "node_checked", "step_beat", "node_sensed", "beats_relayed")
    SENT_AT_S_FIELD_NUMBER: _ClassVar[int]
    HELLO_FIELD_NUMBER: _ClassVar[int]
    BEAT_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    STARTED_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_READY_FIELD_NUMBER: _ClassVar[int]
    PERSISTED_FIELD_NUMBER: _ClassVar[int]
    PERSIST_FAILED_FIELD_NUMBER: _ClassVar[int]
    PUBLISHED_FIELD_NUMBER: _ClassVar[int]
    LOADED_FIELD_NUMBER: _ClassVar[int]
    ORDER_FAILED_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    PART_PERSISTED_FIELD_NUMBER: _ClassVar[int]
    MIRRORED_FIELD_NUMBER: _ClassVar[int]
    COLLECTED_FIELD_NUMBER: _ClassVar[int]
    SCRUBBED_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_ASKED_FIELD_NUMBER: _ClassVar[int]
    FETCHED_FIELD_NUMBER: _ClassVar[int]
    PEERS_LOOKED_FIELD_NUMBER: _ClassVar[int]
    LEAVING_FIELD_NUMBER: _ClassVar[int]
    STACKS_COLLECTED_FIELD_NUMBER: _ClassVar[int]
    USER_FAULT_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_VOUCHED_FIELD_NUMBER: _ClassVar[int]
    STEP_TIMES_FIELD_NUMBER: _ClassVar[int]
    PROFILED_FIELD_NUMBER: _ClassVar[int]
    LINKS_PROBED_FIELD_NUMBER: _ClassVar[int]
    RANK_ENDED_FIELD_NUMBER: _ClassVar[int]
    GRADIENTS_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_REPORTED_FIELD_NUMBER: _ClassVar[int]
    NODE_CHECKED_FIELD_NUMBER: _ClassVar[int]
    STEP_BEAT_FIELD_NUMBER: _ClassVar[int]
    NODE_SENSED_FIELD_NUMBER: _ClassVar[int]
    BEATS_RELAYED_FIELD_NUMBER: _ClassVar[int]
    sent_at_s: float
    hello: Hello
    beat: Beat
    report: Report
    started: Started
    snapshot_ready: SnapshotReady
    persisted: Persisted
    persist_failed: PersistFailed
    published: Published
    loaded: Loaded
    order_failed: OrderFailed
    device: Device
    part_persisted: PartPersisted
    mirrored: Mirrored
    collected: Collected
    scrubbed: Scrubbed
    checkpoint_asked: CheckpointAsked
    fetched: Fetched
    peers_looked: PeersLooked
    leaving: Leaving
    stacks_collected: StacksCollected
    user_fault: UserFault
    snapshot_vouched: SnapshotVouched
    step_times: StepTimes
    profiled: Profiled
    links_probed: LinksProbed
    rank_ended: RankEnded
    gradients: Gradients
    replicas_reported: ReplicasReported
    node_checked: NodeChecked
    step_beat: StepBeat
    node_sensed: NodeSensed
    beats_relayed: BeatsRelayed
    def __init__(self, sent_at_s: _Optional[float] = ..., hello: _Optional[_Union[Hello, _Mapping]] = ..., beat: _Optional[_Union[Beat, _Mapping]] = ..., report: _Optional[_Union[Report, _Mapping]] = ..., started: _Optional[_Union[Started, _Mapping]] = ..., snapshot_ready: _Optional[_Union[SnapshotReady, _Mapping]] = ..., persisted: _Optional[_Union[Persisted, _Mapping]] = ..., persist_failed: _Optional[_Union[PersistFailed, _Mapping]] = ..., published: _Optional[_Union[Published, _Mapping]] = ..., loaded: _Optional[_Union[Loaded, _Mapping]] = ..., order_failed: _Optional[_Union[OrderFailed, _Mapping]] = ..., device: _Optional[_Union[Device, _Mapping]] = ..., part_persisted: _Optional[_Union[PartPersisted, _Mapping]] = ..., mirrored: _Optional[_Union[Mirrored, _Mapping]] = ..., collected: _Optional[_Union[Collected, _Mapping]] = ..., scrubbed: _Optional[_Union[Scrubbed, _Mapping]] = ..., checkpoint_asked: _Optional[_Union[CheckpointAsked, _Mapping]] = ..., fetched: _Optional[_Union[Fetched, _Mapping]] = ..., peers_looked: _Optional[_Union[PeersLooked, _Mapping]] = ..., leaving: _Optional[_Union[Leaving, _Mapping]] = ..., stacks_collected: _Optional[_Union[StacksCollected, _Mapping]] = ..., user_fault: _Optional[_Union[UserFault, _Mapping]] = ..., snapshot_vouched: _Optional[_Union[SnapshotVouched, _Mapping]] = ..., step_times: _Optional[_Union[StepTimes, _Mapping]] = ..., profiled: _Optional[_Union[Profiled, _Mapping]] = ..., links_probed: _Optional[_Union[LinksProbed, _Mapping]] = ..., rank_ended: _Optional[_Union[RankEnded, _Mapping]] = ..., gradients: _Optional[_Union[Gradients, _Mapping]] = ..., replicas_reported: _Optional[_Union[ReplicasReported, _Mapping]] = ..., node_checked: _Optional[_Union[NodeChecked, _Mapping]] = ..., step_beat: _Optional[_Union[StepBeat, _Mapping]] = ..., node_sensed: _Optional[_Union[NodeSensed, _Mapping]] = ..., beats_relayed: _Optional[_Union[BeatsRelayed, _Mapping]] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("cluster", "beat_interval_s", "hears", "step_times_every_s", "snapshots_by_beats", "beat_key")
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    BEAT_INTERVAL_S_FIELD_NUMBER: _ClassVar[int]
    HEARS_FIELD_NUMBER: _ClassVar[int]
    STEP_TIMES_EVERY_S_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOTS_BY_BEATS_FIELD_NUMBER: _ClassVar[int]
    BEAT_KEY_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    beat_interval_s: float
    hears: _containers.RepeatedScalarFieldContainer[str]
    step_times_every_s: float
    snapshots_by_beats: bool
    beat_key: bytes
    def __init__(self, cluster: _Optional[str] = ..., beat_interval_s: _Optional[float] = ..., hears: _Optional[_Iterable[str]] = ..., step_times_every_s: _Optional[float] = ..., snapshots_by_beats: bool = ..., beat_key: _Optional[bytes] = ...) -> None: ...

class Refused(_message.Message):
    __slots__ = ("reason", "retry", "leader", "again_after_s")
    REASON_FIELD_NUMBER: _ClassVar[int]
    RETRY_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    AGAIN_AFTER_S_FIELD_NUMBER: _ClassVar[int]
    reason: str
    retry: bool
    leader: str
    again_after_s: float
    def __init__(self, reason: _Optional[str] = ..., retry: bool = ..., leader: _Optional[str] = ..., again_after_s: _Optional[float] = ...) -> None: ...

class Launch(_message.Message):
    __slots__ = ("member", "spec", "role", "warm_only", "rank", "local_rank", "generation")
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    WARM_ONLY_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    LOCAL_RANK_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    member: str
    spec: JobSpec
    role: str
    warm_only: bool
    rank: int
    local_rank: int
    generation: Generation
    def __init__(self, member: _Optional[str] = ..., spec: _Optional[_Union[JobSpec, _Mapping]] = ..., role: _Optional[str] = ..., warm_only: bool = ..., rank: _Optional[int] = ..., local_rank: _Optional[int] = ..., generation: _Optional[_Union[Generation, _Mapping]] = ...) -> None: ...

class Interrupt(_message.Message):
    __slots__ = ("job", "generation", "reason", "gentle", "keep")
    JOB_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    GENTLE_FIELD_NUMBER: _ClassVar[int]
    KEEP_FIELD_NUMBER: _ClassVar[int]
    job: str
    generation: int
    reason: str
    gentle: bool
    keep: bool
    def __init__(self, job: _Optional[str] = ..., generation: _Optional[int] = ..., reason: _Optional[str] = ..., gentle: bool = ..., keep: bool = ...) -> None: ...

class Form(_message.Message):
    __slots__ = ("generation",)
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    generation: Generation
    def __init__(self, generation: _Optional[_Union[Generation, _Mapping]] = ...) -> None: ...

class Kill(_message.Message):
    __slots__ = ("job", "member", "reason")
    JOB_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    job: str
    member: str
    reason: str
    def __init__(self, job: _Optional[str] = ..., member: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class Complete(_message.Message):
    __slots__ = ("job", "ok", "reason", "left")
    JOB_FIELD_NUMBER: _ClassVar[int]
    OK_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    LEFT_FIELD_NUMBER: _ClassVar[int]
    job: str
    ok: bool
    reason: str
    left: bool
    def __init__(self, job: _Optional[str] = ..., ok: bool = ..., reason: _Optional[str] = ..., left: bool = ...) -> None: ...

class Return(_message.Message):
    __slots__ = ("job", "generation")
    JOB_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    job: str
    generation: int
    def __init__(self, job: _Optional[str] = ..., generation: _Optional[int] = ...) -> None: ...

class Release(_message.Message):
    __slots__ = ("job", "step", "void_step", "kept_from")
    JOB_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    VOID_STEP_FIELD_NUMBER: _ClassVar[int]
    KEPT_FROM_FIELD_NUMBER: _ClassVar[int]
    job: str
    step: int
    void_step: int
    kept_from: int
    def __init__(self, job: _Optional[str] = ..., step: _Optional[int] = ..., void_step: _Optional[int] = ..., kept_from: _Optional[int] = ...) -> None: ...

class Persist(_message.Message):
    __slots__ = ("member", "spec", "checkpoint", "step", "generation", "kind", "base", "versions", "rank", "shard", "share", "shares")
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    BASE_FIELD_NUMBER: _ClassVar[int]
    VERSIONS_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    SHARD_FIELD_NUMBER: _ClassVar[int]
    SHARE_FIELD_NUMBER: _ClassVar[int]
    SHARES_FIELD_NUMBER: _ClassVar[int]
    member: str
    spec: JobSpec
    checkpoint: str
    step: int
    generation: int
    kind: str
    base: str
    versions: _containers.RepeatedCompositeFieldContainer[RankStep]
    rank: int
    shard: str
    share: int
    shares: int
    def __init__(self, member: _Optional[str] = ..., spec: _Optional[_Union[JobSpec, _Mapping]] = ..., checkpoint: _Optional[str] = ..., step: _Optional[int] = ..., generation: _Optional[int] = ..., kind: _Optional[str] = ..., base: _Optional[str] = ..., versions: _Optional[_Iterable[_Union[RankStep, _Mapping]]] = ..., rank: _Optional[int] = ..., shard: _Optional[str] = ..., share: _Optional[int] = ..., shares: _Optional[int] = ...) -> None: ...

class Seal(_message.Message):
    __slots__ = ("spec", "checkpoint", "step", "generation", "kind", "base", "versions", "parts")
    SPEC_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    BASE_FIELD_NUMBER: _ClassVar[int]
    VERSIONS_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    spec: JobSpec
    checkpoint: str
    step: int
    generation: int
    kind: str
    base: str
    versions: _containers.RepeatedCompositeFieldContainer[RankStep]
    parts: _containers.RepeatedCompositeFieldContainer[CheckpointPart]
    def __init__(self, spec: _Optional[_Union[JobSpec, _Mapping]] = ..., checkpoint: _Optional[str] = ..., step: _Optional[int] = ..., generation: _Optional[int] = ..., kind: _Optional[str] = ..., base: _Optional[str] = ..., versions: _Optional[_Iterable[_Union[RankStep, _Mapping]]] = ..., parts: _Optional[_Iterable[_Union[CheckpointPart, _Mapping]]] = ...) -> None: ...

class Mirror(_message.Message):
    __slots__ = ("spec", "record")
    SPEC_FIELD_NUMBER: _ClassVar[int]
    RECORD_FIELD_NUMBER: _ClassVar[int]
    spec: JobSpec
    record: CheckpointRecord
    def __init__(self, spec: _Optional[_Union[JobSpec, _Mapping]] = ..., record: _Optional[_Union[CheckpointRecord, _Mapping]] = ...) -> None: ...

class Collect(_message.Message):
    __slots__ = ("spec", "remove", "keep", "busy")
    SPEC_FIELD_NUMBER: _ClassVar[int]
    REMOVE_FIELD_NUMBER: _ClassVar[int]
    KEEP_FIELD_NUMBER: _ClassVar[int]
    BUSY_FIELD_NUMBER: _ClassVar[int]
    spec: JobSpec
    remove: _containers.RepeatedScalarFieldContainer[str]
    keep: _containers.RepeatedScalarFieldContainer[str]
    busy: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, spec: _Optional[_Union[JobSpec, _Mapping]] = ..., remove: _Optional[_Iterable[str]] = ..., keep: _Optional[_Iterable[str]] = ..., busy: _Optional[_Iterable[str]] = ...) -> None: ...

class Scrub(_message.Message):
    __slots__ = ("spec", "record")
    SPEC_FIELD_NUMBER: _ClassVar[int]
    RECORD_FIELD_NUMBER: _ClassVar[int]
    spec: JobSpec
    record: CheckpointRecord
    def __init__(self, spec: _Optional[_Union[JobSpec, _Mapping]] = ..., record: _Optional[_Union[CheckpointRecord, _Mapping]] = ...) -> None: ...

class Replicate(_message.Message):
    __slots__ = ("job", "partners")
    JOB_FIELD_NUMBER: _ClassVar[int]
    PARTNERS_FIELD_NUMBER: _ClassVar[int]
    job: str
    partners: _containers.RepeatedCompositeFieldContainer[Partner]
    def __init__(self, job: _Optional[str] = ..., partners: _Optional[_Iterable[_Union[Partner, _Mapping]]] = ...) -> None: ...

class Discard(_message.Message):
    __slots__ = ("job", "members")
    JOB_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    job: str
    members: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, job: _Optional[str] = ..., members: _Optional[_Iterable[str]] = ...) -> None: ...

class Fetch(_message.Message):
    __slots__ = ("member", "job", "source", "step", "generation", "address", "digest")
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    member: str
    job: str
    source: str
    step: int
    generation: int
    address: str
    digest: str
    def __init__(self, member: _Optional[str] = ..., job: _Optional[str] = ..., source: _Optional[str] = ..., step: _Optional[int] = ..., generation: _Optional[int] = ..., address: _Optional[str] = ..., digest: _Optional[str] = ...) -> None: ...

class CheckpointTold(_message.Message):
    __slots__ = ("job", "member", "request", "outcome", "reason", "checkpoint")
    JOB_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    job: str
    member: str
    request: str
    outcome: str
    reason: str
    checkpoint: str
    def __init__(self, job: _Optional[str] = ..., member: _Optional[str] = ..., request: _Optional[str] = ..., outcome: _Optional[str] = ..., reason: _Optional[str] = ..., checkpoint: _Optional[str] = ...) -> None: ...

class Publish(_message.Message):
    __slots__ = ("spec", "record")
    SPEC_FIELD_NUMBER: _ClassVar[int]
    RECORD_FIELD_NUMBER: _ClassVar[int]
    spec: JobSpec
    record: CheckpointRecord
    def __init__(self, spec: _Optional[_Union[JobSpec, _Mapping]] = ..., record: _Optional[_Union[CheckpointRecord, _Mapping]] = ...) -> None: ...

class Load(_message.Message):
    __slots__ = ("member", "spec", "record", "shard", "share", "shares")
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    RECORD_FIELD_NUMBER: _ClassVar[int]
    SHARD_FIELD_NUMBER: _ClassVar[int]
    SHARE_FIELD_NUMBER: _ClassVar[int]
    SHARES_FIELD_NUMBER: _ClassVar[int]
    member: str
    spec: JobSpec
    record: CheckpointRecord
    shard: str
    share: int
    shares: int
    def __init__(self, member: _Optional[str] = ..., spec: _Optional[_Union[JobSpec, _Mapping]] = ..., record: _Optional[_Union[CheckpointRecord, _Mapping]] = ..., shard: _Optional[str] = ..., share: _Optional[int] = ..., shares: _Optional[int] = ...) -> None: ...

class LookAtPeers(_message.Message):
    __slots__ = ("job", "round", "peers")
    JOB_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    PEERS_FIELD_NUMBER: _ClassVar[int]
    job: str
    round: int
    peers: _containers.RepeatedCompositeFieldContainer[PeerAddress]
    def __init__(self, job: _Optional[str] = ..., round: _Optional[int] = ..., peers: _Optional[_Iterable[_Union[PeerAddress, _Mapping]]] = ...) -> None: ...

class Drained(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...

class CollectStacks(_message.Message):
    __slots__ = ("job", "generation", "round", "bytes_max", "records_only", "at_barrier")
    JOB_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    RECORDS_ONLY_FIELD_NUMBER: _ClassVar[int]
    AT_BARRIER_FIELD_NUMBER: _ClassVar[int]
    job: str
    generation: int
    round: int
    bytes_max: int
    records_only: bool
    at_barrier: bool
    def __init__(self, job: _Optional[str] = ..., generation: _Optional[int] = ..., round: _Optional[int] = ..., bytes_max: _Optional[int] = ..., records_only: bool = ..., at_barrier: bool = ...) -> None: ...

class Profile(_message.Message):
    __slots__ = ("job", "member", "request", "generation", "steps", "timeout_s", "bytes_max")
    JOB_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_S_FIELD_NUMBER: _ClassVar[int]
    BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    job: str
    member: str
    request: str
    generation: int
    steps: int
    timeout_s: float
    bytes_max: int
    def __init__(self, job: _Optional[str] = ..., member: _Optional[str] = ..., request: _Optional[str] = ..., generation: _Optional[int] = ..., steps: _Optional[int] = ..., timeout_s: _Optional[float] = ..., bytes_max: _Optional[int] = ...) -> None: ...

class ProbeLinks(_message.Message):
    __slots__ = ("job", "round", "peers", "slot_s", "bytes_max", "burst_s", "begins_s")
    JOB_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    PEERS_FIELD_NUMBER: _ClassVar[int]
    SLOT_S_FIELD_NUMBER: _ClassVar[int]
    BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    BURST_S_FIELD_NUMBER: _ClassVar[int]
    BEGINS_S_FIELD_NUMBER: _ClassVar[int]
    job: str
    round: int
    peers: _containers.RepeatedCompositeFieldContainer[PeerAddress]
    slot_s: float
    bytes_max: int
    burst_s: float
    begins_s: float
    def __init__(self, job: _Optional[str] = ..., round: _Optional[int] = ..., peers: _Optional[_Iterable[_Union[PeerAddress, _Mapping]]] = ..., slot_s: _Optional[float] = ..., bytes_max: _Optional[int] = ..., burst_s: _Optional[float] = ..., begins_s: _Optional[float] = ...) -> None: ...

class ReadLog(_message.Message):
    __slots__ = ("job", "request", "member", "from_bytes", "end_bytes", "tail", "since_s", "follow")
    JOB_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    FROM_BYTES_FIELD_NUMBER: _ClassVar[int]
    END_BYTES_FIELD_NUMBER: _ClassVar[int]
    TAIL_FIELD_NUMBER: _ClassVar[int]
    SINCE_S_FIELD_NUMBER: _ClassVar[int]
    FOLLOW_FIELD_NUMBER: _ClassVar[int]
    job: str
    request: str
    member: str
    from_bytes: int
    end_bytes: int
    tail: int
    since_s: float
    follow: bool
    def __init__(self, job: _Optional[str] = ..., request: _Optional[str] = ..., member: _Optional[str] = ..., from_bytes: _Optional[int] = ..., end_bytes: _Optional[int] = ..., tail: _Optional[int] = ..., since_s: _Optional[float] = ..., follow: bool = ...) -> None: ...

class CheckNode(_message.Message):
    __slots__ = ("round", "seconds", "timeout_s", "fresh_s", "peers")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_S_FIELD_NUMBER: _ClassVar[int]
    FRESH_S_FIELD_NUMBER: _ClassVar[int]
    PEERS_FIELD_NUMBER: _ClassVar[int]
    round: int
    seconds: float
    timeout_s: float
    fresh_s: float
    peers: _containers.RepeatedCompositeFieldContainer[PeerAddress]
    def __init__(self, round: _Optional[int] = ..., seconds: _Optional[float] = ..., timeout_s: _Optional[float] = ..., fresh_s: _Optional[float] = ..., peers: _Optional[_Iterable[_Union[PeerAddress, _Mapping]]] = ...) -> None: ...

class RelayBeats(_message.Message):
    __slots__ = ("relay", "address")
    RELAY_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    relay: str
    address: str
    def __init__(self, relay: _Optional[str] = ..., address: _Optional[str] = ...) -> None: ...

class BeatsTaken(_message.Message):
    __slots__ = ("number",)
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    number: int
    def __init__(self, number: _Optional[int] = ...) -> None: ...

class CoordinatorMessage(_message.Message):
    __slots__ = ("term", "welcome", "refused", "launch", "interrupt", "form", "kill", "complete", "release", "persist", "publish", "load", "seal", "mirror", "collect", "scrub", "replicate", "fetch", "checkpoint_told", "look_at_peers", "drained", "collect_stacks", "returning", "discard", "profile", "probe_links", "read_log", "check_node", "relay_beats", "beats_taken", "incident")
    TERM_FIELD_NUMBER: _ClassVar[int]
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    LAUNCH_FIELD_NUMBER: _ClassVar[int]
    INTERRUPT_FIELD_NUMBER: _ClassVar[int]
    FORM_FIELD_NUMBER: _ClassVar[int]
    KILL_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    PERSIST_FIELD_NUMBER: _ClassVar[int]
    PUBLISH_FIELD_NUMBER: _ClassVar[int]
    LOAD_FIELD_NUMBER: _ClassVar[int]
    SEAL_FIELD_NUMBER: _ClassVar[int]
    MIRROR_FIELD_NUMBER: _ClassVar[int]
    COLLECT_FIELD_NUMBER: _ClassVar[int]
    SCRUB_FIELD_NUMBER: _ClassVar[int]
    REPLICATE_FIELD_NUMBER: _ClassVar[int]
    FETCH_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_TOLD_FIELD_NUMBER: _ClassVar[int]
    LOOK_AT_PEERS_FIELD_NUMBER: _ClassVar[int]
    DRAINED_FIELD_NUMBER: _ClassVar[int]
    COLLECT_STACKS_FIELD_NUMBER: _ClassVar[int]
    RETURNING_FIELD_NUMBER: _ClassVar[int]
    DISCARD_FIELD_NUMBER: _ClassVar[int]
    PROFILE_FIELD_NUMBER: _ClassVar[int]
    PROBE_LINKS_FIELD_NUMBER: _ClassVar[int]
    READ_LOG_FIELD_NUMBER: _ClassVar[int]
    CHECK_NODE_FIELD_NUMBER: _ClassVar[int]
    RELAY_BEATS_FIELD_NUMBER: _ClassVar[int]
    BEATS_TAKEN_FIELD_NUMBER: _ClassVar[int]
    INCIDENT_FIELD_NUMBER: _ClassVar[int]
    term: int
    welcome: Welcome
    refused: Refused
    launch: Launch
    interrupt: Interrupt
    form: Form
    kill: Kill
    complete: Complete
    release: Release
    persist: Persist
    publish: Publish
    load: Load
    seal: Seal
    mirror: Mirror
    collect: Collect
    scrub: Scrub
    replicate: Replicate
    fetch: Fetch
    checkpoint_told: CheckpointTold
    look_at_peers: LookAtPeers
    drained: Drained
    collect_stacks: CollectStacks
    returning: Return
    discard: Discard
    profile: Profile
    probe_links: ProbeLinks
    read_log: ReadLog
    check_node: CheckNode
    relay_beats: RelayBeats
    beats_taken: BeatsTaken
    incident: str
    def __init__(self, term: _Optional[int] = ..., welcome: _Optional[_Union[Welcome, _Mapping]] = ..., refused: _Optional[_Union[Refused, _Mapping]] = ..., launch: _Optional[_Union[Launch, _Mapping]] = ..., interrupt: _Optional[_Union[Interrupt, _Mapping]] = ..., form: _Optional[_Union[Form, _Mapping]] = ..., kill: _Optional[_Union[Kill, _Mapping]] = ..., complete: _Optional[_Union[Complete, _Mapping]] = ..., release: _Optional[_Union[Release, _Mapping]] = ..., persist: _Optional[_Union[Persist, _Mapping]] = ..., publish: _Optional[_Union[Publish, _Mapping]] = ..., load: _Optional[_Union[Load, _Mapping]] = ..., seal: _Optional[_Union[Seal, _Mapping]] = ..., mirror: _Optional[_Union[Mirror, _Mapping]] = ..., collect: _Optional[_Union[Collect, _Mapping]] = ..., scrub: _Optional[_Union[Scrub, _Mapping]] = ..., replicate: _Optional[_Union[Replicate, _Mapping]] = ..., fetch: _Optional[_Union[Fetch, _Mapping]] = ..., checkpoint_told: _Optional[_Union[CheckpointTold, _Mapping]] = ..., look_at_peers: _Optional[_Union[LookAtPeers, _Mapping]] = ..., drained: _Optional[_Union[Drained, _Mapping]] = ..., collect_stacks: _Optional[_Union[CollectStacks, _Mapping]] = ..., returning: _Optional[_Union[Return, _Mapping]] = ..., discard: _Optional[_Union[Discard, _Mapping]] = ..., profile: _Optional[_Union[Profile, _Mapping]] = ..., probe_links: _Optional[_Union[ProbeLinks, _Mapping]] = ..., read_log: _Optional[_Union[ReadLog, _Mapping]] = ..., check_node: _Optional[_Union[CheckNode, _Mapping]] = ..., relay_beats: _Optional[_Union[RelayBeats, _Mapping]] = ..., beats_taken: _Optional[_Union[BeatsTaken, _Mapping]] = ..., incident: _Optional[str] = ...) -> None: ...

class LogMark(_message.Message):
    __slots__ = ("from_bytes", "at_s", "rank", "generation")
    FROM_BYTES_FIELD_NUMBER: _ClassVar[int]
    AT_S_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    from_bytes: int
    at_s: float
    rank: int
    generation: int
    def __init__(self, from_bytes: _Optional[int] = ..., at_s: _Optional[float] = ..., rank: _Optional[int] = ..., generation: _Optional[int] = ...) -> None: ...

class LogFile(_message.Message):
    __slots__ = ("member", "bytes", "gone_bytes", "alive", "marks")
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    GONE_BYTES_FIELD_NUMBER: _ClassVar[int]
    ALIVE_FIELD_NUMBER: _ClassVar[int]
    MARKS_FIELD_NUMBER: _ClassVar[int]
    member: str
    bytes: int
    gone_bytes: int
    alive: bool
    marks: _containers.RepeatedCompositeFieldContainer[LogMark]
    def __init__(self, member: _Optional[str] = ..., bytes: _Optional[int] = ..., gone_bytes: _Optional[int] = ..., alive: bool = ..., marks: _Optional[_Iterable[_Union[LogMark, _Mapping]]] = ...) -> None: ...

class LogHead(_message.Message):
    __slots__ = ("node", "job", "request", "reason", "files")
    NODE_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    node: str
    job: str
    request: str
    reason: str
    files: _containers.RepeatedCompositeFieldContainer[LogFile]
    def __init__(self, node: _Optional[str] = ..., job: _Optional[str] = ..., request: _Optional[str] = ..., reason: _Optional[str] = ..., files: _Optional[_Iterable[_Union[LogFile, _Mapping]]] = ...) -> None: ...

class LogBlock(_message.Message):
    __slots__ = ("from_bytes", "data")
    FROM_BYTES_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    from_bytes: int
    data: bytes
    def __init__(self, from_bytes: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class LogPart(_message.Message):
    __slots__ = ("head", "block")
    HEAD_FIELD_NUMBER: _ClassVar[int]
    BLOCK_FIELD_NUMBER: _ClassVar[int]
    head: LogHead
    block: LogBlock
    def __init__(self, head: _Optional[_Union[LogHead, _Mapping]] = ..., block: _Optional[_Union[LogBlock, _Mapping]] = ...) -> None: ...

class LogTaken(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ClockRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ClockReply(_message.Message):
    __slots__ = ("received_s", "sent_s")
    RECEIVED_S_FIELD_NUMBER: _ClassVar[int]
    SENT_S_FIELD_NUMBER: _ClassVar[int]
    received_s: float
    sent_s: float
    def __init__(self, received_s: _Optional[float] = ..., sent_s: _Optional[float] = ...) -> None: ...

class SubmitRequest(_message.Message):
    __slots__ = ("spec",)
    SPEC_FIELD_NUMBER: _ClassVar[int]
    spec: JobSpec
    def __init__(self, spec: _Optional[_Union[JobSpec, _Mapping]] = ...) -> None: ...

class SubmitReply(_message.Message):
    __slots__ = ("job", "resumed", "phase")
    JOB_FIELD_NUMBER: _ClassVar[int]
    RESUMED_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    job: str
    resumed: bool
    phase: str
    def __init__(self, job: _Optional[str] = ..., resumed: bool = ..., phase: _Optional[str] = ...) -> None: ...

class StopRequest(_message.Message):
    __slots__ = ("job", "reason")
    JOB_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    job: str
    reason: str
    def __init__(self, job: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class StopReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class JobRow(_message.Message):
    __slots__ = ("job", "phase", "reason", "generation", "world_size", "step", "restarts", "incidents", "last_checkpoint", "argv", "health", "troubles", "total_s", "productive_s", "unknown_s", "age_s", "step_s", "loss", "eta_s", "eta_word", "eta_reason", "end_step", "eta_of")
    JOB_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    WORLD_SIZE_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    RESTARTS_FIELD_NUMBER: _ClassVar[int]
    INCIDENTS_FIELD_NUMBER: _ClassVar[int]
    LAST_CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    ARGV_FIELD_NUMBER: _ClassVar[int]
    HEALTH_FIELD_NUMBER: _ClassVar[int]
    TROUBLES_FIELD_NUMBER: _ClassVar[int]
    TOTAL_S_FIELD_NUMBER: _ClassVar[int]
    PRODUCTIVE_S_FIELD_NUMBER: _ClassVar[int]
    UNKNOWN_S_FIELD_NUMBER: _ClassVar[int]
    AGE_S_FIELD_NUMBER: _ClassVar[int]
    STEP_S_FIELD_NUMBER: _ClassVar[int]
    LOSS_FIELD_NUMBER: _ClassVar[int]
    ETA_S_FIELD_NUMBER: _ClassVar[int]
    ETA_WORD_FIELD_NUMBER: _ClassVar[int]
    ETA_REASON_FIELD_NUMBER: _ClassVar[int]
    END_STEP_FIELD_NUMBER: _ClassVar[int]
    ETA_OF_FIELD_NUMBER: _ClassVar[int]
    job: str
    phase: str
    reason: str
    generation: int
    world_size: int
    step: int
    restarts: int
    incidents: int
    last_checkpoint: str
    argv: str
    health: str
    troubles: _containers.RepeatedScalarFieldContainer[str]
    total_s: float
    productive_s: float
    unknown_s: float
    age_s: float
    step_s: float
    loss: float
    eta_s: float
    eta_word: str
    eta_reason: str
    end_step: int
    eta_of: str
    def __init__(self, job: _Optional[str] = ..., phase: _Optional[str] = ..., reason: _Optional[str] = ..., generation: _Optional[int] = ..., world_size: _Optional[int] = ..., step: _Optional[int] = ..., restarts: _Optional[int] = ..., incidents: _Optional[int] = ..., last_checkpoint: _Optional[str] = ..., argv: _Optional[str] = ..., health: _Optional[str] = ..., troubles: _Optional[_Iterable[str]] = ..., total_s: _Optional[float] = ..., productive_s: _Optional[float] = ..., unknown_s: _Optional[float] = ..., age_s: _Optional[float] = ..., step_s: _Optional[float] = ..., loss: _Optional[float] = ..., eta_s: _Optional[float] = ..., eta_word: _Optional[str] = ..., eta_reason: _Optional[str] = ..., end_step: _Optional[int] = ..., eta_of: _Optional[str] = ...) -> None: ...

class NodeRow(_message.Message):
    __slots__ = ("node", "state", "address", "incarnation", "slots", "members", "last_heard_s", "reason", "standing", "score", "connected_s")
    NODE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    LAST_HEARD_S_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    STANDING_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    CONNECTED_S_FIELD_NUMBER: _ClassVar[int]
    node: str
    state: str
    address: str
    incarnation: int
    slots: int
    members: int
    last_heard_s: float
    reason: str
    standing: str
    score: float
    connected_s: float
    def __init__(self, node: _Optional[str] = ..., state: _Optional[str] = ..., address: _Optional[str] = ..., incarnation: _Optional[int] = ..., slots: _Optional[int] = ..., members: _Optional[int] = ..., last_heard_s: _Optional[float] = ..., reason: _Optional[str] = ..., standing: _Optional[str] = ..., score: _Optional[float] = ..., connected_s: _Optional[float] = ...) -> None: ...

class RankRow(_message.Message):
    __slots__ = ("job", "rank", "member", "node", "phase", "role", "generation", "step", "pid", "stalled_s")
    JOB_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    STALLED_S_FIELD_NUMBER: _ClassVar[int]
    job: str
    rank: int
    member: str
    node: str
    phase: str
    role: str
    generation: int
    step: int
    pid: int
    stalled_s: float
    def __init__(self, job: _Optional[str] = ..., rank: _Optional[int] = ..., member: _Optional[str] = ..., node: _Optional[str] = ..., phase: _Optional[str] = ..., role: _Optional[str] = ..., generation: _Optional[int] = ..., step: _Optional[int] = ..., pid: _Optional[int] = ..., stalled_s: _Optional[float] = ...) -> None: ...

class HealthRow(_message.Message):
    __slots__ = ("level", "reasons", "jobs")
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    REASONS_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    level: str
    reasons: _containers.RepeatedScalarFieldContainer[str]
    jobs: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, level: _Optional[str] = ..., reasons: _Optional[_Iterable[str]] = ..., jobs: _Optional[_Iterable[str]] = ...) -> None: ...

class StatusReply(_message.Message):
    __slots__ = ("cluster", "term", "leader", "jobs", "nodes", "ranks", "checkpoints", "health")
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    RANKS_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINTS_FIELD_NUMBER: _ClassVar[int]
    HEALTH_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    term: int
    leader: str
    jobs: _containers.RepeatedCompositeFieldContainer[JobRow]
    nodes: _containers.RepeatedCompositeFieldContainer[NodeRow]
    ranks: _containers.RepeatedCompositeFieldContainer[RankRow]
    checkpoints: _containers.RepeatedCompositeFieldContainer[CheckpointRecord]
    health: HealthRow
    def __init__(self, cluster: _Optional[str] = ..., term: _Optional[int] = ..., leader: _Optional[str] = ..., jobs: _Optional[_Iterable[_Union[JobRow, _Mapping]]] = ..., nodes: _Optional[_Iterable[_Union[NodeRow, _Mapping]]] = ..., ranks: _Optional[_Iterable[_Union[RankRow, _Mapping]]] = ..., checkpoints: _Optional[_Iterable[_Union[CheckpointRecord, _Mapping]]] = ..., health: _Optional[_Union[HealthRow, _Mapping]] = ...) -> None: ...

class DrainRequest(_message.Message):
    __slots__ = ("node", "reason", "deadline_s", "force")
    NODE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_S_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    node: str
    reason: str
    deadline_s: float
    force: bool
    def __init__(self, node: _Optional[str] = ..., reason: _Optional[str] = ..., deadline_s: _Optional[float] = ..., force: bool = ...) -> None: ...

class CordonRequest(_message.Message):
    __slots__ = ("node", "on", "reason")
    NODE_FIELD_NUMBER: _ClassVar[int]
    ON_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    node: str
    on: bool
    reason: str
    def __init__(self, node: _Optional[str] = ..., on: bool = ..., reason: _Optional[str] = ...) -> None: ...

class MarkReply(_message.Message):
    __slots__ = ("outcome", "reason")
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    outcome: str
    reason: str
    def __init__(self, outcome: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class DeleteRequest(_message.Message):
    __slots__ = ("job", "reason")
    JOB_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    job: str
    reason: str
    def __init__(self, job: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class PauseRequest(_message.Message):
    __slots__ = ("job", "on", "reason")
    JOB_FIELD_NUMBER: _ClassVar[int]
    ON_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    job: str
    on: bool
    reason: str
    def __init__(self, job: _Optional[str] = ..., on: bool = ..., reason: _Optional[str] = ...) -> None: ...

class CheckpointRequest(_message.Message):
    __slots__ = ("job", "reason")
    JOB_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    job: str
    reason: str
    def __init__(self, job: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class ReleaseRequest(_message.Message):
    __slots__ = ("node", "reason")
    NODE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    node: str
    reason: str
    def __init__(self, node: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class ReleaseReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class EventsRequest(_message.Message):
    __slots__ = ("follow", "after", "job")
    FOLLOW_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    follow: bool
    after: int
    job: str
    def __init__(self, follow: bool = ..., after: _Optional[int] = ..., job: _Optional[str] = ...) -> None: ...

class EventLine(_message.Message):
    __slots__ = ("sequence", "json")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    JSON_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    json: str
    def __init__(self, sequence: _Optional[int] = ..., json: _Optional[str] = ...) -> None: ...

class AdoptRequest(_message.Message):
    __slots__ = ("job", "records")
    JOB_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    job: str
    records: _containers.RepeatedCompositeFieldContainer[CheckpointRecord]
    def __init__(self, job: _Optional[str] = ..., records: _Optional[_Iterable[_Union[CheckpointRecord, _Mapping]]] = ...) -> None: ...

class AdoptReply(_message.Message):
    __slots__ = ("adopted", "refused")
    ADOPTED_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    adopted: _containers.RepeatedScalarFieldContainer[str]
    refused: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, adopted: _Optional[_Iterable[str]] = ..., refused: _Optional[_Iterable[str]] = ...) -> None: ...

class DiagnoseRequest(_message.Message):
    __slots__ = ("job",)
    JOB_FIELD_NUMBER: _ClassVar[int]
    job: str
    def __init__(self, job: _Optional[str] = ...) -> None: ...

class DiagnoseReply(_message.Message):
    __slots__ = ("json",)
    JSON_FIELD_NUMBER: _ClassVar[int]
    json: str
    def __init__(self, json: _Optional[str] = ...) -> None: ...

class MuteRequest(_message.Message):
    __slots__ = ("job", "id", "for_s", "reason")
    JOB_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    FOR_S_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    job: str
    id: str
    for_s: float
    reason: str
    def __init__(self, job: _Optional[str] = ..., id: _Optional[str] = ..., for_s: _Optional[float] = ..., reason: _Optional[str] = ...) -> None: ...

class ProfileRequest(_message.Message):
    __slots__ = ("job", "ranks", "steps", "timeout_s", "reason")
    JOB_FIELD_NUMBER: _ClassVar[int]
    RANKS_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_S_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    job: str
    ranks: _containers.RepeatedScalarFieldContainer[int]
    steps: int
    timeout_s: float
    reason: str
    def __init__(self, job: _Optional[str] = ..., ranks: _Optional[_Iterable[int]] = ..., steps: _Optional[int] = ..., timeout_s: _Optional[float] = ..., reason: _Optional[str] = ...) -> None: ...

class ProfileReply(_message.Message):
    __slots__ = ("node", "rank", "profiled")
    NODE_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    PROFILED_FIELD_NUMBER: _ClassVar[int]
    node: str
    rank: int
    profiled: Profiled
    def __init__(self, node: _Optional[str] = ..., rank: _Optional[int] = ..., profiled: _Optional[_Union[Profiled, _Mapping]] = ...) -> None: ...

class ListLogsRequest(_message.Message):
    __slots__ = ("job", "ranks", "former")
    JOB_FIELD_NUMBER: _ClassVar[int]
    RANKS_FIELD_NUMBER: _ClassVar[int]
    FORMER_FIELD_NUMBER: _ClassVar[int]
    job: str
    ranks: _containers.RepeatedScalarFieldContainer[int]
    former: bool
    def __init__(self, job: _Optional[str] = ..., ranks: _Optional[_Iterable[int]] = ..., former: bool = ...) -> None: ...

class NodeLogs(_message.Message):
    __slots__ = ("node", "reason", "files")
    NODE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    node: str
    reason: str
    files: _containers.RepeatedCompositeFieldContainer[LogFile]
    def __init__(self, node: _Optional[str] = ..., reason: _Optional[str] = ..., files: _Optional[_Iterable[_Union[LogFile, _Mapping]]] = ...) -> None: ...

class ListLogsReply(_message.Message):
    __slots__ = ("nodes",)
    NODES_FIELD_NUMBER: _ClassVar[int]
    nodes: _containers.RepeatedCompositeFieldContainer[NodeLogs]
    def __init__(self, nodes: _Optional[_Iterable[_Union[NodeLogs, _Mapping]]] = ...) -> None: ...

class ReadLogRequest(_message.Message):
    __slots__ = ("job", "node", "member", "from_bytes", "end_bytes", "tail", "since_s", "follow")
    JOB_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    FROM_BYTES_FIELD_NUMBER: _ClassVar[int]
    END_BYTES_FIELD_NUMBER: _ClassVar[int]
    TAIL_FIELD_NUMBER: _ClassVar[int]
    SINCE_S_FIELD_NUMBER: _ClassVar[int]
    FOLLOW_FIELD_NUMBER: _ClassVar[int]
    job: str
    node: str
    member: str
    from_bytes: int
    end_bytes: int
    tail: int
    since_s: float
    follow: bool
    def __init__(self, job: _Optional[str] = ..., node: _Optional[str] = ..., member: _Optional[str] = ..., from_bytes: _Optional[int] = ..., end_bytes: _Optional[int] = ..., tail: _Optional[int] = ..., since_s: _Optional[float] = ..., follow: bool = ...) -> None: ...

class StacksRequest(_message.Message):
    __slots__ = ("job", "ranks")
    JOB_FIELD_NUMBER: _ClassVar[int]
    RANKS_FIELD_NUMBER: _ClassVar[int]
    job: str
    ranks: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, job: _Optional[str] = ..., ranks: _Optional[_Iterable[int]] = ...) -> None: ...

class RankStacks(_message.Message):
    __slots__ = ("node", "rank", "reason", "report")
    NODE_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    node: str
    rank: int
    reason: str
    report: Standing
    def __init__(self, node: _Optional[str] = ..., rank: _Optional[int] = ..., reason: _Optional[str] = ..., report: _Optional[_Union[Standing, _Mapping]] = ...) -> None: ...

class StacksReply(_message.Message):
    __slots__ = ("ranks",)
    RANKS_FIELD_NUMBER: _ClassVar[int]
    ranks: _containers.RepeatedCompositeFieldContainer[RankStacks]
    def __init__(self, ranks: _Optional[_Iterable[_Union[RankStacks, _Mapping]]] = ...) -> None: ...
