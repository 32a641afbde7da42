"""Answer the tools that people use: submit and stop jobs, mark nodes and jobs, show status and events."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import grpc

from controlplane.core import view
from controlplane.core.records.events import (
    CheckpointsFound,
    CheckpointWanted,
    CordonRequested,
    DrainRequested,
    JobDeleteRequested,
    JobStopRequested,
    JobSubmitted,
    PauseRequested,
)
from controlplane.daemon.diagnosis.profiling import ProfileRefused, TermEnded
from controlplane.daemon.diagnosis.stack_requests import StacksRefused
from controlplane.daemon.server import log_streams
from controlplane.settings import SettingsError, check_name
from controlplane.wire import answers, bounds, codec
from controlplane.wire import control_pb2 as pb
from controlplane.wire.control_pb2_grpc import AdminServicer
from controlplane.wire.records import spell
from controlplane.wire.shape import WireError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from controlplane.core.records.model import JobSpec
    from controlplane.daemon.diagnosis.stack_requests import RankStacks
    from controlplane.daemon.leadership.leader_term import LeaderTerm, OperatorRequest
    from controlplane.daemon.server.context import ServerContext

LEADER_KEY = "holdfast-leader"
"""Trailing metadata of a standby's refusal: host:port of the leader, when it is known."""

_WORDS = {"codec": ("", "none", "zstd", "auto"), "commit_when": ("", "both", "first")}
_ADOPTED_MAX = 10_000
DIAGNOSED_MAX = 2000
"""Ranks of which an answer says everything: those that differ most from their peers. Of the others it says
how long their own work takes."""
_REASON_MAX = 200
_SPEC_BYTES_MAX = 128 * 1024
"""Size of a job's specification as JSON. A value of etcd can be a few times as large."""

RANKS_MAX = 16_384
"""Ranks of one job: its generation, with a source for every shard, has to fit into one value of etcd."""

PROFILED_MAX = 16
"""Ranks that are profiled by one request: their traces are for people to open, one by one."""


