"""Define the events that people cause, by commands: part of `events`."""

from __future__ import annotations

from dataclasses import dataclass

from controlplane.core.records.model import JobSpec


@dataclass(frozen=True, slots=True)
class QuarantineReleased:
    """A person declares a node sound: its history of failures is deleted."""

    node: str
    reason: str


@dataclass(frozen=True, slots=True)
class DrainRequested:
    """A person wants a node free of ranks, after `deadline_s` in any case. `force`: even if a job parks."""

    node: str
    reason: str
    deadline_s: float
    force: bool = False


@dataclass(frozen=True, slots=True)
class CordonRequested:
    """A person wants a node to take no new ranks from now on (`on`), or to take them again."""

    node: str
    on: bool
    reason: str


@dataclass(frozen=True, slots=True)
class JobSubmitted:
    """A user submitted a job. One of that name that has not ended goes on; other settings are refused."""

    spec: JobSpec


@dataclass(frozen=True, slots=True)
class JobStopRequested:
    """A user wants a job to end."""

    job: str
    reason: str


@dataclass(frozen=True, slots=True)
class JobDeleteRequested:
    """A person wants an ended job forgotten."""

    job: str
    reason: str


@dataclass(frozen=True, slots=True)
class PauseRequested:
    """A person wants a job to stop at a step boundary and hold its state (`on`), or to resume."""

    job: str
    on: bool
    reason: str


@dataclass(frozen=True, slots=True)
class CheckpointWanted:
    """A person wants the newest state of a job made durable now."""

    job: str
    reason: str
