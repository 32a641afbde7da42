"""Translate what people are answered between records and messages: logs, stacks, profiles."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.core.records.logs import LogFile, LogHead
from controlplane.core.records.model import Standing
from controlplane.wire import bounds
from controlplane.wire import control_pb2 as pb
from controlplane.wire.mapping import PROFILED, RECORDS, Mapping
from controlplane.wire.shape import WireError

if TYPE_CHECKING:
    from controlplane.core.records.diagnosis import RankProfiled

_LOG_HEAD = Mapping(LogHead, pb.LogHead, 0, "node job request")


def head_message(head: LogHead) -> pb.LogPart:
    """Return the first message of a SendLog stream."""
    return pb.LogPart(head=_LOG_HEAD.write(head))


def head_from(message: pb.LogPart) -> LogHead:
    """Return how a SendLog stream begins. Raises WireError."""
    if message.WhichOneof("body") != "head":
        raise WireError("the first message of a log must be its head")
    head: LogHead = _LOG_HEAD.read(message.head)
    bounds.check(head)
    return head


def file_message(file: LogFile) -> pb.LogFile:
    """Return one log as a message, for Admin.ListLogs."""
    message: pb.LogFile = RECORDS[LogFile].write(file)
    return message


def file_from(message: pb.LogFile) -> LogFile:
    """Return one log in an answer of Admin.ListLogs. Raises WireError."""
    file: LogFile = RECORDS[LogFile].read(message)
    return file


def report_message(report: Standing) -> pb.Standing:
    """Return a rank's stack report as a message, for Admin.Stacks."""
    message: pb.Standing = RECORDS[Standing].write(report)
    return message


def profiled_message(answer: RankProfiled) -> pb.Profiled:
    """Return the answer to a profile as a message, for Admin.Profile."""
    message: pb.Profiled = PROFILED.write(answer)
    return message