class Admin(AdminServicer):
    """The Admin service. It answers while this coordinator leads; a standby names the leader."""

    def __init__(self, front: ServerContext) -> None:
        self._front = front

    async def Submit(self, request: pb.SubmitRequest, context: Any) -> pb.SubmitReply:
        """Take a job. Answers once etcd holds it."""
        leader_term = await self._leading(context)
        try:
            spec = codec.spec_from(request.spec)
            check_spec(spec)
        except (WireError, SettingsError) as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        before = _phase(leader_term, spec.job)
        refused, trouble = await leader_term.submit(JobSubmitted(spec))
        if refused:
            remedy = f"end that with `holdfast stop {spec.job}`, or give this one another name"
            told = f"job {spec.job} was not accepted: {refused}: {remedy}"
            await context.abort(grpc.StatusCode.ALREADY_EXISTS, told)
        await _held(trouble, context)
        phase = _phase(leader_term, spec.job)
        return pb.SubmitReply(job=spec.job, resumed=bool(before), phase=phase)

    async def Stop(self, request: pb.StopRequest, context: Any) -> pb.StopReply:
        """Ask a job to end. Answers once etcd holds that."""
        leader_term = await self._leading(context)
        if not _phase(leader_term, request.job):
            await self._no_job(leader_term, request.job, context)
        event = JobStopRequested(request.job, request.reason or "asked to stop")
        await _held(await leader_term.settle(event), context)
        return pb.StopReply()

    async def Delete(self, request: pb.DeleteRequest, context: Any) -> pb.MarkReply:
        """Forget an ended job. Answers once etcd has forgotten it; the reason says what stays."""
        return await self._mark(JobDeleteRequested(request.job, _why(request)), context)

    async def Status(self, request: pb.StatusRequest, context: Any) -> pb.StatusReply:
        """Answer with everything that `holdfast status` and `holdfast get` show."""
        leader_term = await self._leading(context)
        return leader_term.status(self._front.address)

    async def Diagnose(self, request: pb.DiagnoseRequest, context: Any) -> pb.DiagnoseReply:
        """Answer with what is wrong with a job, or with the health of the cluster."""
        leader_term = await self._leading(context)
        if request.job and not _phase(leader_term, request.job):
            await self._no_job(leader_term, request.job, context)
        return pb.DiagnoseReply(json=json.dumps(leader_term.health_report(request.job, DIAGNOSED_MAX)))

    async def Mute(self, request: pb.MuteRequest, context: Any) -> pb.MarkReply:
        """Alert nobody to a finding for some time."""
        if reason := bounds.beyond("MuteRequest", "for_s", request.for_s):
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, reason)
        leader_term = await self._leading(context)
        try:
            told = leader_term.diagnosis.mute(request.job, request.id, request.for_s, _why(request))
        except KeyError as error:
            await context.abort(grpc.StatusCode.NOT_FOUND, str(error.args[0]))
        return pb.MarkReply(outcome="muted" if request.for_s else "unmuted", reason=told)

    async def Profile(self, request: pb.ProfileRequest, context: Any) -> AsyncIterator[pb.ProfileReply]:
        """Have ranks of a running job profile their next steps. Answers with each rank as it is done."""
        if reason := profile_refusal(request):
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, reason)
        leader_term = await self._leading(context)
        if not _phase(leader_term, request.job):
            await self._no_job(leader_term, request.job, context)
        profiles = leader_term.profiles
        try:
            wanted = profiles.begin(
                request.job, request.ranks, request.steps, request.timeout_s, _why(request)
            )
            async for node, rank, profiled in profiles.answers(wanted):
                yield pb.ProfileReply(node=node, rank=rank, profiled=answers.profiled_message(profiled))
        except ProfileRefused as refused:
            await context.abort(grpc.StatusCode.ABORTED, f"job {request.job}: {refused}")
        except TermEnded as ended:
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(ended))

    async def Stacks(self, request: pb.StacksRequest, context: Any) -> pb.StacksReply:
        """Answer with where ranks of a running job are now."""
        reasons = (bounds.beyond("StacksRequest", "ranks", rank) for rank in request.ranks)
        if reason := next(filter(None, reasons), ""):
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, reason)
        leader_term = await self._leading(context)
        if not _phase(leader_term, request.job):
            await self._no_job(leader_term, request.job, context)
        try:
            rows = await leader_term.stacks.collect(request.job, request.ranks)
        except StacksRefused as refused:
            await context.abort(grpc.StatusCode.ABORTED, f"job {request.job}: {refused}")
        return pb.StacksReply(ranks=map(_stacks_row, rows))

    async def ListLogs(self, request: pb.ListLogsRequest, context: Any) -> pb.ListLogsReply:
        """Answer which logs of a job's ranks there are, by node."""
        leader_term = await self._logs(request, context)
        job = leader_term.core.state.jobs[request.job]
        return await log_streams.listed(leader_term.logs, leader_term.tails, job, request, context)

    async def ReadLog(self, request: pb.ReadLogRequest, context: Any) -> AsyncIterator[pb.LogBlock]:
        """Answer with the log of one member, at the pace of the caller."""
        leader_term = await self._logs(request, context)
        async for block in log_streams.read(leader_term.logs, leader_term.tails, request, context):
            yield block

    async def _logs(self, request: pb.ListLogsRequest | pb.ReadLogRequest, context: Any) -> LeaderTerm:
        if reason := log_streams.refusal(request):
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, reason)
        leader_term = await self._leading(context)
        if not _phase(leader_term, request.job):
            await self._no_job(leader_term, request.job, context)
        return leader_term

    async def Release(self, request: pb.ReleaseRequest, context: Any) -> pb.ReleaseReply:
        """End a node's quarantine. Answers once etcd has forgotten the node's failures."""
        leader_term = await self._leading(context)
        known = {row.node: row for row in view.nodes(leader_term.core, time.monotonic())}
        if request.node not in known:
            names = ", ".join(known) or "none"
            await context.abort(
                grpc.StatusCode.NOT_FOUND, f"there is no node {request.node!r:.80}; known are: {names}"
            )
        await _held(await leader_term.release(request.node, _why(request)), context)
        return pb.ReleaseReply()

    async def Drain(self, request: pb.DrainRequest, context: Any) -> pb.MarkReply:
        """Move all ranks off a node. Answers once that has begun, and etcd holds it."""
        if reason := bounds.beyond("DrainRequest", "deadline_s", request.deadline_s):
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, reason)
        event = DrainRequested(request.node, _why(request), request.deadline_s, request.force)
        return await self._mark(event, context)

    async def Cordon(self, request: pb.CordonRequest, context: Any) -> pb.MarkReply:
        """Keep a node from taking new ranks, or allow it again."""
        return await self._mark(CordonRequested(request.node, request.on, _why(request)), context)

    async def Pause(self, request: pb.PauseRequest, context: Any) -> pb.MarkReply:
        """Stop a job at a step boundary, or let it go on. Answers once etcd holds the request."""
        return await self._mark(PauseRequested(request.job, request.on, _why(request)), context)

    async def Checkpoint(self, request: pb.CheckpointRequest, context: Any) -> pb.MarkReply:
        """Save the newest whole snapshot of a job as a checkpoint. Answers once that has begun, or waits."""
        return await self._mark(CheckpointWanted(request.job, _why(request)), context)

    async def _mark(self, event: OperatorRequest, context: Any) -> pb.MarkReply:
        leader_term = await self._leading(context)
        outcome, why, trouble = await leader_term.mark(event)
        await _held(trouble, context)
        if outcome == "refused":
            await context.abort(grpc.StatusCode.ABORTED, f"{_whom(event)}: {why}")
        return pb.MarkReply(outcome=outcome, reason=why)

    async def Adopt(self, request: pb.AdoptRequest, context: Any) -> pb.AdoptReply:
        """Record checkpoints that were found whole on a storage. Answers once etcd holds them."""
        leader_term = await self._leading(context)
        try:
            check_name("job", request.job)
            if len(request.records) > _ADOPTED_MAX:
                raise SettingsError(f"{len(request.records)} records at once: give {_ADOPTED_MAX} at most")
            records = tuple(map(codec.found_from, request.records))
        except (WireError, SettingsError) as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        refused, reason = await leader_term.adopt(CheckpointsFound(request.job, records))
        if reason:
            await context.abort(
                grpc.StatusCode.UNAVAILABLE,
                f"etcd has not confirmed this yet, it may still take effect: {reason}",
            )
        return pb.AdoptReply(
            adopted=[record.id for record in records if record.id not in refused],
            refused=[f"{name}: {why}" for name, why in refused.items()],
        )

    async def Events(self, request: pb.EventsRequest, context: Any) -> AsyncIterator[pb.EventLine]:
        """Answer with the journal's lines after `after`; with `follow` without end. A standby shows
        its own journal."""
        journal = self._front.journal
        if reason := bounds.beyond("EventsRequest", "after", request.after):
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, reason)
        if not request.follow:
            for line in journal.lines(request.after, request.job):
                yield pb.EventLine(sequence=line.sequence, json=line.text)
            return
        async for line in journal.follow(request.after, request.job):
            yield pb.EventLine(sequence=line.sequence, json=line.text)

    async def _no_job(self, leader_term: LeaderTerm, job: str, context: Any) -> None:
        known = ", ".join(row.job for row in view.jobs(leader_term.core, time.monotonic())) or "none"
        await context.abort(grpc.StatusCode.NOT_FOUND, f"there is no job {job!r:.80}; known are: {known}")

    async def _leading(self, context: Any) -> LeaderTerm:
        leader_term = self._front.leader_term
        if leader_term is not None:
            return leader_term
        leader = self._front.leader
        context.set_trailing_metadata(((LEADER_KEY, leader),) if leader else ())
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, self._front.no_leader())
        raise AssertionError("abort always raises")


