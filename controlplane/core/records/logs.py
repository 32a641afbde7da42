"""Define how the logs of ranks are asked for, and what an agent says of those that it has.

The bytes of a log never meet the core, nor the stream of orders: an agent sends them on a stream of their own
(SendLog), as fast as the person who asked takes them."""

from __future__ import annotations

from dataclasses import dataclass

NO_END = -1
"""In ReadLog.end_bytes: to the end of the log; in ReadLog.tail: every line."""


@dataclass(frozen=True, slots=True)
class ReadLog:
    """Send a member's log, or say which logs of a job this node has. Answered on a stream of its own.

    A byte of a log has one place for ever, counted from the first that was ever written. The part that is
    sent begins at the latest of `from_bytes`, what was written after `since_s`, and the last `tail` lines."""

    node: str
    job: str
    request: str  # names the answer
    member: str = ""  # whose log; "": which logs there are
    from_bytes: int = 0
    end_bytes: int = NO_END
    tail: int = NO_END
    since_s: float = 0.0  # Unix time
    follow: bool = False  # go on until the process has ended


@dataclass(frozen=True, slots=True)
class LogMark:
    """From this byte on, a log was written at `at_s` or later (Unix time), as this rank of this
    generation."""

    from_bytes: int
    at_s: float
    rank: int  # NO_RANK: a process without a seat
    generation: int  # 0: none yet


@dataclass(frozen=True, slots=True)
class LogFile:
    """The log of one member. `gone_bytes`: so many bytes at its beginning are not kept any more."""

    member: str
    bytes: int
    gone_bytes: int
    alive: bool  # its process may still write
    marks: tuple[LogMark, ...]  # one for each change of rank or generation, the newest last


@dataclass(frozen=True, slots=True)
class LogHead:
    """How an agent begins to answer a ReadLog. `reason`: why nothing follows; "": all is well."""

    node: str
    job: str
    request: str
    reason: str = ""
    files: tuple[LogFile, ...] = ()
