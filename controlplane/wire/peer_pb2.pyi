from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Snapshot(_message.Message):
    __slots__ = ("job", "member", "rank", "shard", "step", "generation", "data_bytes", "header_bytes", "digests", "vouched")
    JOB_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    SHARD_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    DATA_BYTES_FIELD_NUMBER: _ClassVar[int]
    HEADER_BYTES_FIELD_NUMBER: _ClassVar[int]
    DIGESTS_FIELD_NUMBER: _ClassVar[int]
    VOUCHED_FIELD_NUMBER: _ClassVar[int]
    job: str
    member: str
    rank: int
    shard: str
    step: int
    generation: int
    data_bytes: int
    header_bytes: int
    digests: bytes
    vouched: str
    def __init__(self, job: _Optional[str] = ..., member: _Optional[str] = ..., rank: _Optional[int] = ..., shard: _Optional[str] = ..., step: _Optional[int] = ..., generation: _Optional[int] = ..., data_bytes: _Optional[int] = ..., header_bytes: _Optional[int] = ..., digests: _Optional[bytes] = ..., vouched: _Optional[str] = ...) -> None: ...

class PutMessage(_message.Message):
    __slots__ = ("snapshot", "block", "finish")
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    BLOCK_FIELD_NUMBER: _ClassVar[int]
    FINISH_FIELD_NUMBER: _ClassVar[int]
    snapshot: Snapshot
    block: bytes
    finish: Finish
    def __init__(self, snapshot: _Optional[_Union[Snapshot, _Mapping]] = ..., block: _Optional[bytes] = ..., finish: _Optional[_Union[Finish, _Mapping]] = ...) -> None: ...

class Finish(_message.Message):
    __slots__ = ("digest",)
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    digest: bytes
    def __init__(self, digest: _Optional[bytes] = ...) -> None: ...

class PutAnswer(_message.Message):
    __slots__ = ("working", "lacking", "stored")
    WORKING_FIELD_NUMBER: _ClassVar[int]
    LACKING_FIELD_NUMBER: _ClassVar[int]
    STORED_FIELD_NUMBER: _ClassVar[int]
    working: Working
    lacking: Lacking
    stored: Stored
    def __init__(self, working: _Optional[_Union[Working, _Mapping]] = ..., lacking: _Optional[_Union[Lacking, _Mapping]] = ..., stored: _Optional[_Union[Stored, _Mapping]] = ...) -> None: ...

class Working(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Lacking(_message.Message):
    __slots__ = ("chunks",)
    CHUNKS_FIELD_NUMBER: _ClassVar[int]
    chunks: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, chunks: _Optional[_Iterable[int]] = ...) -> None: ...

class Stored(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetRequest(_message.Message):
    __slots__ = ("member", "step", "generation", "job")
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    member: str
    step: int
    generation: int
    job: str
    def __init__(self, member: _Optional[str] = ..., step: _Optional[int] = ..., generation: _Optional[int] = ..., job: _Optional[str] = ...) -> None: ...

class GetMessage(_message.Message):
    __slots__ = ("snapshot", "block")
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    BLOCK_FIELD_NUMBER: _ClassVar[int]
    snapshot: Snapshot
    block: bytes
    def __init__(self, snapshot: _Optional[_Union[Snapshot, _Mapping]] = ..., block: _Optional[bytes] = ...) -> None: ...

class HaveRequest(_message.Message):
    __slots__ = ("member", "job")
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    member: str
    job: str
    def __init__(self, member: _Optional[str] = ..., job: _Optional[str] = ...) -> None: ...

class HaveReply(_message.Message):
    __slots__ = ("copies",)
    COPIES_FIELD_NUMBER: _ClassVar[int]
    copies: _containers.RepeatedCompositeFieldContainer[Snapshot]
    def __init__(self, copies: _Optional[_Iterable[_Union[Snapshot, _Mapping]]] = ...) -> None: ...

class DropRequest(_message.Message):
    __slots__ = ("member", "job")
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    member: str
    job: str
    def __init__(self, member: _Optional[str] = ..., job: _Optional[str] = ...) -> None: ...

class DropReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class EchoRequest(_message.Message):
    __slots__ = ("job", "payload", "look", "check")
    JOB_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    LOOK_FIELD_NUMBER: _ClassVar[int]
    CHECK_FIELD_NUMBER: _ClassVar[int]
    job: str
    payload: bytes
    look: bool
    check: bool
    def __init__(self, job: _Optional[str] = ..., payload: _Optional[bytes] = ..., look: bool = ..., check: bool = ...) -> None: ...

class CpuLook(_message.Message):
    __slots__ = ("at_s", "ran_s", "waited_s", "pressed_s")
    AT_S_FIELD_NUMBER: _ClassVar[int]
    RAN_S_FIELD_NUMBER: _ClassVar[int]
    WAITED_S_FIELD_NUMBER: _ClassVar[int]
    PRESSED_S_FIELD_NUMBER: _ClassVar[int]
    at_s: float
    ran_s: float
    waited_s: float
    pressed_s: float
    def __init__(self, at_s: _Optional[float] = ..., ran_s: _Optional[float] = ..., waited_s: _Optional[float] = ..., pressed_s: _Optional[float] = ...) -> None: ...

class CheckLook(_message.Message):
    __slots__ = ("received_s", "sent_s", "disturbs")
    RECEIVED_S_FIELD_NUMBER: _ClassVar[int]
    SENT_S_FIELD_NUMBER: _ClassVar[int]
    DISTURBS_FIELD_NUMBER: _ClassVar[int]
    received_s: float
    sent_s: float
    disturbs: str
    def __init__(self, received_s: _Optional[float] = ..., sent_s: _Optional[float] = ..., disturbs: _Optional[str] = ...) -> None: ...

class EchoReply(_message.Message):
    __slots__ = ("busy", "look", "check")
    BUSY_FIELD_NUMBER: _ClassVar[int]
    LOOK_FIELD_NUMBER: _ClassVar[int]
    CHECK_FIELD_NUMBER: _ClassVar[int]
    busy: bool
    look: CpuLook
    check: CheckLook
    def __init__(self, busy: bool = ..., look: _Optional[_Union[CpuLook, _Mapping]] = ..., check: _Optional[_Union[CheckLook, _Mapping]] = ...) -> None: ...

class RelayRequest(_message.Message):
    __slots__ = ("beat", "seq")
    BEAT_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    beat: bytes
    seq: int
    def __init__(self, beat: _Optional[bytes] = ..., seq: _Optional[int] = ...) -> None: ...

class RelayAnswer(_message.Message):
    __slots__ = ("taken_seq",)
    TAKEN_SEQ_FIELD_NUMBER: _ClassVar[int]
    taken_seq: int
    def __init__(self, taken_seq: _Optional[int] = ...) -> None: ...
