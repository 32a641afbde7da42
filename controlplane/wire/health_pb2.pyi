from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class HealthRequest(_message.Message):
    __slots__ = ("service",)
    SERVICE_FIELD_NUMBER: _ClassVar[int]
    service: str
    def __init__(self, service: _Optional[str] = ...) -> None: ...

class HealthReply(_message.Message):
    __slots__ = ("status",)
    class Serving(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        UNKNOWN: _ClassVar[HealthReply.Serving]
        SERVING: _ClassVar[HealthReply.Serving]
        NOT_SERVING: _ClassVar[HealthReply.Serving]
        SERVICE_UNKNOWN: _ClassVar[HealthReply.Serving]
    UNKNOWN: HealthReply.Serving
    SERVING: HealthReply.Serving
    NOT_SERVING: HealthReply.Serving
    SERVICE_UNKNOWN: HealthReply.Serving
    STATUS_FIELD_NUMBER: _ClassVar[int]
    status: HealthReply.Serving
    def __init__(self, status: _Optional[_Union[HealthReply.Serving, str]] = ...) -> None: ...