def _stacks_row(row: RankStacks) -> pb.RankStacks:
    report = answers.report_message(replace(row.report, flight_record="")) if row.report is not None else None
    return pb.RankStacks(node=row.node, rank=row.rank, reason=row.reason, report=report)


async def _held(trouble: str, context: Any) -> None:
    """End the call when `trouble` says why etcd does not hold yet what was asked for."""
    if trouble:
        await context.abort(
            grpc.StatusCode.UNAVAILABLE,
            f"etcd has not confirmed this yet, it may still take effect: {trouble}",
        )


def profile_refusal(request: pb.ProfileRequest) -> str:
    """Return why a request for a profile is impossible, whatever the job; "" when it is not."""
    for name in ("steps", "timeout_s"):
        if reason := bounds.beyond("ProfileRequest", name, getattr(request, name)):
            return reason
    if not 1 <= len(request.ranks) <= PROFILED_MAX:
        return f"{len(request.ranks)} ranks: give 1 to {PROFILED_MAX}"
    reasons = (bounds.beyond("ProfileRequest", "ranks", rank) for rank in request.ranks)
    return next(filter(None, reasons), "")


def _why(request: Any) -> str:
    """Return the reason that a person gave."""
    return str(request.reason[:_REASON_MAX]) or "by hand"


def _whom(event: OperatorRequest) -> str:
    """Name what a request is about, for its error."""
    if isinstance(event, DrainRequested | CordonRequested):
        return f"node {event.node!r:.80}"
    return f"job {event.job!r:.80}"


def check_spec(spec: JobSpec) -> None:
    """Raise SettingsError on a job that is impossible although each of its numbers is within its bounds."""
    check_name("job", spec.job)
    if not spec.argv or not spec.argv[0]:
        raise SettingsError(f"job {spec.job} names no script: give one")
    size = len(spell(spec))
    if size > _SPEC_BYTES_MAX:
        raise SettingsError(
            f"job {spec.job} has {size} bytes of arguments and environment, {_SPEC_BYTES_MAX} at most: "
            "put long values into a file"
        )
    if spec.nnodes_min > spec.nnodes_max:
        raise SettingsError(
            f"nnodes {spec.nnodes_min}:{spec.nnodes_max}: the minimum is larger than the maximum"
        )
    ranks = spec.nnodes_max * spec.nproc_per_node
    if ranks > RANKS_MAX:
        raise SettingsError(f"job {spec.job} would have {ranks} ranks: one job has {RANKS_MAX} at most")
    _check_storage(spec)
    if spec.checkpoint_every % spec.snapshot_every:
        raise SettingsError(
            f"checkpoint_every {spec.checkpoint_every} is not a multiple of "
            f"snapshot_every {spec.snapshot_every}"
        )


def _check_storage(spec: JobSpec) -> None:
    for name, words in _WORDS.items():
        if getattr(spec, name) not in words:
            known = ", ".join(word for word in words if word)
            raise SettingsError(f"{name} {getattr(spec, name)!r} is not one of {known}")
    if spec.mirror and not spec.storage:
        raise SettingsError(f"mirror {spec.mirror} without a storage: name the first with --storage")
    if spec.mirror and spec.mirror == spec.storage:
        raise SettingsError(f"mirror {spec.mirror} is the storage itself: name another place")
    if spec.mirror and not spec.commit_when:
        raise SettingsError("with a mirror, commit_when must be both or first")


def _phase(leader_term: LeaderTerm, job: str) -> str:
    """Return the phase of a job; "" when there is no job of this name."""
    rows = view.jobs(leader_term.core, time.monotonic())
    return next((row.phase for row in rows if row.job == job), "")
